"""The model's files are damaged, do not fit the model class, or there is no class for them.

`checkpoint-corrupt`: a file is cut off, empty, or something else than its name says.
`header too large` is often a git-lfs pointer or an HTML page; `incomplete metadata` a
download that stopped, for instance on a full disk. Compare sizes with the hub and fetch the
file again (`hf download MODEL --force-download`).

`checkpoint-mismatch`: tensors have other names or shapes than the implementation expects: a
fine-tune saved in another layout, a quantized checkpoint under the wrong `--quantization`,
an adapter in place of a model, or a vLLM older or newer than the checkpoint.

`unsupported-architecture`: this release has no implementation of the architecture named in
config.json. A newer vLLM, `--model-impl transformers`, or the older release that had it.
`failed to be inspected` means that importing the implementation failed; the reason stands
above it.
"""

import re

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import ECHO, fact, from_loud, gathered, loud
from vllm_diag.event_types import Event

_LOADING = re.compile(r":(?:_?load_\w*weights?\w*|\w*weight_loader\w*|_load_module|load_model|_load_model)$")


def _while_loading(event: Event) -> bool:
    return any(_LOADING.search(frame) for frame in event.at.frames)


def _in_transformers(event: Event) -> bool:
    return any(frame.startswith("configuration_auto.py:") for frame in event.at.frames[-3:])


def _mismatch(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    stated = loud(run.coded("weights-do-not-match"))
    unclear = loud(run.coded("missing-key", "shapes-differ", "bare-assertion"))
    keys = [event for event in unclear if _while_loading(event) and not _in_transformers(event)]
    if not stated and not keys:
        return None
    facts = {k: v for k, v in gathered([*stated, *keys]).items() if k in ("name", "key", "model")}
    name = facts.get("name") or facts.get("key")
    summary = f"The checkpoint and the model class do not agree about {name}." if name else cause.summary
    certain = bool(stated) or any(event.code == "missing-key" for event in keys)
    return cause.finding(
        *stated[:3], *keys[:2], verdict="confirmed" if certain else "likely", facts=facts, summary=summary
    )


def _architecture(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    refused = loud(run.coded("architecture-refused"))
    broken = loud(run.coded("architecture-inspection-failed"))
    if not refused and not broken:
        return None
    named = next(
        (fact(e, n) for e in [*refused, *broken] for n in ("architecture", "architectures") if fact(e, n)), None
    )
    name = ", ".join(re.findall(r"\w+", str(named))) if named else None
    facts = {"architecture": name, "last_release": gathered(refused).get("release")}
    summary = "vLLM has no implementation of {architecture}." if name else cause.summary
    if not refused:
        summary = "The implementation of {architecture} could not be imported; the reason stands above."
    return cause.finding(
        *refused[:3], *broken[:2], verdict="confirmed" if refused else "likely", facts=facts, summary=summary
    )


CAUSES = (
    Cause(
        code="checkpoint-corrupt",
        term="none",
        title="A file of the model is damaged",
        summary="A file of the model cannot be read: it is cut off, or it is not what its name says.",
        judge=from_loud("checkpoint-unreadable"),
        explains=("checkpoint-mismatch", "nccl-init-failed", "rendezvous-timeout", "ray-worker-died", *ECHO),
        arises=(
            "Loading reads a header or a pickle archive and finds fewer or other bytes than it describes. "
            "A download that was interrupted, a clone without git-lfs and a copy over network storage "
            "that ended early leave such files."
        ),
        verify=(
            "Each file has the size that the hub lists for it, and the progress bar of the checkpoint "
            "shards reaches 100 %."
        ),
        useless=(
            "Another `--load-format` or a newer safetensors reads the same broken bytes. A plain second "
            "download may leave the file as it is, because the cache holds one of that name."
        ),
    ),
    Cause(
        code="checkpoint-mismatch",
        term="none",
        title="Checkpoint and model class do not agree",
        summary="The checkpoint and the model class do not agree about names or shapes of tensors.",
        judge=_mismatch,
        explains=("nccl-init-failed", "rendezvous-timeout", "ray-worker-died", *ECHO),
        arises=(
            "The loader maps names in the checkpoint to parameters of vLLM's class and copies the "
            "tensors; a name without a place or a tensor of another shape stops it. Prefixes left by a "
            "training wrapper, resized embeddings, and quantization that config.json does not state are "
            "frequent."
        ),
        verify=(
            "`Model loading took` (before 0.8: `Loading model weights took`) is printed, and a short "
            "prompt gets a sensible answer."
        ),
        useless=(
            "Fetching the same files again gives the same names and shapes. `--load-format dummy` skips "
            "the weights, and what is answered then is noise."
        ),
    ),
    Cause(
        code="unsupported-architecture",
        term="none",
        title="This release does not know the architecture",
        summary="vLLM has no implementation of this model.",
        judge=_architecture,
        explains=("invalid-config", *ECHO),
        arises=(
            "`architectures` in config.json is looked up in vLLM's registry, to which releases add and "
            "from which some take away. A model newer than the release, and the class name of a fork or a "
            "training wrapper, are the usual situations."
        ),
        verify="The start prints `Resolved architecture` (0.10.1 on) with the name, and weights load.",
        useless=(
            "A similar name written into config.json ends in tensors that do not fit. "
            "`--trust-remote-code` by itself gives a configuration and a tokenizer, not an implementation "
            "in vLLM."
        ),
    ),
)
