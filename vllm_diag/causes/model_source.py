"""The model could not be had from where it was asked for.

`hub-unauthorized`: the hub wants a token, or the token may not read this model. 403 and
`gated repo` are certain; 401 with `Repository Not Found` is the same answer for a private
model, a misspelt name and a request without a token. Accept the licence on the model's page,
then `HF_TOKEN` in the environment of every process that loads, or `hf auth login`.

`model-not-found`: no such name on the hub, no such directory, or files of the model are
missing; a path that does not exist is taken for a name of the hub. In offline mode, or
without a way to the hub, only what is in the cache can be found. In a container the path is
the one inside it.

`trust-remote-code-required`: the model brings Python code of its own. Read it, then
`--trust-remote-code`; vLLM runs many such models natively when a newer release is used.

`chat-template-missing`: the file given with `--chat-template` is not there (the examples of
the source tree are not part of the wheel), or the model has no template and a chat request
came in. Base models have none; use `/v1/completions` or give one.
"""

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import ECHO, fact, from_loud, gathered, loud, serving_at
from vllm_diag.event_types import Event

_MISSING_REPOSITORY = ("Repository Not Found", "Revision Not Found")


def _refused(case: Case) -> list[Event]:
    return [e for e in loud(case.run.coded("hub-http-error")) if fact(e, "status") in (401, 403)]


def _unauthorized(case: Case, cause: Cause) -> Finding | None:
    gated = loud(case.run.coded("hub-gated"))
    refused = _refused(case)
    events = sorted([*gated, *refused], key=lambda event: event.at.order)
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k in ("status", "model")}
    # The hub says this to everybody who asks for a name that is not there.
    certain = [e for e in gated if "Invalid username or password" not in e.at.evidence.text]
    open_question = not certain and all(fact(e, "what") in (None, *_MISSING_REPOSITORY) for e in refused)
    open_question = open_question and all(fact(e, "status") == 401 for e in refused)
    missing = ["whether the name is right and the token reads it: hf auth whoami, and the model's page"]
    return cause.finding(
        *events[:4],
        verdict="likely" if open_question else "confirmed",
        facts=facts,
        summary="The hub answered {status}: it wants a token, or the token may not read this model."
        if "status" in facts
        else cause.summary,
        missing=missing if open_question else [],
    )


def _not_found(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    absent = loud(run.coded("model-missing"))
    unreachable = loud(run.coded("hub-unreachable"))
    unknown = [
        e
        for e in loud(run.coded("hub-http-error"))
        if fact(e, "status") == 404 and fact(e, "what") in _MISSING_REPOSITORY
    ]
    events = sorted([*absent, *unreachable, *unknown], key=lambda event: event.at.order)
    # Later such texts come from requests for adapters and do not end the server.
    events = [event for event in events if not serving_at(case, event)]
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k in ("model", "file", "path", "status", "files")}
    facts.setdefault("model", run.model)
    summary = cause.summary
    if not absent and not unknown:
        summary = "The model's files are not in the cache, and the hub was not asked or did not answer."
    elif facts.get("model"):
        summary = "No complete model was found under {model}."
    return cause.finding(
        *events[:4],
        facts=facts,
        summary=summary,
        missing=["ls of the path inside the container; HF_HUB_OFFLINE and the proxy settings"] if unreachable else [],
    )


def _warming_up(case: Case, event: Event) -> bool:
    """At the end of a start a template is tried out; that base models have none is noted, no more."""
    if any("warmup" in frame for frame in event.at.frames):
        return True
    return fact(event, "path") is None and case.run.ready and not serving_at(case, event)


def _template(case: Case, cause: Cause) -> Finding | None:
    events = [event for event in loud(case.run.coded("chat-template-absent")) if not _warming_up(case, event)]
    if not events:
        return None
    facts = {"path": fact(events[0], "path")}
    summary = "The chat template {path} is not there." if facts["path"] else cause.summary
    answered = all(serving_at(case, event) for event in events)
    return cause.finding(*events[:3], facts=facts, summary=summary, severity="warning" if answered else "error")


CAUSES = (
    Cause(
        code="hub-unauthorized",
        term="none",
        title="The hub refused access to the model",
        summary="The hub wants a token, or the token may not read this model.",
        judge=_unauthorized,
        explains=("model-not-found", "invalid-config", "trust-remote-code-required", *ECHO),
        arises=(
            "The hub answers by the account behind the token: a gated model needs its licence accepted, a "
            "fine-grained token the right to read gated repositories. Containers, systemd units and Ray "
            "workers often do not have the token of the shell."
        ),
        verify=(
            "`hf auth whoami` in the environment of the server names the account, and `hf download MODEL "
            "config.json` succeeds there."
        ),
        useless=(
            "A new token of the same account changes nothing while the licence is not accepted or the "
            "request is still under review. A token in the environment of the client does not reach the "
            "server."
        ),
    ),
    Cause(
        code="model-not-found",
        term="none",
        title="The model was not found",
        summary="The model or a file of it was not found.",
        judge=_not_found,
        explains=("invalid-config", *ECHO),
        arises=(
            "The argument is looked up as a directory first and goes to the hub as a name otherwise. A "
            "volume that is not mounted, a relative path from another working directory, a misspelt "
            "organisation, and a firewall before the hub are the usual situations."
        ),
        verify=(
            "`ls` of the path, inside the container, shows config.json and the weights; for a name of the "
            "hub the start prints progress of files or shards."
        ),
        useless=("A token does not mend a path. `HF_HUB_OFFLINE=1` with an empty cache takes the last source away."),
    ),
    Cause(
        code="trust-remote-code-required",
        term="none",
        title="The model brings code that may not run",
        summary="The model brings Python code of its own, and running it was not allowed.",
        judge=from_loud("remote-code-refused"),
        explains=("invalid-config", *ECHO),
        arises=(
            "`auto_map` in config.json or in the tokenizer's files points to Python files of the "
            "repository, which run only with leave. Models without a class in the installed transformers, "
            "and tokenizers or processors of their own, are met most."
        ),
        verify=(
            "The engine's configuration line shows `trust_remote_code=True`, and the start goes on to load weights."
        ),
        useless=(
            "A token gives access to files and no leave to run them. The question that transformers asks "
            "cannot be answered by a server without a terminal."
        ),
    ),
    Cause(
        code="chat-template-missing",
        term="none",
        title="There is no chat template",
        summary="The model brings no chat template, and none was given.",
        judge=_template,
        explains=("invalid-config", *ECHO),
        arises=(
            "A chat request becomes a prompt through a Jinja template, from the tokenizer's files or from "
            "a file given at start. Conversions lose chat_template.jinja, fine-tunes of base models never "
            "had it, and transformers puts no default in its place from 4.44 on."
        ),
        verify=(
            "A request to `/v1/chat/completions` is answered, and the tokenizer's files hold "
            "`chat_template` or chat_template.jinja, or the path that was given exists inside the "
            "container."
        ),
        useless=(
            "A template of another model family gives answers, but with marks that the model was not "
            "trained on. `--trust-remote-code` brings no template."
        ),
    ),
)
