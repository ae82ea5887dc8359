"""What is known to be wrong by release: the table is sound, and says what it should of known releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_diag import flags
from vllm_diag.defects import DEFECTS, Defect, Facts, defects_of, possible_defects
from vllm_diag.versions import Release, parse_release

CASES = Path(__file__).parent.parent.parent / "shared" / "cases" / "real"
BY_CODE = {row.code: row for row in DEFECTS}
WINDOWS: dict[str, Any] = {"engine": "v1", "has_windows": True, "has_recurrent": False}


def codes(release: str | None, **facts: Any) -> set[str]:
    """Return the codes that hold for a release and facts."""
    return {row.code for row in defects_of(parse_release(release), **facts)}


# --- the table --------------------------------------------------------------------------------


def test_codes_are_unique() -> None:
    """A code names one row."""
    assert len(BY_CODE) == len(DEFECTS)


@pytest.mark.parametrize("row", DEFECTS, ids=lambda row: row.code)
def test_a_row_is_sound(row: Defect) -> None:
    """Ranges are in order, sentences are whole, facts exist."""
    assert row.last is None or row.first <= row.last
    assert (row.last is None) == (row.fixed is None)
    assert row.fixed is None or (row.last is not None and row.last < row.fixed)
    assert row.wrong.endswith(".")
    assert row.advice.endswith(".")
    assert row.source.startswith("vllm/")
    assert row.source.endswith(".py")
    assert all(hasattr(Facts(), name) for name in row.needs)


@pytest.mark.parametrize("row", [r for r in DEFECTS if r.fixed], ids=lambda row: row.code)
def test_nothing_was_looked_at_between_the_last_with_it_and_the_first_without(row: Defect) -> None:
    """A range is as long as what was read allows."""
    looked_at = [number for text in flags.releases_read() if (number := parse_release(text))]
    assert row.last is not None
    assert row.fixed is not None
    assert [r for r in looked_at if row.last < r < row.fixed] == []


@pytest.mark.parametrize("row", [r for r in DEFECTS if r.useless], ids=lambda row: row.code)
def test_a_useless_lever_exists_where_it_is_useless(row: Defect) -> None:
    """The release accepts it, or there would be no need to say that it does nothing."""
    for name in row.useless:
        there = flags.has_flag if name.startswith("-") else flags.has_env
        assert there(name, row.last or row.first), name


@pytest.mark.parametrize("row", DEFECTS, ids=lambda row: row.code)
def test_flags_in_the_words_exist(row: Defect) -> None:
    """A flag that is named is one of vLLM's, or said not to be."""
    words = row.wrong.split() + row.advice.split()
    named = {w.strip(",.;:") for w in words if w.startswith("--")} - {"--kv-cache-memory"}
    assert {name for name in named if flags.canonical(name) is None} == set()


# --- releases ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "there"),
    [("0.13.0", False), ("0.14.0", True), ("0.15.1", True), ("0.16.0", True), ("0.17.0", False), ("0.33.0", False)],
)
def test_pipeline_stages_are_counted_together_from_0_14_to_0_16(release: str, there: bool) -> None:
    """One stage is counted right; with two no flag helps."""
    code = "pipeline-stages-counted-together"
    assert (code in codes(release, engine="v1", pipeline_parallel=2)) is there
    assert code not in codes(release, engine="v1")
    assert BY_CODE[code].effect == "no-flag-helps"
    assert BY_CODE[code].fixed_words == "fixed in 0.17.0"


@pytest.mark.parametrize(
    ("release", "there"), [("0.13.0", False), ("0.14.0", True), ("0.18.1", True), ("0.19.0", False), ("0.20.2", False)]
)
def test_only_the_first_group_is_checked_from_0_14_to_0_18(release: str, there: bool) -> None:
    """Of a hybrid model with its manager on; with one kind of layer the check is right."""
    code = "only-first-group-checked"
    assert (code in codes(release, **WINDOWS)) is there
    assert code not in codes(release, **WINDOWS, manager_off=True)
    assert code not in codes(release, engine="v1", has_windows=False, has_recurrent=False)


