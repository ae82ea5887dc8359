"""A finding to what to do: for each cause its levers, in the order to try them.

`PLAN` is the table. A lever looks at the finding, the ledger and the settings, computes its
value and returns a `Remedy`, or None where it does not apply: already set, not there in this
release or on this device, or refused by the arithmetic. `WONT_HELP` holds what the message
or folklore suggests and the sum refuses. A value holds at the pessimistic end of what the
log printed, and in whole blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from vllm_diag.causes import Finding
from vllm_diag.diagnosis import Diagnosis
from vllm_diag.events import CpuMemoryShort, KvCacheTooSmall, SwapSpaceTooLarge, TorchOom
from vllm_diag.quantities import GIB, MIB, Amount, human
from vllm_diag.releases import (
    Release,
    counts_null_block,
    cpu_uses_utilization,
    default_block_size,
    has_kv_cache_memory_bytes,
    has_swap_space,
)

# Above this share drivers, graphs and neighbours have too little; vLLM's own default is 0.92.
HIGHEST_UTILIZATION = 0.95
# More memory than any single device has (288 GiB, 2026): bounds what a share can free.
_LARGEST_DEVICE = 288 * GIB

Op = Literal["lower", "raise", "set", "add", "remove"]
Applicability = Literal["as-is", "choose", "situational"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: which flag to which value, what it gains and costs."""

    id: str
    kind: Literal["flag", "env", "command", "action"]
    flag: str | None
    op: Op
    value: str | int | float | None
    applicability: Applicability
    gain: str
    cost: str
    why: str


@dataclass(frozen=True, slots=True)
class WontHelp:
    """A change that is suggested elsewhere and does not help here."""

    flag: str
    op: Op
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one finding, best first, and what not to."""

    remedies: tuple[Remedy, ...] = ()
    wont_help: tuple[WontHelp, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What a lever may look at."""

    finding: Finding
    diagnosis: Diagnosis

    def setting(self, name: str) -> Any:
        """Return an engine argument as far as the log tells it."""
        return self.diagnosis.run.settings.get(name)

    @property
    def release(self) -> Release | None:
        """The release the log names."""
        return self.diagnosis.run.release

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU backend is in use."""
        return self.diagnosis.run.device == "cpu"

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        given = self.setting("block_size")
        return given if isinstance(given, int) else default_block_size(self.diagnosis.run.device, self.release)

    @property
    def utilization(self) -> float | None:
        """The share in force: stated, given or the release's default."""
        return self.diagnosis.ledger.main.utilization

    @property
    def total(self) -> Amount | None:
        """Capacity of the device that decides."""
        entry = self.diagnosis.ledger.main.total
        return entry.amount if entry else None

    @property
    def parallel(self) -> int:
        """Tensor-parallel size in force."""
        given = self.setting("tensor_parallel_size")
        return given if isinstance(given, int) and given > 0 else 1

    def refused(self) -> KvCacheTooSmall | None:
        """Return the refusal of a full-length request that the finding rests on."""
        return next((e for e in self.finding.because if isinstance(e, KvCacheTooSmall)), None)

    def oom(self) -> TorchOom | None:
        """Return the refused allocation that the finding rests on."""
        return next((e for e in self.finding.because if isinstance(e, TorchOom)), None)


Lever = Callable[[Context], Remedy | None]
Doubt = Callable[[Context], WontHelp | None]


def plan(finding: Finding, diagnosis: Diagnosis) -> Plan:
    """Return the levers that apply to ``finding``, in order, and what will not help."""
    context = Context(finding, diagnosis)
    found = [lever(context) for lever in PLAN.get(finding.code, ())]
    remedies = [remedy for remedy in found if remedy is not None and not _in_force(remedy, context)]
    # What applies as it is comes before what needs a choice; the table's order decides the rest.
    remedies.sort(key=lambda r: _RANK[r.applicability])
    doubts = [doubt(context) for doubt in WONT_HELP.get(finding.code, ())]
    offered = {(r.flag, r.op) for r in remedies}
    return Plan(
        tuple(remedies),
        tuple(d for d in doubts if d is not None and (d.flag, d.op) not in offered),
    )


