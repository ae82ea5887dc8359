"""Each text of each release is the event it is said to be, with the values that were put into it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance import PAGE, failures, table
from tests.vllm_values import check
from vllm_diag.messages import catalogue
from vllm_diag.messages.vllm_texts import Text, all_releases, texts


@pytest.mark.parametrize("text", texts(), ids=lambda text: f"{text.code}-{text.releases[0]}-{len(text.text)}")
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_text_is_read_back_from_every_release(text: Text, seed: int) -> None:
    """The same event and the same values come back, whatever the values, in every release that prints it."""
    assert [wrong for release in text.releases if (wrong := check(text, release, seed))] == []


def test_the_table_in_the_docs_is_this_one_and_complete() -> None:
    """Every text of every release is read back, and ``docs/conformance.md`` says so."""
    failed = failures()
    assert failed == []
    assert PAGE.read_text(encoding="utf-8") == table(failed), "python -m tests.conformance"


def test_every_text_belongs_to_a_message() -> None:
    """No text names a message that is not in the catalogue."""
    assert {text.code for text in texts()} - {message.code for message in catalogue()} == set()


def test_every_figure_stands_in_its_text() -> None:
    """A text has a kind for each of its slots and for nothing else, in each of its releases."""
    for message in catalogue():
        for text, compiled in zip(message.texts, message.compiled(), strict=False):
            assert set(compiled.slots) == set(text.slots), text.text
            assert all(text.kind(slot, release) for slot in text.slots for release in text.releases)


def test_releases_are_in_order() -> None:
    """The releases looked at go from the oldest to the newest, each once."""
    numbers = [tuple(int(part) for part in release.split(".post")[0].split(".")) for release in all_releases()]
    assert numbers == sorted(set(numbers), key=numbers.index)
    assert numbers == sorted(numbers)
