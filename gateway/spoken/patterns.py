"""What markup looks like.

The patterns are matched in part against text that is still arriving: one that has come to the end
of the text without failing waits for more. So none may match completely while more text could
make the match longer; the end of a turn reads as a line end.
"""

from __future__ import annotations

import re
from typing import Final

import regex

LINE: Final = "\u2028"
"""Put where the layout ends a line (heading, list item, table row), whatever its last mark."""

EMOJI_CLASS: Final = (
    "\u2139\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0"
    "\u25fb-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
_MODIFIED: Final = "\ufe0f?[\U0001f3fb-\U0001f3ff]?\ufe0f?"
EMOJI: Final = regex.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[\U0001f1e6-\U0001f1ff](?=[^\U0001f1e6-\U0001f1ff])"
    f"|(?![\U0001f1e6-\U0001f1ff])[{EMOJI_CLASS}]{_MODIFIED}"
    f"(?:\u200d[{EMOJI_CLASS}\u2194-\u2199]{_MODIFIED})*+[\U000e0020-\U000e007f]*+|[\ufe0f\u20e3])"
    "(?=[^\u200d\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
    f"|\u200d[^{EMOJI_CLASS}\u2194-\u2199])"
)

# Where something other than plain text may begin. The class comes first, which lets the search
# skip plain text fast; "h" and "w" count only where a link begins.
SPECIAL: Final = re.compile(
    rf"[\n\x1b\\*_~`<\[\]!&$|【hHwW\ud800-\udfff\ufe0f\u20e3{EMOJI_CLASS}]"
    r"(?:(?<=[^hHwW])|(?<![A-Za-z0-9].)(?:(?<=[hH])(?=[tT]{2}[pP][sS]?://)"
    r"|(?<=[wW])(?=[wW]{2}\.[A-Za-z0-9])))"
)
LINK_STUB: Final = re.compile(
    r"[hw](?<![A-Za-z0-9].)(?:(?<=h)(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?|(?<=w)(?:w(?:w\.?)?)?)$",
    re.IGNORECASE,
)
"""The start of a link at the end of the text so far."""

# Lines
FENCE: Final = regex.compile(r"(`{3,})[^`\n]*\n|(~{3,})[^\n]*\n")
HEADING: Final = regex.compile(r"#{1,6}[ \t]+(?=[^ \t])")
QUOTE: Final = regex.compile(r">[ \t]*(?=[^ \t])")
RULE: Final = regex.compile(
    r"(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|={3,}[ \t]*)\r?\n"
)
BULLET: Final = regex.compile(
    r"[-*+•◦▪‣](?:(?=\r?\n)|[ \t]+(?:\[[ xX]\][ \t]+(?=[^ \t])|(?=[^ \t\[])"
    r"|(?=\[[^ xX])|(?=\[[ xX][^\]])|(?=\[[ xX]\][^ \t])))|[•◦▪‣](?=[^ \t\r\n])"
)
DELIMITER_ROW: Final = regex.compile(r"\|[|:\- \t]*-[|:\- \t]*\r?\n|:?-+:?[ \t]*\|[|:\- \t]*\r?\n")
DEFINITION: Final = regex.compile(r"\[[^\[\]\n^][^\[\]\n]*\]:[ \t]+\S[^\n]*\n")
BAR: Final = regex.compile(r"\|[ \t]*(?=[^ \t])")

# In a line
TERMINAL: Final = regex.compile(r"\x1b\[[0-?]*[ -/]*(?:[@-~]|(?=[^ -~]))")
"""A control sequence of a terminal (ECMA-48), such as a colour, or one broken off."""
RUN: Final = {char: regex.compile(rf"\{char}+(?=[^{char}])") for char in "*_~`"}
CODE_SPAN: Final = (
    regex.compile(r"`([^`\n]+)`"),
    regex.compile(r"``((?:[^`\n]|`(?=[^`]))+)``"),
)
ESCAPE: Final = regex.compile(r"\\[!-/:-@\[-`{-~]")
FORMULAS: Final = (
    regex.compile(r"\\\(([^\n]+?)\\\)"),
    regex.compile(r"\\\[((?:[^\n]|\n(?!\s*\n))+?)\\\]"),
    regex.compile(r"\$\$((?:[^$\n]|\n(?!\s*\n))+)\$\$"),
)
FORMULA: Final = regex.compile(r"\$(?=[^\s$])([^$\n]{1,200}+)(?<=\S)\$(?=\D)")
PRICE: Final = regex.compile(
    r"\$\d[\d,.]*+(?:[–~-]|[\u4e00-\u9fff]|(?:[kKmMbB]|[bm]n)?+(?=[^\w\^\\+=*/<>{}$])"
    r"(?:(?=\S)|\s(?=[^+=*/<>\\^-])))"
)
MATHEMATICAL: Final = re.compile(
    r"[\\^_=<>+*/{}]|^-?[A-Za-z]\w?$|^[A-Za-z]['′]?\([^()]*\)$|^-?\d*\.?\d*[A-Za-z]?$"
)
AUTOLINK: Final = regex.compile(r"<(?:mailto:)?((?:https?://|[\w.+-]+@)[^\s<>]+)>")
TAG: Final = regex.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>\n]*|/)?>")
COMMENT: Final = regex.compile(r"<!--")
DECLARATION: Final = regex.compile(r"<![A-Za-z][^<>\n]*>|<\?[^<>\n]*>")
SPECIAL_TOKEN: Final = regex.compile(r"<[|｜][^|｜<>\n]+[|｜]>")
CONTROL_TAG: Final = regex.compile(
    r"\[(?:(?P<style>uv_break|v_break|lbreak|llbreak|laugh|(?:oral|laugh|break|speed)_\d)"
    r"|[SPE](?:tts|asr|break)|spk_emb|empty_spk|undefine|music|pure|CLS|SEP|PAD|UNK|MASK)\]",
    regex.IGNORECASE,
)
FOOTNOTE: Final = regex.compile(r"\[\^[^\s\[\]]+\](?::|(?=[^:]))")
CITATION: Final = regex.compile(
    r"\[\d{1,3}(?:\s?[,，\-–]\s?\d{1,3})*\](?=[^(\[]|\[\d)|【[^【】\n†]*†[^【】\n]*】"
)
LINK: Final = regex.compile(
    r"!?\[((?:[^\[\]\\\n]|\\[^\n]|!?\[[^\[\]\n]{0,200}\](?:\([^()\s]{0,1000}\))?){0,300}+)\]"
    r"(?:\(\s?(?:<[^<>\n]*>|(?:[^\s()]|\([^\s()]*\))*)(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\s?\)"
    r"|\[[^\[\]\n]*\])"
)
ENTITY: Final = regex.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,9});")
URL: Final = regex.compile(
    r"[^\s<>\"'`“”‘’「」『』（）【】《》，。！？；：、…|\u2e80-\u9fff\uac00-\ud7a3]++"
    r"(?=[\s\S])"
)
URL_TAIL: Final = re.compile(r"[.,;:!?*_~\]})]$")
HOST: Final = re.compile(r"(?:https?://(?:[^/@]*@)?)?(?:www\.)?([^/:?#]+)", re.IGNORECASE)

UNSPOKEN_ELEMENTS: Final = frozenset(
    {"think", "thinking", "thought", "reasoning", "script", "style", "tool_call"}
)
BREAKING_ELEMENTS: Final = frozenset(
    [
        *("p", "br", "div", "li", "ul", "ol", "tr", "td", "th", "table", "section", "article"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "hr"),
    ]
)
VOID_ELEMENTS: Final = frozenset({"br", "hr", "break"})
