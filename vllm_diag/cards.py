"""Devices by name, with the memory that PyTorch reports on them: less than the name says.

A part of the memory is taken by error correction and firmware, and makers mean 10**9 bytes or
2**30 as they like: "24 GB" is 23.5 to 23.7 GiB on a GeForce and 22.0 on an L4. ``seen`` marks
the rows where logs print a total inside the range, if not always with the name beside it; the
others are nominal sizes less what devices of the same family lose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from vllm_diag.quantities import GIB, human

Maker = Literal["cuda", "rocm", "cpu"]


class UnknownCard(ValueError):
    """A device name that is not known, or a size that is none; the message has the nearest names."""


@dataclass(frozen=True, slots=True)
class Card:
    """A device to plan for.

    ``low`` and ``high`` bound the bytes that PyTorch reports as its total. ``origin`` is "stated"
    for a size that was given, "derived" for one that logs print, else "assumed". ``device`` is
    the platform; ``capability`` NVIDIA's compute capability times ten, None where unknown.
    """

    name: str
    low: int
    high: int
    origin: Literal["stated", "derived", "assumed"]
    device: Maker = "cuda"
    capability: int | None = None

    @property
    def has_fp8(self) -> bool | None:
        """Whether it computes with 8-bit floats; None where that is not known."""
        if self.device == "rocm":
            return not self.name.startswith("MI2")
        return None if self.capability is None else self.capability >= 89

    @property
    def has_bfloat16(self) -> bool | None:
        """Whether it computes with bfloat16; None where that is not known."""
        return True if self.device != "cuda" else None if self.capability is None else self.capability >= 80


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    low: float
    high: float
    capability: int | None
    seen: bool = False
    device: Maker = "cuda"
    also: tuple[str, ...] = ()

    def card(self) -> Card:
        origin: Literal["derived", "assumed"] = "derived" if self.seen else "assumed"
        return Card(self.name, round(self.low * GIB), round(self.high * GIB), origin, self.device, self.capability)


# GiB as torch.cuda.get_device_properties().total_memory or cudaMemGetInfo gives them.
_ROWS = (
    _Row("V100 16GB", 15.77, 15.78, 70, seen=True),
    _Row("V100 32GB", 31.73, 31.75, 70),
    _Row("T4", 14.56, 14.75, 75),
    _Row("RTX 2080 Ti", 10.57, 10.76, 75),
    _Row("A2", 14.5, 14.76, 86),
    _Row("A10", 21.98, 22.2, 86),
    _Row("A10G", 21.98, 22.30, 86, seen=True),
    _Row("A16", 14.5, 14.8, 86),
    _Row("A30", 23.4, 23.7, 80),
    _Row("A40", 44.3, 44.56, 86),
    _Row("A100 40GB", 39.38, 39.6, 80, also=("a100-pcie-40gb", "a100-sxm4-40gb")),
    _Row("A100 80GB", 79.1, 79.33, 80, seen=True, also=("a100-pcie-80gb", "a100-sxm4-80gb")),
    _Row("RTX A4000", 15.6, 15.75, 86),
    _Row("RTX A5000", 23.5, 23.7, 86),
    _Row("RTX A6000", 47.38, 47.55, 86, seen=True),
    _Row("RTX 3060", 11.6, 11.77, 86, seen=True),
    _Row("RTX 3080", 9.6, 9.78, 86),
    _Row("RTX 3090", 23.56, 23.70, 86, seen=True, also=("rtx 3090 ti",)),
    _Row("RTX 4060 Ti 16GB", 15.5, 15.7, 89),
    _Row("RTX 4070", 11.5, 11.75, 89, also=("rtx 4070 super", "rtx 4070 ti")),
    _Row("RTX 4080", 15.55, 15.75, 89, also=("rtx 4080 super", "rtx 4070 ti super")),
    _Row("RTX 4090", 23.52, 23.65, 89, seen=True),
    _Row("RTX 6000 Ada", 47.3, 47.55, 89),
    _Row("L4", 21.95, 22.17, 89, seen=True),
    _Row("L40", 44.3, 44.56, 89),
    _Row("L40S", 44.4, 44.56, 89, seen=True),
    _Row("H100 80GB", 79.1, 79.65, 90, seen=True, also=("h100-pcie", "h100-sxm", "h100-sxm5")),
    _Row("H100 NVL", 93.0, 93.3, 90, seen=True, also=("h100 94gb",)),
    _Row("H20", 95.0, 95.6, 90),
    _Row("H200", 139.7, 140.1, 90, seen=True, also=("h200-sxm", "h200 141gb")),
    _Row("GH200 96GB", 94.4, 95.6, 90),
    _Row("B200", 178.0, 180.0, 100, also=("b200 180gb", "b200 192gb")),
    _Row("GB200", 183.5, 186.5, 100),
    _Row("B300", 266.0, 276.0, 103),
    _Row("RTX 5070 Ti", 15.4, 15.75, 120),
    _Row("RTX 5080", 15.4, 15.75, 120),
    _Row("RTX 5090", 31.3, 31.4, 120, seen=True),
    _Row("RTX PRO 6000", 94.5, 95.1, 120, also=("rtx pro 6000 blackwell",)),
    _Row("MI210", 63.9, 64.0, None, seen=True, device="rocm"),
    _Row("MI250X", 63.9, 64.0, None, device="rocm", also=("mi250",)),
    _Row("MI300X", 191.5, 192.0, None, seen=True, device="rocm"),
    _Row("MI325X", 255.4, 256.0, None, device="rocm"),
    _Row("MI350X", 287.2, 288.0, None, device="rocm"),
    _Row("MI355X", 287.2, 288.0, None, device="rocm"),
    _Row("RX 7900 XTX", 23.9, 24.0, None, device="rocm"),
)  # fmt: skip

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
# A number without a unit is GiB; above this it is a mistyped name ("4099").
_LARGEST_PLAIN = 1024
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
# Words of a full product name that do not tell devices apart.
_IDLE = frozenset(
    ("nvidia", "amd", "geforce", "tesla", "instinct", "radeon", "gpu", "graphics", "generation", "hbm3e", "hbm3",
     "hbm2e", "rtx", "rx", "blackwell", "ada", "sxm", "sxm2", "sxm4", "sxm5", "pcie", "oam", "edition", "server",
     "workstation")
)  # fmt: skip


def card_names() -> tuple[str, ...]:
    """Return the names of the devices that are known, NVIDIA's first."""
    return tuple(row.name for row in _ROWS)


