"""What only looks like a failure raises none; what is one is found wherever it stands."""

from __future__ import annotations

import pytest

from tests.test_corpus import CORPUS, files, gist, names, report, sidecar
from vllm_diag.pipeline import events, report_on
from vllm_diag.report import Report

HEALTHY = [name for name in names() if sidecar(name).outcome == "healthy" and sidecar(name).genuine]

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of"
    " which 108.06 MiB is free. Of the allocated memory 22.71 GiB is allocated by PyTorch, and 45.62 MiB is reserved by"
    " PyTorch but unallocated."
)
_PLACE = "(EngineCore_DP0 pid=7) {level} 06-01 10:00:00 [x.py:1] "
# Lines that good starts and good servers print too.
LINES = {
    "autotuner fallback": _PLACE.format(level="WARNING") + "[Autotuner]: OOM detected, falling back to default tactic",
    "oom told as a warning": _PLACE.format(level="WARNING") + _OOM,
    "fragmentation hint": "If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management",
    "capture hint": _PLACE.format(level="INFO") + "If out-of-memory error occurs during cudagraph capture, consider"
    " decreasing `gpu_memory_utilization` or switching to eager mode.",
    "leaked shared memory": "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker:"
    " There appear to be 1 leaked shared_memory objects to clean up at shutdown",
    "worker stopped": "INFO 06-01 10:00:00 [multiproc_worker_utils.py:1] Worker VllmWorkerProcess pid 8101 died, exit"
    " code: -15",
    "busy worker": _PLACE.format(level="INFO") + "No available shared memory broadcast block found in 60 seconds. This"
    " typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation,"
    " weight/kv cache quantization).",
    "graph profiling": _PLACE.format(level="INFO") + "CUDA graph memory profiling is enabled (default since v0.21.0). The"
    " current --gpu-memory-utilization=0.9000 is equivalent to --gpu-memory-utilization=0.8791 without CUDA graph"
    " memory profiling. To maintain the same effective KV cache size as before, increase --gpu-memory-utilization to"
    " 0.9208.",
    "engine dead": "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)"
    " for the root cause.",
    "output handler": "ERROR 06-01 10:00:00 [async_llm.py:1] AsyncLLM output_handler failed.",
    "driver has no memory": "[  512.118201] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]"
    " (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
    "echo of a kill": "NVRM: Xid (PCI:0000:41:00): 45, pid=4711, name=python3, Ch 00000008",
    "group not destroyed": "[rank0]:[W502 11:47:03.150000000 ProcessGroupNCCL.cpp:1554] Warning: WARNING:"
    " destroy_process_group() was not called before program exit, which can leak resources.",
    "no infiniband": "gpu-3:4711:4790 [0] NCCL INFO NET/IB : No device found.",
    "ray's disk": "(raylet) [2024-03-02 14:40:11,300 E 12 30] (raylet) file_system_monitor.cc:111: /tmp/ray/session_1 is"
    " over 95% full, available space: 4.7 GB; capacity: 98.3 GB. Object creation will fail if spilling is required.",
    "ray killed nobody": "0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed due to other"
    " reasons at node (ID: b, IP: 10.0.0.1) over the last time period.",
    "ray's monitor": "MemoryMonitor initialized with usage threshold at 64060306227 bytes (0.95 system memory), total"
    " system memory bytes: 67431886554",
    "earlyoom's report": "mem avail: 2841 of 64301 MiB ( 4.42%), swap free:    0 of    0 MiB ( 0.00%)",
    "kernel's own request": "[ 5120.118201] kworker/0:2: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)",
    "suspend": "[ 5120.118201] OOM killer enabled.",
    "watches": "inotify_add_watch(7, /models, 4095): No space left on device",
    "soft recovery": "amdgpu 0000:43:00.0: amdgpu: ring gfx_0.0.0 timeout, but soft recovered",
    "tile too large": _PLACE.format(level="WARNING") + "out of resource: shared memory, Required: 147456, Hardware limit:"
    " 101376. Reducing block sizes or `num_stages` may help.",
    "download warning": "UserWarning: Not enough free disk space to download the file. The expected file size is: 9976.58"
    " MB. The target location /root/.cache/huggingface/hub only has 2110.40 MB free disk space.",
    "record of a chat": '{"text": "user said: CUDA out of memory. Tried to allocate 2.00 GiB"}',
    "record with a user": '{"message": "it says CUDA out of memory. Tried to allocate 2.00 GiB", "user": "bob"}',
    "record at info": '{"level": "info", "msg": "user said: CUDA out of memory. Tried to allocate 2.00 GiB"}',
    "request log": "INFO 06-01 10:00:00 [logger.py:40] Received request cmpl-1: prompt: 'Why CUDA out of memory. Tried to"
    " allocate 2.00 GiB?', params: SamplingParams(n=1)",
}  # fmt: skip


