"""KV-cache arithmetic against figures that vLLM's own planning code computed, against genuine logs, and its laws.

data/kv_cache_examples.json holds layers, memory and results of 22 releases; data/configs the facts
of public models' config.json that the layers follow from.
"""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_diag.kv_arithmetic import (
    CacheDtypeError,
    CacheLayer,
    ConfigError,
    Interval,
    Layout,
    LayoutRefused,
    MissingField,
    ModelConfig,
    Pool,
    Serving,
    SplitError,
    UnknownArchitecture,
    V0Pool,
    printed_gib,
    read_config,
    weights,
)
from vllm_diag.kv_arithmetic.architectures import FAMILIES
from vllm_diag.kv_arithmetic.layout import split_layers
from vllm_diag.kv_arithmetic.quantization import scheme_of
from vllm_diag.kv_arithmetic.rules import concurrent_steps
from vllm_diag.quantities import GIB
from vllm_diag.releases import Release, parse_release

DATA = Path(__file__).parent / "data"
CONFIGS = {path.stem: path for path in sorted((DATA / "configs").glob("*.json"))}
EXAMPLES: list[dict[str, Any]] = json.loads((DATA / "kv_cache_examples.json").read_text(encoding="utf-8"))
REAL = Path(__file__).parent.parent.parent / "shared" / "cases" / "real"

V0_29, V0_28, V0_26, V0_25, V0_19 = (Release(0, minor) for minor in (29, 28, 26, 25, 19))


def release(text: str) -> Release:
    """Return the release called ``text``."""
    found = parse_release(text)
    assert found is not None
    return found


def config(name: str) -> ModelConfig:
    """Return the config of data/configs/``name``.json."""
    return read_config(CONFIGS[name])


def variant(name: str, **changed: Any) -> ModelConfig:
    """Return the config of ``name`` with other values in some fields."""
    return read_config({**json.loads(CONFIGS[name].read_text(encoding="utf-8")), **changed})


def pool_of(example: dict[str, Any], of: Release) -> Pool:
    """Return the pool of the layers that an example lists."""
    stages = [
        [
            CacheLayer(layer["kind"], layer["block_tokens"], layer["page_bytes"], (), layer["window"], layer["chunk"])
            for layer in stage
            for _ in range(layer["layers"])
        ]
        for stage in example["stages"]
    ]
    steps = concurrent_steps(
        of,
        example.get("pipeline_parallel", 1),
        asynchronous=example.get("async_scheduling", True),
        v2_runner=False,
    )
    serving = Serving(
        release=of,
        in_flight_tokens=example["max_num_batched_tokens"] * steps,
        manager=not example.get("manager_off", False),
        decode_context_parallel=example.get("decode_context_parallel", 1),
        prefill_context_parallel=example.get("prefill_context_parallel", 1),
        state_mode=example.get("state_mode", "none"),
        block_tokens=example.get("block_tokens", 16),
        blocks_override=example.get("blocks_override"),
    )
    return Pool(stages, serving)


def layout_of(example: dict[str, Any], of: Release, **more: Any) -> Layout:
    """Return the layout of an example's model under its flags."""
    flags = dict(example["flags"])
    if "draft" in flags:
        flags["draft"] = config(flags["draft"])
    return Layout(
        config(example["config"]),
        of,
        **flags,
        max_num_batched_tokens=example["max_num_batched_tokens"],
        hybrid_manager=not example.get("manager_off", False),
        decode_context_parallel=example.get("decode_context_parallel", 1),
        prefill_context_parallel=example.get("prefill_context_parallel", 1),
        pipeline_parallel=example.get("pipeline_parallel", 1),
        async_scheduling=example.get("async_scheduling", True),
        mamba_cache_mode=example.get("state_mode", "none"),
        num_gpu_blocks_override=example.get("blocks_override"),
        **more,
    )


def check(made: Pool | Layout, example: dict[str, Any], wanted: dict[str, Any], of: Release) -> None:
    """Hold every figure of one result against what is worked out."""
    available, length = example["available"], example["max_model_len"]
    if example.get("auto") and of >= Release(0, 14):
        length = made.longest_start(available, length)
        assert length == wanted.get("max_model_len", length)
    refusal = made.vllm_estimate(available, length)
    if wanted.get("no_memory"):
        assert refusal is not None
        assert refusal.kind == "no_memory"
        return
    if "needed_gib" in wanted:
        assert refusal is not None
        assert refusal.needed == made.needed(length) or len(available) > 1
        assert printed_gib(refusal.needed or 0, of) == printed(wanted["needed_gib"], of)
        assert printed_gib(refusal.available, of) == printed(wanted["available_gib"], of)
        assert refusal.estimate == wanted["estimate"]
        return
    assert refusal is None
    assert made.starts(available, length)
    assert made.blocks(available) == wanted["blocks"]
    if "tokens" in wanted:
        assert made.capacity_tokens(available, length) == wanted["tokens"]
    if "concurrency" in wanted:
        # Read from a log line of two decimals before 0.20.
        slack = 0.00501 if of < Release(0, 20) else 0.000051
        assert made.concurrency(available, length) == pytest.approx(wanted["concurrency"], abs=slack)


def printed(gib: float, of: Release) -> str:
    """Return ``gib`` with the decimals of the release's message."""
    return f"{gib:.2f}" if of < Release(0, 14) else str(gib)


def results() -> list[Any]:
    """Return each example with each of its results."""
    return [
        pytest.param(example, wanted, id=f"{example['name']}-{wanted['releases'][0]}")
        for example in EXAMPLES
        for wanted in example["results"]
    ]


