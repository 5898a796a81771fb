"""Mandarin as it is written to Mandarin as it is said.

wetext (WeTextProcessing's grammars) reads numbers, dates, times, money and measures; the rules here
run before it where its reading is wrong or missing: addresses, versions, phone and other numbers
said digit by digit, model names, units without a Chinese reading, signs.
"""

from __future__ import annotations

import re

from wetext import Normalizer

from engine.frontend.addresses import Style, read_addresses
from engine.frontend.han import HAN

_DIGITS = "零一二三四五六七八九"
_PHONE_DIGITS = "零幺二三四五六七八九"

_CODE_CUE = (
    r"(?:房间号|门牌号|航班号?|车次|车牌号?|号码|编号|账号|帐号|卡号|学号|工号|单号|证号|尾号|密码|验证码|取件码|邮编|代码|口令|微信号?|"
    r"QQ号?|群号|快递)(?:是|为|[:：])?\s?"
)
_PHONE_CUE = r"(?:电话|手机|热线|座机|拨打|致电|传真)(?:号码?)?(?:是|为|[:：])?\s?"
_PHONE = re.compile(
    r"(?<![\w.])(?:\+\d{1,3}[ -]?)?(?:1[3-9]\d[ -]?\d{4}[ -]?\d{4}|\(?0\d{2,3}\)?[ -]\d{7,8}"
    r"|[48]00[ -]?\d{3,4}[ -]?\d{3,4})(?![\d.])"
)
_FOREIGN_PHONE = re.compile(r"(?<![\w.])\+\d{1,3}(?:[ -]\d{2,4}){2,4}(?!\d)")
_CUED_PHONE = re.compile(rf"(?P<cue>{_PHONE_CUE})(?P<n>\d[\d -]{{2,14}}\d)")
_CUED_CODE = re.compile(rf"(?P<cue>{_CODE_CUE})(?P<n>\d[\d -]{{1,22}}\d)(?![\d.])")
_ROOM = re.compile(
    r"(?<![\d.])(?P<n>\d{3,4})(?=号?(?:房间|房|室|包间|包厢|教室|会议室|次列车|次航班))"
)
_LONG = re.compile(r"(?<![\d.,A-Za-z])\d{9,}(?![\d]|[.,]\d)")
_CARD = re.compile(r"(?<![\d.])\d{4}(?:[ -]\d{4}){2,4}(?!\d)")
_DOTTED = re.compile(
    r"(?P<said>版本[号是为：:]*\s?)?(?<![A-Za-z\d.])(?P<v>[vV]\.?\s?)?(?P<n>\d+(?:\.\d+){2,})(?![\d])"
)
_VERSION = re.compile(
    r"(?P<said>版本[号是为：:]*\s?)?(?<![A-Za-z\d])[vV](?P<n>\d+(?:\.\d+)?)(?![\d.]*\d)"
)
_CHINESE_DATE = re.compile(r"^(?:19|20)\d\d\.(?:0?[1-9]|1[0-2])\.(?:0?[1-9]|[12]\d|3[01])$")
_YEARS = re.compile(
    r"(?<![\d.])(?P<a>[12]\d{3})\s?[-–—~～]\s?(?P<b>[12]\d{3})(?![\d.%]|\s?[=元块])"
)
_NAME = re.compile(r"(?P<l>[A-Za-z]+)[-_]?(?P<d>\d+)(?!\d*[.,:]\d)(?!\d)")
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_FULL = re.compile(r"(?<![\d.])100(?:\.0+)?%")
_PERCENTS = re.compile(r"(?<![\d.])(?P<a>\d+(?:\.\d+)?)%?\s?[-–—~～至到]\s?(?P<b>\d+(?:\.\d+)?)%")
_PER_MILLE = re.compile(r"(?P<n>\d+(?:\.\d+)?)‰")
_CENTS = re.compile(
    r"(?<=\d)(?:\.0+|(?<=\.[1-9])0)(?=元|块|美元)|(?P<lead>[￥¥$€£]\s?\d[\d,]*)\.00?(?!\d)"
)
_TAIL_ZERO = re.compile(r"(?P<n>[￥¥$€£]\s?\d[\d,]*\.[1-9])0(?!\d)")
_TWO_O_CLOCK = re.compile(r"(?<![\d.:十])2点(?!\d|[一二三四五六七八九零]+[^分刻半十])")
_BY = re.compile(r"(?<=\d)\s?[x×X*]\s?(?=\d)")
_UNITS = {
    "㎡": "平方米", "km²": "平方公里", "m²": "平方米", "m³": "立方米", "Mbps": "兆每秒",
    "Gbps": "G每秒", "GHz": "吉赫兹", "MHz": "兆赫兹", "kHz": "千赫兹", "Hz": "赫兹",
    "kWh": "千瓦时", "kW": "千瓦", "mAh": "毫安时", "dB": "分贝", "rpm": "转每分钟",
    "fps": "帧每秒", "kcal": "千卡", "kPa": "千帕", "hPa": "百帕", "ms": "毫秒", "W": "瓦",
    "V": "伏", "h": "小时", "min": "分钟", "MB": "兆", "px": "像素", "nm": "纳米",
    "°F": "华氏度", "℉": "华氏度",
}  # fmt: skip
_UNIT = re.compile(
    r"(?<=\d)\s?(?P<u>" + "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True)) + ")"
    r"(?![A-Za-z/²³])"
)
_LEFT_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_NEEDLESS_SPACE = re.compile(rf"(?<=[{HAN}])\s+(?=[{HAN}])|\s+(?=[，。！？；：、）》])")
_SIGNS = {
    "&": "和", "@": "艾特", "%": "百分之", "+": "加", "=": "等于", "≈": "约等于", "≠": "不等于",
    "≥": "大于等于", "≤": "小于等于", ">": "大于", "<": "小于", "×": "乘", "÷": "除以", "±": "正负",
    "√": "根号", "°": "度", "№": "号",
}  # fmt: skip
_SIGN = re.compile(
    rf"(?<=[{HAN}A-Za-z)）\s])(?P<s>[&@+=≈≠≥≤><×÷±])(?=[{HAN}A-Za-z(（\s])|(?P<t>[√№°])"
)
_SHARP = re.compile(r"(?<![A-Za-z])(?P<l>[CFJ])#")
_HALF_DAY = re.compile(r"(?<![\d:.])(?P<h>\d{1,2})\s?(?P<ap>[AaPp])\.?[Mm]\b\.?")
_NAMED_YEAR = re.compile(r"(?<=[A-Za-z] )(?P<y>(?:19|20)\d\d)(?![\d.,:%]|\s?[元块个名人年万亿])")
_GRADE = re.compile(r"(?<=[A-Za-z])\+(?![\w(（])")
_DROPPED = re.compile(r"[~～#*_`^|\\\[\]{}<>=+@/]+")
_DASHES = re.compile(r"\s*(?:——+|—|--+)\s*")
_NAME_DOT = re.compile(rf"(?<=[{HAN}A-Za-z])·(?=[{HAN}A-Za-z])")
_SPACES = re.compile(r"\s+")

