"""The plan before a start: sums done by hand, its laws, what it offers, and what the command prints."""

from __future__ import annotations

import json
import shlex
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from typer.testing import CliRunner

from tests import planner_error
from vllm_diag.cards import Card, UnknownCard, card, card_names, size_in_bytes
from vllm_diag.cli import app
from vllm_diag.flags import releases_read
from vllm_diag.kv_arithmetic import ModelConfig, SplitError, read_config
from vllm_diag.plan_report import PlanReport
from vllm_diag.planning import Assessment, Options, Planned, Refused, plan
from vllm_diag.planning.assess import Planner
from vllm_diag.planning.defaults import settle, tensor_sizes
from vllm_diag.quantities import GIB
from vllm_diag.releases import Release, parse_release

CONFIGS = Path(__file__).parent / "data" / "configs"
V0_19, V0_33 = Release(0, 19, 1), Release(0, 33)
RANK = {"does-not-fit": 0, "cannot-tell": 1, "fits": 2}


def config(name: str, **changed: Any) -> ModelConfig:
    """Return the model called ``name`` with some fields changed."""
    return read_config({**json.loads((CONFIGS / f"{name}.json").read_text("utf-8")), **changed})


def planned(name: str, device: str, **options: Any) -> Planned:
    """Return the plan of the model called ``name``."""
    return plan(config(name), card(device), Options(**options))


# --- devices


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("h100", "H100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("a100-40gb", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("l4", "L4"),
        ("mi300x", "MI300X"),
        ("RTX 6000 Ada", "RTX 6000 Ada"),
        ("a6000", "RTX A6000"),
    ],
)
def test_devices_by_the_names_people_write(text: str, name: str) -> None:
    """A device is found by its name with or without maker, series and form factor."""
    assert card(text).name == name


def test_every_device_is_found_by_its_own_name() -> None:
    """No name of the table is hidden by another, and each holds less than its name says."""
    for name in card_names():
        found = card(name)
        assert found.name == name
        assert 0 < found.low <= found.high


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24), ("24GB", 24), ("24 gb", 24), ("24", 24), ("24576MiB", 24), ("23.5GiB", 23.5), ("0.5TiB", 512)],
)
def test_sizes_are_taken_as_given(text: str, size: float) -> None:
    """A size is no device: nothing is taken off."""
    assert size_in_bytes(text) == size * GIB
    assert (card(text).low, card(text).high, card(text).origin) == (size * GIB, size * GIB, "stated")


@pytest.mark.parametrize(("text", "near"), [("a100", "A100 40GB, A100 80GB"), ("h10", "H100"), ("4099", "RTX 40")])
def test_an_unknown_device_names_the_nearest(text: str, near: str) -> None:
    """A name that is none, or that two devices have, says which there are."""
    with pytest.raises(UnknownCard, match=near):
        card(text)


@pytest.mark.parametrize("text", ["", "0GiB", "GiB", "-3GiB", "24 bananas"])
def test_what_is_neither_device_nor_size(text: str) -> None:
    """Nonsense is refused, not guessed at."""
    with pytest.raises(UnknownCard, match="no device called"):
        card(text)


# --- defaults


@pytest.mark.parametrize(
    ("device", "release", "seqs", "tokens"),
    [
        ("4090", V0_33, 256, 2048),
        ("h100", V0_33, 1024, 8192),
        ("a100-80gb", V0_33, 256, 2048),
        ("h200", Release(0, 27), 1024, 8192),
        ("b200", V0_33, 1024, 16384),
        ("h100", Release(0, 8, 5), 1024, 8192),
        ("4090", Release(0, 8, 5), 256, 2048),
        # V0 computes a whole prompt in one step: the context length.
        ("4090", Release(0, 6, 3), 256, 16384),
    ],
)
def test_defaults_of_a_release_on_a_device(device: str, release: Release, seqs: int, tokens: int) -> None:
    """The requests and tokens of a step are those that the release chooses on that device."""
    chosen = settle(config("llama-3.1-8b"), card(device), Options(release, max_model_len=16384))
    assert (chosen.max_num_seqs, chosen.max_num_batched_tokens) == (seqs, tokens)


