"""Values that are advised hold at the pessimistic end, in whole blocks, and are not in force already."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_diag.causes import all_causes
from vllm_diag.pipeline import report_on
from vllm_diag.quantities import GIB
from vllm_diag.remedies import PLAN, WONT_HELP
from vllm_diag.report import FindingItem, RemedyItem


def first(text: str) -> FindingItem:
    """Return the first finding on ``text``."""
    return report_on([text.encode()]).findings[0]


def by_flag(finding: FindingItem, flag: str) -> RemedyItem | None:
    """Return the remedy that sets ``flag``."""
    return next((remedy for remedy in finding.remedies if remedy.flag == flag), None)


def refusal(needed: float, available: float, length: int, estimate: str = "") -> str:
    """Return V1's refusal as releases 0.9 to 0.13 print it."""
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({length}), ({needed:.2f} GiB KV"
        f" cache is needed, which is larger than the available KV cache memory ({available:.2f} GiB). {estimate}Try"
        " increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
    )


@settings(max_examples=200, deadline=None)
@given(
    kib=st.integers(16, 640),
    blocks=st.integers(64, 60_000),
    ratio=st.floats(0.05, 0.95),
    jitter=st.floats(-0.0049, 0.0049),
)
def test_advised_length_fits_whatever_the_rounding_hid(kib: int, blocks: int, ratio: float, jitter: float) -> None:
    """The length holds for every true size that prints the same figures, one block kept for the null block."""
    length, per_token = blocks * 16, kib * 1024
    needed = length * per_token
    available = max(int(needed * ratio), GIB // 8)
    if round(available / GIB, 2) >= round(needed / GIB, 2):
        return
    finding = first(refusal(needed / GIB, available / GIB, length))
    remedy = by_flag(finding, "--max-model-len")
    if remedy is None or remedy.value is None:
        return
    assert isinstance(remedy.value, int)
    assert remedy.value % 16 == 0
    assert remedy.value * per_token + 16 * per_token <= available


def test_one_block_less_than_the_estimate_before_0_29() -> None:
    """To 0.28 the engine's own bound starts, and a request of that length waits for ever."""
    text = "INFO 06-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n" + refusal(
        16, 4.23, 131072, "Based on the available memory, the estimated maximum model length is 34640. "
    )
    remedy = by_flag(first(text), "--max-model-len")
    assert remedy is not None
    assert remedy.value == 34624


def test_the_estimate_itself_from_0_29() -> None:
    """From 0.29 the null block is counted, and the printed bound can be served."""
    text = "INFO 06-01 10:00:00 [api_server.py:1] vLLM server version 0.29.0, serving model m\n" + refusal(
        16, 4.23, 131072, "Based on the available memory, the estimated maximum model length is 34624. "
    )
    remedy = by_flag(first(text), "--max-model-len")
    assert remedy is not None
    assert remedy.value == 34624


def test_a_higher_share_is_refused_with_the_sum() -> None:
    """Raising the utilization is listed as no help, with what it would free."""
    finding = first(refusal(16, 4.23, 131072))
    assert by_flag(finding, "--gpu-memory-utilization") is None
    assert [doubt.flag for doubt in finding.wont_help] == ["--gpu-memory-utilization"]


def test_what_is_set_already_is_not_advised() -> None:
    """A flag that the log's arguments already set to the value is not offered again."""
    text = (
        "INFO 06-01 10:00:00 [utils.py:1] non-default args: {'kv_cache_dtype': 'fp8', 'enforce_eager': True,"
        " 'quantization': 'awq'}\n" + refusal(16, 4.23, 131072)
    )
    flags = {remedy.flag for remedy in first(text).remedies}
    assert not flags & {"--kv-cache-dtype", "--enforce-eager", "--quantization"}


def test_no_flag_that_the_release_lacks() -> None:
    """0.2 has no --cpu-offload-gb and no fp8 KV cache."""
    text = (
        "INFO 01-02 10:00:00 llm_engine.py:73] Initializing an LLM engine (v0.2.7) with config: model='m'\n"
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in"
        " KV cache (2048). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`\n"
    )
    flags = {remedy.flag for remedy in first(text).remedies}
    assert "--max-model-len" in flags
    assert not flags & {"--cpu-offload-gb", "--kv-cache-dtype", "--limit-mm-per-prompt"}


def test_sharing_a_device_stays_below_what_is_free() -> None:
    """The share advised beside another process is at most free / total, rounded down."""
    finding = first(
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization"
        " (0.95, 45.01 GiB). Decrease GPU memory utilization\n"
    )
    remedy = by_flag(finding, "--gpu-memory-utilization")
    assert remedy is not None
    assert remedy.value == 0.66


def test_a_share_too_small_to_hold_a_model_is_not_advised() -> None:
    """With almost nothing free there is no share to advise: it is a question of who holds the memory."""
    finding = first(
        "ValueError: Free memory on device (0.49/79.32 GiB) on startup is less than desired GPU memory utilization"
        " (0.6, 47.59 GiB). Decrease GPU memory utilization\n"
    )
    assert by_flag(finding, "--gpu-memory-utilization") is None


def test_a_larger_share_is_advised_only_where_it_certainly_suffices() -> None:
    """With the capacity known the share is computed and rounded up; it closes the gap."""
    text = (
        "INFO 12-03 19:54:18 worker.py:267] the current vLLM instance can use total_gpu_memory (79.22GiB) x"
        " gpu_memory_utilization (0.80) = 63.38GiB\n" + refusal(16, 14.00, 131072)
    )
    remedy = by_flag(first(text), "--gpu-memory-utilization")
    assert remedy is not None
    assert remedy.value == 0.83


def test_every_row_is_for_a_known_cause() -> None:
    """The tables of remedies name only causes that exist."""
    assert set(PLAN) <= set(all_causes())
    assert set(WONT_HELP) <= set(all_causes())
