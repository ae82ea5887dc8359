"""The catalogue of texts that are understood: one record a message, its wordings in it.

A `Message` says what a text is called, how it is worded in each generation, which figures
it holds in which unit, and which event it becomes. Adding one touches one module here and
one log in ``corpus/logs``. `CATALOGUE` holds them all; the tests check every record against
its own samples and against all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from vllm_diag.event_types import Event, Landmark
from vllm_diag.messages.vllm_texts import Text, all_releases, texts_by_message
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
        texts: what the releases' sources hold of it, word for word; wordings beside the others.

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
    texts: tuple[Text, ...] = ()

    @property
    def releases(self) -> str:
        """The first and last release whose sources hold it, where they were read; else what `seen` says."""
        order = all_releases()
        held = sorted((release for text in self.texts for release in text.releases), key=order.index)
        if not held or self.seen:
            return self.seen
        return held[0] if held[0] == held[-1] else f"{held[0]} - {held[-1]}"

    def compiled(self) -> Iterator[Compiled]:
        """Yield the wordings ready to match: those of the releases, then those written here."""
        for text in self.texts:
            yield replace(compile_wording(text.text, text.readers(self.reads)), releases=text.releases)
        for wording in self.wordings:
            yield compile_wording(wording, self.reads, self.spaced)


@cache
def catalogue() -> tuple[Message, ...]:
    """Return every message, in the order of the modules that hold them."""
    from vllm_diag.messages import (
        command,
        containers,
        distributed,
        failures,
        gpu_runtime,
        host,
        host_limits,
        hub,
        kernel,
        ray,
        toolchain,
        torch_allocator,
        vllm_engine,
        vllm_landmarks,
        vllm_memory,
        vllm_notices,
        vllm_serving,
    )

    modules = (
        vllm_engine, vllm_memory, vllm_notices, vllm_serving, vllm_landmarks, command, torch_allocator, kernel, host, containers,
        host_limits, ray, failures,
        hub, gpu_runtime, distributed, toolchain,
    )  # fmt: skip
    of_releases = texts_by_message()
    return tuple(
        replace(message, texts=of_releases.get(message.code, ())) for module in modules for message in module.MESSAGES
    )
