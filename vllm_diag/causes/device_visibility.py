"""The processes see no GPU, fewer than they want, or may not use them.

`gpu-not-visible`: no device at all (`No CUDA GPUs are available`, `libcuda.so.1: cannot open
shared object file`, `No platform detected`). In a container: started without `--gpus all`
or the device plug-in, or the NVIDIA container toolkit is missing; elsewhere: no driver, an
empty `CUDA_VISIBLE_DEVICES`, or a PyTorch built without CUDA. `nvidia-smi -L` in the same
container tells.

`invalid-device-ordinal`: more ranks than visible GPUs. `--tensor-parallel-size` times
`--pipeline-parallel-size` must not be more than `nvidia-smi -L` lists there.

`cuda-reinit-after-fork`: the program used CUDA before vLLM forked its workers. Set
`VLLM_WORKER_MULTIPROC_METHOD=spawn` and guard the script with `if __name__ == "__main__"`,
or do nothing on the GPU before the engine is made.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import EXPLAINS, QUIET, cuda_errors, gathered, loud
from vllm_diag.messages.gpu_runtime import FORKED, NOT_VISIBLE, ORDINAL


def _not_visible(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    if run.device == "cpu":
        return None
    said = [*cuda_errors(case, NOT_VISIBLE), *run.coded("no-gpu", "nvml-missing", "torch-without-cuda")]
    nothing = run.coded("no-platform")
    # A notice alone is what a machine without such a device prints; with no platform it counts.
    stated = [event for event in said if event.at.level not in QUIET]
    if not stated and not nothing:
        return None
    events = sorted([*stated, *([] if stated else said), *nothing], key=lambda event: event.at.order)
    summary = cause.summary
    if run.has("torch-without-cuda") and not run.has("no-gpu"):
        summary = "The installed PyTorch is a build without CUDA."
    busy = any("busy" in event.at.evidence.text for event in events)
    if busy:
        summary = "The GPU is held exclusively by another process, or needs a reset."
    facts = {k: v for k, v in gathered(events).items() if k in ("error", "number")}
    return cause.finding(
        *events[:4],
        verdict="likely" if busy or not said else "confirmed",
        facts=facts,
        summary=summary,
        missing=["nvidia-smi -L in the same container, and CUDA_VISIBLE_DEVICES"],
    )


_ORDINAL_FACTS = ("world_size", "gpus", "tensor_parallel_size", "error", "device")


def _ordinal(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = loud([*cuda_errors(case, ORDINAL), *run.coded("too-few-gpus", "device-index-too-high")])
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k in _ORDINAL_FACTS}
    facts.setdefault("tensor_parallel_size", run.settings.get("tensor_parallel_size"))
    summary = cause.summary
    asked = facts.get("world_size") or facts.get("tensor_parallel_size")
    if facts.get("gpus") and asked:
        summary = f"{asked} GPUs were asked for, and {facts['gpus']} are visible."
    if "device" in facts:
        last = facts["gpus"] - 1
        summary = f"Device {facts['device']} was given to a rank, and those visible are numbered from 0 to {last}."
    return cause.finding(*events[:4], facts=facts, summary=summary, missing=["nvidia-smi -L in the same container"])


def _forked(case: Case, cause: Cause) -> Finding | None:
    stated = case.run.coded("cuda-in-forked-process")
    guessed = loud(cuda_errors(case, FORKED))
    if not stated and not guessed:
        return None
    return cause.finding(*stated[:2], *guessed[:2], verdict="confirmed" if stated else "likely")


CAUSES = (
    Cause(
        code="gpu-not-visible",
        term="none",
        title="No GPU is visible to the process",
        summary="The process sees no GPU.",
        judge=_not_visible,
        explains=(*EXPLAINS, "kernel-op-missing"),
        arises=(
            "A device must be let through by the driver, by the container runtime and by the list of "
            "visible devices, and here none was. A pod without a GPU limit, a kernel update without its "
            "driver module, and a CPU wheel of torch that another package pulled in are frequent."
        ),
        verify=(
            "`torch.cuda.device_count()` with the server's interpreter, in the same container, gives the "
            "number of GPUs."
        ),
        useless=(
            "`--device cuda`, in releases that have it, names what is wanted and makes nothing visible. A "
            "CUDA toolkit in the container does not either, as libcuda comes from the host."
        ),
    ),
    Cause(
        code="invalid-device-ordinal",
        term="none",
        title="More ranks than visible GPUs",
        summary="A rank asked for a GPU that is not there: more ranks were started than GPUs are visible.",
        judge=_ordinal,
        explains=EXPLAINS,
        arises=(
            "Each rank takes the device of its number from the visible list, and the list is shorter than "
            "the ranks. A parallel size from a larger machine, a scheduler that sets "
            "`CUDA_VISIBLE_DEVICES`, and MIG, of which a process sees one slice, are the usual "
            "situations."
        ),
        verify="Every rank loads its weights, and `nvidia-smi` shows one process on each device.",
        useless=(
            "Numbers in `CUDA_VISIBLE_DEVICES` that do not exist are dropped together with all behind "
            "them. A smaller `--gpu-memory-utilization` does not put two ranks on one device."
        ),
    ),
    Cause(
        code="cuda-reinit-after-fork",
        term="none",
        title="CUDA was used before the workers were forked",
        summary="A forked worker cannot use CUDA because its parent had used it already.",
        judge=_forked,
        explains=EXPLAINS,
        arises=(
            "A CUDA context does not survive fork(), which is how workers start on Linux by default from "
            "0.5.1 on. A script or notebook that calls `torch.cuda` or moves a model to the GPU before "
            "`LLM(...)`, and libraries that do so at import, are the usual situations."
        ),
        verify="Every worker goes on to load weights, and no traceback of a worker ends in `_lazy_init`.",
        useless=(
            "`CUDA_VISIBLE_DEVICES` set after the first use of CUDA changes nothing. Fewer GPUs do not "
            "mend it either while there is a worker process."
        ),
    ),
)
