"""The causes vllm-diag can name: one file each.

A module here holds one `Cause`. Its docstring is the page that ``vllm-diag codes CODE``
prints; ``judge`` looks at one run and its ledger and returns a `Finding`, or None when the
run gives no ground for it. A judge states facts; sentences are made from ``summary``.

``explains`` names what follows from the cause: other causes and messages of the cascade.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from vllm_diag.event_types import Event
from vllm_diag.evidence import Evidence
from vllm_diag.ledger import Ledger
from vllm_diag.quantities import GIB, MIB, Amount, human
from vllm_diag.runs import Run

Verdict = Literal["confirmed", "likely", "undetermined"]
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Case:
    """What a cause may look at."""

    run: Run
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that was considered, and why it is not the one."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause found in a run.

    ``facts`` are numbers in the unit of their name, or words. ``missing`` says what would
    settle the rest. ``explains`` is filled in by the diagnosis.
    """

    code: str
    term: str
    severity: Severity
    verdict: Verdict
    summary: str
    facts: dict[str, Any]
    evidence: tuple[Evidence, ...]
    order: int
    missing: tuple[str, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    explains: tuple[str, ...] = ()
    because: tuple[Event, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: its code, the budget term it belongs to, and how it is recognised.

    ``summary`` is a format string over the finding's facts; ``also`` are further terms a
    finding may carry instead of ``term``. ``arises``, ``verify`` and ``useless`` are for its
    page: how it comes about, how one sees that it is mended, what is often tried in vain.
    """

    code: str
    term: str
    title: str
    summary: str
    judge: Callable[[Case, Cause], Finding | None]
    severity: Severity = "error"
    explains: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    arises: str = ""
    verify: str = ""
    useless: str = ""
    page: str = field(default="", compare=False)

    def finding(
        self,
        *events: Event,
        verdict: Verdict = "confirmed",
        facts: dict[str, Any] | None = None,
        summary: str | None = None,
        title: str | None = None,
        term: str | None = None,
        severity: Severity | None = None,
        missing: Iterable[str] = (),
        ruled_out: Iterable[RuledOut] = (),
        evidence: Iterable[Evidence] = (),
    ) -> Finding:
        """Return a finding of this cause that rests on ``events``, the first the earliest."""
        known = {name: value for name, value in (facts or {}).items() if value is not None}
        quoted = tuple(dict.fromkeys([*(event.at.evidence for event in events), *evidence]))
        return Finding(
            code=self.code,
            term=term or self.term,
            severity=severity or self.severity,
            verdict=verdict,
            summary=(summary or self.summary).format_map(_Shown(known)),
            facts=known,
            evidence=quoted[:8],
            order=min((event.at.order for event in events), default=10**9),
            missing=tuple(missing),
            ruled_out=tuple(ruled_out),
            because=events,
            title=title or self.title,
        )


class _Shown(dict[str, Any]):
    """Facts for a summary: ``{needed}`` shows the fact ``needed_gib`` or ``needed_mib`` as an amount."""

    def __missing__(self, key: str) -> str:
        for unit, factor in (("_gib", GIB), ("_mib", MIB)):
            if key + unit in self:
                return human(self[key + unit] * factor)
        return "an unknown amount"


def in_gib(amount: Amount | None) -> float | None:
    """Return ``amount`` in GiB, to the KiB."""
    return None if amount is None else round(amount.gib, 6)


def in_mib(amount: Amount | None) -> float | None:
    """Return ``amount`` in MiB with the digits a log prints."""
    return None if amount is None else round(amount.bytes / 2**20, 2)


def from_messages(*codes: str, verdict: Verdict = "confirmed") -> Callable[[Case, Cause], Finding | None]:
    """Return a judge for a cause that one message states outright.

    The finding's facts are the figures of the first such message.
    """

    def judge(case: Case, cause: Cause) -> Finding | None:
        events = case.run.coded(*codes)
        if not events:
            return None
        return cause.finding(*events[:4], verdict=verdict, facts=plain_facts(events[0]))

    return judge


def plain_facts(event: Event) -> dict[str, Any]:
    """Return the figures of ``event`` as facts: amounts in GiB, the rest as they are."""
    facts: dict[str, Any] = {}
    for name, value in event.values():
        if isinstance(value, Amount):
            facts[f"{name}_gib"] = in_gib(value)
        elif isinstance(value, str | int | float):
            facts[name] = value
    return facts


@cache
def all_causes() -> dict[str, Cause]:
    """Return every cause by code, discovered from the modules of this package."""
    found: dict[str, Cause] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        causes = getattr(module, "CAUSES", None) or (module.CAUSE,)
        for cause in causes:
            page = cause.page or (module.__doc__ or "").strip()
            object.__setattr__(cause, "page", page)
            if cause.code in found:
                raise ValueError(f"two causes are called {cause.code}")
            found[cause.code] = cause
    return dict(sorted(found.items()))
