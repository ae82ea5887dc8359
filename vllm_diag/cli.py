"""The command line: options in, text out, exit status. Nothing is decided here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_diag import __version__

if TYPE_CHECKING:
    from vllm_diag.kv_arithmetic import ModelConfig

# Exit statuses, as promised in the contract.
NOTHING_FAILED, FAILED, UNUSABLE, NOTHING_RECOGNISED = 0, 1, 2, 3


class Format(str, Enum):
    """How a report is printed."""

    text = "text"
    json = "json"
    jsonl = "jsonl"
    markdown = "markdown"


class Color(str, Enum):
    """When colours are used."""

    auto = "auto"
    always = "always"
    never = "never"


app = typer.Typer(
    name="vllm-diag",
    help="Say what failed in a vLLM server's output, where the memory went, and what to change to which value.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="Logs to read, in order; standard input when none, or for -."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"vllm-diag {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    if sys.stdin is None or sys.stdin.isatty():
        typer.echo(context.get_help())
        raise typer.Exit(UNUSABLE)
    raise typer.Exit(_explain(None, Format.text, Color.auto, False, False))


@app.command()
def explain(
    files: Files = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print the report.")] = Format.text,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="Show every launch found, not only the last.")] = False,
    color: Annotated[Color, typer.Option("--color", help="When to use colours (NO_COLOR is honoured).")] = Color.auto,
    want_concurrency: Annotated[
        int | None,
        typer.Option("--want-concurrency", min=1, help="Say what so many full-length requests at once take."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The model's config.json: its own arithmetic sharpens the figures.")
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 where it would be 1.")] = False,
) -> None:
    """Print what failed, where the memory went, and what to change.

    Exit status: 0 nothing failed, 1 a failure was found, 2 usage error or unreadable input,
    3 nothing in the input was recognised.
    """
    raise typer.Exit(_explain(files, format, color, all_runs, exit_zero, want_concurrency, config))


def _explain(
    files: Sequence[Path] | None,
    format: Format,
    color: Color,
    all_runs: bool,
    exit_zero: bool,
    want: int | None = None,
    config: Path | None = None,
) -> int:
    from vllm_diag.inputs import Problem, open_inputs
    from vllm_diag.pipeline import diagnose_sources
    from vllm_diag.remedies.wanted import Wish
    from vllm_diag.report import build

    try:
        wish = Wish(want, _read_config(config))
        inputs = open_inputs(files)
        diagnoses, tally = diagnose_sources([i.stream for i in inputs], [i.name for i in inputs])
        report = build(diagnoses, tally, wish)
        problem = next((p for p in (i.problem(report) for i in inputs) if p), None)
    except Problem as found:
        return _complain(found)
    except OSError as error:
        return _complain(
            Problem(f"cannot read the input: {error.strerror or error}", "check the path and its permissions")
        )
    if not report.events:
        # Machines get their (empty) report all the same; people are told what to do.
        if format in (Format.json, Format.jsonl):
            _print(report, format, color, all_runs)
        if problem:
            _complain(problem)
        return NOTHING_RECOGNISED
    _print(report, format, color, all_runs)
    if report.outcome == "failed":
        return NOTHING_FAILED if exit_zero else FAILED
    return NOTHING_FAILED


def _read_config(path: Path | None) -> ModelConfig | None:
    """Return the model behind ``--config``; raises `Problem`."""
    if path is None:
        return None
    from vllm_diag.inputs import Problem
    from vllm_diag.kv_arithmetic import ConfigError, read_config

    try:
        return read_config(path)
    except ConfigError as refused:
        raise Problem(f"cannot use {path}: {refused}", "give the config.json that lies beside the weights") from refused


def _complain(problem: Exception) -> int:
    typer.echo(f"vllm-diag: {problem}", err=True)
    return UNUSABLE


def _print(report: object, format: Format, color: Color, all_runs: bool) -> None:
    from vllm_diag.report import Report

    assert isinstance(report, Report)
    if format is Format.json:
        typer.echo(report.model_dump_json(indent=2))
    elif format is Format.jsonl:
        typer.echo(report.model_dump_json())
    elif format is Format.markdown:
        from vllm_diag.render.markdown import render

        typer.echo(render(report, all_runs=all_runs))
    else:
        from vllm_diag.render.text import print_report

        print_report(report, color=color.value, all_runs=all_runs)


@app.command()
def events(files: Files = None) -> None:
    """Print the structured events, one JSON object a line, as they are found."""
    import json

    from vllm_diag.inputs import Problem, open_inputs
    from vllm_diag.pipeline import events as events_of
    from vllm_diag.report import event_item

    try:
        count = 0
        for one in open_inputs(files):
            for event in events_of(one.stream, one.name):
                count += 1
                sys.stdout.write(json.dumps(event_item(event), ensure_ascii=False) + "\n")
    except Problem as found:
        raise typer.Exit(_complain(found)) from None
    raise typer.Exit(NOTHING_FAILED if count else NOTHING_RECOGNISED)


@app.command()
def codes(
    code: Annotated[str | None, typer.Argument(help="A cause or message code: print its page.")] = None,
) -> None:
    """List the causes and messages that are known, or print the page of one."""
    from vllm_diag.pages import index, page

    text = index() if code is None else page(code)
    if text is None:
        from vllm_diag.pages import nearest

        hint = nearest(code or "")
        typer.echo(
            f"vllm-diag: no cause or message is called {code!r}" + (f"; there is {hint}" if hint else ""), err=True
        )
        raise typer.Exit(UNUSABLE)
    typer.echo(text)


class PlanFormat(str, Enum):
    """How a plan is printed."""

    text = "text"
    json = "json"


@app.command()
def plan(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG.json", help="config.json of a model, or its checkpoint's folder.")
    ],
    cards: Annotated[
        list[str],
        typer.Option("--gpu-memory", "--card", help="Memory of a device (24GiB) or its name (4090); several compare."),
    ],
    count: Annotated[int | None, typer.Option("--count", min=1, help="How many such devices there are.")] = None,
    max_model_len: Annotated[int | None, typer.Option("--max-model-len", min=1)] = None,
    want_concurrency: Annotated[
        float | None, typer.Option("--want-concurrency", min=1, help="Full-length requests to serve at once.")
    ] = None,
    utilization: Annotated[float | None, typer.Option("--gpu-memory-utilization", min=0.01, max=1.0)] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", "-q")] = None,
    dtype: Annotated[str, typer.Option("--dtype")] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option("--kv-cache-dtype")] = "auto",
    tensor_parallel: Annotated[int | None, typer.Option("--tensor-parallel-size", "-tp", min=1)] = None,
    pipeline_parallel: Annotated[int | None, typer.Option("--pipeline-parallel-size", "-pp", min=1)] = None,
    max_num_seqs: Annotated[int | None, typer.Option("--max-num-seqs", min=1)] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option("--max-num-batched-tokens", min=1)] = None,
    block_size: Annotated[int | None, typer.Option("--block-size", min=1)] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager")] = False,
    kv_cache_memory: Annotated[
        str | None, typer.Option("--kv-cache-memory", help="Size set for the KV cache of a rank, such as 8GiB.")
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Plan for the CPU backend; the memory is a node's RAM.")] = False,
    vllm: Annotated[
        str | None, typer.Option("--vllm", help="The release, such as 0.33; the newest rules else.")
    ] = None,
    format: Annotated[PlanFormat, typer.Option("--format", "-f", help="How to print the plan.")] = PlanFormat.text,
    color: Annotated[Color, typer.Option("--color", help="When to use colours (NO_COLOR is honoured).")] = Color.auto,
) -> None:
    """Say whether a model will start on a device, how many requests it serves, and what makes it fit.

    Options without a description are those of vLLM.

    Exit status: 0 it fits, 1 it does not, 2 that cannot be told, or a usage error. Of several
    plans: 1 where one does not fit, else 2 where one cannot be told.
    """
    from dataclasses import replace

    from vllm_diag.cards import UnknownCard, card, size_in_bytes
    from vllm_diag.kv_arithmetic import ConfigError
    from vllm_diag.plan_report import build
    from vllm_diag.planning import Options
    from vllm_diag.releases import parse_release

    release = parse_release(vllm.removeprefix("v")) if vllm else None
    space = size_in_bytes(kv_cache_memory) if kv_cache_memory else None
    if vllm and release is None:
        raise typer.Exit(_complain(ValueError(f"{vllm!r} is no release of vLLM; one is written 0.33 or 0.11.2")))
    if kv_cache_memory and space is None:
        raise typer.Exit(_complain(ValueError(f"{kv_cache_memory!r} is no size; one is written 8GiB")))
    options = Options(
        release, max_model_len, want_concurrency, utilization, quantization, None, dtype, kv_cache_dtype,
        tensor_parallel, pipeline_parallel, count, max_num_seqs, max_num_batched_tokens, block_size, enforce_eager,
        space,
    )  # fmt: skip
    try:
        devices = [card(text) for text in cards]
        report = build(configs, [replace(d, device="cpu") for d in devices] if cpu else devices, options)
    except (UnknownCard, ConfigError) as refused:
        raise typer.Exit(_complain(refused)) from None
    except OSError as error:
        unreadable = ValueError(f"cannot read {error.filename}: {error.strerror or error}")
        raise typer.Exit(_complain(unreadable)) from None
    if format is PlanFormat.json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        from vllm_diag.render.plan import print_plan

        print_plan(report, color=color.value)
    raise typer.Exit(report.status)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the report."""
    import json

    from vllm_diag.report import Report

    typer.echo(json.dumps(Report.model_json_schema(mode="serialization"), indent=2))


def main() -> None:
    """Run the command line; a reader that goes away is no error."""
    try:
        app()
    except BrokenPipeError:
        # The reader has what it wanted (head, less): leave quietly, as other tools do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
