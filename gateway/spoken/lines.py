"""Markup that opens a line: headings, list items, quotes, rules, tables, code fences."""

from __future__ import annotations

from typing import Final

from gateway.spoken import patterns as p
from gateway.spoken.scanner import NeedMore, Scanner

OPENERS: Final = frozenset("#-*+•◦▪‣>`~|=_[:")
_LONGEST_LINE: Final = 600
_LONGEST_RULE: Final = 120
_CODE_PHRASES: Final = ("Code omitted.", "代码略。")


def line_opening(scan: Scanner, index: int) -> int:
    """Read the markup at `index`, where a line starts; returns where to go on.

    Leaves `scan.line_start` set when more of it may follow. Raises `NeedMore`.
    """
    start = index
    while scan.after(index) in " \t":
        index += 1
    char = scan.text[index]
    if char not in OPENERS:
        scan.line_start, scan.bare = False, True
        return scan.keep(start, index)
    if char in "`~" and (fence := scan.match(p.FENCE, index, _LONGEST_LINE)):
        return _open_code(scan, start, fence.end(), fence.group(1) or fence.group(2))
    if char == "#" and (heading := scan.match(p.HEADING, index, 40)):
        scan.heading = True
        scan.line_start = False
        return scan.say(p.LINE, start, heading.end(), leading=True)
    if char == ">" and (quote := scan.match(p.QUOTE, index, 40)):
        return scan.drop(start, quote.end(), leading=True)
    if char in "-*_=" and (rule := scan.match(p.RULE, index, _LONGEST_RULE)):
        return scan.say("\n", start, rule.end())
    if char in "|:-" and (row := scan.match(p.DELIMITER_ROW, index, _LONGEST_LINE)):
        return scan.say("\n", start, row.end())
    if char in "-*+•◦▪‣" and (bullet := scan.match(p.BULLET, index, 40)):
        return scan.say(p.LINE, start, bullet.end(), leading=True)
    if char == "[" and (definition := scan.match(p.DEFINITION, index, _LONGEST_LINE)):
        return scan.drop(start, definition.end())
    bar = scan.match(p.BAR, index, _LONGEST_LINE) if char == "|" else None
    scan.line_start = False
    if bar is not None:
        scan.table = True
        return scan.say(p.LINE, start, bar.end(), leading=True)
    return scan.keep(start, index)


def _open_code(scan: Scanner, start: int, end: int, fence: str) -> int:
    scan.fence = fence
    phrase = scan.settings.code_phrase
    if phrase is None:
        phrase = _CODE_PHRASES[scan.mandarin()]
    return scan.say(f"{p.LINE}{phrase}{p.LINE}" if phrase else "\n", start, end)


def code_line(scan: Scanner, index: int) -> int:
    """Pass over a line of a code block, or what there is of it; returns where to go on.

    Raises `NeedMore` while the line may still turn out to be the closing fence.
    """
    run = index
    if scan.line_start:
        while scan.after(run) in " \t":
            run += 1
        fence = run
        while scan.after(run) == scan.fence[0]:
            run += 1
        if run - fence < len(scan.fence):
            scan.line_start = False
    end = scan.text.find("\n", run)
    if scan.line_start and not scan.text[run : end if end >= 0 else None].strip():
        if end < 0:
            raise NeedMore
        scan.fence = ""
    scan.line_start = end >= 0
    return scan.drop(index, end + 1 if end >= 0 else len(scan.text))
