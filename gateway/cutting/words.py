"""Which full stops end a sentence: abbreviations, initials, numbers and list markers."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final


class Dot(IntEnum):
    """What a full stop after a word may be."""

    NEVER = 1  # the abbreviation needs what follows it: "Dr. Smith"
    NUMBERED = 2  # an abbreviation only before a number: "No. 5"
    MAYBE = 3  # may stand at the end of a sentence: "the U.S. It is"
    TIME = 4  # "5 p.m. Then", but "5 p.m. Monday"
    LAST = 5  # stands last more often than not: "etc. Then"
    END = 6


def _words(words: str) -> list[str]:
    return words.split()


def _table(**classes: str) -> dict[str, Dot]:
    return {word: Dot[name] for name, words in classes.items() for word in _words(words)}


# Keys with a capital match that spelling or all capitals; lower-case keys match any case.
_ABBREVIATIONS: Final = _table(
    NEVER="""mr mrs ms mx dr drs prof messrs mme mlle sra srta dra hon fr e.g i.e eg ie vs viz cf
        approx incl excl resp bzw z.b d.h vgl""",
    NUMBERED="""no nos nr num p pp ch chap sect art fig figs eq eqs vol vols op ex par para pt pts
        ver v n nn l ll col cols tab app ser ep ed bk c ca""",
    MAYBE="""st ste mt ft gen maj capt cpt cmdr lt sgt cpl adm gov sen rep rev pres supt insp asst
        atty amb dept univ assn bros misc esp inc ltd co corp llc jr sr esq ave blvd rd hwy pl sq
        bldg apt ph.d b.sc m.sc d.phil tel cont avg est temp max repr Jan Feb Mar Apr
        Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Calif Fla
        Penn Tenn""",
    TIME="a.m p.m",
    LAST="""etc al seq ibid usw oz lb lbs yd yds qt gal tsp tbsp ml cl kg km cm mm mg hr hrs min
        mins sec secs""",
)

_STARTERS: Final = frozenset(
    _words(
        """the it its he she they we you i this that these those there here then than in on at for
        from with by as if when while where what who why how which but and so or yet also however
        therefore meanwhile after before since because although though our my your his her their a
        an no not now today yesterday tomorrow some many most all every each both one two do does
        did is are was were can could will would should let please maybe perhaps once until unless
        to"""
    )
)
_TIME_COMPANIONS: Final = re.compile(
    r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?$"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*$"
    r"|[ECMP][SD]?T$|GMT$|UTC$|BST$|CES?T$|JST$|IST$|(?:Eastern|Central|Pacific|Mountain)$"
)
_LONGEST_WORD: Final = 16  # one that is longer is none that is looked for
_WORD: Final = re.compile(rf"[^\W\d_]{{1,{_LONGEST_WORD}}}")
_DOTTED: Final = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]$")
_ROMAN: Final = re.compile(r"I[IVX]+|[VXLC][IVXLC]*")
_UP_TO_CJK: Final = re.compile(r".*[\u2e80-\uffef]", re.DOTALL)
_LABEL: Final = re.compile(r"(?:\d{1,3}|[A-Za-z]|[ivx]{1,4}|[一二三四五六七八九十]{1,3})$")
_LONGEST_LABEL: Final = 5
_TOKEN_REACH: Final = 40
_LONGEST_NUMERAL: Final = 4
_LONGEST_NUMBERING: Final = 2  # "2.关闭"
_AFTER_NUMBER: Final = re.compile(r"\d ?$")
_OPENING: Final = "\"'([{<*_“‘«‹„‚`"


def dot_ends(
    text: str, low: int, dot: int, following: int, *, opens_line: bool, final: bool
) -> bool | None:
    """Whether the full stop at `text[dot]` ends a sentence.

    `low` is the first index that may be looked at (`opens_line`: it begins a line), `following`
    the index of the next letter or digit (`len(text)` when `final` and there is none). None: the
    word there is not complete yet.
    """
    if following >= len(text):
        return True
    token = _token(text, low, dot)
    if len(token) > 1 and token.isalpha() and token.islower() and token not in _ABBREVIATIONS:
        if token == "in" and _AFTER_NUMBER.search(text, low, dot - 2):
            return not text[following].islower()
        return len(token) > _LONGEST_NUMERAL or not is_list_label(
            text, low, dot, opens_line=opens_line
        )
    if not token or is_list_label(text, low, dot, opens_line=opens_line):
        return not token
    if token.isdigit():
        return following > dot + 1 or len(token) > _LONGEST_NUMBERING
    kind = _kind(token)
    if kind is Dot.NEVER:
        return False
    upcoming = text[following]
    if kind is Dot.NUMBERED and (upcoming.isdigit() or upcoming in "IVXLC"):
        word = _word(text, following, final)
        if word is None or upcoming.isdigit() or _ROMAN.fullmatch(word):
            return None if word is None else False
    single = len(token) == 1 and token.isalpha()
    if (kind is Dot.END or kind is Dot.NUMBERED) and not single:
        return True
    if not upcoming.isupper() or (single and token.islower()):
        return upcoming.isupper()
    if kind is Dot.LAST:
        return True
    word = _word(text, following, final)
    if word is None:
        return None
    if kind is Dot.TIME:
        return not _TIME_COMPANIONS.match(word)
    return word.lower() in _STARTERS


def holds_on(text: str, low: int, dot: int, *, spaced: bool, opens_line: bool) -> bool:
    """Whether the full stop at `text[dot]`, after which there is at most white space (`spaced`),
    may well be that of an abbreviation, an initial, a number or a list label."""
    token = _token(text, low, dot)
    if is_list_label(text, low, dot, opens_line=opens_line):
        return True
    if token[-1:].isdigit():
        return not spaced
    return len(token) == 1 or (token != "" and _kind(token) is not Dot.END)


def _token(text: str, low: int, dot: int) -> str:
    reach = max(low, dot - _TOKEN_REACH)
    token = text[max(reach, text.rfind(" ", reach, dot) + 1) : dot]
    if token.isalpha() and token.isascii():
        return token
    token = (token.split() or [""])[-1].lstrip(_OPENING)
    return token if token.isascii() else _UP_TO_CJK.sub("", token)


def is_list_label(text: str, low: int, end: int, *, opens_line: bool) -> bool:
    """Whether `text[low:end]` ends in a list label ("2", "(3", "一") that opens its line."""
    start = end
    while start > low and not text[start - 1].isspace():
        start -= 1
        if end - start > _LONGEST_LABEL:
            return False
    if not _LABEL.match(text[start:end].lstrip("(（[")):
        return False
    head = start
    while head > low and text[head - 1] in " \t>*-":
        head -= 1
    return opens_line if head <= low else text[head - 1] in "\n\r\u2028\u2029"


def _kind(token: str) -> Dot:
    kind = _ABBREVIATIONS.get(token) or _ABBREVIATIONS.get(token.lower())
    if kind is None and token.isupper():
        kind = _ABBREVIATIONS.get(token.capitalize())
    if kind is None:
        kind = Dot.MAYBE if "." in token and _DOTTED.match(token) else Dot.END
    return kind


def _word(text: str, start: int, final: bool) -> str | None:
    match = _WORD.match(text, start)
    if match is None:
        return ""
    complete = final or match.end() < len(text) or match.end() - start == _LONGEST_WORD
    return match.group() if complete else None