def test_every_condition_of_the_defaults_is_understood() -> None:
    """No release has a default under a condition that is not known here."""
    for text in releases_read():
        for device in (card("4090"), card("h200"), replace(card("64GiB"), device="cpu")):
            for length in (4096, 65536):
                settle(config("llama-3.1-8b"), device, Options(parse_release(text), max_model_len=length))


def test_devices_alone_are_split_over() -> None:
    """With a count and no size the model is split over as many devices as divide its heads."""
    qwen = config("qwen2.5-7b")  # 28 heads, 4 of them KV heads
    assert tensor_sizes(qwen, V0_33, 8) == (1, 2, 4)
    assert settle(qwen, card("l4"), Options(count=8)).tensor_parallel == 4
    with pytest.raises(Refused, match="there are 2"):
        settle(qwen, card("l4"), Options(count=2, tensor_parallel=4))
    with pytest.raises(SplitError, match="28 attention heads"):
        plan(qwen, card("l4"), Options(tensor_parallel=3))


# --- sums


def test_qwen_on_a_24_gb_card_by_hand() -> None:
    """Qwen2.5-7B does not hold 131,072 tokens on an RTX 4090 at 0.9, and does with a cache of 8 bits.

    Weights 7,615,616,512 x 2 bytes = 14.185 GiB. A token takes 28 layers x 2 x 4 heads x 128 x 2
    bytes = 57,344; 131,072 of them 7 GiB. At the best 0.9 x 23.65 - 14.185 = 7.10 GiB are left
    before the logits of 256 requests (256 x 152,064 x 6 bytes = 0.22 GiB): less than 7 GiB. At the
    worst, with 8 bits (3.5 GiB): 0.9 x 23.52 - 14.32 - 1.65 - 0.34 = 4.86 GiB.
    """
    made = plan(config("qwen2.5-7b", max_position_embeddings=131072), card("4090"), Options(V0_19))
    now = made.assessment
    assert now.settings.utilization == 0.9
    assert now.term("weights").amount.low == 7_615_616_512 * 2
    assert now.needed == 7 * GIB
    assert now.goal == 7 * GIB + 16 * 57_344  # the block that no request may use
    assert now.term("activations").amount.low >= 256 * 152_064 * 6
    assert 6.8 * GIB < now.available.high < 7 * GIB
    assert now.verdict == "does-not-fit"
    assert "7.00 GiB" in now.reasons[0]
    eight_bits = next(
        lever for lever in made.levers if [(c.flag, c.value) for c in lever.changes] == [("--kv-cache-dtype", "fp8")]
    )
    assert eight_bits.assessment.available.low == pytest.approx(4.86 * GIB, rel=0.01)


def test_between_the_ends_lies_cannot_tell() -> None:
    """Where only the optimistic end fits, the line of a start is named that would settle it."""
    made = planned("llama-3.1-8b", "4090", max_model_len=32768)
    assert made.assessment.available.low < made.assessment.goal <= made.assessment.available.high
    assert made.assessment.verdict == "cannot-tell"
    # 32,768 x 128 KiB = 4 GiB and one block of 16 tokens.
    assert made.settles == "a start's own line 'Available KV cache memory': 4.01 GiB or more is enough"


def test_a_share_close_to_one_leaves_no_room_for_the_context() -> None:
    """The CUDA context lies outside of the share: at 0.99 of a 24 GB card there is too little for it."""
    made = planned("qwen3-0.6b", "4090", utilization=0.99, max_model_len=4096)
    assert made.assessment.verdict == "does-not-fit"
    assert "Outside of the share" in made.assessment.reasons[0]
    assert made.levers[0].changes[0].flag == "--gpu-memory-utilization"


