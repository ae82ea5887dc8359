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
_address = Reader("address", r"[\w.:<>\[\]-]{1,120}?", str, ("gpu-4<51234>", "10.0.0.12<51234>"))
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
        code="nccl-peer-refused",
        emitter="NCCL",
        anywhere=True,
        reads={"device": count, "bus": _hex, "number": count, "error": cuda_text, "interface": path},
        wordings=(
            "failed to peer with device {device}(={bus}): {number} {error}",
            "cudaIpcGetMemHandle failed : {error}",
            "no device found matching {interface}, verify NCCL_",
        ),
        samples=(
            "failed to peer with device 1(=41000): 217 peer access is not supported between these two devices",
            "cudaIpcGetMemHandle failed : invalid argument",
            "NCCL WARN no device found matching eth9, verify NCCL_OOB_NET_IFNAME",
        ),
        means="NCCL cannot connect two devices, or does not find the network interface it was told to use.",
    ),
    Message(
        code="peer-gone",
        emitter="NCCL, torch.distributed",
        anywhere=True,
        reads={"host": _address, "errno": count, "attempts": count},
        wordings=(
            "Connection closed by remote peer {host}",
            "connect to {host} returned {errno}, exceeded error retry count after {attempts} attempts",
            "recvValue failed on ",
            "Failed to recv, got 0 bytes. Connection was likely closed",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely",
        ),
        samples=(
            "socketProgress: Connection closed by remote peer gpu-4<51234>",
            "socketPollConnect: connect to 10.0.0.12<51234> returned 111, exceeded error retry count after 34 attempts",
            "recvValue failed on SocketImpl(fd=45, addr=[localhost]:51234, remote=[localhost]:29500): failed to recv",
            "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        ),
        means="Another rank has gone or cannot be reached; a consequence, the reason is that rank's.",
    ),
    Message(
        code="distributed-notice",
        emitter="torch.distributed, NCCL",
        anywhere=True,
        wordings=(
            "destroy_process_group() was not called before program exit",
            "Guessing device ID based on global rank",
            "Proceeding without NVLS support",
            "NET/IB : No device found.",
            "NET/Plugin: Could not find: libnccl-net.so",
            "cuMem host allocations do not appear to be working; falling back to a /dev/shm/",
            "Could not enable P2P",
            "ncclUnhandledCudaError: Call to CUDA function failed",
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
            "ncclInternalError: Internal check failed",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library",
            "Some NCCL operations have failed or timed out",
            "we are taking the entire process down",
        ),
        samples=(
            "WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
            "Guessing device ID based on global rank. This can cause a hang if rank to GPU mapping is heterogeneous.",
            "NCCL INFO Failed to bind NVLink SHARP (NVLS) memory. Proceeding without NVLS support.",
            "NCCL INFO NET/IB : No device found.",
            "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
            "NCCL INFO cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based solution.",
            "NCCL INFO Could not enable P2P between dev 1(=42000) and dev 0(=41000)",
            "ncclUnhandledCudaError: Call to CUDA function failed.",
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            "ncclInternalError: Internal check failed.",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels",
            "To avoid data inconsistency, we are taking the entire process down.",
        ),
        means="A remark of the communication libraries: harmless, or the echo of an error that stands beside it.",
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