@pytest.mark.parametrize(("example", "wanted"), results())
def test_worked_examples_by_their_layers(example: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Blocks, groups, need, estimate, tokens and concurrency are vLLM's own in every release."""
    for text in wanted["releases"]:
        of = release(text)
        made = pool_of(example, of)
        if wanted.get("refused"):
            with pytest.raises(LayoutRefused):
                made.blocks(example["available"])
            continue
        check(made, example, wanted, of)
        # Before 0.11 the groups are sorted by kind.
        if "groups" in wanted:
            assert sorted(made.groups[0]) == sorted(wanted["groups"])
        if "groups" in wanted and of >= Release(0, 11):
            assert list(made.groups[0]) == wanted["groups"]


# Models that a release of the examples does not serve, so that only their layers were planned there.
UNSERVED = {"gemma-3n-e4b": Release(0, 9, 1), "llama-4-scout": Release(0, 10), "qwen3-next-80b-a3b": Release(0, 10, 2)}


@pytest.mark.parametrize(("example", "wanted"), [p for p in results() if "config" in p.values[0]])
def test_worked_examples_from_config_json(example: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The same figures follow from the model's config.json and flags alone."""
    for text in wanted["releases"]:
        of = release(text)
        if of < UNSERVED.get(example["config"], Release(0, 8)):
            continue
        # Mode align exists from 0.15 on; the block of a hybrid model is chosen by vLLM from 0.10 on.
        if example.get("state_mode") == "align" and of < Release(0, 15):
            continue
        given_block = (
            {"block_size": example["block_tokens"]} if of < Release(0, 10) and "block_tokens" in example else {}
        )
        check(layout_of(example, of, **given_block), example, wanted, of)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "config" in e], ids=lambda e: str(e["name"]))
def test_layers_of_a_config_are_those_of_the_example(example: dict[str, Any]) -> None:
    """Kinds, windows and bytes of a block of each layer follow from config.json and the split."""
    made = layout_of(example, Release(0, 28))
    for stage, wanted in zip(made.pool.stages, example["stages"], strict=True):
        found = Counter(
            (layer.kind, layer.page_bytes, layer.window, layer.chunk, layer.kind == "state" or layer.block_tokens)
            for layer in stage
        )
        expected: Counter[tuple[Any, ...]] = Counter()
        for layer in wanted:
            block = layer["kind"] == "state" or layer["block_tokens"]
            expected[layer["kind"], layer["page_bytes"], layer["window"], layer["chunk"], block] += layer["layers"]
        assert found == expected


BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131072, "llama-3.1-70b": 327680, "qwen2.5-7b": 57344, "qwen3-0.6b": 114688, "qwen3-32b": 262144,
    "mixtral-8x7b": 131072, "deepseek-v3": 70272, "opt-125m": 36864, "tiny-llama-4l": 16384, "tiny-llama-odd": 5760,
    "tiny-qwen2": 4096, "tiny-mistral-swa": 16384, "tiny-gemma2": 16384, "tiny-gemma3": 32768,
    "tiny-deepseek-mla": 4608, "deepseek-v3.2": 70272 + 61 * 132, "falcon-7b": 32 * 2 * 64 * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_bytes_of_one_token(name: str) -> None:
    """One token in all layers, unsplit, in the model's own type."""
    assert Layout(config(name), V0_28).bytes_per_token() == BYTES_PER_TOKEN[name]


def test_layers_with_windows_do_not_grow() -> None:
    """Only full layers make a long request grow."""
    assert Layout(config("gemma-3-27b"), V0_28).growth_per_token() == 10 * 8192
    assert Layout(config("mistral-7b-v0.1"), V0_28).growth_per_token() == 0


@pytest.mark.parametrize(
    ("cache_dtype", "row"),
    [
        ("fp8", 2 * 128),
        ("fp8_e5m2", 2 * 128),
        ("bfloat16", 4 * 128),
        ("nvfp4", 144),
        ("int8_per_token_head", 2 * 128 + 8),
        ("int4_per_token_head", 128 + 8),
    ],
)
def test_cache_types(cache_dtype: str, row: int) -> None:
    """Bytes of a token and head in each cache type, scales included."""
    assert Layout(config("llama-3.1-8b"), V0_29, cache_dtype=cache_dtype).bytes_per_token() == 32 * 8 * row


def test_cache_types_of_latent_attention() -> None:
    """The packed latent rows, and the indexer's row besides."""
    assert Layout(config("deepseek-v3"), V0_29, cache_dtype="fp8").bytes_per_token() == 61 * 576
    assert Layout(config("deepseek-v3"), V0_29, cache_dtype="fp8_ds_mla").bytes_per_token() == 61 * 656
    assert Layout(config("deepseek-v3.2"), V0_29, cache_dtype="fp8").bytes_per_token() == 61 * (656 + 132)
    assert Layout(config("deepseek-v3.2"), Release(0, 30), cache_dtype="nvfp4_ds_mla").bytes_per_token() == 61 * 484


@pytest.mark.parametrize(
    ("cache_dtype", "of"),
    [("int3", V0_29), ("nvfp4", V0_19), ("turboquant_4bit_nc", V0_29), ("fp8_ds_mla", V0_29), ("nvfp4x", V0_29)],
)
def test_cache_types_that_are_refused(cache_dtype: str, of: Release) -> None:
    """Unknown types, types before their release, types left to a backend, latent types without latent attention."""
    with pytest.raises(CacheDtypeError):
        Layout(config("llama-3.1-8b"), of, cache_dtype=cache_dtype)


