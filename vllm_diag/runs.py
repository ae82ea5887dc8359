"""Events to runs: one launch of a server each, with what it was told and how far it got.

Memory is bounded: equal events are kept once with a count, statistics are condensed as
they come, and no code keeps more than `_PER_CODE` different events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from vllm_diag.event_types import Event, Landmark, Metric, ProcessDied, Settings, Stats, TorchOom, Version
from vllm_diag.evidence import Evidence
from vllm_diag.messages import catalogue, containers, host, kernel
from vllm_diag.releases import Release, parse_release

_PER_CODE = 40
# Printed again and again with growing figures: one event where the first stood, with the last figures.
_PROGRESS = frozenset(("graph-capture-started", "weights-shards-progress", "autotuner-note"))

E = TypeVar("E", bound=Event)

# Printed when a launch begins, in the order a launch prints them.
_LAUNCH = ("unit-started", "server-version", "arguments", "non-default-arguments", "engine-starting")
# After one of these a launch marker begins a new run.
_ENDED = frozenset(
    {
        "server-ready", "engine-init-done", "shutdown", "engine-init-failed", "engine-core-failed",
        "worker-failed", "worker-died", "engine-died", "engine-dead", "unit-restart", "unit-killed",
        "unit-stopping", "killed", "killed-command", "exited-137", "container-oom-killed", "oom-kill", "bus-error",
        "unit-oom-killed", "kv-cache-too-small", "kv-cache-below-max-len", "stats",
    }
)  # fmt: skip


_UP = frozenset(("server-ready", "engine-init-done", "stats"))


@cache
def _ended() -> frozenset[str]:
    """Return the codes after which a launch marker begins a new run: the end of a start, of whatever kind."""
    return _ENDED | {message.code for message in catalogue() if message.fatal}


# What other programs than vLLM print: by itself no launch.
HOST_CODES = frozenset(message.code for module in (kernel, host, containers) for message in module.MESSAGES) | {
    "shm-size", "disk-size", "free-memory", "xid", "gpu-lost", "gpu-probe-failed", "nvswitch-error",
    "amdgpu-page-fault", "amdgpu-fault-process", "amdgpu-reset", "amdgpu-note", "driver-no-memory", "driver-note",
    "illegal-instruction", "segmentation-fault",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pressure:
    """What statistics lines and /metrics say about the KV cache, condensed."""

    lines: int = 0
    peak_usage: float | None = None
    last_usage: float | None = None
    peak_waiting: int | None = None
    peak_running: int | None = None
    preemptions: int = 0
    full_and_waiting: int = 0
    evidence: tuple[Evidence, ...] = ()


# CUDA's name says little: builds for AMD print it for some of their errors as well.
_DEVICE_OF_API = {"HIP": "rocm", "XPU": "xpu"}


@dataclass(frozen=True, slots=True)
class Run:
    """One launch.

    ``events`` are in the order of the log, equal ones once; ``counts`` tells how often each
    code was met. ``settings`` are the engine arguments in force as far as the log tells,
    ``explicit`` the names that were given by the user.
    """

    index: int
    events: tuple[Event, ...]
    counts: dict[str, int]
    pressure: Pressure
    settings: dict[str, Any]
    explicit: frozenset[str]
    version: str | None
    engine: str | None
    model: str | None
    started_at: str | None
    last_time: str | None
    first_line: int
    last_line: int
    metrics: dict[str, float] = field(default_factory=dict)
    service: str | None = None

    @property
    def release(self) -> Release | None:
        """The release the log names, if it names one."""
        return parse_release(self.version)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a class, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def coded(self, *codes: str) -> list[Event]:
        """Return the events of these message codes, in order."""
        return [event for event in self.events if event.code in codes]

    def has(self, *codes: str) -> bool:
        """Whether a message of one of these codes was met."""
        return any(code in self.counts for code in codes)

    def first(self, *codes: str) -> Event | None:
        """Return the first event of these message codes."""
        return next(iter(self.coded(*codes)), None)

    @property
    def ready(self) -> bool:
        """Whether the server came up."""
        return self.has("server-ready", "stats", "request-answered") or bool(self.metrics)

    @property
    def device(self) -> str | None:
        """The device type: cuda, rocm, xpu, tpu, cpu; None when nothing tells."""
        for event in self.coded("platform-detected"):
            if isinstance(event, Landmark):
                return str(event.get("platform"))
        if self.has("cpu-kv-size-set", "cpu-kv-space-default", "cpu-memory-short"):
            return "cpu"
        for event in self.coded("kv-cache-size", "kv-blocks"):
            named = str(getattr(event, "device", None) or "").lower()
            if named in ("cpu", "xpu", "tpu", "cuda", "rocm", "hpu"):
                return named
        for event in self.of(TorchOom):
            if event.api in _DEVICE_OF_API:
                return _DEVICE_OF_API[event.api]
        given = self.settings.get("device")
        return str(given) if given not in (None, "auto") else None


def group(events: Iterable[Event]) -> Iterator[Run]:
    """Yield the runs in ``events``; at least one when there is any event.

    Runs of one service are in order. Services that print into one stream have runs of their own,
    and so has what other programs print there when nothing tells of which service it speaks.
    """
    lanes = _Lanes()
    for event in events:
        lane = lanes.of(event)
        builder = lanes.builders[lane]
        if builder.would_begin_anew(event):
            yield builder.build()
            builder = lanes.builders[lane] = _Builder(lanes.next_index(), builder.service)
        builder.add(event)
    yield from sorted((b.build() for b in lanes.builders.values() if b.kept), key=lambda run: run.first_line)


# Printed by the main process of a server, once a launch.
_MAIN_LAUNCH = frozenset(("server-version", "server-model", "arguments", "non-default-arguments"))
_JOURNAL = re.compile(r"(?P<ident>.{1,120})\[(?P<pid>\d{1,10})\]$")
# Where the lines of other programs stand that speak of one of several services, and of which is not told.
_ELSEWHERE = "\0elsewhere"
_MAX_LANES = 64


class _Lanes:
    """Which service each event of one stream belongs to: one builder for each."""

    def __init__(self) -> None:
        self.builders: dict[str | None, _Builder] = {}
        self._index = 0
        self._latest: str | None = None
        # Journal: who prints (ident[pid]) -> lane; lane -> its process names, its unit.
        self._journal: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        self._units: dict[str, str] = {}
        self._started: list[str] = []

    def next_index(self) -> int:
        self._index += 1
        return self._index

    def of(self, event: Event) -> str | None:
        """Return the lane of ``event``; its builder exists."""
        service = event.at.process.service
        if event.code in HOST_CODES:
            lane = self._spoken_of(event)
        elif service is None:
            lane = self._latest
        elif (found := _JOURNAL.match(service)) is not None:
            lane = self._of_journal(service, found["ident"], event)
        else:
            lane = self._named(service, event)
        if lane != _ELSEWHERE:
            self._latest = lane
        if lane not in self.builders:
            self.builders[lane] = _Builder(self.next_index() - 1, lane)
        return lane

    def _named(self, service: str, event: Event) -> str | None:
        if service in self.builders:
            return service
        sure = event.at.level is not None or service[-1:].isdigit() or "/" in service or "." in service
        if (self.builders and not sure) or len(self.builders) >= _MAX_LANES:
            # A word before a bar may be part of a table.
            return self._latest
        return self._adopt(service)

    def _adopt(self, lane: str) -> str:
        """Begin a lane; what nobody's lines told before it belongs to it."""
        builder = self.builders.get(None)
        if builder is not None and len(self.builders) == 1 and not _ended() & builder.counts.keys():
            del self.builders[None]
            builder.service = lane
            self.builders[lane] = builder
        return lane

    def _of_journal(self, service: str, ident: str, event: Event) -> str | None:
        known = self._journal.get(service)
        if known is not None and known in self.builders:
            return known
        lanes = [lane for lane in self._names if lane.startswith(f"{ident}[")]
        ended = [lane for lane in lanes if self.builders[lane].is_over]
        name = event.at.process.name
        own = name if name != ident else None
        free = [lane for lane in lanes if own is None or own not in self._names[lane]]
        if event.code in _MAIN_LAUNCH or (own is not None and not free):
            # Another server, or the same one started again.
            lane = ended[-1] if ended else None
        else:
            lane = free[-1] if free else None
        if lane is None:
            if len(self.builders) >= _MAX_LANES:
                return self._latest
            lane = self._adopt(service)
            self._names[lane] = set()
            if self._started:
                self._units[lane] = self._started.pop(0)
        elif lane in ended and event.code in _MAIN_LAUNCH:
            self._names[lane].clear()
        if own is not None or event.code in _MAIN_LAUNCH:
            # Until then nothing tells which of several servers the process belongs to.
            self._journal[service] = lane
        if own is not None:
            self._names[lane].add(own)
        return lane

    def _spoken_of(self, event: Event) -> str | None:
        """Return the lane that a program outside the servers speaks of."""
        words = [str(value) for name, value in event.values() if name in _NAMES]
        if event.code == "unit-started" and not self._matching(words):
            self._started = [*self._started, *words][-_MAX_LANES:]
        matching = self._matching(words)
        if len(matching) != 1:
            matching = self._by_pid(event) or matching[-1:]
        if matching:
            return matching[-1]
        lanes = [lane for lane in self.builders if lane != _ELSEWHERE]
        if not lanes:
            return None
        return lanes[0] if len(lanes) == 1 else _ELSEWHERE

    def _matching(self, words: list[str]) -> list[str]:
        found = []
        for lane in self.builders:
            if lane is None or lane == _ELSEWHERE:
                continue
            known = {lane, lane.split("[", 1)[0], *lane.split("/"), self._units.get(lane, lane)}
            known |= {name.removesuffix(".service") for name in known}
            if any(name and name in (word, word.removesuffix(".service")) for name in known for word in words):
                found.append(lane)
        return found

    def _by_pid(self, event: Event) -> list[str]:
        pid = dict(event.values()).get("pid")
        if not isinstance(pid, int):
            return []
        return list(dict.fromkeys(lane for who, lane in self._journal.items() if who.endswith(f"[{pid}]")))


