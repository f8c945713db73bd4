"""The ten effects of the Mystery Grid and the maps that hand them out."""

from __future__ import annotations

import random

import pytest

from scout.worlds.effects import DIFFICULTY, EFFECTS, change, draw


@pytest.mark.parametrize(
    ("effect", "x", "y", "energy", "step", "visit", "expected"),
    [
        (1, 4, 4, 10, 2, 2, (1, 0)),
        (2, 4, 4, 10, 2, 2, (0, 1)),
        (3, 4, 5, 10, 2, 2, (1, 0)),
        (3, 4, 4, 10, 2, 2, (-1, 0)),
        (4, 4, 4, 10, 2, 2, (-1, 0)),
        (5, 4, 4, 15, 2, 2, (2, 0)),
        (5, 4, 4, 14, 2, 2, (-2, 0)),
        (6, 4, 4, 10, 3, 2, (2, 0)),
        (6, 4, 4, 10, 4, 2, (-1, 0)),
        (7, 1, 5, 10, 2, 2, (3, 0)),
        (7, 8, 5, 10, 2, 2, (3, 0)),
        (7, 5, 1, 10, 2, 2, (3, 0)),
        (7, 5, 8, 10, 2, 2, (3, 0)),
        (7, 2, 7, 10, 2, 2, (0, 0)),
        (7, 0, 9, 10, 2, 2, (3, 0)),
        (8, 4, 4, 10, 2, 1, (1, 0)),
        (8, 4, 4, 10, 2, 2, (0, 0)),
        (9, 4, 4, 9, 2, 2, (-2, 10)),
        (9, 4, 4, 10, 2, 2, (1, 0)),
        (10, 2, 7, 10, 2, 2, (-5, 0)),
    ],
)
def test_effect_changes_score_and_energy(
    effect: int, x: int, y: int, energy: int, step: int, visit: int, expected: tuple[int, int]
) -> None:
    assert change(effect, x, y, energy, step, visit) == expected


def test_unknown_effect_is_refused() -> None:
    with pytest.raises(KeyError):
        change(11, 0, 0, 20, 1, 1)


def test_border_band_holds_64_tiles_and_corners_double_only_on_request() -> None:
    tiles = [(x, y) for x in range(10) for y in range(10)]
    assert sum(change(7, x, y, 20, 1, 1)[0] == 3 for x, y in tiles) == 64
    doubled = [tile for tile in tiles if change(7, *tile, 20, 1, 1, corner_double=True)[0] == 6]
    assert doubled == [(0, 0), (0, 9), (9, 0), (9, 9)]


def test_difficulty_maps_are_the_published_ones() -> None:
    listed = {name: "".join(f"{letter}{number} " for letter, number in m.items()) for name, m in DIFFICULTY.items()}
    assert listed == {"easy": "A1 B2 C3 D4 E5 ", "medium": "A3 B5 C6 D7 E8 ", "hard": "A6 B7 C8 D9 E10 "}


def test_draw_gives_each_letter_another_effect_and_follows_the_seed() -> None:
    assert draw(random.Random(3)) == draw(random.Random(3))
    draws = [draw(random.Random(seed), "ABC") for seed in range(200)]
    assert all(list(d) == ["A", "B", "C"] and len(set(d.values())) == 3 for d in draws)
    assert {number for d in draws for number in d.values()} == set(EFFECTS)
