"""The catalogue: each message against its own samples and all others, in every envelope and wrap.

What is compared is the mask (code, values). Each message meets every envelope and every width
from 12 to 160; the sample, prefix, kind of wrap and line ending at a width are chosen by its code.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import MISSING, fields
from functools import cache
from itertools import islice
from typing import Any

import pytest

from tests.envelopes import ENVELOPES, WIDTHS, WRAPPED_PREFIXES, fmt, hard, kind_of, line_of, wrapped
from vllm_diag.event_types import Landmark
from vllm_diag.messages import Message, catalogue
from vllm_diag.pipeline import events
from vllm_diag.wording import compile_wording, render, squeeze

EACH = pytest.mark.parametrize("message", catalogue(), ids=lambda message: message.code)

Mask = list[tuple[str, dict[str, Any]]]


def mask(data: bytes) -> Mask:
    """Return what must not depend on the envelope: codes and values."""
    return [(event.code, dict(event.values())) for event in events(data, "log")]


@cache
def plain(sample: str) -> Mask:
    """Return the mask of a sample on lines of its own."""
    return mask(sample.encode())


@cache
def first_line(sample: str) -> int:
    """Return how many lines of a sample stand before the one it is recognised on."""
    return next(events(sample.encode(), "log")).at.evidence.line - 1


def test_codes_are_unique_and_kebab_case() -> None:
    """Each message has a code of its own, in kebab case."""
    counted = Counter(message.code for message in catalogue())
    assert [code for code, count in counted.items() if count > 1] == []
    assert [code for code in counted if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)] == []


@EACH
def test_each_sample_is_this_message_and_no_other(message: Message) -> None:
    """Each sample is recognised as its own message, once, and as nothing else."""
    assert message.samples
    for sample in message.samples:
        assert [code for code, _ in plain(sample)] == [message.code], sample


@EACH
def test_each_wording_is_exercised_by_a_sample(message: Message) -> None:
    """No wording is without a sample that it matches; the texts of releases have a test of their own."""
    for wording in islice(message.compiled(), len(message.texts), None):
        assert any(
            wording.pattern.search(sample if message.spaced else squeeze(sample)) for sample in message.samples
        ), wording.text


@EACH
def test_each_wording_is_recognised_when_rendered_in_full(message: Message) -> None:
    """A wording rendered with other figures and spellings is recognised as the same message."""
    for wording in message.wordings:
        for seed in range(3):
            text, _ = render(wording, message.reads, seed)
            assert message.code in [code for code, _ in mask(text.encode())], text


@EACH
def test_placeholders_and_fields_agree(message: Message) -> None:
    """Each placeholder has a reader, each reader is used, and required fields are in every wording."""
    used = {slot for wording in islice(message.compiled(), len(message.texts), None) for slot in wording.slots}
    assert used <= message.reads.keys()
    if message.event is Landmark:
        return
    required = {f.name for f in fields(message.event) if f.default is MISSING} - {"code", "at"} - message.always.keys()
    for text in message.wordings:
        assert required <= set(compile_wording(text, message.reads, message.spaced).slots), text


@EACH
def test_each_message_says_who_prints_it_and_what_it_means(message: Message) -> None:
    """Each message has an emitter and one sentence of meaning."""
    assert message.emitter
    assert message.means.endswith(".")


# Texts that no exception carries: code -> who prints them.
NOT_BEHIND_AN_EXCEPTION = {"compiler-missing": "a shell says that a command is not there"}


@pytest.mark.parametrize("envelope", ENVELOPES, ids=lambda envelope: envelope.name)
def test_an_envelope_changes_nothing(envelope: Any) -> None:
    """Every message is the same event, with its values and on its line, in every envelope that it comes in."""
    wrong = []
    for message in catalogue():
        if envelope.excluded(message) or (not envelope.alone and message.code in NOT_BEHIND_AN_EXCEPTION):
            continue
        for sample in message.samples:
            found = list(events(envelope.around(sample), "log"))
            same = [(event.code, dict(event.values())) for event in found] == plain(sample)
            if not same or found[0].at.evidence.line != envelope.first + first_line(sample):
                wrong.append((message.code, sample))
    assert wrong == []


# Texts that lose figures at some widths all the same: code -> reason.
NOT_AT_EVERY_WIDTH = {
    "nvls-failed": "'WARN' at the start of a line is a level of other programs",
    "command-line": "nothing tells where it ends",
    "pin-memory": "'WARNING:' inside it, at the start of a line, is a level of other programs",
    "xid": "its last words are optional and of free length",
}


def is_cut_behind_the_process(lines: list[str]) -> bool:
    """Whether a wrap left what an empty line of that process looks like, so that nothing tells them apart."""
    return any(re.fullmatch(r"\(\w[^()]* pid=\d+\) ", line) for line in lines)


def same_but_for_the_ends(message: Message, want: Mask, got: Mask) -> bool:
    """Whether two masks agree, but for a first or last word of free length that the wrap cut.

    A word at the very beginning or end of a text has nothing beside it that tells where it
    ends; cut by a wrap, its outer half may belong to it or not.
    """
    if [code for code, _ in want] != [code for code, _ in got]:
        return False
    ends = set()
    for wording in message.compiled():
        ends |= {wording.slots[0], wording.slots[-1]} if wording.slots else set()
    return all(
        without_blanks(w[1].get(k)) == without_blanks(g[1].get(k)) or k in ends
        for w, g in zip(want, got, strict=True)
        for k in w[1]
    )


def without_blanks(value: Any) -> Any:
    """Return words without blanks: a wrap leaves open whether one stood where the line was broken."""
    return squeeze(value) if isinstance(value, str) else value


@EACH
def test_a_wrap_changes_nothing(message: Message) -> None:
    """A message broken at any width, inside words or between them, behind any prefix, is the same event."""
    if message.code in NOT_AT_EVERY_WIDTH:
        pytest.skip(NOT_AT_EVERY_WIDTH[message.code])
    if message.spaced:
        pytest.skip("the row of a table, which only blanks give its columns, is found on whole lines")
    if message.whole_line:
        pytest.skip("a text that must have its line for itself loses it by a wrap")
    choose = random.Random(message.code)
    prefixes = WRAPPED_PREFIXES if kind_of(message) == "vllm" else ("",)
    wrong = []
    for width in WIDTHS:
        wrap, ending = choose.choice((hard, fmt)), choose.choice(("\n", "\r\n"))
        sample, prefix = choose.choice(message.samples), choose.choice(prefixes)
        lines = wrapped(sample, prefix, wrap, width)
        found = mask(ending.join(lines).encode())
        if not same_but_for_the_ends(message, plain(sample), found) and not is_cut_behind_the_process(lines):
            wrong.append((wrap.__name__, width, prefix, ending, found))
    assert wrong == []


@EACH
def test_a_wrapped_message_stands_on_the_line_it_starts_on(message: Message) -> None:
    """The evidence names the physical line of the text's first character, or that of its header."""
    sample, prefix = message.samples[0], WRAPPED_PREFIXES[1] if kind_of(message) == "vllm" else ""
    if message.spaced or message.whole_line or "\n" in sample:
        pytest.skip("is not wrapped, or is several lines already")
    starts = [m.start() for w in message.compiled() if w.keys and (m := w.pattern.search(squeeze(sample)))]
    if not starts or any(w.text.startswith(("{", "⟦{")) for w in message.compiled()):
        pytest.skip("begins with a word of free length, whose first half may not belong to it")
    for width in (20, 50, 77, 120):
        lines = wrapped(sample, prefix, hard, width)
        (event,) = events("\n".join(lines).encode(), "log")
        header = line_of(lines, len(squeeze(prefix)) - 1) if prefix else 0
        right = {line_of(lines, len(squeeze(prefix)) + start) for start in starts}
        # A header put together from several lines, and what follows on its last, stand on its first.
        assert event.at.evidence.line in (right | {1} if header in right else right)


