"""vLLM's life cycle: who starts, with what, who dies, and what others say about it.

The texts of a cascade ("See root cause above") are consequences by definition; they are
events so that a report can say what followed from a cause, and so that a log that holds
nothing else is recognised as such.
"""

from __future__ import annotations

import re

from vllm_diag import settings
from vllm_diag.event_types import ProcessDied, Settings, Version
from vllm_diag.messages import Message
from vllm_diag.quantities import Reader, count, integer, number, words

_version = Reader(
    "version",
    r"\d{1,4}(?:\.\d{1,6}){1,3}(?:\.?(?:post|rc|dev|a|b)\d{1,8})*(?:\+[0-9a-z.]{1,40}?)?(?![\d.])",
    str,
    ("0.11.0", "0.8.5.post1", "0.15.1", "0.9.2rc1"),
)
_engine = Reader("engine", r"V[01]", str.lower, ("V1", "V0"))
_dump = Reader("settings", r".{0,16000}", settings.parse, ("{'max_model_len': 8192, 'model': 'm'}",))
_model = Reader("model", r"[\w./:@+-]{1,300}", str, ("/models/tiny", "Qwen/Qwen3-8B"))
_name = Reader("process", r"[\w:,.-]{1,60}?", str, ("VllmWorker-0", "EngineCore_DP0"))


def _exit_codes(text: str) -> int | None:
    """Return the first exit code other than 0 in a printed dict of process names."""
    codes = [int(code) for code in re.findall(r":(-?\d{1,5})", text)]
    return next((code for code in codes if code), None)


_procs = Reader("exit_code", r"\{.{0,400}?\}", _exit_codes, ("{'EngineCore': -9}", "{}"))

