"""The server's flags and vLLM's environment variables, by release.

The data (``data/flags.json``, ``data/envs.json``; one flag a line) was read from
``engine/arg_utils.py``, ``entrypoints/.../cli_args.py``, ``config/`` and ``envs.py`` of the
releases that `releases_read` names; ``tools/refresh_flags.py`` brings in the next one. A flag's
line holds

==============  =================================================================================
``in``          the releases that have it: ``0.1.4 - 0.17.1``; ``0.10.2 -`` is still there
``default``     what the parser gives when it is not passed: each value from the release on that
                stands before it. Left out where it is null, which mostly means that it is decided
                later; ``{"computed": true}`` is worked out at the start
``also``        further spellings, ``off`` the ones that switch it off, ``choices`` its values;
                each with its releases, or true for as long as the flag is there
``open``        the releases that let other values than the choices through
``bare``        the releases in which it takes no value
``part``        ``frontend`` (the server's own), ``serve`` (only ``vllm serve``); else the engine's
``forms``       how a value is written, from a release on
``in_force``    what holds when the flag is not passed and the default is null, and when
``deprecated``  the release that first calls it so
``now``         the newest spelling of the same flag; ``instead`` is what does the same another way
==============  =================================================================================

The last five are written by hand, the others are read.

Where a release was not looked at, its neighbours speak for it: what both agree on is certain.
Where they do not, the neighbour of the same minor release is taken and the answer is marked as
not certain; so it is for an unknown release (the newest speaks) and for one newer than the data.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from vllm_diag.versions import Release, parse_release

T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a release spells a flag; ``of`` is the release looked at that says so."""

    text: str
    certain: bool
    of: str


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a release has a flag or variable, and whether that is certain."""

    there: bool
    certain: bool


@dataclass(frozen=True, slots=True)
class Default:
    """What holds when a flag is not passed; with ``computed`` only the start of the server tells."""

    value: Any
    certain: bool
    computed: bool = False


@dataclass(frozen=True, slots=True)
class InForce:
    """A value that holds when a flag is not passed, and under which condition ("" for always)."""

    value: Any
    when: str


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that a flag takes, as typed; ``is_open`` where others may pass the parser too."""

    values: tuple[str, ...]
    is_open: bool
    certain: bool


@dataclass(frozen=True, slots=True)
class Table:
    """One file of the data: the releases looked at, oldest first, and a row for each name."""

    releases: tuple[str, ...]
    rows: Mapping[str, Row]

    def at(self, release: Release | None, look: Callable[[int], T]) -> tuple[T, bool]:
        """Return what ``look`` says of ``release`` by the index of one looked at, and whether that is certain."""
        index, other = self._neighbours(release)
        found = look(index)
        if other is None:
            return found, True
        return found, other >= 0 and look(other) == found

    def name_at(self, release: Release | None) -> str:
        """Return the release looked at that speaks for ``release``."""
        return self.releases[self._neighbours(release)[0]]

    def _neighbours(self, release: Release | None) -> tuple[int, int | None]:
        """Return the index that speaks for a release, and the other neighbour: None if none is needed, -1 if none."""
        numbers = _numbers(self.releases)
        if release is None or release > numbers[-1]:
            return len(numbers) - 1, -1
        index = bisect_left(numbers, release)
        if numbers[index] == release:
            return index, None
        if index == 0:
            return 0, -1
        before, after = numbers[index - 1], numbers[index]
        minor = (release.major, release.minor)
        closer_to_after = (after.major, after.minor) == minor != (before.major, before.minor)
        return (index, index - 1) if closer_to_after else (index - 1, index)

    def span(self, ranges: str) -> frozenset[int]:
        """Return the indices of the releases in ``0.1.4 - 0.17.1, 0.20.2, 0.30.0 -``."""
        return _span(self.releases, ranges)

    def holds(self, row: Row, what: bool | str | None, index: int) -> bool:
        """Whether ``what``, ranges or true for as long as the row is there, holds at ``index``."""
        if what is True:
            return index in self.span(row["in"])
        return isinstance(what, str) and index in self.span(what)

    def holding(self, row: Row, key: str, index: int) -> tuple[str, ...]:
        """Return which of the values listed under ``key`` hold at ``index``."""
        return tuple(name for name, what in row.get(key, {}).items() if self.holds(row, what, index))

    def step(self, row: Row, key: str, index: int) -> Any:
        """Return the value of ``{release: value}`` under ``key`` that holds at ``index``; None before the first."""
        value = None
        for release, later in row.get(key, {}).items():
            if self.releases.index(release) > index:
                break
            value = later
        return value


