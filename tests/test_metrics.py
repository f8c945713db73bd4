"""Figures: golden tables, what garbage and constant scorers get, unscored runs counted twice (P46, P47)."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import run, verdict
from judged import unscored as no_score

from scout.errors import InputError
from scout.intervals import Floats, Interval, Tally, differences, intervals, ratio
from scout.metrics import (
    auroc,
    brier,
    detection,
    detection_tally,
    ece,
    first_error,
    first_error_tally,
    gold_labels,
    localisation,
    localisation_tally,
    probability,
    steps,
    steps_tally,
    unscored,
)
from scout.trajectory import Trajectory
from scout.verdict import Verdict

RUNS = [
    run("a", "ccic", facts=2),
    run("b", "icccccc", facts=9),
    run("c", "cccci", facts=3),
    run("d", "ccc"),
    run("e", "cc"),
    run("f", "cci???", known="first_mistake", facts=1),
    run("g", None),
    run("h", "?i??", known="some_failures"),
]
SAID = [
    verdict("a", "ccic"),  # exact
    verdict("b", "ccicccc"),  # 2 off
    verdict("c", "ccccc"),  # nothing flagged
    verdict("d", "ccc"),  # clean, left alone
    verdict("e", "ic"),  # false alarm
    no_score("f"),
    verdict("g", "ii"),  # no labels: counts nowhere
    verdict("h", "cicc"),  # a mistake, perhaps not the first: detection only
]


def test_golden_localisation() -> None:
    assert localisation(SAID, RUNS) == {
        "exact": 1 / 3,
        "exact_provable": 1 / 2,
        "within_1": 1 / 3,
        "within_3": 2 / 3,
        "mae": 1.0,
        "mae_charged": pytest.approx((0 + 2 + 5) / 3),
        "coverage": 2 / 3,
        "n_provable": 2,
        "n": 3,
    }
    strict = localisation(SAID, RUNS, strict=True)
    assert strict["exact"] == 1 / 4
    assert strict["exact_provable"] == pytest.approx(1 / 3)
    assert strict["mae"] == 1.0
    assert strict["mae_charged"] == (0 + 2 + 5 + 6) / 4
    assert (strict["n"], strict["n_provable"], strict["coverage"]) == (4, 3, 0.5)


def test_golden_detection() -> None:
    figures = detection(SAID, RUNS)
    assert figures == {
        "precision": 3 / 4,
        "recall": 3 / 4,
        "f1": 3 / 4,
        "always_flag_f1": pytest.approx(2 * (4 / 6) / (1 + 4 / 6)),
        "clean_share": pytest.approx(1 / 3),
        "clean_unflagged": 1 / 2,
        "n": 6,
    }
    strict = detection(SAID, RUNS, strict=True)
    assert (strict["recall"], strict["precision"], strict["n"]) == (3 / 5, 3 / 4, 7)


def test_golden_first_error() -> None:
    """P47: F1 is the harmonic mean of two accuracies, not of precision and recall."""
    figures = first_error(SAID, RUNS)
    assert (figures["accuracy_wrong"], figures["accuracy_clean"], figures["n"]) == (1 / 3, 1 / 2, 5)
    assert figures["processbench_f1"] == pytest.approx(0.4)
    assert figures["exact_f1"] == pytest.approx(2 / (2 + 2 + 2))
    assert first_error(SAID, RUNS, strict=True)["accuracy_wrong"] == 1 / 4


def test_golden_steps() -> None:
    figures = steps(SAID, RUNS)
    assert figures["recall_correct"] == pytest.approx((3 + 5 + 4 + 3 + 1) / (3 + 6 + 4 + 3 + 2))
    assert figures["recall_incorrect"] == 2 / 4
    assert figures["product"] == pytest.approx((1 + 0 + 0 + 1 + 1 / 2 + 1) / 6)
    strict = steps(SAID, RUNS, strict=True)
    assert (strict["n"], strict["n_incorrect"], strict["recall_incorrect"]) == (7, 5, 2 / 5)


def test_a_step_left_out_counts_as_wrong_for_its_class() -> None:
    assert steps([verdict("x", "c?")], [run("x", "cc")])["recall_correct"] == 0.5
    assert steps([verdict("x", "c?")], [run("x", "ci")])["recall_incorrect"] == 0.0


def test_all_garbage_gets_exactly_zero_on_every_strict_figure() -> None:
    """P46: also on the clean runs, where "no mistake found" would look right."""
    silent = [no_score(one.id) for one in RUNS]
    found = {
        "localisation": localisation(silent, RUNS, strict=True),
        "detection": detection(silent, RUNS, strict=True),
        "first_error": first_error(silent, RUNS, strict=True),
        "steps": steps(silent, RUNS, strict=True),
    }
    context = {"n", "n_provable", "n_correct", "n_incorrect", "always_flag_f1", "clean_share", "mae", "mae_charged"}
    for family, figures in found.items():
        assert {value for name, value in figures.items() if name not in context} == {0.0}, family
    assert found["localisation"]["mae"] is None
    assert found["localisation"]["mae_charged"] == pytest.approx((4 + 7 + 5 + 6) / 4)
    assert probability(silent, RUNS, strict=True) == {"auroc": 0.0, "brier": 1.0, "ece": 1.0, "n": 7}


def test_all_garbage_has_no_figure_over_scored_runs() -> None:
    """P46: unscored is not 0, 0.5 or "correct"."""
    silent = [no_score(one.id) for one in RUNS]
    for family in (localisation, detection, first_error, steps, probability):
        figures = family(silent, RUNS)
        assert all(not value for value in figures.values())
        assert {value for name, value in figures.items() if not name.startswith("n")} == {None}
    assert unscored(silent) == {"unreadable reply": 8}
    assert unscored(SAID) == {"unreadable reply": 1}


def test_processbench_f1_is_zero_when_both_accuracies_are() -> None:
    runs = [run("a", "ci"), run("b", "cc")]
    assert first_error([verdict("a", "cc"), verdict("b", "ci")], runs)["processbench_f1"] == 0.0
    assert first_error([verdict("a", "ci")], runs[:1])["processbench_f1"] is None


def test_constant_scorers_get_what_they_deserve() -> None:
    runs = [run(f"w{k}", "c" * k + "i" + "c" * (9 - k)) for k in range(10)]
    runs += [run(f"c{k}", "c" * 10) for k in range(10)]
    never = [verdict(one.id, "c" * 10) for one in runs]
    always = [verdict(one.id, "i" * 10) for one in runs]
    assert detection(never, runs)["f1"] == 0.0
    assert detection(never, runs)["precision"] == 0.0
    assert detection(always, runs)["f1"] == detection(always, runs)["always_flag_f1"] == pytest.approx(2 / 3)
    assert localisation(always, runs)["exact"] == pytest.approx(0.1)
    assert localisation(never, runs)["coverage"] == 0.0
    assert localisation(never, runs)["mae"] is None
    for scorer in (never, always):
        assert first_error(scorer, runs)["processbench_f1"] == 0.0
    assert steps(always, runs)["product"] == 0.0
    assert steps(never, runs)["product"] == 0.5


@pytest.mark.parametrize(
    ("verdicts", "runs", "message"),
    [
        ([verdict("a", "cc")], [run("a", "cc"), run("b", "cc")], "b"),
        ([verdict("a", "cc"), verdict("b", "cc")], [run("a", "cc")], "b"),
        ([verdict("a", "cc"), verdict("a", "ci")], [run("a", "cc")], "twice"),
        ([verdict("a", "cc")], [run("a", "cc"), run("a", "ci")], "twice"),
    ],
)
def test_lost_and_doubled_rows_are_refused(verdicts: list[Verdict], runs: list[Trajectory], message: str) -> None:
    with pytest.raises(InputError, match=message):
        localisation(verdicts, runs)


# ---- numbers --------------------------------------------------------------------------------------------------------


def test_auroc_brier_and_ece_of_known_numbers() -> None:
    assert auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]) == 0.75
    assert auroc([0.5, 0.5, 0.5], [False, True, True]) == 0.5
    assert auroc([1, 2], [True, True]) is None
    assert brier([0.0, 1.0, 0.5], [False, True, True]) == pytest.approx(0.25 / 3)
    assert brier([], []) is None
    assert ece([], []) is None
    assert ece([0.9, 0.9, 0.1, 0.1], [True, False, False, False]) == pytest.approx((0.8 + 0.2) / 4)
    assert ece([1.0, 0.0], [True, False]) == 0.0


def test_nan_and_probabilities_out_of_range_are_refused() -> None:
    for figure in (auroc, brier, ece):
        with pytest.raises(InputError, match="NaN"):
            figure([0.1, math.nan], [True, False])
        with pytest.raises(InputError, match="same number"):
            figure([0.1], [True, False])
    with pytest.raises(InputError, match="0 to 1"):
        ece([1.2], [True])


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=40))
def test_auroc_equals_counting_pairs(cases: list[tuple[int, bool]]) -> None:
    true = [number for number, truth in cases if truth]
    false = [number for number, truth in cases if not truth]
    wins = [1.0 if t > f else 0.5 if t == f else 0.0 for t in true for f in false]
    found = auroc([number for number, _ in cases], [truth for _, truth in cases])
    assert found == (pytest.approx(sum(wins) / len(wins)) if wins else None)


# ---- intervals ------------------------------------------------------------------------------------------------------


def many(tasks: int, seed: int, keep: float) -> tuple[list[Verdict], list[Trajectory]]:
    dice = np.random.default_rng(seed)
    runs, said = [], []
    for number in range(tasks * 8):
        gold = "".join(dice.choice(["c", "i"], p=[0.9, 0.1]) for _ in range(12))
        heard = "".join(letter if dice.random() < keep else "ci"[letter == "c"] for letter in gold)
        runs.append(run(f"r{number}", gold, task=f"t{number % tasks}"))
        said.append(verdict(f"r{number}", heard))
    return said, runs


def test_intervals_hold_the_value_repeat_with_the_seed_and_are_fast() -> None:
    said, runs = many(60, 0, 0.9)
    tally = localisation_tally(said, runs)
    start = time.process_time()
    found = intervals(tally, resamples=2000, seed=3)
    assert time.process_time() - start < 1
    values = localisation(said, runs)
    for name, interval in found.items():
        assert interval.value == values[name]
        if interval.value is not None:
            assert interval.low is not None and interval.high is not None
            assert interval.low < interval.value < interval.high, name
    assert "n" not in found
    assert found == intervals(tally, resamples=2000, seed=3)
    assert found != intervals(tally, resamples=2000, seed=4)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Share of a chance that differs from task to task, so that runs of one task resemble each other."""
    dice = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        hits_T = dice.binomial(8, dice.beta(9, 3, size=60))
        one = Tally(tuple(map(str, range(60))), np.stack([hits_T, np.full(60, 8)], axis=1).astype(float), share)
        found = intervals(one, resamples=300, seed=seed)["share"]
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.75 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


