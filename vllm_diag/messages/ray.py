"""What Ray says about its workers, its memory monitor and its object store."""

from __future__ import annotations

from vllm_diag.event_types import ShmShort
from vllm_diag.messages import Message
from vllm_diag.quantities import GIB, Amount, Reader, count, number, raw_bytes, words

# Ray's GB is 2**30 bytes.
_gb = Reader("ray_gb", r"\d{1,6}(?:\.\d{1,4})?", lambda text: Amount(round(float(text) * GIB), GIB // 200), ("61.52",))
_host = Reader("host", r"[\w.:\[\]-]{1,120}?", str, ("10.0.0.11", "127.0.0.1"))
_seconds = Reader("seconds", r"\d{1,9}(?:\.\d{1,6})?", float, ("60", "600"))
_fraction = Reader("fraction", r"\d(?:\.\d{1,9})?", float, ("0.979618",))

MESSAGES = (
    Message(
        code="ray-oom-kill",
        emitter="Ray",
        fatal=True,
        anywhere=True,
        reads={
            "workers": Reader("workers", r"[1-9]\d{0,6}", int, ("2", "1")),
            "crashed": count,
            "percent": number,
            "node": _host,
            "used": _gb,
            "total": _gb,
            "task": Reader("task", r"[\w.:-]{1,120}?", str, ("RayWorkerWrapper",)),
            "retries": count,
        },
        wordings=(
            "Task was killed due to the node running low on memory",
            "{workers} worker(s) were killed due to the node running low on memory",
            "Refer to the documentation on how to address the out of memory issue",
            "{workers} Workers (tasks / actors) killed due to memory pressure (OOM)¦, {crashed} Workers crashed",
            "Task {task} failed due to oom. There are {retries} oom retries remaining",
            "Worker exit type: NODE_OUT_OF_MEMORY",
            "More than {percent}% of the memory on node {node} is used ({used} / {total} GB)",
        ),
        samples=(
            "Task was killed due to the node running low on memory.",
            "1 worker(s) were killed due to the node running low on memory.",
            "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/",
            "2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
            "Task RayWorkerWrapper.execute_method failed due to oom. There are 0 oom retries remaining, so the task"
            " will be retried.",
            "Worker exit type: NODE_OUT_OF_MEMORY",
            "More than 95% of the memory on node gpu-3 is used (61.52 / 62.8 GB). The top 10 memory consumers are:",
        ),
        means="Ray's memory monitor killed a worker; the kernel log is silent about it.",
    ),
    Message(
        code="ray-memory-use",
        emitter="Ray",
        anywhere=True,
        reads={
            "used": _gb,
            "total": _gb,
            "fraction": _fraction,
            "threshold": _fraction,
            "used_bytes": raw_bytes,
            "threshold_bytes": raw_bytes,
            "total_bytes": raw_bytes,
        },
        wordings=(
            "was ⟦running was ⟧{used}GB / {total}GB ({fraction}), which exceeds the memory usage threshold of"
            " {threshold}",
            "Node memory usage above threshold, used: {used_bytes}, threshold_bytes: {threshold_bytes}, total bytes:"
            " {total_bytes}, threshold fraction: {threshold}",
        ),
        samples=(
            "Memory on the node (IP: 10.0.0.11, ID: b) where the task (task ID: f, name=RayWorkerWrapper, pid=4711,"
            " memory used=30.10GB) was running was 61.52GB / 62.80GB (0.979618), which exceeds the memory usage"
            " threshold of 0.95.",
            "Memory on the node (IP: 10.0.0.11) was 61.52GB / 62.80GB (0.979618), which exceeds the memory usage"
            " threshold of 0.95; Object store memory usage: [not used]; Ray killed 1 worker(s)",
            "Node memory usage above threshold, used: 66056597504, threshold_bytes: 64060306227, total bytes:"
            " 67431886554, threshold fraction: 0.95",
        ),
        means="Memory of the node when Ray killed a worker.",
    ),
    Message(
        code="ray-memory-user",
        emitter="Ray",
        spaced=True,
        reads={
            "pid": Reader("pid", r"\s{0,8}\d{1,10}", int, ("4711",)),
            "memory": Reader("memory", r"\d{1,6}\.\d{2}", _gb.read, ("30.10",)),
            "name": Reader("name", r"\S.{0,300}|", str, ("RayWorkerWrapper",)),
        },
        wordings=(
            "{pid} {memory} ray::{name}",
            "{pid} {memory} VLLM::{name}",
            "{pid} {memory} python{name}",
        ),
        samples=(
            "4711\t30.10\tray::RayWorkerWrapper.execute_method",
            "4712    12.04   VLLM::EngineCore",
            "4713\t2.12\tpython3 -m vllm.entrypoints.openai.api_server --model /models/m",
        ),
        means="One of the processes that use most of the node's memory, as Ray lists them at a kill (in GB of 2**30).",
    ),
    Message(
        code="ray-memory-monitor",
        emitter="Ray",
        anywhere=True,
        reads={"threshold_bytes": raw_bytes, "fraction": _fraction, "total_bytes": raw_bytes},
        wordings=(
            "MemoryMonitor initialized with usage threshold at {threshold_bytes} bytes ({fraction} system memory), total"
            " system memory bytes: {total_bytes}",
            "MemoryMonitor disabled.",
        ),
        samples=(
            "MemoryMonitor initialized with usage threshold at 64060306227 bytes (0.95 system memory), total system"
            " memory bytes: 67431886554",
            "MemoryMonitor disabled. Specify `memory_monitor_refresh_ms` > 0 to enable the monitor.",
        ),
        means="From which use on Ray kills workers; printed at every start.",
    ),
    Message(
        code="ray-repeated",
        emitter="Ray",
        anywhere=True,
        reads={"repeated": count},
        wordings=("[repeated {repeated}x across cluster",),
        samples=("[repeated 5x across cluster]",),
        means="Ray shows equal lines once; so many ranks printed the one before.",
    ),
    Message(
        code="ray-disk-nearly-full",
        emitter="Ray",
        anywhere=True,
        reads={
            "path": Reader("path", r"/[^\s'\"<>,]{0,300}?", str, ("/tmp/ray/session_1",)),
            "percent": number,
            "available": _gb,
            "capacity": _gb,
        },
        wordings=(
            "{path} is over {percent}% full,¦⟦ available space: {available} GB; capacity: {capacity} GB.⟧ Object"
            " creation will fail if spilling is required",
        ),
        samples=(
            "file_system_monitor.cc:111: /tmp/ray/session_1 is over 95% full, available space: 4.7 GB; capacity: 98.3"
            " GB. Object creation will fail if spilling is required.",
            "file_system_monitor.cc:111: /tmp/ray/session_1 is over 95% full, Object creation will fail if spilling is"
            " required.",
        ),
        means="The disk that holds Ray's session is nearly full; disk, not memory.",
    ),
    Message(
        code="ray-shm-short",
        event=ShmShort,
        emitter="Ray",
        fatal=True,
        anywhere=True,
        reads={"required": raw_bytes, "free": raw_bytes, "wanted": number, "size": number},
        wordings=(
            "System memory request exceeds memory available in /dev/shm¦. The request is for {required} bytes, and the amount"
            " available is {free} bytes",
            "The configured object store size ({wanted} GB) exceeds /dev/shm size ({size} GB)",
        ),
        samples=(
            "store_runner.cc:32: System memory request exceeds memory available in /dev/shm. The request is for"
            " 19862343680 bytes, and the amount available is 60397977 bytes.",
            "System memory request exceeds memory available in /dev/shm.",
            "The configured object store size (18.5 GB) exceeds /dev/shm size (0.067 GB). This will harm performance.",
        ),
        means="Ray's object store does not get the shared memory it was told to take.",
    ),
    Message(
        code="ray-object-store-note",
        emitter="Ray",
        anywhere=True,
        reads={"shm_free": raw_bytes},
        wordings=(
            "The object store is using /tmp instead of /dev/shm because /dev/shm has only {shm_free} bytes available",
            "Reducing object store memory because /dev/shm has only {shm_free} bytes available",
            "The local object store is full of objects that are still in scope",
        ),
        samples=(
            "WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 bytes"
            " available. This will harm performance!",
            "Warning: Reducing object store memory because /dev/shm has only 67108864 bytes available.",
            "The local object store is full of objects that are still in scope and cannot be evicted.",
        ),
        means="Ray's object store is smaller or slower than it could be; vLLM hardly uses it.",
    ),
    Message(
        code="ray-gpus-short",
        emitter="vLLM's Ray executor, Ray",
        seen="0.5.5 - 0.33.0",
        fatal=True,
        reads={
            "specs": words,
            "seconds": _seconds,
            "device": Reader("device", r"[A-Z]{2,8}", str, ("GPU", "TPU")),
            "node": words,
            "world_size": count,
            "gpus": count,
            "required_gpus": count,
            "host": _host,
        },
        wordings=(
            "Cannot provide a placement group requiring {required_gpus} GPUs",
            "Cannot provide a placement group of placement_group_specs={specs} within {seconds} seconds",
            "Current node has no {device} available",
            "The number of required {device}s exceeds the total number of available {device}s in the"
            " ⟨placement group|cluster⟩⟦.⟧¦ Required number of devices: {world_size}. Total number of devices: {gpus}",
            "No available node types can fulfill resource request",
            "Ray does not allocate any GPUs on the driver node",
        ),
        samples=(
            "Cannot provide a placement group requiring 16 GPUs (placement_group_specs=[{'GPU': 1.0}]) within 1800"
            " seconds.",
            "Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}, {'GPU': 1.0}] within 1800"
            " seconds. See `ray status` and `ray list nodes`",
            "Current node has no GPU available. current_node_resource={'CPU': 16.0}. vLLM engine cannot start without"
            " GPU.",
            "The number of required GPUs exceeds the total number of available GPUs in the placement group. Required"
            " number of devices: 8. Total number of devices: 4.",
            "No available node types can fulfill resource request {'GPU': 1.0}. Add suitable node types",
            "Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group",
        ),
        means="The Ray cluster has fewer GPUs to give than ranks were asked for.",
    ),
    Message(
        code="ray-waiting-for-gpus",
        emitter="vLLM's Ray executor",
        seen="0.8.0 - 0.33.0",
        reads={"seconds": _seconds},
        wordings=("Waiting for creating a placement group of specs for {seconds} seconds",),
        samples=(
            "Waiting for creating a placement group of specs for 160 seconds. specs=[{'GPU': 1.0}, {'GPU': 1.0}]. Check"
            " `ray status`",
        ),
        means="The Ray cluster has not yet given the GPUs that were asked for.",
    ),
    Message(
        code="ray-worker-gone",
        emitter="Ray",
        seen="Ray 1.x - 2.5x",
        anywhere=True,
        fatal=True,
        reads={
            "worker_pid": count,
            "exit_type": Reader("exit_type", r"(?!NODE_OUT)[A-Z_]{6,40}", str, ("SYSTEM_ERROR",)),
            "connection_error_code": count,
            "tail": words,
            "detail": words,
        },
        wordings=(
            "A worker died or was killed while executing a task by an unexpected system error¦.{tail} Worker PID:"
            " {worker_pid} Worker exit type: {exit_type} Worker exit detail: ¦{detail} connection error code"
            " {connection_error_code}.",
            "The actor died unexpectedly before finishing this task",
            "The worker died unexpectedly while executing this task",
            "The actor is dead because its worker process has died",
            "The task's local raylet died",
            "Worker unexpectedly exits with a connection error code {connection_error_code}. End of file",
        ),
        samples=(
            "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the"
            " problem, check the logs for the dead worker. Lease ID: 03 Worker ID: 38 Node ID: 82 Worker IP address:"
            " 10.0.0.12 Worker port: 10002 Worker PID: 48121 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker"
            " unexpectedly exits with a connection error code 2. End of file.",
            "The actor died unexpectedly before finishing this task.",
            "The worker died unexpectedly while executing this task. Check python-core-worker-*.log files for more"
            " information.",
            "The actor is dead because its worker process has died.",
            "The task's local raylet died.",
            "Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root"
            " causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
        ),
        means="A Ray worker is gone. The list of possible reasons behind it is the same whatever happened.",
    ),
)