def test_a_checkpoint_may_ask_for_an_fp8_cache() -> None:
    """ModelOpt and compressed-tensors checkpoints with an fp8 cache scheme halve it, from their releases on."""
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    modelopt = variant("llama-3.1-8b", quantization_config={"quant_method": "modelopt", "kv_cache_scheme": scheme})
    compressed = variant(
        "llama-3.1-8b", quantization_config={"quant_method": "compressed-tensors", "kv_cache_scheme": scheme}
    )
    assert Layout(modelopt, Release(0, 13)).bytes_per_token() == 131072
    assert Layout(modelopt, Release(0, 14)).bytes_per_token() == 65536
    assert Layout(compressed, Release(0, 14)).bytes_per_token() == 131072
    assert Layout(compressed, Release(0, 15)).bytes_per_token() == 65536
    assert Layout(compressed, Release(0, 15), cache_dtype="bfloat16").bytes_per_token() == 131072


def test_tensor_parallelism_that_vllm_refuses() -> None:
    """Heads that do not divide are refused as at start: 28 attention heads over 8 ranks, 3 KV heads over 2."""
    for name, ranks in (("qwen2.5-7b", 8), ("tiny-llama-3kv", 2), ("falcon-7b", 2)):
        with pytest.raises(SplitError, match="cannot be split"):
            Layout(config(name), V0_29, tensor_parallel=ranks)


def test_kv_heads_run_out() -> None:
    """Beyond as many ranks as KV heads the cache of a rank no longer shrinks."""
    sizes = [Layout(config("llama-3.1-70b"), V0_29, tensor_parallel=n).bytes_per_token() for n in (1, 2, 4, 8, 16, 32)]
    assert sizes == [327680, 163840, 81920, 40960, 40960, 40960]


def test_latent_caches_are_whole_on_every_rank() -> None:
    """Tensor parallelism does not divide the cache of MLA; decode context parallelism shares out its tokens."""
    whole = Layout(config("deepseek-v3"), V0_29)
    split = Layout(config("deepseek-v3"), V0_29, tensor_parallel=8)
    shared = Layout(config("deepseek-v3"), V0_29, tensor_parallel=8, decode_context_parallel=8)
    assert whole.needed(163840) == split.needed(163840) == 8 * shared.needed(163840)


def test_shared_caches() -> None:
    """Layers that use another's cache have none from 0.9.1 on."""
    assert len(Layout(config("gemma-3n-e4b"), V0_29).pool.stages[0]) == 20
    assert len(Layout(config("gemma-3n-e4b"), Release(0, 9)).pool.stages[0]) == 35


def test_left_out_fields_have_the_defaults_of_their_class() -> None:
    """Gemma 3 4B leaves out its heads; a Mistral that sets its window to null has none."""
    layers = config("gemma-3-4b").layers
    assert [getattr(layer[0], "window", None) for layer in layers[:6]] == [1024] * 5 + [None]
    assert Layout(config("gemma-3-4b"), V0_28).bytes_per_token() == 34 * 4 * 256 * 4
    absent = {k: v for k, v in json.loads(CONFIGS["mistral-7b-v0.3"].read_text()).items() if k != "sliding_window"}
    assert Layout(read_config(absent), V0_28).pool.stages[0][0].window == 4096
    assert Layout(config("mistral-7b-v0.3"), V0_28).pool.stages[0][0].kind == "full"


def test_unlike_heads_are_made_one_pool() -> None:
    """Gemma 4: pages of full layers are twice those of sliding ones; from 0.12 the smaller get longer blocks."""
    gemma4 = read_config(
        {
            "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 2304, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "sliding_window": 1024,
            "max_position_embeddings": 131072,
        }
    )  # fmt: skip
    made = Layout(gemma4, Release(0, 20))
    assert made.pool.groups == ((2, 2, 2, 2, 2, 2),)
    assert made.pool.block_bytes == (2 * 16 * 4 * 1024 * 2,)
    # The sliding layers' blocks are of 32 tokens.
    assert made.pool.blocks_of_request(131072) == 131072 // 16 + 5 * ((1023 + 8192 + 31) // 32 + 1)
    with pytest.raises(LayoutRefused):
        Layout(gemma4, Release(0, 11))


def test_chunked_attention_is_booked_in_full_by_default() -> None:
    """The hybrid manager is off for Llama 4 from 0.10.1 unless it is asked for."""
    plain, apart = (Layout(config("llama-4-scout"), V0_29, tensor_parallel=8, hybrid_manager=m) for m in (None, True))
    assert plain.pool.groups == ((48,),)
    assert apart.pool.groups == ((12, 12, 12, 12),)
    assert plain.needed(1048576) == 24 * GIB


def test_hybrid_blocks_cover_a_state() -> None:
    """Qwen3-Next: attention blocks of 544 tokens, 272 of TP 4's halves; 0.9.2 wants them given."""
    assert Layout(config("qwen3-next-80b-a3b"), V0_19).block_tokens == 544
    four = Layout(config("qwen3-next-80b-a3b"), V0_19, tensor_parallel=2)
    assert four.block_tokens == 544
    with pytest.raises(LayoutRefused, match="--block-size"):
        Layout(config("bamba-9b"), Release(0, 9, 2))


