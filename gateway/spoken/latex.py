"""LaTeX formulas in words, by simple rules."""

from __future__ import annotations

import re
from typing import Final

# Command or sign: in English, in Mandarin.
_WORDS: Final[dict[str, tuple[str, str]]] = {
    "times": ("times", "乘"),
    "cdot": ("times", "乘"),
    "div": ("divided by", "除以"),
    "pm": ("plus or minus", "正负"),
    "mp": ("minus or plus", "负正"),
    "leq": ("is at most", "小于等于"),
    "le": ("is at most", "小于等于"),
    "geq": ("is at least", "大于等于"),
    "ge": ("is at least", "大于等于"),
    "neq": ("is not equal to", "不等于"),
    "ne": ("is not equal to", "不等于"),
    "approx": ("is about", "约等于"),
    "equiv": ("is equivalent to", "恒等于"),
    "sim": ("is similar to", "相似于"),
    "propto": ("is proportional to", "正比于"),
    "to": ("to", "趋于"),
    "rightarrow": ("to", "到"),
    "Rightarrow": ("implies", "推出"),
    "implies": ("implies", "推出"),
    "in": ("in", "属于"),
    "notin": ("not in", "不属于"),
    "subset": ("is a subset of", "包含于"),
    "cup": ("union", "并"),
    "cap": ("intersection", "交"),
    "forall": ("for all", "对任意"),
    "exists": ("there is", "存在"),
    "infty": ("infinity", "无穷"),
    "partial": ("partial", "偏"),
    "nabla": ("nabla", "梯度"),
    "sum": ("the sum", "求和"),
    "prod": ("the product", "连乘"),
    "int": ("the integral", "积分"),
    "lim": ("the limit", "极限"),
    "log": ("log", "对数"),
    "ln": ("natural log", "自然对数"),
    "sin": ("sine", "正弦"),
    "cos": ("cosine", "余弦"),
    "tan": ("tangent", "正切"),
    "ldots": ("and so on", "等等"),
    "cdots": ("and so on", "等等"),
    "dots": ("and so on", "等等"),
    "circ": ("degrees", "度"),
    "degree": ("degrees", "度"),
    "prime": ("prime", "撇"),
    "%": ("percent", "百分之"),
    "=": ("equals", "等于"),
    "+": ("plus", "加"),
    "-": ("minus", "减"),
    "*": ("times", "乘"),
    "/": ("over", "除以"),
    "<": ("is less than", "小于"),
    ">": ("is greater than", "大于"),
    "!": ("factorial", "的阶乘"),
    "'": ("prime", "撇"),
}
_GREEK: Final = frozenset(
    [
        *("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta"),
        *("iota", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon"),
        *("phi", "varphi", "chi", "psi", "omega"),
    ]
)
_POWERS: Final = {"2": ("squared", "平方"), "3": ("cubed", "立方")}
_OVER: Final = ("over", "除以")
_ROOT: Final = ("the square root of", "根号")
_POWER: Final = ("to the power of", "的次方是")
_TO: Final = ("to", "到")
_SUB: Final = ("sub", "下标")
_FROM: Final = ("from", "从")
_BIG: Final = frozenset({"sum", "prod", "int", "lim"})
_TRANSPARENT: Final = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|mathsf|mathcal|mathbb|operatorname|boldsymbol|vec|hat|bar"
    r"|tilde|overline|underline|boxed|left|right|big|Big|bigg|Bigg|displaystyle|limits|quad|qquad"
    r"|begin\{\w+\*?\}|end\{\w+\*?\})(?![A-Za-z])|\\[,;:! ]|\\\\|&"
)
_TOKEN: Final = re.compile(r"\\([A-Za-z]+|.)|(\d+(?:[.,]\d+)*)|([A-Za-z]+)|([^\sA-Za-z\d])")
_MAX_DEPTH: Final = 8


def in_words(formula: str, mandarin: bool) -> str:
    """The words for a formula; the engine's front end says the letters and numbers in it."""
    return " ".join(_Reader(_TRANSPARENT.sub(" ", formula), int(mandarin)).read())


class _Reader:
    """Reads a formula from left to right. Braces nest to a fixed depth."""

    def __init__(self, source: str, language: int) -> None:
        self._source = source
        self._at = 0
        self._language = language
        self._depth = 0

    def read(self, until: str = "") -> list[str]:
        words: list[str] = []
        big = False  # the limits of a sum or integral may follow
        while (match := _TOKEN.search(self._source, self._at)) is not None:
            self._at = match.end()
            command, number, letters, sign = match.groups()
            if sign and sign == until:
                break
            if number or letters:
                words.append(number or letters)
            elif command is not None:
                words += self._command(command)
            elif sign in "^_":
                words += self._script(sign, big)
                continue
            elif sign == "{" and self._depth < _MAX_DEPTH:
                words += self._group()
            elif sign in _WORDS:
                words.append(_WORDS[sign][self._language])
            elif not sign.isascii() or sign in ",;.:":
                words.append(sign)
            big = command in _BIG
        return words

    def _group(self) -> list[str]:
        self._depth += 1
        words = self.read("}")
        self._depth -= 1
        return words

    def _argument(self) -> list[str]:
        """The next group, command, number or letter."""
        match = _TOKEN.search(self._source, self._at)
        if match is None:
            return []
        command, number, letters, sign = match.groups()
        if sign == "{" and self._depth < _MAX_DEPTH:
            self._at = match.end()
            return self._group()
        if command is not None:
            self._at = match.end()
            return self._command(command)
        if number or letters:
            self._at = match.start() + 1
            return [(number or letters)[0]]
        self._at = match.end()
        return [_WORDS[sign][self._language]] if sign in _WORDS else []

    def _command(self, command: str) -> list[str]:
        if command in ("frac", "dfrac", "tfrac"):
            return [*self._argument(), _OVER[self._language], *self._argument()]
        if command == "sqrt":
            return [_ROOT[self._language], *self._argument()]
        if command in _WORDS:
            return [_WORDS[command][self._language]]
        if command.lower() in _GREEK:
            return [command.lower().removeprefix("var")]
        return [command] if command.isalpha() and len(command) > 1 else []

    def _script(self, sign: str, big: bool) -> list[str]:
        argument = self._argument()
        if sign == "_":
            return [(_FROM if big else _SUB)[self._language], *argument]
        if big:
            return [_TO[self._language], *argument]
        if argument and argument[0] in (_WORDS["circ"][self._language], "′"):
            return argument
        if len(argument) == 1 and argument[0] in _POWERS:
            return [_POWERS[argument[0]][self._language]]
        return [_POWER[self._language], *argument]
