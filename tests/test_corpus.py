"""The corpus: whole logs with the verdict they must get.

A case is ``corpus/logs/NAME.toml`` with ``NAME.log`` beside it; `Sidecar` says what the file
may hold. The structured verdict is asserted first, the rendered report is a snapshot, one
file a case, so that rewording never hides a changed verdict.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from typer.testing import CliRunner

from vllm_diag.causes import all_causes
from vllm_diag.cli import app
from vllm_diag.messages import catalogue
from vllm_diag.pipeline import report_on
from vllm_diag.report import Report

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CORPUS = Path(__file__).parent.parent / "corpus" / "logs"
Op = Literal["lower", "raise", "set", "add", "remove"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Right(_Strict):
    """A change that is right: with a value, a range, or neither when the op says it all."""

    flag: str
    op: Op
    value: str | int | float | None = None
    min: float | None = None
    max: float | None = None

    def accepts(self, flag: str | None, op: str, value: object) -> bool:
        """Whether a remedy of the report is this one."""
        if (flag, op) != (self.flag, self.op):
            return False
        if self.value is not None:
            return value == self.value
        if self.min is None and self.max is None:
            return True
        if not isinstance(value, int | float):
            return False
        low, high = self.min, self.max
        return (low is None or value >= low) and (high is None or value <= high)


class Wrong(_Strict):
    """A change that must not be recommended (or, in ``not_refused``, not be refused), and why."""

    flag: str
    op: Op
    why: str = Field(min_length=10)


class Figures(BaseModel):
    """Numbers the report must hold: bare names are facts of the first finding.

    ``budget`` is in GiB (of the tightest rank), ``events`` holds fields of one event of that
    code (``x_gib`` and ``x_mib`` stand for ``x_bytes``), ``vllm`` what is said of the server.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    budget: dict[str, float] = {}
    events: dict[str, dict[str, Any]] = {}
    vllm: dict[str, Any] = {}

    @property
    def plain(self) -> dict[str, Any]:
        """The facts of the first finding."""
        return dict(self.model_extra or {})


class Sidecar(_Strict):
    """What a case must say."""

    source: str = Field(pattern=r"^(genuine run|genuine record|rendered from the forms) of ")
    shows: str = Field(min_length=20)
    outcome: Literal["failed", "degraded", "healthy", "starting", "unknown"]
    exit_status: Literal[0, 1, 3]
    cause: str | None = None
    term: str | None = None
    verdict: Literal["confirmed", "likely", "undetermined"] | None = None
    looks_like: str | None = Field(default=None, description="the cause this log could be mistaken for")
    sources: list[str] = Field(default=[], description="files read in order; NAME.log when not given")
    runs: int = Field(default=1, description="launches in the log; the verdict is on the last")
    further: list[str] = Field(default=[], description="codes of the findings after the first")
    facts: Figures = Figures()
    remedies: list[Right] = []
    never: list[Wrong] = []
    not_refused: list[Wrong] = []
    explains: list[str] = []

    @model_validator(mode="after")
    def _whole(self) -> Sidecar:
        if (self.cause is None) != (self.term is None) or (self.cause is None) != (self.verdict is None):
            raise ValueError("cause, term and verdict are given together or not at all")
        if self.looks_like is not None and self.looks_like == self.cause:
            raise ValueError("a look-alike has another cause than the one it looks like")
        return self

    @property
    def genuine(self) -> bool:
        """Whether the log was printed by a real program, not rendered."""
        return self.source.startswith("genuine")


def names() -> list[str]:
    """Return the name of every case."""
    return sorted(path.stem for path in CORPUS.glob("*.toml"))


@cache
def sidecar(name: str) -> Sidecar:
    """Return what a case must say."""
    return Sidecar.model_validate(tomllib.loads((CORPUS / f"{name}.toml").read_text("utf-8")))


def files(name: str) -> list[Path]:
    """Return the logs of a case in the order they are read."""
    return [CORPUS / file for file in sidecar(name).sources or [f"{name}.log"]]


@cache
def report(name: str) -> Report:
    """Return the report on a case; a fault in a judge is raised."""
    return report_on([*files(name)], strict=True)