def test_prefix_caching_doubles_the_states() -> None:
    """Hybrid models cache prefixes by default from 0.28: two states a request, and one more for Mamba-2 from 0.32."""

    def blocks(name: str, of: str, caching: bool | None) -> int:
        return Layout(config(name), release(of), prefix_caching=caching).pool.blocks_of_request(32768)

    assert blocks("qwen3-next-80b-a3b", "0.27.1", None) == blocks("qwen3-next-80b-a3b", "0.28.0", False) == 61 + 3
    assert blocks("qwen3-next-80b-a3b", "0.28.0", None) == 61 + 2 * 3
    attention = -(-32768 // Layout(config("bamba-9b"), V0_29).block_tokens)
    assert blocks("bamba-9b", "0.31.0", None) == attention + 2 * 10
    assert blocks("bamba-9b", "0.32.0", None) == attention + 3 * 10


def test_a_state_for_each_block() -> None:
    """Mode "all" (0.11.1 to 0.27): a state for each attention block, whose size is a multiple of the chunk."""
    made = Layout(config("bamba-9b"), Release(0, 20), prefix_caching=True)
    assert made.block_tokens % 256 == 0
    assert made.pool.blocks_of_request(32768) == 11 * -(-32768 // made.block_tokens)
    assert Layout(config("qwen3-next-80b-a3b"), Release(0, 14), prefix_caching=True).pool.blocks_of_request(32768) == 64


def test_tokens_in_flight() -> None:
    """From 0.26 every concurrent step counts: 2 on one stage, with pipelining one a stage, one more from 0.29."""

    def held(of: Release, **flags: Any) -> int:
        made = Layout(config("mistral-7b-v0.1"), of, max_num_batched_tokens=2048, **flags)
        return made.pool.blocks_of_request(32768)

    def blocks(steps: int) -> int:
        return -(-(4095 + steps * 2048) // 16) + 1

    assert held(V0_25) == blocks(1)
    assert held(V0_26) == blocks(2)
    assert held(V0_26, async_scheduling=False) == blocks(1)
    assert held(V0_28, pipeline_parallel=4) == blocks(4)
    assert held(V0_28, pipeline_parallel=4, v2_model_runner=True) == held(V0_29, pipeline_parallel=4) == blocks(5)


@pytest.mark.parametrize(
    ("of", "cuda", "cpu"), [("0.24.0", 64, 64), ("0.26.0", 16, 16), ("0.29.0", 16, 32), ("0.30.0", 64, 64)]
)
def test_blocks_of_sliding_layers(of: str, cuda: int, cpu: int) -> None:
    """From 0.25 to 0.29 a model of sliding layers has the kernel's smallest block whatever --block-size says."""
    for device, block in (("cuda", cuda), ("cpu", cpu)):
        made = Layout(config("mistral-7b-v0.1"), release(of), block_size=64, device=device)
        assert made.pool.stages[0][0].block_tokens == block


def test_cohere2_sees_one_token_more() -> None:
    """From 0.29 its window is one token longer than `sliding_window`."""
    facts = {"num_hidden_layers": 8, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    command = read_config({"model_type": "cohere2", "sliding_window": 4096, **facts})
    assert Layout(command, V0_28).pool.stages[0][0].window == 4096
    assert Layout(command, V0_29).pool.stages[0][0].window == 4097


def test_the_null_block() -> None:
    """Up to 0.28 the whole cache starts and one block less is served; from 0.29 both are one block less."""
    for name, block in (("llama-3.1-8b", 16), ("deepseek-v3", 64)):
        old, new = Layout(config(name), V0_28), Layout(config(name), V0_29)
        available = old.needed(32768)
        assert old.longest_start(available) == 32768
        assert old.longest_served(available) == 32768 - block
        assert new.longest_start(available) == new.longest_served(available) == 32768 - block
        assert old.available_to_start(32768) == available
        assert new.available_to_start(32768) == available + new.pool.block_bytes[0]


def test_lengths_that_start_and_are_never_served() -> None:
    """0.14 to 0.18 look at the first group only: any length of Gemma 2 starts, far fewer tokens are served."""
    made = Layout(config("tiny-gemma2"), Release(0, 15, 1), device="cpu")
    assert made.longest_start(GIB) == 262144
    assert made.longest_served(GIB) == 124800 - 128
    assert made.concurrency(GIB, 262144) < 1


def test_pipeline_stages() -> None:
    """Left-over layers go to the stages before the last; up to 0.7 to the last."""
    assert split_layers(61, 4, V0_29) == (15, 15, 16, 15)
    assert split_layers(62, 4, V0_29) == (15, 16, 16, 15)
    assert split_layers(61, 4, Release(0, 7, 3)) == (15, 15, 15, 16)
    assert split_layers(10, 3, V0_29, (2, 4, 4)) == (2, 4, 4)
    for bad in ((3, None), (2, (1, 2)), (2, (1, 1, 1))):
        with pytest.raises(SplitError):
            split_layers(2 if bad[1] is None else 4, *bad[:1], V0_29, bad[1])


def test_v0_engine() -> None:
    """One table for all layers: windows count in full, no estimate but what the cache stores."""
    made = Layout(config("llama-3.1-8b"), Release(0, 6, 4))
    assert made.engine == "V0"
    assert isinstance(made.pool, V0Pool)
    # 2.89 GiB and 1,478 blocks, 23648 tokens: a public log of about 0.6.4.
    assert made.blocks(1478 * 2 * 2**20) == 1478
    refusal = made.vllm_estimate(1478 * 2 * 2**20, 131072)
    assert refusal is not None
    assert refusal.estimate == 23648
    assert made.starts(1478 * 2 * 2**20, 23648)
    assert made.longest_served(1478 * 2 * 2**20) == (1478 - 14) * 16
    # 0.7.2 and 0.7.3 pad the 1,152 bytes of a latent row to 1,280.
    assert Layout(config("deepseek-v3"), Release(0, 7, 3)).bytes_per_token() == 61 * 1280
    assert Layout(config("deepseek-v3"), Release(0, 8, 5), engine="V0").bytes_per_token() == 61 * 1152
    gemma = Layout(config("gemma-2-9b"), Release(0, 7, 3))
    assert gemma.growth_per_token() == gemma.bytes_per_token() == 344064


# Hostile and broken configs.


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "12", '"x"', "[" * 100_000, '{"a": ' * 50_000, "\x00\xff", '{"model_type": "llama"} x'],
)
def test_a_broken_file_is_a_clear_error(text: str, tmp_path: Path) -> None:
    """No JSON, no object, too deep: one kind of error that names the file."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.json|model_type"):
        read_config(path)


@pytest.mark.parametrize("value", ["32", True, -1, 0, 1.5, float("nan"), float("inf"), 10**30, [], {}])
def test_an_impossible_number_is_named(value: Any) -> None:
    """A field with no usable number is an error that names the field."""
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        variant("llama-3.1-8b", num_hidden_layers=value)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3.1-8b", "num_hidden_layers"),
        ("llama-3.1-8b", "num_attention_heads"),
        ("llama-3.1-8b", "hidden_size"),
        ("llama-3.1-8b", "model_type"),
        ("tiny-gemma2", "num_hidden_layers"),
    ],
)
def test_a_missing_field_is_named(name: str, field: str) -> None:
    """The error of an absent field carries its name."""
    whole = json.loads(CONFIGS[name].read_text())
    del whole[field]
    with pytest.raises(MissingField) as caught:
        read_config(whole)
    assert caught.value.field == field


def test_a_nested_field_is_named_with_its_place() -> None:
    """In a multimodal config the field is looked for in the text part."""
    with pytest.raises(MissingField, match=r"text_config\.num_hidden_layers"):
        read_config({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 64}})


def test_an_unknown_architecture_is_refused_with_what_is_certain() -> None:
    """What the other fields bound is told: no more than full attention in each layer."""
    shape = {"num_hidden_layers": 10, "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2}
    with pytest.raises(UnknownArchitecture, match="foobar") as caught:
        read_config({"model_type": "foobar", **shape})
    assert caught.value.field == "model_type"
    assert caught.value.certain == Interval(0, 10 * 2 * 2 * 128 * 2)
    kinds = ["full_attention", "linear_attention"] * 5
    with pytest.raises(UnknownArchitecture) as caught:
        read_config({"model_type": "foobar", **shape, "layer_types": kinds})
    assert caught.value.certain == Interval(5 * 1024, 10 * 1024)
    with pytest.raises(UnknownArchitecture) as caught:
        read_config({"model_type": "foobar"})
    assert caught.value.certain is None


def test_deepseek_v4_is_not_guessed() -> None:
    """Compressed caches with groups of their own are refused by name."""
    with pytest.raises(UnknownArchitecture, match="deepseek_v4"):
        variant("deepseek-v3", model_type="deepseek_v4")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_config_breaks_the_reader(data: st.DataObject) -> None:
    """Whatever stands in any field of any model, the answer is a config or a named error."""
    name = data.draw(st.sampled_from(sorted(CONFIGS)))
    whole = json.loads(CONFIGS[name].read_text())
    part = whole.get("text_config", whole)
    for _ in range(data.draw(st.integers(1, 3))):
        part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JSON)
    if data.draw(st.booleans()):
        part["model_type"] = data.draw(st.sampled_from(sorted(FAMILIES)))
    try:
        found = read_config(whole)
        Layout(found, data.draw(RELEASES)).needed(4096)
        weights(found)
    except (ConfigError, LayoutRefused, CacheDtypeError):
        pass


# Laws.

RELEASES = st.sampled_from(
    [release(text) for text in ("0.8.5", "0.9.1", "0.10.2", "0.11.0", "0.13.0", "0.15.1", "0.17.1", "0.19.1", "0.20.2",
                                "0.25.1", "0.26.0", "0.28.0", "0.29.0", "0.33.0")]
)  # fmt: skip
GPU_MODELS = st.sampled_from(
    ["llama-3.1-8b", "qwen3-0.6b", "gemma-2-9b", "gemma-3-27b", "gpt-oss-20b", "deepseek-v3", "mistral-7b-v0.1",
     "tiny-llama-odd"]
)  # fmt: skip
LENGTHS = st.integers(1, 200_000)


@settings(max_examples=200, deadline=None)
@given(GPU_MODELS, RELEASES, LENGTHS, LENGTHS)
def test_need_never_falls_with_the_length(name: str, of: Release, one: int, other: int) -> None:
    """A longer request never needs less, and what is needed is whole blocks of every layer."""
    made = Layout(config(name), of)
    short, long = sorted((one, other))
    assert made.needed(short) <= made.needed(long)
    pages = {layer.page_bytes for layer in made.pool.stages[0]}
    if len(pages) == 1:
        assert made.needed(long) % pages.pop() == 0
    assert made.pool.blocks_of_request(short) <= made.pool.blocks_of_request(long)


@settings(max_examples=200, deadline=None)
@given(GPU_MODELS, RELEASES, st.integers(2**20, 80 * GIB))
def test_the_longest_length_starts_and_one_token_more_does_not(name: str, of: Release, available: int) -> None:
    """The longest length is the last that starts; it is what is served, or a little more."""
    made = Layout(config(name), of)
    limit = 2**20
    longest = made.longest_start(available, limit)
    if longest:
        assert made.starts(available, longest)
        assert made.vllm_estimate(available, longest) is None
    if longest < limit:
        assert not made.starts(available, longest + 1)
        refusal = made.vllm_estimate(available, longest + 1)
        assert refusal is not None
        assert refusal.kind == "no_memory" or (refusal.estimate or longest) == longest
    assert made.longest_served(available, limit) <= longest


@settings(max_examples=200, deadline=None)
@given(GPU_MODELS, RELEASES, LENGTHS, st.floats(0.1, 20))
def test_bytes_for_so_many_requests_are_enough(name: str, of: Release, length: int, number: float) -> None:
    """With the bytes for N requests the server starts, prints at least N, and serves that length once N is 1."""
    made = Layout(config(name), of)
    available = made.bytes_for(number, length)
    assert made.starts(available, length)
    if of >= Release(0, 9, 1):
        assert made.concurrency(available, length) >= number
    if number >= 1:
        assert made.longest_served(available, length) == length
    assert made.starts(made.available_to_start(length), length)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), RELEASES, LENGTHS)
def test_tensor_parallel_shares_sum_up(ranks: int, of: Release, length: int) -> None:
    """While KV heads last, the caches of all ranks together are the whole."""
    whole, part = (Layout(config("llama-3.1-70b"), of, tensor_parallel=n) for n in (1, ranks))
    assert part.needed(length) * ranks == whole.needed(length)
    assert part.bytes_per_token() * ranks == whole.bytes_per_token()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), LENGTHS)
def test_pipeline_stages_sum_up(stages: int, length: int) -> None:
    """The layers of all stages are the whole model's, and the fullest stage decides."""
    made = Layout(config("llama-3.1-70b"), V0_29, pipeline_parallel=stages)
    sizes = split_layers(80, stages, V0_29)
    assert [len(stage) for stage in made.pool.stages] == list(sizes)
    assert made.needed(length) == -(-length // 16) * 65536 * max(sizes)


# Weights.

PARAMETERS = {
    "llama-3.1-8b": 8030261248, "llama-3.1-70b": 70553706496, "llama-3.2-1b": 1235814400, "qwen2.5-7b": 7615616512,
    "qwen3-0.6b": 596049920, "qwen3-32b": 32762123264, "qwen3-coder-30b-a3b": 30532122624,
    "mixtral-8x7b": 46702792704, "mistral-7b-v0.1": 7241732096, "mistral-7b-v0.3": 7248023552,
    "gemma-2-9b": 9241705984, "gemma-3-27b": 27009346304, "gpt-oss-20b": 20914757184, "deepseek-v3": 671026419200,
    "deepseek-v2-lite": 15706484224, "opt-125m": 125239296, "qwen3-next-80b-a3b": 79674391296,
    "mistral-small-3.1-24b": 23572403200, "llama-4-scout": 107769861120,
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_public_models(name: str) -> None:
    """The number of weights that a config.json implies is the published one; all experts count."""
    assert weights(config(name)).parameters == PARAMETERS[name]


# model_type, layers, hidden size, heads, KV heads, MLP size, vocabulary, other fields, published weights.
SHAPES: list[tuple[str, int, int, int, int, int, int, dict[str, Any], int]] = [
    ("phi3", 32, 3072, 32, 32, 8192, 32064, {}, 3821079552),
    ("starcoder2", 30, 3072, 24, 2, 12288, 49152, {}, 3030371328),
    ("olmoe", 16, 2048, 16, 16, 1024, 50304, {"num_experts": 64}, 6919161856),
    ("qwen2_moe", 24, 2048, 16, 16, 5632, 151936, {"num_experts": 60, "moe_intermediate_size": 1408,
     "shared_expert_intermediate_size": 5632}, 14315784192),
    ("gemma", 28, 3072, 16, 16, 24576, 256000, {}, 8537680896),
    ("gpt_neox", 44, 6144, 64, 64, 24576, 50432, {}, 20554567680),
    ("cohere", 40, 8192, 64, 64, 22528, 256000, {}, 34980831232),
    ("olmo2", 32, 4096, 32, 32, 11008, 100352, {}, 7298617344),
    ("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, {"head_dim": 128, "num_experts": 128,
     "moe_intermediate_size": 1536}, 235093634560),
    ("granite", 40, 4096, 32, 8, 12800, 49155, {"tie_word_embeddings": True}, 8170848256),
    ("glm4", 40, 4096, 32, 2, 13696, 151552, {"attention_bias": True}, 9400279040),
    ("seed_oss", 64, 5120, 80, 8, 27648, 155136, {"attention_bias": True}, 36151104512),
    ("gpt_oss", 36, 2880, 64, 8, 2880, 201088, {"num_local_experts": 128}, 116829156672),
    ("smollm3", 36, 2048, 16, 4, 11008, 128256, {}, 3075098624),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}-{shape[1]}")
def test_parameters_of_each_family(shape: tuple[Any, ...]) -> None:
    """Biases, norms, tied heads and experts of each family are counted as its checkpoints have them."""
    names = ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
             "intermediate_size", "vocab_size")  # fmt: skip
    found = read_config({**dict(zip(names, shape[:7], strict=True)), **shape[7]})
    assert weights(found).parameters == shape[8]


def test_parameters_of_recurrent_layers() -> None:
    """Bamba 9B has 9.78 billion weights; each state element a head costs columns of the projections."""
    assert weights(config("bamba-9b")).parameters == pytest.approx(9.78e9, abs=5e6)


def test_bytes_of_quantized_weights() -> None:
    """Scales, zero points and what stays unquantized are counted: sizes of public checkpoints."""
    # gpt-oss-20b: 13,761,264,768 bytes of tensors, MXFP4 experts and the rest in bfloat16.
    assert weights(config("gpt-oss-20b")).total.low == 13_761_264_768
    v3 = weights(config("deepseek-v3"))
    assert 671e9 < v3.total.low < 676e9
    assert not v3.total.exact
    plain = weights(config("llama-3.1-8b")).total.low
    four = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    awq = weights(variant("llama-3.1-8b", quantization_config=four)).total.low
    linear, rest = 32 * 218_103_808, 2 * 128256 * 4096 + 65 * 4096
    assert plain == 2 * (linear + rest)
    assert awq == linear * (4 + 16 / 128 + 4 / 128) / 8 + 2 * rest
    fp8 = weights(config("llama-3.1-8b"), quantization="fp8").total.low
    assert fp8 == linear + 32 * 7 * 4 + 2 * rest


def test_modules_that_stay_unquantized() -> None:
    """They are named by part, by glob or by regular expression; a pattern that never ends is none."""
    kept = ["lm_head", "re:.*gate$", "model.layers.*.self_attn", "re:(a+)+$"]
    scheme = scheme_of({"quant_method": "fp8", "ignored_layers": kept})
    assert scheme is not None
    covered = {
        name: scheme.covers(name, expert=False)
        for name in ("lm_head.weight", "model.layers.1.mlp.gate.weight", "model.layers.1.self_attn.q_proj.weight",
                     "model.layers.1.mlp.up_proj.weight", "a" * 60 + "b")
    }  # fmt: skip
    assert list(covered.values()) == [False, False, False, True, True]


def test_unknown_quantization_is_an_error() -> None:
    """A method whose storage is not known is refused by name."""
    with pytest.raises(ConfigError, match="quip"):
        scheme_of({"quant_method": "quip"})
    assert scheme_of({}) is None


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-coder-30b-a3b", "deepseek-v3", "gpt-oss-20b", "gemma-2-9b"])
def test_ranks_hold_at_least_their_share(name: str) -> None:
    """More ranks hold less each, and together at least the whole model."""
    whole = weights(config(name))
    last = whole.per_rank.high
    for ranks in (2, 4, 8):
        part = weights(config(name), tensor_parallel=ranks).per_rank
        assert part.low * ranks >= whole.total.low
        assert part.high < last
        last = part.high
    staged = weights(config(name), pipeline_parallel=2).per_rank
    assert whole.total.low / 2 <= staged.low < whole.total.low


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Write a safetensors file that has a header and no data."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def llama_tensors(layers: int = 2) -> dict[str, tuple[str, list[int]]]:
    """Return the tensors of tiny-llama-2l, with a drafter's layer that is not loaded."""
    found: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": ("BF16", [1024, 512]),
        "model.norm.weight": ("BF16", [512]),
        "lm_head.weight": ("BF16", [1024, 512]),
    }
    for i in range(layers):
        for name, shape in (
            ("self_attn.q_proj", [512, 512]), ("self_attn.k_proj", [256, 512]), ("self_attn.v_proj", [256, 512]),
            ("self_attn.o_proj", [512, 512]), ("mlp.gate_proj", [512, 512]), ("mlp.up_proj", [512, 512]),
            ("mlp.down_proj", [512, 512]), ("input_layernorm", [512]), ("post_attention_layernorm", [512]),
        ):  # fmt: skip
            found[f"model.layers.{i}.{name}.weight"] = ("BF16", shape)
    return found


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_headers_and_architecture_agree(tensor: int, pipeline: int, tmp_path: Path) -> None:
    """The headers of a checkpoint tell the same as its architecture, on each rank; a drafter's layers are left out."""
    safetensors(tmp_path / "model.safetensors", llama_tensors(layers=3))
    split = {"tensor_parallel": tensor, "pipeline_parallel": pipeline}
    told = weights(config("tiny-llama-2l"), files=tmp_path, **split)  # type: ignore[arg-type]
    derived = weights(config("tiny-llama-2l"), **split)  # type: ignore[arg-type]
    assert told.origin == "headers"
    assert (told.total, told.per_rank, told.parameters) == (derived.total, derived.per_rank, derived.parameters)


def test_an_index_without_its_files(tmp_path: Path) -> None:
    """The total size of an index is exact for one rank and bounds the share of several."""
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16_060_522_496}, "weight_map": {"a": "x.safetensors"}}))
    one = weights(config("llama-3.1-8b"), files=tmp_path)
    assert one.total == one.per_rank == Interval.exactly(16_060_522_496)
    two = weights(config("llama-3.1-8b"), files=index, tensor_parallel=2)
    assert two.per_rank == Interval(8_030_261_248, 16_060_522_496)


