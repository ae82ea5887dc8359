"""What to do about causes that are not a shortage of memory: commands, packages, settings.

Nothing here touches a memory setting: what failed did not fail for want of room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from vllm_diag.releases import Release, has_flag
from vllm_diag.remedies.model import Applicability, Context, Doubt, Lever, Op, Remedy, WontHelp

# What vLLM accepts for --max-lora-rank.
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_READY_TIMEOUT_SINCE = Release(0, 14, 0)


def _change(
    id_: str,
    kind: Literal["flag", "env", "command", "action"],
    flag: str | None,
    value: str | int | float | None,
    why: str,
    *,
    op: Op = "set",
    gain: str,
    cost: str = "none",
    applicability: Applicability = "as-is",
) -> Remedy:
    return Remedy(id_, kind, flag, op, value, applicability, gain, cost, why)


def fixed(
    id_: str,
    kind: Literal["flag", "env", "command", "action"],
    flag: str | None,
    value: str | int | float | None,
    why: str,
    **rest: Any,
) -> Lever:
    """Return a lever that is the same whatever the log says."""

    def lever(context: Context) -> Remedy | None:
        return _change(id_, kind, flag, value, why, **rest)

    return lever


def _figure(context: Context, *names: str) -> int | None:
    """Return the first of these facts that is a whole number."""
    for name in names:
        value = context.finding.facts.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


# --- limits -----------------------------------------------------------------------------------


def length_of_the_model(context: Context) -> Remedy | None:
    """Lower the context to what the model has."""
    limit = _figure(context, "limit")
    return _change(
        "length-of-the-model",
        "flag",
        "--max-model-len",
        limit,
        f"the model's configuration gives {limit:,} tokens" if limit else "the model's configuration gives less",
        op="lower",
        gain="the length is accepted",
        cost="longer requests are refused",
        applicability="as-is" if limit else "choose",
    )


def more_batched_tokens(context: Context) -> Remedy | None:
    """Raise the tokens of a step to what the other setting needs."""
    needed = _figure(context, "needed")
    return _change(
        "more-batched-tokens",
        "flag",
        "--max-num-batched-tokens",
        needed,
        f"{needed:,} are needed" if needed else "the other settings need more",
        op="raise",
        gain="the settings agree",
        cost="more activation memory for each step",
        applicability="as-is" if needed else "choose",
    )


def chunked_prefill(context: Context) -> Remedy | None:
    """Cut long prompts over several steps."""
    if _figure(context, "prompt_tokens") is None:
        return None
    return _change(
        "chunked-prefill",
        "flag",
        "--enable-chunked-prefill",
        None,
        "a prompt is then spread over several steps",
        op="add",
        gain="no prompt is too long for a step",
        cost="not possible for every model and feature of V0",
        applicability="choose",
    )


def shorter_than_the_batch(context: Context) -> Remedy | None:
    """Lower the context to the tokens of a step."""
    given, wanted = _figure(context, "max_num_batched_tokens"), _figure(context, "max_model_len")
    if given is None or wanted is None:
        return None
    return _change(
        "length-of-a-step",
        "flag",
        "--max-model-len",
        given,
        f"a step may hold {given:,} tokens",
        op="lower",
        gain="the settings agree",
        cost="longer requests are refused",
        applicability="choose",
    )


def fewer_sequences_than_tokens(context: Context) -> Remedy | None:
    """Lower the sequences to the tokens of a step."""
    given, wanted = _figure(context, "max_num_batched_tokens"), _figure(context, "max_num_seqs")
    if given is None or wanted is None:
        return None
    return _change(
        "sequences-of-a-step",
        "flag",
        "--max-num-seqs",
        given,
        f"a step may hold {given:,} tokens, one for each sequence at least",
        op="lower",
        gain="the settings agree",
        cost="fewer requests at once",
        applicability="choose",
    )


def size_that_divides(context: Context) -> Remedy | None:
    """Lower the tensor-parallel size to the next one that divides what is cut."""
    size = _figure(context, "tensor_parallel_size", "denominator")
    if _figure(context, "layers") is not None:
        return None
    heads = _figure(context, "attention_heads", "numerator")
    value: int | None = None
    if heads and size:
        value = _largest_part(heads, size)
    elif size:
        value = _size_for_blocks(context, size)
    return _change(
        "parallel-size-that-divides",
        "flag",
        "--tensor-parallel-size",
        value,
        f"{value} divides {heads}" if value and heads else "fewer, larger parts keep whole blocks",
        op="lower",
        gain="the model can be cut into equal parts",
        cost="fewer GPUs hold the weights, so each holds more of them",
        applicability="as-is" if value else "choose",
    )


def _largest_part(heads: int, size: int) -> int:
    """Return the largest power of two that divides, or else the largest divisor.

    Key and value heads are fewer, and their number is a power of two nearly always.
    """
    divisors = [n for n in range(1, min(size, heads) + 1) if heads % n == 0]
    powers = [n for n in divisors if n & (n - 1) == 0 and n > 1]
    return max(powers or divisors)


def _size_for_blocks(context: Context, size: int) -> int | None:
    part = _figure(context, "input_size_per_partition", "output_size_per_partition", "input_size", "output_size")
    block = _figure(context, "block_k", "block_n", "min_thread_k", "min_thread_n", "group_size")
    if part is None or block is None:
        return None
    whole = part * size
    return next((n for n in range(size - 1, 0, -1) if size % n == 0 and (whole // n) % block == 0), None)


def layers_that_divide(context: Context) -> Remedy | None:
    """Lower the pipeline-parallel size to the next one that divides the layers."""
    layers, size = _figure(context, "layers"), _figure(context, "pipeline_parallel_size")
    if not layers or not size:
        return None
    value = next(n for n in range(min(size, layers), 0, -1) if layers % n == 0)
    return _change(
        "pipeline-size-that-divides",
        "flag",
        "--pipeline-parallel-size",
        value,
        f"{value} divides {layers} layers",
        op="lower",
        gain="the layers can be cut into equal parts",
        cost="fewer GPUs hold the weights, so each holds more of them",
    )


def expert_parallel(context: Context) -> Remedy | None:
    """Cut between experts instead of inside them."""
    if _figure(context, "block_k", "block_n") is None:
        return None
    return _change(
        "expert-parallel",
        "flag",
        "--enable-expert-parallel",
        None,
        "whole experts are given to the ranks, so no block is cut",
        op="add",
        gain="the size need not divide the experts' blocks",
        cost="only for models with experts; the load of the ranks is less even",
        applicability="situational",
    )


def larger_lora_rank(context: Context) -> Remedy | None:
    """Raise the rank that the engine is set up for."""
    rank = _figure(context, "rank")
    value = next((n for n in _LORA_RANKS if rank is not None and n >= rank), None)
    return _change(
        "larger-lora-rank",
        "flag",
        "--max-lora-rank",
        value,
        f"the adapter has rank {rank}",
        op="raise",
        gain="the adapter is accepted",
        cost="more memory for each adapter slot",
        applicability="as-is" if value else "choose",
    )


# --- arguments --------------------------------------------------------------------------------


def without_the_flag(context: Context) -> Remedy | None:
    """Leave the unknown flag away."""
    flag = str(context.finding.facts.get("flag") or "")
    is_flag = flag.startswith("-")
    return _change(
        "without-the-flag",
        "flag" if is_flag else "action",
        flag if is_flag else None,
        None if is_flag else flag or None,
        "this release does not know it; vllm serve --help lists what there is",
        op="remove",
        gain="the command line is accepted",
        cost="what the flag did in the release it was written for",
    )


def a_value_it_can_take(context: Context) -> Remedy | None:
    """Give the flag one of its values."""
    flag = context.finding.facts.get("flag") or context.finding.facts.get("field")
    name = f"--{str(flag).lstrip('-').replace('_', '-')}" if flag else None
    return _change(
        "another-value",
        "flag" if name else "action",
        name,
        None,
        "the text lists what is accepted",
        gain="the setting is accepted",
        applicability="choose",
    )


def another_port(context: Context) -> Remedy | None:
    """Listen on another port."""
    if "rendezvous_port" in context.finding.facts:
        return None
    port = _figure(context, "port")
    return _change(
        "another-port",
        "flag",
        "--port",
        port + 1 if port and port < 65535 else None,
        f"port {port} is taken" if port else "the port is taken",
        gain="the server can listen",
        cost="clients have to be told",
        applicability="choose",
    )


def stop_the_holder(context: Context) -> Remedy | None:
    """End the process that has the port."""
    port = _figure(context, "port", "rendezvous_port")
    holder = context.finding.facts.get("holder")
    return _change(
        "stop-the-holder",
        "action",
        None,
        f"ss -ltnp 'sport = :{port}'" if port else None,
        f"{holder} holds it" if holder else "an earlier server that has not gone is the usual holder",
        op="remove",
        gain="the port is free",
        cost="that process stops",
    )


def another_rendezvous_port(context: Context) -> Remedy | None:
    """Let the ranks meet elsewhere."""
    if "rendezvous_port" not in context.finding.facts:
        return None
    return _change(
        "another-rendezvous-port",
        "env",
        "VLLM_PORT",
        None,
        "the ranks meet at a port of their own, not at the one of the API",
        gain="the ranks can meet",
        applicability="choose",
    )


# --- devices ----------------------------------------------------------------------------------


def as_many_as_visible(context: Context) -> Remedy | None:
    """Ask for no more GPUs than there are."""
    gpus = _figure(context, "gpus")
    return _change(
        "as-many-as-visible",
        "flag",
        "--tensor-parallel-size",
        gpus,
        f"{gpus} GPUs are there" if gpus else "no more ranks than nvidia-smi -L lists",
        op="lower",
        gain="every rank gets a GPU",
        cost="each GPU holds more of the weights",
        applicability="as-is" if gpus else "choose",
    )


def other_attention_backend(context: Context) -> Remedy | None:
    """Choose another attention backend, in the way the release has."""
    chosen = context.setting("attention_backend")
    flag = "--attention-backend" if has_flag("--attention-backend", context.release) else "VLLM_ATTENTION_BACKEND"
    forced = chosen is not None or context.finding.facts.get("backend") is not None
    on_chip = context.finding.code == "sm-shared-memory-limit"
    if forced and not on_chip:
        return _change(
            "attention-backend-of-vllm",
            "flag" if flag.startswith("--") else "env",
            flag,
            None,
            "vLLM picks one that can, when none is forced",
            op="remove",
            gain="a backend that works",
        )
    value = "TRITON_ATTN" if not on_chip else "FLASH_ATTN"
    old = context.release is not None and context.release < Release(0, 11, 0)
    return _change(
        "other-attention-backend",
        "flag" if flag.startswith("--") else "env",
        flag,
        None if old else value,
        "another backend uses other kernels",
        gain="the refused kernel is not used",
        cost="speed may differ",
        applicability="choose",
    )


def half_precision(context: Context) -> Remedy | None:
    """Use float16 where bfloat16 does not exist."""
    return _change(
        "half-precision",
        "flag",
        "--dtype",
        "half",
        "GPUs before compute capability 8.0 have float16 only",
        gain="the model runs on this GPU",
        cost="a smaller range of numbers; some models overflow in it",
    )


# --- waiting ----------------------------------------------------------------------------------


def longer_ready_timeout(context: Context) -> Remedy | None:
    """Wait longer for the engine."""
    release = context.release
    if "probe" in context.finding.facts:
        return None
    if context.diagnosis.run.has("frontend-timeout"):
        milliseconds = _figure(context, "milliseconds")
        name, value = "VLLM_RPC_TIMEOUT", (milliseconds or 10_000) * 6
    elif release is None or release >= _READY_TIMEOUT_SINCE:
        name, value = "VLLM_ENGINE_READY_TIMEOUT_S", 1800
    else:
        return None
    return _change(
        "longer-ready-timeout",
        "env",
        name,
        value,
        "slow storage and compilation take longer than the default",
        op="raise",
        gain="the start may take longer",
        cost="a start that hangs is noticed later",
        applicability="choose",
    )


def patient_probe(context: Context) -> Remedy | None:
    """Let Kubernetes wait for the start."""
    if "probe" not in context.finding.facts:
        return None
    return _change(
        "patient-probe",
        "action",
        None,
        None,
        "a startupProbe whose failureThreshold times periodSeconds covers loading and compilation",
        op="raise",
        gain="the container is left alone while it starts",
        cost="a start that hangs is noticed later",
    )


# --- toolchain --------------------------------------------------------------------------------


def newer_ptxas(context: Context) -> Remedy | None:
    """Let Triton use the toolkit's own ptxas."""
    if "arch" not in context.finding.facts:
        return None
    return _change(
        "newer-ptxas",
        "env",
        "TRITON_PTXAS_PATH",
        "/usr/local/cuda/bin/ptxas",
        "the ptxas that Triton brings is older than the GPU; the toolkit's must be new enough",
        gain="Triton's kernels are compiled for this GPU",
        applicability="choose",
    )