@pytest.mark.parametrize(
    ("release", "facts", "code"),
    [
        ("0.9.0.1", WINDOWS, "windows-stored-in-full"),
        ("0.9.2", WINDOWS | {"device": "cpu"}, "windows-stored-in-full-without-manager"),
        ("0.10.0", WINDOWS | {"device": "tpu"}, "windows-stored-in-full-without-manager"),
        ("0.13.0", WINDOWS | {"manager_off": True}, "windows-stored-in-full-without-manager"),
        ("0.8.2", WINDOWS, "windows-not-told-apart"),
        ("0.10.2", {"engine": "v0", "has_windows": True}, "windows-in-full-in-v0"),
        ("0.8.4", {"engine": "v1"}, "estimate-without-number"),
        ("0.9.0.1", {"engine": "v1"}, "estimate-without-number"),
        ("0.9.2", {"engine": "v1"}, "null-block-not-reserved"),
        ("0.28.0", {}, "null-block-not-reserved"),
        ("0.9.1", {"engine": "v1", "block_override": True}, "block-override-not-applied"),
        ("0.20.0", {"block_override": True}, "block-override-not-checked"),
        ("0.20.0", WINDOWS, "hybrid-token-count-too-small"),
        ("0.20.2", {"device": "cpu"}, "cpu-share-ignores-container-limit"),
        ("0.23.0", {"device": "cpu"}, "cpu-share-ignores-container-limit"),
        ("0.15.1", {"device": "cpu"}, "cpu-cache-ignores-container-limit"),
        ("0.15.1", {"device": "cpu"}, "cpu-messages-name-the-share"),
        ("0.9.0.1", {"engine": "v1"}, "other-processes-counted"),
        ("0.2.6", {}, "whole-device-counted"),
        ("0.19.1", {"device": "cuda"}, "graphs-not-in-budget"),
        ("0.25.1", {"device": "rocm"}, "graphs-not-in-budget-on-rocm"),
        ("0.30.0", {"device": "xpu"}, "graphs-not-in-budget-on-xpu"),
        ("0.27.1", {"device": "cuda"}, "graphs-counted-twice"),
        ("0.17.1", {}, "swap-space-checked-though-unused"),
        ("0.11.0", {}, "engine-switch-left-over"),
        ("0.20.0", {"sleep_mode": True}, "expandable-segments-refused-in-sleep-mode"),
        ("0.19.1", WINDOWS, "cpu-offload-refused-for-several-groups"),
        ("0.11.0", {}, "chunked-prefill-always-on"),
        ("0.8.2", {}, "gb-means-gib"),
        ("0.32.0", {}, "orderly-stop-prints-errors"),
    ],
)
def test_what_a_release_is_known_for(release: str, facts: dict[str, Any], code: str) -> None:
    """One row each."""
    assert code in codes(release, **facts)


@pytest.mark.parametrize(
    ("release", "facts", "code"),
    [
        ("0.9.1", WINDOWS, "windows-stored-in-full"),
        ("0.9.2", WINDOWS | {"device": "cuda"}, "windows-stored-in-full-without-manager"),
        ("0.10.1", WINDOWS | {"device": "cpu"}, "windows-stored-in-full-without-manager"),
        ("0.9.1", {"engine": "v1"}, "estimate-without-number"),
        ("0.29.0", {}, "null-block-not-reserved"),
        ("0.9.2", {"engine": "v0"}, "null-block-not-reserved"),
        ("0.9.2", {"engine": "v1", "block_override": True}, "block-override-not-applied"),
        ("0.20.1", {"block_override": True}, "block-override-not-checked"),
        ("0.20.1", WINDOWS, "hybrid-token-count-too-small"),
        ("0.24.0", {"device": "cpu"}, "cpu-share-ignores-container-limit"),
        ("0.20.2", {"device": "cpu", "cpu_space_given": True}, "cpu-share-ignores-container-limit"),
        ("0.20.2", {"device": "cuda"}, "cpu-share-ignores-container-limit"),
        ("0.20.0", {"device": "cuda"}, "graphs-not-in-budget"),
        ("0.19.1", {"device": "cuda", "eager": True}, "graphs-not-in-budget"),
        ("0.18.0", {}, "swap-space-checked-though-unused"),
    ],
)
def test_what_a_release_is_not_known_for(release: str, facts: dict[str, Any], code: str) -> None:
    """Fixed by then, or not in such a run."""
    assert code not in codes(release, **facts)


