"""Kernels have to be compiled at run time, and the compiler or its cache fails.

`build-toolchain-missing`: Triton needs a C compiler and Python's headers, FlashInfer and
DeepGEMM need nvcc and ninja, and ptxas must know the GPU. The first words of the compiler
say which: `Python.h` (python3-dev), `stddef.h` (the compiler's own files), `cannot find
-lcuda` (a link to libcuda.so), `Value 'sm_..' is not defined` and `Unknown option` (a CUDA
toolkit older than the GPU or the source). The official images bring all of them; the
`runtime` images of CUDA have no nvcc. `No valid triton configs` and `returned non-zero exit
status` follow from it.

`compile-cache-corrupt`: vLLM advises to remove `~/.cache/vllm/torch_compile_cache` after any
failure of the compiler. Remove it once, and the real error shows; when the same text comes
back the cache was not the reason. With TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 torch 2.7 fails
in this way every time.
"""

from vllm_diag.causes import Case, Cause, Finding, Verdict
from vllm_diag.causes._stated import ECHO, EXPLAINS, fact, gathered, loud

_SPECIFIC = ("compiler-missing", "header-missing", "library-not-linked", "cuda-compiler-too-old")


def _toolchain(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    named = run.coded(*_SPECIFIC)
    named = [e for e in named if e.at.level in (None, "ERROR", "CRITICAL")]
    failed = loud(run.coded("compiler-failed"))
    if not named and not failed:
        return None
    facts = gathered([*named, *failed])
    option = fact(named[0], "option") if named else None
    facts = {k: v for k, v in facts.items() if k not in ("arguments", "path", "errno")}
    if named and "[Errno" in named[0].at.evidence.text:
        facts["errno"] = fact(named[0], "errno")
    facts["exit_status"] = gathered(failed).get("exit_status")
    if run.has("compiler-missing") and "tool" not in facts:
        text = run.coded("compiler-missing")[0].at.evidence.text
        facts["tool"] = (
            "a C compiler" if "C compiler" in text else "nvcc" if "nvcc" in text or "CUDA_HOME" in text else None
        )
    if "FlashInfer" in str([e.at.evidence.text for e in [*named, *failed]]) or _in_flashinfer([*named, *failed]):
        facts["caller"] = "flashinfer"
    first = named[0].code if named else "compiler-failed"
    summary = _SUMMARY[first]
    if first == "compiler-missing" and facts.get("tool"):
        summary = "To compile a kernel {tool} is needed, and it is not installed."
    elif first == "cuda-compiler-too-old" and facts.get("arch"):
        summary = "The CUDA compiler does not know the architecture {arch}: it is older than the GPU."
    elif first == "cuda-compiler-too-old" and option:
        summary = "nvcc does not know {option}: it is older than the GPU or the source."
    verdict: Verdict = "confirmed" if named else "likely"
    return cause.finding(*named[:3], *failed[:2], verdict=verdict, facts=facts, summary=summary)


def _in_flashinfer(events: list) -> bool:  # type: ignore[type-arg]
    """Whether FlashInfer was compiling, by paths and frames."""
    return any(
        "flashinfer" in event.at.evidence.text or any(f.startswith(("cpp_ext.py:run_ninja", "sampling.py:", "jit.py:"))
                                                      for f in event.at.frames)
        for event in events
    )  # fmt: skip


_SUMMARY = {
    "compiler-missing": "A compiler that is needed at run time is not installed.",
    "header-missing": "A kernel could not be compiled: {header} is not installed.",
    "library-not-linked": "A kernel could not be linked: the linker does not find a library.",
    "cuda-compiler-too-old": "The CUDA compiler is older than the GPU, the source or the C++ compiler.",
    "compiler-failed": "A compiler ran and failed; its own words stand above.",
}


def _cache(case: Case, cause: Cause) -> Finding | None:
    events = loud(case.run.coded("compile-artifact-suspected"))
    if not events:
        return None
    facts = {"cache_dir": gathered(events).get("cache_dir")}
    return cause.finding(
        *events[:3],
        verdict="likely",
        facts=facts,
        missing=["the error of a start with an empty cache, and TORCHINDUCTOR_FORCE_DISABLE_CACHES"],
    )


CAUSES = (
    Cause(
        code="build-toolchain-missing",
        term="none",
        title="The compiler for kernels is missing or too old",
        summary="A kernel could not be compiled.",
        judge=_toolchain,
        explains=EXPLAINS,
        arises=(
            "The first use of a kernel compiles it: Triton builds a small launcher with the system's C "
            "compiler, FlashInfer whole kernels with nvcc. A wheel in a slim image, a CUDA image without "
            "the compiler or a bare machine with nothing but a virtual environment lacks these programs."
        ),
        verify=(
            "`gcc --version`, and `nvcc --version` and `ninja --version` where they are asked for, answer "
            "in the environment of the server, and the start passes compilation and graph capture."
        ),
        useless=(
            "Reinstalling vLLM or clearing caches brings no compiler, for the wheel does not hold one. "
            "`--enforce-eager` leaves torch.compile out, but not the kernels that Triton and FlashInfer "
            "compile."
        ),
    ),
    Cause(
        code="compile-cache-corrupt",
        term="none",
        title="The compile cache may be damaged",
        summary="Compiling the model failed; vLLM suspects a damaged piece in its cache.",
        judge=_cache,
        explains=ECHO,
        arises=(
            "torch.compile keeps its artifacts under the cache root, and the next start loads them. "
            "Artifacts of another torch or Triton, a write that was cut off, and one directory shared by "
            "several starts on network storage do not load."
        ),
        verify=("A start with an empty cache comes up, and the start after it loads from the cache without this text."),
        useless=(
            "Removing the cache before every start costs a compilation each time and changes nothing "
            "where the compiler itself fails. Reinstalling vLLM leaves the cache in the home directory as "
            "it is."
        ),
    ),
)
