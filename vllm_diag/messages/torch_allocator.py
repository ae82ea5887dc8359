"""PyTorch's device and host allocators.

Forms read from the format strings of libc10_cuda in torch 1.13.1 to 2.14.1.
"""

from __future__ import annotations

import re

from vllm_diag.event_types import HostAllocationFailed, ProcessUse, TorchOom
from vllm_diag.messages import Message
from vllm_diag.messages._readers import phrases
from vllm_diag.quantities import Amount, Reader, count, raw_bytes, size, words

# NVML answers 2**64 - 1 bytes for "not available": 17179869184 GiB.
_UNKNOWN = 2**63


def _used(text: str) -> Amount | None:
    amount: Amount = size.read(text)
    return None if amount.bytes >= _UNKNOWN else amount


_CLAUSE = re.compile(rf"Process(\d{{1,10}})has({size.pattern})memoryinuse\.")


def _processes(text: str) -> tuple[ProcessUse, ...]:
    found = []
    for pid, used in _CLAUSE.findall(text):
        amount = _used(used)
        if amount is not None:
            found.append(ProcessUse(int(pid), amount))
    return tuple(found)


_api = Reader("api", r"CUDA|HIP|XPU", str, ("CUDA", "HIP"))
_place = Reader("place", r"[\w./+-]{1,200}?:\d{1,6}", str, ("/workspace/csrc/cumem_allocator.cpp:62",))
_in_bytes = Reader("in_bytes", r"\d{1,24}", lambda text: Amount(int(text)), ("8388608",))
# What a full device is called by Intel's runtime; 20 and 40 can be that or something else.
_level_zero = Reader(
    "status", r"39\(\w{1,80}\)", lambda text: int(text[:2]), ("39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",)
)
_other_status = Reader("number", r"(?!39\()-?\d{1,12}", int, ("20", "40"))
_others = Reader(
    "others",
    rf"(?:Process\d{{1,10}}has(?:{size.pattern})memoryinuse\.){{0,64}}",
    _processes,
    ("Process 3142 has 23.53 GiB memory in use. ",),
)
_own = Reader("this_process", size.pattern, _used, ("22.97GiB",))

# What torch prints from 2.1 on behind the request; "capacty" is 2.1's spelling.
_FIGURES = (
    " ⟨capacity|capacty⟩ of {total} of which {free} is free¦.⟦ {others}⟧⟦ Including non-PyTorch memory, this process"
    " has {this_process} memory in use.⟧⟦ {limit} allowed;⟧¦ Of the allocated memory {allocated} is allocated by"
    " PyTorch,⟦ with {private_pools} allocated in private pools (e.g., CUDA Graphs),⟧ and {unallocated} is reserved by"
    " PyTorch but unallocated"
)