def test_a_given_size_of_the_cache_is_exact() -> None:
    """With the size of the cache given its part of the plan has no range, and needs what Layout says."""
    made = planned("llama-3.1-8b", "h100", kv_cache_memory=10 * GIB, max_model_len=131072)
    assert (made.assessment.available.low, made.assessment.available.high) == (10 * GIB, 10 * GIB)
    assert made.assessment.longest == (81904, 81904)  # kv-cache-arithmetic, worked example 2
    assert made.assessment.verdict == "does-not-fit"
    assert planned("llama-3.1-8b", "h100", kv_cache_memory=17 * GIB).command == (
        f"vllm serve MODEL --max-model-len 131072 --kv-cache-memory-bytes {17 * GIB}"
    )


def test_the_cpu_backend() -> None:
    """On the CPU the cache is what VLLM_CPU_KVCACHE_SPACE says, and lies in the same memory as the weights."""
    node = replace(card("32GiB"), device="cpu")
    made = plan(config("qwen3-0.6b"), node, Options(Release(0, 12), max_model_len=16384, kv_cache_memory=2 * GIB))
    assert made.assessment.verdict == "fits"
    assert made.command == "VLLM_CPU_KVCACHE_SPACE=2 vllm serve MODEL --max-model-len 16384"
    short = plan(config("qwen3-0.6b"), node, Options(Release(0, 12), max_model_len=40960))
    assert short.assessment.available.low == 4 * GIB
    assert [(c.flag, c.value) for c in short.levers[0].changes] == [("VLLM_CPU_KVCACHE_SPACE", "5")]


def test_graphs_are_in_the_budget_from_0_20() -> None:
    """Before, they must fit beside the share."""
    before = planned("llama-3.1-8b", "4090", release=V0_19, max_model_len=8192, utilization=0.9).assessment
    after = planned("llama-3.1-8b", "4090", release=Release(0, 20, 2), max_model_len=8192, utilization=0.9).assessment
    assert before.term("cuda_graphs").amount.high == 0 < after.term("cuda_graphs").amount.high
    assert before.outside.high - after.outside.high == after.term("cuda_graphs").amount.high
    eager = planned("llama-3.1-8b", "4090", max_model_len=8192, enforce_eager=True).assessment
    assert eager.term("cuda_graphs").amount.high == 0


def test_weights_quantized_while_loading_must_fit_before() -> None:
    """16-bit weights larger than the device cannot be said to load, whatever becomes of them."""
    online = planned("qwen3-32b", "a100-40gb", quantization="fp8", max_model_len=8192).assessment
    assert online.verdict == "cannot-tell"
    assert "quantizes while loading" in " ".join(online.reasons)
    ready = planned("qwen3-32b", "l40s", max_model_len=8192)
    assert any("a checkpoint in FP8" in c.text for lever in ready.levers for c in lever.changes)


def test_a_length_above_the_models_own_is_refused() -> None:
    """VLLM refuses it at start, so the plan does."""
    with pytest.raises(Refused, match="40,960"):
        planned("qwen3-32b", "h200", max_model_len=65536)


def test_the_exact_weights_of_a_checkpoints_headers(tmp_path: Path) -> None:
    """With the headers of safetensors files the weights are their sum, and the disk is known."""
    small = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
             "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(small), "utf-8")
    header = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [1000, 64], "data_offsets": [0, 128000]}}
    )
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode())
    report = PlanReport.model_validate_json(run(str(tmp_path), "--card", "24GiB", "--format", "json", status=0))
    assert report.plans[0].terms["weights"].low == 128_000
    assert "headers" in report.plans[0].terms["weights"].why
    assert report.plans[0].command == f"vllm serve {shlex.quote(str(tmp_path))} --max-model-len 2048"


# --- laws