def no_flashinfer_sampler(context: Context) -> Remedy | None:
    """Sample without the kernels that have to be compiled."""
    if context.finding.facts.get("caller") != "flashinfer":
        return None
    return _change(
        "no-flashinfer-sampler",
        "env",
        "VLLM_USE_FLASHINFER_SAMPLER",
        0,
        "FlashInfer compiles its sampling kernels at run time",
        gain="no compiler is needed for sampling",
        cost="sampling is a little slower",
        applicability="situational",
    )


def install_tool(context: Context) -> Remedy | None:
    """Install what the compiler needs."""
    facts = context.finding.facts
    header, tool = facts.get("header"), str(facts.get("tool") or "")
    code = next((event.code for event in context.finding.because), "")
    if code == "cuda-compiler-too-old":
        what, value = "a CUDA toolkit that knows this GPU and this source", None
    elif header == "Python.h":
        what, value = "Python's headers, for the version that runs vLLM", "apt-get install python3-dev"
    elif header or tool in ("a C compiler", "gcc", "g++", "cc", "c++"):
        what, value = "a C and C++ compiler with its headers", "apt-get install build-essential"
    elif tool == "ninja":
        what, value = "ninja", "pip install ninja"
    elif tool in ("nvcc", "ptxas"):
        what, value = "the CUDA toolkit in PyTorch's version, or an image of the devel kind", None
    elif code == "library-not-linked":
        what, value = "a link named libcuda.so to the driver's libcuda.so.1, in a directory of the linker", None
    else:
        what, value = "what the compiler's own words above name", None
    return _change(
        "install-toolchain",
        "command" if value else "action",
        None,
        value,
        what,
        op="add",
        gain="the kernel can be compiled",
        applicability="as-is" if value else "choose",
    )


