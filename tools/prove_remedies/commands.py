"""Applying a remedy to a command line, literally: what a person does who copies the advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class NotApplicable(Exception):
    """The remedy is not a flag or a variable with a value: a command, an act, or a choice that is left open."""


@dataclass(frozen=True)
class Launch:
    """What is varied about a start: the flags behind ``vllm serve MODEL`` and the environment variables."""

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """One line as in a shell, without the model."""
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), *self.flags])


def apply(launch: Launch, remedy: Mapping[str, Any]) -> Launch:
    """Return the launch with the remedy of a report carried out.

    A flag that is there gets the value, one that is not is added, ``remove`` takes it and its value away; variables
    likewise. Raises `NotApplicable` for commands and acts, and where a value is needed and none is given.
    """
    kind, name, op, value = (remedy.get(key) for key in ("kind", "flag", "op", "value"))
    if kind not in ("flag", "env") or not name:
        raise NotApplicable(f"{kind}: {name or value or remedy.get('why', '')}")
    if op in ("lower", "raise", "set") and value is None:
        raise NotApplicable(f"{name} without a value")
    if kind == "env":
        env = {key: text for key, text in launch.env.items() if key != name}
        if op != "remove":
            env[name] = _text(value) if value is not None else "1"
        return Launch(launch.flags, env)
    if op == "remove":
        return Launch(without(launch.flags, name), launch.env)
    return Launch(with_value(launch.flags, name, None if value is None else _text(value)), launch.env)


def with_value(flags: Sequence[str], name: str, value: str | None) -> tuple[str, ...]:
    """Return the flags with this one set to the value, in its place when it is there."""
    new = [name] if value is None else [name, value]
    out: list[str] = []
    placed = False
    for group in _groups(flags):
        if not _is(group[0], name):
            out += group
        elif not placed:
            out += new
            placed = True
    return tuple(out if placed else out + new)


def without(flags: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the flags without this one and its value."""
    return tuple(part for group in _groups(flags) if not _is(group[0], name) for part in group)


def value_of(flags: Sequence[str], name: str) -> str | None:
    """Return the value of a flag, None when it is not there or has none."""
    for group in _groups(flags):
        if _is(group[0], name):
            return group[0].partition("=")[2] if "=" in group[0] else next(iter(group[1:]), None)
    return None


def describe(remedy: Mapping[str, Any]) -> str:
    """Return the remedy as the receipts name it."""
    name, value = remedy.get("flag"), remedy.get("value")
    if remedy.get("kind") not in ("flag", "env"):
        return f"({remedy.get('kind')}) {' '.join(str(part) for part in (name, value) if part is not None)}".strip()
    if remedy.get("op") == "remove":
        return f"without {name}"
    joint = "=" if remedy.get("kind") == "env" else " "
    return str(name) if value is None else f"{name}{joint}{_text(value)}"


def _groups(flags: Sequence[str]) -> list[list[str]]:
    """A flag with the values behind it, for each flag."""
    groups: list[list[str]] = []
    for part in flags:
        if (part.startswith("-") and not _NEGATIVE_NUMBER.match(part)) or not groups:
            groups.append([part])
        else:
            groups[-1].append(part)
    return groups


def _is(part: str, name: str) -> bool:
    return part.partition("=")[0].replace("_", "-") == name.partition("=")[0].replace("_", "-")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
