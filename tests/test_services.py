"""Several servers in one stream: each has its runs, and the verdict is on the one that failed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from vllm_diag.pipeline import report_on
from vllm_diag.report import Report

LOGS = Path(__file__).parent.parent / "corpus" / "logs"


def read(name: str) -> list[str]:
    """Return the lines of a log of the corpus."""
    return (LOGS / f"{name}.log").read_text("utf-8").splitlines()


GOOD = read("genuine-healthy-0.11")
SMALL = read("kv-cache-too-small-24gb-card")
OOM = read("activation-oom-profile-run")

Prefix = Callable[[str], str]
# What each tool puts before the lines of server a and of server b.
FORMS: dict[str, Callable[[str], Prefix]] = {
    "compose": lambda name: lambda line: f"vllm-{name}-1  | {line}",
    "compose-underscores": lambda name: lambda line: f"vllm_{name}_1      | {line}",
    "swarm": lambda name: lambda line: f"stack_vllm.{ord(name) - 96}.x2k9p@gpu-3    | {line}",
    "kubectl": lambda name: lambda line: f"[pod/vllm-{name}-7c9f8d6b5-x2k9p/vllm] {line}",
    "kubetail": lambda name: lambda line: f"[vllm-{name}-7c9f8d6b5-x2k9p vllm] {line}",
    "stern": lambda name: lambda line: f"vllm-{name}-7c9f8d6b5-x2k9p vllm {line}",
    "stern-stateful": lambda name: lambda line: f"vllm-{ord(name) - 97} vllm {line}",
    "kail": lambda name: lambda line: f"default/vllm-{name}-7c9f8d6b5-x2k9p[vllm]: {line}",
    "journal-identifiers": lambda name: lambda line: f"Nov 30 20:50:24 gpu-3 vllm-{name}[{4000 + ord(name)}]: {line}",
    "journal-pids": lambda name: lambda line: f"Nov 30 20:50:24 gpu-3 vllm[{4000 + ord(name)}]: {line}",
    "journal-units": lambda name: lambda line: f"Nov 30 20:50:24 gpu-3 vllm-{name}.service[{4000 + ord(name)}]: {line}",
}


def woven(a: list[str], b: list[str]) -> list[str]:
    """Return two logs line by line in turn."""
    return [line for line in chain.from_iterable(zip_longest(a, b)) if line is not None]


def one_after_the_other(a: list[str], b: list[str]) -> list[str]:
    """Return one log behind the other."""
    return a + b


def diagnose(lines: list[str]) -> Report:
    """Return the report on a stream."""
    return report_on([("\n".join(lines) + "\n").encode()], strict=True)


def gist(found: Report) -> list[tuple[str, list[str]]]:
    """Return outcome and causes of each run."""
    return [(run.outcome, run.codes) for run in found.runs]


@pytest.mark.parametrize("mix", [woven, one_after_the_other])
@pytest.mark.parametrize("form", FORMS)
def test_the_verdict_is_on_the_server_that_failed(form: str, mix: Callable[[list[str], list[str]], list[str]]) -> None:
    """Whichever of two servers fails, and wherever its lines stand, it is the one; the other stays healthy."""
    a, b = FORMS[form]("a"), FORMS[form]("b")
    failed = ("failed", ["kv-cache-too-small"])
    for first, second in ((GOOD, SMALL), (SMALL, GOOD)):
        found = diagnose(mix([a(line) for line in first], [b(line) for line in second]))
        if form == "journal-pids" and first is SMALL and mix is one_after_the_other:
            # One after the other, and the first has ended: the same unit, started again.
            assert gist(found) == [failed, ("healthy", [])]
            continue
        assert gist(found) == [("healthy", []), failed]
        assert [item.code for item in found.findings] == ["kv-cache-too-small"]


@pytest.mark.parametrize("form", FORMS)
def test_two_failures_are_told_apart(form: str) -> None:
    """Servers that fail of different causes at the same time have a run and a cause each."""
    a, b = FORMS[form]("a"), FORMS[form]("b")
    found = diagnose(woven([a(line) for line in OOM], [b(line) for line in SMALL]))
    assert sorted(code for _, codes in gist(found) for code in codes) == ["activation-oom", "kv-cache-too-small"]
    assert {outcome for outcome, _ in gist(found)} == {"failed"}


def test_the_services_are_named() -> None:
    """Each run says of which service it is."""
    found = diagnose(woven([f"vllm-a-1  | {line}" for line in GOOD], [f"vllm-b-1  | {line}" for line in SMALL]))
    assert [run.service for run in found.runs] == ["vllm-a-1", "vllm-b-1"]


def test_records_cut_into_each_other_are_read_whole() -> None:
    """A message over several lines is read although another service prints between them."""
    message = [
        "ERROR 06-03 09:13:02 [core.py:842] ValueError: To serve at least one request with the model's max seq len",
        "ERROR 06-03 09:13:02 [core.py:842] (131072), (16.00 GiB KV cache is needed, which is larger than the available",
        "ERROR 06-03 09:13:02 [core.py:842] KV cache memory (4.76 GiB). Based on the available memory, the estimated",
        "ERROR 06-03 09:13:02 [core.py:842] maximum model length is 38992.",
    ]
    other = [f"vllm-b-1  | INFO 06-03 09:13:0{n} [loggers.py:1] nothing of interest" for n in range(4)]
    found = diagnose(woven([f"vllm-a-1  | {line}" for line in message], other))
    assert found.findings[0].facts["estimated_max_len"] == 38992


def test_what_others_say_goes_to_the_service_they_name() -> None:
    """An exit status, a unit's result or a kill belongs to the service, unit or pid it names."""
    a, b = [f"vllm-a-1  | {line}" for line in GOOD], [f"vllm-b-1  | {line}" for line in SMALL[:24]]
    found = diagnose([*woven(a, b), "vllm-b-1 exited with code 137"])
    assert gist(found) == [("healthy", []), ("failed", ["engine-vanished"])]
    a, b = [f"vllm-a-1  | {line}" for line in SMALL[:24]], [f"vllm-b-1  | {line}" for line in GOOD]
    found = diagnose([*woven(a, b), "vllm-a-1 exited with code 137"])
    assert (found.runs[-1].service, found.findings[0].code) == ("vllm-a-1", "engine-vanished")
    kill = "Memory cgroup out of memory: Killed process 4101 (VLLM::EngineCor) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
    units = [
        *[
            f"Nov 30 20:50:24 gpu-3 vllm[{pid}]: {line}"
            for pid, log in ((4001, GOOD), (4002, SMALL[:24]))
            for line in log
        ],
        f"Nov 30 20:50:25 gpu-3 kernel: {kill.replace('4101', '4002')}",
    ]
    found = diagnose(units)
    assert gist(found) == [("healthy", []), ("failed", ["container-memory-limit"])]