REQUEST_LOGS = (
    "INFO 06-01 10:00:00 [logger.py:40] Received request cmpl-1: prompt: '{}', params: SamplingParams(n=1)",
    "INFO 06-01 10:00:00 [logger.py:42] Received request chatcmpl-1: params: SamplingParams(n=1), prompt: 'x {} y'",
    "INFO 06-01 10:00:00 async_llm_engine.py:371] Received request 7: prompt: 'Why {}?', sampling_params: S(n=1)",
    "INFO 06-01 10:00:00 [async_llm.py:271] Added request cmpl-1 prompt='{}'",
    "INFO 06-01 10:00:00 api_server.py:592] args: Namespace(model='m', chat_template='RuntimeError: {}')",
    "(APIServer pid=1) INFO 06-01 10:00:00 [utils.py:253] non-default args: {{'model': 'm', 'chat_template': '{}'}}",
    'INFO 06-01 10:00:00 [serving.py:1] {{"messages": [{{"role": "user", "content": "ValueError: {}"}}]}}',
)


@pytest.mark.parametrize("form", REQUEST_LOGS)
def test_text_of_clients_is_no_message(form: str) -> None:
    """No message is found in what a client wrote, whatever it quotes."""
    ours = {"arguments", "non-default-arguments"}
    wrong = []
    for message in catalogue():
        for sample in message.samples:
            found = mask(form.format(sample.replace("\n", "\\n").replace("'", "")).encode())
            if [code for code, _ in found if code not in ours]:
                wrong.append((message.code, found))
    assert wrong == []


@EACH
def test_stretched_and_cut_samples_stay_cheap(message: Message) -> None:
    """Neither 100,000 repeated characters nor a text cut off anywhere makes a pattern run away."""
    sample = message.samples[0]
    for hostile in (sample + "9" * 100_000, sample.replace(" ", " " * 2_000), (sample[:60] + " ") * 500):
        mask(hostile.encode())
    for cut in range(1, len(sample), max(1, len(sample) // 6)):
        mask(sample[:cut].encode())