def assessed(name: str, size: int, **options: Any) -> Assessment:
    """Return the assessment on a device of ``size`` bytes with the steps fixed: defaults change with the size."""
    device = Card("a device", size, size, "stated")
    steps = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
    return Planner(config(name), device).assess(Options(**{**steps, **options}))


NAMES = st.sampled_from(("llama-3.1-8b", "gemma-3-27b", "qwen3-next-80b-a3b", "deepseek-v2-lite", "gpt-oss-20b"))
RELEASES = st.sampled_from([Release(0, 11), Release(0, 15, 1), V0_19, Release(0, 26), V0_33])


@settings(max_examples=60, deadline=None)
@given(NAMES, RELEASES, st.integers(4, 300), st.integers(0, 64), st.sampled_from((2048, 32768)))
def test_more_memory_never_fits_less(name: str, release: Release, size: int, more: int, length: int) -> None:
    """A larger device has at least the verdict, the length and the requests of a smaller one."""
    small = assessed(name, size * GIB, release=release, max_model_len=length)
    large = assessed(name, (size + more) * GIB, release=release, max_model_len=length)
    assert RANK[large.verdict] >= RANK[small.verdict]
    assert large.longest >= small.longest
    assert large.concurrency >= small.concurrency


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("llama-3.1-8b", "qwen3-32b", "gemma-2-9b")), RELEASES, st.integers(4, 200))
def test_fewer_bits_never_fit_less(name: str, release: Release, size: int) -> None:
    """An 8-bit cache and a 4-bit checkpoint have at least the verdict of 16 bits."""
    plain = assessed(name, size * GIB, release=release, max_model_len=8192)
    for changed in ({"kv_cache_dtype": "fp8"}, {"checkpoint": "awq"}):
        fewer = assessed(name, size * GIB, release=release, max_model_len=8192, **changed)
        assert RANK[fewer.verdict] >= RANK[plain.verdict]
        assert fewer.longest >= plain.longest


@settings(max_examples=60, deadline=None)
@given(NAMES, RELEASES, st.sampled_from(("4090", "l4", "a100-40gb", "h100", "mi300x", "16GiB")), st.integers(1, 4))
def test_a_term_has_its_low_end_first(name: str, release: Release, device: str, ranks: int) -> None:
    """Every range is one, and the verdict follows from the ends."""
    now = Planner(config(name), card(device)).assess(
        Options(release, max_model_len=16384, tensor_parallel=ranks & ~1 or 1)
    )
    assert all(0 <= term.amount.low <= term.amount.high for term in now.terms)
    assert now.longest[0] <= now.longest[1]
    if now.verdict == "fits":
        assert now.available.low >= now.goal
        assert now.longest[0] >= 16384
    if now.available.high < now.goal:
        assert now.verdict == "does-not-fit"


CASES = [
    ("llama-3.1-8b", "4090", Options(V0_19)),
    ("llama-3.1-8b", "4090", Options(V0_33, max_model_len=65536, want_concurrency=4)),
    ("llama-3.1-70b", "h100", Options(V0_33, count=2)),
    ("llama-3.1-70b", "h100", Options(Release(0, 15, 1), count=2, max_model_len=32768, want_concurrency=8)),
    ("gemma-3-27b", "24GiB", Options(Release(0, 15, 1), max_model_len=32768)),
    ("qwen3-32b", "l4", Options(Release(0, 15, 1), count=4, pipeline_parallel=2)),
    ("qwen3-next-80b-a3b", "a100-80gb", Options(V0_33, count=2)),
    ("deepseek-v3", "h100", Options(V0_33, count=8)),
]