def without_the_cache(context: Context) -> Remedy | None:
    """Remove the cache once, to see the real error."""
    where = context.finding.facts.get("cache_dir") or "~/.cache/vllm/torch_compile_cache"
    return _change(
        "without-the-cache",
        "command",
        None,
        f"rm -rf {where}",
        "when the cache was damaged the start works; otherwise the real error shows",
        op="remove",
        gain="a clean compilation",
        cost="the next start compiles anew",
        applicability="choose",
    )


def trust_remote_code(context: Context) -> Remedy | None:
    """Allow the model's own code."""
    return _change(
        "trust-remote-code",
        "flag",
        "--trust-remote-code",
        None,
        "the model brings Python code; read it first",
        op="add",
        gain="the model loads",
        cost="its code runs with the rights of the server",
    )


def template_that_exists(context: Context) -> Remedy | None:
    """Name a template that is there, or use the model's own."""
    path = context.finding.facts.get("path")
    return _change(
        "template-that-exists",
        "flag",
        "--chat-template",
        None,
        f"{path} is not there; the wheel does not bring the examples" if path else "the model brings none",
        gain="chat requests can be answered",
        applicability="choose",
    )


_caches_on = fixed(
    "caches-on", "env", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", None,
    "with torch 2.7 vLLM cannot compile while the caches are switched off", op="remove", gain="artifacts are found",
    applicability="situational",
)  # fmt: skip
_newer_vllm = fixed(
    "newer-vllm", "command", None, "pip install --upgrade vllm",
    "models and GPUs are added with each release", op="raise", gain="support for newer models and devices",
    cost="flags and defaults may have changed", applicability="choose",
)  # fmt: skip
_newer_transformers = fixed(
    "newer-transformers", "command", "--upgrade", "pip install --upgrade transformers",
    "the installed release does not know this model", op="raise", gain="the model's configuration can be read",
    cost="stay within the range of the vLLM release, or upgrade both",
)  # fmt: skip
_older_transformers = fixed(
    "older-transformers", "command", None, "pip install 'transformers<5'",
    "this vLLM was made before transformers 5", op="lower", gain="the names that vLLM uses are there",
    cost="models that only transformers 5 knows do not load",
)  # fmt: skip
_fresh_environment = fixed(
    "fresh-environment", "action", None, None,
    "vLLM and torch from one release, in an empty environment; rebuild extensions made beside another torch",
    gain="libraries that belong together", cost="an installation",
)  # fmt: skip
_spawn = fixed(
    "spawn-workers", "env", "VLLM_WORKER_MULTIPROC_METHOD", "spawn",
    "a process started anew has no CUDA context of its parent", gain="the workers can use CUDA",
    cost="the script needs an if __name__ == '__main__' guard",
)  # fmt: skip
_nccl_debug = fixed(
    "nccl-debug", "env", "NCCL_DEBUG", "INFO",
    "the first WARN that NCCL prints is the reason", op="add", gain="the reason in NCCL's own words",
    cost="more output",
)  # fmt: skip
_no_custom_allreduce = fixed(
    "no-custom-all-reduce", "flag", "--disable-custom-all-reduce", None,
    "NCCL does the same without sharing buffers by itself", op="add", gain="the failing code is not used",
    cost="small all-reduces are slower",
)  # fmt: skip
_exact_traceback = fixed(
    "exact-traceback", "env", "CUDA_LAUNCH_BLOCKING", "1",
    "the traceback then names the kernel; a setting for one run", op="add", gain="where it really happened",
    cost="very slow", applicability="choose",
)  # fmt: skip
_reset_nvidia = fixed(
    "reset-gpu", "action", None, "nvidia-smi --gpu-reset",
    "the device does not recover by itself; after a second time have it repaired", gain="a GPU that answers",
    cost="everything on that GPU stops; a fallen card needs a power cycle",
)  # fmt: skip
_reset_amd = fixed(
    "reset-gpu", "action", None, "rocm-smi --gpureset -d 0",
    "where the driver's own reset did not bring it back; after a second time have it repaired",
    gain="a GPU that answers", cost="everything on that GPU stops",
)  # fmt: skip