def share(sums: Floats) -> dict[str, Floats]:
    return {"share": ratio(sums[..., 0], sums[..., 1])}


def test_a_scorer_against_itself_differs_by_exactly_nothing() -> None:
    said, runs = many(20, 0, 0.8)
    for build in (localisation_tally, detection_tally, first_error_tally, steps_tally):
        found = differences(build(said, runs), build(said, runs))
        assert {(one.value, one.low, one.high) for one in found.values()} <= {(0.0, 0.0, 0.0), (None, None, None)}


def test_paired_difference_is_narrower_than_the_two_intervals_together() -> None:
    said, runs = many(40, 0, 0.8)
    exact = [verdict(one.id, "".join(label[0] for label in gold_labels(one).values())) for one in runs]
    better = [exact[k] if k % 7 == 0 else said[k] for k in range(len(runs))]
    gap = differences(steps_tally(better, runs), steps_tally(said, runs))["recall_correct"]
    alone = intervals(steps_tally(said, runs))["recall_correct"]
    assert gap.low is not None and gap.high is not None and alone.low is not None and alone.high is not None
    assert 0 < gap.low <= (gap.value or 0) <= gap.high
    assert gap.high - gap.low < alone.high - alone.low


def test_difference_over_other_tasks_is_refused() -> None:
    said, runs = many(4, 0, 0.8)
    short_said, short_runs = many(3, 0, 0.8)
    with pytest.raises(InputError, match="same tasks"):
        differences(steps_tally(said, runs), steps_tally(short_said, short_runs))


