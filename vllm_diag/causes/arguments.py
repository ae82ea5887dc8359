"""The command line or a configuration was refused, or the port is taken.

`unknown-flag`: this release has no such flag. Flags come and go between releases and in
forks; `vllm serve --help=KEYWORD` lists what there is. argparse also prints the values that
stood behind an unknown flag, so only the words with dashes are wrong.

`invalid-config`: a flag or a configuration value is out of its range, or two contradict each
other. The text names the field.

`port-in-use`: another process listens on the port. `ss -ltnp` shows which; an earlier
server that has not gone is the usual one. `Application startup complete.` can stand before
the error, so that line alone does not prove that anybody can connect. With a port of
torch.distributed it is the rendezvous that is taken, not the API.
"""

import re

from vllm_diag.causes import Case, Cause, Finding
from vllm_diag.causes._stated import ECHO, fact, gathered, loud

# Refusals with a cause of their own: pydantic's headline above them says nothing more.
_OWN_CAUSE = (
    "model-len-over-limit", "batched-tokens-too-few", "parallel-size-indivisible", "lora-rank-over-limit",
    "unknown-argument", "dtype-refused", "quantization-refused", "attention-backend-refused", "model-missing",
    "hub-unreachable", "hub-gated", "hub-http-error", "remote-code-refused", "architecture-refused",
    "architecture-inspection-failed", "model-type-unknown", "transformers-name-gone", "too-few-gpus", "no-gpu",
    "package-missing", "module-missing", "import-name-missing", "package-version-refused", "binary-mismatch",
    "op-missing", "checkpoint-unreadable", "cuda-error", "cuda-init-error", "no-platform",
)  # fmt: skip
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w.-]*")


def _unknown(case: Case, cause: Cause) -> Finding | None:
    events = case.run.coded("unknown-argument")
    if not events:
        return None
    shown = events[0].at.evidence.text
    _, _, given = shown.partition("unrecognized arguments:")
    flag = next(iter(_FLAG.findall(given)), None) or fact(events[0], "flag") or fact(events[0], "name")
    facts = {"flag": flag}
    return cause.finding(*events[:2], facts=facts, summary=cause.summary if flag else "A flag is not known here.")


def _invalid(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    stated = loud(run.coded("argument-refused", "configuration-refused", "cpu-kv-space-invalid"))
    headline = [] if run.has(*_OWN_CAUSE) else loud(run.coded("config-validation-failed"))
    events = [*stated, *headline]
    if not events:
        return None
    facts = {k: v for k, v in gathered(events).items() if k not in ("prog", "kind")}
    summary = cause.summary
    if "flag" in facts and "value" in facts:
        summary = "{flag} cannot be {value}."
    elif "flag" in facts:
        summary = "The value of {flag} was refused."
    elif "config" in facts and "field" in facts:
        summary = "{field} of {config} was refused."
    return cause.finding(*events[:3], facts=facts, summary=summary)


def _port(case: Case, cause: Cause) -> Finding | None:
    run = case.run
    api = loud(run.coded("port-taken"))
    rendezvous = run.coded("rendezvous-port-taken")
    if not api and not rendezvous:
        return None
    holders = run.coded("port-holder")
    events = [*api[:2], *rendezvous[:2], *holders[:1]]
    found = gathered(events)
    facts = {k: v for k, v in found.items() if k in ("port", "errno", "host", "holder", "address")}
    facts["holder_pid"] = found.get("pid")
    if api and "port" not in facts and "address" not in facts:
        facts["port"] = run.settings.get("port")
    if not api:
        facts["rendezvous_port"] = facts.pop("port", None)
        return cause.finding(*events, facts=facts, summary="Port {rendezvous_port}, at which the ranks meet, is taken.")
    summary = "Port {port} is taken." if facts.get("port") else cause.summary
    if "holder" in facts:
        summary = summary[:-1] + " by {holder} (pid {holder_pid})."
    return cause.finding(*events, facts=facts, summary=summary)


CAUSES = (
    Cause(
        code="unknown-flag",
        term="none",
        title="A flag that this release does not know",
        summary="{flag} is not known to this release.",
        judge=_unknown,
        explains=("invalid-config", *ECHO),
        arises=(
            "A flag of a newer or older release, of a fork or of an article meets a parser that does not "
            "have it. Flags of V0 went with it in 0.11, some turned into fields of a JSON option, and an "
            "editor's long dash or a typing error looks the same."
        ),
        verify=(
            "`vllm serve --help` of the installed release lists every flag that is given, and the start "
            "prints its arguments."
        ),
        useless=(
            "Another value or other quotes do not make the flag known. An environment variable of the "
            "same name is not read in its place."
        ),
    ),
    Cause(
        code="invalid-config",
        term="none",
        title="A setting was refused",
        summary="A setting was refused.",
        judge=_invalid,
        explains=ECHO,
        arises=(
            "Values are checked one by one and then against each other, before anything is loaded. JSON "
            "whose quotes the shell took away, an option beside a feature that excludes it, and a field "
            "in config.json that this release does not read are frequent."
        ),
        verify=(
            "The start prints `non-default args` (from 0.9 on) with the new value and goes on to the "
            "engine's configuration line."
        ),
        useless=(
            "Changing several settings at once hides which one was refused. Environment variables do not "
            "override a value that is given on the command line."
        ),
    ),
    Cause(
        code="port-in-use",
        term="none",
        title="The port is taken",
        summary="The port is taken by another process.",
        judge=_port,
        explains=("rendezvous-timeout", *ECHO),
        arises=(
            "Two sockets want one address. Two servers left at port 8000, containers on the host's "
            "network, a restart before the predecessor had ended, and children of a killed front end that "
            "kept its socket are the usual situations."
        ),
        verify="`ss -ltnp` shows the new server's process at the port, and `/health` answers with 200.",
        useless=(
            "Waiting does not free a port on which a process still listens. Another `--host` avoids it "
            "only where the holder is bound to a single address."
        ),
    ),
)
