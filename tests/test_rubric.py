"""Exact grading of structured commits: readable, unreadable and hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scout.worlds.effects import DIFFICULTY, EFFECTS, NAMES
from scout.worlds.rubric import grade, parse_commit, score_commit

HARD = DIFFICULTY["hard"]
TRUTH = {letter: NAMES[number][0] for letter, number in HARD.items()}


@pytest.mark.parametrize("content", ["", "A is thirds", "[]", '"thirds"', "null", "[" * 100_000, "9" * 5000, None])
def test_unreadable_commit_earns_nothing_and_says_why(content: Any) -> None:
    result = grade(content, HARD)
    assert result.final_score == 0
    assert all("JSON" in entry.comment for entry in result.score_breakdown)


@pytest.mark.parametrize("value", ["sometimes", 0, 11, 6.0, True, ["thirds"], {"rule": "thirds"}, ""])
def test_unreadable_rule_costs_only_its_own_letter(value: Any) -> None:
    result = grade(json.dumps({**TRUTH, "A": value}), HARD)
    assert result.final_score == 80
    assert "no known rule" in result.score_breakdown[0].comment


def test_conflicting_explanations_earn_nothing() -> None:
    result = grade('{"A": "plus", "A": "thirds", "A": "thirds", "B": "border"}', HARD)
    assert [entry.awarded_score for entry in result.score_breakdown] == [0, 20, 0, 0, 0]
    assert "Several" in result.score_breakdown[0].comment


def test_unknown_letter_is_worth_nothing_and_is_named() -> None:
    result = grade(json.dumps({**TRUTH, "Z": "plus", "a": 6}), HARD)
    assert result.final_score == 100
    assert [(entry.criterion, entry.max_score) for entry in result.score_breakdown[5:]] == [("Z", 0), ("a", 0)]


def test_every_name_and_number_is_read_as_its_effect() -> None:
    for number, names in NAMES.items():
        for word in (*names, names[0].upper(), f" {names[0]} ", number, str(number)):
            assert parse_commit(json.dumps({"A": word})).claims == {"A": number}
    all_names = [name for names in NAMES.values() for name in names]
    assert set(NAMES) == set(EFFECTS) and len(all_names) == len(set(all_names))


@pytest.mark.parametrize(
    ("letters", "found", "expected"), [(1, 1, 100), (2, 1, 50), (3, 1, 100 / 3), (4, 3, 75), (5, 4, 80), (3, 0, 0)]
)
def test_fewer_letters_are_graded_as_a_share_of_a_hundred(letters: int, found: int, expected: float) -> None:
    effects = dict(list(HARD.items())[:letters])
    claims = {letter: number if i < found else None for i, (letter, number) in enumerate(effects.items())}
    assert score_commit(claims, effects).final_score == expected


def test_claim_of_an_effect_that_does_not_exist_is_wrong() -> None:
    result = score_commit({"A": 99}, {"A": 1})
    assert result.final_score == 0 and "99" in result.score_breakdown[0].comment


@settings(max_examples=60, deadline=None)
@given(st.text() | st.dictionaries(st.sampled_from("ABCDEZ"), st.none() | st.integers() | st.text()).map(json.dumps))
def test_any_text_can_be_graded(content: str) -> None:
    result = grade(content, HARD)
    assert result.final_score == sum(entry.awarded_score for entry in result.score_breakdown)
    assert {entry.awarded_score for entry in result.score_breakdown} <= {0, 20}
