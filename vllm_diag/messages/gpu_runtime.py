"""What CUDA, HIP, Triton and the drivers' kernel modules say about a device.

Texts of the runtimes as in CUDA 12.8 and 13.0, wrappers as in torch 2.6 to 2.14, Triton 3.2
to 3.9 and NVIDIA drivers 384 to 620. None of these texts says that memory was short: those
stand in `vllm_diag.messages.torch_allocator`.
"""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages._readers import line_rest, path, phrases
from vllm_diag.quantities import MIB, Amount, Reader, count, words

# A kernel went wrong on the device; the context is lost and every later call repeats the text.
FAULTS = (
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "unspecified launch failure",
)
# The device or a link of it is broken or in a state that only a reset ends.
BROKEN = (
    "uncorrectable ECC error encountered",
    "uncorrectable NVLink error detected during the execution",
    "Invalid access of peer GPU memory over nvlink or a hardware error",
    "unknown error",
)
NO_CODE = (
    "no kernel image is available for execution on the device",
    "invalid device function",
    "device kernel image is invalid",
)
DRIVER = (
    "CUDA driver version is insufficient for CUDA runtime version",
    "CUDA driver is a stub library",
    "system has unsupported display driver / cuda driver combination",
    "forward compatibility was attempted on non supported HW",
    "the provided PTX was compiled with an unsupported toolchain.",
    "a PTX JIT compilation failed",
)
FABRIC = ("system not yet initialized",)
NOT_VISIBLE = ("no CUDA-capable device is detected", "CUDA-capable device(s) is/are busy or unavailable")
ORDINAL = ("invalid device ordinal",)
FORKED = ("initialization error",)
TOO_LARGE = ("too many resources requested for launch",)
OTHER = (
    "invalid argument",
    "invalid configuration argument",
    "invalid resource handle",
    "peer access is not supported between these two devices",
    "OS call failed or operation not supported on this OS",
    "operation not permitted",
    "operation not supported",
    "the launch timed out and was terminated",
    "too many blocks in cooperative launch",
    "context is destroyed",
    "peer mapping resources exhausted",
    "the MPS client has been terminated by the server",
    "operation not permitted when stream is capturing",
    "operation failed due to a previous error during capture",
    "a kernel launch error has occurred due to cluster misconfiguration",
    "part or all of the requested memory range is already mapped",
    "MPS client failed to connect to the MPS control daemon or the MPS server",
    "the remote procedural call between the MPS server and the MPS client failed",
    "MPS server is not ready to accept new MPS client requests",
    "the hardware resources required to create MPS client have been exhausted",
    "the hardware resources required to device connections have been exhausted",
)
# What a process prints that ends while another of its threads still works.
EXITING = ("driver shutting down",)

