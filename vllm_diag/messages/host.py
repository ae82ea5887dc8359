"""What shells, service managers, containers and Ray say about the end of a process.

And what the system says about shared memory, memory maps and disks.
"""

from __future__ import annotations

from vllm_diag.event_types import HostAllocationFailed, ProcessDied, ShmShort
from vllm_diag.messages import Message
from vllm_diag.quantities import Reader, count, integer, number, raw_bytes, size, words

_unit = Reader("unit", r"[\w@:.\\-]{1,120}?\.(?:service|scope|slice)", str, ("vllm.service",))
# A size as df -h prints it; "0" has no unit.
_df = Reader(
    "df_size",
    r"\d{1,6}(?:\.\d)?[KMGT]|0(?=[\dKMGT])",
    lambda text: size.read(text + ("B" if text == "0" else "")),
    ("64M",),
)
_path = Reader("path", r"[^\s'\"<>,]{1,300}?", str, ("/dev/shm/nccl-Zk3A1b",))

MESSAGES = (
    Message(
        code="killed",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -9},
        whole_line=True,
        fatal=True,
        wordings=("Killed",),
        samples=("Killed",),
        means="A process got SIGKILL; not by whom.",
    ),
    Message(
        code="killed-command",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -9},
        fatal=True,
        reads={"script": words, "line": count, "pid": count, "command": words},
        wordings=("{script}: line {line}: {pid} Killed",),
        samples=("./entrypoint.sh: line 28:     7 Killed                  python3 -m vllm.entrypoints.api_server",),
        means="A command of a script got SIGKILL; not by whom.",
    ),
    Message(
        code="exited-137",
        event=ProcessDied,
        emitter="docker compose, runtimes",
        always={"exit_code": -9},
        fatal=True,
        reads={"name": words, "status": Reader("status", r"137(?!\d)", int, ("137",))},
        wordings=("{name} exited with code {status}", "{name} ended with status {status}", "Exit Code: {status}"),
        samples=("vllm-1 exited with code 137", "engine ended with status 137", "      Exit Code:    137"),
        means="A container or process ended by SIGKILL; not by whom.",
    ),
    Message(
        code="container-oom-killed",
        emitter="Docker, containerd, Kubernetes",
        fatal=True,
        reads={"name": words},
        wordings=(
            "Reason: OOMKilled",
            '"OOMKilled": true',
            "container oom ",
            "container init was OOM-killed",
        ),
        samples=(
            "      Reason:       OOMKilled",
            '            "OOMKilled": true,',
            "container oom 4f1c2b (image=vllm/vllm-openai)",
            "container init was OOM-killed (memory limit too low?)",
        ),
        means="The container's memory limit was hit and a process in it killed.",
    ),
    Message(
        code="unit-oom-killed",
        emitter="systemd",
        fatal=True,
        reads={"unit": _unit},
        wordings=(
            "{unit}: A process of this unit has been killed by the OOM killer",
            "{unit}: The kernel OOM killer killed some processes in this unit",
            "{unit}: Failed with result 'oom-kill'",
        ),
        samples=(
            "vllm.service: A process of this unit has been killed by the OOM killer.",
            "vllm.service: The kernel OOM killer killed some processes in this unit.",
            "vllm.service: Failed with result 'oom-kill'.",
        ),
        means="systemd saw the kernel kill a process of the unit for want of memory.",
    ),
    Message(
        code="oomd-killed",
        emitter="systemd-oomd",
        fatal=True,
        reads={"unit": _unit, "count": count, "cgroup": _path, "limit_cgroup": _path},
        wordings=(
            "{unit}: systemd-oomd killed ⟨some|{count}⟩ process(es) in this unit",
            "Killed {cgroup} due to memory ⟨pressure for|used (⟩",
            "Marked {cgroup} for killing due to memory",
        ),
        samples=(
            "vllm.service: systemd-oomd killed some process(es) in this unit.",
            "Killed /user.slice/user-1000.slice/app.slice/vllm.service due to memory pressure for /user.slice being"
            " 61.52% > 50.00% for > 20s with reclaim activity",
            "Marked /system.slice/vllm.service for killing due to memory pressure",
        ),
        means="The user-space daemon systemd-oomd killed the unit; the kernel log is silent about it.",
    ),
    Message(
        code="unit-killed",
        event=ProcessDied,
        emitter="systemd",
        always={"exit_code": -9},
        fatal=True,
        reads={"unit": _unit},
        wordings=("{unit}: Main process exited, code=killed, status=9/KILL",),
        samples=("vllm.service: Main process exited, code=killed, status=9/KILL",),
        means="The unit's main process got SIGKILL; not by whom.",
    ),
    Message(
        code="unit-restart",
        emitter="systemd",
        reads={"unit": _unit, "restarts": count},
        wordings=("{unit}: Scheduled restart job, restart counter is at {restarts}",),
        samples=("vllm.service: Scheduled restart job, restart counter is at 3.",),
        means="systemd restarts the unit.",
    ),
    Message(
        code="unit-started",
        emitter="systemd",
        reads={"unit": words},
        wordings=("Started {unit}.service",),
        samples=("Started vllm.service - vLLM server.",),
        means="systemd started the unit.",
    ),
    Message(
        code="unit-stopping",
        emitter="systemd",
        reads={"unit": words},
        wordings=("Stopping {unit}.service", "Stopped {unit}.service"),
        samples=("Stopping vllm.service - vLLM server...", "Stopped vllm.service - vLLM server."),
        means="The unit is stopped on request.",
    ),
    Message(
        code="earlyoom-kill",
        emitter="earlyoom",
        fatal=True,
        reads={"signal": Reader("signal", r"SIG(?:TERM|KILL)", str, ("SIGTERM", "SIGKILL")), "pid": count},
        wordings=("sending {signal} to process {pid}",),
        samples=('sending SIGTERM to process 14822 uid 0 "VLLM::EngineCor": oom_score 1210, VmRSS 30473 MiB',),
        means="The daemon earlyoom ends a process because memory is low.",
    ),
    Message(
        code="slurm-oom-kill",
        emitter="Slurm",
        fatal=True,
        reads={"events": count, "step": words, "node": words, "task": count},
        wordings=(
            "⟦slurmstepd: ⟧error: Detected {events} ⟨oom-kill|oom_kill⟩ event⟦(⟧⟦s⟧⟦)⟧ in",
            "Detected {events} ⟨oom-kill|oom_kill⟩ event⟦(⟧⟦s⟧⟦)⟧ in",
        ),
        samples=(
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4711.0 cgroup. Some of your processes may have"
            " been killed by the cgroup out-of-memory handler.",
            "Detected 2 oom_kill events in StepId=4711.0. Some of the step tasks have been OOM Killed.",
        ),
        means="The job step's memory limit was hit and a process killed.",
    ),
    Message(
        code="pod-evicted",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={"resource": Reader("resource", r"memory|ephemeral-storage|inodes|pids", str, ("memory",))},
        wordings=("The node was low on resource: {resource}",),
        samples=("The node was low on resource: memory. Threshold quantity: 100Mi, available: 84Mi.",),
        means="The kubelet evicted the pod.",
    ),
    Message(
        code="ray-oom-kill",
        emitter="Ray",
        fatal=True,
        anywhere=True,
        reads={
            "workers": Reader("workers", r"[1-9]\d{0,6}", int, ("2", "1")),
            "crashed": count,
            "used": number,
            "total": number,
        },
        wordings=(
            "Task was killed due to the node running low on memory",
            "{workers} worker(s) were killed due to the node running low on memory",
            "Refer to the documentation on how to address the out of memory issue",
            "{workers} Workers (tasks / actors) killed due to memory pressure (OOM)¦, {crashed} Workers crashed",
        ),
        samples=(
            "Task was killed due to the node running low on memory.",
            "1 worker(s) were killed due to the node running low on memory.",
            "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/",
            "2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
        ),
        means="Ray's memory monitor killed a worker; the kernel log is silent about it.",
    ),
    Message(
        code="ray-memory-use",
        emitter="Ray",
        reads={
            "used": Reader("used", r"\d{1,6}\.\d{1,4}", float, ("61.52",)),
            "total": Reader("total", r"\d{1,6}\.\d{1,4}", float, ("62.80",)),
            "fraction": number,
            "threshold": number,
            "where": words,
        },
        anywhere=True,
        wordings=(
            "was running was {used}GB / {total}GB ({fraction}), which exceeds the memory usage threshold of"
            " {threshold}",
        ),
        samples=(
            "Memory on the node (IP: 10.0.0.11, ID: b) where the task (task ID: f, name=RayWorkerWrapper, pid=4711,"
            " memory used=30.10GB) was running was 61.52GB / 62.80GB (0.979618), which exceeds the memory usage"
            " threshold of 0.95.",
        ),
        means="Memory of the node when Ray killed a worker.",
    ),
    # --- shared memory --------------------------------------------------------------------
    Message(
        code="bus-error",
        event=ProcessDied,
        emitter="shell, faulthandler",
        always={"exit_code": -7},
        fatal=True,
        reads={"pid": count, "script": words, "line": count},
        wordings=(
            "Bus error (core dumped)",
            "Fatal Python error: Bus error",
            "{script}: line {line}: {pid} Bus error",
        ),
        samples=(
            "Bus error (core dumped)",
            "Fatal Python error: Bus error",
            "run.sh: line 12:  4711 Bus error               (core dumped) vllm serve m",
        ),
        means="A process touched a mapped page that could not be provided: full /dev/shm, or a truncated file.",
    ),
    Message(
        code="bus-error-bare",
        event=ProcessDied,
        emitter="shell",
        always={"exit_code": -7},
        fatal=True,
        whole_line=True,
        wordings=("Bus error",),
        samples=("Bus error",),
        means="A process touched a mapped page that could not be provided.",
    ),
    Message(
        code="shm-full",
        event=ShmShort,
        emitter="NCCL, PyTorch, Python",
        fatal=True,
        anywhere=True,
        reads={"path": _path, "required": raw_bytes, "free": raw_bytes, "size": raw_bytes, "line": count},
        wordings=(
            "Error while creating shared memory segment {path} (size {required})¦, error: No space left on device",
            "Error: failed to extend {path} to {required} bytes",
            "Call to posix_fallocate failed⟦ ⟧: No space left on device",
            "unable to allocate shared memory(shm) for file <{path}>: ⟨No space left on device|Resource temporarily"
            " unavailable⟩",
            "unable to write to file <{path}>",
            "System memory request exceeds memory available in /dev/shm¦. The request is for {required} bytes, and the amount"
            " available is {free} bytes",
        ),
        samples=(
            "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Zk3A1b to 7340384 bytes, error: No"
            " space left on device (28)",
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "Error while creating shared memory segment /dev/shm/nccl-Zk3A1b (size 7340384), error: No space left on"
            " device (28)",
            "unable to allocate shared memory(shm) for file </torch_4711_1_0>: No space left on device (28)",
            "unable to write to file </torch_4711_1_0>",
            "System memory request exceeds memory available in /dev/shm.",
        ),
        means="/dev/shm is full.",
    ),
    Message(
        code="shm-size",
        emitter="df",
        reads={
            "size": _df,
            "used": _df,
            "free": _df,
            "percent": count,
        },
        wordings=("shm {size}¦ {used} {free} {percent}% /dev/shm",),
        samples=("shm              64M     0   64M   0% /dev/shm",),
        means="Size of /dev/shm as df shows it.",
    ),
    Message(
        code="no-space-left",
        emitter="Python, libraries",
        fatal=True,
        anywhere=True,
        reads={"path": _path, "errno": Reader("errno", "28", int, ("28",))},
        wordings=("[Errno {errno}] No space left on device¦: '{path}'", "No space left on device (os error 28)"),
        samples=(
            "[Errno 28] No space left on device: '/root/.cache/huggingface/hub/x'",
            "[Errno 28] No space left on device",
            "No space left on device (os error 28)",
        ),
        means="A file system is full; the path or the caller tells which.",
    ),
    # --- host memory ----------------------------------------------------------------------
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
        emitter="Python, C++, Rust, libc",
        fatal=True,
        reads={"tried": raw_bytes, "what": words},
        wordings=(
            "[Errno 12] Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "std::bad_alloc",
            "memory allocation of {tried} bytes failed",
        ),
        samples=(
            "[Errno 12] Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "std::bad_alloc",
            "memory allocation of 1073741824 bytes failed",
        ),
        means="Host memory was refused.",
    ),
    Message(
        code="out-of-fork-limits",
        emitter="libc, Python",
        reads={"exit_code": integer},
        wordings=("can't start new thread", "libgomp: Thread creation failed: Resource temporarily unavailable"),
        samples=("can't start new thread", "libgomp: Thread creation failed: Resource temporarily unavailable"),
        means="A limit on threads or processes, not on memory.",
    ),
)
