"""The notation in which message texts are written down, and how they are matched.

A wording is the text as its emitter prints it, with

===========  ==============================================================
``{name}``   a figure or word, read by the message's reader of that name
``⟨a|b⟩``    one of several spellings (an empty one prints nothing)
``⟦text⟧``   text that may be absent
``¦``        from here on the text may be cut off (long tails, careless pastes)
``{{ }}``    literal braces
===========  ==============================================================

Matching is done on text from which every blank has been removed, on both sides. A terminal
that wraps at column 77, inside a word, with or without a blank at the break, a prefix that
is repeated on each line, double blanks, tabs and trailing padding then all read alike: what
remains of a wrapped message is the message. The price is that two figures may not stand
next to each other with nothing but a blank between them; `compile_wording` refuses that.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import regex

from vllm_diag.quantities import Reader

# Longest start of a wording that is used to look it up.
_KEY_LENGTH = 8


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Slot:
    name: str


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Sequence, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class _Tail:
    body: _Sequence


_Node = _Text | _Slot | _Choice | _Tail


@dataclass(frozen=True, slots=True)
class _Sequence:
    nodes: tuple[_Node, ...]


class WordingError(ValueError):
    """A wording that cannot be compiled; the text says where and why."""


def _parse(text: str, at: int, closing: str) -> tuple[_Sequence, int]:
    nodes: list[_Node] = []
    literal = ""

    def flush() -> None:
        nonlocal literal
        if literal:
            nodes.append(_Text(literal))
            literal = ""

    while at < len(text):
        char = text[at]
        if char in closing:
            break
        if char == "¦":
            flush()
            body, at = _parse(text, at + 1, closing)
            nodes.append(_Tail(body))
            break
        if text[at : at + 2] in ("{{", "}}"):
            literal, at = literal + char, at + 2
        elif char == "{":
            flush()
            end = text.find("}", at)
            if end < 0:
                raise WordingError(f"unclosed placeholder at {at}: {text!r}")
            nodes.append(_Slot(text[at + 1 : end]))
            at = end + 1
        elif char == "⟨":
            flush()
            options, at = _parse_options(text, at + 1)
            nodes.append(_Choice(options, optional=False))
        elif char == "⟦":
            flush()
            body, at = _parse(text, at + 1, "⟧")
            nodes.append(_Choice((body,), optional=True))
            at += 1
        else:
            literal, at = literal + char, at + 1
    flush()
    return _Sequence(tuple(nodes)), at


def _parse_options(text: str, at: int) -> tuple[tuple[_Sequence, ...], int]:
    options: list[_Sequence] = []
    while True:
        option, at = _parse(text, at, "|⟩")
        options.append(option)
        if at >= len(text):
            raise WordingError(f"unclosed choice: {text!r}")
        at += 1
        if text[at - 1] == "⟩":
            return tuple(options), at


def squeeze(text: str) -> str:
    """Return ``text`` without any blank."""
    return "".join(text.split())


def position_in(text: str, squeezed_at: int) -> int:
    """Return where in ``text`` its squeezed character number ``squeezed_at`` stands."""
    seen = 0
    for index, char in enumerate(text):
        if not char.isspace():
            if seen == squeezed_at:
                return index
            seen += 1
    return len(text)


def _to_regex(sequence: _Sequence, readers: Mapping[str, Reader], spaced: bool = False) -> str:
    out = []
    for node in sequence.nodes:
        if isinstance(node, _Text):
            out.append(_columns(node.text) if spaced else regex.escape(squeeze(node.text), literal_spaces=True))
        elif isinstance(node, _Slot):
            out.append(f"(?P<{node.name}>{readers[node.name].pattern})")
        elif isinstance(node, _Choice):
            body = "|".join(_to_regex(option, readers, spaced) for option in node.options)
            out.append(f"(?:{body})" + ("?" if node.optional else ""))
        else:
            out.append(f"(?:{_to_regex(node.body, readers, spaced)})?")
    return "".join(out)


def _columns(text: str) -> str:
    parts = regex.split(r"(\s+)", text)
    return "".join(r"\s{1,60}" if part.isspace() else regex.escape(part) for part in parts if part)


def _starts(sequence: _Sequence) -> Iterator[tuple[str, bool]]:
    """Yield each way the sequence can begin: its literal text, and whether it goes on."""
    ways: list[tuple[str, bool]] = [("", True)]
    for node in sequence.nodes:
        if isinstance(node, _Text):
            ways = [(w + squeeze(node.text) if on else w, on) for w, on in ways]
        elif isinstance(node, _Choice):
            options = [way for option in node.options for way in _starts(option)]
            if node.optional:
                options.append(("", True))
            ways = [(w + o, goes_on) if on else (w, on) for (w, on), (o, goes_on) in itertools.product(ways, options)]
        else:
            ways = [(w, False) for w, _ in ways]
        if all(len(w) >= _KEY_LENGTH or not on for w, on in ways):
            break
    yield from ways


def _slots(sequence: _Sequence) -> Iterator[str]:
    for node in sequence.nodes:
        if isinstance(node, _Slot):
            yield node.name
        elif isinstance(node, _Choice):
            for option in node.options:
                yield from _slots(option)
        elif isinstance(node, _Tail):
            yield from _slots(node.body)


def _literals(sequence: _Sequence) -> Iterator[str]:
    """Yield literal stretches that every rendering of the sequence holds."""
    for node in sequence.nodes:
        if isinstance(node, _Text):
            yield squeeze(node.text)
        elif isinstance(node, _Tail):
            return


@dataclass(frozen=True)
class Compiled:
    """A wording ready to match.

    ``keys`` are squeezed starts by which to look it up (empty when it begins with a figure);
    ``anchor`` is the longest squeezed literal that every rendering holds; ``readers`` read its
    slots. The pattern is compiled when it is first asked for: most wordings never are. ``releases``
    are those whose sources hold exactly this wording; empty where that was not looked at.
    """

    text: str
    sequence: _Sequence
    readers: Mapping[str, Reader]
    spaced: bool
    keys: tuple[str, ...]
    anchor: str
    slots: tuple[str, ...]
    releases: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> regex.Pattern[str]:
        """The regular expression, with one named group a slot."""
        return regex.compile(_to_regex(self.sequence, self.readers, self.spaced), regex.V1)


def compile_wording(text: str, readers: Mapping[str, Reader], spaced: bool = False) -> Compiled:
    """Compile one wording; raises `WordingError` when it is malformed or ambiguous.

    ``spaced`` is for the rows of tables, whose figures only blanks tell apart: such a wording
    is matched on one line as it is, and cannot be found across a wrap.
    """
    sequence, end = _parse(text, 0, "")
    if end != len(text):
        raise WordingError(f"stray closing mark at {end}: {text!r}")
    if not spaced:
        _refuse_touching(sequence, readers, text)
    ways = {way[:_KEY_LENGTH] for way, _ in _starts(sequence)}
    keys = () if "" in ways else tuple(sorted(ways))
    anchor = max(_literals(sequence), key=len, default="")
    names = tuple(dict.fromkeys(_slots(sequence)))
    for name in names:
        if name not in readers:
            raise WordingError(f"no reader for {{{name}}}: {text!r}")
    return Compiled(text, sequence, readers, spaced, keys, anchor, names)


def _refuse_touching(sequence: _Sequence, readers: Mapping[str, Reader], text: str) -> None:
    visible = [n for n in sequence.nodes if not isinstance(n, _Text) or squeeze(n.text)]
    for one, two in itertools.pairwise(visible):
        if isinstance(one, _Slot) and isinstance(two, _Slot) and _starts_with_digit(readers[two.name]):
            raise WordingError(f"nothing but a blank between {{{one.name}}} and {{{two.name}}}: {text!r}")


def _starts_with_digit(reader: Reader) -> bool:
    return any(example[0].isdigit() for example in reader.examples if example)


def render(text: str, readers: Mapping[str, Reader], seed: int = 0) -> tuple[str, dict[str, str]]:
    """Return one full rendering of a wording and the figures put into it, for tests.

    ``seed`` chooses among spellings, optional parts and the readers' examples.
    """
    sequence, _ = _parse(text, 0, "")
    used: dict[str, str] = {}
    return _render(sequence, readers, random.Random(seed), used), used


def _render(sequence: _Sequence, readers: Mapping[str, Reader], rng: random.Random, used: dict[str, str]) -> str:
    out = []
    for node in sequence.nodes:
        if isinstance(node, _Text):
            out.append(node.text)
        elif isinstance(node, _Slot):
            used[node.name] = rng.choice(readers[node.name].examples)
            out.append(used[node.name])
        elif isinstance(node, _Choice):
            options = [*node.options, *([_Sequence(())] if node.optional else [])]
            out.append(_render(rng.choice(options), readers, rng, used))
        else:
            out.append(_render(node.body, readers, rng, used))
    return "".join(out)
