"""Thresholds, reliability and temperature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import run, unscored, verdict

from scout.calibrate import (
    OBJECTIVES,
    at_temperature,
    fit_temperature,
    fit_threshold,
    reliability,
    with_threshold,
)
from scout.errors import ConfigError, InputError
from scout.metrics import first_error


def test_threshold_is_inclusive_and_rebuilds_labels_and_first_mistake() -> None:
    before = verdict("a", "ccc?i", chances=[0.1, 0.4, 0.8, None, None])
    after = with_threshold(before, 0.4)
    assert [step.label for step in after.steps] == ["correct", "incorrect", "incorrect", "unlabelled", "incorrect"]
    assert after.first_mistake == 2
    assert with_threshold(before, 0.41).first_mistake == 3
    assert with_threshold(before, 0.9).first_mistake == 5
    assert with_threshold(after, 0.9).steps[:3] == before.steps[:3]


def test_unscored_verdicts_stay_unscored() -> None:
    assert with_threshold(unscored("a"), 0.5) == unscored("a")


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan])
def test_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match="threshold"):
        with_threshold(verdict("a", "c", chances=[0.5]), threshold)


def test_nan_is_refused() -> None:
    with pytest.raises(InputError, match="step 1 is NaN"):
        with_threshold(verdict("a", "c", chances=[math.nan]), 0.5)


RUNS = [run("a", "cci"), run("b", "ccc"), run("c", "ici"), run("d", "ccc"), run("e", "cic")]
SHIFTED = [
    verdict("a", "ccc", chances=[0.02, 0.05, 0.30]),
    verdict("b", "ccc", chances=[0.01, 0.12, 0.02]),
    verdict("c", "ccc", chances=[0.22, 0.03, 0.40]),
    verdict("d", "ccc", chances=[0.01, 0.01, 0.01]),
    unscored("e"),
]


def test_fitted_threshold_finds_what_a_half_would_miss_and_says_where_it_is_from() -> None:
    """P47: thresholds are fitted on a named split and stored."""
    found = fit_threshold(SHIFTED, RUNS, split="dev")
    assert 0.12 < found.value <= 0.22
    assert (found.objective, found.objective_value, found.split, found.n) == ("processbench_f1", 1.0, "dev", 4)
    assert first_error([with_threshold(one, found.value) for one in SHIFTED], RUNS)["processbench_f1"] == 1.0
    assert first_error([with_threshold(one, 0.5) for one in SHIFTED], RUNS)["processbench_f1"] == 0.0


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_is_at_least_as_good_as_a_half(objective: str) -> None:
    family, figure = OBJECTIVES[objective]
    half = family([with_threshold(one, 0.5) for one in SHIFTED], RUNS)[figure]
    assert half is not None
    assert fit_threshold(SHIFTED, RUNS, objective=objective).objective_value >= half


def test_equal_thresholds_resolve_to_the_one_nearest_a_half() -> None:
    flat = [verdict("a", "ci", chances=[0.1, 0.9]), verdict("b", "cc", chances=[0.1, 0.2])]
    assert fit_threshold(flat, [run("a", "ci"), run("b", "cc")]).value == pytest.approx(0.55)


def test_large_splits_are_fitted_on_quantiles() -> None:
    dice = np.random.default_rng(0)
    golds = ["".join(dice.choice(["c", "i"], p=[0.9, 0.1]) for _ in range(10)) for _ in range(120)]
    runs = [run(f"r{k}", gold) for k, gold in enumerate(golds)]
    said = [
        verdict(f"r{k}", "c" * 10, chances=[float(dice.beta(6, 6) if x == "i" else dice.beta(1, 9)) for x in gold])
        for k, gold in enumerate(golds)
    ]
    found = fit_threshold(said, runs)
    assert 0.1 < found.value < 0.5
    assert found.objective_value > 0.6


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InputError, match="log-probabilities"):
        fit_threshold([verdict("a", "cc")], [run("a", "cc")])
    with pytest.raises(InputError, match="undefined"):
        fit_threshold([verdict("a", "cc", chances=[0.1, 0.2])], [run("a", "cc")])
    with pytest.raises(ConfigError, match="known objectives"):
        fit_threshold(SHIFTED, RUNS, objective="f2")


def test_reliability_bins_count_every_case_once() -> None:
    bins = reliability([0.05, 0.05, 0.95, 1.0], [False, True, True, True], bins=10)
    assert len(bins) == 10
    assert (bins[0].n, bins[0].mean_p, bins[0].share) == (2, 0.05, 0.5)
    assert (bins[9].n, bins[9].mean_p, bins[9].share) == (2, 0.975, 1.0)
    assert bins[5] == type(bins[5])(0.5, 0.6, 0, None, None)
    with pytest.raises(InputError, match="0 to 1"):
        reliability([math.nan], [True])


@pytest.mark.parametrize("truth", [0.5, 1.0, 3.0])
def test_temperature_of_overconfident_numbers_is_found_again(truth: float) -> None:
    dice = np.random.default_rng(0)
    logits = dice.normal(0, 2, 8000)
    happened = dice.random(8000) < 1 / (1 + np.exp(-logits))
    stated = 1 / (1 + np.exp(-logits * truth))
    assert fit_temperature(stated.tolist(), happened.tolist()) == pytest.approx(truth, rel=0.08)


def test_temperature_stays_within_its_range_and_needs_both_classes() -> None:
    assert fit_temperature([0.9, 0.1], [True, False]) == pytest.approx(0.05, rel=1e-3)
    assert fit_temperature([0.9, 0.1], [False, True]) == pytest.approx(20, rel=1e-3)
    with pytest.raises(InputError, match="one class"):
        fit_temperature([0.9, 0.8], [True, True])
    with pytest.raises(InputError, match="temperature"):
        at_temperature(0.5, 0.0)


@given(st.floats(0.001, 0.999), st.floats(0.05, 20))
def test_temperature_never_crosses_a_half_and_one_changes_nothing(chance: float, temperature: float) -> None:
    moved = at_temperature(chance, temperature)
    assert 0 <= moved <= 1
    assert (moved - 0.5) * (chance - 0.5) >= 0
    assert at_temperature(chance, 1.0) == pytest.approx(chance)