_normalizer = Normalizer(lang="zh")


def by_digit(text: str, names: str = _DIGITS) -> str:
    """`007` -> 零零七."""
    return "".join(names[int(c)] for c in text if c.isdigit())


_ADDRESS_STYLE = Style(
    {
        ".": "点", "@": "艾特", "/": "斜杠", "-": "杠", "_": "下划线", "+": "加", "~": "波浪号",
        ":": "冒号", "&": "和", "=": "等于", "%": "百分号",
    },
    by_digit,
    " ",
)  # fmt: skip


def mandarin_words(text: str) -> str:
    """Chinese text as it is said, from one line of plain characters. Latin words stay."""
    text = read_addresses(text, _ADDRESS_STYLE)
    text = _SHARP.sub(lambda m: f"{m['l']} sharp", text)
    text = _CARD.sub(lambda m: _grouped(m[0]), text)
    text = _PHONE.sub(lambda m: _phone(m[0]), text)
    text = _FOREIGN_PHONE.sub(lambda m: _phone(m[0]), text)
    text = _CUED_PHONE.sub(lambda m: m["cue"] + _phone(m["n"]), text)
    text = _CUED_CODE.sub(lambda m: m["cue"] + _grouped(m["n"]), text)
    text = _ROOM.sub(lambda m: by_digit(m["n"], _PHONE_DIGITS), text)
    text = _LONG.sub(lambda m: _grouped(m[0]), text)
    text = _DOTTED.sub(_dotted, text)
    text = _VERSION.sub(lambda m: f"{m['said'] or '版本'}{m['n']}", text)
    text = _HALF_DAY.sub(_half_day, text)
    text = _NAMED_YEAR.sub(lambda m: by_digit(m["y"]), text)
    text = _YEARS.sub(lambda m: f"{by_digit(m['a'])}到{by_digit(m['b'])}", text)
    text = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), text)
    text = _PERCENTS.sub(lambda m: f"百分之{m['a']}到百分之{m['b']}", text)
    text = _FULL.sub("百分之百", text)
    text = _PER_MILLE.sub(lambda m: f"千分之{m['n']}", text)
    text = _CENTS.sub(lambda m: m["lead"] or "", text)
    text = _TAIL_ZERO.sub(lambda m: m["n"], text)
    text = _TWO_O_CLOCK.sub("两点", text)
    text = _UNIT.sub(lambda m: _UNITS[m["u"]], text)
    text = _NAME.sub(_name, text)
    text = _BY.sub("乘", text)
    text = _normalizer.normalize(text) if _needs_reading(text) else text
    text = _LEFT_DIGITS.sub(lambda m: by_digit(m[0].replace(".", "")), text)
    text = _GRADE.sub("加", text)
    text = _SIGN.sub(lambda m: _SIGNS[m["s"] or m["t"]], text)
    text = _NAME_DOT.sub("", text)
    text = _DASHES.sub("—", text)
    text = _DROPPED.sub(" ", text)
    return _NEEDLESS_SPACE.sub("", _SPACES.sub(" ", text)).strip()