# Facts of a message that name what it speaks of.
_NAMES = frozenset(("unit", "name", "container", "pod", "id"))


def merge(runs: list[Run], host: list[Run]) -> list[Run]:
    """Add to the last run what other sources (a kernel log) say, and return all runs.

    Their clocks cannot be compared line by line. What they tell is taken as later, so that a
    kill is not mistaken for something the server survived.
    """
    if not runs:
        return host
    last = runs[-1]
    for other in host:
        counts = dict(last.counts)
        for code, count in other.counts.items():
            counts[code] = counts.get(code, 0) + count
        after = 1 + max((event.at.order for event in last.events), default=-1)
        later = tuple(replace(e, at=replace(e.at, order=e.at.order + after)) for e in other.events)
        last = replace(last, events=last.events + later, counts=counts)
    return [*runs[:-1], last]


def only_host(run: Run) -> bool:
    """Whether nothing in the run was printed by a vLLM process."""
    return all(code in HOST_CODES for code in run.counts)


class _Builder:
    def __init__(self, index: int, service: str | None = None) -> None:
        self.index = index
        self.service = None if service == _ELSEWHERE else service
        self.kept: dict[Any, Event] = {}
        self.counts: dict[str, int] = {}
        self.per_code: dict[str, int] = {}
        self.settings: dict[str, Any] = {}
        self.explicit: set[str] = set()
        self.version: str | None = None
        self.engine: str | None = None
        self.model: str | None = None
        self.started_at: str | None = None
        self.last_time: str | None = None
        self.lines = (0, 0)
        self.pressure = Pressure()
        self.metrics: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether the server has ended, or nothing of its own has been printed yet."""
        return bool((_ended() - _UP) & self.counts.keys()) or self.counts.keys() <= HOST_CODES

    def would_begin_anew(self, event: Event) -> bool:
        if event.code not in _LAUNCH or not self.kept:
            return False
        if self.counts.keys() <= HOST_CODES and "unit-restart" not in self.counts:
            return False
        return bool(_ended() & self.counts.keys()) and (event.code != "engine-starting" or not self._same_launch(event))

    def _same_launch(self, event: Event) -> bool:
        """An engine that starts behind a server that has only just started belongs to it."""
        return not ({"engine-starting"} & self.counts.keys())

    def add(self, event: Event) -> None:
        self.counts[event.code] = self.counts.get(event.code, 0) + 1
        self.last_time = event.at.time or self.last_time
        self.started_at = self.started_at or event.at.time
        line = event.at.evidence.line
        self.lines = (min(self.lines[0] or line, line), max(self.lines[1], line))
        if isinstance(event, Stats):
            self._add_stats(event)
        elif isinstance(event, Metric):
            self._add_metric(event)
        if isinstance(event, Settings | Version):
            self._add_identity(event)
        self._keep(event)

    def _keep(self, event: Event) -> None:
        key: tuple[object, ...] = (event.code, event.at.process.rank, tuple((k, _plain(v)) for k, v in event.values()))
        if isinstance(event, Stats):
            # The first says since when the server answers, the last how it stands.
            key = (event.code, None, ("last",) if (event.code, None, ()) in self.kept else ())
            if key[2]:
                self.kept.pop(key, None)
        elif event.code == "request-answered":
            key = (event.code, None, ())
        elif event.code in _PROGRESS:
            key = (event.code, event.at.process.rank, ())
        known = self.kept.get(key)
        if known is not None:
            if event.code in _PROGRESS:
                known = self.kept[key] = replace(known, facts=event.facts or known.facts)
            if event.at.frames and not known.at.frames:
                self.kept[key] = replace(known, at=replace(known.at, frames=event.at.frames))
            return
        seen = self.per_code.get(event.code, 0)
        if isinstance(event, Stats):
            self.kept[key] = event
        elif seen < _PER_CODE:
            self.per_code[event.code] = seen + 1
            self.kept[key] = event

    def _add_identity(self, event: Settings | Version) -> None:
        self.version = event.version or self.version
        self.engine = event.engine or self.engine
        if isinstance(event, Version):
            self.model = event.model or self.model
            return
        for name, value in event.settings:
            # What the engine says it runs with outranks what was asked for.
            if name not in self.settings or event.code == "engine-starting":
                self.settings[name] = value
            if event.explicit:
                self.explicit.add(name)
        self.model = self.settings.get("model") or self.model

    def _add_stats(self, event: Stats) -> None:
        p = self.pressure
        usage, waiting = event.kv_usage or 0.0, event.waiting or event.pending or 0
        squeezed = usage >= 95.0 and waiting > 0
        evidence = p.evidence
        if (squeezed or event.preemptions) and len(evidence) < 3:
            evidence = (*evidence, event.at.evidence)
        self.pressure = Pressure(
            lines=p.lines + 1,
            peak_usage=max(p.peak_usage or 0.0, usage),
            last_usage=usage,
            peak_waiting=max(p.peak_waiting or 0, waiting),
            peak_running=max(p.peak_running or 0, event.running),
            preemptions=p.preemptions + (event.preemptions or 0),
            full_and_waiting=p.full_and_waiting + squeezed,
            evidence=evidence,
        )

    def _add_metric(self, event: Metric) -> None:
        name = event.name.removesuffix("_total")
        if name == "num_preemptions":
            self.metrics[name] = max(self.metrics.get(name, 0.0), event.value)
        elif "cache_usage" in name and not name.startswith("cpu"):
            self.metrics["kv_cache_usage"] = max(self.metrics.get("kv_cache_usage", 0.0), event.value)
        else:
            self.metrics[name] = event.value

    def build(self) -> Run:
        return Run(
            index=self.index,
            events=tuple(self.kept.values()),
            counts=self.counts,
            pressure=self.pressure,
            settings=self.settings,
            explicit=frozenset(self.explicit),
            version=self.version,
            engine=self.engine,
            model=self.model,
            started_at=self.started_at,
            last_time=self.last_time,
            first_line=self.lines[0],
            last_line=self.lines[1],
            metrics=self.metrics,
            service=self.service,
        )


def _plain(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def deaths(run: Run) -> list[ProcessDied]:
    """Return what the run says about processes that are gone."""
    return run.of(ProcessDied)