def test_float32_weights_are_loaded_at_16_bits(tmp_path: Path) -> None:
    """The running type decides; a tied head is not loaded twice; packed weights stay as stored."""
    path = tmp_path / "model.safetensors"
    stored = {"model.embed_tokens.weight": ("F32", [1024, 512]), "lm_head.weight": ("F32", [1024, 512])}
    safetensors(path, {**stored, "model.layers.0.mlp.up_proj.qweight": ("I32", [64, 512])})
    tied = variant("tiny-llama-2l", tie_word_embeddings=True)
    assert weights(tied, files=path).total == Interval.exactly(1024 * 512 * 2 + 64 * 512 * 4)
    assert weights(tied, files=path, dtype="float32").total == Interval.exactly(1024 * 512 * 4 + 64 * 512 * 4)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x00" * 4, struct.pack("<Q", 2**60), struct.pack("<Q", 10) + b"{}", struct.pack("<Q", 4) + b"null",
     struct.pack("<Q", 40) + b'{"a":{"dtype":"F99","shape":[1]}}       ',
     struct.pack("<Q", 40) + b'{"a":{"dtype":"F32","shape":[-1]}}      '],
)  # fmt: skip
def test_a_broken_safetensors_file_is_a_clear_error(raw: bytes, tmp_path: Path) -> None:
    """Headers that lie about their length or hold no tensors are refused by the file's name."""
    (tmp_path / "model.safetensors").write_bytes(raw)
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        weights(config("tiny-llama-2l"), files=tmp_path)