def _reset_gpu(context: Context) -> Remedy | None:
    """Reset the GPU with its maker's tool."""
    run = context.diagnosis.run
    if run.has("xpu-error"):
        return None
    return _reset_amd(context) if run.has("amdgpu-reset", "amdgpu-page-fault") else _reset_nvidia(context)


_host_libcuda = fixed(
    "libcuda-of-the-host", "env", "LD_LIBRARY_PATH", "/usr/local/nvidia/lib64",
    "the driver's own libcuda must come before the image's compat directory", gain="library and kernel module agree",
    applicability="choose",
)  # fmt: skip
_fitting_driver = fixed(
    "fitting-driver", "action", None, None,
    "update the driver and reboot, or take an image for the CUDA that nvidia-smi names", op="raise",
    gain="driver and libraries agree", cost="an update of the host",
)  # fmt: skip
_fabric_manager = fixed(
    "start-fabric-manager", "command", None, "systemctl enable --now nvidia-fabricmanager",
    "its version must be exactly the driver's", op="add", gain="the NVSwitch fabric comes up",
    cost="jobs on the machine have to be started again",
)  # fmt: skip
_binaries_for_gpu = fixed(
    "binaries-for-this-gpu", "action", None, None,
    "newer wheels or an image for a newer CUDA for new GPUs; for old ones build with TORCH_CUDA_ARCH_LIST",
    gain="kernels for this architecture", cost="an installation or a build",
)  # fmt: skip
_give_gpus = fixed(
    "give-the-container-gpus", "command", "--gpus", "all",
    "a container sees only the GPUs it is given; Kubernetes needs the device plug-in and a limit", op="add",
    gain="the process sees the GPUs", applicability="choose",
)  # fmt: skip
_other_quantization = fixed(
    "other-quantized-weights", "action", None, None,
    "the same model quantized in a way this device has kernels for: AWQ or GPTQ from 7.5 on, FP8 from 8.9 on",
    gain="weights that this device can use", cost="another download; answers differ a little", applicability="choose",
)  # fmt: skip
_reach_rank_zero = fixed(
    "name-the-interface", "env", "VLLM_HOST_IP", None,
    "each node must name an address that the others reach; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME choose the"
    " interface", gain="the ranks find each other", applicability="choose",
)  # fmt: skip
_look_at_workers = fixed(
    "look-at-the-workers", "command", None, "py-spy dump --pid PID",
    "where each worker stands; one differs from the others", gain="what the hung worker waits for",
    applicability="choose",
)  # fmt: skip
_more_nodes = fixed(
    "join-the-nodes", "command", None, "ray status",
    "nodes that joined under another address do not count; jobs that are left over hold GPUs", gain="GPUs to give",
    applicability="choose",
)  # fmt: skip
_without_ray = fixed(
    "without-ray", "flag", "--distributed-executor-backend", "mp",
    "on one machine Ray is not needed", gain="no placement group", cost="one machine only",
    applicability="situational",
)  # fmt: skip
_worker_log = fixed(
    "log-of-the-dead-worker", "command", None, "ls -t /tmp/ray/session_latest/logs/worker-*.err",
    "the dead worker's own output has the reason", gain="the reason", applicability="as-is",
)  # fmt: skip
_token = fixed(
    "hub-token", "env", "HF_TOKEN", None,
    "accept the licence on the model's page with the same account", gain="the hub knows who asks",
    applicability="choose",
)  # fmt: skip
_right_path = fixed(
    "right-name-or-path", "action", None, None,
    "the path as the container sees it, or the name as the hub writes it", gain="the model is found",
    applicability="choose",
)  # fmt: skip
_download = fixed(
    "fetch-beforehand", "command", None, "hf download MODEL",
    "with a way to the hub, into the cache that the server uses", op="add", gain="the files are in the cache",
    applicability="situational",
)  # fmt: skip
_fetch_again = fixed(
    "fetch-again", "command", None, "hf download MODEL --force-download",
    "compare the sizes with the hub; git-lfs pointers are files of some hundred bytes", gain="whole files",
    cost="a download",
)  # fmt: skip
_fitting_checkpoint = fixed(
    "fitting-checkpoint", "action", None, None,
    "a checkpoint saved for this class, merged if it is an adapter, or the vLLM release it was made for",
    gain="names and shapes agree", applicability="choose",
)  # fmt: skip
_transformers_backend = fixed(
    "transformers-implementation", "flag", "--model-impl", "transformers",
    "vLLM can run many models through transformers' own code", gain="an implementation", cost="slower",
    applicability="situational",
)  # fmt: skip
_build_for_platform = fixed(
    "build-for-the-platform", "action", None, None,
    "the wheel or image for this platform, or a quantization that it has kernels for", gain="a kernel that is there",
    applicability="choose",
)  # fmt: skip
_build_for_cpu = fixed(
    "build-for-the-cpu", "action", None, None,
    "build without AVX-512, or give the virtual machine the CPU model of its host", gain="instructions that exist",
    cost="slower", applicability="choose",
)  # fmt: skip