@pytest.mark.parametrize(
    ("name", "device", "options"), CASES, ids=[f"{n}-{d}-{i}" for i, (n, d, _) in enumerate(CASES)]
)
def test_every_lever_passes_the_plan_it_is_offered_by(name: str, device: str, options: Options) -> None:
    """A lever, applied, fits for certain by the same plan; none holds another that is enough by itself."""
    model, on = config(name), card(device)
    made = plan(model, on, options)
    assert made.assessment.verdict != "fits"
    assert made.levers
    for lever in made.levers:
        again = plan(model, on, lever.options)
        assert again.assessment.verdict == "fits"
        assert again.assessment.available == lever.assessment.available
        assert again.command is not None
        for change in lever.changes:
            assert change.flag in again.command
            assert f"{change.flag} {change.value}".strip() in again.command
    sets = [frozenset(lever.changes) for lever in made.levers]
    assert not any(one < other for one in sets for other in sets)


def test_where_nothing_helps_nothing_is_offered() -> None:
    """No lever is made up, and no command is given for what cannot start."""
    made = planned("llama-3.1-70b", "6GiB", max_model_len=131072, tensor_parallel=1)
    assert (made.levers, made.command, made.comfortable) == ((), None, 0)
    assert "no lever" in run(path("llama-3.1-70b"), "--card", "6GiB", status=1)


def test_the_longest_length_is_served_and_a_block_more_is_not() -> None:
    """The length named as certain fits, the next block does not."""
    made = planned("llama-3.1-8b", "4090", release=V0_33)
    longest = made.assessment.longest[0]
    assert made.comfortable <= longest
    assert planned("llama-3.1-8b", "4090", release=V0_33, max_model_len=longest).assessment.verdict == "fits"
    assert planned("llama-3.1-8b", "4090", release=V0_33, max_model_len=longest + 16).assessment.verdict != "fits"


def test_flags_are_spelled_as_the_release_does() -> None:
    """Before `vllm serve` the server is a module; a cache size has its flag from 0.10.2."""
    old = planned("opt-125m", "4090", release=Release(0, 4, 0), max_model_len=2048)
    assert old.command == ("python -m vllm.entrypoints.openai.api_server --model MODEL --max-model-len 2048")


def test_defects_of_the_release_are_named() -> None:
    """What is known to be wrong and bears on the plan is said, and only that."""
    codes = {
        row.code for row in planned("qwen3-32b", "l4", release=Release(0, 15, 1), count=8, pipeline_parallel=2).defects
    }
    assert "pipeline-stages-counted-together" in codes
    assert "only-first-group-checked" not in codes
    hybrid = planned("gemma-3-27b", "h100", release=Release(0, 15, 1), max_model_len=8192)
    assert "only-first-group-checked" in {row.code for row in hybrid.defects}
    assert planned("llama-3.1-8b", "h100", release=V0_33).defects == ()


def test_host_ram_grows_with_workers() -> None:
    """At least 16 GiB, weights and 8 to 16 GiB, and more for each further worker; /dev/shm for several ranks."""
    one = planned("opt-125m", "4090").host
    assert one.ram.low == 16 * GIB
    two = planned("llama-3.1-70b", "h200", count=2, max_model_len=8192).host
    assert two.ram.low == two.disk.low + 10 * GIB
    assert two.shm.low > one.shm.high
    assert set(two.rules) == {"ram", "shm", "disk"}


# --- the command


def run(*arguments: str, status: int) -> str:
    """Return what the command prints when it exits with ``status``."""
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def path(name: str) -> str:
    """Return the path of the config called ``name``."""
    return str(CONFIGS / f"{name}.json")


def test_exit_statuses() -> None:
    """0 fits, 1 does not, 2 cannot be told or a usage error."""
    assert "FITS" in run(path("qwen2.5-7b"), "--card", "4090", status=0)
    assert "DOES NOT FIT" in run(path("llama-3.1-8b"), "--gpu-memory", "24GiB", status=1)
    assert "CANNOT TELL" in run(path("llama-3.1-8b"), "--card", "4090", "--max-model-len", "32768", status=2)
    assert "vLLM refuses this at start" in run(path("llama-3.1-8b"), "--card", "4090", "-tp", "3", status=1)
    assert "no device called" in run(path("llama-3.1-8b"), "--card", "foo", status=2)
    assert "cannot read" in run("nowhere.json", "--card", "4090", status=2)
    assert "is no release" in run(path("llama-3.1-8b"), "--card", "4090", "--vllm", "new", status=2)
    assert "is no size" in run(path("llama-3.1-8b"), "--card", "4090", "--kv-cache-memory", "big", status=2)
    assert "Missing option" in run(path("llama-3.1-8b"), status=2)


