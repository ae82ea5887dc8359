"""Figures and quotes: what a printed number means, and what must not be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_diag import quantities as q
from vllm_diag.evidence import mask_secrets, quote
from vllm_diag.framing import frame
from vllm_diag.records import assemble
from vllm_diag.wording import WordingError, compile_wording, position_in, squeeze


@given(st.integers(0, 2**48))
def test_gib_with_two_decimals_holds_the_true_value(true: int) -> None:
    """The true size lies within the slack of what `%.2f` or `round(x, 2)` prints of it."""
    for printed in (f"{true / q.GIB:.2f}", str(round(true / q.GIB, 2))):
        amount = q.gib_2dp.read(printed)
        assert amount.low - 1 <= true <= amount.high + 1


def test_one_decimal_means_two() -> None:
    """VLLM's format_gib drops trailing zeros, so 2.9 is 2.90 and not 2.85 to 2.95."""
    assert q.gib_2dp.read("2.9") == q.gib_2dp.read("2.90")
    assert q.gib_2dp.read("2.9").slack == round(0.005 * q.GIB)


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (q.count, "34,608", 34608),
        (q.number, "0,92", 0.92),
        (q.number, "1,234.5", 1234.5),
        (q.integer, "-9", -9),
        (q.kib, "153,700,88", q.Amount(15370088 * q.KIB)),
    ],
)
def test_readers(reader: q.Reader, text: str, value: object) -> None:
    """Thousands separators, decimal commas and regrouped digits are read."""
    assert reader.read(text) == value


@pytest.mark.parametrize(
    ("text", "size"), [("2.00GiB", 2 * q.GIB), ("768.00KiB", 768 * q.KIB), ("0bytes", 0), ("64M", 64 * q.MIB)]
)
def test_sizes_carry_their_unit(text: str, size: int) -> None:
    """Torch prints each figure with a unit of its own."""
    assert q.size.read(text).bytes == size


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
        ("key sk-abcdefghijklmnop", "sk-abcdefghijklmnop"),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("http://me:hunter22@10.0.0.5/x", "hunter22"),
        ("api_key='hunter22'", "hunter22"),
        ('{"password": "hunter22"}', "hunter22"),
    ],
)
def test_secrets_are_masked(text: str, secret: str) -> None:
    """Keys, tokens and passwords never stand in a quote."""
    assert secret not in mask_secrets(text)[0]
    assert secret not in quote(text)


@pytest.mark.parametrize("text", ["max_tokens=512", "GPU KV cache size: 34,608 tokens", "api_key=None", "4.2 tokens/s"])
def test_what_is_no_secret_stays_readable(text: str) -> None:
    """Figures about tokens are not keys."""
    assert mask_secrets(text) == (text, 0)


def test_a_wording_that_blurs_two_figures_is_refused() -> None:
    """Two figures with nothing but a blank between them could not be told apart."""
    with pytest.raises(WordingError, match="nothing but a blank"):
        compile_wording("{a} {b} tokens", {"a": q.count, "b": q.count})


def test_a_placeholder_needs_a_reader() -> None:
    """A wording names only figures that the message reads."""
    with pytest.raises(WordingError, match="no reader"):
        compile_wording("{a} tokens", {})


@given(st.text(alphabet="ab \t", max_size=30), st.integers(0, 30))
def test_a_position_without_blanks_is_found_in_the_text(text: str, at: int) -> None:
    """The character that squeezing put at a place is found at its place in the text."""
    squeezed = squeeze(text)
    if at < len(squeezed):
        assert text[position_in(text, at)] == squeezed[at]


@given(
    st.lists(
        st.sampled_from(["(Worker_TP0 pid=1) a", "(Worker_TP1 pid=2) b", "c", "INFO 06-01 10:00:00 [a.py:1] d", ""]),
        max_size=40,
    )
)
def test_every_line_is_in_exactly_one_record(texts: list[str]) -> None:
    """Records are the lines, in order, none lost and none twice."""
    data = "\n".join(texts).encode()
    before = [(line.number, line.text) for line in frame([data], "log")]
    after = [(line.number, line.text) for record in assemble(frame([data], "log")) for line in record.lines]
    assert after == before


def test_interleaved_tracebacks_keep_their_frames() -> None:
    """Two ranks that print at once do not mix their stacks."""
    data = (
        b'(Worker_TP0 pid=1)   File "/v/a.py", line 1, in alpha\n'
        b'(Worker_TP1 pid=2)   File "/v/b.py", line 1, in beta\n'
        b"(Worker_TP0 pid=1) ValueError: x\n"
        b"(Worker_TP1 pid=2) ValueError: y\n"
    )
    frames = {
        line.text[-1]: record.frames[i]
        for record in assemble(frame([data], "log"))
        for i, line in enumerate(record.lines)
    }
    assert frames["x"] == ("a.py:alpha",)
    assert frames["y"] == ("b.py:beta",)
