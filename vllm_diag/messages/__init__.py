"""The catalogue of texts that are understood: one record a message, its wordings in it.

A `Message` says what a text is called, how it is worded in each generation, which figures
it holds in which unit, and which event it becomes. Adding one touches one module here and
one log in ``corpus/logs``. `CATALOGUE` holds them all; the tests check every record against
its own samples and against all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from vllm_diag.event_types import Event, Landmark
from vllm_diag.quantities import Reader
from vllm_diag.wording import Compiled, compile_wording


@dataclass(frozen=True, slots=True)
class Message:
    """One text of the outside world, in all its wordings.

    Attributes:
        code: kebab-case name of what the text says (not of what caused it).
        wordings: the texts in the notation of `vllm_diag.wording`.
        samples: texts as met, each fully matched by this message and by no other.
        reads: how each placeholder is read.
        event: the event class; placeholders are its fields (for `Landmark`: its facts).
        means: what the text says, in one sentence.
        emitter: who prints it.
        seen: the releases whose sources hold it.
        always: fields that the text implies without printing them.
        anywhere: the text may stand behind other words, as torch's does in wrappers.
        whole_line: nothing else may stand on the line ("Killed").
        spaced: the row of a table, whose figures only blanks tell apart; found on whole lines only.
        fatal: the text is the end of a process or of the start.

    """

    code: str
    wordings: tuple[str, ...]
    samples: tuple[str, ...]
    means: str
    emitter: str
    reads: Mapping[str, Reader] = field(default_factory=dict)
    event: type[Event] = Landmark
    seen: str = ""
    always: Mapping[str, Any] = field(default_factory=dict)
    anywhere: bool = False
    whole_line: bool = False
    spaced: bool = False
    fatal: bool = False

    def compiled(self) -> Iterator[Compiled]:
        """Yield the wordings ready to match."""
        for wording in self.wordings:
            yield compile_wording(wording, self.reads, self.spaced)


@cache
def catalogue() -> tuple[Message, ...]:
    """Return every message, in the order of the modules that hold them."""
    from vllm_diag.messages import (
        distributed,
        failures,
        gpu_runtime,
        host,
        hub,
        kernel,
        toolchain,
        torch_allocator,
        vllm_engine,
        vllm_memory,
        vllm_notices,
        vllm_serving,
    )

    modules = (
        vllm_engine, vllm_memory, vllm_notices, vllm_serving, torch_allocator, kernel, host, failures, hub, gpu_runtime,
        distributed, toolchain,
    )  # fmt: skip
    return tuple(message for module in modules for message in module.MESSAGES)
