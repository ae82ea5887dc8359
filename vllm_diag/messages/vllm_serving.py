"""A running server's own account of cache pressure: statistics, preemptions, /metrics."""

from __future__ import annotations

from vllm_diag.event_types import Metric, Preempted, Stats
from vllm_diag.messages import Message
from vllm_diag.quantities import Reader, count, number, words

_pressure = Reader(
    "name",
    r"(?:num_preemptions(?:_total)?|(?:gpu|cpu|kv)_cache_usage_perc|num_requests_(?:running|waiting|swapped))",
    str,
    ("num_preemptions_total", "kv_cache_usage_perc"),
)
_labels = Reader("labels", r"[^{}]{0,600}", str, ('engine="0",model_name="m"',))

MESSAGES = (
    Message(
        code="stats",
        event=Stats,
        emitter="vLLM stat logger",
        seen="0.1.4 - 0.33.0",
        reads={
            "index": count,
            "prompt_throughput": number,
            "generation_throughput": number,
            "running": count,
            "swapped": count,
            "pending": count,
            "waiting": count,
            "deferred": count,
            "fetch": words,
            "preemptions": count,
            "device": Reader("device", r"[A-Za-z]{2,12}", str, ("GPU", "CPU")),
            "kv_usage": number,
            "cpu_kv_usage": number,
        },
        wordings=(
            "⟦Engine {index}: ⟧Avg prompt throughput: {prompt_throughput} tokens/s, Avg generation throughput:"
            " {generation_throughput} tokens/s, Running: {running} reqs, ⟦Swapped: {swapped} reqs, ⟧"
            "⟦Pending: {pending} reqs⟧⟦Waiting: {waiting} reqs⟧⟦, Deferred: {deferred} reqs⟧⟦, KV fetch: {fetch}⟧"
            "⟦, Preemptions: {preemptions}⟧⟦,⟧ {device} KV cache usage: {kv_usage}%"
            "¦, CPU KV cache usage: {cpu_kv_usage}%",
        ),
        samples=(
            "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 4.2 tokens/s, Running: 2 reqs, Swapped:"
            " 0 reqs, Pending: 0 reqs, GPU KV cache usage: 96.8%, CPU KV cache usage: 0.0%.",
            "Engine 000: Avg prompt throughput: 120.1 tokens/s, Avg generation throughput: 88.0 tokens/s, Running: 12"
            " reqs, Waiting: 3 reqs, Preemptions: 2, GPU KV cache usage: 99.1%, Prefix cache hit rate: 0.0%",
            "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 8.0 tokens/s, Running: 1"
            " reqs, Waiting: 0 reqs, CPU KV cache usage: 9.1%",
            "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 8.0 tokens/s, Running: 1 reqs, Waiting:"
            " 0 reqs GPU KV cache usage: 9.1%.",
        ),
        means="The periodic state line: queues, and how full the KV cache is.",
    ),
    Message(
        code="preempted",
        event=Preempted,
        emitter="vLLM V0 scheduler",
        seen="0.4.0 - 0.10.2",
        reads={
            "request": words,
            "mode": Reader("mode", r"[\w.]{1,40}?", str, ("PreemptionMode.RECOMPUTE",)),
            "total": count,
        },
        wordings=(
            "Sequence group {request} is preempted by {mode} mode because there is not enough KV cache space¦. This"
            " can affect the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to provide"
            " more KV cache⟦ memory⟧⟦.⟧ total_num_cumulative_preemption={total}",
        ),
        samples=(
            "Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache"
            " space. This can affect the end-to-end performance. Increase gpu_memory_utilization or"
            " tensor_parallel_size to provide more KV cache memory. total_num_cumulative_preemption=51",
            "Sequence group 42 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space.",
        ),
        means="A running request was pushed out because the KV cache is full (each 50th is printed).",
    ),
    Message(
        code="prompt-exceeds-cache",
        emitter="vLLM V0 scheduler",
        seen="0.1.4 - 0.10.2",
        reads={"prompt_tokens": count, "lookahead": count, "request": words},
        wordings=(
            "Input prompt ({prompt_tokens} tokens)⟦ + lookahead slots ({lookahead})⟧ is too long and exceeds"
            " the capacity of block_manager",
            "Failing the request {request} because there's not enough kv cache blocks to run the entire sequence",
            "No usable cache memory left",
            "Out of memory! No free blocks are available",
        ),
        samples=(
            "Input prompt (1217 tokens) is too long and exceeds the capacity of block_manager",
            "Failing the request cmpl-1 because there's not enough kv cache blocks to run the entire sequence.",
            "No usable cache memory left",
            "Out of memory! No free blocks are available.",
        ),
        means="A request that can never fit was dropped.",
    ),
    Message(
        code="prompt-exceeds-batch",
        emitter="vLLM V0 scheduler",
        seen="0.2.3 - 0.10.2",
        reads={"prompt_tokens": count, "limit": count},
        wordings=("Input prompt ({prompt_tokens} tokens) is too long and exceeds limit of {limit}",),
        samples=("Input prompt (32889 tokens) is too long and exceeds limit of 2048",),
        means="A prompt is longer than max_num_batched_tokens and cannot be chunked; it was dropped.",
    ),
    Message(
        code="request-answered",
        emitter="uvicorn access log",
        reads={
            "client": Reader("client", r"[\w.:\[\]]{3,60}", str, ("10.0.0.9:52776",)),
            "path": Reader("path", r"/[\w/.?=&%-]{0,300}", str, ("/v1/completions",)),
            "status": count,
        },
        wordings=('{client} - "⟨POST|GET⟩ {path} HTTP/1.1" {status}',),
        samples=('10.0.0.9:52776 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',),
        means="A client was answered: the server was up.",
    ),
    Message(
        code="metric",
        event=Metric,
        emitter="vLLM /metrics",
        seen="0.2.3 - 0.33.0",
        reads={"name": _pressure, "labels": _labels, "value": number},
        wordings=("vllm:{name}{{{labels}}} {value}",),
        samples=(
            'vllm:num_preemptions_total{engine="0",model_name="m"} 417.0',
            'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9971',
        ),
        means="A sample of a /metrics scrape that bears on cache pressure.",
    ),
)