_RANK = {"as-is": 0, "choose": 1, "situational": 2}


def _in_force(remedy: Remedy, context: Context) -> bool:
    if remedy.kind != "flag" or remedy.flag is None:
        return False
    name = remedy.flag.removeprefix("--").replace("-", "_")
    current = context.setting(name)
    return current is not None and (current == remedy.value or str(current) == str(remedy.value))


# --- the KV cache -----------------------------------------------------------------------


def longest_length(context: Context) -> int | None:
    """Return the largest max_model_len that starts and can be served, None when not certain.

    Uses the bound the engine printed where there is one, else available / (needed / length)
    at the pessimistic end of both roundings. To 0.28 the start check forgets the null block,
    so one block is taken off.
    """
    event = context.refused()
    if event is None:
        return None
    block = context.block_size
    spare = 0 if context.release and counts_null_block(context.release) else block
    if event.tokens is not None:
        return event.tokens if event.tokens < event.max_model_len else None
    if event.estimated_max_len is not None:
        return max(event.estimated_max_len - spare, 0) or None
    if event.needed is None or event.available is None or event.needed.high <= 0:
        return None
    fits = event.available.low * event.max_model_len // event.needed.high
    if counts_null_block(context.release):
        spare = block
    length = int(fits) // block * block - spare
    return length if length >= block else None


def shorter_context(context: Context) -> Remedy | None:
    """Lower max_model_len to what fits."""
    event, length = context.refused(), longest_length(context)
    if event is None or length is None or length >= event.max_model_len:
        return None
    source = "the engine printed this bound" if event.estimated_max_len or event.tokens else (
        f"{event.available} / ({event.needed} / {event.max_model_len:,} tokens), rounded down to whole blocks"
    )
    return Remedy(
        id="shorter-context",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=length,
        applicability="as-is" if length >= 256 else "situational",
        gain=f"starts with room for one request of {length:,} tokens; "
        f"{_round_down(length):,} is a rounder choice",
        cost=f"requests longer than {length:,} tokens are refused",
        why=source,
    )


