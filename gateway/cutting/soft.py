"""Where text without punctuation may be cut: between words, never inside a number or a name."""

from __future__ import annotations

import re
from typing import Final

import regex

from gateway import characters as ch

# White space that belongs to what stands on both sides: "Dr. Smith", "J. R. R.", "5 kg", "No. 5".
_GLUED: Final = re.compile(
    r"\b(?:Mr|Mrs|Ms|Mx|Dr|Prof|St|Mt|Nos?|Figs?|Eqs?|Vol|pp?|vs|cf|e\.g|i\.e)\.\s+(?=\S)"
    r"|\b(?:[A-Z]\.\s+)+(?=\S)"
    r"|\d[\d.,:/]*\s+(?=(?:[ap]\.?m\b|[kcmnµμ]?[mgl]\b|[kKMGT]?i?[Bb](?:ps)?\b|[kMG]?Hz\b|°"
    r"|(?:mph|kph|ft|in|lbs?|oz|yd|hrs?|mins?|secs?|ms|km/h|kWh?|MW|%|percent|dollars|euros|pounds"
    r"|million|billion|trillion|thousand|hundred|万|亿|千|百|元|年|月|日|号|点|分|个)))"
    r"|(?:[$€£¥₩₹#@§]|(?:US|A|C|HK|NT)\$|RMB)\s+(?=\d)"
    r"|\b\d{1,2}\s+(?=(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b)"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+(?=\d)"
)
_SPACES: Final = re.compile(r"\s+")
_JOINT: Final = re.compile(
    r"\s+(?=(?:and|but|or|because|which|that|who|when|while|where|if|so|then|than|with|for|from"
    r"|to|into|about|after|before|until|unless|although|though)\s)",
    re.IGNORECASE,
)
# After a Chinese particle that closes a word, or before a word that opens a clause.
_HAN_JOINT: Final = re.compile(
    r"(?<=[\u4e00-\u9fff])(?:了(?![解不如然])|(?<!目)的(?![确士话])|着(?![急火手力重名想迷陆落凉装])"
    r"|[吗呢吧啊呀嘛](?![的了]))(?=[\u4e00-\u9fff])"
    r"|(?<=[\u4e00-\u9fff])(?=(?:因为|所以|但是|可是|不过|如果|虽然|然后|而且|并且|或者|以及|于是|因此"
    r"|我们|你们|他们|它们|这个|那个|这些|那些|没有|可以|应该|已经|正在|需要|通过|根据|由于|为了|关于"
    r"|对于|从而|同时|另外|其中|例如|比如))"
)
# Between a Japanese ending and the word after it, and between Han and Latin words.
_SCRIPT_JOINT: Final = re.compile(
    r"(?<=[\u3041-\u309f])(?=[\u30a1-\u30fa\u4e00-\u9fff])"
    r"|(?<=[\u4e00-\u9fff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u4e00-\u9fff])"
)


def word_cut(text: str, low: int, high: int) -> int | None:
    """The best index in `low..high` at which `text` may be cut between words, or None.

    The latest boundary before a joining word (or after a particle) in the last 40 percent is
    preferred to the latest boundary of any kind. Looks at `text` beyond `high` for what a number
    or a name goes on with.
    """
    glued = {m.end() for m in _GLUED.finditer(text)}
    preferred = high - (high - low) * 2 // 5
    for patterns, least in (((_JOINT, _HAN_JOINT), preferred), ((_SPACES, _SCRIPT_JOINT), low)):
        cuts = [
            m.end()
            for pattern in patterns
            for m in pattern.finditer(text)
            if least <= m.end() <= high and m.end() not in glued
        ]
        if cuts:
            return max(cuts)
    cuts = [m.end() for m in _HAN_JOINT.finditer(text) if low <= m.end() <= high]
    return max(cuts, default=None)


_GRAPHEME: Final = regex.compile(r"\X")
_GRAPHEME_REACH: Final = 32
_PLAIN: Final = frozenset(ch.TRIGGERS)
_RUN: Final = regex.compile(
    r"[\p{Latin}\p{N}\p{Greek}\p{Cyrillic}][\p{Latin}\p{N}\p{Greek}\p{Cyrillic}\p{M}.,:'’\-_/@%]*"
)


def grapheme_cut(text: str, low: int, high: int) -> int:
    """The last grapheme boundary in `low..high`, or the start of the Latin word or number that it
    would cut, if that is in reach; `high` if a single grapheme is longer than that.
    """
    at: int = 0
    for match in _GRAPHEME.finditer(text):
        if match.end() > high:
            break
        at = match.end()
    if at < low:
        return high
    for match in _RUN.finditer(text):
        if match.start() < at < match.end() and match.start() >= low:
            return int(match.start())
    return at


def breaks_grapheme(text: str, cut: int) -> bool:
    """Whether a cut at index `cut` falls inside a grapheme cluster. White space before it, or
    common marks and letters on both sides, show without a look that it does not."""
    before, after = text[cut - 1], text[cut]
    if (before in _PLAIN or before.isspace()) and (
        after in _PLAIN or (after.isalnum() and after not in ch.EXTENDING_LETTERS)
    ):
        return False
    clusters = _GRAPHEME.finditer(text, max(0, cut - _GRAPHEME_REACH), cut + 1)
    return all(cluster.end() != cut for cluster in clusters)
