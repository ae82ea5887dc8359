"""Whose memory it is, and what the budget says of it."""

from __future__ import annotations

import pytest

from vllm_diag.pipeline import diagnose_sources, report_on
from vllm_diag.quantities import GIB, MIB
from vllm_diag.report import Report


def oom(clauses: str, allocated: str = "22.71 GiB", unallocated: str = "45.62 MiB", free: str = "108.06 MiB") -> Report:
    """Return the report on one refused allocation of 2 GiB on a device of 23.65 GiB."""
    return report_on(
        [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
                f" 23.65 GiB of which {free} is free. {clauses}Of the allocated memory {allocated} is allocated by"
                f" PyTorch, and {unallocated} is reserved by PyTorch but unallocated.\n"
            ).encode()
        ]
    )


def test_a_process_clause_of_the_right_size_is_the_failing_process() -> None:
    """In a container the engine is listed under a host pid; the sums show that it is itself."""
    report = oom("Process 3142 has 23.53 GiB memory in use. ")
    assert report.findings[0].code != "gpu-memory-held-by-others"
    assert report.budget[0].own is not None
    assert report.budget[0].own.bytes == pytest.approx(23.53 * GIB, abs=6 * MIB)


def test_a_clause_beyond_the_own_memory_is_somebody_else() -> None:
    """What others hold is total - free - own, and is blamed when it would have been enough."""
    report = oom(
        "Process 71 has 18.00 GiB memory in use. Process 72 has 5.53 GiB memory in use. ", allocated="4.90 GiB"
    )
    assert report.findings[0].code == "gpu-memory-held-by-others"
    assert report.budget[0].foreign is not None
    assert report.budget[0].foreign.bytes == pytest.approx(18.01 * GIB, abs=30 * MIB)


def test_foreign_memory_is_found_without_any_clause() -> None:
    """Where NVML is missing the difference of total, free and allocated still shows others."""
    report = oom("", allocated="4.90 GiB")
    assert report.findings[0].code == "gpu-memory-held-by-others"


def test_nvml_unknown_is_no_figure() -> None:
    """17179869184.00 GiB is NVML's "not available" and is not taken for memory."""
    report = oom("Process 3142 has 17179869184.00 GiB memory in use. ")
    assert report.findings[0].code != "gpu-memory-held-by-others"


def test_zero_bytes_of_this_process_is_no_figure() -> None:
    """A container artefact: the process with 22.71 GiB allocated cannot hold 0 bytes."""
    report = oom("Including non-PyTorch memory, this process has 0 bytes memory in use. ")
    assert report.findings[0].code != "gpu-memory-held-by-others"


def test_budget_of_a_v0_profile_closes() -> None:
    """The V0 profile states every term; the residual is what rounding leaves."""
    text = (
        b"INFO 12-03 19:54:18 worker.py:267] Memory profiling takes 0.75 seconds\n"
        b"INFO 12-03 19:54:18 worker.py:267] the current vLLM instance can use total_gpu_memory (79.22GiB) x"
        b" gpu_memory_utilization (0.90) = 71.29GiB\n"
        b"INFO 12-03 19:54:18 worker.py:267] model weights take 14.96GiB; non_torch_memory takes 1.79GiB; PyTorch"
        b" activation peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache is 53.28GiB.\n"
    )
    budget = report_on([text]).budget[0]
    assert budget.utilization == 0.9
    assert budget.residual is not None
    assert abs(budget.residual.bytes) <= budget.residual.slack


def test_the_default_share_is_assumed_and_said_so() -> None:
    """Without a line that states it, the release's default share is used and marked as assumed."""
    report = oom("Process 3142 has 23.53 GiB memory in use. ")
    assert report.budget[0].requested is not None
    assert report.budget[0].requested.origin == "assumed"


def test_the_tightest_rank_comes_first() -> None:
    """With unlike ranks the one with the least KV cache decides."""
    text = (
        b"(Worker_TP0 pid=7) INFO 06-01 10:00:00 [gpu_worker.py:298] Available KV cache memory: 9.00 GiB\n"
        b"(Worker_TP1 pid=8) INFO 06-01 10:00:00 [gpu_worker.py:298] Available KV cache memory: 7.50 GiB\n"
    )
    diagnoses, _ = diagnose_sources([text])
    assert [budget.rank for budget in diagnoses[-1].ledger.budgets] == [1, 0]
