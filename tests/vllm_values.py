"""Values for the slots of `vllm_texts`, printed as a release prints them, and the lines they stand on.

`rendered` puts a text of a release together from values drawn by a seed; `wrappings` are the
prefixes that this release's processes put before it. `check` holds what was read against what
was drawn: amounts within their rounding, words as they were printed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from vllm_diag.messages.vllm_texts import Kind, Text, all_releases
from vllm_diag.pipeline import events
from vllm_diag.quantities import GIB, MIB, Amount, Reader
from vllm_diag.wording import render, squeeze

_UNIT_BYTES = {"gib": GIB, "mib": MIB, "gb": 10**9}
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value as it is printed, and whether what was read is that value."""

    printed: str
    is_read_as: Callable[[Any], bool]


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_ALPHABET) for _ in range(rng.randint(2, 9))) + rng.choice(("", "_2", "7"))


def _size(unit: str, how: str, rng: random.Random) -> Drawn:
    scale = _UNIT_BYTES[unit]
    true = rng.choice((0, rng.randrange(scale), rng.randrange(8 * scale), rng.randrange(300 * scale)))
    shown = {"r2": str(round(true / scale, 2)), "raw": str(true / scale)}.get(how) or format(true / scale, how)

    def same(value: Any) -> bool:
        return isinstance(value, Amount) and abs(value.bytes - true) <= value.slack + 1

    return Drawn(shown, same)


def _figure(how: str, rng: random.Random) -> Drawn:
    value = rng.choice((rng.random(), rng.random() * 100, float(rng.randrange(4000))))
    shown = format(round(value), how) if how == "d" else format(value, how) if how else str(round(value, 2))
    return Drawn(shown, lambda read: isinstance(read, int | float) and abs(read - float(shown)) < 1e-9)


def _whole(how: str, rng: random.Random) -> Drawn:
    value = rng.choice((rng.randrange(10), rng.randrange(4000), rng.randrange(10**7)))
    shown = format(value, how.replace("03d", "03")) if how else str(value)
    return Drawn(shown, lambda read: read == value or (isinstance(read, Amount) and read.bytes == value))


def _said(text: str, quoted: bool = False) -> Drawn:
    """Return words: the blanks between them may be those that a reader of names does not keep."""
    return Drawn(repr(text) if quoted else text, lambda read: squeeze(str(read)) == squeeze(text))


def _settings(syntax: str, rng: random.Random) -> Drawn:
    tokens, share = rng.randrange(1, 200_000), round(rng.random(), 2)
    pairs = {"model": f"org/{_word(rng)}", "max_model_len": tokens, "gpu_memory_utilization": share}
    if syntax == "dict":
        shown = repr(pairs)
    else:
        name = "max_seq_len" if syntax == "pairs" else "max_model_len"
        shown = ", ".join(f"{name if key == 'max_model_len' else key}={value!r}" for key, value in pairs.items())
        shown = f"Namespace({shown})" if syntax == "namespace" else shown
    return Drawn(shown, lambda read: dict(read).items() >= pairs.items())


def draw(kind: Kind, rng: random.Random) -> Drawn:
    """Return a value of one kind, as the kind prints it."""
    if isinstance(kind, list):
        return _said(rng.choice(kind))
    unit, _, how = kind.rpartition(" ")
    if unit in _UNIT_BYTES:
        return _size(unit, how, rng)
    if unit in ("%", "x", "s", "tokens/s", "fraction", "number") or kind in ("s", "fraction", "number"):
        return _figure(how if unit else "", rng)
    if kind in ("count", "tokens", "blocks", "bytes", "requests", "items", "open files", "process id", "ms", "min"):
        return _whole("", rng)
    if unit in ("tokens", "index"):
        return _whole(how, rng)
    if unit == "settings":
        return _settings(how, rng)
    return _named(kind.removesuffix(" repr"), kind.endswith(" repr"), rng)


