"""What the machine needs beside its devices: memory, shared memory, disk. Rules of thumb, and said as such."""

from __future__ import annotations

from vllm_diag.cards import Card
from vllm_diag.kv_arithmetic import ConfigError, Interval
from vllm_diag.planning.assess import Planner
from vllm_diag.planning.model import Assessment, Host, Options
from vllm_diag.quantities import GIB, MIB, human
from vllm_diag.releases import NEWEST

_LEAST_RAM = 16 * GIB
# What one message queue of vLLM takes in /dev/shm (0.27 on prints it), and a rank of NCCL about.
_QUEUE, _NCCL = 240 * MIB, 64 * MIB
_CUSTOMARY_SHM = 16 * GIB
_CACHES = 2 * GIB


def host_needs(planner: Planner, options: Options, now: Assessment) -> Host:
    """Return host RAM, /dev/shm and disk for the plan, each with its rule."""
    stored, assumed = _checkpoint(planner, options, now)
    rules: dict[str, str] = {}
    ram = _ram(planner.card, now, stored, rules)
    ranks = now.settings.ranks
    if ranks == 1:
        shm = Interval(0, 64 * MIB)
        rules["shm"] = "one rank: Docker's default of 64 MiB is enough"
    else:
        shm = Interval(_QUEUE, (1 + ranks) * _QUEUE + ranks * _NCCL)
        rules["shm"] = (
            f"message queues of 240 MiB and NCCL for {ranks} ranks; --shm-size={_CUSTOMARY_SHM // GIB}g or --ipc=host"
            " is customary, and only what is used is taken"
        )
    disk = Interval(stored.low, stored.high + _CACHES)
    rules["disk"] = (
        f"the checkpoint once ({human(stored.high)}{assumed}; a download is written in place), and up to 2 GiB of"
        " compile caches; a repository with a second copy of the weights takes twice that"
    )
    return Host(ram, shm, disk, rules)


def _ram(card: Card, now: Assessment, stored: Interval, rules: dict[str, str]) -> Interval:
    further = now.settings.ranks - 1
    if card.device == "cpu":
        rules["ram"] = "weights and KV cache lie in host memory: the ledger is its budget"
        return Interval(now.requested.low * now.settings.ranks, now.requested.high * now.settings.ranks + 8 * GIB)
    low = max(_LEAST_RAM, stored.low + 8 * GIB + further * 2 * GIB)
    high = max(_LEAST_RAM, stored.high + 16 * GIB + further * 4 * GIB)
    rules["ram"] = (
        "weights + 8 to 16 GiB, at least 16 GiB"
        + (f", 2 to 4 GiB for each of {further} further workers" if further else "")
        + "; the part of the weights is page cache while loading and can be given back"
    )
    return Interval(low, high)


def _checkpoint(planner: Planner, options: Options, now: Assessment) -> tuple[Interval, str]:
    """Return the bytes of the files as stored: not quantized while loading, in the checkpoint's own type."""
    dtype = planner.config.dtype or "auto"
    files = None if options.checkpoint else options.files
    try:
        held = planner.weights(options.checkpoint, dtype, files, now.settings, options.release or NEWEST)
    except ConfigError:
        return now.weights_total, " at least"
    return held.total, ""
