"""PyTorch's device and host allocators.

Forms read from the format strings of libc10_cuda in torch 1.13.1 to 2.14.1.
"""

from __future__ import annotations

import re

from vllm_diag.event_types import HostAllocationFailed, ProcessUse, TorchOom
from vllm_diag.messages import Message
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
        code="device-out-of-memory",
        event=TorchOom,
        emitter="CUDA, HIP, cuBLAS or NCCL, below PyTorch's allocator",
        anywhere=True,
        fatal=True,
        reads={"api": _api, "code": count},
        wordings=(
            "{api}⟦ driver⟧ error: out of memory",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
            "Cuda failure⟦ {code}⟧ 'out of memory'",
        ),
        samples=(
            "CUDA error: out of memory",
            "CUDA driver error: out of memory",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "Cuda failure 2 'out of memory'",
        ),
        means="An allocation below PyTorch's allocator failed; no figures, and it may be pinned host memory.",
    ),
    Message(
        code="cpu-allocator-failed",
        event=HostAllocationFailed,
        emitter="PyTorch CPU allocator",
        anywhere=True,
        fatal=True,
        reads={"tried": raw_bytes},
        wordings=(
            "DefaultCPUAllocator: ⟨can't allocate memory|not enough memory⟩: you tried to allocate {tried} bytes",
        ),
        samples=(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
            " allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)",
        ),
        means="Host memory was refused.",
    ),
    Message(
        code="pinned-memory-failed",
        emitter="CUDA runtime",
        fatal=True,
        anywhere=True,
        reads={"call": words},
        wordings=("⟨cudaHostAlloc|cudaMallocHost|cudaHostRegister⟩ failed",),
        samples=("cudaHostAlloc failed with error code 2",),
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
