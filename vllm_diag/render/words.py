"""The words that both renderings use: figures, flags, places."""

from __future__ import annotations

from vllm_diag.quantities import human
from vllm_diag.report import BudgetItem, ConfigItem, EvidenceItem, Figure, FindingItem, RemedyItem, Report, WantedItem

TERMS = {
    "weights": "weights",
    "activations": "activations",
    "non_torch": "outside PyTorch",
    "cuda_graphs": "CUDA graphs",
    "kv_cache": "KV cache",
    "own": "this process",
    "residual": "residual",
}

# Budget terms of a cause beside which the host's ledger is shown.
HOST_TERMS = frozenset(("host_ram", "cgroup", "shm", "cpu_kv_space", "swap_space"))
HOST_ROWS = {
    "total": "machine",
    "limit": "limit",
    "used": "in use",
    "killed": "process killed",
    "kv_cache": "KV cache",
    "checkpoint": "weights on their way",
    "swap_space": "swap space",
    "offloaded_weights": "offloaded weights",
    "offload_buffers": "offload buffers",
    "shm": "/dev/shm",
    "residual": "residual",
}

_OP_WORD = {"lower": "to", "raise": "to", "set": "", "add": "", "remove": ""}

HEADLINES = {
    "healthy": ("NOTHING FAILED", "The server came up, and nothing that was recognised is a failure."),
    "starting": ("NO FAILURE FOUND", "The log ends before the server is up; nothing in it is a failure."),
    "unknown": ("NO VERDICT", "Nothing in the input tells how the server fared."),
}


def headline(report: Report) -> tuple[str, str]:
    """Return title and sentence for a report without findings."""
    if not report.events:
        return "NOTHING RECOGNISED", "No line of the input is a message that vllm-diag knows."
    return HEADLINES.get(report.outcome, HEADLINES["unknown"])


def place(evidence: EvidenceItem) -> str:
    """Return ``source:line``."""
    return f"{evidence.source}:{evidence.line}"


def places(evidence: list[EvidenceItem], most: int = 2) -> str:
    """Return the first places, the rest of one source shortened to ``:line``."""
    shown: list[str] = []
    for item in evidence[:most]:
        same = shown and shown[0].startswith(f"{item.source}:")
        shown.append(f":{item.line}" if same else place(item))
    return ", ".join(shown)


def figure_note(figure: Figure, one_source: bool = False) -> str:
    """Return how a figure is known: its place, its derivation, or that it is assumed.

    With ``one_source`` the name of the source goes without saying.
    """
    known = f"+/- {human(figure.slack)}" if figure.origin != "stated" and figure.slack else ""
    where = places(figure.evidence) if figure.origin == "stated" else ""
    if one_source and figure.evidence:
        where = where.replace(figure.evidence[0].source + ":", "line ").replace(", :", ", ")
    parts = [figure.why, where, known]
    return ", ".join(part for part in parts if part)


def change(remedy: RemedyItem) -> str:
    """Return a remedy as one would type it: ``--max-model-len 18240``."""
    if remedy.flag is None:
        return f"{remedy.id.replace('-', ' ')}{f': {remedy.value}' if remedy.value else ''}"
    if remedy.value is None:
        return remedy.flag if remedy.op in ("add", "remove", "set") else f"{remedy.flag} ({remedy.op})"
    joiner = "=" if remedy.kind == "env" or remedy.flag in ("--ipc", "--shm-size", "--memory") else " "
    return f"{remedy.flag}{joiner}{remedy.value}"


def strength(remedy: RemedyItem, first: bool) -> str:
    """Return how strongly a remedy is advised."""
    if remedy.applicability == "as-is":
        return "try" if first else "or"
    return "may help" if remedy.applicability == "choose" else "last"


def benefit(remedy: RemedyItem, with_cost: bool = True) -> str:
    """Return what a remedy gains, what the sum comes to then, and what it costs where it costs anything."""
    after = f" Checked: {remedy.after}." if remedy.after else ""
    cost = f" Cost: {remedy.cost}." if with_cost and remedy.cost not in ("", "none") else ""
    return f"{remedy.gain}.{after}{cost}"


def wanted(answer: WantedItem) -> str:
    """Return the answer to ``--want-concurrency`` in one sentence."""
    verdict = "is" if answer.now >= answer.concurrency else "is not"
    return (
        f"{answer.concurrency} requests of {answer.max_model_len:,} tokens take {human(answer.needed)} of KV cache on a"
        f" rank; {human(answer.available)} is there, which {verdict} enough: {answer.now:.2f} fit ({answer.how})."
    )


def config(check: ConfigItem) -> str:
    """Return what the model's config.json says beside the log."""
    said = (
        f"By its config.json a token takes {check.bytes_per_token / 1024:,.1f} KiB on a rank, and one request of"
        f" {check.max_model_len:,} tokens {human(check.needed)}"
    )
    agrees = {True: ", as the log prints", False: ", unlike what the log prints", None: ""}[check.agrees]
    longest = f"; the longest that can be served is {check.longest_served:,}" if check.longest_served else ""
    return f"{said}{agrees}{longest}."


VERDICTS = {
    "confirmed": "",
    "likely": "Likely, not proved.",
    "undetermined": "Undetermined: the log does not settle it.",
}


def facts_lines(finding: FindingItem) -> list[tuple[str, str]]:
    """Return the facts that a person wants to see beside the summary."""
    rows: list[tuple[str, str]] = []
    for name, value in finding.facts.items():
        shown = _fact(name, value)
        if shown:
            rows.append(shown)
    return rows


_HIDDEN = frozenset(
    {"initial_free_bytes", "current_free_bytes", "required_bytes", "tried_bytes", "share_free", "term_because",
     "exit_code", "last_pid", "last_time", "kills", "victim", "victim_pid", "node", "gpu"}
)  # fmt: skip


def _fact(name: str, value: object) -> tuple[str, str] | None:
    if name in _HIDDEN or isinstance(value, bool):
        return None
    for unit, factor in (("_gib", 2**30), ("_mib", 2**20), ("_bytes", 1)):
        if name.endswith(unit) and isinstance(value, int | float):
            return name.removesuffix(unit).replace("_", " "), human(value * factor)
    if name == "kib_per_token":
        return "one token takes", f"{value:g} KiB"
    label = name.replace("_", " ")
    if isinstance(value, int):
        return label, f"{value:,}"
    if isinstance(value, float):
        return label, f"{value:g}"
    return (label, str(value)) if value else None


def budget_title(budget: BudgetItem) -> str:
    """Return whose budget it is."""
    who = [budget.device or "device"]
    if budget.rank is not None:
        who.append(f"rank {budget.rank}")
    return ", ".join(who)


def equation(budget: BudgetItem) -> str | None:
    """Return ``23.65 GiB x 0.90 = 21.28 GiB``."""
    if budget.total is None:
        return None
    total = human(budget.total.bytes)
    if budget.utilization is None or budget.requested is None:
        return total
    mark = "" if budget.utilization_origin == "stated" else " (assumed)"
    return f"{total} x {budget.utilization:g}{mark} = {human(budget.requested.bytes)}"


def subject(report: Report) -> str:
    """Say which of several starts the report is about, and how the other services are."""
    services = {run.service: run for run in report.runs}
    if len(services) < 2:
        return "the last"
    mine = report.runs[-1].service
    others = [f"{name or 'the other'} is {run.outcome}" for name, run in services.items() if name != mine]
    return f"{mine or 'the last'}; {', '.join(others[:4])}"