def test_of_an_unknown_release_nothing_is_said() -> None:
    """No release, no known defect."""
    assert defects_of(None, engine="v1", has_windows=True) == ()
    assert possible_defects(None, engine="v1", has_windows=True) == ()


def test_a_fact_that_is_not_known_leaves_a_row_out_and_possible() -> None:
    """Whether a model has windows is often not in a log."""
    release = Release(0, 15, 1)
    assert "only-first-group-checked" not in {row.code for row in defects_of(release)}
    assert "only-first-group-checked" in {row.code for row in possible_defects(release)}
    assert "pipeline-stages-counted-together" not in {row.code for row in possible_defects(release)}


def test_the_engine_follows_from_the_release_where_there_is_only_one() -> None:
    """V1 alone from 0.11.0, V0 alone before 0.6.4; in between it has to be known."""
    assert "null-block-not-reserved" in codes("0.11.0")
    assert "null-block-not-reserved" not in codes("0.10.2")
    assert "windows-in-full-in-v0" in codes("0.6.3", has_windows=True)


def test_a_release_after_the_last_looked_at_has_what_was_not_fixed() -> None:
    """Newer than the data: what the newest had is taken to hold on."""
    assert "abbreviated-flag-suggested" in codes("0.99.0")
    assert BY_CODE["abbreviated-flag-suggested"].fixed_words.startswith("not fixed")


def test_a_release_between_two_looked_at_is_not_certain() -> None:
    """0.3.1 was not looked at; 0.3.0 has it and 0.3.2 does not."""
    row = BY_CODE["whole-device-counted"]
    assert row.covers(Release(0, 3, 1)) is None
    assert row not in defects_of(Release(0, 3, 1))
    assert row in possible_defects(Release(0, 3, 1))


def test_a_fact_that_does_not_exist_is_an_error() -> None:
    """A misspelt fact would silently leave rows out."""
    with pytest.raises(TypeError):
        defects_of(Release(0, 15, 1), has_window=True)


@pytest.mark.skipif(not CASES.is_dir(), reason="the labelled cases are not beside this repository")
@pytest.mark.parametrize(
    ("case", "facts", "code"),
    [
        ("0.15.1/hybrid_too_long", WINDOWS, "only-first-group-checked"),
        ("0.9.2/hybrid_at_estimate", WINDOWS, "windows-stored-in-full-without-manager"),
        ("0.15.1/full_length_request", {"has_windows": False}, "null-block-not-reserved"),
        ("0.32.0/healthy", {}, "orderly-stop-prints-errors"),
        ("0.32.0/engine_sigkill_running", {}, "exit-status-zero-after-engine-death"),
        ("0.11.2/engine_sigkill_running", {}, "exit-status-zero-after-engine-death"),
    ],
)
def test_real_runs_that_showed_a_defect(case: str, facts: dict[str, Any], code: str) -> None:
    """The release of the run, on the CPU backend with a size given."""
    label = yaml.safe_load((CASES / f"{case}.yaml").read_text("utf-8"))
    assert code in codes(label["vllm_version"], device="cpu", cpu_space_given=True, **facts)