def _named(kind: str, quoted: bool, rng: random.Random) -> Drawn:
    if kind == "integer":
        value = rng.choice((-15, -9, -7, 1, rng.randrange(256)))
        return Drawn(str(value), lambda read: str(read) == str(value))
    if kind == "exit codes":
        code = rng.choice((-15, -9, 1))
        return Drawn(f"{{'{_word(rng)}': {code}}}", lambda read: read == code)
    if kind == "words":
        return _said(" ".join(_word(rng) for _ in range(rng.randint(1, 6))), quoted)
    forms = {
        "name": f"{_word(rng)}{rng.choice(('', '.', '-'))}{_word(rng)}",
        "identifier": _word(rng),
        "path": f"{_word(rng)}/{_word(rng)}-{rng.randrange(90)}B",
        "url": f"https://{_word(rng)}.example/{_word(rng)}",
        "version": f"0.{rng.randrange(40)}.{rng.randrange(9)}",
        "device": f"{rng.choice(('cuda', 'xpu'))}:{rng.randrange(8)}",
        "device type": rng.choice(("GPU", "CPU", "XPU")),
        "specs": "[{'GPU': 1.0}, {'GPU': 1.0}]",
        "address": f"10.0.{rng.randrange(250)}.{rng.randrange(250)}",
        "architecture": f"{_word(rng).title()}ForCausalLM",
        "architectures": f"['{_word(rng).title()}ForCausalLM']",
    }
    return _said(forms[kind], quoted)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as one release prints it, with the values that stand in it."""

    text: str
    drawn: dict[str, Drawn]


def rendered(text: Text, release: str, seed: int) -> Rendered:
    """Return ``text`` of ``release`` with values, choices and optional parts chosen by ``seed``."""
    rng = random.Random(seed)
    drawn = {slot: draw(text.kind(slot, release), rng) for slot in text.slots}
    readers = {slot: Reader(slot, "", str, (value.printed,)) for slot, value in drawn.items()}
    shown, used = render(text.text, readers, seed)
    return Rendered(shown, {slot: drawn[slot] for slot in used if drawn[slot].printed})


# --- the lines a release prints -------------------------------------------------------------------


def _since(release: str, first: str) -> bool:
    order = all_releases()
    return order.index(release) >= order.index(first)


def _process(release: str) -> str:
    """Return the engine's prefix: by a stream wrapper to 0.30, by the log format from 0.31 on."""
    if not _since(release, "0.10.1.1"):
        return ""
    if not _since(release, "0.10.2"):
        return "(EngineCore_0 pid=210) "
    return "(EngineCore pid=210) " if _since(release, "0.18.1") else "(EngineCore_DP0 pid=210) "


def _header(text: Text, release: str, level: str) -> str:
    where = f"{PurePosixPath(text.file).name}:123"
    where = f"[{where}]" if _since(release, "0.8.0") else f"{where}]"
    return f"{level} 04-30 10:20:35 {where} "


def wrappings(text: Text, release: str) -> Iterator[Callable[[str], bytes]]:
    """Yield each way in which ``release`` prints the text: logged, logged as JSON, raised."""
    process = _process(release)
    for printed_as in text.printed_as:
        if printed_as == "PROGRESS":
            yield _bar("" if _since(release, "0.31.0") else process)
        elif printed_as.isupper():
            yield _lines(process + _header(text, release, printed_as))
            if _since(release, "0.32.0"):
                yield _as_json(printed_as)
        else:
            bare = "" if _since(release, "0.31.0") else process
            yield _lines(bare, f"{printed_as}: ")
            yield _lines(process + _header(text, release, "ERROR"), f"{printed_as}: ")


def _lines(prefix: str, before: str = "") -> Callable[[str], bytes]:
    # A break inside a logged message is followed by the whole prefix again (NewLineFormatter).
    return lambda text: "".join(f"{prefix}{line}\n" for line in (before + text).split("\n")).encode()


def _bar(prefix: str) -> Callable[[str], bytes]:
    return lambda text: f"{prefix}{text}:  25%|##5       | 1/4 [00:01<00:03,  1.20s/it]\n".encode()


def _as_json(level: str) -> Callable[[str], bytes]:
    def wrap(text: str) -> bytes:
        record = {"asctime": "2026-11-30 20:50:24,344", "levelname": level, "name": "vllm.v1.engine.core",
                  "processName": "EngineCore", "process": 210, "message": text}  # fmt: skip
        return (json.dumps(record) + "\n").encode()

    return wrap


def check(text: Text, release: str, seed: int) -> str | None:
    """Return what is wrong with the reading of a text as ``release`` prints it, or None."""
    made = rendered(text, release, seed)
    for wrap in wrappings(text, release):
        data = wrap(made.text)
        found = [event for event in events(data, "log") if event.code == text.code]
        if not found:
            return f"{release}: {[e.code for e in events(data, 'log')]} instead of {text.code} for {data!r}"
        values = {name: value for event in found for name, value in event.values()}
        wrong = {s: (v.printed, values.get(s)) for s, v in made.drawn.items() if not _reads(values.get(s), v)}
        if wrong:
            return f"{release}: {text.code} reads {wrong} in {data!r}"
    return None


def _reads(value: Any, drawn: Drawn) -> bool:
    return value is not None and drawn.is_read_as(value)
