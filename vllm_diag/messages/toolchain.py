"""What compilers, linkers and Python say about an installation that lacks something."""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages._readers import path, phrases, python_name, quoted
from vllm_diag.quantities import Reader, count, words

_tool = phrases("tool", "nvcc", "ninja", "gcc", "g++", "cc", "c++", "clang", "clang++", "ptxas", "hipcc", "cl")
_header = Reader("header", r"[\w./+-]{1,120}\.(?:hpp|h|cuh|inc)|cstddef|cstdint|type_traits|limits|string", str,
                 ("Python.h", "stddef.h"))  # fmt: skip
_arch = Reader("arch", r"(?:sm|compute|gfx)_?\w{2,8}", str, ("sm_121a", "compute_120"))
_version = Reader("version", r"\d+(?:\.\d+){0,4}(?:\.?(?:dev|rc|post|a|b)\d+){0,2}", str, ("4.57.1", "5.0.0"))

MESSAGES = (
    Message(
        code="compiler-missing",
        emitter="Triton, Inductor, FlashInfer, DeepGEMM, torch",
        anywhere=True,
        fatal=True,
        reads={"tool": _tool, "path": path, "errno": count, "what": words, "number": count},
        wordings=(
            "Failed to find C compiler. Please⟦ specify via CC environment variable⟧",
            "[Errno {errno}] No such file or directory: '⟦{path}/⟧{tool}'",
            "Could not find nvcc and default cuda_home='{path}'",
            "CUDA_HOME environment variable is not set",
            "Ninja is required to load C++ extensions",
            "No working C++ compiler found in",
            "⟦{path}/⟧nvcc: not found",
            "nvcc: command not found",
        ),
        samples=(
            "Failed to find C compiler. Please specify via CC environment variable.",
            "[Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
            "[Errno 2] No such file or directory: 'ninja'",
            "Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            "CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "Ninja is required to load C++ extensions (pip install ninja to get it)",
            "No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
            "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
            "sh: line 1: nvcc: command not found",
        ),
        means="A kernel has to be compiled at run time, and the compiler is not there.",
    ),
    Message(
        code="header-missing",
        emitter="C and C++ compilers",
        anywhere=True,
        fatal=True,
        reads={"header": _header},
        wordings=("fatal error: {header}: No such file or directory",),
        samples=("/tmp/tmpab12/main.c:5:10: fatal error: Python.h: No such file or directory",),
        means="A header is not installed: Python.h is the Python development package, stddef.h the compiler's own.",
    ),
    Message(
        code="library-not-linked",
        emitter="linkers, Triton",
        anywhere=True,
        fatal=True,
        reads={"library": Reader("library", r"\w{2,30}?(?=:|$|collect2|/usr)", str, ("cuda", "cudart"))},
        wordings=("cannot find -l{library}", "libcuda.so cannot found!"),
        samples=("/usr/bin/ld: cannot find -lcuda: No such file or directory", "libcuda.so cannot found!"),
        means="The linker does not find a library.",
    ),
    Message(
        code="cuda-compiler-too-old",
        emitter="nvcc, ptxas, DeepGEMM, FlashInfer",
        anywhere=True,
        fatal=True,
        reads={
            "arch": _arch,
            "option": quoted,
            "required": Reader("required", r"\d{1,2}\.\d", str, ("12.9",)),
            "architecture": Reader("architecture", r"\d{1,3}\.x", str, ("12.x",)),
            "gcc": count,
        },
        wordings=(
            "Value '{arch}' is not defined for option 'gpu-name'",
            "nvcc fatal : ⟨Unknown option|Unsupported gpu architecture⟩ '{option}'",
            "NVCC version should be >=",
            "SM {architecture} requires CUDA >= {required}",
            "unsupported GNU version! gcc versions later than {gcc} are not supported",
            "ptxas fatal : Unsupported .version",
        ),
        samples=(
            "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
            "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
            "NVCC version should be >= 12.3",
            "SM 12.x requires CUDA >= 12.9",
            "#error -- unsupported GNU version! gcc versions later than 12 are not supported!",
            "ptxas fatal   : Unsupported .version 8.7; current version is '8.4'",
        ),
        means="The CUDA compiler is older than the GPU, the source or the compiler beside it.",
    ),
    Message(
        code="compiler-failed",
        emitter="Python subprocess, Inductor, ninja",
        anywhere=True,
        fatal=True,
        reads={
            "compiler": Reader(
                "compiler",
                r"[^'\[\],]{0,200}?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|nvcc|ninja|hipcc|ptxas)",
                str,
                ("/usr/bin/gcc", "ninja"),
            ),
            "arguments": Reader("arguments", r".{0,6000}?", str, ("'-O3', '-lcuda'",)),
            "exit_status": count,
            "name": quoted,
        },
        wordings=(
            "Command '['{compiler}',{arguments}]' returned non-zero exit status {exit_status}",
            "Ninja build failed. Ninja output:",
            "Error building extension '{name}'",
            "C++ compile error Command:",
            "PTXAS error: ",
            "Error compiling objects for extension",
            "nvrtc compilation failed: ",
            "NVCC compilation failed",
        ),
        samples=(
            "Command '['/usr/bin/gcc', '/tmp/tmpab12/main.c', '-O3', '-lcuda']' returned non-zero exit status 1.",
            "Ninja build failed. Ninja output:",
            "Error building extension 'batch_prefill_with_kv_cache'",
            "C++ compile error\n\nCommand:\ng++ /tmp/x.cpp",
            "PTXAS error: `ptxas` failed with error code 255",
            "Error compiling objects for extension",
            "nvrtc compilation failed: ",
            "NVCC compilation failed",
        ),
        means="A compiler ran and failed; its own words stand above.",
    ),
    Message(
        code="compile-artifact-suspected",
        emitter="vLLM, DeepGEMM",
        seen="0.9.1 - 0.33.0",
        anywhere=True,
        fatal=True,
        reads={
            "why": words,
            "errno": count,
            "cached": Reader(
                "cached",
                r"[^']{0,200}(?:torch_compile_cache|torchinductor_|/\.triton/cache)[^']{0,200}",
                str,
                ("/root/.cache/vllm/torch_compile_cache/4be1/rank_0_0/x.py",),
            ),
            "cache_dir": Reader(
                "cache_dir", r"[~/][\w./-]{1,200}?(?=andtry|,|$)", str, ("~/.cache/vllm/torch_compile_cache",)
            ),
        },
        wordings=(
            "vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed,"
            " leading to a corrupted compilation artifact.¦ We recommend trying to remove {cache_dir} and try again",
            "Corrupted JIT cache directory ({why}): {cache_dir}",
            "[Errno {errno}] {why}: '{cached}'",
        ),
        samples=(
            "vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed,"
            " leading to a corrupted compilation artifact. We recommend trying to remove"
            " ~/.cache/vllm/torch_compile_cache and try again to see the real issue.",
            "Corrupted JIT cache directory (missing kernel.cubin): /root/.deep_gemm/cache/kernel.x, please remove it",
            "[Errno 2] No such file or directory: '/root/.cache/vllm/torch_compile_cache/4be1/rank_0_0/x.py'",
        ),
        means="A compiled piece in the cache may be damaged; vLLM guesses so for any failure of the compiler.",
    ),
    Message(
        code="binary-mismatch",
        emitter="dynamic linker, NumPy, torchvision",
        anywhere=True,
        fatal=True,
        reads={
            "symbol": Reader("symbol", r"[\w@.]{2,160}", str, ("_ZN3c104cuda9SetDeviceEi",)),
            "version": Reader("version", r"(?:GLIBCXX|GLIBC|CXXABI)_[\d.]{1,12}", str, ("GLIBCXX_3.4.32",)),
            "library": Reader(
                "library",
                r"lib(?!cuda\.so)[\w+-]{1,40}\.so(?:\.\d{1,3}){0,3}",
                str,
                ("libcudart.so.13", "libnccl.so.2"),
            ),
        },
        wordings=(
            "undefined symbol: {symbol}",
            "version `{version}' not found",
            "{library}: cannot open shared object file",
            "A module that was compiled using NumPy 1.x cannot be run in",
            "numpy.dtype size changed, may indicate binary incompatibility",
            "operator torchvision::nms does not exist",
        ),
        samples=(
            "/opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
            "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by _C.so)",
            "libcudart.so.13: cannot open shared object file: No such file or directory",
            "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.0 as it may crash.",
            "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header",
            "operator torchvision::nms does not exist",
        ),
        means="A compiled library was made for another release of what it is loaded with.",
    ),
    Message(
        code="op-missing",
        emitter="PyTorch",
        anywhere=True,
        fatal=True,
        reads={
            "namespace": Reader("namespace", r"\w{1,40}", str, ("_C", "_moe_C")),
            "op": Reader("op", r"[\w:.]{1,120}", str, ("machete_prepack_B",)),
            "backend": Reader("backend", r"\w{2,24}", str, ("CUDA", "CPU")),
        },
        wordings=(
            "'_OpNamespace' '{namespace}' object has no attribute '{op}'",
            "Could not run '{op}' with arguments from the '{backend}' backend",
            "No module named 'vllm.{namespace}'",
            "module 'vllm.{namespace}' has no attribute '{op}'",
            "No operator found for `{op}` with inputs",
        ),
        samples=(
            "'_OpNamespace' '_moe_C' object has no attribute 'topk_softmax'",
            "Could not run '_C::rms_norm' with arguments from the 'CUDA' backend.",
            "No module named 'vllm._C'",
            "module 'vllm._custom_ops' has no attribute 'machete_mm'",
            "No operator found for `memory_efficient_attention_forward` with inputs:",
        ),
        means="A compiled kernel is not part of this build.",
    ),
    Message(
        code="package-missing",
        emitter="importlib, pkg_resources",
        anywhere=True,
        fatal=True,
        reads={"package": Reader("package", r"[\w.-]{1,80}?(?=$|['`]|The)", str, ("compressed-tensors",)), "by": words},
        wordings=(
            "No package metadata was found for ⟦The '⟧{package}",
            "The '{package}' distribution was not found and is required by",
        ),
        samples=(
            "No package metadata was found for compressed-tensors",
            "The 'tokenizers' distribution was not found and is required by this application",
        ),
        means="Python finds no installed distribution of this name.",
    ),
    Message(
        code="module-missing",
        emitter="Python",
        reads={"module": Reader("module", r"(?!vllm\._)[\w.]{1,120}", str, ("flash_attn", "triton.language"))},
        wordings=("ModuleNotFoundError: No module named '{module}'",),
        samples=("ModuleNotFoundError: No module named 'flash_attn.ops'",),
        means="A Python module is not installed.",
    ),
    Message(
        code="import-name-missing",
        emitter="Python",
        fatal=True,
        reads={
            "name": python_name,
            "module": Reader("module", r"[\w.]{1,120}", str, ("transformers.utils",)),
            "where": words,
        },
        wordings=("⟨ImportError: |⟩cannot import name '{name}' from '{module}'",),
        samples=(
            "cannot import name 'AutoModelForVision2Seq' from 'transformers' (/opt/venv/lib/transformers/__init__.py)",
        ),
        means="An installed package lacks a name that is imported from it: one of the two is too old or too new.",
    ),
    Message(
        code="package-version-refused",
        emitter="transformers",
        fatal=True,
        reads={
            "package": Reader("package", r"[A-Za-z][\w-]{1,60}?(?=[<>=!~])", str, ("transformers", "tokenizers")),
            "range": Reader("range", r"[<>=!~][\d.,<>=!~]{1,60}", str, (">=4.45,<5.0",)),
            "name": Reader("name", r"[A-Za-z][\w-]{1,60}", str, ("transformers",)),
            "installed": _version,
        },
        wordings=(
            "{package}{range} is required for a normal functioning of this module, but found {name}=={installed}",
        ),
        samples=(
            "tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.20.3.",
        ),
        means="An installed package is outside the range that another one asks for.",
    ),
    Message(
        code="illegal-instruction",
        emitter="shell, faulthandler",
        fatal=True,
        reads={"script": words, "line": count, "pid": count, "command": words, "name": words},
        wordings=(
            "Illegal instruction⟦ ⟧(core dumped)",
            "Fatal Python error: Illegal instruction",
            "{script}: line {line}: {pid} Illegal instruction",
            "traps: {command}[{pid}] trap invalid opcode",
            "{name} exited with code 132",
        ),
        samples=(
            "Illegal instruction (core dumped)",
            "Fatal Python error: Illegal instruction",
            "entrypoint.sh: line 12:    7 Illegal instruction     (core dumped) ./serve.sh",
            "traps: vllm[4711] trap invalid opcode ip:7f0000000000 sp:7ffc00000000 error:0 in _C.abi3.so",
            "vllm-1 exited with code 132",
        ),
        means="The program uses an instruction that this CPU does not have.",
    ),
)
