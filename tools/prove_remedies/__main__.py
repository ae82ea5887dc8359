"""Run it: ``python -m tools.prove_remedies RELEASE ... --work FOLDER``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from . import __doc__ as description
from .commands import Launch, NotApplicable, apply, describe, value_of, with_value
from .failures import FAILURES, Failure
from .installs import Index, Install, install, minor
from .models import MODELS, write_models
from .receipts import Row, merge, page, read, write
from .servers import Server, held_port

_REPOSITORY = Path(__file__).parents[2]
_DEFAULT_BLOCK = 16
_ANSWER = 4


class Prover:
    """Makes failures of one release and tries what is advised."""

    def __init__(self, release: Install, work: Path, start_timeout: float, request_timeout: float) -> None:
        self.install = release
        self.work = work
        self.start_timeout = start_timeout
        self.request_timeout = request_timeout
        self.build = release.build()

    def prove(self, failure: Failure) -> list[Row]:
        """Return the rows of one failure: the first as-is remedy, and an as-is length behind it."""
        launch = failure.launch()
        name = f"{self.install.release}-{failure.name}"
        log = self.work / "logs" / f"{name}.log"
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(held_port()) if failure.on_a_held_port else None
            server = stack.enter_context(self._start(failure, launch, log, port))
            # With the port held, somebody else answers there.
            if not failure.on_a_held_port and server.wait(self.start_timeout):
                answer = server.complete(5, _ANSWER, self.request_timeout)
                return [self._row(failure, "", "first", "", "no failure", why=answer or "")]
            if failure.on_a_held_port:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.process.wait(self.start_timeout)
        finding = explain(log)
        cause = finding["code"] if finding else "(none)"
        sure = [remedy for remedy in (finding or {}).get("remedies", ()) if remedy["applicability"] == "as-is"]
        if not sure:
            return [self._row(failure, cause, "first", "", "no remedy")]
        rows = [self._try(failure, cause, "first", sure[0], name)]
        lengths = [remedy for remedy in sure[1:] if remedy["flag"] == "--max-model-len"]
        rows += [self._try(failure, cause, "length", remedy, name) for remedy in lengths[:1]]
        return rows

    def _try(
        self, failure: Failure, cause: str, role: Literal["first", "length"], remedy: dict[str, Any], name: str
    ) -> Row:
        row = self._row(failure, cause, role, describe(remedy), "skipped")
        try:
            launch = apply(failure.launch(), remedy)
        except NotApplicable as reason:
            return replace(row, why=str(reason))
        log = self.work / "logs" / f"{name}-{role}.log"
        is_length = remedy["flag"] == "--max-model-len"
        # A length that the model's configuration bounds is not the largest that the memory allows.
        claims_largest = is_length and cause not in ("max-model-len-over-limit", "max-batched-tokens-too-small")
        given = value_of(launch.flags, "--max-model-len")
        with self._start(failure, launch, log) as server:
            if not server.wait(self.start_timeout):
                state = "did not start" if server.process.poll() is not None else "not healthy in time"
                return replace(row, observed="not healthy", why=f"{state}: {server.last_error()}")
            if refusal := server.complete(5, _ANSWER, self.request_timeout):
                return replace(row, observed="not healthy", why=f"healthy, but a short completion: {refusal}")
            row = replace(row, observed="healthy", predicted=int(remedy["value"]) if claims_largest else None)
            if not given or not (claims_largest or remedy["flag"] == "VLLM_CPU_KVCACHE_SPACE"):
                return row
            concurrency = server.concurrency()
            block = server.block_size() or _DEFAULT_BLOCK
            # Room for two blocks more than one full request takes: it is served, there is nothing to try.
            if not claims_largest and concurrency and (concurrency - 1) * int(given) >= 2 * block:
                return replace(row, full_request=f"not asked; concurrency {concurrency:.2f}x printed")
            began = time.monotonic()
            refusal, preempted = server.serve_full(int(given), _ANSWER, self.request_timeout)
            took = time.monotonic() - began
        # Before 0.29 the printed concurrency counts a block that no request may use: it proves nothing there.
        if refusal and "no answer in" in refusal and minor(self.install.release) >= (0, 29) and (concurrency or 0) >= 1:
            row = replace(row, full_request=f"not answered in time; concurrency {concurrency:.2f}x printed")
        elif refusal:
            return replace(row, full_request=refusal, why=f"a request of {given} tokens: {refusal}")
        elif preempted:
            seen = f"served in {took:.0f} s{_preempted(preempted)}"
            return replace(row, full_request=seen, why=f"a request of {given} tokens is {seen}")
        else:
            row = replace(row, full_request=f"served in {took:.0f} s")
        if not claims_largest:
            return row
        longer = Launch(with_value(launch.flags, "--max-model-len", str(int(given) + block)), launch.env)
        with self._start(failure, longer, self.work / "logs" / f"{name}-{role}-more.log") as server:
            if not server.wait(self.start_timeout):
                seen = "does not start" if server.process.poll() is not None else "not healthy in time"
                return replace(row, largest=row.predicted, one_block_more=f"{int(given) + block:,} {seen}")
            refusal, preempted = server.serve_full(int(given) + block, _ANSWER, max(60.0, took * 3))
        if refusal or preempted:
            seen = refusal or f"served{_preempted(preempted)}"
            return replace(
                row, largest=row.predicted, one_block_more=f"{int(given) + block:,} starts; a full request: {seen}"
            )
        return replace(
            row,
            largest=int(given) + block,
            one_block_more=f"{int(given) + block:,} starts and serves a full request",
            why=f"{int(given) + block:,} tokens are served too",
        )

    def _start(self, failure: Failure, launch: Launch, log: Path, port: int | None = None) -> Server:
        print(f"{_clock()}   {self.install.release} {failure.model}: {launch.words()}", flush=True)
        return Server(self.install, self.work / "models" / failure.model, launch, log, port)

    def _row(
        self,
        failure: Failure,
        cause: str,
        role: Literal["first", "length"],
        remedy: str,
        observed: Literal["healthy", "not healthy", "skipped", "no remedy", "no failure"],
        why: str = "",
    ) -> Row:
        return Row(
            release=self.install.release,
            build=self.build,
            date=datetime.date.today().isoformat(),
            failure=failure.name,
            what=failure.what,
            model=failure.model,
            command=failure.launch().words(),
            cause=cause,
            role=role,
            remedy=remedy,
            observed=observed,
            why=why,
        )


def _preempted(times: int) -> str:
    return f", preempted {times} times though alone" if times else ""


def explain(log: Path) -> dict[str, Any] | None:
    """Return the first finding of the report about the log."""
    command = [sys.executable, "-m", "vllm_diag", "explain", "--format", "json", "--exit-zero", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=_REPOSITORY)
    if not done.stdout:
        raise RuntimeError(f"vllm-diag: {done.stderr[-500:]}")
    findings = json.loads(done.stdout)["findings"]
    return findings[0] if findings else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; exit status 1 when a row is not as promised."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.prove_remedies",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("releases", nargs="*", help="releases of vllm-cpu; none: only make the page anew")
    parser.add_argument("--failures", help="names, with commas between them; without it all that fit the release")
    parser.add_argument("--work", type=Path, default=Path("prove-remedies"), help="virtual environments, models, logs")
    parser.add_argument("--receipts", type=Path, default=_REPOSITORY / "docs" / "receipts.json")
    parser.add_argument("--again", action="store_true", help="also what the receipts have already")
    parser.add_argument("--again-bad", action="store_true", help="also the rows that were not as promised")
    parser.add_argument("--index-url", help="the package index; without it the installer's own")
    parser.add_argument("--find-links", action="append", default=[], help="a folder or page with more wheels")
    parser.add_argument("--python", default="3.11", help="the Python of the virtual environments")
    parser.add_argument("--start-timeout", type=float, default=420)
    parser.add_argument("--request-timeout", type=float, default=180)
    parser.add_argument("--minutes", type=float, default=180, help="begin no further failure after this time")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server that runs is stopped too
    work = given.work.resolve()
    end = time.monotonic() + given.minutes * 60
    wanted = set(given.failures.split(",")) if given.failures else {failure.name for failure in FAILURES}
    if unknown := wanted - {failure.name for failure in FAILURES}:
        parser.error(f"no such failure: {', '.join(sorted(unknown))}")
    if given.releases:
        write_models(work / "models")
    for release in given.releases:
        done = {row.failure: row for row in read(given.receipts) if row.release == release}
        bad = {row.failure for row in read(given.receipts) if row.release == release and not row.good}
        todo = [
            failure
            for failure in FAILURES
            if failure.name in wanted
            and failure.fits(release)
            and (given.again or failure.name not in done or (given.again_bad and failure.name in bad))
        ]
        if not todo or time.monotonic() > end:
            continue
        prover = Prover(
            install(release, work, Index(given.index_url, tuple(given.find_links)), given.python),
            work,
            given.start_timeout,
            given.request_timeout,
        )
        for failure in todo:
            if time.monotonic() > end:
                break
            print(f"{_clock()} {release} {failure.name}", flush=True)
            try:
                rows = prover.prove(failure)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                print(f"{_clock()}   the tool failed: {error!r}", flush=True)
                continue
            for row in rows:
                print(
                    f"{_clock()}   => {row.cause}: {row.remedy}: {row.observed}"
                    f" | predicted {row.predicted} largest {row.largest} | {row.full_request} | {row.one_block_more}"
                    f" | {row.why}",
                    flush=True,
                )
            _save(given.receipts, rows)
    if not given.releases:
        _save(given.receipts, [])
    return 0 if all(row.good for row in read(given.receipts) if row.observed in ("healthy", "not healthy")) else 1


def _save(path: Path, rows: list[Row]) -> None:
    merged = merge(read(path), rows)
    write(path, merged)
    done: dict[str, set[str]] = {}
    for row in merged:
        done.setdefault(row.release, set()).add(row.failure)
    left = {
        release: [failure.name for failure in FAILURES if failure.fits(release) and failure.name not in names]
        for release, names in done.items()
    }
    missing = {release: names for release, names in left.items() if names}
    path.with_suffix(".md").write_text(page(merged, {name: what for name, (what, _) in MODELS.items()}, missing))


def _clock() -> str:
    return time.strftime("%H:%M:%S")


if __name__ == "__main__":
    sys.exit(main())
