"""What Docker, containerd, Kubernetes and Slurm say about the end of a container, pod or job."""

from __future__ import annotations

from vllm_diag.event_types import ProcessDied
from vllm_diag.messages import Message
from vllm_diag.messages._readers import phrases
from vllm_diag.quantities import Amount, Reader, count, words

# A quantity as Kubernetes writes it.
_UNITS = {"": 1, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
          "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}  # fmt: skip


def _bytes(text: str) -> Amount:
    number = text.rstrip("KkMGTPim")
    return Amount(round(float(number) * _UNITS[text[len(number) :]]))


_quantity = Reader("quantity", r"\d{1,18}(?:\.\d{1,6})?(?:[KMGTP]i?|[mk])?", _bytes, ("100Mi", "63Gi"))
_container = Reader("container", r"[\w.-]{1,120}?", str, ("vllm",))
_volume = Reader("volume", r'[^"]{1,120}', str, ("dshm",))
_status = Reader("status", r"137(?!\d)", int, ("137",))
_detail = Reader("detail", r"[^()]{0,300}?", str, ("image=vllm/vllm-openai, ",))


def _not_kept(text: str) -> str:
    raise ValueError(text)


# A wrap can put this time at the start of a line, where it is one of the log's own.
_time = Reader("time", r"[\dT:.-]{8,40}", _not_kept, ("2026-11-30T20:50:24",))
_id = Reader("id", r"[0-9a-zA-Z_.-]{4,80}?", str, ("4f1c2b8d0a11",))

MESSAGES = (
    Message(
        code="exited-137",
        event=ProcessDied,
        emitter="docker compose, runtimes",
        fatal=True,
        always={"exit_code": -9},
        reads={"name": words, "status": _status, "id": _id, "detail": _detail},
        wordings=(
            "{name} exited with code {status}",
            "{name} ended with status {status}",
            "Exit Code: {status}",
            '⟨exitCode|"exitCode"|"ExitCode"⟩: {status}',
            "container die {id} ({detail}exitCode={status}",
        ),
        samples=(
            "vllm-1 exited with code 137",
            "engine ended with status 137",
            "      Exit Code:    137",
            "      exitCode: 137",
            '            "ExitCode": 137,',
            "container die 4f1c2b8d0a11 (execDuration=81, exitCode=137, image=vllm/vllm-openai)",
        ),
        means="A container or process ended by SIGKILL; not by whom.",
    ),
    Message(
        code="container-oom-killed",
        emitter="Docker, containerd, Kubernetes",
        fatal=True,
        reads={"name": words},
        wordings=(
            '⟨Reason|reason|"reason"⟩: ⟦"⟧OOMKilled',
            '"OOMKilled": true',
            "container oom ",
            "container init was OOM-killed",
            '⟦{{⟧⟨"status"|"Action"⟩:"oom"',
            "TaskOOM event",
            'topic⟨=|: ⟩⟦"⟧/tasks/oom',
        ),
        samples=(
            "      Reason:       OOMKilled",
            "        reason: OOMKilled",
            '            "OOMKilled": true,',
            "container oom 4f1c2b (image=vllm/vllm-openai)",
            "container init was OOM-killed (memory limit too low?)",
            '{"status":"oom","id":"4f1c2b","from":"vllm/vllm-openai"}',
            'TaskOOM event container_id:"4f1c2b"',
            "topic=/tasks/oom",
        ),
        means="The container's memory limit was hit and a process in it killed; not necessarily its first.",
    ),
    Message(
        code="pod-list-oom-killed",
        emitter="kubectl get pods",
        spaced=True,
        reads={
            "pod": Reader("pod", r"[a-z0-9][a-z0-9.-]{0,200}", str, ("vllm-7c9f-x2k",)),
            "ready": Reader("ready", r"\d{1,3}/\d{1,3}", str, ("0/1",)),
            "restarts": Reader("restarts", r"\d{1,6}(?:\s\([^()]{1,20}\))?", str, ("3 (2m ago)",)),
            "age": Reader("age", r"\S{1,20}(?:\s.{0,200})?", str, ("14m",)),
        },
        wordings=("{pod} {ready} OOMKilled {restarts} {age}",),
        samples=("vllm-7c9f-x2k   0/1     OOMKilled   3 (2m ago)   14m",),
        means="The pod's container was killed at its memory limit.",
    ),
    Message(
        code="not-oom-killed",
        emitter="Docker",
        wordings=('"OOMKilled": false',),
        samples=('            "OOMKilled": false,',),
        means="Docker saw no kill at the container's own limit; one on the machine or at a parent's limit it cannot see.",
    ),
    Message(
        code="container-stop-requested",
        emitter="Docker, Kubernetes",
        reads={"id": _id, "detail": _detail},
        wordings=("container ⟨kill|stop⟩ {id} ({detail}", "Stopping container {id}"),
        samples=(
            "container kill 4f1c2b8d0a11 (image=vllm/vllm-openai, name=vllm, signal=9)",
            "Stopping container vllm-server",
        ),
        means="A person, a tool or the kubelet asked for the end of the container.",
    ),
    Message(
        code="node-oom",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={"comm": Reader("comm", r"[^,]{1,64}?", str, ("VLLM::EngineCor",)), "pid": count},
        wordings=("System OOM encountered⟦, victim process: {comm}, pid: {pid}⟧",),
        samples=("System OOM encountered, victim process: VLLM::EngineCor, pid: 14822", "System OOM encountered"),
        means="The kubelet saw the kernel kill a process because the node was out of memory.",
    ),
    Message(
        code="pod-evicted",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={
            "resource": Reader("resource", r"memory|ephemeral-storage|inodes|pids", str, ("memory",)),
            "threshold": _quantity,
            "available": _quantity,
            "container": _container,
            "using": _quantity,
            "request": _quantity,
            "condition": phrases("condition", "MemoryPressure", "DiskPressure", "PIDPressure"),
        },
        wordings=(
            "The node was low on resource: {resource}¦.⟦ Threshold quantity: {threshold}, available: {available}.⟧"
            "⟦ Container {container} was using {using}, ⟨request is|which exceeds its request of⟩ {request}⟧",
            "The node had condition: [{condition}]",
        ),
        samples=(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 84Mi. Container vllm was using"
            " 61Gi, request is 32Gi, has larger consumption of memory.",
            "The node was low on resource: ephemeral-storage. Container vllm was using 91Gi, which exceeds its request"
            " of 0.",
            "The node had condition: [MemoryPressure].",
        ),
        means="The kubelet evicted or refused the pod because the node was short of this.",
    ),
    Message(
        code="pod-limits",
        emitter="kubectl describe",
        reads={
            "cpu": Reader("cpu", r"\d{1,6}(?:\.\d{1,3})?m?", str, ("8", "500m")),
            "storage": _quantity,
            "limit": _quantity,
        },
        wordings=("Limits:⟦ cpu: {cpu}⟧⟦ ephemeral-storage: {storage}⟧ memory: {limit}",),
        samples=("    Limits:\n      cpu:             8\n      memory:          64Gi\n      nvidia.com/gpu:  1",),
        means="The memory limit of a container.",
    ),
    Message(
        code="pod-volume-over-limit",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={"volume": _volume, "limit": _quantity, "container": _container},
        wordings=(
            'Usage of EmptyDir volume "{volume}" exceeds the limit "{limit}"',
            'Container {container} exceeded its local ephemeral storage limit "{limit}"',
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}",
        ),
        samples=(
            'Usage of EmptyDir volume "dshm" exceeds the limit "2Gi".',
            'Container vllm exceeded its local ephemeral storage limit "20Gi".',
            "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi.",
        ),
        means="The kubelet evicted the pod: a volume or its files outgrew their limit; no kill for want of memory.",
    ),
    Message(
        code="pod-note",
        emitter="kubelet, Kubernetes scheduler",
        reads={
            "container": words,
            "probe": phrases("probe", "Liveness", "Readiness", "Startup"),
            "reason": words,
            "nodes": words,
        },
        wordings=(
            "Back-off restarting failed container",
            "{probe} probe failed: ",
            "{nodes} nodes are available: {reason} Insufficient memory",
        ),
        samples=(
            "Back-off restarting failed container vllm in pod vllm-0_default(3f1c)",
            "Liveness probe failed: HTTP probe failed with statuscode: 503",
            "0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available",
        ),
        means="What Kubernetes does about a container that fails or does not fit; by itself no reason.",
    ),
    Message(
        code="probe-restart",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={"container": _container, "probe": phrases("probe", "startup", "liveness")},
        wordings=("Container {container} failed {probe} probe, will be restarted",),
        samples=("Container vllm failed startup probe, will be restarted",),
        means="Kubernetes restarts the container because it did not answer in time.",
    ),
    # --- Slurm --------------------------------------------------------------------------------
    Message(
        code="slurm-oom-kill",
        emitter="Slurm",
        fatal=True,
        reads={
            "kills": count,
            "step": Reader("step", r"[\d.]{1,30}(?:batch|extern|interactive)?", str, ("4711.0",)),
            "node": Reader("node", r"[\w.-]{1,80}?", str, ("gpu-3",)),
            "task": count,
            "used": count,
            "limit": count,
        },
        wordings=(
            "⟦slurmstepd: ⟧⟦error: ⟧Detected {kills} ⟨oom-kill|oom_kill⟩ event⟦(⟧⟦s⟧⟦)⟧ in ⟨step |StepId=⟩{step}",
            "⟦srun: ⟧error: {node}: task {task}: Out Of Memory",
            "⟦slurmstepd: ⟧⟦error: ⟧Exceeded ⟨job|step⟩ memory limit",
            "⟦slurmstepd: ⟧⟦error: ⟧⟨Job|Step⟩ {step} exceeded memory limit ({used} > {limit}), being killed",
            "State: OUT_OF_MEMORY",
        ),
        samples=(
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4711.0 cgroup. Some of your processes may have"
            " been killed by the cgroup out-of-memory handler.",
            "slurmstepd: error: Detected 1 oom-kill event(s) in step 4711.batch cgroup. Some of your processes",
            "Detected 2 oom_kill events in StepId=4711.0. Some of the step tasks have been OOM Killed.",
            "srun: error: gpu-3: task 0: Out Of Memory",
            "slurmstepd: error: Exceeded job memory limit",
            "slurmstepd: error: Job 4711 exceeded memory limit (67110912 > 67108864), being killed",
            "State: OUT_OF_MEMORY (exit code 0)",
        ),
        means="The job step's memory limit was hit and a process killed.",
    ),
    Message(
        code="slurm-accounting-oom",
        emitter="Slurm sacct",
        fatal=True,
        anywhere=True,
        reads={"exit": Reader("exit", r"\d{1,3}:\d{1,3}", str, ("0:125",))},
        wordings=("OUT_OF_ME+ {exit}", "OUT_OF_MEMORY {exit}"),
        samples=("4711.batch      batch    gpu          16 OUT_OF_ME+    0:125", "4711|OUT_OF_MEMORY 0:125"),
        means="Slurm's record says that the step ran out of its memory.",
    ),
    Message(
        code="slurm-task-killed",
        event=ProcessDied,
        emitter="Slurm",
        fatal=True,
        always={"exit_code": -9},
        reads={"node": Reader("node", r"[\w.-]{1,80}?", str, ("gpu-3",)), "task": count},
        wordings=("⟦srun: ⟧error: {node}: task {task}: Killed",),
        samples=("srun: error: gpu-3: task 0: Killed",),
        means="A task of the step got SIGKILL; not by whom.",
    ),
    Message(
        code="slurm-cancelled",
        emitter="Slurm",
        reads={
            "job": Reader("job", r"[\d.]{1,30}", str, ("4711", "4711.0")),
            "node": Reader("node", r"[\w.-]{1,80}?", str, ("gpu-3",)),
            "time": _time,
            "reason": phrases("reason", "TIME LIMIT", "PREEMPTION", "NODE FAILURE", "JOB REQUEUE"),
        },
        wordings=("⟦slurmstepd: ⟧⟦error: ⟧*** ⟨JOB|STEP⟩ {job} ON {node} CANCELLED AT ⟦{time}⟧¦ DUE TO {reason}",),
        samples=("slurmstepd: error: *** JOB 4711 ON gpu-3 CANCELLED AT 2026-11-30T20:50:24 DUE TO TIME LIMIT ***",),
        means="The job was ended on request or by a rule of the cluster, not for want of memory.",
    ),
)