cuda_text = phrases(
    "error",
    *FAULTS, *BROKEN, *NO_CODE, *DRIVER, *FABRIC, *NOT_VISIBLE, *ORDINAL, *FORKED, *TOO_LARGE, *OTHER, *EXITING,
)  # fmt: skip
# The runtime's bare text, as CUTLASS kernels raise it; the shorter ones could be anybody's.
_fault = phrases("fault", *(text for text in (*FAULTS, *NO_CODE) if len(text) > 24))
_api = Reader("api", r"CUDA|HIP|XPU", str, ("CUDA", "HIP"))
_bus = Reader(
    "bus", r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?(?:\.\d)?", str, ("0000:41:00", "0000:41:00.0")
)
_comm = Reader("comm", r"[^,]{1,64}?", str, ("VLLM::EngineCor", "ray::RayWorkerW"))
_mib = Reader("mib", r"\d{1,9}", lambda text: Amount(int(text) * MIB, MIB // 2), ("22104", "24576"))
_float = Reader("capability", r"\d{1,2}\.\d", float, ("7.5", "8.0"))

MESSAGES = (
    Message(
        code="cuda-error",
        emitter="CUDA and HIP runtimes, through torch, NCCL, Triton or kernels",
        seen="CUDA 10 - 13",
        anywhere=True,
        fatal=True,
        reads={
            "api": _api,
            "error": cuda_text,
            "number": count,
            "place": path,
            "name": Reader("name", r"CUDA_ERROR_[A-Z_]{3,60}", str, ("CUDA_ERROR_ILLEGAL_ADDRESS",)),
        },
        wordings=(
            "{api}⟦ driver⟧ error: {error}",
            "CUDA⟦ ⟨driver|runtime⟩⟧ error ({place}): ⟦{number} ({name}, ⟧{error}",
            "CUDA Error: {error} at {place}",
            "Cuda failure⟦ {number}⟧ '{error}'",
            "Triton Error [{api}]: ⟦Code: {number}, Messsage: ⟧{error}",
        ),
        samples=(
            "CUDA error: an illegal memory access was encountered",
            "CUDA driver error: invalid argument",
            "HIP error: invalid device function",
            "CUDA error (/workspace/flash_fwd_launch_template.h:188): invalid argument",
            "CUDA driver error (/opt/deep_gemm/jit/kernel_runtime.hpp:52): 700 (CUDA_ERROR_ILLEGAL_ADDRESS, an illegal"
            " memory access was encountered)",
            "CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:133",
            "Cuda failure 217 'peer access is not supported between these two devices'",
            "Triton Error [CUDA]: device kernel image is invalid",
            "Triton Error [HIP]:  Code: 98, Messsage: invalid device function",
        ),
        means="A call into the GPU's runtime failed; a fault of a kernel is reported late, by whatever call is next.",
    ),
    Message(
        code="cuda-init-error",
        emitter="PyTorch",
        anywhere=True,
        reads={"number": count, "error": cuda_text},
        wordings=(
            "Unexpected error from ⟨cuda|hip⟩GetDeviceCount()¦. Did you run some cuda functions before calling"
            " NumCudaDevices() that might have already set an error? Error {number}: {error}",
        ),
        samples=(
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling"
            " NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver"
            " / cuda driver combination",
        ),
        means="The runtime could not count the devices; number and text tell why.",
    ),
    Message(
        code="cuda-error-number",
        emitter="PyTorch",
        fatal=True,
        reads={"number": count, "error": cuda_text, "fault": _fault},
        wordings=("Error {number}: {error}", "RuntimeError: {fault}"),
        samples=("Error 802: system not yet initialized", "RuntimeError: an illegal memory access was encountered"),
        means="A CUDA error with its number, without the sentence around it.",
    ),
    Message(
        code="architecture-not-built",
        emitter="PyTorch",
        anywhere=True,
        reads={
            "arch": Reader("arch", r"sm_\d{2,3}[a-z]?", str, ("sm_120",)),
            "gpu": Reader("gpu", r"[\w.()/-]{2,80}?", str, ("NVIDIA T4",)),
            "index": count,
            "capability": _float,
        },
        wordings=(
            "with CUDA capability {arch} is not compatible with the current PyTorch installation",
            "Found GPU{index} {gpu} which is of compute capability (CC) {capability}",
        ),
        samples=(
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch"
            " installation.",
            "Found GPU0 Tesla K80 which is of compute capability (CC) 3.7. The following list shows the CCs this version"
            " of PyTorch was built for",
        ),
        means="PyTorch announces that it holds no code for this GPU.",
    ),
    Message(
        code="device-assert",
        emitter="CUDA kernels of PyTorch",
        reads={"place": words, "block": words, "thread": words, "condition": words},
        wordings=("{place}: block: [{block}], thread: [{thread}] Assertion `{condition}` failed.",),
        samples=(
            "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [84,0,0], thread:"
            " [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        ),
        means="An assertion inside a kernel failed: the condition names what was out of range.",
    ),
    Message(
        code="gpu-memory-access-fault",
        emitter="ROCr",
        anywhere=True,
        fatal=True,
        reads={
            "node": count,
            "reason": words,
            "handle": words,
            "address": words,
            "kind": phrases("kind", "EXCEPTION", "MEMORY_APERTURE_VIOLATION", "MEMORY_FAULT", "ILLEGAL_INSTRUCTION"),
        },
        wordings=(
            "Memory access fault by GPU node-{node}¦ (Agent handle: {handle}) on address {address}. Reason: {reason}.",
            "aborting with error : HSA_STATUS_ERROR_{kind}",
        ),
        samples=(
            "Memory access fault by GPU node-2 (Agent handle: 0x55d0c8a3b2f0) on address 0x7f31c8e00000. Reason: Page"
            " not present or supervisor privilege.",
            "aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory"
            " beyond the largest legal address.",
        ),
        means="A kernel on an AMD GPU touched an address that is not mapped. No shortage of memory.",
    ),
    # --- what the driver's kernel module says -----------------------------------------------
    Message(
        code="xid",
        emitter="NVIDIA kernel module",
        anywhere=True,
        seen="drivers 384 - 620",
        reads={
            "bus": _bus,
            "gpu_instance": count,
            "instance": count,
            "xid": count,
            "pid": count,
            "comm": Reader("comm", r"[^,]{1,64}", str, ("VLLM::EngineCor",)),
            "detail": line_rest,
        },
        wordings=(
            "NVRM: Xid (⟦PCI:⟧{bus}⟦ GPU-I:{gpu_instance}⟦ GPU-CI:{instance}⟧⟧): {xid}⟦,"
            " pid=⟨'<unknown>'|<unknown>|{pid}⟩⟧⟦, name=⟨<unknown>|{comm}⟩⟧¦, {detail}",
        ),
        samples=(
            "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:91:00): 31, pid=48121, name=VLLM::EngineCor, Ch 0000000c, intr 00000000. MMU Fault:"
            " ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34560000. Fault is of type FAULT_PDE"
            " ACCESS_TYPE_VIRT_READ",
            "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0"
            " (None) to 0x2 (Node Reboot Required)",
            "NVRM: Xid (0000:01:00): 13, 0005 00000000 0000b197",
        ),
        means="The driver reports an event of a GPU by its number; only some are a fault, none is a lack of memory.",
    ),
    Message(
        code="gpu-lost",
        emitter="NVIDIA kernel module, nvidia-smi",
        fatal=True,
        reads={"gpu": words, "pci": words, "device": words},
        wordings=(
            "NVRM: The NVIDIA GPU {gpu}⟦ NVRM:⟧ (PCI ID: {pci}) installed in this system has⟦ NVRM:⟧"
            " fallen off the bus",
            "NVRM: fallen off the bus and is not responding to commands",
            "NVRM: GPU {gpu}: GPU has fallen off the bus",
            "NVRM: GPU at {gpu} has fallen off the bus",
            "NVRM: GPU {gpu}: RmInitAdapter failed!",
            "Unable to determine the device handle for {device}: ⟦{gpu}: ⟧⟨Unknown Error|GPU is lost⟩",
        ),
        samples=(
            "NVRM: The NVIDIA GPU 0000:c1:00.0\n    NVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "    NVRM: fallen off the bus and is not responding to commands.",
            "NVRM: fallen off the bus and is not responding to commands.",
            "NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.",
            "NVRM: GPU at PCI:0000:c1:00 has fallen off the bus.",
            "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error",
        ),
        means="A GPU does not answer any more or could not be brought up.",
    ),
    Message(
        code="gpu-probe-failed",
        emitter="NVIDIA kernel module",
        reads={"devices": count},
        wordings=("NVRM: The NVIDIA probe routine failed for {devices} device(s)",),
        samples=("NVRM: The NVIDIA probe routine failed for 2 device(s).",),
        means="The driver could not take over this many GPUs.",
    ),
    Message(
        code="nvswitch-error",
        emitter="NVIDIA NVSwitch driver",
        reads={"device": words, "bus": _bus, "sxid": count, "detail": line_rest},
        wordings=("nvidia-{device}: SXid (PCI:{bus}): {sxid}¦, {detail}",),
        samples=("nvidia-nvswitch3: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 36 LTSSM Fault Up",),
        means="An NVSwitch reports an error; fatal ones end every job that uses it.",
    ),
    Message(
        code="gpu-driver-mismatch",
        emitter="NVIDIA kernel module, NVML, PyTorch",
        anywhere=True,
        fatal=True,
        reads={
            "found": count,
            "client_version": Reader("client_version", r"\d{3}(?:\.\d{1,3}){1,2}", str, ("550.54.15",)),
        },
        wordings=(
            "The NVIDIA driver on your system is too old (found version {found})",
            "NVRM: API mismatch: the client has the version {client_version}",
            "Failed to initialize NVML: Driver/library version mismatch",
            "RM has detected an NVML/RM version mismatch",
        ),
        samples=(
            "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by"
            " downloading and installing a new version",
            "NVRM: API mismatch: the client has the version 570.86.15, but",
            "Failed to initialize NVML: Driver/library version mismatch",
            "RM has detected an NVML/RM version mismatch.",
        ),
        means="Driver and libraries do not fit each other; 12040 stands for a driver made for CUDA 12.4.",
    ),
    Message(
        code="amdgpu-page-fault",
        emitter="Linux amdgpu driver",
        reads={
            "gpu": _bus,
            "hub": words,
            "source": count,
            "ring": count,
            "vmid": count,
            "pasid": count,
            "comm": _comm,
            "pid": count,
        },
        wordings=(
            "amdgpu {gpu}: ⟦amdgpu: ⟧⟦[{hub}] ⟧⟦⟨retry|no-retry⟩ ⟧⟦VMC ⟧page fault (src_id:{source} ring:{ring}"
            " vmid:{vmid} pasid:{pasid}¦, for process {comm} pid {pid} thread",
        ),
        samples=(
            "amdgpu 0000:43:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32777, for"
            " process python3 pid 48121 thread python3 pid 48121)",
            "amdgpu 0000:43:00.0: [gfxhub] page fault (src_id:0 ring:56 vmid:8 pasid:32001)",
        ),
        means="The GPU touched a page that is not mapped: a fault of a kernel, not a lack of memory.",
    ),
    Message(
        code="amdgpu-fault-process",
        emitter="Linux amdgpu driver",
        reads={"gpu": _bus, "comm": _comm, "pid": count},
        wordings=("amdgpu {gpu}: ⟦amdgpu: ⟧⟨for process|Process|process⟩ {comm} pid {pid} thread",),
        samples=("amdgpu 0000:43:00.0: amdgpu:  Process VLLM::Worker_TP pid 48121 thread VLLM::Worker_TP pid 48121",),
        means="The process whose kernel faulted, by the host's pid.",
    ),
    Message(
        code="amdgpu-reset",
        emitter="Linux amdgpu driver",
        anywhere=True,
        fatal=True,
        reads={"ring": words, "signaled": count, "emitted": count, "gpu": _bus},
        wordings=(
            "VRAM is lost due to GPU reset!",
            "amdgpu: GPU reset begin!",
            "amdgpu {gpu}: GPU reset begin!",
            "ring {ring} timeout, ⟨last |⟩signaled seq={signaled}, emitted seq={emitted}",
        ),
        samples=(
            "VRAM is lost due to GPU reset!",
            "amdgpu: GPU reset begin!",
            "amdgpu 0000:43:00.0: GPU reset begin!. Source:  3",
            "ring gfx_0.0.0 timeout, signaled seq=33427, emitted seq=33429",
        ),
        means="The GPU hung and is reset; every process on it loses its data.",
    ),
    Message(
        code="lazy-cuda-call-failed",
        emitter="PyTorch",
        anywhere=True,
        wordings=("CUDA call failed lazily at initialization with error: ", "CUDA call was originally invoked at:"),
        samples=(
            "CUDA call failed lazily at initialization with error: ",
            "CUDA call was originally invoked at:",
        ),
        means="A wrapper around an error of the first use of CUDA; the error inside it is the reason.",
    ),
    Message(
        code="device-index-too-high",
        emitter="PyTorch",
        anywhere=True,
        fatal=True,
        reads={"place": words, "device": count, "gpus": count},
        wordings=(
            "device >= 0 && device < num_gpus INTERNAL ASSERT FAILED¦ at {place} device={device}, num_gpus={gpus}",
        ),
        samples=(
            'device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "/pytorch/aten/src/ATen/cuda/CUDAContext.cpp":52,'
            " please report a bug to PyTorch. device=1, num_gpus=1",
        ),
        means="A rank was given a device that the process does not have.",
    ),
    Message(
        code="management-library-missing",
        emitter="PyTorch",
        reads={"number": count},
        wordings=("Can't initialize ⟨NVML|amdsmi⟩⟦ - Error code: {number}⟧",),
        samples=("Can't initialize NVML", "Can't initialize amdsmi - Error code: 34"),
        means="What others hold on a device cannot be told; harmless by itself.",
    ),
    Message(
        code="workspace-too-small",
        emitter="FlashInfer",
        fatal=True,
        anywhere=True,
        reads={
            "name": Reader("name", r"\w{1,60}", str, ("batch_prefill_tmp_v",)),
            "size": count,
            "alignment": count,
            "free": count,
        },
        wordings=(
            "Buffer overflow when allocating memory for {name} with size {size} and alignment {alignment}, but only"
            " {free} bytes available in AlignedAllocator",
        ),
        samples=(
            "Error in function 'aligned_alloc' at /opt/flashinfer/allocator.h:49: Buffer overflow when allocating memory"
            " for batch_prefill_tmp_v with size 418381824 and alignment 16, but only 413138944 bytes available in"
            " AlignedAllocator. Increase the workspace buffer size.",
        ),
        means="A fixed work area of the attention kernels is too small for this batch; more GPU memory does nothing.",
    ),
    Message(
        code="driver-no-memory",
        emitter="NVIDIA kernel module",
        reads={
            "index": count,
            "status": Reader("status", r"0x[0-9a-f]{1,16}", str, ("0x00000051",)),
            "call": Reader("call", r".{0,200}?", str, ("_memdescAllocInternal(pMemDesc)",)),
            "place": Reader("place", r"[\w.]{1,80}\.c:\d{1,6}", str, ("mem_desc.c:1359",)),
        },
        wordings=(
            "NVRM⟦:⟧ ⟦GPU{index} ⟧⟨nvAssertOkFailedNoLog|nvCheckOkFailedNoLog⟩: ⟨Assertion|Check⟩ failed: Out of memory"
            " [NV_ERR_NO_MEMORY]¦ ({status}) returned from {call} @ {place}",
        ),
        samples=(
            "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from"
            " _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
            "NVRM: GPU0 nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned"
            " from rmStatus @ kernel_channel.c:812",
            "NVRM nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from"
            " status @ mem.c:166",
        ),
        means="The driver was refused memory inside itself; printed on healthy machines too, and never a finding alone.",
    ),
    Message(
        code="driver-note",
        emitter="NVIDIA kernel module",
        reads={"text": Reader("text", r".{0,300}?", str, ("",)), "index": count, "minor": count},
        wordings=(
            "NVRM: nvAssertFailedNoLog: Assertion failed: ",
            "NVRM: GPU{index} sanity check failed",
            "NVRM: Rate limiting GSP RPC error prints",
            "NVRM: rm_init_adapter failed, device minor number {minor}",
            "NVRM: loading NVIDIA UNIX",
            "[drm:nv_drm_gem_alloc_nvkms_memory_ioctl [nvidia_drm]] *ERROR* ¦{text}Failed to allocate NVKMS memory for GEM object",
        ),
        samples=(
            "NVRM: nvAssertFailedNoLog: Assertion failed: pChannel != NULL @ kernel_channel.c:812",
            "NVRM: GPU0 sanity check failed 0xf waiting for RPC response from GSP. Expected function 76",
            "NVRM: Rate limiting GSP RPC error prints (printing 1 of every 30). The GPU likely needs to be reset.",
            "NVRM: rm_init_adapter failed, device minor number 2",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025",
            "[drm:nv_drm_gem_alloc_nvkms_memory_ioctl [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000100] Failed to"
            " allocate NVKMS memory for GEM object",
        ),
        means="What the driver's kernel module says besides; an echo or a notice.",
    ),
    Message(
        code="amdgpu-note",
        emitter="Linux amdgpu driver",
        anywhere=True,
        reads={"ring": words, "message": words, "queue": count, "process": words, "resets": count},
        wordings=(
            "ring {ring} timeout, but soft recovered",
            "amdgpu: GPU reset succeeded, trying to resume",
            "amdgpu: GPU reset({resets}) succeeded!",
            "MES failed to ⟨respond to|response⟩ msg={message}",
            "Failed to evict queue {queue}",
        ),
        samples=(
            "ring gfx_0.0.0 timeout, but soft recovered",
            "amdgpu: GPU reset succeeded, trying to resume",
            "amdgpu: GPU reset(3) succeeded!",
            "MES failed to respond to msg=REMOVE_QUEUE",
            "Failed to evict queue 3",
        ),
        means="How a hang of the GPU went on; by itself no fault.",
    ),
    Message(
        code="autotuner-note",
        emitter="FlashInfer",
        anywhere=True,
        reads={
            "kernel": Reader("kernel", r"[\w.:]{1,120}", str, ("fp8_gemm",)),
            "percent": count,
            "bar": Reader("bar", r"[^|]{0,80}", str, ("#   ",)),
            "done": count,
            "profiles": count,
        },
        wordings=(
            "[Autotuner]: OOM detected, falling back to default tactic",
            "[AutoTuner]: Tuning {kernel}: {percent}%|{bar}| {done}/{profiles}",
        ),
        samples=(
            "flashinfer.jit: [Autotuner]: OOM detected, falling back to default tactic",
            "[AutoTuner]: Tuning fp8_gemm: 100%|##########| 21/21 [00:00<00:00, 34.03profile/s]",
        ),
        means="FlashInfer tries variants of a kernel; one that does not fit is passed over, which is no failure.",
    ),
    # --- status tools ---------------------------------------------------------------------
    Message(
        code="gpu-memory-use",
        emitter="nvidia-smi",
        spaced=True,
        reads={
            "before": Reader("before", r"[^|]{0,120}", str, ("0%   41C    P8    21W / 350W",)),
            "used": _mib,
            "total": _mib,
            "after": Reader("after", r"[^|]{0,80}", str, ("0%      Default",)),
            "index": count,
            "free": _mib,
        },
        wordings=(
            "|{before}| {used}MiB / {total}MiB |{after}|",
            "{total} MiB, {used} MiB, {free} MiB",
        ),
        samples=(
            "|  0%   41C    P8              21W / 350W |  22104MiB / 24576MiB |      0%      Default |",
            "24576 MiB, 22104 MiB, 2105 MiB",
        ),
        means="Memory in use and capacity of a GPU; the driver keeps a little of it back.",
    ),
    Message(
        code="gpu-process",
        emitter="nvidia-smi",
        spaced=True,
        reads={
            "gpu": count,
            "gi": Reader("gi", r"\d{1,3}|N/A", str, ("N/A",)),
            "ci": Reader("ci", r"\d{1,3}|N/A", str, ("N/A",)),
            "pid": count,
            "kind": Reader("kind", r"C\+G|M\+C|C|G", str, ("C",)),
            "name": Reader("name", r"\S.{0,120}?", str, ("VLLM::EngineCore",)),
            "used": _mib,
        },
        wordings=("| {gpu}⟦ {gi} {ci}⟧ {pid} {kind} {name} {used}MiB |",),
        samples=(
            "|    0   N/A  N/A           48121      C   VLLM::EngineCore                      22000MiB |",
            "|    1     48122      C   ray::RayWorkerWrapper           22000MiB |",
        ),
        means="A process that holds memory of a GPU, by the host's pid.",
    ),
    # --- no device at all -------------------------------------------------------------------
    Message(
        code="no-gpu",
        emitter="PyTorch, Triton, vLLM, Docker, nvidia-smi",
        anywhere=True,
        fatal=True,
        reads={"drivers": words},
        wordings=(
            "No ⟨CUDA|HIP⟩ GPUs are available",
            "Found no NVIDIA driver on your system",
            "CUDA driver initialization failed, you might not have a CUDA gpu",
            "CUDA unknown error - this may be due to an incorrectly set up environment",
            "0 active drivers ({drivers}). There should only be one.",
            "Failed to infer device type",
            "Device string must not be empty",
            "libcuda.so.1: cannot open shared object file",
            'could not select device driver "" with capabilities: [[gpu]]',
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
            "Failed to initialize NVML: Unknown Error",
            "nvidia-container-cli: initialization error",
        ),
        samples=(
            "No CUDA GPUs are available",
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
            "CUDA driver initialization failed, you might not have a CUDA gpu.",
            "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable"
            " CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
            "0 active drivers ([]). There should only be one.",
            "Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
            "Device string must not be empty",
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            'could not select device driver "" with capabilities: [[gpu]]',
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.",
            "Failed to initialize NVML: Unknown Error",
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        ),
        means="The process sees no GPU.",
    ),
    Message(
        code="no-platform",
        emitter="vLLM platforms",
        seen="0.7.0 - 0.33.0",
        wordings=("No platform detected, vLLM is running on UnspecifiedPlatform",),
        samples=("No platform detected, vLLM is running on UnspecifiedPlatform",),
        means="vLLM found no device it knows.",
    ),
    Message(
        code="cuda-platform-unavailable",
        emitter="vLLM platforms",
        reads={"reason": line_rest},
        wordings=(
            "CUDA platform is not available because: {reason}",
            "Exception happens when checking CUDA platform: {reason}",
        ),
        samples=(
            "CUDA platform is not available because: NVML Shared Library Not Found",
            "Exception happens when checking CUDA platform: NVML Shared Library Not Found",
        ),
        means="Why vLLM does not take the CUDA platform; ordinary on machines without one.",
    ),
    Message(
        code="nvml-missing",
        emitter="NVML",
        wordings=("NVML Shared Library Not Found", "Driver Not Loaded"),
        samples=("NVML Shared Library Not Found", "Driver Not Loaded"),
        means="The driver's management library is not there or finds no driver.",
    ),
    Message(
        code="torch-without-cuda",
        emitter="PyTorch",
        fatal=True,
        wordings=("Torch not compiled with CUDA enabled",),
        samples=("Torch not compiled with CUDA enabled",),
        means="The installed PyTorch is a build without CUDA; says nothing about the GPU.",
    ),
    Message(
        code="too-few-gpus",
        emitter="vLLM",
        seen="0.5.3 - 0.33.0",
        fatal=True,
        reads={"world_size": count, "gpus": count, "tensor_parallel_size": count},
        wordings=(
            "World size ({world_size}) is larger than the number of available GPUs ({gpus}) in this node",
            "please set tensor_parallel_size ({tensor_parallel_size}) to less than max local gpu count ({gpus})",
        ),
        samples=(
            "World size (8) is larger than the number of available GPUs (4) in this node. If this is intentional and"
            " you are using:",
            "please set tensor_parallel_size (4) to less than max local gpu count (2)",
        ),
        means="More ranks are asked for than this machine has GPUs.",
    ),
    Message(
        code="cuda-in-forked-process",
        emitter="PyTorch",
        anywhere=True,
        fatal=True,
        wordings=("Cannot re-initialize ⟨CUDA|HIP⟩ in forked subprocess",),
        samples=(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
            " 'spawn' start method",
        ),
        means="The parent used CUDA before it forked the worker.",
    ),
    # --- what a device cannot do ------------------------------------------------------------
    Message(
        code="triton-out-of-resources",
        emitter="Triton",
        seen="Triton 2.1 - 3.9",
        anywhere=True,
        reads={
            "resource": phrases("resource", "shared memory", "tensor memory", "threads", "registers"),
            "required": count,
            "limit": count,
        },
        wordings=("out of resource: {resource}, Required: {required}, Hardware limit: {limit}",),
        samples=(
            "out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or"
            " `num_stages` may help.",
        ),
        means="A kernel wants more on-chip memory than one multiprocessor has (bytes); not /dev/shm, not VRAM.",
    ),
    Message(
        code="on-chip-memory-refused",
        emitter="TileLang, CUTLASS, FlashInfer",
        anywhere=True,
        fatal=True,
        reads={"required": count},
        wordings=("Failed to set the allowed dynamic shared memory size to {required}",),
        samples=("Failed to set the allowed dynamic shared memory size to 131072",),
        means="A kernel's on-chip memory was refused by the device.",
    ),
    Message(
        code="dtype-refused",
        emitter="vLLM",
        seen="0.1.4 - 0.33.0",
        fatal=True,
        reads={"required_capability": _float, "gpu": words, "capability": _float},
        wordings=(
            "Bfloat16 is only supported on GPUs with compute capability of at least {required_capability}.¦ Your {gpu}"
            " GPU has compute capability {capability}.",
        ),
        samples=(
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute"
            " capability 7.5. You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example:"
            " --dtype=half.",
        ),
        means="The GPU has no bfloat16.",
    ),
    Message(
        code="fp8-type-refused",
        emitter="Triton, PyTorch",
        anywhere=True,
        fatal=True,
        reads={"type": Reader("type", r"fp8\w{1,12}?(?=not)", str, ("fp8e4nv",)), "required": _float},
        wordings=(
            "type {type} not supported in this architecture",
            "torch._scaled_mm is only supported on CUDA devices with compute capability",
        ),
        samples=(
            "type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')",
            "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+",
        ),
        means="The GPU has no such 8-bit float type.",
    ),
    Message(
        code="quantization-refused",
        emitter="vLLM",
        seen="0.2.0 - 0.33.0",
        fatal=True,
        reads={
            "quantization": Reader("quantization", r"[\w.-]{1,60}?", str, ("awq_marlin", "gptq")),
            "required_capability": count,
            "capability": count,
            "platform": Reader("platform", r"[\w.]{2,24}", str, ("rocm",)),
            "kind": words,
        },
        wordings=(
            "The quantization method {quantization} is not supported for the current GPU. Minimum capability:"
            " {required_capability}. Current capability: {capability}.",
            "⟦('⟧Quantization scheme is not supported for ⟦', '⟧the current GPU. Min capability:"
            " {required_capability}. ⟦', '⟧Current capability: {capability}.",
            "{quantization} quantization is currently not supported in {platform}",
            "Failed to find a kernel that can implement the",
            "No compiled cutlass_scaled_mm for a compute capability less than CUDA device capability: {capability}",
            "No {kind} MoE backend supports the deployment configuration",
        ),
        samples=(
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current"
            " capability: 75.",
            "('Quantization scheme is not supported for ', 'the current GPU. Min capability: 89. ', 'Current"
            " capability: 70.')",
            "Quantization scheme is not supported for the current GPU. Min capability: 90. Current capability: 80.",
            "awq_marlin quantization is currently not supported in rocm.",
            "Failed to find a kernel that can implement the WNA16 linear layer. Reasons:",
            "No compiled cutlass_scaled_mm for a compute capability less than CUDA device capability: 75",
            "No FP8 MoE backend supports the deployment configuration.",
        ),
        means="This kind of quantized weights has no kernel for the device.",
    ),
    Message(
        code="attention-backend-refused",
        emitter="vLLM",
        seen="0.4.0 - 0.33.0",
        fatal=True,
        reads={
            "backend": Reader(
                "backend",
                r"(?:AttentionBackendEnum\.|_Backend\.)?\w{2,40}?(?=isnot|'|\b)",
                lambda text: text.rsplit(".", 1)[-1],
                ("AttentionBackendEnum.FLASHINFER", "FLASH_ATTN"),
            ),
            "reason": Reader("reason", r"[^'\"\]]{1,200}", str, ("attention sinks not supported",)),
            "device": Reader("device", r"\w{2,12}?(?=with|[,.]|$)", str, ("cuda", "rocm")),
            "head_size": count,
        },
        wordings=(
            "Selected backend {backend} is not valid for this configuration.¦ Reason: ['{reason}'",
            "No valid attention backend found for {device} with",
            "Invalid attention backend for {device}",
            "⟨Unknown|Invalid⟩ attention backend: '{backend}'",
            "Invalid value '{backend}' for VLLM_ATTENTION_BACKEND",
            "Head size {head_size} is not supported by",
            "FlashAttention only supports Ampere GPUs or newer",
            "FlashInfer requires GPUs with sm75 or higher",
        ),
        samples=(
            "Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: ['head_size"
            " not supported', 'sink setting not supported']",
            "No valid attention backend found for cuda with head_size: 80, dtype: torch.float16, kv_cache_dtype: fp8",
            "Invalid attention backend for cuda, with use_v1: True use_mla: False",
            "Unknown attention backend: 'FLASHATTENTION'. Valid options are: FLASH_ATTN, TRITON_ATTN",
            "Invalid value 'FLASH' for VLLM_ATTENTION_BACKEND. Valid options: ['FLASH_ATTN', 'XFORMERS']",
            "Head size 80 is not supported by FlashInfer. Supported head sizes are: [64, 128, 256].",
            "FlashAttention only supports Ampere GPUs or newer.",
            "FlashInfer requires GPUs with sm75 or higher",
        ),
        means="The attention backend that was chosen does not work with this model, cache or device.",
    ),
)
