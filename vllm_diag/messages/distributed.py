"""What NCCL, torch.distributed, vLLM's executors and Ray say about ranks that fail or wait.

A text of NCCL or of a store usually names the victim: the rank that failed first, and the
reason, stand in another line, another process's output or another machine's log.
"""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages._readers import path, phrases
from vllm_diag.messages.gpu_runtime import cuda_text
from vllm_diag.quantities import Reader, count, words

_nccl = phrases(
    "error",
    "unhandled cuda error",
    "unhandled system error",
    "internal error - please report this issue to the NCCL developers",
    "internal error",
    "invalid argument",
    "invalid usage",
    "remote process exited or there was a network error",
    "timeout",
)
_host = Reader("host", r"[\w.:\[\]-]{1,120}?", str, ("10.0.0.11", "127.0.0.1"))


def _in_seconds(text: str) -> float:
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


_period = Reader("period", r"\d{1,12}(?:\.\d{1,6})?m?s", _in_seconds, ("600000ms", "60s"))
_seconds = Reader("seconds", r"\d{1,9}(?:\.\d{1,6})?", float, ("60", "600"))
_hex = Reader("hex", r"[0-9a-fA-FxX]{1,20}", str, ("41000",))

MESSAGES = (
    Message(
        code="nccl-error",
        emitter="torch.distributed, vLLM's NCCL binding",
        seen="NCCL 2.x, vLLM 0.4.1 - 0.33.0",
        anywhere=True,
        fatal=True,
        reads={
            "error": _nccl,
            "place": path,
            "level": words,
            "version": Reader("version", r"\d[\d.]{0,12}\d", str, ("2.27.3",)),
        },
        wordings=(
            "NCCL error: {error}",
            "NCCL error in: {place}, {error}¦⟦ (run with NCCL_DEBUG={level} for details)⟧, NCCL version {version}",
        ),
        samples=(
            "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, remote process exited or there was a"
            " network error, NCCL version 2.27.3",
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, unhandled cuda error (run"
            " with NCCL_DEBUG=INFO for details), NCCL version 2.26.2",
        ),
        means="A call into NCCL failed; the text gives the kind only, the reason is in `Last error` or NCCL's log.",
    ),
    Message(
        code="nccl-setup-error",
        emitter="NCCL",
        seen="NCCL 2.x",
        anywhere=True,
        reads={"rank_a": count, "rank_b": count, "bus": _hex, "version": words},
        wordings=(
            "Duplicate GPU detected : rank {rank_a} and rank {rank_b} both on CUDA device {bus}",
            "Multiple Ranks are using the same GPU/Partition.",
            "Bootstrap : no socket interface found",
            "Mismatched NCCL version detected",
        ),
        samples=(
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 41000",
            "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this"
            " configuration.",
            "Bootstrap : no socket interface found",
            "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22605",
        ),
        means="NCCL refuses the way the ranks are laid out or connected.",
    ),
    Message(
        code="nvls-failed",
        emitter="NCCL",
        seen="NCCL 2.2x",
        anywhere=True,
        fatal=True,
        reads={"number": count, "size": count},
        wordings=(
            "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size {size} : CUDA error {number}",
        ),
        samples=(
            "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4194304 : CUDA error 401 'the"
            " operation cannot be performed in the present state'.",
        ),
        means="NVSwitch multicast could not be set up: fabric manager or IMEX are not in order.",
    ),
    Message(
        code="collective-timeout",
        emitter="torch.distributed watchdog",
        anywhere=True,
        fatal=True,
        reads={
            "sequence": count,
            "operation": Reader("operation", r"\w{2,40}", str, ("ALLREDUCE",)),
            "inputs": count,
            "outputs": count,
            "timeout_ms": count,
            "ran_ms": count,
        },
        wordings=(
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType={operation}¦,"
            " NumelIn={inputs}, NumelOut={outputs}, Timeout(ms)={timeout_ms}) ran for {ran_ms} milliseconds"
            " before timing out",
        ),
        samples=(
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=118, OpType=ALLREDUCE, NumelIn=8388608,"
            " NumelOut=8388608, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.",
        ),
        means="One rank never arrived at a collective: it died, hangs, or is still loading or compiling.",
    ),
    Message(
        code="watchdog-abort",
        emitter="torch.distributed watchdog",
        anywhere=True,
        fatal=True,
        wordings=(
            "Process group watchdog thread terminated with exception",
            "c10d::ProcessGroupNCCL::ncclCommWatchdog()",
        ),
        samples=(
            "Process group watchdog thread terminated with exception: NCCL communicator was aborted",
            "c10d::ProcessGroupNCCL::ncclCommWatchdog()",
        ),
        means="The watchdog of a process group ended the process because an earlier call on the GPU had failed.",
    ),
    Message(
        code="rendezvous-failed",
        emitter="torch.distributed, Gloo",
        anywhere=True,
        fatal=True,
        reads={"seconds": _seconds, "period": _period, "host": _host, "port": count, "joined": count, "clients": count},
        wordings=(
            "The client socket has timed out after {period} while trying to connect to ({host}, {port})",
            "The client socket has failed to connect to any network address of ({host}, {port})",
            "Timed out after {seconds} seconds waiting for clients. {joined}/{clients} clients joined",
            "Gloo connectFullMesh failed with",
            "wait timeout after {period}, keys:",
        ),
        samples=(
            "The client socket has timed out after 600000ms while trying to connect to (10.0.0.11, 29500).",
            "The client socket has failed to connect to any network address of (10.0.0.11, 29500).",
            "Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            "wait timeout after 600000ms, keys: /default_pg/0//cuda//timeline_0",
        ),
        means="A rank could not reach the others when the group was set up.",
    ),
    Message(
        code="rendezvous-port-taken",
        emitter="torch.distributed",
        anywhere=True,
        fatal=True,
        reads={"port": count, "flag": words, "address": words},
        wordings=(
            "The server socket has failed to listen on any local network address. port: {port}, useIpv6: {flag},"
            " code: -98",
            "The server socket has failed to bind to {address} (errno: 98",
        ),
        samples=(
            "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code:"
            " -98, name: EADDRINUSE, message: address already in use",
            "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        ),
        means="The port at which the ranks meet is taken; not the port of the API.",
    ),
    Message(
        code="custom-allreduce-error",
        emitter="vLLM's custom all-reduce",
        seen="0.3.0 - 0.33.0",
        anywhere=True,
        fatal=True,
        reads={
            "file": Reader(
                "file",
                r"[\w./-]{0,200}custom_all_?reduce[\w.]{0,16}",
                lambda t: t.rsplit("/", 1)[-1],
                ("/workspace/csrc/custom_all_reduce.cuh",),
            ),
            "line": count,
            "error": cuda_text,
        },
        wordings=("Failed: ⟦Cuda error ⟧{file}:{line} '{error}'",),
        samples=(
            "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
            "Failed: /opt/src/csrc/custom_all_reduce.cuh:346 'invalid resource handle'",
        ),
        means="vLLM's own all-reduce could not share buffers between the GPUs; the process exits at once.",
    ),
    Message(
        code="frontend-timeout",
        emitter="vLLM front end (V0)",
        seen="0.6.2 - 0.10.2",
        fatal=True,
        reads={"milliseconds": count},
        wordings=("⟨MQLLMEngine|RPCServer⟩ didn't reply within {milliseconds}⟦ ⟧ms",),
        samples=("MQLLMEngine didn't reply within 10000ms", "RPCServer didn't reply within 5000 ms"),
        means="The engine process did not answer the front end in time.",
    ),
    Message(
        code="probe-restart",
        emitter="kubelet",
        fatal=True,
        anywhere=True,
        reads={
            "container": Reader("container", r"[\w.-]{1,120}?", str, ("vllm",)),
            "probe": phrases("probe", "startup", "liveness"),
        },
        wordings=("Container {container} failed {probe} probe, will be restarted",),
        samples=("Container vllm failed startup probe, will be restarted",),
        means="Kubernetes restarts the container because it did not answer in time.",
    ),
    # --- Ray ----------------------------------------------------------------------------------
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
            "exit_type": Reader("exit_type", r"[A-Z_]{6,40}", str, ("SYSTEM_ERROR",)),
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
        ),
        means="A Ray worker is gone. The list of possible reasons behind it is the same whatever happened.",
    ),
    Message(
        code="segmentation-fault",
        emitter="libc, faulthandler, NCCL, Ray",
        fatal=True,
        reads={"time": words, "pid": count, "script": words, "line": count},
        wordings=(
            "Fatal Python error: Segmentation fault",
            "Segmentation fault (core dumped)",
            "!!!!!!! Segfault encountered !!!!!!!",
            "*** SIGSEGV received at",
        ),
        samples=(
            "Fatal Python error: Segmentation fault",
            "Segmentation fault (core dumped)",
            "!!!!!!! Segfault encountered !!!!!!!",
            "*** SIGSEGV received at time=1735812000 on cpu 3 ***",
        ),
        means="A process crashed in native code.",
    ),
)