def test_a_refusal_names_the_field_that_is_missing(tmp_path: Path) -> None:
    """What config.json leaves out is named, and what is certain all the same is said."""
    bare = tmp_path / "bare.json"
    bare.write_text('{"model_type": "llama", "num_attention_heads": 4, "hidden_size": 256}', "utf-8")
    assert "no `num_hidden_layers`" in run(str(bare), "--card", "4090", status=2)
    bare.write_text(
        '{"model_type": "foo", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256}', "utf-8"
    )
    assert "0 to 2,048 bytes" in run(str(bare), "--card", "4090", status=2)
    whole = json.loads(Path(path("llama-3.1-8b")).read_text("utf-8"))
    bare.write_text(json.dumps({name: value for name, value in whole.items() if name != "vocab_size"}), "utf-8")
    printed = " ".join(run(str(bare), "--card", "4090", status=2).split())
    assert "`vocab_size`" in printed
    assert "one request of 131,072 tokens takes 16.00 GiB" in printed


def test_a_table_over_models_and_cards() -> None:
    """Several models or cards give one line each; the status is that of the worst."""
    printed = run(path("llama-3.1-8b"), path("qwen3-32b"), "--card", "l40s", "--card", "h200", "--max-model-len", "32768",
                  status=1)  # fmt: skip
    lines = [line for line in printed.splitlines() if line.startswith(("llama-3.1-8b ", "qwen3-32b "))]
    assert [line.split()[-1] for line in lines] == ["fits", "fits", "not", "fits"]
    assert max(map(len, printed.splitlines())) <= 80


def test_json_is_the_report() -> None:
    """The JSON has a schema, and holds the figures that the text shows."""
    report = PlanReport.model_validate_json(
        run(path("qwen2.5-7b"), "--card", "4090", "--vllm", "0.33", "--format", "json", status=0)
    )
    item = report.plans[0]
    assert (report.schema_version, item.verdict, item.vllm, item.devices) == (1, "fits", "0.33.0", 1)
    assert item.terms["kv_cache"].low >= (item.goal or 0)
    assert item.command == "vllm serve MODEL --max-model-len 32768"


def test_explaining_does_not_load_the_planner() -> None:
    """The command line starts without it."""
    code = "import vllm_diag.cli, sys; print([m for m in sys.modules if 'planning' in m or 'plan_report' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class _TextFile(SingleFileSnapshotExtension):
    """One text file a case."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ("llama-3.1-70b.json --card h100 --count 2 --max-model-len 32768 --want-concurrency 4 --vllm 0.33"),
            id="levers",
        ),
        pytest.param(
            ("llama-3.1-8b.json qwen3-32b.json --card 4090 --card l40s --max-model-len 16384 --vllm 0.19.1"), id="table"
        ),
    ],
)
def test_rendering(arguments: str, snapshot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is as it was read and found good."""
    monkeypatch.chdir(CONFIGS)
    printed = CliRunner().invoke(app, ["plan", *arguments.split()]).output
    assert printed == snapshot(extension_class=_TextFile)


# --- against real servers

real = pytest.mark.skipif(not planner_error.CASES.is_dir(), reason="the logs are not beside this repository")


@real
def test_the_planners_errors_are_published() -> None:
    """Every derived figure is the one printed, every range holds it, and the page says so."""
    found = list(planner_error.rows())
    assert [row for row in found if not row.within] == []
    assert planner_error.PAGE.read_text("utf-8") == planner_error.page(found)