def size_in_bytes(text: str) -> int | None:
    """Return the bytes of "24GiB", "24GB", "24576MiB" or "24" (GiB); None where it is no size.

    GB is read as GiB, as memory of devices is named.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        return None
    number = float(found[1])
    plain = not found[2] and not text.strip().lower().endswith("b")
    if plain and number > _LARGEST_PLAIN:
        return None
    size = round(number * 2 ** (10 * _POWERS["g" if plain else found[2].lower()]))
    return size if size > 0 else None


def card(text: str) -> Card:
    """Return the device called ``text``, or one of that size.

    Names are taken as people write them: "4090", "h100", "NVIDIA A100-SXM4-80GB". Where a name has
    variants of several sizes ("a100") the size has to be said, unless one is far the commoner.

    Raises:
        UnknownCard: no such device; the message names the nearest.

    """
    size = size_in_bytes(text)
    # "4090" is a device and "24" a size: a number is a size while no device has it for its name.
    row = _row(text)
    if row is not None:
        return row.card()
    if size is not None:
        return Card(human(size), size, size, "stated")
    near = _nearest(text)
    hint = f"; there is {', '.join(near)}" if near else ""
    raise UnknownCard(f"no device called {text[:60]!r} is known{hint}; a size such as 24GiB is taken too")


def _row(text: str) -> _Row | None:
    wanted = _key(text)
    if not wanted:
        return None
    for row in _ROWS:
        if wanted in {_key(name) for name in (row.name, *row.also)}:
            return row
    # A name without its size, where only one variant has it: "h100" is the one of 80 GB.
    bare = {row.name.split()[0].lower(): row for row in _ROWS if row.name in ("H100 80GB", "GH200 96GB")}
    return next((row for name, row in bare.items() if wanted == name), None)


def _key(text: str) -> str:
    """Return the words that tell a device from others, joined: "NVIDIA GeForce RTX 4090" gives "4090"."""
    spaced = re.sub(r"(\d)\s*(gi?b)\b", r"\1gb", text.lower())
    return "".join(word for word in re.split(r"[^a-z0-9]+", spaced) if word and word not in _IDLE)


def _nearest(text: str) -> list[str]:
    keys = {_key(name): row.name for row in _ROWS for name in (row.name, *row.also)}
    wanted = _key(text)
    starts = [name for key, name in keys.items() if wanted and key.startswith(wanted)]
    return _once([*starts, *(keys[key] for key in get_close_matches(wanted, list(keys), n=3, cutoff=0.5))])[:4]


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
