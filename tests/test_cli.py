"""The command line: exit statuses, formats, pipes and complaints, as promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOGS = Path(__file__).parent.parent / "corpus" / "logs"
FAILED = LOGS / "kv-cache-too-small-24gb-card.log"
HEALTHY = LOGS / "genuine-healthy-0.11.log"


def run(*args: str, stdin: bytes | None = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user would, with no terminal and a plain environment."""
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM")}
    return subprocess.run(
        [sys.executable, "-m", "vllm_diag", *args],
        input=stdin,
        capture_output=True,
        env={**plain, **(env or {})},
        check=False,
    )


def test_a_failure_exits_with_one() -> None:
    """A failure found is exit status 1, and 0 with --exit-zero."""
    assert run("explain", str(FAILED)).returncode == 1
    assert run("explain", "--exit-zero", str(FAILED)).returncode == 0


def test_a_healthy_log_exits_with_zero() -> None:
    """A log in which nothing failed is exit status 0."""
    assert run("explain", str(HEALTHY)).returncode == 0


def test_nothing_recognised_exits_with_three() -> None:
    """A text that is no log of these is exit status 3, and says what to do."""
    done = run("explain", "-", stdin=b"hello\nworld\n")
    assert done.returncode == 3
    assert b"nothing in stdin was recognised (2 lines read)" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["explain", "no-such.log"], b"there is no file no-such.log"),
        (["explain", str(LOGS)], b"is a directory"),
        (["codes", "kv-cache-to-small"], b"there is kv-cache-too-small"),
    ],
)
def test_unusable_input_exits_with_two(args: list[str], words: bytes) -> None:
    """What cannot be read or found is exit status 2, with what was seen."""
    done = run(*args)
    assert done.returncode == 2
    assert words in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_empty_input_is_named_empty() -> None:
    """An empty input is told from one that holds nothing known."""
    done = run("explain", "-", stdin=b"")
    assert done.returncode == 3
    assert b"stdin is empty" in done.stderr


def test_a_binary_input_is_named_binary() -> None:
    """A file that is not text is told from a log."""
    done = run("explain", "-", stdin=bytes(range(256)) * 64)
    assert done.returncode == 3
    assert b"is not text" in done.stderr


def test_bare_command_reads_a_pipe() -> None:
    """Without a subcommand piped input is explained."""
    done = run(stdin=FAILED.read_bytes())
    assert done.returncode == 1
    assert b"--max-model-len 38976" in done.stdout


def test_a_pipe_gets_no_colour_and_80_columns() -> None:
    """Output that is no terminal has no escape codes, no trailing blanks and at most 80 columns."""
    text = run("explain", str(FAILED)).stdout.decode()
    assert "\x1b" not in text
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def test_json_is_the_report_and_jsonl_one_line_of_it() -> None:
    """Both JSON formats hold the same report; jsonl is one line."""
    long, short = run("explain", "-f", "json", str(FAILED)).stdout, run("explain", "-f", "jsonl", str(FAILED)).stdout
    assert json.loads(long) == json.loads(short)
    assert short.count(b"\n") == 1


def test_events_are_one_object_a_line() -> None:
    """`events` prints a JSON object for each event, in order."""
    items = [json.loads(line) for line in run("events", str(FAILED)).stdout.splitlines()]
    assert [item["line"] for item in items] == sorted(item["line"] for item in items)
    assert "kv-cache-too-small" in {item["code"] for item in items}


def test_schema_describes_the_report() -> None:
    """`schema` prints a JSON Schema with the report's fields."""
    schema = json.loads(run("schema").stdout)
    assert {"outcome", "vllm", "runs", "events", "budget", "findings"} <= set(schema["properties"])


def test_markdown_quotes_foreign_text_as_code() -> None:
    """Text out of the log cannot become markup."""
    log = (
        b"ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in"
        b" KV cache (2048). <script>|*x*\n"
    )
    text = run("explain", "-f", "markdown", "-", stdin=log).stdout.decode()
    quoted = next(line for line in text.splitlines() if "<script>" in line)
    assert quoted.lstrip("- ").startswith("`")


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    """A pipe that closes early ends the command quietly."""
    shell = f"{sys.executable} -m vllm_diag events {' '.join([str(FAILED)] * 200)} | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert json.loads(done.stdout)


def test_json_does_not_import_rich() -> None:
    """A program that asks for JSON does not pay for the terminal rendering."""
    code = (
        "import sys; from vllm_diag.cli import app\n"
        f"try: app(['explain', '-f', 'json', {str(FAILED)!r}])\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(str('vllm_diag.render.text' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stderr.decode().endswith("False")
