"""The catalogue: each message against its own samples, all others, every envelope and width.

What is compared is the mask (code, values); the place must be the line the text starts on.
Set ``VLLM_DIAG_EXHAUSTIVE=1`` for the full product of samples, prefixes, wraps and widths;
without it each message meets every envelope and every width at least once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import cache

import pytest

from tests.envelopes import ENVELOPES, WIDTHS, WRAPPED_PREFIXES, Envelope, fmt, hard, kind_of, line_of, runs_of, wrapped
from vllm_diag.events import Event, Landmark
from vllm_diag.messages import Message, catalogue
from vllm_diag.pipeline import events
from vllm_diag.wording import Compiled, render, squeeze

EXHAUSTIVE = bool(os.environ.get("VLLM_DIAG_EXHAUSTIVE"))

# Samples that rightly hold a second message: sample's code -> the other's code, and why.
OVERLAPS: dict[tuple[str, str], str] = {}

# Placeholders that are read only to get past them: (code, placeholder) or a placeholder of
# all messages -> why no field holds it.
SYNTACTIC: dict[str, str] = {}

EACH = pytest.mark.parametrize("message", catalogue(), ids=lambda message: message.code)


def seen(data: bytes) -> list[Event]:
    """Return the events of one log."""
    return list(events(data, "log"))


def mask(found: list[Event]) -> list[tuple[str, dict[str, object]]]:
    """Return what must not depend on the envelope: codes and values."""
    return [(event.code, dict(event.values())) for event in found]


@cache
def plain(sample: str) -> list[tuple[str, dict[str, object]]]:
    """Return the mask of a sample on lines of its own."""
    return mask(seen(sample.encode()))


def required(message: Message) -> frozenset[str]:
    """Return the fields without which the message's event cannot be made."""
    if message.event is Landmark:
        return frozenset()
    own = {f.name for f in fields(message.event) if f.default is MISSING} - {"code", "at"}
    return frozenset(own - message.always.keys())


def fitting(message: Message, sample: str) -> Iterator[Compiled]:
    """Yield the wordings that match somewhere in a sample, whole or with the tail cut off."""
    for wording in message.compiled():
        if wording.pattern.search(squeeze(sample)):
            yield wording


def start_in(message: Message, sample: str) -> int:
    """Return where in the squeezed sample the text that is recognised begins."""
    found = [m.start() for w in message.compiled() if (m := w.pattern.search(squeeze(sample)))]
    return min(found)