# Genuine logs of the CPU build, where they are beside this repository.

real = pytest.mark.skipif(not REAL.is_dir(), reason="the genuine logs are not beside this repository")
_FIGURES = re.compile(
    r"KV cache size: (?P<tokens>[\d,]+) tokens|Maximum concurrency for (?P<length>[\d,]+) tokens per request:"
    r" (?P<concurrency>[\d.]+)x|\((?P<needed>[\d.]+) GiB KV cache is needed|available KV cache memory"
    r" \((?P<available>[\d.]+) GiB\)|maximum model length is (?P<estimate>\d+)|stored in KV cache \((?P<stored>\d+)\)"
    r"|# cpu blocks: (?P<blocks>\d+)"
)


def genuine() -> list[Any]:
    """Return the logs that hold a figure of the KV cache, with their yaml."""
    logs = sorted(REAL.glob("*/*.log")) if REAL.is_dir() else []
    found = [log for log in logs if log.with_suffix(".yaml").exists() and _FIGURES.search(log.read_text("utf-8"))]
    return [pytest.param(log, id=f"{log.parent.name}/{log.stem}") for log in found]


def flags_of(command: str) -> dict[str, int]:
    """Return the whole numbers among the flags of a command."""
    pairs = re.findall(r"--?([\w-]+)[ =](\d+)", " ".join(shlex.split(command))) + re.findall(r"(\w+)=(\d+)", command)
    return {name.replace("-", "_"): int(value) for name, value in pairs}