def test_processes_of_one_unit_are_one_server() -> None:
    """In a journal the engine's lines carry its own pid; they belong to the server that started it."""
    lines = [
        f"Nov 30 20:50:24 gpu-3 vllm[{'4210' if '(EngineCore' in line else '4001'}]: {line}"
        for line in SMALL
    ]  # fmt: skip
    found = diagnose(lines)
    assert gist(found) == [("failed", ["kv-cache-too-small"])]
    assert found.vllm.args
    assert found.budget[0].weights is not None


def test_two_units_with_engines_of_their_own() -> None:
    """Two units of one identifier, each with an engine process, stay apart."""

    def journal(lines: list[str], main: int, engine: int) -> list[str]:
        return [f"Nov 30 20:50:24 gpu-3 vllm[{engine if '(EngineCore' in t else main}]: {t}" for t in lines]

    found = diagnose(woven(journal(OOM, 4001, 4210), journal(SMALL, 4002, 4211)))
    assert sorted(code for _, codes in gist(found) for code in codes) == ["activation-oom", "kv-cache-too-small"]


def test_json_records_name_their_unit() -> None:
    """Journal and container records are told apart by the unit or container they name."""
    import json

    def record(unit: str) -> Prefix:
        return lambda line: json.dumps({"MESSAGE": line, "_SYSTEMD_UNIT": unit, "SYSLOG_IDENTIFIER": "vllm"})

    a, b = record("vllm-a.service"), record("vllm-b.service")
    found = diagnose(woven([a(line) for line in GOOD], [b(line) for line in SMALL]))
    assert gist(found) == [("healthy", []), ("failed", ["kv-cache-too-small"])]
    assert found.runs[-1].service == "vllm-b.service"


def test_sections_of_tail_are_sources() -> None:
    """``==> file <==`` says whose lines follow."""
    found = diagnose(
        ["==> /logs/a.log <==", *GOOD, "", "==> /logs/b.log <==", *SMALL, "", "==> /logs/a.log <==", GOOD[-1]]
    )
    assert [(run.service, run.outcome) for run in found.runs] == [("a.log", "healthy"), ("b.log", "failed")]


@pytest.mark.parametrize("form", FORMS)
def test_one_server_behind_a_name_is_one_server(form: str) -> None:
    """A name before each line changes nothing for a single server."""
    name = FORMS[form]("a")
    found = diagnose([name(line) for line in SMALL])
    assert gist(found) == [("failed", ["kv-cache-too-small"])]
    assert found.findings[0].facts == diagnose(SMALL).findings[0].facts


def test_a_word_before_a_bar_is_no_service() -> None:
    """A table in a log does not make a server of its own."""
    table = ["memory   | what it is", "weights  | 14.99 GiB", "KV cache | 4.76 GiB"]
    found = diagnose([*SMALL[:30], *table, *SMALL[30:]])
    assert len(found.runs) == 1
    assert found.findings[0].code == "kv-cache-too-small"


def test_several_files_are_several_servers() -> None:
    """Files of different servers are judged each by itself, rotated parts of one file in a row."""
    good, small = "\n".join(GOOD).encode(), "\n".join(SMALL).encode()
    found = report_on([small, good], names=["a.log", "b.log"], strict=True)
    assert gist(found) == [("healthy", []), ("failed", ["kv-cache-too-small"])]
    found = report_on([small, good], names=["vllm.log.1", "vllm.log"], strict=True)
    assert gist(found) == [("failed", ["kv-cache-too-small"]), ("healthy", [])]