@cache
def _numbers(releases: tuple[str, ...]) -> tuple[Release, ...]:
    return tuple(number for text in releases if (number := parse_release(text)))


@cache
def _span(releases: tuple[str, ...], ranges: str) -> frozenset[int]:
    found: set[int] = set()
    for part in ranges.split(", "):
        first, dash, last = part.partition(" -")
        start = releases.index(first)
        end = releases.index(last.strip()) if last.strip() else len(releases) - 1 if dash else start
        found.update(range(start, end + 1))
    return frozenset(found)


def read_table(file: str, key: str, folder: Path | None = None) -> Table:
    """Return the table in ``file`` of the package's data (or of ``folder``), whose rows lie under ``key``."""
    place = folder / file if folder else files("vllm_diag").joinpath(f"data/{file}")
    data = json.loads(place.read_text("utf-8"))
    return Table(tuple(data["releases"]), data[key])


@cache
def _flags() -> Table:
    return read_table("flags.json", "flags")


@cache
def _variables() -> Table:
    return read_table("envs.json", "variables")


@cache
def releases_read() -> tuple[str, ...]:
    """Return the releases whose sources were read, oldest first."""
    return _flags().releases


# --- flags ------------------------------------------------------------------------------------


@cache
def flag_names() -> frozenset[str]:
    """Return every flag that some release has, by its first long spelling there."""
    return frozenset(_flags().rows)


@cache
def _by_spelling() -> Mapping[str, tuple[str, ...]]:
    """Return the flags that each further spelling has stood for, the newest last."""
    found: dict[str, tuple[str, ...]] = {}
    for name, row in _flags().rows.items():
        for spelling in (*row.get("also", {}), *row.get("off", {})):
            found[spelling] = (*found.get(spelling, ()), name)
    for spelling, names in found.items():
        if len(names) > 1:  # -O was --compilation-config before it was --optimization-level
            found[spelling] = tuple(sorted(names, key=lambda n: max(_flags().span(_flags().rows[n]["in"]))))
    return found


def canonical(flag: str) -> str | None:
    """Return the name in the data of a flag in any spelling: ``-tp``, ``--no-x``, ``--max_model_len``.

    None where no release looked at has it. Where a spelling stood for two flags, the newer one.
    """
    for text in (flag, flag.replace("_", "-")):
        if text in _flags().rows:
            return text
        if text in _by_spelling():
            return _by_spelling()[text][-1]
    return None


def _candidates(flag: str) -> tuple[str, ...]:
    """Return the rows that a spelling may belong to."""
    name = canonical(flag)
    return tuple(dict.fromkeys((*_by_spelling().get(flag.replace("_", "-"), ()), *((name,) if name else ()))))


def _spelled(row: Row, name: str, index: int) -> tuple[str, ...]:
    """Return every spelling of a flag in one release."""
    table = _flags()
    if not table.holds(row, True, index):
        return ()
    return (name, *table.holding(row, "also", index), *table.holding(row, "off", index))


def _row_at(flag: str, index: int) -> str | None:
    """Return the row that this spelling belongs to in one release."""
    texts = (flag, flag.replace("_", "-"))
    rows = _flags().rows
    return next((n for n in _candidates(flag) if any(t in _spelled(rows[n], n, index) for t in texts)), None)


def presence(flag: str, release: Release | None) -> Presence:
    """Return whether the server of ``release`` knows this spelling; of an unknown one, the newest."""
    return Presence(*_flags().at(release, lambda index: _row_at(flag, index) is not None))


def has_flag(flag: str, release: Release | None) -> bool:
    """Whether the server of ``release`` knows this spelling, as far as can be told."""
    return presence(flag, release).there