MESSAGES = (
    Message(
        code="torch-out-of-memory",
        event=TorchOom,
        emitter="PyTorch caching allocator",
        seen="torch 1.13 - 2.14",
        anywhere=True,
        fatal=True,
        reads={
            "api": _api,
            "tried": size,
            "gpu": count,
            "total": size,
            "free": size,
            "allocated": size,
            "reserved": size,
            "unallocated": size,
            "private_pools": size,
            "limit": size,
            "others": _others,
            "this_process": _own,
        },
        wordings=(
            # torch up to 2.0
            "{api} out of memory. Tried to allocate {tried} (GPU {gpu}; {total} total capacity; {allocated} already"
            " allocated;¦ {free} free;⟦ {limit} allowed;⟧ {reserved} reserved in total by PyTorch",
            # torch from 2.1
            "{api} out of memory. Tried to allocate {tried}¦. GPU {gpu} has a total" + _FIGURES,
            # the same with its beginning cut off
            "Tried to allocate {tried}. GPU {gpu} has a total" + _FIGURES,
        ),
        samples=(
            "CUDA out of memory. Tried to allocate 150.00 MiB (GPU 0; 14.58 GiB total capacity; 13.94 GiB already"
            " allocated; 17.31 MiB free; 13.94 GiB reserved in total by PyTorch) If reserved memory is >> allocated",
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 108.06"
            " MiB is free. Process 3142 has 23.53 GiB memory in use. Of the allocated memory 22.71 GiB is allocated by"
            " PyTorch, and 45.62 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory",
            "CUDA out of memory. Tried to allocate 1.74 GiB. GPU 1 has a total capacty of 23.57 GiB of which 605.88"
            " MiB is free. Including non-PyTorch memory, this process has 22.97 GiB memory in use. Of the allocated"
            " memory 20.21 GiB is allocated by PyTorch, with 128.00 MiB allocated in private pools (e.g., CUDA"
            " Graphs), and 185.98 MiB is reserved by PyTorch but unallocated.",
            "HIP out of memory. Tried to allocate 192.00 GiB",
            "Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 22.36 GiB of which 120.88 MiB is free.",
        ),
        means="The device allocator refused a request.",
    ),
    Message(
        code="torch-oom-over-fraction",
        event=TorchOom,
        emitter="PyTorch caching allocator",
        seen="torch 2.14",
        anywhere=True,
        fatal=True,
        reads={"tried": size},
        wordings=(
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed"
            " per_process_memory_fraction limit. Requested size: {tried}",
        ),
        samples=(
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed"
            " per_process_memory_fraction limit. Requested size: 2.00 GiB",
        ),
        means="A limit set inside the process was reached; the card need not be full.",
    ),
    Message(
        code="torch-oom-masked",
        event=TorchOom,
        emitter="PyTorch caching allocator, on MIG slices and where NVML refuses",
        anywhere=True,
        fatal=True,
        reads={"path": words, "line": count},
        wordings=('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "{path}CUDACachingAllocator.cpp":{line}',),
        samples=('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1154',),
        means="The allocator refused a request, and failed again while asking NVML who holds the memory.",
    ),
    Message(
        code="torch-oom-async",
        event=TorchOom,
        emitter="PyTorch cudaMallocAsync backend",
        fatal=True,
        anywhere=True,
        reads={"gpu": count, "allocated": size, "tried": size, "total": size, "free": size, "limit": _own},
        wordings=(
            "Allocation on device {gpu} would exceed allowed memory. (out of memory)¦ Currently allocated : {allocated}"
            " Requested : {tried} Device limit : {total} Free (according to CUDA): {free}¦ PyTorch limit (set by"
            " user-supplied memory fraction) : {limit}",
        ),
        samples=(
            "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 21.50 GiB\n"
            "Requested               : 2.00 GiB\nDevice limit            : 23.65 GiB\n"
            "Free (according to CUDA): 108.06 MiB\n"
            "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        ),
        means="The asynchronous device allocator refused a request.",
    ),
    Message(
        code="torch-oom-garbage-size",
        event=TorchOom,
        emitter="PyTorch caching allocator",
        anywhere=True,
        fatal=True,
        reads={"api": _api},
        wordings=("{api} out of memory. Tried to allocate more than 1EB memory",),
        samples=("CUDA out of memory. Tried to allocate more than 1EB memory.",),
        means="A negative or absurd size was asked for: an error of the program, not a full device.",
    ),
    Message(
        code="device-out-of-memory",
        event=TorchOom,
        emitter="CUDA, HIP, Level Zero, cuBLAS, cuDNN, Triton or NCCL, below PyTorch's allocator",
        anywhere=True,
        fatal=True,
        reads={"api": _api, "number": count, "place": _place, "tried": _in_bytes, "status": _level_zero},
        wordings=(
            "{api}⟦ driver⟧ error: out of memory",
            "{api} Error: out of memory at {place}",
            "{api}⟦ ⟨driver|runtime⟩⟧ error ({place}): ⟦{number} (CUDA_ERROR_OUT_OF_MEMORY, ⟧out of memory",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
            "cuDNN error: CUDNN_STATUS_⟨ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED⟩",
            "Cuda failure⟦ {number}⟧ 'out of memory'",
            "Failed to CUDA ⟨malloc|calloc⟩ {tried} bytes",
            "Triton Error [{api}]: ⟦Code: {number}, Messsage: ⟧out of memory",
            "Failed: Cuda error {place} 'out of memory'",
            "level_zero backend failed with error: {status}",
            "Native API failed. Native API returns: {status}",
        ),
        samples=(
            "CUDA error: out of memory",
            "CUDA driver error: out of memory",
            "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
            "CUDA error (/workspace/flash_fwd_launch_template.h:188): out of memory",
            "CUDA driver error (/opt/deep_gemm/jit/kernel_runtime.hpp:52): 2 (CUDA_ERROR_OUT_OF_MEMORY, out of memory)",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "Cuda failure 2 'out of memory'",
            "NCCL WARN Failed to CUDA malloc 8388608 bytes",
            "Triton Error [CUDA]: out of memory",
            "Triton Error [HIP]:  Code: 2, Messsage: out of memory",
            "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'out of memory'",
            "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
            "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        ),
        means="An allocation below PyTorch's allocator failed; mostly no figures, and it may be pinned host memory.",
    ),
    Message(
        code="out-of-memory-bare",
        event=TorchOom,
        emitter="vLLM's CUTLASS kernels, CUDA",
        fatal=True,
        reads={"number": Reader("number", r"2(?!\d)", int, ("2",))},
        wordings=("RuntimeError: out of memory", "Error {number}: out of memory"),
        samples=("RuntimeError: out of memory", "Error 2: out of memory"),
        means="The runtime's bare status text: no figures, and it may be pinned host memory.",
    ),
    Message(
        code="cublas-handle-failed",
        event=TorchOom,
        emitter="cuBLAS, hipBLAS",
        anywhere=True,
        fatal=True,
        wordings=(
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
            "CUDA error: HIPBLAS_STATUS_⟨ALLOC_FAILED|NOT_INITIALIZED⟩",
        ),
        samples=(
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
        ),
        means="A matrix library could not be set up: mostly no device memory was left for it.",
    ),
    Message(
        code="xpu-error",
        emitter="Level Zero",
        anywhere=True,
        fatal=True,
        reads={
            "number": _other_status,
            "error": Reader("error", r"(?:UR|PI|ZE)_[A-Z_]{4,60}", str, ("UR_RESULT_ERROR_DEVICE_LOST",)),
        },
        wordings=(
            "level_zero backend failed with error: {number} ({error})",
            "Native API failed. Native API returns: {number} ({error})",
        ),
        samples=(
            "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            "Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        ),
        means="A call into Intel's runtime failed; on some drivers a full device reads like this as well.",
    ),
    Message(
        code="host-out-of-resources",
        emitter="ROCr, amdgpu",
        anywhere=True,
        reads={"detail": Reader("detail", r".{0,200}?", str, ("",))},
        wordings=(
            "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES",
            "amdgpu: Not enough memory for command submission",
        ),
        samples=(
            "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary"
            " resources.",
            "amdgpu: Not enough memory for command submission",
        ),
        means="A queue or a submission got no memory; met with much of the device free as well.",
    ),
    Message(
        code="math-library-error",
        emitter="cuBLAS, cuDNN, CUTLASS",
        anywhere=True,
        fatal=True,
        reads={
            "status": phrases(
                "status",
                "EXECUTION_FAILED",
                "INTERNAL_ERROR",
                "NOT_SUPPORTED",
                "INVALID_VALUE",
                "ARCH_MISMATCH",
                "MAPPING_ERROR",
                "BAD_PARAM",
                "MISMATCH",
                "VERSION_MISMATCH",
            ),
            "call": Reader("call", r"\w{3,60}", str, ("cublasGemmEx",)),
        },
        wordings=(
            "CUDA error: ⟨CUBLAS|HIPBLAS⟩_STATUS_{status} when calling `{call}",
            "cuDNN error: CUDNN_STATUS_{status}",
        ),
        samples=(
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
            "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        ),
        means="A matrix library refused or failed: an earlier fault, a shape or a type, not a lack of memory.",
    ),
    Message(
        code="cpu-allocator-failed",
        event=HostAllocationFailed,
        emitter="PyTorch CPU allocator, NCCL",
        anywhere=True,
        fatal=True,
        reads={"tried": raw_bytes, "errno": Reader("errno", "12", int, ("12",))},
        wordings=(
            "DefaultCPUAllocator: ⟨can't allocate memory|not enough memory⟩: you tried to allocate {tried} bytes¦. Error"
            " code {errno} (Cannot allocate memory)",
            "Failed to malloc {tried} bytes",
        ),
        samples=(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
            " allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)",
            "DefaultCPUAllocator: not enough memory: you tried to allocate 17179869184 bytes.",
            "gpu-3:4711:4790 [0] include/alloc.h:110 NCCL WARN Failed to malloc 8388608 bytes",
        ),
        means="Host memory was refused.",
    ),
    Message(
        code="pinned-memory-failed",
        emitter="CUDA runtime",
        fatal=True,
        anywhere=True,
        reads={"tried": _in_bytes},
        wordings=(
            "cudaHostAlloc failed",
            "cudaMallocHost failed",
            "cudaHostRegister failed",
            "Failed to CUDA host alloc {tried} bytes",
        ),
        samples=(
            "cudaHostAlloc failed with error code 2",
            "cudaMallocHost failed: out of memory",
            "cudaHostRegister failed with error code 2",
            "NCCL WARN Failed to CUDA host alloc 4194304 bytes",
        ),
        means="Page-locked host memory was refused.",
    ),
    Message(
        code="shm-bus-error-hint",
        emitter="PyTorch DataLoader signal handler",
        fatal=True,
        anywhere=True,
        reads={"pid": count},
        wordings=(
            "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory",
            "DataLoader worker (pid⟦(s)⟧ {pid}) is killed by signal: Bus error",
        ),
        samples=(
            "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            "DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are"
            " out of shared memory.",
        ),
        means="A process was killed writing to shared memory that is full.",
    ),
)
