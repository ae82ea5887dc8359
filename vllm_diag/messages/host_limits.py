"""What libraries say when the system refuses shared memory, disk space, memory maps or host memory.

Each of them has its own remedy: /dev/shm, a disk, a count of maps, files, threads or locked
pages, and host memory itself are all called "no space" or "cannot allocate memory".
"""

from __future__ import annotations

from vllm_diag.event_types import HostAllocationFailed, ShmShort
from vllm_diag.messages import Message
from vllm_diag.messages._readers import phrases
from vllm_diag.quantities import GIB, Amount, Reader, count, raw_bytes, size, words

# A size as df -h prints it; "0" has no unit.
_df = Reader(
    "df_size",
    r"\d{1,6}(?:\.\d)?[KMGT]|0(?=[\dKMGT])",
    lambda text: size.read(text + ("B" if text == "0" else "")),
    ("64M",),
)
_column = Reader("column", r"\d{1,6}(?:\.\d)?[KMGT]|0", _df.read, ("64M", "0"))
_path = Reader("path", r"[^\s'\"<>,]{1,300}?", str, ("/dev/shm/nccl-Zk3A1b",))
_object = Reader("object", r"/[\w.-]{1,120}", str, ("/torch_4711_1_0",))
_errno = phrases(
    "error",
    "No such file or directory",
    "Permission denied",
    "Too many open files",
    "Too many open files in system",
    "File exists",
    "Operation not permitted",
    "Invalid argument",
    "invalid argument",
)
# 28 is "no space left": for a shared-memory file, a full /dev/shm. 12 can also be that.
_other_number = Reader("errno", r"(?!28\))\d{1,3}", int, ("24", "13", "2"))
_giga = Reader(
    "giga", r"\d{1,9}(?:\.\d{1,6})?", lambda text: Amount(round(float(text) * GIB), GIB // 2), ("64", "15.77")
)

MESSAGES = (
    # --- shared memory --------------------------------------------------------------------
    Message(
        code="shm-full",
        event=ShmShort,
        emitter="NCCL, PyTorch, Python",
        fatal=True,
        anywhere=True,
        reads={"path": _path, "required": raw_bytes, "errno": Reader("errno", r"28|11", int, ("28",))},
        wordings=(
            "Error while creating shared memory segment {path} (size {required}), error: No space left on device⟦ ({errno})⟧",
            "Error: failed to extend {path} to {required} bytes¦, error: No space left on device⟦ ({errno})⟧",
            "Error: failed to create shared memory file {path}, error⟦:⟧ No space left on device⟦ ({errno})⟧",
            "Error: Could not map {path} size {required}, error: ⟨No space left on device|Cannot allocate memory⟩",
            "Call to posix_fallocate failed⟦ ⟧: No space left on device",
            "unable to ⟨allocate shared memory(shm) for file|open shared memory object⟩ <{path}⟦>⟧⟦ in read-write mode⟧:"
            " ⟨No space left on device|Resource temporarily unavailable⟩⟦ ({errno})⟧",
            "unable to write to file <{path}⟦>⟧¦: No space left on device ({errno})",
            "unable to resize file <{path}⟦>⟧ to the right size¦: No space left on device ({errno})",
        ),
        samples=(
            "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Zk3A1b to 7340384 bytes, error: No"
            " space left on device (28)",
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "Error while creating shared memory segment /dev/shm/nccl-Zk3A1b (size 7340384), error: No space left on"
            " device (28)",
            "NCCL WARN Error: failed to create shared memory file /dev/shm/nccl-Zk3A1b, error No space left on device"
            " (28)",
            "NCCL WARN Error: Could not map /dev/shm/nccl-Zk3A1b size 7340384, error: Cannot allocate memory (12)",
            "unable to allocate shared memory(shm) for file </torch_4711_1_0>: No space left on device (28)",
            "unable to open shared memory object </torch_4711_1_0> in read-write mode: No space left on device (28)",
            "unable to write to file </torch_4711_1_0>: No space left on device (28)",
            "unable to resize file </torch_4711_1_0> to the right size: No space left on device (28)",
            "unable to write to file </torch_4711_1_0>",
        ),
        means="/dev/shm is full.",
    ),
    Message(
        code="shm-object-refused",
        emitter="PyTorch",
        fatal=True,
        anywhere=True,
        reads={"object": _object, "error": _errno, "errno": _other_number},
        wordings=(
            "unable to ⟨open shared memory object|allocate shared memory(shm) for file⟩ <{object}⟦>⟧⟦ in"
            " ⟨read-write|read-only|read⟩ mode⟧: {error} ({errno})",
        ),
        samples=(
            "unable to open shared memory object </torch_4711_1_0> in read-write mode: Too many open files (24)",
            "unable to allocate shared memory(shm) for file </torch_4711_1_0>: Permission denied (13)",
        ),
        means="A shared-memory object could not be opened, and its size is not why: 24 open files, 13 permission.",
    ),
    Message(
        code="nccl-shm-failed",
        emitter="NCCL",
        anywhere=True,
        reads={
            "operation": phrases("operation", "creating", "attaching to"),
            "path": _path,
            "size": raw_bytes,
            "error": _errno,
            "errno": _other_number,
        },
        wordings=("Error while {operation} shared memory segment {path} (size {size})¦, error: {error} ({errno})",),
        samples=(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Zk3A1b (size 7340384), error: No"
            " such file or directory (2)",
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Zk3A1b (size 7340384)",
        ),
        means="NCCL got no segment of shared memory; without errno 28 that is not a matter of its size.",
    ),
    Message(
        code="shm-segment-gone",
        emitter="Python",
        anywhere=True,
        reads={"segment": Reader("segment", r"/psm_[0-9a-f]{4,16}", str, ("/psm_4f1c2b8d",)), "errno": count},
        wordings=(
            "[Errno {errno}] No such file or directory: '{segment}'",
            "resource_tracker: '{segment}': [Errno {errno}]",
        ),
        samples=(
            "FileNotFoundError: [Errno 2] No such file or directory: '/psm_4f1c2b8d'",
            "resource_tracker: '/psm_4f1c2b8d': [Errno 2] No such file or directory: '/psm_4f1c2b8d'",
        ),
        means="A segment of shared memory was removed already, as after the end of the process that made it.",
    ),
    Message(
        code="leaked-objects",
        emitter="Python resource tracker",
        anywhere=True,
        reads={"objects": count},
        wordings=("There appear to be {objects} leaked ⟨shared_memory|semaphore⟩ objects to clean up at shutdown",),
        samples=(
            "UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown",
        ),
        means="Something was left behind at the end of a process; a consequence of any hard exit.",
    ),
    Message(
        code="shm-size",
        emitter="df",
        reads={"size": _df, "used": _df, "free": _df, "percent": count},
        wordings=("shm {size}¦ {used} {free} {percent}% /dev/shm",),
        samples=("shm              64M     0   64M   0% /dev/shm",),
        means="Size of /dev/shm as df shows it.",
    ),
    Message(
        code="disk-size",
        emitter="df",
        spaced=True,
        reads={
            "device": Reader("device", r"(?!shm\b|tmpfs\b)[\w./:@-]{2,120}", str, ("/dev/nvme0n1p2", "overlay")),
            "size": _column,
            "used": _column,
            "free": _column,
            "percent": count,
            "path": Reader("path", r"\S{0,200}", lambda text: "/" + text, ("", "root/.cache")),
        },
        wordings=("{device} {size} {used} {free} {percent}% /{path}",),
        samples=("overlay         296G   77G  204G  28% /", "/dev/nvme0n1p2  1.8T  1.8T     0 100% /data"),
        means="Room on a file system as df shows it.",
    ),
    Message(
        code="free-memory",
        emitter="free",
        spaced=True,
        reads=dict.fromkeys(("total", "used", "free", "shared", "cache", "available"), count),
        wordings=("Mem: {total} {used} {free} {shared} {cache} {available}", "Swap: {total} {used} {free}"),
        samples=(
            "Mem:            105           3          39           0          63         101",
            "Swap:             8           0           8",
        ),
        means="RAM and swap as free shows them, in the unit it was asked for.",
    ),
    # --- disks --------------------------------------------------------------------------------
    Message(
        code="no-space-left",
        emitter="Python, libraries, compilers",
        fatal=True,
        anywhere=True,
        reads={
            "path": _path,
            "errno": Reader("errno", "28|122", int, ("28", "122")),
            "written": Reader("written", r"/[^\s:'\"]{1,200}", str, ("/tmp/tmpxft_0001.o",)),
        },
        wordings=(
            "[Errno {errno}] ⟨No space left on device|Disk quota exceeded⟩¦: '{path}'",
            "No space left on device (os error {errno})",
            "error writing to {written}: No space left on device",
            "write error: No space left on device",
            "failed to register layer: ¦{path}: no space left on device",
        ),
        samples=(
            "[Errno 28] No space left on device: '/root/.cache/huggingface/hub/x'",
            "[Errno 28] No space left on device",
            "[Errno 122] Disk quota exceeded: '/home/u/.cache/vllm/x'",
            "No space left on device (os error 28)",
            "fatal error: error writing to /tmp/tmpxft_0001.o: No space left on device",
            "write error: No space left on device",
            "failed to register layer: write /usr/lib/libcuda.so: no space left on device",
        ),
        means="A file system is full (or a quota on it); the path or the caller tells which.",
    ),
    Message(
        code="disk-space-warned",
        emitter="huggingface_hub",
        anywhere=True,
        reads={
            "expected_mb": Reader("expected_mb", r"\d{1,12}(?:\.\d{1,6})?", float, ("9976.58",)),
            "free_mb": Reader("free_mb", r"\d{1,12}(?:\.\d{1,6})?", float, ("2110.4",)),
            "path": _path,
        },
        wordings=(
            "Not enough free disk space to download the file.¦ The expected file size is: {expected_mb} MB. The target"
            " location {path} only has {free_mb} MB free disk space",
        ),
        samples=(
            "UserWarning: Not enough free disk space to download the file. The expected file size is: 9976.58 MB. The"
            " target location /root/.cache/huggingface/hub only has 2110.40 MB free disk space.",
        ),
        means="A download is larger than the room left for it, in MB of 10**6 bytes; it is tried all the same.",
    ),
    Message(
        code="watch-limit",
        emitter="libc, system tools",
        anywhere=True,
        reads={"what": words},
        wordings=("inotify_add_watch¦{what}No space left on device", "inotify watch limit reached"),
        samples=(
            "inotify_add_watch(7, /models, 4095): No space left on device",
            "OS file watch limit reached: inotify watch limit reached",
        ),
        means="The number of watches on files is used up; no disk is full.",
    ),
    Message(
        code="file-refused",
        emitter="Python, libc",
        anywhere=True,
        fatal=True,
        reads={
            "errno": Reader("errno", "27|30", int, ("27", "30")),
            "error": phrases("error", "File too large", "Read-only file system"),
            "path": _path,
        },
        wordings=("[Errno {errno}] {error}¦: '{path}'",),
        samples=("[Errno 27] File too large: '/models/m.bin'", "[Errno 30] Read-only file system: '/root/.cache'"),
        means="A file could not be written, and room is not why.",
    ),
    # --- host memory --------------------------------------------------------------------------
    Message(
        code="mmap-failed",
        event=HostAllocationFailed,
        emitter="PyTorch, safetensors",
        fatal=True,
        anywhere=True,
        reads={"tried": raw_bytes, "path": _path, "errno": count},
        wordings=("unable to mmap {tried} bytes from file <{path}>: Cannot allocate memory¦ ({errno})",),
        samples=(
            "unable to mmap 16933256392 bytes from file </models/m/pytorch_model.bin>: Cannot allocate memory (12)",
        ),
        means="A file could not be mapped into memory.",
    ),
    Message(
        code="host-out-of-memory",
        event=HostAllocationFailed,
        emitter="Python, C++, Rust, Go, libc",
        fatal=True,
        reads={"tried": raw_bytes, "what": words, "errno": Reader("errno", "12", int, ("12",))},
        wordings=(
            "[Errno {errno}] Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "std::bad_alloc",
            "memory allocation of {tried} bytes failed",
            "fatal error: runtime: out of memory",
            "mmap: Cannot allocate memory",
            "⟦-⟧⟦bash: ⟧fork: Cannot allocate memory",
        ),
        samples=(
            "[Errno 12] Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "std::bad_alloc",
            "memory allocation of 1073741824 bytes failed",
            "fatal error: runtime: out of memory",
            "mmap: Cannot allocate memory",
            "bash: fork: Cannot allocate memory",
        ),
        means="Host memory was refused.",
    ),
    Message(
        code="python-memory-error",
        event=HostAllocationFailed,
        emitter="Python",
        fatal=True,
        whole_line=True,
        wordings=("MemoryError",),
        samples=("MemoryError",),
        means="Python got no memory from the system.",
    ),
    Message(
        code="array-refused",
        event=HostAllocationFailed,
        emitter="NumPy, PyTorch",
        fatal=True,
        anywhere=True,
        reads={"tried": size, "mapped": _giga, "shape": Reader("shape", r"\([\d,]{0,80}\)", str, ("(1024, 1024)",))},
        wordings=(
            "Unable to allocate {tried} for an array with shape {shape}",
            "Torch: unable to mmap memory: you tried to mmap {mapped}GB",
        ),
        samples=(
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 15.3 GiB for an array with shape (2048,"
            " 1000000) and data type float64",
            "Torch: unable to mmap memory: you tried to mmap 64GB.",
        ),
        means="Host memory for one large array was refused.",
    ),
    Message(
        code="out-of-fork-limits",
        emitter="libc, Python, OpenBLAS",
        reads={"exit_code": count, "what": words},
        wordings=(
            "can't start new thread",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "⟦-⟧⟦bash: ⟧fork: ⟦retry: ⟧Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create failed",
        ),
        samples=(
            "can't start new thread",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "bash: fork: retry: Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create failed for thread 31 of 64: Resource temporarily unavailable",
        ),
        means="A limit on threads or processes, not on memory.",
    ),
    Message(
        code="locked-memory-refused",
        emitter="NCCL, verbs",
        anywhere=True,
        fatal=True,
        reads={
            "call": Reader("call", r"ibv_(?:create_qp|reg_mr)\w{0,40}?", str, ("ibv_create_qp", "ibv_reg_mr_iova2"))
        },
        wordings=(
            "Call to {call} failed with error Cannot allocate memory",
            "{call} failed: Cannot allocate memory",
        ),
        samples=(
            "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
            "ibv_reg_mr failed: Cannot allocate memory",
        ),
        means="The limit on locked memory (ulimit -l) is too low for the network card; no lack of RAM.",
    ),
    Message(
        code="static-tls-full",
        emitter="dynamic linker",
        anywhere=True,
        fatal=True,
        wordings=("cannot allocate memory in static TLS block",),
        samples=("ImportError: /usr/lib/libgomp.so.1: cannot allocate memory in static TLS block",),
        means="A library was loaded too late for its thread-local data; no lack of RAM.",
    ),
)
