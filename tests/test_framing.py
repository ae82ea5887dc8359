"""Bytes to lines: nothing lost, nothing raw, every prefix read right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_diag.framing import MAX_LINE, Line, Process, frame, physical_lines


def lines(data: bytes) -> list[Line]:
    """Return the lines of one input given in one block."""
    return list(frame([data], "log"))


def one(text: str) -> Line:
    """Return the only line of a text."""
    (line,) = lines(text.encode())
    return line


@pytest.mark.parametrize(
    ("text", "process", "level", "time"),
    [
        ("INFO 01-11 15:51:18 llm_engine.py:275] x", Process(), "INFO", "01-11 15:51:18"),
        ("INFO 04-30 10:20:35 [monitor.py:33] x", Process(), "INFO", "04-30 10:20:35"),
        (
            "(VllmWorkerProcess pid=123) INFO 01-11 15:51:18 worker.py:101] x",
            Process("VllmWorkerProcess", 123), "INFO", "01-11 15:51:18",
        ),
        (
            "(VllmWorker rank=1 pid=123) ERROR 01-11 15:51:18 [worker.py:101] x",
            Process("VllmWorker", 123, 1), "ERROR", "01-11 15:51:18",
        ),
        ("(EngineCore_DP0 pid=7) ERROR 10-25 13:08:43 [core.py:1] x", Process("EngineCore_DP0", 7), "ERROR", "10-25 13:08:43"),
        ("(Worker_DP0_PP1_TP3_EP3 pid=7) x", Process("Worker_DP0_PP1_TP3_EP3", 7, 3), None, None),
        ("(VllmWorker TP2 pid=7) x", Process("VllmWorker TP2", 7, 2), None, None),
        ("(RayWorkerWrapper pid=7, ip=10.0.0.1) x", Process("RayWorkerWrapper", 7, None, "10.0.0.1"), None, None),
        ("[rank3]: x", Process(rank=3), None, None),
        ("(vllm-test, pid=4001) (EngineCore_0 pid=8) x", Process("EngineCore_0", 8), None, None),
        ("(Worker pid=7) [Stage-0] ERROR 03-12 08:34:59 [m.py:1] x", Process("Worker", 7), "ERROR", "03-12 08:34:59"),
        ("2026-05-03 11:47:02.257 [Info] (Process) (EngineCore pid=7) x", Process("EngineCore", 7), None, "2026-05-03 11:47:02.257"),
        ("2000-01-02T10:00:00.390Z  INFO dynamo_engine_vllm::worker: VLLM: x", Process(), None, "2000-01-02T10:00:00.390Z"),
        ("[rank0]:[W502 11:47:03.150000000 ProcessGroupNCCL.cpp:1554] x", Process(rank=0), "WARNING", None),
        ("2000-01-02 10:00:00,723 - WARNING - a.py:1315 - x", Process(), "WARNING", "2000-01-02 10:00:00,723"),
        ("[pod/vllm-0/server] x", Process(service="vllm-0/server"), None, None),
        ("3,1234,7344278,-;x", Process("kernel"), None, None),
        ("[    7.344278] gpu-3 vllm[7]: x", Process("vllm", 7, service="vllm[7]"), None, "7.344278"),
        ("Nov 02 10:15:03 gpu01 vllm[14790]: x", Process("vllm", 14790, service="vllm[14790]"), None, "Nov 02 10:15:03"),
        ("[    7.344278] x", Process("kernel"), None, "7.344278"),
        ("[Mon Nov 30 20:50:24 2026] x", Process("kernel"), None, "Mon Nov 30 20:50:24 2026"),
        ("vllm-1  | (APIServer pid=1) INFO 06-01 10:00:00 [a.py:1] x", Process("APIServer", 1, service="vllm-1"), "INFO", "06-01 10:00:00"),
    ],
)  # fmt: skip
def test_what_a_prefix_says_is_read(text: str, process: Process, level: str | None, time: str | None) -> None:
    """Process, pid, rank, level and time come out of each generation's prefix, and the text is left."""
    line = one(text)
    assert (line.text, line.process, line.level, line.time) == ("x", process, level, time)


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_nothing_is_read_from_nothing(data: bytes) -> None:
    """An empty input, whatever its mark, holds no text."""
    assert "".join(line.text for line in lines(data)) == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_byte_order_mark_chooses_the_encoding(encoding: str) -> None:
    """UTF-8 with and without a mark and UTF-16 give the same lines."""
    assert [line.text for line in lines("eins\nzwei ü\n".encode(encoding))] == ["eins", "zwei ü"]


