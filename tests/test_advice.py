"""Advice over all cases and releases: flags that exist, settings not in force, sums that pass."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from vllm_diag import remedies
from vllm_diag.diagnosis import Diagnosis
from vllm_diag.flags import env_presence, knows, presence
from vllm_diag.kv_arithmetic import read_config
from vllm_diag.pipeline import diagnose_sources, report_on
from vllm_diag.releases import parse_release
from vllm_diag.remedies.model import Context
from vllm_diag.remedies.recheck import _EFFECTS, gate
from vllm_diag.remedies.wanted import Wish, config_check, wanted

LOGS = sorted((Path(__file__).parents[1] / "corpus" / "logs").glob("*.log"))
RELEASES = ("0.4.0", "0.6.3", "0.8.5", "0.9.2", "0.10.2", "0.11.0", "0.14.1", "0.18.1", "0.22.1", "0.28.0", "0.33.0")
EACH = pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@cache
def last(log: Path) -> Diagnosis | None:
    """Return the diagnosis of the last run in a case."""
    diagnoses, _ = diagnose_sources([log])
    return diagnoses[-1] if diagnoses else None


@EACH
def test_no_remedy_names_a_flag_that_the_release_lacks(log: Path) -> None:
    """Whatever the release, each flag of vLLM that is advised is one of that release."""
    diagnosis = last(log)
    if diagnosis is None:
        pytest.skip("nothing in it is a run")
    for release in RELEASES:
        told = replace(diagnosis, run=replace(diagnosis.run, version=release))
        for finding in told.findings:
            for remedy in remedies.plan(finding, told).remedies:
                if remedy.flag and knows(remedy.flag):
                    held = presence if remedy.flag.startswith("-") else env_presence
                    assert held(remedy.flag, parse_release(release)).there, (remedy.flag, release)


@EACH
def test_no_remedy_repeats_a_setting_or_fails_its_own_sum(log: Path) -> None:
    """No remedy sets what is set already, and none is short in its best case."""
    diagnosis = last(log)
    if diagnosis is None:
        pytest.skip("nothing in it is a run")
    for finding in diagnosis.findings:
        context = Context(finding, diagnosis)
        failed = gate(context)
        for remedy in remedies.plan(finding, diagnosis).remedies:
            name = (remedy.flag or "").removeprefix("--").replace("-", "_")
            assert remedy.value is None or str(context.setting(name)) != str(remedy.value)
            effect = _EFFECTS.get(remedy.id)
            change = effect(context, remedy) if effect and failed else None
            if failed and change:
                assert failed.left(change).high >= 0, remedy


def _refusal(needed: str, available: str, length: int, bound: int) -> bytes:
    return (
        "INFO 10-25 13:08:43 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m', max_seq_len="
        f"{length}, tensor_parallel_size=1\n"
        "INFO 10-25 13:08:43 [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 3.2 seconds\n"
        "ERROR 10-25 13:08:43 [core.py:1] EngineCore failed to start.\n"
        "ERROR 10-25 13:08:43 [core.py:1] ValueError: To serve at least one request with the models's max seq len"
        f" ({length}), ({needed} GiB KV cache is needed, which is larger than the available KV cache memory"
        f" ({available} GiB). Based on the available memory, the estimated maximum model length is {bound}. Try"
        " increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
    ).encode()


def test_a_lever_that_is_not_enough_is_joined_with_another() -> None:
    """fp8 alone leaves 8 of 16 GiB needed and 4.76 are there, so it comes with 8-bit weights."""
    (finding, *_) = report_on([_refusal("16.00", "4.76", 131072, 38992)]).findings
    offered = {remedy.id: remedy for remedy in finding.remedies}
    assert "fp8-kv-cache" not in offered
    # 8 bits free at least 0.35 x 14.99 = 5.2 GiB: 4.76 + 5.2 - 8 leaves about 2.
    assert offered["together"].value == "--kv-cache-dtype fp8 --quantization fp8"
    assert "at least 2.00 GiB" in offered["together"].after


def test_a_lever_that_is_enough_says_what_is_left() -> None:
    """fp8 halves 8 GiB to 4 and 6 are there."""
    (finding, *_) = report_on([_refusal("8.00", "6.00", 65536, 49152)]).findings
    fp8 = next(remedy for remedy in finding.remedies if remedy.id == "fp8-kv-cache")
    assert "at least 1.99 GiB" in fp8.after


def test_wanted_concurrency_is_worked_out_from_the_log_and_from_the_config() -> None:
    """Four requests of 131,072 tokens take 64 GiB at 128 KiB a token."""
    log = _refusal("16.00", "4.76", 131072, 38992)
    for wish in (Wish(4), Wish(4, read_config(LLAMA))):
        answer = report_on([log], wish=wish).wanted
        assert answer is not None
        assert abs(answer.needed - 64 * 2**30) < 2**28
        assert answer.now == pytest.approx(0.297, abs=0.003)
        reached = {lever.change.split()[0]: lever for lever in answer.levers}
        assert reached["--max-model-len"].enough
        assert not reached["--kv-cache-dtype"].enough


def test_a_config_of_another_model_is_noticed() -> None:
    """A model with half the layers needs half of what the log prints, and that is said."""
    config = read_config({**LLAMA, "num_hidden_layers": 16})
    report = report_on([_refusal("16.00", "4.76", 131072, 38992)], wish=Wish(config=config))
    assert report.config is not None
    assert report.config.agrees is False
    assert any("not that of the model" in note for note in report.notes)


def test_the_right_config_sharpens_the_figures() -> None:
    """The need agrees, and the longest length that is served is one block below the engine's bound."""
    diagnoses, _ = diagnose_sources([_refusal("16.00", "4.76", 131072, 38992)])
    check = config_check(diagnoses[-1], read_config(LLAMA))
    assert check.agrees
    assert check.bytes_per_token == 131072
    assert check.longest_served is not None
    assert 38992 - 3 * 16 - 48 <= check.longest_served <= 38992 - 16


def test_nothing_is_answered_where_the_log_is_silent() -> None:
    """Without KV cache figures the wish is not answered, and the report says so."""
    report = report_on([b"INFO 10-25 13:08:43 [core.py:1] Loading weights took 2.06 seconds\n"], wish=Wish(4))
    assert report.wanted is None
    assert report.notes
    diagnoses, _ = diagnose_sources([b"INFO 10-25 13:08:43 [core.py:1] Loading weights took 2.06 seconds\n"])
    assert wanted(diagnoses[-1], Wish(4)) is None
