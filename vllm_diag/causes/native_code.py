"""Compiled parts do not fit what they are loaded with, are missing, or need another CPU.

`extension-abi-mismatch`: a compiled library was made for another PyTorch, CUDA, NumPy or C++
runtime (`undefined symbol`, `GLIBCXX not found`, `libcudart.so.13: cannot open`). Install
vLLM and torch from the same release, in a fresh environment; rebuild extensions that were
built beside an older torch.

`kernel-op-missing`: the build has no such kernel: another platform (an NVIDIA kernel on
ROCm), a source tree without its compiled part, or a fork. Take the wheel or image for the
platform, or a quantization it has kernels for.

`cpu-instruction-missing`: the program uses instructions that the CPU (or the virtual
machine's CPU model) lacks: AVX-512 or AVX2 in CPU builds. Build for that CPU, or give the
machine the host's CPU model.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import ECHO, fact, gathered, loud
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import Event, ProcessDied


def _counts(case: Case, event: Event) -> bool:
    """A plug-in that is not there is skipped; a module that cannot be imported is not."""
    text, raised = event.at.evidence.text, str(event.at.exception or "")
    if fact(event, "library") is not None:
        return "ImportError" in text or raised.endswith(("ImportError", "OSError")) or "OSError" in text
    if "NumPy" in text or "numpy" in text:
        return case.run.has(*CASCADE) or raised.endswith("Error")
    return True


def _abi(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = [event for event in run.coded("binary-mismatch") if _counts(case, event)]
    # vLLM only warns that its compiled part did not load, and fails where it is first needed.
    if not events or (run.ready and not loud(events)):
        return None
    facts = {k: v for k, v in gathered(events).items() if k in ("symbol", "version", "library")}
    summary = cause.summary
    if "library" in facts:
        summary = "A compiled library needs {library}, which is not installed."
    elif "version" in facts:
        summary = "A compiled library needs {version} of the C++ or C runtime, which this system does not have."
    return cause.finding(*events[:4], facts=facts, summary=summary)


def _op(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    events = run.coded("op-missing")
    if not events or (not loud(events) and (run.ready or not run.has(*CASCADE))):
        return None
    facts = {k: v for k, v in gathered(events).items() if k in ("op", "namespace", "backend")}
    summary = "This build has no kernel called {op}." if "op" in facts else cause.summary
    return cause.finding(*(loud(events) or events)[:4], facts=facts, summary=summary)


def _instruction(case: Case, cause: Cause) -> Finding | None:
    stated = case.run.coded("illegal-instruction")
    died = [event for event in case.run.of(ProcessDied) if event.exit_code == -4]
    if not stated and not died:
        return None
    return cause.finding(
        *stated[:2],
        *died[:2],
        verdict="confirmed" if stated else "likely",
        facts={"exit_code": -4 if died else None},
        missing=["lscpu | grep -i flags"],
    )


CAUSES = (
    Cause(
        code="extension-abi-mismatch",
        term="none",
        title="A compiled library does not fit",
        summary="A compiled library was made for another release of what it is loaded with.",
        judge=_abi,
        explains=("kernel-op-missing", "gpu-not-visible", "unsupported-architecture", "invalid-config", *ECHO),
        arises=(
            "PyTorch's C++ interface differs between releases, and an extension works beside the torch it "
            "was compiled with. A torch upgraded after vLLM, a flash-attn or xformers wheel made "
            "elsewhere, conda's libstdc++ in front of the system's, and NumPy 2 beside packages for 1.x "
            "are the usual ways."
        ),
        verify=(
            "The library named in the text imports by itself with the server's interpreter, `ldd` lists "
            "nothing of it as `not found`, and `pip check` is silent."
        ),
        useless=(
            "A link from another version to the missing name moves the failure to the next symbol. "
            "Upgrading one of the two packages alone mends one pair and can break another."
        ),
    ),
    Cause(
        code="kernel-op-missing",
        term="none",
        title="A compiled kernel is not part of this build",
        summary="The compiled part of vLLM is not there.",
        judge=_op,
        explains=("unsupported-architecture", "invalid-config", *ECHO),
        arises=(
            "Kernels get their names when vLLM's compiled modules are imported; a module that was not "
            "built, or whose import failed with a warning, leaves the names empty. A Python started in "
            "the source directory takes the folder `vllm` there before the installed package."
        ),
        verify=(
            "No warning of the start says that `vllm._C` or another compiled module could not be "
            "imported, and a first request is answered."
        ),
        useless=(
            "The kernel's own project, installed beside vLLM, registers other names. `--enforce-eager` "
            "calls the same kernels."
        ),
    ),
    Cause(
        code="cpu-instruction-missing",
        term="none",
        title="The CPU lacks an instruction",
        summary="The program uses an instruction that this CPU does not have.",
        judge=_instruction,
        explains=("ray-worker-died", *ECHO),
        arises=(
            "A binary compiled for a newer processor meets an opcode that this one does not know, and the "
            "process gets SIGILL. Older or low-power CPUs, and virtual machines with a generic CPU model "
            "such as `qemu64` or `kvm64`, are where it happens."
        ),
        verify=(
            "`lscpu` lists the flags that the build needs (`avx2`, `avx512f`), and the import of vLLM no "
            "longer ends with exit code -4 or 132."
        ),
        useless=(
            "`ATEN_CPU_CAPABILITY` and `ONEDNN_MAX_CPU_ISA` hold back one library each; code that was "
            "compiled for another CPU is not changed by them."
        ),
    ),
)