def test_damage_costs_only_itself() -> None:
    """NULs vanish, invalid bytes become a replacement sign, and the rest of the line stays."""
    assert one(b"Available\x00 KV".decode()).text == "Available KV"
    assert lines(b"a\xff\xfeb\n")[0].text == "a\ufffd\ufffdb"


def test_an_endless_line_is_cut_into_pieces_of_its_number() -> None:
    """A line of 3 MB comes in bounded pieces that share its number, and the next line is line 2."""
    found = list(physical_lines([b"x" * 3_000_000, b"\nnext\n"]))
    assert sum(len(text) for number, text in found if number == 1) == 3_000_000
    assert max(len(text) for _, text in found) <= MAX_LINE
    assert found[-1] == (2, "next")


LOG = (
    "﻿(EngineCore_DP0 pid=7) INFO 10-25 13:08:43 [core.py:1] ä\r\n"
    "  0%| | 0/1\r100%|#| 1/1 (EngineCore_DP0 pid=7) INFO 10-25 13:08:43 [core.py:2] two\n"
    "\x1b[1;36m(APIServer pid=1)\x1b[0;0m three\nfour"
).encode()


@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_blocks_may_be_cut_anywhere(cuts: list[int]) -> None:
    """Where the blocks of a read end makes no difference, not even inside a character."""
    edges = sorted({0, len(LOG), *cuts})
    parts: Iterator[bytes] = (LOG[a:b] for a, b in itertools.pairwise(edges))
    assert list(frame(parts, "log")) == lines(LOG)


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_are_lines_without_control_characters(data: bytes) -> None:
    """Whatever comes in, nothing raises and nothing that a terminal acts on comes out."""
    for line in lines(data):
        for text in (line.text, line.shown):
            assert not any((ord(char) < 32 and char not in "\t\n\r") or 127 <= ord(char) < 160 for char in text)


def test_a_progress_bar_does_not_hide_what_is_glued_to_it() -> None:
    """A header behind a bar, or behind a carriage return, begins a line of its own."""
    texts = [line.text for line in lines(LOG)]
    assert "two" in texts
    assert "three" in texts


def test_a_request_log_stays_one_line() -> None:
    """A header quoted in a prompt does not cut the line."""
    text = "INFO 06-01 10:00:00 [logger.py:40] Received request 1: prompt: 'see INFO 06-01 10:00:00 [a.py:1] x'"
    assert len(lines(text.encode())) == 1


def test_a_header_broken_by_a_narrow_terminal_is_put_together() -> None:
    """At 20 columns the prefix itself is broken, and is read all the same."""
    text = "(EngineCore_DP0 pid=123) INFO 10-25 13:08:43 [gpu_worker.py:298] Available KV"
    broken = "\n".join(text[i : i + 20] for i in range(0, len(text), 20))
    line = lines(broken.encode())[0]
    assert line.process == Process("EngineCore_DP0", 123)
    assert line.level == "INFO"


def test_access_lines_are_dropped_but_one_and_numbers_stay_right() -> None:
    """Of many access lines one is kept; what stands behind them keeps its line number."""
    access = 'INFO:     10.0.0.5:35940 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    found = lines((access * 1000 + "last\n").encode())
    assert [line.number for line in found] == [1, 1001]


def test_json_lines_give_their_message() -> None:
    """Container, journal and vLLM JSON records are read for message, time, level and process."""
    record = '{"asctime": "2026-11-30 20:50:24", "levelname": "ERROR", "processName": "EngineCore", "process": 9, "message": "a\\nb"}'
    first, second = lines(record.encode())
    assert (first.text, second.text) == ("a", "b")
    assert (first.level, first.process.pid, first.number, second.number) == ("ERROR", 9, 1, 1)
