"""Failures that are not a shortage of memory."""

from __future__ import annotations

from vllm_diag.messages import Message

MESSAGES: tuple[Message, ...] = ()