MESSAGES = (
    Message(
        code="platform-detected",
        emitter="vLLM platforms",
        seen="0.7.0 - 0.33.0 (DEBUG from 0.11.1)",
        reads={"platform": Reader("platform", r"[a-z]{2,12}", str, ("cuda", "cpu", "rocm"))},
        wordings=("Automatically detected platform {platform}",),
        samples=("Automatically detected platform cuda.",),
        means="The device type vLLM will use.",
    ),
    Message(
        code="server-version",
        event=Version,
        emitter="vLLM api_server",
        seen="0.4.0 - 0.33.0",
        reads={"version": _version, "model": _model},
        wordings=(
            "vLLM ⟨API |gRPC |⟩server version {version}¦, serving model {model}",
            "▄▄ ▄█ █ █ █ ▀▄▀ █ version {version}",
        ),
        samples=(
            "vLLM API server version 0.11.0",
            "vLLM server version 0.15.1, serving model /models/tiny-llama-4l",
            " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        ),
        means="An API server starts and names its release.",
    ),
    Message(
        code="server-model",
        event=Version,
        emitter="vLLM api_server (logo)",
        seen="0.15.1 - 0.33.0",
        reads={"model": _model},
        wordings=("█▄█▀ █ █ █ █ model {model}",),
        samples=("  █▄█▀ █     █     █     █  model   /models/tiny-llama-4l",),
        means="The model an API server is about to serve.",
    ),
    Message(
        code="arguments",
        event=Settings,
        emitter="vLLM api_server",
        seen="0.1.4 - 0.33.0",
        reads={"settings": _dump},
        always={"explicit": False},
        wordings=("args: {settings}",),
        samples=("args: Namespace(host='127.0.0.1', port=8000, model='/models/m', max_model_len=8192)",),
        means="All arguments of the server, defaults included.",
    ),
    Message(
        code="non-default-arguments",
        event=Settings,
        emitter="vLLM api_server",
        seen="0.9.0 - 0.33.0",
        reads={"settings": _dump},
        always={"explicit": True},
        wordings=("non-default args: {settings}",),
        samples=("non-default args: {'model': '/models/m', 'max_model_len': 131072}",),
        means="The arguments that were given.",
    ),
    Message(
        code="engine-starting",
        event=Settings,
        emitter="vLLM engine",
        seen="0.1.4 - 0.33.0",
        reads={"version": _version, "engine": _engine, "settings": _dump},
        wordings=("Initializing ⟨an|a⟩ ⟦{engine} ⟧LLM engine⟦ (v{version})⟧ with config: {settings}",),
        samples=(
            "Initializing an LLM engine with config: model='m', dtype=torch.float16, max_seq_len=4096",
            "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen2.5-7B-Instruct',"
            " dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1",
            "Initializing a V0 LLM engine (v0.8.5) with config: model='m', max_seq_len=131072",
        ),
        means="An engine starts, with its configuration.",
    ),
    Message(
        code="engine-input-dump",
        emitter="vLLM engine",
        seen="0.9.0 - 0.33.0",
        wordings=("Dumping input data for V1 LLM engine", "Dumping scheduler output for model execution"),
        samples=(
            "Dumping input data for V1 LLM engine (v0.11.0) with config: model='m'",
            "Dumping scheduler output for model execution: SchedulerOutput(",
        ),
        means="A step failed and its input is dumped; prompts may follow.",
    ),
    Message(
        code="batch-limit",
        emitter="vLLM engine arguments",
        seen="0.6.5 - 0.33.0",
        reads={"max_num_batched_tokens": count, "max_num_seqs": count},
        wordings=(
            "⟨Setting|Defaulting⟩ max_num_batched_tokens to {max_num_batched_tokens} for",
            "⟨Setting|Defaulting⟩ max_num_seqs to {max_num_seqs} for",
            "Chunked prefill is enabled with max_num_batched_tokens={max_num_batched_tokens}",
        ),
        samples=(
            "Setting max_num_batched_tokens to 8192 for OPENAI_API_SERVER usage context.",
            "Defaulting max_num_seqs to 256 for LLM_CLASS usage context.",
            "Chunked prefill is enabled with max_num_batched_tokens=2048.",
        ),
        means="The batch limits in force.",
    ),
    Message(
        code="server-ready",
        emitter="uvicorn, vLLM",
        wordings=("Application startup complete.", "Uvicorn running on ⟨http|socket|unix⟩"),
        samples=("Application startup complete.", "Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)"),
        means="The server is up.",
    ),
    Message(
        code="server-starting-http",
        emitter="vLLM api_server",
        wordings=("Starting vLLM API server", "Starting vLLM server on"),
        samples=("Starting vLLM API server 0 on http://0.0.0.0:8000", "Starting vLLM server on http://0.0.0.0:8000"),
        means="The engine is up and the HTTP server starts.",
    ),
    Message(
        code="shutdown",
        emitter="vLLM, uvicorn",
        wordings=(
            "Shutting down FastAPI HTTP server",
            "[shutdown] API server: shutdown triggered",
            "[shutdown] EngineCore: trigger received signal=",
            "Shutdown initiated (timeout=",
            "Shutting down",
            "Finished server process [",
            "Received SIGTERM",
            "Received SIGINT",
            "Gracefully stopping",
        ),
        samples=(
            "Shutting down FastAPI HTTP server.",
            "[shutdown] API server: shutdown triggered",
            "[shutdown] EngineCore: trigger received signal=SIGTERM",
            "Shutdown initiated (timeout=0)",
            "Shutting down",
            "Finished server process [8673]",
            "Received SIGTERM",
            "Received SIGINT",
            "Gracefully stopping http server",
        ),
        means="The server stops in an orderly way.",
    ),
    Message(
        code="shutdown-detail",
        emitter="vLLM",
        seen="0.10.2 - 0.33.0",
        wordings=(
            "[shutdown] ⟨Executor|Process manager|MPClient: start|MPClient: stopping|MPClient: engine manager"
            "|MPClient: cleaning|MPClient: complete|force killing|API server: engine|API server: signalling"
            "|API server: shutting⟩",
            "WorkerProc ⟨shutting down|was terminated⟩",
            "Parent process exited, terminating worker",
        ),
        samples=(
            "[shutdown] Executor: waiting for worker exit count=1",
            "[shutdown] Process manager: force killing remaining processes count=1",
            "[shutdown] MPClient: complete",
            "[shutdown] force killing sub process VLLM::Worker pid 16682",
            "WorkerProc shutting down.",
            "Parent process exited, terminating worker queues",
        ),
        means="A step of stopping; by itself neither a cause nor a failure.",
    ),
    # --- the cascade ----------------------------------------------------------------------
    Message(
        code="engine-core-failed",
        emitter="vLLM engine core",
        seen="0.7.0 - 0.33.0",
        wordings=(
            "EngineCore failed to start.",
            "EngineCore encountered a fatal error.",
            "EngineCore hit an exception",
        ),
        samples=(
            "EngineCore failed to start.",
            "EngineCore encountered a fatal error.",
            "EngineCore hit an exception: Traceback (most recent call last):",
        ),
        means="The engine process caught the exception that ends it; the exception follows.",
        fatal=True,
    ),
    Message(
        code="worker-failed",
        emitter="vLLM executors",
        seen="0.4.0 - 0.33.0",
        reads={"error": words},
        wordings=(
            "Error executing method",
            "Exception in worker",
            "WorkerProc failed to start.",
            "WorkerProc hit an exception",
            "WorkerProc initialization failed due to an exception in a background process",
            "Worker failed with error",
            "Got fatal signal from worker processes, shutting down",
        ),
        samples=(
            "Error executing method 'determine_num_available_blocks'. This might cause deadlock",
            "Exception in worker VllmWorkerProcess while processing method load_model.",
            "WorkerProc failed to start.",
            "WorkerProc hit an exception.",
            "WorkerProc initialization failed due to an exception in a background process. See stack trace for"
            " root cause.",
            "Worker failed with error 'CUDA out of memory', please check the stack trace above for the root cause",
            "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.",
        ),
        means="A worker raised an exception; its traceback holds the cause.",
        fatal=True,
    ),
    Message(
        code="worker-died",
        event=ProcessDied,
        emitter="vLLM executors",
        seen="0.4.2 - 0.33.0",
        reads={"process": _name, "pid": integer, "exit_code": integer},
        wordings=(
            "Worker {process} pid {pid} died, exit code: {exit_code}",
            "Worker proc {process} died unexpectedly⟦ (exit code: ⟨{exit_code}|None⟩)⟧, shutting down executor",
            "RayWorkerProc rank={process} died unexpectedly, shutting down executor",
        ),
        samples=(
            "Worker VllmWorkerProcess pid 8101 died, exit code: -15",
            "Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
            "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
            "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
            "RayWorkerProc rank=1 died unexpectedly, shutting down executor.",
        ),
        means="A worker process is gone: -9 killed, -7 bus error, -11 crash, 1 exception, -15 stopped by others.",
        fatal=True,
    ),
    Message(
        code="engine-died",
        event=ProcessDied,
        emitter="vLLM front end",
        seen="0.6.4 - 0.33.0",
        reads={"process": _name, "pid": integer, "exit_code": integer},
        wordings=(
            "Process {process} (PID: {pid}) died with exit code {exit_code}",
            "Engine core proc⟨ess|⟩ {process} died unexpectedly",
            "Engine process (pid {pid}) died",
            "[shutdown] MPClient: engine core exited unexpectedly",
        ),
        samples=(
            "Process EngineCore_DP0 (PID: 14822) died with exit code -9",
            "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
            "Engine core process EngineCore died unexpectedly.",
            "Engine process (pid 14822) died.",
            "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        ),
        means="An engine process is gone; the front end only sees that it is.",
        fatal=True,
    ),
    Message(
        code="engine-init-failed",
        event=ProcessDied,
        emitter="vLLM front end",
        seen="0.6.2 - 0.33.0",
        reads={"exit_code": _procs, "process": _name},
        wordings=(
            "Engine core initialization failed. See root cause above⟦. Failed core proc(s): {exit_code}⟧",
            "CoreEngineProc initialization failed. See root cause above",
            "Engine process failed to start",
            "EngineCoreProc failed to start",
            "Frontend process failed during engine core initialization. See root cause above",
        ),
        samples=(
            "Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}",
            "Engine core initialization failed. See root cause above.",
            "CoreEngineProc initialization failed. See root cause above.",
            "Engine process failed to start. See stack trace for the root cause.",
            "EngineCoreProc failed to start.",
            "Frontend process failed during engine core initialization. See root cause above.",
        ),
        means="The front end reports that the engine died at start; always a consequence.",
        fatal=True,
    ),
    Message(
        code="engine-dead",
        emitter="vLLM front end",
        seen="0.1.7 - 0.33.0",
        wordings=(
            "EngineCore encountered an issue. See stack trace (above) for the root cause",
            "AsyncLLM output_handler failed",
            "AsyncLLMEngine has failed, terminating server process",
            "MQLLMEngine is already dead, terminating server process",
            "Engine background task failed",
            "Background loop has errored already",
            "Background loop is not running",
            "Engine loop is not running. Inspect the stacktrace to find the original error",
            "Engine iteration timed out. This should never happen",
        ),
        samples=(
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "AsyncLLM output_handler failed.",
            "AsyncLLMEngine has failed, terminating server process",
            "MQLLMEngine is already dead, terminating server process",
            "Engine background task failed",
            "Background loop has errored already.",
            "Background loop is not running. If it was running, inspect the output to find the stacktrace",
            "Engine loop is not running. Inspect the stacktrace to find the original error",
            "Engine iteration timed out. This should never happen!",
        ),
        means="Requests fail because the engine is gone; a consequence. Also printed by an orderly stop.",
    ),
    Message(
        code="utility-call-failed",
        emitter="vLLM engine core",
        seen="0.7.3 - 0.33.0",
        reads={"method": words},
        wordings=("Invocation of {method} method failed", "Call to {method} method failed: "),
        samples=(
            "Invocation of get_supported_tasks method failed",
            "Call to get_supported_tasks method failed: cancelled",
        ),
        means="A call into the engine failed; with 'cancelled' the engine was stopping.",
    ),
    Message(
        code="engine-start-timeout",
        emitter="vLLM front end",
        seen="0.6.2 - 0.33.0",
        reads={"seconds": number, "minutes": number},
        wordings=(
            "Timed out waiting for engine core processes to start¦. This is often caused by slow weight loading for"
            " large models. Waited {seconds}s",
            "Timed out waiting for engines to send initial message on input socket",
            "Did not receive response from front-end process within {minutes} minutes",
        ),
        samples=(
            "Timed out waiting for engine core processes to start. This is often caused by slow weight loading"
            " for large models. Waited 600s",
            "Timed out waiting for engines to send initial message on input socket.",
            "Did not receive response from front-end process within 5 minutes",
        ),
        means="A start-up handshake took too long.",
        fatal=True,
    ),
    Message(
        code="rpc-timeout",
        emitter="vLLM executor",
        seen="0.6.5 - 0.33.0",
        reads={"method": words},
        wordings=("RPC call to {method} timed out",),
        samples=("RPC call to execute_model timed out.",),
        means="A worker did not answer in time: it hangs, compiles, or its GPU is gone.",
        fatal=True,
    ),
)
