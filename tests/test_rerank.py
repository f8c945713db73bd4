"""Choosing among candidates: who wins, who never wins, and why."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import unscored, verdict

from scout.errors import ConfigError, InputError
from scout.rerank import SELECTORS, choose, scores
from scout.verdict import Verdict


def test_highest_p_yes_wins_and_the_reason_names_the_runner_up() -> None:
    choice = choose([verdict("a", "cc", p_yes=0.4), verdict("b", "cc", p_yes=0.9), unscored("c")])
    assert choice.order == ("b", "a", "c")
    assert (choice.best, choice.tie) == ("b", False)
    assert choice.reason == "p_yes 0.9 against 0.4 of a"


def test_equal_p_yes_is_decided_by_the_product_then_by_the_id() -> None:
    sure = verdict("z", "cc", p_yes=1.0, chances=[0.1, 0.1])
    unsure = verdict("a", "cc", p_yes=1.0, chances=[0.3, 0.1])
    blank = verdict("m", "cc", p_yes=1.0)
    assert choose([unsure, blank, sure]).order == ("z", "a", "m")
    assert choose([blank, verdict("b", "cc", p_yes=1.0)]).best == "b"


def test_a_margin_below_the_tolerance_is_a_tie_that_leaves_the_order_alone() -> None:
    """P38: the same request may come back with another number."""
    close = [verdict("a", "cc", p_yes=0.70), verdict("b", "cc", p_yes=0.71)]
    assert choose(close).tie
    assert choose(close).best == "b"
    assert not choose(close, tolerance=0.005).tie
    assert choose([verdict("a", "ii"), verdict("b", "ii")], selector="flagged_share", tolerance=0).tie


def test_unscored_candidates_never_win() -> None:
    choice = choose([unscored("a"), verdict("b", "ii", p_yes=0.0)])
    assert choice.best == "b"
    assert choice.order == ("b", "a")
    assert not choice.tie


def test_when_nobody_is_scored_there_is_no_best_and_a_reason() -> None:
    """P33: a flat default for every candidate would pick at random and say nothing."""
    choice = choose([unscored("b"), unscored("a")])
    assert choice.best is None
    assert choice.order == ("a", "b")
    assert choice.reason == "none of 2 candidates can be ranked: unreadable reply"
    no_number = choose([verdict("a", "cc"), verdict("b", "cc")])
    assert no_number.best is None
    assert "no value for p_yes" in no_number.reason


def test_selectors_rank_as_documented() -> None:
    late = verdict("late", "ccci", p_yes=0.2, chances=[0.1, 0.1, 0.1, 0.9])
    early = verdict("early", "iccc", p_yes=0.3, chances=[0.6, 0.1, 0.1, 0.1])
    both = verdict("both", "ciic", p_yes=0.1, chances=[0.2, 0.9, 0.9, 0.2])
    never = verdict("never", "cccc", p_yes=0.15, chances=[0.4, 0.4, 0.4, 0.4])
    candidates = [late, early, both, never]
    assert choose(candidates).order == ("early", "late", "never", "both")
    assert choose(candidates, selector="p_correct_product").order == ("early", "never", "late", "both")
    assert choose(candidates, selector="flagged_share").order == ("never", "early", "late", "both")
    assert choose(candidates, selector="first_mistake").order == ("never", "late", "both", "early")


def test_a_verdict_that_a_selector_cannot_read_is_not_ranked() -> None:
    gap = verdict("gap", "cc", chances=[0.1, None])
    certain = verdict("certain", "ii", chances=[1.0, 1.0])
    assert scores([gap, certain], selector="p_correct_product") == {"gap": None, "certain": (-math.inf,)}
    assert choose([gap, certain], selector="p_correct_product").best == "certain"
    assert choose([verdict("blank", "??"), certain], selector="flagged_share").best == "certain"
    assert choose([verdict("blank", "??"), certain], selector="first_mistake").best == "certain"


def test_products_of_very_long_runs_still_differ() -> None:
    short = verdict("short", "c" * 3000, chances=[0.5] * 3000)
    long = verdict("long", "c" * 4000, chances=[0.5] * 4000)
    assert choose([long, short], selector="p_correct_product").best == "short"


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        ([], "no candidates"),
        ([verdict("a", "cc", p_yes=math.nan)], "p_yes is nan"),
        ([verdict("a", "cc", p_yes=0.5, chances=[0.1, math.nan])], "step 2 p_incorrect is nan"),
        ([verdict("a", "cc", p_yes=1.5)], "1.5"),
        ([verdict("a", "cc", p_yes=0.5), verdict("a", "cc", p_yes=0.4)], "Two verdicts"),
    ],
)
def test_candidates_that_cannot_be_compared_are_refused(verdicts: list[Verdict], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(verdicts)


def test_candidates_of_several_tasks_are_refused() -> None:
    first = Verdict("a", "scored", None, (), None, 0.5, task_id="x")
    second = Verdict("b", "scored", None, (), None, 0.5, task_id="y")
    with pytest.raises(InputError, match="several tasks"):
        choose([first, second])


def test_unknown_selector_and_bad_tolerance_are_refused() -> None:
    with pytest.raises(ConfigError, match="known selectors: p_yes"):
        choose([verdict("a", "cc", p_yes=0.5)], selector="best")
    with pytest.raises(ConfigError, match="tolerance"):
        choose([verdict("a", "cc", p_yes=0.5)], tolerance=math.nan)


chance = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
candidate = st.tuples(st.booleans(), chance, st.text("ci?", min_size=2, max_size=2), st.tuples(chance, chance))


@given(st.lists(candidate, min_size=1, max_size=7), st.sampled_from(sorted(SELECTORS)), st.randoms())
def test_shuffling_changes_nothing(cases: list[Any], selector: str, dice: random.Random) -> None:
    verdicts = [
        verdict(f"r{k}", said, p_yes=p_yes, chances=chances) if scored else unscored(f"r{k}")
        for k, (scored, p_yes, said, chances) in enumerate(cases)
    ]
    choice = choose(verdicts, selector=selector)
    shuffled = list(verdicts)
    dice.shuffle(shuffled)
    assert choose(shuffled, selector=selector) == choice
    assert sorted(choice.order) == sorted(one.trajectory_id for one in verdicts)
    assert choice.best in (None, choice.order[0])
    if choice.best is not None:
        assert next(one for one in verdicts if one.trajectory_id == choice.best).status == "scored"
