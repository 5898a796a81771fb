"""Markup within a line. Each reader takes the index of its sign and returns where to go on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from html import unescape
from typing import Final

import regex

from gateway.spoken import patterns as p
from gateway.spoken.latex import in_words
from gateway.spoken.scanner import Scanner

_LONGEST_RUN: Final = 200
_LONGEST_SPAN: Final = 300
_LONGEST_FORMULA: Final = 600
_LONGEST_LINK: Final = 2000
_LONGEST_URL: Final = 800
_LONGEST_TAG: Final = 500


def _line_end(scan: Scanner, index: int) -> int:
    scan.line_start = True
    heading, scan.heading, scan.table = scan.heading, False, False
    if heading:
        return scan.say(f"\n{p.LINE}", index, index + 1)
    return scan.keep(index, index + 1) if index < scan.size else index + 1


def _emphasis(scan: Scanner, index: int) -> int:
    char = scan.text[index]
    run = scan.match(p.RUN[char], index, _LONGEST_RUN)
    if run is None:
        return scan.drop(index, index + _LONGEST_RUN)
    end = run.end()
    before, after = scan.before(index), scan.text[end]
    open_left = not before or before.isspace()
    open_right = after.isspace()
    between = before.isalnum() and after.isalnum()
    literal = (
        (open_left and open_right)
        or (char == "_" and between and (before.isascii() or after.isascii()))
        or (char == "*" and end - index == 1 and between and (before + after).isdigit())
        or (char == "~" and end - index != 2)
    )
    if literal:
        return scan.keep(index, end)
    return scan.drop(index, end, leading=not open_right and not before.isalnum())


def _code_span(scan: Scanner, index: int) -> int:
    run = scan.match(p.RUN["`"], index, _LONGEST_RUN)
    if run is None:
        return scan.drop(index, index + _LONGEST_RUN)
    size = len(run.group())
    if size <= len(p.CODE_SPAN):
        span = scan.match(p.CODE_SPAN[size - 1], index, _LONGEST_SPAN)
        if span is not None:
            scan.drop(index, span.start(1), leading=True)
            scan.keep(span.start(1), span.end(1))
            return scan.drop(span.end(1), span.end())
    return scan.drop(index, run.end())


def _backslash(scan: Scanner, index: int) -> int:
    following = scan.after(index + 1)
    if following in "([":
        formula = scan.match(p.FORMULAS["([".index(following)], index, _LONGEST_FORMULA)
        if formula is not None:
            return _formula(scan, formula)
    if scan.match(p.ESCAPE, index, 2):
        scan.drop(index, index + 1, leading=True)
        return scan.keep(index + 1, min(index + 2, scan.size))
    if following == "\n":
        return scan.drop(index, index + 1)
    return scan.keep(index, index + 1)


def _dollar(scan: Scanner, index: int) -> int:
    if scan.after(index + 1) == "$":
        formula = scan.match(p.FORMULAS[2], index, _LONGEST_FORMULA)
        return scan.keep(index, index + 2) if formula is None else _formula(scan, formula)
    if not scan.match(p.PRICE, index, 60):
        formula = scan.match(p.FORMULA, index, _LONGEST_SPAN)
        if formula is not None and p.MATHEMATICAL.search(formula.group(1)):
            return _formula(scan, formula)
    return scan.keep(index, index + 1)


def _formula(scan: Scanner, formula: regex.Match[str]) -> int:
    words = in_words(formula.group(1), scan.mandarin())
    return _say_apart(scan, words, formula.start(), formula.end())


def _say_apart(scan: Scanner, words: str, low: int, high: int) -> int:
    """Say words, with white space where they would run into the text around them."""
    left = " " if scan.before(low).isalnum() else ""
    right = " " if scan.after(high).isalnum() else ""
    return scan.say(f"{left}{words}{right}", low, high)


def _angle(scan: Scanner, index: int) -> int:
    following = scan.after(index + 1)
    if following.isalnum() and (link := scan.match(p.AUTOLINK, index, _LONGEST_LINK)):
        return _address(scan, link.group(1), index, link.end())
    if following == "!" and scan.match(p.COMMENT, index, 4):
        scan.enter(_COMMENT_END, index, index + 4)
        return scan.drop(index, index + 4)
    for sign, pattern in (("|｜", p.SPECIAL_TOKEN), ("!?", p.DECLARATION)):
        if following in sign and (found := scan.match(pattern, index, _LONGEST_TAG)):
            return scan.drop(index, found.end())
    tag = scan.match(p.TAG, index, _LONGEST_TAG)
    if tag is None:
        return scan.keep(index, index + 1)
    closing, name = tag.group(1), tag.group(2).lower()
    if name in _ELEMENT_ENDS and not closing and not tag.group().endswith("/>"):
        scan.enter(_ELEMENT_ENDS[name], index, tag.end())
    said = "\n" if name in p.BREAKING_ELEMENTS else " " if name == "break" else ""
    return scan.say(said, index, tag.end(), leading=not closing and name not in p.VOID_ELEMENTS)


def _bracket(scan: Scanner, index: int) -> int:
    if control := scan.match(p.CONTROL_TAG, index, 20):
        if control.group("style") and scan.settings.control_tags:
            return scan.keep(index, control.end())
        return scan.drop(index, control.end())
    if note := scan.match(p.FOOTNOTE, index, 60):
        return scan.drop(index, note.end())
    before = scan.before(index)
    if before and not before.isspace() and (number := scan.match(p.CITATION, index, 60)):
        return scan.drop(index, number.end())
    return _link(scan, index)


def _link(scan: Scanner, index: int) -> int:
    link = scan.match(p.LINK, index, _LONGEST_LINK)
    if link is None or len(link.group(1)) > _LONGEST_SPAN:
        return scan.keep(index, index + 1)
    scan.link_ends.append((scan.base + link.end(1), scan.base + link.end()))
    return scan.drop(index, link.start(1), leading=True)


def _bracket_end(scan: Scanner, index: int) -> int:
    if scan.link_ends and scan.link_ends[-1][0] == scan.base + index:
        return scan.drop(index, scan.link_ends.pop()[1] - scan.base)
    return scan.keep(index, index + 1)


def _exclamation(scan: Scanner, index: int) -> int:
    if scan.after(index + 1) == "[":
        return _link(scan, index)
    return scan.keep(index, index + 1)


def _citation(scan: Scanner, index: int) -> int:
    if found := scan.match(p.CITATION, index, 90):
        return scan.drop(index, found.end())
    return scan.keep(index, index + 1)


def _entity(scan: Scanner, index: int) -> int:
    entity = scan.match(p.ENTITY, index, 12)
    if entity is None or (char := unescape(entity.group())) == entity.group():
        return scan.keep(index, index + 1)
    return scan.say(char, index, entity.end())


def _bar(scan: Scanner, index: int) -> int:
    before, after = scan.before(index), scan.after(index + 1)
    if not scan.table and not (before.isspace() and after.isspace()):
        return scan.keep(index, index + 1)
    if scan.table:
        last = scan.match(p.BAR, index, _LONGEST_SPAN)
        if last is not None and scan.text[last.end()] in "\r\n":
            return scan.drop(index, last.end())
    return scan.say("，" if scan.mandarin() else ",", index, index + 1)


def _url(scan: Scanner, index: int) -> int:
    url = scan.match(p.URL, index, _LONGEST_URL)
    if url is None:
        return scan.keep(index, index + 1)
    text = url.group()
    while (tail := p.URL_TAIL.search(text)) is not None:
        if tail.group() == ")" and text.count("(") >= text.count(")"):
            break
        text = text[: tail.start()]
    return _address(scan, text, index, index + len(text))


def _address(scan: Scanner, address: str, low: int, high: int) -> int:
    if scan.settings.urls == "drop":
        return scan.drop(low, high)
    host = p.HOST.match(address)
    if host is None or scan.settings.urls == "keep":
        return scan.say(address, low, high)
    return scan.say(host.group(1), low, high)


def _emoji(scan: Scanner, index: int) -> int:
    emoji = scan.match(p.EMOJI, index, 64)
    if emoji is None:  # half a surrogate pair, or a cluster beyond all reason
        return scan.drop(index, index + 1)
    name = ""
    if scan.settings.emoji == "name":
        flag = "\U0001f1e6" <= emoji.group()[0] <= "\U0001f1ff"
        name = "flag" if flag else unicodedata.name(emoji.group()[0], "").lower()
    return _say_apart(scan, name, index, emoji.end())


def _escape(scan: Scanner, index: int) -> int:
    sequence = scan.match(p.TERMINAL, index, _LONGEST_SEQUENCE)
    return scan.drop(index, sequence.end() if sequence else index + 1)


_LONGEST_SEQUENCE: Final = 40
_COMMENT_END: Final = regex.compile(r"-->")
_ELEMENT_ENDS: Final = {
    name: regex.compile(rf"</{name}\s*>", regex.IGNORECASE) for name in p.UNSPOKEN_ELEMENTS
}

_READERS: Final[dict[str, Callable[[Scanner, int], int]]] = {
    "\n": _line_end,
    "\\": _backslash,
    "\x1b": _escape,
    **dict.fromkeys("*_~", _emphasis),
    "`": _code_span,
    "$": _dollar,
    "<": _angle,
    "[": _bracket,
    "]": _bracket_end,
    "!": _exclamation,
    "【": _citation,
    "&": _entity,
    "|": _bar,
    **dict.fromkeys("hHwW", _url),
}


def read_sign(scan: Scanner, index: int) -> int:
    """Read the sign at `index`, found by `patterns.SPECIAL`; returns where to go on.

    Raises `NeedMore`.
    """
    return _READERS.get(scan.text[index], _emoji)(scan, index)