def test_one_task_or_none_has_a_value_without_an_interval() -> None:
    found = intervals(localisation_tally([verdict("a", "ci")], [run("a", "ci")]))
    assert found["exact"] == Interval(1.0, None, None)
    assert intervals(localisation_tally([], []))["exact"] == Interval(None, None, None)


# ---- properties -----------------------------------------------------------------------------------------------------

pool = st.lists(
    st.tuples(st.text("ci", min_size=3, max_size=3), st.text("ci?", min_size=3, max_size=3), st.booleans()), max_size=12
)


@given(pool)
def test_figures_stay_in_range_strict_never_helps_and_order_does_not_matter(cases: list[tuple[str, str, bool]]) -> None:
    runs = [run(f"r{k}", gold, task=f"t{k % 3}") for k, (gold, _, _) in enumerate(cases)]
    said = [verdict(f"r{k}", text) if scored else no_score(f"r{k}") for k, (_, text, scored) in enumerate(cases)]
    for family in (localisation, detection, first_error, steps):
        loose = family(said, runs)
        assert family(said[::-1], runs[::-1]) == pytest.approx(loose)
        for name, value in loose.items():
            if not name.startswith(("n", "mae")):
                assert value is None or 0 <= value <= 1
    for name in ("exact", "within_1", "within_3", "coverage"):
        loose_value, strict_value = localisation(said, runs)[name], localisation(said, runs, strict=True)[name]
        assert loose_value is None or (strict_value is not None and strict_value <= loose_value + 1e-12)
