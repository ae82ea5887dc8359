"""One real server at a time: start it, wait until it is healthy or gone, ask it, stop it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .commands import Launch
from .installs import Install

_KEPT = ("HOME", "LANG", "TERM")
_BASE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCHDYNAMO_DISABLE": "1",  # compiling the sampler would take most of a start
}
# float32: a CPU without bfloat16 instructions takes ten times as long for it.
BASE_FLAGS = ("--load-format", "dummy", "--enforce-eager", "--dtype", "float32", "--host", "127.0.0.1")
_IDLE_LOOKS = 10  # so many looks at the metrics, three seconds apart, without a change


class Server:
    """A started server with its output in a file; leaving the context stops it."""

    def __init__(self, install: Install, model: Path, launch: Launch, log: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self.model = str(model)
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env["PATH"] = f"{install.vllm.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        env |= _BASE_ENV
        if install.preload:
            env["LD_PRELOAD"] = str(install.preload)
        env |= launch.env
        command = [str(install.vllm), "serve", self.model, *BASE_FLAGS, "--port", str(self.port), *launch.flags]
        self._output = log.open("wb")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=log.parent,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # should the machine run out of memory, it is this one that goes
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("1000")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def wait(self, timeout: float) -> bool:
        """Wait until ``/health`` answers 200 (True), or the process is gone or the time is up (False)."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._ask("GET", "/health", timeout=5)[0] == 200 and self.process.poll() is None:
                    return True
            time.sleep(0.5)
        return False

    def complete(self, prompt_tokens: int, answer_tokens: int, timeout: float) -> str | None:
        """Ask for one completion; None when it is answered in full, else what came instead."""
        body = {
            "model": self.model,
            "prompt": [5 + n % 200 for n in range(prompt_tokens)],
            "max_tokens": answer_tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        try:
            status, data = self._ask("POST", "/v1/completions", body, timeout)
        except TimeoutError:
            return f"no answer in {timeout:.0f} s"
        except (OSError, http.client.HTTPException) as error:
            return f"no answer: {error!r}"
        if status != 200:
            return f"status {status}: {data.decode('utf-8', 'replace')[:200]}"
        made = json.loads(data).get("usage", {}).get("completion_tokens")
        return None if made == answer_tokens else f"{made} of {answer_tokens} tokens"

    def serve_full(self, length: int, answer_tokens: int, timeout: float) -> tuple[str | None, int]:
        """Ask for a completion that fills the whole length; None when it is answered, else what came instead.

        Where the request does not fit it waits for ever: the metrics tell that long before the time is up. The number
        is how often a request was preempted on the way.
        """
        outcome: list[str | None] = []
        asking = threading.Thread(
            target=lambda: outcome.append(self.complete(length - answer_tokens, answer_tokens, timeout)), daemon=True
        )
        began = time.monotonic()
        asking.start()
        idle, before = 0, self._numbers()
        preempted = before.get("num_preemptions_total", 0)
        while asking.is_alive() and time.monotonic() - began < timeout + 10:
            asking.join(3)
            numbers = self._numbers()
            waits = numbers.get("num_requests_waiting", 0) >= 1 and not numbers.get("num_requests_running")
            idle = idle + 1 if waits and numbers == before else 0
            before = numbers or before
            if idle >= _IDLE_LOOKS and asking.is_alive():
                return "waits, never scheduled", int(before.get("num_preemptions_total", 0) - preempted)
        times = int(before.get("num_preemptions_total", 0) - preempted)
        return (outcome[0] if outcome else f"no answer in {timeout:.0f} s"), times

    def _numbers(self) -> dict[str, float]:
        """The gauges and counters of the scheduler."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            _, data = self._ask("GET", "/metrics", timeout=3)
            found = re.findall(r"^vllm:(num_\w+)\{[^}]*\} ([\d.e+]+)$", data.decode("utf-8", "replace"), re.M)
            return {name: float(value) for name, value in found}
        return {}

    def block_size(self) -> int | None:
        """The tokens of a block, as the metrics name them."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            _, data = self._ask("GET", "/metrics", timeout=20)
            if found := re.search(rb'cache_config_info\{[^}]*block_size="(\d+)"', data):
                return int(found.group(1))
        return None

    def stop(self) -> None:
        """Ask the process to end, then end its session."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(12)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._output.close()

    def concurrency(self) -> float | None:
        """The maximum concurrency that the server printed."""
        found = re.findall(rb"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", self.log.read_bytes())
        return float(found[-1]) if found else None

    def last_error(self) -> str:
        """The last line of the log that names an error, for the receipts."""
        text = re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if re.search(r"\b\w*(Error|error:|Exception)\b", line)]
        lines = [line for line in lines if "Engine core initialization failed" not in line] or lines
        return re.sub(r"^.*?(?=\b\w*(?:Error|error|Exception)\b)", "", lines[-1])[:200] if lines else "no error printed"

    def _ask(self, method: str, path: str, body: Any = None, timeout: float = 30) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        yield int(holder.getsockname()[1])
