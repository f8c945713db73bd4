"""Best of N: exact expectations, and what constant, silent and perfect scorers are worth."""

from __future__ import annotations

import math
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import run, unscored, verdict

from scout.errors import InputError
from scout.intervals import differences
from scout.rerank import choose, scores
from scout.selection import best_of_n, best_of_tally, expected_best

OUTCOMES = (True, False, False, True)
POOL = [run(f"{task}{k}", "cc", task=task, passed=passed) for task in "xyz" for k, passed in enumerate(OUTCOMES)]


def test_expected_best_of_a_small_pool_by_hand() -> None:
    assert expected_best([3, 2, 1], [True, False, True], 1) == pytest.approx(2 / 3)
    assert expected_best([3, 2, 1], [True, False, True], 2) == pytest.approx(2 / 3)
    assert expected_best([3, 2, 1], [True, False, True], 3) == 1.0
    assert expected_best([3, 2, 1], [True, False, True], 4) is None
    assert expected_best([1, 1, None], [True, False, True], 3) == 0.5
    assert expected_best([None, None], [True, True], 1) == 0.0


pools = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.booleans()), min_size=1, max_size=7)


@given(pools, st.integers(1, 7))
def test_expected_best_equals_going_through_all_subsets(pool: list[tuple[int | None, bool]], size: int) -> None:
    def success(subset: tuple[tuple[int | None, bool], ...]) -> float:
        top = max((score for score, _ in subset if score is not None), default=None)
        won = [passed for score, passed in subset if score == top and score is not None]
        return sum(won) / len(won) if won else 0.0

    found = expected_best([score for score, _ in pool], [passed for _, passed in pool], size)
    subsets = list(combinations(pool, size))
    assert found == (pytest.approx(sum(map(success, subsets)) / len(subsets)) if subsets else None)


def test_constant_scorer_is_worth_exactly_a_random_pick() -> None:
    table = best_of_n({one.id: 0.5 for one in POOL}, POOL)
    for figures in table.values():
        if figures["tasks"]:
            assert figures["scout"] == pytest.approx(figures["random"])
            assert figures["gain"] == pytest.approx(0)
    assert table["4"]["closed"] == pytest.approx(0)
    assert table["1"]["closed"] is None
    assert (table["5"]["tasks"], table["5"]["scout"], table["5"]["gain_low"]) == (0, None, None)


def test_perfect_scorer_reaches_the_oracle_and_an_inverted_one_the_floor() -> None:
    perfect = best_of_n({one.id: float(bool(one.outcome.passed)) for one in POOL}, POOL, sizes=(1, 2, 3, 4))
    inverted = best_of_n({one.id: -float(bool(one.outcome.passed)) for one in POOL}, POOL, sizes=(2, 4))
    for figures in perfect.values():
        assert figures["scout"] == pytest.approx(figures["oracle"])
    assert perfect["2"]["oracle"] == pytest.approx(5 / 6)
    assert perfect["2"]["closed"] == pytest.approx(1)
    assert inverted["2"]["scout"] == pytest.approx(1 / 6)
    assert inverted["4"]["scout"] == 0.0


def test_silent_scorer_gets_zero_when_strict_and_nothing_otherwise() -> None:
    """P46: unscored candidates are left out of all three figures, or never win."""
    silent = {one.id: None for one in POOL}
    assert best_of_n(silent, POOL, sizes=(2,), strict=True)["2"]["scout"] == 0.0
    assert best_of_n(silent, POOL, sizes=(2,), strict=True)["2"]["random"] == 0.5
    loose = best_of_n(silent, POOL, sizes=(2,))["2"]
    assert loose.pop("tasks") == 0
    assert set(loose.values()) == {None}


def test_whole_pool_equals_what_rerank_chooses() -> None:
    said = [verdict(one.id, "cc", p_yes=(k * 7 % 12) / 12) if k % 5 else unscored(one.id) for k, one in enumerate(POOL)]
    by_id = {one.id: one for one in POOL}
    won = [by_id[choose([v for v in said if v.trajectory_id[0] == task]).best or ""].outcome.passed for task in "xyz"]
    table = best_of_n(scores(said), POOL, sizes=(4,), strict=True)
    assert table["4"]["scout"] == pytest.approx(sum(map(bool, won)) / 3)


def test_runs_without_an_outcome_are_left_out() -> None:
    runs = [run("a", "cc", passed=True), run("b", "cc", passed=None), run("c", "cc", passed=False)]
    table = best_of_n({"a": 1.0, "b": 5.0, "c": 0.0}, runs, sizes=(2, 3))
    assert (table["2"]["scout"], table["2"]["random"], table["3"]["tasks"]) == (1.0, 0.5, 0)


def test_gain_interval_is_paired_over_tasks_and_fast() -> None:
    runs = [run(f"t{t}-{k}", "cc", task=f"t{t}", passed=(t * 5 + k * 3) % 8 < 3) for t in range(60) for k in range(8)]
    helpful = {one.id: float(bool(one.outcome.passed)) + k % 3 for k, one in enumerate(runs)}
    start = time.process_time()
    table = best_of_n(helpful, runs)
    assert time.process_time() - start < 3
    five = table["5"]
    assert isinstance(five["gain_low"], float) and isinstance(five["gain_high"], float)
    assert 0 < five["gain_low"] < (five["gain"] or 0) < five["gain_high"]
    other = best_of_tally({one.id: 0.0 for one in runs}, runs, 5)
    gap = differences(best_of_tally(helpful, runs, 5), other)["scout"]
    assert gap.value == pytest.approx(five["gain"])


def test_lost_candidates_and_nan_are_refused() -> None:
    with pytest.raises(InputError, match="'x0' has no score"):
        best_of_n({}, POOL)
    with pytest.raises(InputError, match="NaN"):
        expected_best([math.nan, 1.0], [True, False], 1)
    with pytest.raises(InputError, match="size"):
        expected_best([1.0], [True], 0)
