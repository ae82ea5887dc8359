"""The texts that vLLM's releases print, read from their sources: `Text`, and how each is read.

The data (``data/vllm_texts.jsonl``, one text a line) says for each text which message it is
one wording of, which releases hold it, at which level or as which exception, in which file,
and what each figure is. ``tools/refresh_vllm_texts.py`` brings in the next release.

The kind of a figure is its unit, then how it is printed: ``gib r2`` (rounded to at most two
decimals, `format_gib`), ``gib .2f``, ``tokens ,`` (with thousands separators), ``name repr``
(in quotes). ``gib raw to 0.13.0; gib r2`` changed with a release. A list of texts is a slot
that only ever holds one of them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

import regex

from vllm_diag import settings
from vllm_diag.quantities import (
    Reader,
    count,
    decimal_gb,
    gib_2dp,
    gib_fixed,
    integer,
    mib_fixed,
    number,
    raw_bytes,
)
from vllm_diag.wording import squeeze

Kind = str | list[str]

_AMOUNTS: Mapping[str, Reader] = {"bytes": raw_bytes, "gb": decimal_gb, "mib": mib_fixed, "integer": integer}
_COUNTED = frozenset(
    ("count", "tokens", "blocks", "requests", "items", "index", "open files", "process id", "ms", "min")
)
_MEASURED = frozenset(("%", "x", "s", "tokens/s", "fraction", "number"))
_NAMES: Mapping[str, Reader] = {
    "words": Reader("words", r".{0,2000}?", str, ("some words",), verbatim=True),
    "name": Reader("name", r"[^\s,;(){}]{1,200}?", str, ("name_1",)),
    "identifier": Reader("identifier", r"\w{1,80}", str, ("NAME_1",)),
    "path": Reader("path", r"[\w./:@+-]{1,300}?", str, ("org/model-1",)),
    "url": Reader("url", r"[a-z]{2,6}://[^\s'\"]{1,300}?", str, ("https://example.org/x",)),
    "version": Reader("version", r"\d[\w.+-]{0,40}?", str, ("0.11.0",)),
    "device": Reader("device", r"[a-z]{2,8}(?::\d{1,4})?", str, ("cuda:0",)),
    "device type": Reader("device type", r"[A-Za-z]{2,12}", str, ("CPU",)),
    "specs": Reader("specs", r"[\[{].{0,2000}?[\]}]", str, ("[{'GPU': 1.0}]",), verbatim=True),
    "address": Reader("address", r"[\w.:-]{1,80}", str, ("10.0.0.7",)),
    "settings": Reader("settings", r".{0,16000}", settings.parse, ("max_model_len=8192",)),
}  # fmt: skip
_UNITS = _COUNTED | _MEASURED | _AMOUNTS.keys() | _NAMES.keys() | {"gib"}


@dataclass(frozen=True, slots=True)
class Text:
    """One text of one or more releases: a wording of the message called ``code``."""

    code: str
    text: str
    releases: tuple[str, ...]
    printed_as: tuple[str, ...]
    file: str
    slots: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def raised(self) -> bool:
        """Whether it is the text of an exception, in one release at least."""
        return any(name not in _LEVELS for name in self.printed_as)

    def kind(self, slot: str, release: str) -> Kind:
        """Return how ``slot`` is printed in ``release``."""
        kind = self.slots[slot]
        if isinstance(kind, list):
            return kind
        order = all_releases()
        for part in kind.split("; "):
            printed, _, last = part.partition(" to ")
            if not last or order.index(release) <= order.index(last):
                return printed
        raise ValueError(f"{self.text!r} does not say how {slot} is printed in {release}")

    def readers(self, of_message: Mapping[str, Reader]) -> dict[str, Reader]:
        """Return a reader for each slot; words that the message reads itself are read its way."""
        found = {slot: _measuring(kind) or of_message.get(slot) or _naming(kind) for slot, kind in self.slots.items()}
        last = _LAST.search(self.text)
        if last and last[1] in found:
            # At most a full stop stands behind it: it ends where the line does.
            reader = found[last[1]]
            to_the_end = "}".join(reader.pattern.rsplit("}?", 1))
            found[last[1]] = replace(reader, pattern=to_the_end.replace(".{0,", _NOT_RAYS + "{0,"))
        return found


# PROGRESS: the title of a progress bar on stderr.
_LEVELS = frozenset(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "PROGRESS"))
# Ray puts "[repeated 5x across cluster]" behind a line that several workers print.
_NOT_RAYS = r"(?:(?!\[repeated\d).)"
_LAST = re.compile(r"\{(\w+)\}\W{0,3}\s*$")


def _measuring(kind: Kind) -> Reader | None:
    """Return the reader of an amount, a number or a count; None for words."""
    if isinstance(kind, list):
        return None
    unit, how = _split(kind.split("; ")[-1])
    if "gib" in kind:
        return gib_fixed if how in (".0f", ".1f") else gib_2dp
    if unit in _COUNTED:
        return count
    return number if unit in _MEASURED else _AMOUNTS.get(unit)


def _naming(kind: Kind) -> Reader:
    if isinstance(kind, list):
        longest_first = sorted(map(squeeze, kind), key=len, reverse=True)
        known = "|".join(regex.escape(one, literal_spaces=True) for one in longest_first)
        return Reader("one of", f"(?:{known}|.{{0,1000}}?)", str, tuple(kind), verbatim=True)
    unit, how = _split(kind)
    return _quoted(_NAMES[unit]) if how == "repr" else _NAMES[unit]


def _split(kind: str) -> tuple[str, str]:
    """Return the unit and the way of printing: ``process id`` has none, ``tokens ,`` has one."""
    unit, _, how = kind.rpartition(" ")
    return (kind, "") if kind in _UNITS else (unit, how)


def _quoted(reader: Reader) -> Reader:
    """Return a reader of what Python's repr() prints: the quotes are no part of it."""
    return Reader(
        f"quoted {reader.name}",
        f"['\"]?{reader.pattern}['\"]?",
        lambda text: text.strip("'\""),
        tuple(f"'{example}'" for example in reader.examples),
        reader.verbatim,
    )


@cache
def all_releases() -> tuple[str, ...]:
    """Return the releases whose sources were read, oldest first."""
    return _load()[0]


@cache
def texts() -> tuple[Text, ...]:
    """Return every text, by message and then by first release."""
    return _load()[1]


@cache
def texts_by_message() -> Mapping[str, tuple[Text, ...]]:
    """Return the texts of each message, by its code."""
    found: dict[str, list[Text]] = defaultdict(list)
    for text in texts():
        found[text.code].append(text)
    return {code: tuple(own) for code, own in found.items()}


@cache
def _load() -> tuple[tuple[str, ...], tuple[Text, ...]]:
    head, *rows = files("vllm_diag").joinpath("data/vllm_texts.jsonl").read_text("utf-8").splitlines()
    order = tuple(json.loads(head)["releases"])
    found = []
    for row in map(json.loads, rows):
        releases = _expand(row["releases"], order)
        found.append(Text(row["code"], row["text"], releases, tuple(row["as"]), row["file"], row.get("slots", {})))
    return order, tuple(found)


def _expand(ranges: str, order: tuple[str, ...]) -> tuple[str, ...]:
    releases: list[str] = []
    for part in ranges.split(", "):
        first, _, last = part.partition(" - ")
        releases += order[order.index(first) : order.index(last or first) + 1]
    return tuple(releases)