def gist(found: Report) -> str:
    """Return the findings in a line each, for messages of failed tests."""
    lines = [f"outcome {found.outcome}, {len(found.runs)} run(s)"]
    for item in found.findings:
        lines.append(f"  {item.severity} {item.code} ({item.term}, {item.verdict}): {item.summary}")
        lines.extend(f"    {remedy.flag or remedy.id} {remedy.op} {remedy.value}" for remedy in item.remedies)
    return "\n".join(lines)


@pytest.mark.parametrize("name", names())
def test_verdict_is_the_one_the_sidecar_states(name: str) -> None:
    """Each case gets the outcome, cause, term and verdict that its sidecar states."""
    expected, found = sidecar(name), report(name)
    first = found.findings[0] if found.findings else None
    got = (found.outcome, first and first.code, first and first.term, first and first.verdict)
    assert got == (expected.outcome, expected.cause, expected.term, expected.verdict), gist(found)
    assert [item.code for item in found.findings[1:]] == expected.further, gist(found)
    assert len(found.runs) == expected.runs, [(run.lines, run.outcome) for run in found.runs]
    missing = set(expected.explains) - set(first.explains if first else ())
    assert not missing, f"{missing} not among the consequences {first and first.explains}"


@pytest.mark.parametrize("name", names())
def test_figures_are_the_ones_the_sidecar_states(name: str) -> None:
    """Each number of a sidecar stands in the report, exactly as the log prints it."""
    expected, found = sidecar(name).facts, report(name)
    facts = found.findings[0].facts if found.findings else {}
    got = {key: _printed_like(facts.get(key), value) for key, value in expected.plain.items()}
    assert got == expected.plain, facts
    assert {key: getattr(found.vllm, key) for key in expected.vllm} == expected.vllm
    main = found.budget[0] if found.budget else None
    budget = {key: _in_gib(getattr(main, key, None)) for key in expected.budget}
    assert budget == expected.budget, main
    for code, fields in expected.events.items():
        events = [event for event in found.events if event["code"] == code]
        assert any(all(_field(event, k) == v for k, v in fields.items()) for event in events), (code, fields, events)


def _printed_like(value: Any, example: Any) -> Any:
    """Return a number with the decimals of the sidecar's."""
    if not isinstance(value, float) or not isinstance(example, float):
        return value
    return round(value, len(repr(example).partition(".")[2]))


def _in_gib(figure: Any) -> float | None:
    if figure is None or isinstance(figure, float):
        return figure
    return round(figure.bytes / 2**30, 2)


def _field(event: dict[str, Any], name: str) -> Any:
    if name in event:
        return event[name]
    for suffix, unit in (("_gib", 2**30), ("_mib", 2**20)):
        value = event.get(name.removesuffix(suffix) + "_bytes")
        if name.endswith(suffix) and value is not None:
            return round(value / unit, 2)
    return None


@pytest.mark.parametrize("name", names())
def test_remedies_are_right_and_none_is_wrong(name: str) -> None:
    """The first change of a flag is one the sidecar accepts, and none that it refuses is recommended."""
    expected, found = sidecar(name), report(name)
    if expected.remedies:
        assert found.findings, gist(found)
        first = next((remedy for remedy in found.findings[0].remedies if remedy.flag), None)
        accepted = first and any(right.accepts(first.flag, first.op, first.value) for right in expected.remedies)
        assert accepted, f"{first} is none of {expected.remedies}\n{gist(found)}"
    offered = {(remedy.flag, remedy.op) for item in found.findings for remedy in item.remedies}
    wrong = [item for item in expected.never if (item.flag, item.op) in offered]
    assert not wrong, f"{wrong} recommended\n{gist(found)}"
    refused = {(doubt.flag, doubt.op): doubt.why for item in found.findings for doubt in item.wont_help}
    wrongly = {item: refused[item.flag, item.op] for item in expected.not_refused if (item.flag, item.op) in refused}
    assert not wrongly, f"refused although they help: {wrongly}"


@pytest.mark.parametrize("name", names())
def test_exit_status_is_the_one_the_sidecar_states(name: str) -> None:
    """The command line ends with the exit status of the sidecar and prints the same report."""
    result = CliRunner().invoke(app, ["explain", "--format", "jsonl", *map(str, files(name))])
    assert result.exit_code == sidecar(name).exit_status, result.output[-2000:]
    if sidecar(name).exit_status != 3:
        assert Report.model_validate_json(result.stdout) == report(name)