def read(name: str) -> list[str]:
    """Return the lines of a log of the corpus."""
    return (CORPUS / f"{name}.log").read_text("utf-8", "replace").splitlines()


def diagnose(lines: list[str]) -> Report:
    """Return the report on these lines."""
    return report_on([("\n".join(lines) + "\n").encode()], strict=True)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_a_harmless_line_in_a_good_log_raises_no_error(line: str) -> None:
    """Put anywhere into the log of a server that came up, it makes no error of it."""
    for name in HEALTHY[:3]:
        log = read(name)
        up = next(i for i, text in enumerate(log) if "startup complete" in text)
        for at in (3, max(3, up - 2), up + 1, len(log)):
            found = diagnose([*log[:at], line, *log[at:]])
            assert not [item for item in found.findings if item.severity == "error"], (name, at, gist(found))


PROMPT = [
    "my server says",
    "Traceback (most recent call last):",
    '  File "/v/gpu_model_runner.py", line 1, in execute_model',
    _OOM,
    "Killed",
    "Out of memory: Killed process 4711 (python3) total-vm:64213524kB, anon-rss:31204880kB, file-rss:0kB",
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "what is it?",
]
_BEFORE = "INFO:     Application startup complete."
_NEXT = "INFO 06-01 10:00:01 [async_llm.py:271] Added request cmpl-1."


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("header", ["", "INFO 06-01 10:00:00 [logger.py:40] "])
def test_the_lines_of_a_prompt_are_the_clients(quote: str, header: str) -> None:
    """A prompt that goes over several lines, with or without the header on each, is no message."""
    first = f"INFO 06-01 10:00:00 [logger.py:40] Received request cmpl-1: prompt: {quote}{PROMPT[0]}"
    last = f"{header}{PROMPT[-1]}{quote}, params: SamplingParams(n=1), prompt_token_ids: None"
    lines = [_BEFORE, first, *[header + text for text in PROMPT[1:-1]], last, _NEXT]
    assert [event.code for event in events("\n".join(lines).encode(), "log")] == ["server-ready"]


def test_what_follows_a_prompt_is_the_servers() -> None:
    """An error behind a request log is found, and so is one behind a prompt that is never closed."""
    error = _PLACE.format(level="ERROR") + _OOM
    for end in ("?', params: SamplingParams(n=1)", " and so on"):
        first = f"INFO 06-01 10:00:00 [logger.py:40] Received request cmpl-1: prompt: 'why{end}"
        assert diagnose([_BEFORE, first, error]).findings[0].code == "serving-oom"


ALONE = [
    name
    for name in names()
    if sidecar(name).cause and sidecar(name).outcome == "failed" and sidecar(name).runs == 1 and len(files(name)) == 1
]


@pytest.mark.parametrize("name", [name for name in ALONE if sidecar(name).cause != "engine-vanished"])
def test_a_cause_printed_after_its_consequences_is_the_cause(name: str) -> None:
    """Buffers are emptied late: the lines that prove a cause may come last and prove it all the same."""
    evidence = {item.line for item in report(name).findings[0].evidence}
    log = files(name)[0].read_text("utf-8", "replace").splitlines()
    late = [text for number, text in enumerate(log, 1) if number in evidence]
    rest = [text for number, text in enumerate(log, 1) if number not in evidence]
    found = diagnose(rest + late)
    assert [item.code for item in found.findings[:1]] == [sidecar(name).cause], gist(found)


CUT = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which"
    " is larger than the available KV cache memory (4.76 GiB). Based on the available memory",
    "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache"
    " (38992). Try increasing",
)


@pytest.mark.parametrize("text", CUT)
def test_a_refusal_cut_off_anywhere_keeps_its_cause(text: str) -> None:
    """Cut off before its figures end, it is still that the KV cache is too small, and no figure is made up."""
    whole = diagnose([text]).findings[0].facts
    for end in range(text.index("seq len") + len("seq len"), len(text)):
        found = diagnose([text[:end]])
        assert [item.code for item in found.findings] == ["kv-cache-too-small"], text[:end]
        wrong = {key: value for key, value in found.findings[0].facts.items() if whole.get(key) != value}
        assert not wrong, text[:end]


def test_where_no_cause_is_printed_the_report_says_what_to_look_at() -> None:
    """The process whose words are missing, the command for its log, and the kernel's record are named."""
    found = diagnose(
        [
            "vllm-a-1  | (EngineCore_DP0 pid=214) ERROR 06-03 09:13:02 [multiproc_executor.py:230] Worker proc VllmWorker-1"
            " died unexpectedly, shutting down executor.",
            "vllm-a-1  | (APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed"
            " core proc(s): {}",
        ]
    )
    assert found.findings[0].code in ("engine-vanished", "root-cause-not-in-log")
    told = " | ".join(found.findings[0].missing)
    assert "VllmWorker-1" in told
    assert "docker compose logs" in told
    assert "dmesg" in told