def cpu_layout(name: str, of: Release, **flags: Any) -> Layout:
    """Return the layout of a tiny model in the CPU build, whose blocks have 128 tokens with IPEX (0.9.2, 0.10.2)."""
    if Release(0, 9, 2) <= of < Release(0, 11):
        flags["block_size"] = 128
    return Layout(config(name), of, device="cpu", **flags)


@real
@pytest.mark.parametrize("log", genuine())
def test_genuine_logs(log: Path) -> None:
    """Every figure that a genuine server printed of its KV cache is the one worked out."""
    label = yaml.safe_load(log.with_suffix(".yaml").read_text(encoding="utf-8"))
    figures: dict[str, str] = {}
    for match in _FIGURES.finditer(log.read_text(encoding="utf-8")):
        figures.update({name: value.replace(",", "") for name, value in match.groupdict().items() if value})
    flags = flags_of(label["command"])
    of = release(str(label["vllm_version"]))
    length = flags["max_model_len"]
    available = int(label["environment"]["VLLM_CPU_KVCACHE_SPACE"]) * GIB
    made = cpu_layout(
        label["model"]["name"],
        of,
        tensor_parallel=flags.get("tensor_parallel_size", 1),
        num_gpu_blocks_override=flags.get("num_gpu_blocks_override"),
    )
    refusal = made.vllm_estimate(available, length)
    assert (refusal is None) == ("needed" not in figures and "stored" not in figures)
    worked_out = {
        "tokens": lambda: str(made.capacity_tokens(available, length)),
        "length": lambda: str(length),
        "concurrency": lambda: f"{made.concurrency(available, length):.2f}",
        "needed": lambda: printed_gib(made.needed(length), of),
        "available": lambda: printed_gib(refusal.available if refusal else 0, of),
        "estimate": lambda: str(refusal.estimate if refusal else None),
        "stored": lambda: str(refusal.estimate if refusal else None),
        "blocks": lambda: str(made.blocks(available)),
    }
    assert figures == {name: worked_out[name]() for name in figures}