def test_the_command_line_closes_its_files() -> None:
    """No file that the command line reads is left to the garbage collector."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        CliRunner().invoke(app, ["explain", "--format", "jsonl", str(CORPUS / f"{names()[0]}.log")])
        gc.collect()
    assert [str(warning.message) for warning in seen if issubclass(warning.category, ResourceWarning)] == []


class _TextFile(SingleFileSnapshotExtension):
    """One text file a case: ``snapshots/test_corpus/test_rendering[NAME].txt``."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("name", names())
def test_rendering(name: str, snapshot: Any) -> None:
    """The report as text is the one that somebody has read and accepted."""
    text = pytest.importorskip("vllm_diag.render.text")
    assert text.render(report(name), width=80) == snapshot(extension_class=_TextFile)


def is_memory_error(found: Report) -> bool:
    """Whether the report calls a shortage of memory the reason of a failure."""
    return any(item.severity == "error" and item.term != "none" for item in found.findings)


@pytest.mark.parametrize("name", [name for name in names() if sidecar(name).genuine])
def test_trimming_never_makes_it_a_memory_failure(name: str) -> None:
    """The last 60 % of a genuine log never blame memory where the whole log does not."""
    if is_memory_error(report(name)):
        return
    trimmed: list[bytes] = []
    for path in files(name):
        lines = path.read_bytes().splitlines(keepends=True)
        trimmed.append(b"".join(lines[len(lines) * 2 // 5 :]))
    found = report_on([*trimmed], strict=True)
    assert not is_memory_error(found), gist(found)


def is_memory_cause(code: str) -> bool:
    """Whether a cause can belong to a term of the memory budget."""
    cause = all_causes()[code]
    return any(term != "none" for term in (cause.term, *cause.also))


@pytest.mark.parametrize("code", sorted(all_causes()))
def test_every_cause_has_a_case(code: str) -> None:
    """Each cause is the first finding of at least one case."""
    assert any(sidecar(name).cause == code for name in names()), f"no case in corpus/logs has cause = {code!r}"


@pytest.mark.parametrize("code", sorted(filter(is_memory_cause, all_causes())))
def test_every_memory_cause_has_a_look_alike(code: str) -> None:
    """Each memory cause has a case that only looks like it."""
    assert any(sidecar(name).looks_like == code for name in names()), f"no case has looks_like = {code!r}"


# Messages that no case holds, and why that is accepted.
NOT_IN_CORPUS: dict[str, str] = {}


def test_every_message_is_met_by_a_case() -> None:
    """Each message stands in at least one case, but for those listed with a reason.

    Landmarks that are nothing but texts of releases are rendered by the conformance test, from all of them.
    """
    met = Counter(event["code"] for name in names() for event in all_events(name))
    known = {message.code for message in catalogue() if message.wordings}
    assert sorted(known - met.keys() - NOT_IN_CORPUS.keys()) == [], "met by no case in corpus/logs"
    assert sorted(NOT_IN_CORPUS.keys() & met.keys()) == [], "met after all: take them off the list"
    assert sorted(NOT_IN_CORPUS.keys() - known) == [], "no longer in the catalogue: take them off the list"
    assert all(NOT_IN_CORPUS.values())


def all_events(name: str) -> list[dict[str, Any]]:
    """Return the events of every run of a case, not only of the last."""
    from vllm_diag.pipeline import events
    from vllm_diag.report import event_item

    return [event_item(event) for path in files(name) for event in events(path)]


def test_every_log_belongs_to_a_case() -> None:
    """No log lies in the corpus without a sidecar that names it, and none that is named is missing."""
    named = {path for name in names() for path in files(name)}
    assert {path.name for path in CORPUS.glob("*.log")} == {path.name for path in named}


@pytest.mark.parametrize("name", names())
def test_codes_of_a_sidecar_exist(name: str) -> None:
    """Each code in a sidecar is a cause or a message of the catalogue."""
    known = set(all_causes()) | {message.code for message in catalogue()}
    case = sidecar(name)
    used = {case.cause, case.looks_like, *case.further, *case.explains, *case.facts.events} - {None}
    assert used <= known, used - known


def test_some_verdicts_stay_open() -> None:
    """The corpus holds cases whose honest answer is "likely" or "undetermined"."""
    counted = Counter(sidecar(name).verdict for name in names())
    assert counted["likely"] >= 5
    assert counted["undetermined"] >= 5
