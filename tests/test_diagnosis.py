"""Root before consequence: the order of findings and what explains what."""

from __future__ import annotations

from graphlib import TopologicalSorter

from vllm_diag.causes import all_causes
from vllm_diag.diagnosis import edges
from vllm_diag.messages import catalogue
from vllm_diag.pipeline import report_on


def test_what_explains_what_has_no_circle() -> None:
    """The graph of explanations is acyclic."""
    TopologicalSorter(edges()).prepare()


def test_every_explained_code_exists() -> None:
    """A cause explains only causes and messages that exist."""
    known = {*all_causes(), *(message.code for message in catalogue()), "exception"}
    for code, cause in all_causes().items():
        assert set(cause.explains) <= known, code


def test_every_cause_has_a_page() -> None:
    """Each cause has a page of its own words, at least three sentences long."""
    for code, cause in all_causes().items():
        assert cause.page.count(".") >= 3, code


def test_a_kernel_log_explains_a_vanished_engine() -> None:
    """A server log that just stops and a kernel log with the kill make one confirmed cause."""
    server = (
        b"(EngineCore_DP0 pid=14822) INFO 11-02 10:15:03 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with"
        b" config: model='m', max_seq_len=32768\n"
        b"(EngineCore_DP0 pid=14822) INFO 11-02 10:15:09 [gpu_model_runner.py:2602] Starting to load model m...\n"
        b"(APIServer pid=14790) RuntimeError: Engine core initialization failed. See root cause above. Failed core"
        b" proc(s): {'EngineCore_DP0': -9}\n"
    )
    kernel = (
        b"[Mon Nov  2 10:15:21 2026] Out of memory: Killed process 99 (VLLM::EngineCor) total-vm:64213524kB,"
        b" anon-rss:31204880kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:344kB oom_score_adj:0\n"
    )
    alone = report_on([server])
    assert (alone.findings[0].code, alone.findings[0].verdict) == ("engine-vanished", "likely")
    for order in ([server, kernel], [kernel, server]):
        together = report_on(list(order))
        assert [f.code for f in together.findings] == ["host-oom-kill"]
        assert together.findings[0].verdict == "confirmed"
        assert "engine-init-failed" in together.findings[0].explains


def test_a_failed_start_before_a_good_one_is_history() -> None:
    """The verdict is on the last run; earlier runs stay listed."""
    text = (
        b"INFO 06-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
        b"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when\n"
        b"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
        b"INFO 06-01 10:05:00 [api_server.py:1] vLLM API server version 0.11.0\n"
        b"INFO:     Application startup complete.\n"
    )
    report = report_on([text])
    assert [run.outcome for run in report.runs] == ["failed", "healthy"]
    assert report.outcome == "healthy"
    assert not report.findings