def _needs_reading(text: str) -> bool:
    """wetext takes a tenth of a millisecond on text it need not change, and may change it."""
    return any(c.isdigit() or c in "￥¥$€£%℃°" for c in text)


def _grouped(text: str) -> str:
    parts = re.findall(r"\d+", text)
    if len(parts) == 1 and len(parts[0]) > 6:
        whole = parts[0]
        size = 4 if len(whole) % 4 == 0 else 3
        parts = [whole[i : i + size] for i in range(0, len(whole), size)]
    return "，".join(map(by_digit, parts))


def _phone(text: str) -> str:
    parts = re.findall(r"\d+", text)
    if len(parts) == 1 and len(parts[0]) == 11:
        whole = parts[0]
        parts = [whole[:3], whole[3:7], whole[7:]]
    said = "，".join(by_digit(part, _PHONE_DIGITS) for part in parts)
    return f"加{said}" if text.startswith("+") else said


def _dotted(m: re.Match[str]) -> str:
    text = m["n"]
    if not m["v"] and not m["said"] and _CHINESE_DATE.match(text):
        return m[0]
    parts = text.split(".")
    ip = len(parts) == 4 and not m["v"] and not m["said"]
    said = "点".join(by_digit(p) if ip or len(p) > 2 or p[0] == "0" else p for p in parts)
    return (m["said"] or ("版本" if m["v"] else "")) + said


def _half_day(m: re.Match[str]) -> str:
    hour = int(m["h"])
    if not 1 <= hour <= 12:
        return m[0]
    if m["ap"] in "aA":
        return f"上午{hour}点" if hour < 12 else "零点"
    return f"下午{hour}点" if hour < 6 else f"晚上{hour}点" if hour < 12 else "中午12点"


def _name(m: re.Match[str]) -> str:
    figures = m["d"]
    short = len(figures) <= 2 and figures[0] != "0" and figures != "95" and "_" not in m[0]
    return f"{m['l']} {figures if short else by_digit(figures)}"