def _round_down(length: int) -> int:
    """Return the largest multiple of 1024 (or of 128, when small) that is not above ``length``."""
    step = 1024 if length >= 4096 else 128
    return max(length // step * step, min(length, 128))


def fp8_kv_cache(context: Context) -> Remedy | None:
    """Store the KV cache in 8 bits: half the bytes of a token."""
    current = str(context.setting("kv_cache_dtype") or "auto")
    too_old = context.release is not None and context.release < Release(0, 3)
    if context.on_cpu or too_old or "8" in current or "4" in current:
        return None
    event = context.refused()
    gain = "halves what a token takes: twice as many tokens in the same memory"
    applicability: Applicability = "choose"
    if event and event.needed and event.available:
        half = event.needed.high // 2
        if half <= event.available.low:
            gain = f"one request then needs about {human(half)}, and {event.available} is there"
        else:
            gain = f"one request then needs about {human(half)}; not enough by itself"
            applicability = "situational"
    return Remedy(
        id="fp8-kv-cache",
        kind="flag",
        flag="--kv-cache-dtype",
        op="set",
        value="fp8",
        applicability=applicability,
        gain=gain,
        cost="a little accuracy; needs a GPU and an attention backend that support it",
        why="8 bits instead of 16 for each key and value",
    )


def higher_utilization(context: Context) -> Remedy | None:
    """Raise gpu_memory_utilization, where the share still unused is enough."""
    used = context.utilization
    if context.on_cpu or used is None or used >= HIGHEST_UTILIZATION:
        return None
    value = _enough_utilization(context)
    if value is None:
        return None
    budget = context.diagnosis.ledger.main
    free = budget.free.amount if budget.free else None
    total = context.total
    if free and total and free.low < total.low * value:
        return None
    return Remedy(
        id="higher-utilization",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="raise",
        value=value,
        applicability="as-is" if total else "situational",
        gain=f"{human((value - used) * total.low)} more for the KV cache" if total else "a larger share of the device",
        cost="less room for graphs, peaks and other processes",
        why=f"{used:g} is in force" + ("" if budget.utilization_origin == "stated" else " (the release's default)"),
    )


def _enough_utilization(context: Context) -> float | None:
    """Return the utilization that closes the gap, None when none up to 0.95 does."""
    used, total = context.utilization or 0.9, context.total
    event = context.refused()
    if event is None:
        return HIGHEST_UTILIZATION
    if event.needed is None or event.available is None:
        return None
    short = event.needed.high - event.available.low
    if total is None:
        # Without the capacity only an impossible case is certain; a possible one stays open.
        return HIGHEST_UTILIZATION if short <= (HIGHEST_UTILIZATION - used) * 24 * GIB else None
    value = math.ceil((used + short / total.low) * 100) / 100
    return value if value <= HIGHEST_UTILIZATION else None


def no_higher_utilization(context: Context) -> WontHelp | None:
    """Say with the sum why a higher utilization does not close the gap."""
    used, total, event = context.utilization, context.total, context.refused()
    if context.on_cpu or event is None or used is None:
        return None
    if event.needed is None or event.available is None:
        return WontHelp("--gpu-memory-utilization", "raise", "the text prints no sizes, so nothing shows that it suffices")
    short = event.needed - event.available
    if total is not None:
        most = human((1 - used) * total.bytes)
        why = f"even 1.00 frees {most} of the {short} missing ({total} device at {used:g})"
    else:
        need = human(short.low / max(1e-9, HIGHEST_UTILIZATION - used))
        why = (
            f"going from {used:g} to {HIGHEST_UTILIZATION} frees the missing {short} only on a device of {need} or more"
        )
    return WontHelp("--gpu-memory-utilization", "raise", why)


def quantized_weights(context: Context) -> Remedy | None:
    """Use a checkpoint with fewer bits a weight."""
    if context.setting("quantization") not in (None, "None"):
        return None
    weights = context.diagnosis.ledger.main.weights
    gain = "a half (8 bits) to three quarters (4 bits) of the weights' memory"
    if weights:
        gain = f"about {human(weights.amount.bytes / 2)} (8 bits) to {human(weights.amount.bytes * 0.7)} (4 bits) on each rank"
    return Remedy(
        id="quantized-weights",
        kind="flag",
        flag="--quantization",
        op="set",
        value="fp8" if not context.on_cpu else None,
        applicability="choose",
        gain=gain,
        cost="some accuracy; for 4 bits another checkpoint (AWQ, GPTQ)",
        why="16-bit weights are the largest term of most budgets",
    )


def more_devices(context: Context) -> Remedy | None:
    """Share the model among more devices."""
    if context.on_cpu:
        return None
    value = context.parallel * 2
    return Remedy(
        id="more-devices",
        kind="flag",
        flag="--tensor-parallel-size",
        op="raise",
        value=value,
        applicability="choose",
        gain=f"weights and KV cache of a rank shrink to about {context.parallel}/{value}",
        cost=f"{value} devices; the number must divide the attention heads",
        why=f"{context.parallel} in force",
    )


def eager(context: Context) -> Remedy | None:
    """Capture no CUDA graphs."""
    if context.on_cpu or context.setting("enforce_eager") is True or context.diagnosis.run.has("eager-mode"):
        return None
    graphs = context.diagnosis.ledger.main.cuda_graphs
    return Remedy(
        id="no-cuda-graphs",
        kind="flag",
        flag="--enforce-eager",
        op="add",
        value=None,
        applicability="situational",
        gain=f"{graphs.amount} of CUDA graphs" if graphs else "the memory of CUDA graphs, mostly 0.5 to 3 GiB",
        cost="slower decoding, most of all with small batches",
        why="graphs are kept in device memory for each batch size",
    )


def offload_weights(context: Context) -> Remedy | None:
    """Keep part of the weights in host memory."""
    if context.on_cpu or context.setting("cpu_offload_gb"):
        return None
    event = context.oom()
    short = 4
    if event and event.tried and event.free:
        short = max(4, math.ceil((event.tried.high - event.free.low) / GIB) + 2)
    return Remedy(
        id="offload-weights",
        kind="flag",
        flag="--cpu-offload-gb",
        op="set",
        value=short,
        applicability="situational",
        gain=f"{short} GiB of weights on each rank",
        cost="every step moves them over the bus: many times slower; takes as much host RAM",
        why="the last resort when neither devices nor a smaller format are at hand",
    )


# --- activations ------------------------------------------------------------------------


def _half(current: object, default: int, floor: int) -> int:
    number = current if isinstance(current, int) and current > 0 else default
    return max(floor, 2 ** int(math.log2(max(1, number // 2))))


def fewer_batched_tokens(context: Context) -> Remedy | None:
    """Lower the tokens of one step."""
    current = context.setting("max_num_batched_tokens")
    value = _half(current, 8192, 512)
    if isinstance(current, int) and value >= current:
        return None
    return Remedy(
        id="fewer-batched-tokens",
        kind="flag",
        flag="--max-num-batched-tokens",
        op="lower",
        value=value,
        applicability="choose",
        gain="activations of a step shrink with the tokens in it",
        cost="longer time to the first token for long prompts",
        why=f"{current} in force" if current else "the value in force is not in the log; 2048 to 8192 are the defaults",
    )


def fewer_sequences(context: Context) -> Remedy | None:
    """Lower the number of sequences of one step."""
    current = context.finding.facts.get("num_reqs") or context.setting("max_num_seqs")
    value = _half(current, 256, 8)
    if isinstance(current, int) and value >= current:
        return None
    stated = "num_reqs" in context.finding.facts
    return Remedy(
        id="fewer-sequences",
        kind="flag",
        flag="--max-num-seqs",
        op="lower",
        value=value,
        applicability="as-is" if stated else "choose",
        gain="logits, sampler and graphs shrink with the number of sequences"
        if context.finding.term != "kv_cache"
        else "fewer requests share the cache, so that those running can finish",
        cost="fewer requests at once; the others wait",
        why=f"{current} in force" if current else "256 to 1024 are the defaults",
    )


def lower_utilization(context: Context) -> Remedy | None:
    """Leave more of the device outside the KV cache."""
    event, used, total = context.oom(), context.utilization, context.total
    if context.on_cpu or used is None:
        return None
    missing = None
    if event and event.tried and event.free and total:
        missing = max(event.tried.high - event.free.low, 256 * MIB)
        if missing > total.low / 3:
            return None
    step = (missing / total.low) if missing and total else 0.04
    value = math.floor((used - step - 0.005) * 100) / 100
    if value < 0.3:
        return None
    return Remedy(
        id="lower-utilization",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="lower",
        value=value,
        applicability="as-is" if missing else "choose",
        gain=f"{human((used - value) * total.low)} outside the KV cache" if total else "room outside the KV cache",
        cost="as much less KV cache",
        why=f"short by {human(missing)}; {used:g} is in force" if missing else f"{used:g} is in force",
    )


def no_higher_utilization_for_peaks(context: Context) -> WontHelp | None:
    """Say why a larger share makes a peak worse."""
    return WontHelp(
        "--gpu-memory-utilization", "raise", "what ran out is outside the KV cache; a larger share leaves it less room"
    )


def no_defragmentation(context: Context) -> WontHelp | None:
    """Say how little expandable segments could gain."""
    event = context.oom()
    if event is None or event.unallocated is None or event.tried is None:
        return None
    if event.unallocated.high >= event.tried.low:
        return None
    return WontHelp(
        "PYTORCH_CUDA_ALLOC_CONF",
        "set",
        f"only {event.unallocated} is reserved and unused, and {event.tried} was asked for",
    )


def expandable_segments(context: Context) -> Remedy | None:
    """Let the allocator join its pieces, where much lies unused in them."""
    event = context.oom()
    if event is None or event.unallocated is None or event.tried is None or event.tried.bytes <= 0:
        return None
    if event.unallocated.low < event.tried.high:
        return None
    return Remedy(
        id="expandable-segments",
        kind="env",
        flag="PYTORCH_CUDA_ALLOC_CONF",
        op="set",
        value="expandable_segments:True",
        applicability="as-is",
        gain=f"up to {event.unallocated} that is reserved in pieces",
        cost="none known for serving; not with sleep mode's allocator",
        why=f"{event.unallocated} is reserved and unused, more than the {event.tried} asked for",
    )


def fewer_images(context: Context) -> Remedy | None:
    """Limit what one request may bring to a multimodal model."""
    run = context.diagnosis.run
    event = context.oom()
    absurd = event and event.tried and event.total and event.tried.low > event.total.high
    frames = " ".join(event.at.frames) if event else ""
    if not (run.has("encoder-budget") or "multimodal" in frames or "vit" in frames or "vision" in frames):
        return None
    return Remedy(
        id="smaller-media",
        kind="flag",
        flag="--limit-mm-per-prompt",
        op="lower",
        value=None,
        applicability="choose" if not absurd else "as-is",
        gain="the encoder's activations shrink with the number and size of media",
        cost="requests with more or larger media are refused",
        why="the dummy run feeds the encoder with the largest media allowed",
    )


# --- others, host, shared memory ----------------------------------------------------------


def stop_the_other(context: Context) -> Remedy | None:
    """Free the device."""
    held = context.finding.facts.get("held_by_others_gib")
    return Remedy(
        id="stop-the-other-process",
        kind="action",
        flag=None,
        op="remove",
        value=None,
        applicability="as-is",
        gain=f"{held:.2f} GiB" if held else "what the other process holds",
        cost="that process stops",
        why="nvidia-smi shows who holds the memory; an earlier engine that has not gone is the usual one",
    )


def share_the_device(context: Context) -> Remedy | None:
    """Ask for no more than is free."""
    share = context.finding.facts.get("share_free")
    used = context.utilization
    if share is None or used is None:
        return None
    value = math.floor((share - 0.002) * 100) / 100
    # Below a third of the device a model and its cache hardly fit; that is a question of placement.
    if value < 0.33 or value >= used:
        return None
    return Remedy(
        id="share-the-device",
        kind="flag",
        flag="--gpu-memory-utilization",
        op="lower",
        value=value,
        applicability="situational",
        gain="the start check passes beside the other process",
        cost="a smaller KV cache; the weights must still fit",
        why=f"{share:.3f} of the device is free",
    )


def no_higher_utilization_beside_others(context: Context) -> WontHelp | None:
    """Say why a larger share cannot pass the check."""
    return WontHelp("--gpu-memory-utilization", "raise", "more would be asked for than is free")


def start_again(context: Context) -> Remedy | None:
    """Start again when nobody else is moving memory."""
    return Remedy(
        id="start-again",
        kind="action",
        flag=None,
        op="set",
        value=None,
        applicability="as-is",
        gain="a measurement that holds",
        cost="none",
        why="nothing is short; another process let go of memory during the measurement",
    )


def fixed_kv_bytes(context: Context) -> Remedy | None:
    """Give the KV cache a size instead of measuring."""
    if not has_kv_cache_memory_bytes(context.release):
        return None
    return Remedy(
        id="fixed-kv-cache-size",
        kind="flag",
        flag="--kv-cache-memory-bytes",
        op="set",
        value=None,
        applicability="choose",
        gain="no measurement, so no race",
        cost="the size has to be chosen by hand",
        why="with a given size the profile is not used",
    )


def more_host_memory(context: Context) -> Remedy | None:
    """Give the host or the job more memory."""
    return Remedy(
        id="more-host-memory",
        kind="action",
        flag=None,
        op="raise",
        value=None,
        applicability="choose",
        gain="RAM for the weights and 8 to 16 GB beside them, at least 16 GB",
        cost="a larger machine, or fewer other processes on it",
        why="loading passes the weights through host memory",
    )


def higher_limit(context: Context) -> Remedy | None:
    """Raise the limit of the container."""
    limit = context.finding.facts.get("limit_gib")
    resident = context.finding.facts.get("resident_gib")
    value = f"{math.ceil(max(limit or 0, resident or 0) * 1.5) + 1}g" if limit or resident else None
    return Remedy(
        id="higher-memory-limit",
        kind="command",
        flag="--memory",
        op="raise",
        value=value,
        applicability="choose",
        gain="the limit no longer cuts the start off",
        cost="host memory; /dev/shm and page cache count in it",
        why=f"the limit is {limit:.2f} GiB" if limit else "a limit was reached",
    )


def less_swap_space(context: Context) -> Remedy | None:
    """Lower vLLM's page-locked CPU swap space."""
    if not has_swap_space(context.release) or context.on_cpu:
        return None
    current = context.setting("swap_space")
    event = next((e for e in context.finding.because if isinstance(e, SwapSpaceTooLarge)), None)
    if event is None and context.release is None and current is None and not context.diagnosis.run.has("kv-blocks"):
        return None
    value = 0
    if event is not None:
        # Accepted without a warning up to 40 % of RAM, all ranks together.
        value = int(event.total_ram.low * 0.35 / GIB / context.parallel)
    if isinstance(current, int | float) and value >= current:
        return None
    return Remedy(
        id="less-swap-space",
        kind="flag",
        flag="--swap-space",
        op="lower",
        value=value,
        applicability="as-is" if event else "choose",
        gain="page-locked host memory, 4 GiB for each GPU by default",
        cost="preempted requests are computed again instead of swapped back",
        why=f"{event.swap} of {event.total_ram} were asked for" if event else "the default takes 4 GiB a GPU",
    )


def larger_shm(context: Context) -> Remedy | None:
    """Give the container a larger /dev/shm."""
    required = context.finding.facts.get("required_mib")
    # 16 GiB is the customary size; it is a ceiling, only what is used is taken.
    size = max(16, math.ceil((required or 0) * 2 / 1024))
    return Remedy(
        id="larger-shm",
        kind="command",
        flag="--shm-size",
        op="raise",
        value=f"{size}g",
        applicability="as-is",
        gain=f"{required:.0f} MiB are needed" if required else "room for message queues and NCCL",
        cost="none until used; counts in the container's memory limit",
        why="Docker gives a container 64 MiB",
    )


def host_ipc(context: Context) -> Remedy | None:
    """Use the host's /dev/shm."""
    return Remedy(
        id="host-ipc",
        kind="command",
        flag="--ipc",
        op="set",
        value="host",
        applicability="situational",
        gain="half of the host's RAM as shared memory, by the usual default",
        cost="the container shares the host's IPC namespace",
        why="no size has to be chosen",
    )


def larger_cpu_space(context: Context) -> Remedy | None:
    """Give the CPU backend's KV cache more memory."""
    event = context.refused()
    total = context.total
    value: int | None = None
    applicability: Applicability = "choose"
    if event and event.needed and event.needed.bytes >= GIB // 4:
        # A whole GiB above the need: from 0.29 on one block more than the need is required.
        value = event.needed.high // GIB + 1
        if total and value * context.parallel > total.gib * 0.7:
            applicability = "situational"
        elif total or value <= 8:
            applicability = "as-is"
    elif event and event.tokens and event.max_model_len:
        space = context.diagnosis.ledger.main.kv_cache
        if space:
            value = math.ceil(space.amount.gib * event.max_model_len / event.tokens) + 1
    return Remedy(
        id="larger-cpu-kv-space",
        kind="env",
        flag="VLLM_CPU_KVCACHE_SPACE",
        op="raise",
        value=value,
        applicability=applicability,
        gain="the full length fits" if value else "more tokens fit",
        cost=f"{value} GiB of host memory for each rank" if value else "as much host memory for each rank",
        why=f"one request needs {event.needed}" if event and event.needed else "the space holds less than one request",
    )


def smaller_cpu_space(context: Context) -> Remedy | None:
    """Ask for no more than the node has."""
    event = next((e for e in context.finding.because if isinstance(e, CpuMemoryShort)), None)
    if event is None or event.available is None:
        return None
    if event.utilization is not None:
        if event.total is None or not event.total.bytes:
            return None
        value = math.floor(event.available.low / event.total.high * 100 - 2) / 100
        return Remedy(
            id="smaller-cpu-share",
            kind="flag",
            flag="--gpu-memory-utilization",
            op="lower",
            value=max(0.05, value),
            applicability="as-is",
            gain="the share asked for is then available",
            cost="a smaller KV cache",
            why=f"{event.available} of {event.total} are available; on the CPU the flag is a share of the node's RAM",
        )
    value_gib = max(1, int(event.available.low * 0.8 / GIB))
    return Remedy(
        id="smaller-cpu-kv-space",
        kind="env",
        flag="VLLM_CPU_KVCACHE_SPACE",
        op="lower",
        value=value_gib,
        applicability="as-is",
        gain="the space asked for is then available",
        cost="a smaller KV cache",
        why=f"{event.available} of {event.total} are available on the node",
    )


def no_gpu_utilization_on_cpu(context: Context) -> WontHelp | None:
    """Say that the flag does nothing while the CPU space is given or not derived from it."""
    if cpu_uses_utilization(context.release) and not context.diagnosis.run.has("cpu-kv-size-set"):
        return None
    return WontHelp(
        "--gpu-memory-utilization", "raise", "the size of the CPU KV cache is given by VLLM_CPU_KVCACHE_SPACE here"
    )


def slots_that_fit(context: Context) -> Remedy | None:
    """Lower max_num_seqs to the state blocks there are."""
    blocks = context.finding.facts.get("blocks")
    if not isinstance(blocks, int):
        return None
    return Remedy(
        id="sequences-that-fit",
        kind="flag",
        flag="--max-num-seqs",
        op="lower",
        value=blocks,
        applicability="as-is",
        gain="every sequence gets its block of state",
        cost=f"at most {blocks:,} requests at once",
        why=f"{blocks:,} blocks fit",
    )


def other_cache_disk(context: Context) -> Remedy | None:
    """Put the model cache where there is room."""
    return Remedy(
        id="cache-on-another-disk",
        kind="env",
        flag="HF_HOME",
        op="set",
        value=None,
        applicability="choose",
        gain="downloads go to a disk with room",
        cost="what is there already is fetched again or moved",
        why="the model cache is the largest thing vLLM writes",
    )


def more_maps(context: Context) -> Remedy | None:
    """Raise the kernel's limit on memory maps."""
    return Remedy(
        id="more-memory-maps",
        kind="command",
        flag="vm.max_map_count",
        op="raise",
        value=1048576,
        applicability="as-is",
        gain="the limit on maps is 65530 by default",
        cost="none known",
        why="a small map was refused",
    )


def shorter_requests(context: Context) -> Remedy | None:
    """Cap the length of a request when the cache is under pressure."""
    current = context.setting("max_model_len")
    return Remedy(
        id="shorter-requests",
        kind="flag",
        flag="--max-model-len",
        op="lower",
        value=current // 2 if isinstance(current, int) and current >= 1024 else None,
        applicability="situational",
        gain="a request can no longer grow to fill the cache",
        cost="longer requests are refused",
        why="a full cache is shared by fewer, shorter requests",
    )


def no_shorter_context(context: Context) -> WontHelp | None:
    """Say that the length of a request is not what is missing."""
    return WontHelp("--max-model-len", "lower", "not the length of a request is short: there is no room before it counts")


def no_utilization_for_weights(context: Context) -> WontHelp | None:
    """Say that the share does not bound the weights."""
    return WontHelp(
        "--gpu-memory-utilization", "raise", "weights are loaded before the share is looked at; the device itself is full"
    )


def no_lower_utilization_for_weights(context: Context) -> WontHelp | None:
    """Say the same of the message's own hint."""
    return WontHelp(
        "--gpu-memory-utilization", "lower", "the share does not bound the weights; less of it leaves the device as full"
    )


def no_gpu_flags(context: Context) -> WontHelp | None:
    """Say that host memory is not GPU memory."""
    return WontHelp("--gpu-memory-utilization", "lower", "host memory ran out, not the GPU's")


_ROOM_OUTSIDE: tuple[Lever, ...] = (
    expandable_segments, fewer_images, fewer_batched_tokens, fewer_sequences, lower_utilization, eager, quantized_weights,
    more_devices,
)  # fmt: skip

PLAN: dict[str, tuple[Lever, ...]] = {
    "kv-cache-too-small": (
        shorter_context, higher_utilization, fp8_kv_cache, quantized_weights, more_devices, eager, offload_weights,
    ),
    "cpu-kv-space-too-small": (larger_cpu_space, shorter_context),
    "cpu-kv-space-exceeds-ram": (smaller_cpu_space,),
    "no-kv-cache-memory": (
        higher_utilization, quantized_weights, more_devices, fewer_batched_tokens, fewer_sequences, eager, offload_weights,
    ),
    "weights-do-not-fit": (quantized_weights, more_devices, offload_weights),
    "activation-oom": _ROOM_OUTSIDE,
    "cuda-graph-oom": (lower_utilization, fewer_sequences, eager, quantized_weights),
    "kv-allocation-oom": (stop_the_other, lower_utilization, less_swap_space, eager),
    "serving-oom": (
        expandable_segments, lower_utilization, fewer_batched_tokens, fewer_sequences, fewer_images, quantized_weights,
    ),
    "gpu-memory-held-by-others": (stop_the_other, share_the_device),
    "memory-profiling-race": (start_again, fixed_kv_bytes),
    "kv-cache-pressure": (
        fewer_sequences, higher_utilization, shorter_requests, fp8_kv_cache, more_devices,
    ),
    "recurrent-state-slots-too-few": (slots_that_fit, higher_utilization),
    "host-oom-kill": (more_host_memory, less_swap_space),
    "container-memory-limit": (higher_limit, less_swap_space),
    "engine-vanished": (more_host_memory, less_swap_space),
    "host-allocation-failed": (more_host_memory, less_swap_space),
    "pinned-memory-failed": (less_swap_space, more_host_memory),
    "swap-space-too-large": (less_swap_space, more_host_memory),
    "swap-space-exhausted": (fewer_sequences,),
    "shm-too-small": (larger_shm, host_ipc),
    "mmap-count-limit": (more_maps,),
    "disk-full": (other_cache_disk,),
}  # fmt: skip

WONT_HELP: dict[str, tuple[Doubt, ...]] = {
    "kv-cache-too-small": (no_higher_utilization,),
    "cpu-kv-space-too-small": (no_gpu_utilization_on_cpu,),
    "no-kv-cache-memory": (no_shorter_context,),
    "weights-do-not-fit": (no_utilization_for_weights, no_lower_utilization_for_weights, no_shorter_context,
                           no_defragmentation),
    "activation-oom": (no_higher_utilization_for_peaks, no_defragmentation),
    "cuda-graph-oom": (no_higher_utilization_for_peaks, no_defragmentation),
    "serving-oom": (no_higher_utilization_for_peaks, no_defragmentation),
    "gpu-memory-held-by-others": (no_higher_utilization_beside_others,),
    "host-oom-kill": (no_gpu_flags,),
    "container-memory-limit": (no_gpu_flags,),
    "recurrent-state-slots-too-few": (no_shorter_context,),
}  # fmt: skip
