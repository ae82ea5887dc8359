"""Amounts of memory with their rounding, and readers that turn printed figures into them.

An `Amount` is whole bytes and a slack: the true value lies within ``bytes +/- slack``.
The slack belongs to the print format, not to the digits shown: vLLM's ``format_gib`` is
``round(x, 2)``, so a printed ``2.9`` means 2.90 and not "2.85 to 2.95".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
# More memory than any single device has (288 GiB, 2026).
LARGEST_DEVICE = 288 * GIB

_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
for _power, _letter in enumerate("kmgtpe", start=1):
    # Every emitter in scope (torch, the kernel, vLLM, Ray) divides by powers of 1024
    # whatever letter it prints, so "GB" and "GiB" read alike.
    _UNITS[f"{_letter}b"] = _UNITS[f"{_letter}ib"] = _UNITS[_letter] = 2 ** (10 * _power)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of bytes, exact to within ``slack`` bytes either way."""

    bytes: int
    slack: int = 0

    @property
    def low(self) -> int:
        """The smallest number of bytes that would have been printed like this."""
        return self.bytes - self.slack

    @property
    def high(self) -> int:
        """The largest number of bytes that would have been printed like this."""
        return self.bytes + self.slack

    @property
    def gib(self) -> float:
        """The amount in GiB (2**30 bytes)."""
        return self.bytes / GIB

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.slack + other.slack)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.bytes - other.bytes, self.slack + other.slack)

    def scaled(self, factor: float) -> Amount:
        """This amount times ``factor``, the slack grown alike."""
        return Amount(round(self.bytes * factor), round(self.slack * abs(factor)) + 1)

    def __str__(self) -> str:
        return human(self.bytes)


def gib(value: float, decimals: int = 2) -> Amount:
    """``value`` GiB as printed with ``decimals`` places."""
    return Amount(round(value * GIB), round(GIB / 2 / 10**decimals))


def human(size: float) -> str:
    """``size`` bytes with the unit a person would choose, two decimals: ``4.23 GiB``."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # One GiB is a good unit from a tenth on; below that MiB reads better.
        if abs(size) >= unit * (0.1 if unit == GIB else 1):
            return f"{size / unit:,.2f} {name}"
    return f"{size:,.0f} bytes"


@dataclass(frozen=True, slots=True)
class Reader:
    """How one kind of figure is printed and read.

    ``pattern`` is matched against text from which all blanks have been removed (see
    `vllm_diag.wording`); ``read`` raises `ValueError` for a text that is no such figure.
    ``examples`` are texts as an emitter would print them, for tests. ``verbatim``: what is read
    is the text as it stands in the log, blanks included.
    """

    name: str
    pattern: str
    read: Callable[[str], Any]
    examples: tuple[str, ...]
    verbatim: bool = False


# 40 digits hold every figure any emitter prints; the bound keeps hostile text cheap.
_DECIMAL = r"-?\d{1,24}(?:[.,]\d{1,24}){0,8}(?:e[+-]?\d{1,3})?"


def _number(text: str) -> float:
    """Read ``1,234.5``, ``4.23`` or, where a locale was applied, ``4,23``."""
    if "," in text and "." not in text and not re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        text = text.replace(",", ".", 1)
    return float(text.replace(",", ""))


def _whole(text: str) -> int:
    return int(re.sub(r"[.,]", "", text))


def _decimals(text: str) -> int:
    return len(text.partition(".")[2] or text.partition(",")[2])


def _in_gib(text: str) -> Amount:
    return gib(_number(text), max(2, _decimals(text)))


def _in_gib_as_shown(text: str) -> Amount:
    return gib(_number(text), _decimals(text))


def _in_mib(text: str) -> Amount:
    return Amount(round(_number(text) * MIB), round(MIB / 2 / 10 ** max(2, _decimals(text))))


def _in_mib_as_shown(text: str) -> Amount:
    return Amount(round(_number(text) * MIB), round(MIB / 2 / 10 ** _decimals(text)))


def _sized(text: str) -> Amount:
    found = re.fullmatch(r"(-?[\d.,e+-]+?)([a-z]*)", text, re.IGNORECASE)
    if not found or found[2].lower() not in _UNITS:
        raise ValueError(text)
    unit = _UNITS[found[2].lower()]
    decimals = len(found[1].partition(".")[2])
    slack = 0 if unit == 1 or not decimals else round(unit / 2 / 10**decimals)
    return Amount(round(_number(found[1]) * unit), slack)


def _decimal_gb(text: str) -> Amount:
    return Amount(round(_number(text) * 1e9), 5_000_000)


count = Reader("count", r"\d{1,19}(?:,\d{3}){0,6}", _whole, ("1", "34,608", "131072"))
integer = Reader("integer", r"-?\d{1,19}", int, ("0", "-9", "14822"))
number = Reader("number", _DECIMAL, _number, ("0.9", "4.22", "1"))
gib_2dp = Reader("gib_2dp", _DECIMAL, _in_gib, ("4.23", "16.0", "-0.61", "78.6318359375"))
# Printed with a fixed number of decimals, none among them: 12 is 12 +/- 0.5.
gib_fixed = Reader("gib_fixed", _DECIMAL, _in_gib_as_shown, ("12", "4.2"))
mib_fixed = Reader("mib_fixed", _DECIMAL, _in_mib_as_shown, ("240", "35.50"))
mib_2dp = Reader("mib_2dp", _DECIMAL, _in_mib, ("240.0", "64"))
kib = Reader("kib", r"\d[\d,]{0,20}", lambda t: Amount(_whole(t) * KIB), ("0", "31204880"))
raw_bytes = Reader("raw_bytes", r"\d{1,24}", lambda t: Amount(int(t)), ("12917635953",))
decimal_gb = Reader("decimal_gb", _DECIMAL, _decimal_gb, ("12.5",))
size = Reader(
    "size",
    _DECIMAL + r"(?:bytes|[KMGTPE]i?B|[KMGTPE](?![a-zA-Z]))",
    _sized,
    ("2.00GiB", "108.06MiB", "512bytes", "0bytes"),
)
token = Reader("token", r"[^\s,;]{1,200}?", str, ("cuda:0", "EngineCore"))
word = Reader("word", r"[\w.:/@+-]{1,200}", str, ("0.11.0", "cpu"))
words = Reader("words", r".{0,400}?", str, ("VLLM::EngineCor",), verbatim=True)
rest = Reader("rest", r".{0,8000}", str, ("{'model':'m'}",))