@cache
def _before_now() -> Mapping[str, tuple[str, ...]]:
    """Return for each newest spelling the older ones."""
    found: dict[str, tuple[str, ...]] = {}
    for name, row in _flags().rows.items():
        if "now" in row:
            found[row["now"]] = (*found.get(row["now"], ()), name)
    return found


def _as_spelled_at(flag: str, index: int) -> str | None:
    """Return how the release at ``index`` spells what ``flag`` is in the newest."""
    table, name, own = _flags(), canonical(flag), _row_at(flag, index)
    if own and "now" not in table.rows[own]:
        return flag if flag in _spelled(table.rows[own], own, index) else flag.replace("_", "-")
    if name is None:
        return None
    switches_off = flag != name and (flag.startswith("--no-") or flag in table.rows[name].get("off", {}))
    newest = table.rows[name].get("now", name)
    for text in (newest, *_before_now().get(newest, ())):
        row = table.rows[text]
        if table.holds(row, True, index):
            return next(iter(table.holding(row, "off", index)), None) if switches_off else text
    return None


def spelling(flag: str, release: Release | None) -> Spelling | None:
    """Return how ``release`` spells ``flag``, given as a newer or the newest release does.

    A ``--no-x`` gives what switches it off there. None where the release has nothing of the kind.
    """
    table = _flags()
    text, certain = table.at(release, lambda index: _as_spelled_at(flag, index))
    return None if text is None else Spelling(text, certain, table.name_at(release))


def off_spelling(flag: str, release: Release | None) -> Spelling | None:
    """Return what switches ``flag`` off in ``release``; None where nothing does."""
    table, name = _flags(), canonical(flag)
    if name is None:
        return None

    def look(index: int) -> str | None:
        own = _row_at(_as_spelled_at(name, index) or "", index)
        return next(iter(table.holding(table.rows[own], "off", index)), None) if own else None

    text, certain = table.at(release, look)
    return None if text is None else Spelling(text, certain, table.name_at(release))


def _ask(flag: str, release: Release | None, look: Callable[[Row, int], T]) -> tuple[T, bool] | None:
    """Return what ``look`` says of a flag's row, as its own or an older name; None where the release lacks it."""
    table = _flags()

    def at(index: int) -> tuple[T] | None:
        name = _row_at(flag, index) or _row_at(_as_spelled_at(flag, index) or "", index)
        return (look(table.rows[name], index),) if name else None

    found, certain = table.at(release, at)
    return None if found is None else (found[0], certain)


def _is_computed(value: Any) -> bool:
    return isinstance(value, dict) and value == {"computed": True}


def default(flag: str, release: Release | None) -> Default | None:
    """Return what the parser of ``release`` gives for ``flag`` when it is not passed.

    Sizes are in the flag's own unit (``--swap-space`` and ``--cpu-offload-gb`` GiB,
    ``--kv-cache-memory-bytes`` bytes). A value of None mostly means that it is decided later: see
    `in_force`. None where the release lacks the flag.
    """
    found = _ask(flag, release, lambda row, index: _flags().step(row, "default", index))
    if found is None:
        return None
    value, certain = found
    return Default(None, certain, True) if _is_computed(value) else Default(value, certain)


def in_force(flag: str, release: Release | None) -> tuple[InForce, ...]:
    """Return what holds when ``flag`` is not passed, condition by condition; () where that is not known.

    Of the API server; for the flags whose default is worked out from the model and the device.
    """

    def look(row: Row, index: int) -> tuple[InForce, ...]:
        rows = row.get("in_force", ())
        return tuple(InForce(value, when) for ranges, value, when in rows if index in _flags().span(ranges))

    found = _ask(flag, release, look)
    return found[0] if found else ()


def choices(flag: str, release: Release | None) -> Choices | None:
    """Return the values that ``flag`` takes in ``release``, as typed; None where there is no list."""

    def look(row: Row, index: int) -> tuple[tuple[str, ...], bool]:
        table = _flags()
        return table.holding(row, "choices", index), table.holds(row, row.get("open"), index)

    found = _ask(flag, release, look)
    return Choices(*found[0], certain=found[1]) if found and found[0][0] else None