def install_package(context: Context) -> Remedy | None:
    """Install the package that is asked for."""
    name = context.finding.facts.get("package")
    wanted = str(context.finding.facts.get("range") or "")
    return _change(
        "install-package",
        "command",
        None,
        f"pip install '{name}{wanted}'" if name else None,
        "into the environment that runs vLLM, which need not be the shell's",
        op="add",
        gain="the package is there",
        applicability="choose",
    )


def settings_that_agree(context: Context) -> Remedy | None:
    """Take one of two settings back."""
    if context.finding.facts.get("flag") or context.finding.facts.get("field"):
        return None
    return _change(
        "settings-that-agree", "action", None, None, "the text names the settings that contradict each other",
        op="remove", gain="the configuration is accepted", applicability="choose",
    )  # fmt: skip


def named_field(context: Context) -> Remedy | None:
    """Offer another value only where a field is named."""
    facts = context.finding.facts
    return a_value_it_can_take(context) if facts.get("flag") or facts.get("field") else None


PLAN: dict[str, tuple[Lever, ...]] = {
    "gpu-fault": (_reset_gpu,),
    "cuda-illegal-access": (_exact_traceback, _newer_vllm),
    "sm-shared-memory-limit": (other_attention_backend, _newer_vllm),
    "shm-broadcast-stall": (_look_at_workers,),
    "max-model-len-over-limit": (length_of_the_model,),
    "max-batched-tokens-too-small": (
        more_batched_tokens,
        chunked_prefill,
        shorter_than_the_batch,
        fewer_sequences_than_tokens,
    ),
    "unknown-flag": (without_the_flag,),
    "invalid-config": (named_field, settings_that_agree),
    "lora-rank-too-large": (larger_lora_rank,),
    "tp-indivisible": (layers_that_divide, size_that_divides, expert_parallel),
    "dtype-unsupported-by-gpu": (half_precision,),
    "quantization-unsupported": (_other_quantization,),
    "attention-backend-invalid": (other_attention_backend,),
    "no-kernel-image": (_binaries_for_gpu,),
    "cuda-driver-mismatch": (_fitting_driver, _host_libcuda),
    "fabric-manager-down": (_fabric_manager,),
    "gpu-not-visible": (_give_gpus,),
    "invalid-device-ordinal": (as_many_as_visible, _give_gpus),
    "cuda-reinit-after-fork": (_spawn,),
    "nccl-init-failed": (_nccl_debug,),
    "custom-allreduce-failed": (_no_custom_allreduce,),
    "rendezvous-timeout": (_reach_rank_zero,),
    "startup-timeout": (longer_ready_timeout, patient_probe),
    "ray-insufficient-gpus": (_more_nodes, as_many_as_visible, _without_ray),
    "ray-worker-died": (_worker_log,),
    "hub-unauthorized": (_token,),
    "model-not-found": (_right_path, _download),
    "checkpoint-corrupt": (_fetch_again,),
    "checkpoint-mismatch": (_fitting_checkpoint,),
    "trust-remote-code-required": (trust_remote_code,),
    "chat-template-missing": (template_that_exists,),
    "transformers-too-old": (_newer_transformers,),
    "transformers-too-new": (_older_transformers, _newer_vllm),
    "unsupported-architecture": (_newer_vllm, _transformers_backend),
    "extension-abi-mismatch": (_fresh_environment,),
    "kernel-op-missing": (_build_for_platform,),
    "build-toolchain-missing": (install_tool, newer_ptxas, no_flashinfer_sampler),
    "compile-cache-corrupt": (without_the_cache, _caches_on),
    "package-metadata-missing": (install_package,),
    "cpu-instruction-missing": (_build_for_cpu,),
    "port-in-use": (stop_the_holder, another_port, another_rendezvous_port),
}


def _doubt(flag: str, op: Op, why: str) -> Callable[[Context], WontHelp | None]:
    def doubt(context: Context) -> WontHelp | None:
        return WontHelp(flag, op, why)

    return doubt


_no_share = _doubt("--gpu-memory-utilization", "lower", "memory was not short")
_no_shm = _doubt("--shm-size", "raise", "the text is about on-chip memory or a queue, not about the size of /dev/shm")

WONT_HELP: dict[str, tuple[Doubt, ...]] = {
    "cuda-illegal-access": (_no_share,),
    "gpu-fault": (_no_share,),
    "sm-shared-memory-limit": (_no_share, _no_shm),
    "shm-broadcast-stall": (_no_shm,),
    "max-model-len-over-limit": (
        _doubt(
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "set", "it silences the check; positions beyond the limit are nonsense"
        ),
    ),
    "nccl-init-failed": (_no_share,),
    "ray-worker-died": (_no_share,),
}