def probed() -> list[Any]:
    """Return each model of each release for which the largest length was probed."""
    found = []
    for path in sorted((REAL / "largest_len").glob("*.json")) if REAL.is_dir() else []:
        for name, facts in json.loads(path.read_text(encoding="utf-8")).items():
            if "failed" not in facts:
                found.append(pytest.param(path.stem, name, facts, id=f"{path.stem}/{name}"))
    return found


@real
@pytest.mark.parametrize(("text", "name", "facts"), probed())
def test_largest_lengths_of_genuine_engines(text: str, name: str, facts: dict[str, Any]) -> None:
    """Block, page, groups, blocks, estimate and the largest accepted length are those of the real engine."""
    made = cpu_layout(name, release(text))
    available = facts["available_bytes"]
    assert made.block_tokens == facts["block_size"]
    assert sorted({layer.page_bytes for layer in made.pool.stages[0]}) == sorted(facts["page_size_bytes"])
    assert made.blocks(available) == facts["num_blocks"]
    assert len(made.pool.groups[0]) == len(facts["groups"])
    assert made.longest_start(available, facts["config_max"]) == (facts["largest"] or facts["config_max"])
    refusal = made.vllm_estimate(available, facts["config_max"])
    if "estimate" in facts:
        assert refusal is not None
        assert refusal.estimate == facts["estimate"]
        assert f"({printed_gib(refusal.needed or 0, release(text))} GiB KV cache is needed" in facts["error"]
    else:
        assert refusal is None
