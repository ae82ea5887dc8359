"""The command that starts a server, where people, scripts or unit files show it."""

from __future__ import annotations

from vllm_diag import settings
from vllm_diag.event_types import Settings
from vllm_diag.messages import Message
from vllm_diag.quantities import Reader

_flags = "|".join(sorted((name.replace("_", "-") for name in settings.KNOWN), key=len, reverse=True))
_given = Reader(
    "settings", r"(?!:).{0,4000}", settings.parse_command, ("/models/m --max-model-len 8192",), verbatim=True
)
# Advice in a message can put a flag at the start of a line; a backslash at its end is a command's.
_line = Reader(
    "settings",
    rf"(?:{_flags})[=\d'\"{{/A-Z].{{0,4000}}\\",
    lambda text: settings.parse_command("--" + text),
    ("max-model-len 8192 \\",),
    verbatim=True,
)
_transfer = Reader(
    "transfer",
    r"['\"]?\{.{0,4000}",
    lambda text: settings.parse_command("--kv-transfer-config " + text),
    ('\'{"kv_role": "kv_both"}\'',),
    verbatim=True,
)

MESSAGES = (
    Message(
        code="command-line",
        event=Settings,
        emitter="shell",
        reads={"settings": _given, "module": Reader("module", r"(?:openai\.)?api_server", str, ("openai.api_server",))},
        always={"explicit": True},
        wordings=("⟦$ ⟧vllm serve {settings}", "⟦$ ⟧python⟦3⟧ -m vllm.entrypoints.{module} {settings}"),
        samples=(
            "vllm serve /models/m --max-model-len 8192 --gpu-memory-utilization=0.85 --enforce-eager",
            "$ vllm serve /models/m",
            "python3 -m vllm.entrypoints.openai.api_server --model /models/m --tensor-parallel-size 2",
        ),
        means="The command of a server.",
    ),
    Message(
        code="command-flag",
        event=Settings,
        emitter="shell",
        whole_line=True,
        reads={"settings": _line},
        always={"explicit": True},
        wordings=("--{settings}",),
        samples=("--max-model-len 8192 \\",),
        means="A line of the command of a server.",
    ),
    Message(
        code="command-transfer",
        event=Settings,
        emitter="shell",
        reads={"settings": _transfer},
        always={"explicit": True},
        wordings=("--kv-transfer-config⟦=⟧ {settings}",),
        samples=("--kv-transfer-config '{\"cpu_bytes_to_use\": 68719476736}'",),
        means="The part of a command that says where the KV cache may be moved to.",
    ),
)
