"""The rational observer against cases worked out by hand and against brute force."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scout.worlds.effects import EFFECTS, change, draw
from scout.worlds.observer import ALL_EFFECTS, Case, Claim, Finding, Observer, Visit
from scout.worlds.observer import Test as Experiment


def visit(letter: str, effect: int, x: int, y: int, energy: int, step: int, count: int = 1) -> Visit:
    """What a visit shows when the letter has the effect."""
    return Visit(letter, x, y, energy, step, count, *change(effect, x, y, energy, step, count))


def observed(*visits: Visit) -> Observer:
    observer = Observer()
    for each in visits:
        observer.see(each)
    return observer


def claim(letter: str, *effects: int) -> Claim:
    return Claim(letter, frozenset(effects))


# What is left


def test_ten_effects_are_possible_before_the_first_visit() -> None:
    assert Observer().left("A") == ALL_EFFECTS == frozenset(range(1, 11))


@pytest.mark.parametrize(
    ("shown", "left"),
    [
        # (x, y, energy, step, visit, score, energy change) -> effects that fit, by the sentences of the benchmark.
        ((4, 4, 19, 1, 1, 0, 1), {2}),
        ((4, 4, 9, 1, 1, -2, 10), {9}),
        ((4, 5, 19, 1, 1, 1, 0), {1, 3, 8, 9}),  # x + y is odd, first visit, energy of 10 or more; x - y = -1
        ((4, 4, 19, 1, 1, 0, 0), {7, 10}),  # an inner tile on the diagonal
        ((4, 4, 19, 1, 2, 0, 0), {7, 8, 10}),  # and an even visit
        ((4, 4, 19, 2, 1, -1, 0), {3, 4, 6}),
        ((4, 4, 19, 3, 1, 2, 0), {5, 6}),
        ((4, 6, 12, 1, 1, -2, 0), {5, 10}),  # energy below 15, x - y = -2
        ((0, 4, 19, 1, 1, 3, 0), {7}),
        ((5, 2, 19, 1, 1, 3, 0), {10}),
    ],
)
def test_effects_that_fit_a_visit(shown: tuple[int, int, int, int, int, int, int], left: set[int]) -> None:
    seen = Visit("A", *shown)
    assert seen.fits() == left
    assert observed(seen).left("A") == left


def test_visits_narrow_their_own_letter_only() -> None:
    observer = observed(Visit("A", 4, 5, 19, 1, 1, 1, 0), Visit("A", 4, 4, 18, 2, 2, 1, 0))
    assert observer.left("A") == {1, 9}  # parity would take one, visits would pay nothing
    assert observer.left("B") == ALL_EFFECTS
    assert [observer.left_before("A", n) for n in range(3)] == [ALL_EFFECTS, {1, 3, 8, 9}, {1, 9}]


WALKS = st.lists(
    st.tuples(
        st.sampled_from("ABCDE"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 30), st.integers(1, 30),
        st.integers(1, 6),
    ),
    max_size=12,
)  # fmt: skip


@given(st.integers(0, 10**6), WALKS)
def test_left_is_what_brute_force_leaves(seed: int, walk: list[tuple[str, int, int, int, int, int]]) -> None:
    effects = draw(random.Random(seed))
    visits = [visit(letter, effects[letter], *place) for letter, *place in walk]
    observer = observed(*visits)
    for letter in "ABCDE":
        expected = {
            effect
            for effect in EFFECTS
            if all(
                change(effect, v.x, v.y, v.energy, v.step, v.visit) == (v.score_change, v.energy_change)
                for v in visits
                if v.letter == letter
            )
        }
        assert observer.left(letter) == expected
        assert effects[letter] in observer.left(letter)
        assert observer.judge_claim(Claim(letter, frozenset(expected))) is None


# The four cases

ODD = Visit("A", 4, 5, 19, 1, 1, 1, 0)
"""Leaves 1, 3, 8 and 9."""
EVEN = Visit("A", 4, 4, 18, 2, 2, 1, 0)
"""Leaves 1 and 9 after ODD."""


def test_a_claim_of_a_refuted_effect_is_case_a() -> None:
    assert observed(ODD).judge_claim(claim("A", 4)) == Finding(Case.REFUTED, 1, "A")
    assert observed(ODD).judge_claim(claim("A", 1, 4)) == Finding(Case.REFUTED, 1, "A")


def test_a_test_that_cannot_tell_anything_is_case_b() -> None:
    even_first = Visit("A", 4, 4, 19, 1, 1, 1, 0)  # leaves 1, 8 and 9
    odd_second = Visit("A", 4, 5, 18, 2, 2, 1, 0)  # leaves 1, 3 and 9
    assert (even_first.fits(), odd_second.fits()) == ({1, 8, 9}, {1, 3, 9})
    after = observed(even_first, odd_second)
    assert after.judge_test(Experiment("A", "A", 4, 6, 17, 3, 4)) == Finding(Case.USELESS, 2, "A")
    assert after.judge_test(Experiment("A", "A", 4, 6, 9, 3, 4)) is None  # below 10 the refill would show
    assert after.judge_test(Experiment("B", "A", 4, 6, 9, 3, 4)) == Finding(Case.USELESS, 0, "B")
    assert Observer().judge_test(Experiment("A", "A", 4, 6, 17, 3, 1)) is None


def test_a_claim_of_more_than_the_evidence_entails_is_case_d() -> None:
    assert observed(ODD).judge_claim(claim("A", 1)) == Finding(Case.NOT_ENTAILED, 1, "A")
    assert observed(ODD).judge_claim(claim("A", 1, 3, 8)) == Finding(Case.NOT_ENTAILED, 1, "A")
    assert observed(ODD, EVEN).judge_claim(claim("A", 9)) == Finding(Case.NOT_ENTAILED, 2, "A")
    assert Observer().judge_claim(claim("A", 1)) == Finding(Case.NOT_ENTAILED, 0, "A")


def test_a_claim_that_is_wider_than_the_evidence_is_refuted() -> None:
    assert observed(ODD).judge_claim(Claim("A", ALL_EFFECTS)) == Finding(Case.REFUTED, 1, "A")


def test_refuted_comes_before_not_entailed() -> None:
    assert observed(ODD, EVEN).judge_claim(claim("A", 1, 3)) == Finding(Case.REFUTED, 1, "A")


def test_no_hindsight() -> None:
    """A claim is judged by the visits so far; what its own step shows counts from the next step on."""
    observer = observed(ODD)
    said = claim("A", 1, 3, 8, 9)
    assert observer.judge_claim(said) is None
    lucky = claim("A", 1, 9)
    assert observer.judge_claim(lucky) == Finding(Case.NOT_ENTAILED, 1, "A")
    observer.see(EVEN)
    assert observer.judge_claim(lucky) is None
    assert observer.judge_claim(said) == Finding(Case.REFUTED, 1, "A")


# Proofs


def fits_all(visits: Iterable[Visit]) -> frozenset[int]:
    left = ALL_EFFECTS
    for each in visits:
        left &= each.fits()
    return left


@given(st.integers(0, 10**6), WALKS, st.frozensets(st.integers(1, 10), min_size=1))
def test_proofs_are_the_smallest(
    seed: int, walk: list[tuple[str, int, int, int, int, int]], effects: frozenset[int]
) -> None:
    number = draw(random.Random(seed))["A"]
    visits = [visit("A", number, *place) for _, *place in walk][:7]
    observer = observed(*visits)

    def smallest(proves: object) -> int:
        assert callable(proves)
        groups = (some for size in range(len(visits) + 1) for some in combinations(visits, size))
        return next(len(some) for some in groups if proves(fits_all(some)))

    found = observer.judge_claim(Claim("A", effects))
    left = observer.left("A")
    if effects == left:
        assert found is None
    elif effects <= left:
        assert found == Finding(Case.NOT_ENTAILED, len(visits), "A")
    else:
        assert found == Finding(Case.REFUTED, smallest(lambda some: not effects <= some), "A")
    place = (5, 2, 12, 4, 3)
    useless = observer.judge_test(Experiment("A", "A", *place))
    if useless is not None:
        size = smallest(lambda some: len({change(effect, *place) for effect in some}) == 1)
        assert useless == Finding(Case.USELESS, size, "A")
    else:
        assert len({change(effect, *place) for effect in left}) > 1