def form(flag: str, release: Release | None) -> str | None:
    """Return how a value of ``flag`` is written in ``release`` (``JSON``, ``key=count,...``); None if as usual."""
    found = _ask(flag, release, lambda row, index: _flags().step(row, "forms", index))
    return found[0] if found else None


def is_switch(flag: str, release: Release | None) -> bool:
    """Whether ``flag`` is given without a value in ``release``."""
    found = _ask(flag, release, lambda row, index: _flags().holds(row, row.get("bare"), index))
    return bool(found and found[0])


def is_deprecated(flag: str, release: Release | None) -> bool:
    """Whether ``release`` has ``flag`` and calls it deprecated."""

    def look(row: Row, index: int) -> bool:
        return "deprecated" in row and index in _flags().span(row["deprecated"] + " -")

    found = _ask(flag, release, look)
    return bool(found and found[0])


def instead(flag: str) -> str | None:
    """Return what newer releases take in place of ``flag``, as typed; None where nothing is known to."""
    name = canonical(flag)
    row: Row = _flags().rows[name] if name else {}
    found: str | None = row.get("now") or row.get("instead")
    return found


# --- environment variables --------------------------------------------------------------------


@cache
def env_names() -> frozenset[str]:
    """Return every variable that ``vllm/envs.py`` of some release reads."""
    return frozenset(_variables().rows)


def env_presence(name: str, release: Release | None) -> Presence:
    """Return whether ``release`` reads a variable of vLLM.

    A variable of another program (``NCCL_DEBUG``, ``CUDA_VISIBLE_DEVICES``) has its effect beside
    every release.
    """
    if not name.startswith("VLLM_"):
        return Presence(True, True)
    row = _variables().rows.get(name)
    if row is None:
        return Presence(False, True)
    return Presence(*_variables().at(release, lambda index: _variables().holds(row, True, index)))


def has_env(name: str, release: Release | None) -> bool:
    """Whether setting the variable can have an effect on ``release``, as far as can be told."""
    return env_presence(name, release).there


def env_default(name: str, release: Release | None) -> Default | None:
    """Return what holds in ``release`` when the variable is not set; None where that is not known.

    As the code uses it, not as text: False for "0" of a switch. ``VLLM_CPU_KVCACHE_SPACE`` is in
    GiB, timeouts are in the unit their name ends in.
    """
    table, row = _variables(), _variables().rows.get(name)
    if row is None or not has_env(name, release) or not row["in"]:
        return None
    value, certain = table.at(release, lambda index: table.step(row, "default", index))
    return Default(None, certain, True) if _is_computed(value) else Default(value, certain)


def env_in_force(name: str, release: Release | None) -> tuple[InForce, ...]:
    """Return what holds when the variable is not set, condition by condition; () where nothing is noted."""
    table, row = _variables(), _variables().rows.get(name, {})

    def look(index: int) -> tuple[InForce, ...]:
        return tuple(
            InForce(value, when) for ranges, value, when in row.get("in_force", ()) if index in table.span(ranges)
        )

    return table.at(release, look)[0]


def env_form(name: str, release: Release | None) -> str | None:
    """Return how a value of the variable is written in ``release``; None if as usual."""
    table, row = _variables(), _variables().rows.get(name, {})
    found: str | None = table.at(release, lambda index: table.step(row, "forms", index))[0]
    return found


def env_choices(name: str, release: Release | None) -> tuple[str, ...] | None:
    """Return the values that the variable takes in ``release``; None where any will do."""
    table, row = _variables(), _variables().rows.get(name)
    if row is None:
        return None
    return table.at(release, lambda index: table.holding(row, "choices", index))[0] or None


def env_instead(name: str) -> str | None:
    """Return what newer releases take in place of the variable; None where nothing is known to."""
    found: str | None = _variables().rows.get(name, {}).get("instead")
    return found


def knows(name: str) -> bool:
    """Whether ``name`` is a flag or a variable of vLLM, in any release looked at."""
    return name.startswith("VLLM_") or canonical(name) is not None
