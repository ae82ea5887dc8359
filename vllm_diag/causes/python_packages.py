"""Python packages are missing, too old or too new for each other.

`transformers-too-old`: the installed transformers does not know the model type, the
tokenizer class or the form of its settings. Upgrade it together with vLLM, or take a newer
image; each vLLM release states the range it was made for.

`transformers-too-new`: vLLM uses something that transformers has dropped or taken over
(5.0 removed many names). Pin transformers to the range of the installed vLLM.

`package-metadata-missing`: a package or module is not installed, or outside the range that
another one asks for. Look at `pip check` in the environment that runs vLLM, which need not
be the one of the shell.
"""

from vllm_diag.causes import Case, Cause, Finding, Verdict
from vllm_diag.causes._stated import ECHO, fact, gathered, loud
from vllm_diag.causes._torch_oom import CASCADE
from vllm_diag.event_types import Event
from vllm_diag.releases import parse_release

# Names that transformers 4.5x and 5.0 no longer have.
_DROPPED = frozenset(
    {
        "AutoModelForVision2Seq", "HybridCache", "SlidingWindowCache", "SinkCache", "OffloadedCache", "LossKwargs",
        "is_tf_available", "is_flax_available", "is_torch_fx_available", "TFAutoModel", "FlaxAutoModel",
        "is_flash_attn_greater_or_equal_2_10",
    }
)  # fmt: skip


def _imports(case: Case) -> list[Event]:
    events = loud(case.run.coded("import-name-missing"))
    return [e for e in events if str(fact(e, "module")).split(".")[0] == "transformers"]


def _is_above(event: Event) -> bool:
    """Whether the installed release is above the range asked for, not below it."""
    installed = parse_release(str(fact(event, "installed")))
    upper = next((p.strip("<=") for p in str(fact(event, "range")).split(",") if p.startswith("<")), None)
    limit = parse_release(upper if upper and "." in upper else f"{upper}.0") if upper else None
    return installed is not None and limit is not None and installed >= limit


def _refused(case: Case, above: bool | None = None) -> list[Event]:
    events = loud(case.run.coded("package-version-refused"))
    if above is None:
        return [e for e in events if fact(e, "package") != "transformers"]
    return [e for e in events if fact(e, "package") == "transformers" and _is_above(e) is above]


def _of_transformers(event: Event) -> bool:
    return str(fact(event, "module")).startswith("transformers.")


def _unknown_types(case: Case) -> list[Event]:
    """Return lookups of a model type in transformers' own table that failed."""
    events = loud(case.run.coded("missing-key"))
    return [e for e in events if any(f.startswith("configuration_auto.py:") for f in e.at.frames[-3:])]


def _too_old(case: Case, cause: Cause) -> Finding | None:
    stated = [*loud(case.run.coded("model-type-unknown")), *_refused(case, above=False), *_unknown_types(case)]
    imports = [e for e in _imports(case) if fact(e, "name") not in _DROPPED]
    imports += [e for e in loud(case.run.coded("module-missing")) if _of_transformers(e)]
    if not stated and not imports:
        return None
    facts = {
        k: v
        for k, v in gathered([*stated, *imports]).items()
        if k in ("model_type", "class", "name", "installed", "key")
    }
    if "key" in facts:
        facts["model_type"] = facts.pop("key")
    summary = "The installed transformers does not know the model type {model_type}." if "model_type" in facts else None
    return cause.finding(
        *stated[:3], *imports[:2], verdict="confirmed" if stated else "likely", facts=facts, summary=summary
    )


def _too_new(case: Case, cause: Cause) -> Finding | None:
    stated = [*loud(case.run.coded("transformers-name-gone")), *_refused(case, above=True)]
    imports = [e for e in _imports(case) if fact(e, "name") in _DROPPED]
    events = [*stated, *imports]
    if not events:
        return None
    found = gathered(events)
    gone = found.get("gone") or found.get("attribute") or found.get("moved") or found.get("name")
    facts = {"attribute": gone, "class": found.get("class") or found.get("config"), "installed": found.get("installed")}
    return cause.finding(*events[:3], facts=facts)


def _missing(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    stated = [*loud(run.coded("package-missing")), *_refused(case)]
    modules = [] if run.ready else [e for e in loud(run.coded("module-missing")) if not _of_transformers(e)]
    events = [*stated, *modules]
    if not events:
        return None
    found = gathered(events)
    name = found.get("package") or found.get("module")
    facts = {"package": name, "installed": found.get("installed"), "range": found.get("range")}
    summary = "The Python package {package} is not installed."
    if facts["range"]:
        summary = "{package} {installed} is installed, and {range} is asked for."
    verdict: Verdict = "confirmed" if stated or run.has(*CASCADE) or not run.ready else "likely"
    return cause.finding(*events[:3], verdict=verdict, facts=facts, summary=summary)


CAUSES = (
    Cause(
        code="transformers-too-old",
        term="none",
        title="The installed transformers is too old",
        summary="The installed transformers lacks something that this model or vLLM needs.",
        judge=_too_old,
        explains=("invalid-config", "unsupported-architecture", "trust-remote-code-required", *ECHO),
        arises=(
            "config.json names a model type, or the tokenizer's files a class, that came with a later "
            "transformers. It is met in the first weeks of a model, in pinned images, and with "
            "checkpoints that were saved by a newer transformers."
        ),
        verify="`AutoConfig.from_pretrained(MODEL)` with the server's interpreter returns the configuration.",
        useless=(
            "A `model_type` changed to a known one loads another model's settings. `--trust-remote-code` "
            "helps only where the repository brings its own configuration class."
        ),
    ),
    Cause(
        code="transformers-too-new",
        term="none",
        title="The installed transformers is too new",
        summary="vLLM uses something that the installed transformers no longer has.",
        judge=_too_new,
        explains=("invalid-config", "unsupported-architecture", *ECHO),
        arises=(
            "vLLM's requirements often name a lowest transformers and no highest, so a fresh install "
            "brings one that was made later. It shows as an ImportError or AttributeError for a name that "
            "is gone or has moved."
        ),
        verify=(
            "The import or attribute in the last line of the traceback works with the server's "
            "interpreter, and the configuration is read."
        ),
        useless=(
            "Another model or `--trust-remote-code` imports the same modules. An import edited in "
            "site-packages leads to the next missing name."
        ),
    ),
    Cause(
        code="package-metadata-missing",
        term="none",
        title="A Python package is missing or does not fit",
        summary="A Python package is missing.",
        judge=_missing,
        explains=("invalid-config", "unsupported-architecture", *ECHO),
        arises=(
            "Audio, video, some quantizations and some loaders import packages that a plain install does "
            "not bring, and ranges of versions are compared at import. A second environment, or another "
            "package's install that moved a version, is the usual situation."
        ),
        verify="`python -m pip show NAME` with the server's interpreter prints a version inside the range.",
        useless=(
            "The system's pip installs for another interpreter. `PYTHONPATH` into another environment "
            "mixes compiled packages of both."
        ),
    ),
)
