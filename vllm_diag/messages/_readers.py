"""Readers shared by the messages about failures: fixed phrases, paths, quoted names."""

from __future__ import annotations

import re

from vllm_diag.quantities import Reader

path = Reader("path", r"[^\s'\"<>,;()\[\]]{1,300}?", str, ("/models/m", "/opt/x/lib.so"))
# A name in quotes or brackets: up to the mark that closes it.
quoted = Reader("quoted", r"[^'\"`\[\]]{1,300}", str, ("qwen3_vl", "lm_head.weight"), verbatim=True)
# What is left of the line, however long.
line_rest = Reader("line_rest", r".{1,2000}", str, ("head size not supported",), verbatim=True)
# 32768.0 is printed where a configuration holds a float.
whole = Reader("whole", r"\d{1,15}(?:\.0)?", lambda text: int(float(text)), ("32768.0", "4096"))
python_name = Reader("python_name", r"[A-Za-z_][\w.]{0,120}", str, ("transformers", "lora_rank"))


def phrases(name: str, *texts: str) -> Reader:
    """Return a reader for one of ``texts``; it reads the text with its blanks put back."""
    by_squeezed = {"".join(text.split()): text for text in texts}
    ordered = sorted(by_squeezed, key=len, reverse=True)
    return Reader(name, "|".join(re.escape(text) for text in ordered), by_squeezed.__getitem__, texts)
