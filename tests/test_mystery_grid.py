"""The Mystery Grid world against the published rules, golden cases included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scout.errors import InputError
from scout.worlds.effects import DIFFICULTY, NAMES
from scout.worlds.mystery_grid import (
    PAPER_RULES,
    REFERENCE_RULES,
    MysteryGrid,
    Rules,
)

HARD = DIFFICULTY["hard"]
TRUTH = {letter: NAMES[number][0] for letter, number in HARD.items()}


def world(rules: Rules = PAPER_RULES, *, seed: int = 0, required_steps: int = 50) -> MysteryGrid:
    return MysteryGrid(HARD, seed=seed, required_steps=required_steps, rules=rules)


def criteria(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["criterion"]: entry for entry in result["result"]["judge_result"]["score_breakdown"]}


# Golden cases


def test_golden_refill_at_the_last_energy_leaves_the_round_over() -> None:
    env = world(REFERENCE_RULES)
    env.place((5, 5), energy=1, letters={(5, 6): "D"})
    result = env.move("up")
    assert (result["energy"], result["score"], result["steps"], result["game_over"]) == (10, -2, 1, True)


def test_golden_corner_pays_double_in_the_reference() -> None:
    env = world(REFERENCE_RULES)
    env.place((0, 8), letters={(0, 9): "B"})
    result = env.move("up")
    assert (result["score"], result["energy"]) == (6, 19)


def test_golden_nearby_tiles_of_the_reference() -> None:
    env = world(REFERENCE_RULES)
    env.place((8, 2))
    nearby = [tile[:-3] + ")" for tile in env.get_current_state()["nearby_tiles"]]
    assert nearby == ["(6,0)", "(6,2)", "(6,4)", "(8,0)", "(8,2)", "(8,4)"]


# World and moves


def test_new_world_has_a_full_grid_and_an_unused_start_tile() -> None:
    env = world()
    x, y = env.position
    assert (env.energy, env.score, env.round_steps, env.total_steps, env.resets) == (20, 0, 0, 0, 0)
    assert not env.round_over and not env.committed and set(env.visits.values()) == {0}
    assert env.grid.letter_at(x, y) in "ABCDE"


def test_grid_holds_only_the_letters_of_the_effects() -> None:
    env = MysteryGrid({"A": 3, "B": 10}, seed=5)
    assert {tile[-2] for tile in env.get_full_map()["map"]} == {"A", "B"}


def test_letters_and_start_tiles_are_about_uniform() -> None:
    letters: dict[str, int] = dict.fromkeys("ABCDE", 0)
    starts = set()
    env = world(Rules(reset_cap_enforced=False))
    for _ in range(1000):
        starts.add(env.position)
        for tile in env.get_full_map()["map"]:
            letters[tile[-2]] += 1
        env.reset()
    assert len(starts) == 100
    assert all(abs(count - 20_000) < 800 for count in letters.values())


@pytest.mark.parametrize("effects", [{}, {"F": 1}, {"X": 1}, {"AB": 1}, {"A": 0}, {"A": 11}])
def test_wrong_effects_are_refused(effects: dict[str, int]) -> None:
    with pytest.raises(InputError, match="effects has"):
        MysteryGrid(effects, seed=0)


@pytest.mark.parametrize(
    ("direction", "target"), [("up", (5, 6)), ("DOWN", (5, 4)), ("Left", (4, 5)), ("right", (6, 5))]
)
def test_directions_ignore_case_and_y_grows_upwards(direction: str, target: tuple[int, int]) -> None:
    env = world()
    env.place((5, 5))
    assert env.move(direction)["success"]
    assert env.position == target


def test_move_returns_exactly_the_documented_fields() -> None:
    env = world()
    env.place((5, 5), letters={(5, 6): "E"})
    assert env.move("up") == {
        "success": True,
        "position": "(5,6,E)",
        "energy": 19,
        "score": -1,
        "steps": 1,
        "game_over": False,
        "difficulty": "hard",
        "remain_reset_times": 20,
    }
    assert env.grid.letter_at(5, 6) == "X"


def test_used_tile_costs_energy_and_steps_but_has_no_effect() -> None:
    env = world()
    env.place((5, 5), letters={(5, 6): "X"})
    result = env.move("up")
    assert (result["position"], result["energy"], result["score"], result["steps"]) == ("(5,6,X)", 19, 0, 1)
    assert set(env.visits.values()) == {0}


def test_start_tile_triggers_when_stepped_on_later() -> None:
    env = world()
    env.place((5, 5), letters={(5, 5): "C", (5, 6): "X"})
    env.move("up")
    assert env.move("down")["score"] == 1


def test_visits_count_the_letter_over_different_tiles_of_the_round() -> None:
    env = world()
    env.place((4, 4), letters={(4, 5): "C", (4, 6): "C", (4, 7): "C"})
    assert [env.move("up")["score"] for _ in range(3)] == [1, 1, 2]
    assert env.visits["C"] == 3


def test_step_rule_uses_steps_of_the_round_and_not_total_steps() -> None:
    env = world()
    env.place((4, 4), letters={(4, 5): "A"}, round_steps=2, total_steps=10)
    assert env.move("up")["score"] == 2
    env.place((4, 4), letters={(4, 5): "A"}, round_steps=3, total_steps=11, score=0)
    assert env.move("up")["score"] == -1


@pytest.mark.parametrize(("energy", "expected"), [(10, (19, -2)), (11, (10, 1))])
def test_refill_tests_energy_after_the_move_cost(energy: int, expected: tuple[int, int]) -> None:
    env = world()
    env.place((4, 4), letters={(4, 5): "D"}, energy=energy)
    result = env.move("up")
    assert (result["energy"], result["score"]) == expected


def test_round_ends_at_thirty_steps() -> None:
    env = world()
    env.place((4, 4), round_steps=29)
    assert env.move("up")["game_over"]


def test_round_ends_without_energy() -> None:
    env = world()
    env.place((4, 4), letters={(4, 5): "X", (4, 6): "X"}, energy=2)
    assert not env.move("up")["game_over"]
    assert env.move("up")["game_over"]


def test_reasons_of_refusal_come_in_the_documented_order() -> None:
    env = world(required_steps=3)
    env.place((5, 9), total_steps=3, round_over=True, energy=0)
    assert env.commit_final_result("{}")["success"]
    reasons = [env.move("north")["message"]]
    env.place(round_over=False)
    reasons.append(env.move("north")["message"])
    env.place(total_steps=2)
    reasons.append(env.move("north")["message"])
    env.committed = False
    reasons.append(env.move("north")["message"])
    reasons.append(env.move("up")["message"])
    reasons.append(env.move("down")["message"])
    for reason, words in zip(
        reasons, ["round is over", "steps are used", "committed", "direction", "off the grid", "energy"], strict=True
    ):
        assert words in reason


@pytest.mark.parametrize(
    ("position", "direction"), [((0, 5), "left"), ((9, 5), "right"), ((5, 0), "down"), ((5, 9), "up"), ((5, 5), "jump")]
)
def test_refused_move_costs_nothing(position: tuple[int, int], direction: str) -> None:
    env = world()
    env.place(position)
    before = (env.get_current_state(), env.get_full_map(), env.total_steps)
    result = env.move(direction)
    assert set(result) == {"success", "message"} and result["success"] is False
    assert (env.get_current_state(), env.get_full_map(), env.total_steps) == before


def test_no_move_beyond_the_required_steps() -> None:
    env = world(required_steps=2)
    env.place((5, 5))
    assert env.move("up")["success"] and env.move("down")["success"]
    assert not env.move("up")["success"]


# Looking, resetting


def test_state_returns_exactly_the_documented_fields() -> None:
    env = world()
    env.place((0, 0), letters={(0, 0): "A"})
    state = env.get_current_state()
    assert list(state) == [
        "current_position",
        "energy",
        "score",
        "steps",
        "max_steps_in_this_round",
        "nearby_tiles",
        "game_over",
        "difficulty",
    ]
    assert (state["current_position"], state["max_steps_in_this_round"]) == ("(0,0,A)", 30)


def test_map_lists_the_top_row_first() -> None:
    env = world()
    env.place((3, 4), letters={(0, 9): "X", (9, 0): "X"})
    shown = env.get_full_map()
    assert list(shown) == ["map", "agent_position", "difficulty"]
    assert (len(shown["map"]), shown["map"][0], shown["map"][-1]) == (100, "(0,9,X)", "(9,0,X)")
    assert [tile[1:4] for tile in shown["map"][:3]] == ["0,9", "1,9", "2,9"]
    assert shown["agent_position"] == "(3,4)"


def test_reset_starts_a_fresh_round_and_keeps_the_totals() -> None:
    env = world()
    env.place((4, 4), letters={(4, 5): "C"})
    env.move("up")
    before = env.get_full_map()["map"]
    result = env.reset()
    assert list(result) == ["success", "message", "initial_position", "energy", "max_steps_in_this_round", "difficulty"]
    assert result["success"] and "1" in result["message"]
    assert result["initial_position"] == env.get_current_state()["current_position"]
    assert (env.energy, env.score, env.round_steps, env.round_over, env.visits["C"]) == (20, 0, 0, False, 0)
    assert (env.total_steps, env.resets) == (1, 1)
    assert env.get_full_map()["map"] != before


def test_place_refuses_what_the_world_cannot_hold() -> None:
    env = world()
    for wrong in ({"position": (10, 0)}, {"letters": {(0, -1): "A"}}, {"letters": {(0, 0): "F"}}, {"rules": None}):
        with pytest.raises(InputError, match="Cannot place"):
            env.place(**wrong)
    with pytest.raises(InputError, match="Cannot place"):
        env.place(visits={"X": 1})
    with pytest.raises(IndexError, match="off the grid"):
        env.grid.letter_at(-1, 0)


# Commit


def test_commit_is_refused_before_the_required_steps() -> None:
    env = world()
    env.place(total_steps=49, resets=19)
    assert set(env.commit_final_result(json.dumps(TRUTH))) == {"success", "message"}
    assert not env.committed


@pytest.mark.parametrize("state", [{"total_steps": 50}, {"resets": 20}])
def test_commit_opens_by_steps_or_by_resets_and_only_once(state: dict[str, Any]) -> None:
    env = world()
    env.place(**state)
    result = env.commit_final_result(json.dumps(TRUTH))
    assert result["success"] and set(result["result"]) == {"judge_input", "judge_result"}
    assert result["result"]["judge_input"] == json.dumps(TRUTH)
    assert result["result"]["judge_result"]["final_score"] == 100
    assert env.committed
    assert env.commit_final_result(json.dumps(TRUTH))["success"] is False


def test_each_letter_earns_twenty_or_nothing() -> None:
    env = world()
    env.place(total_steps=50)
    result = env.commit_final_result(json.dumps({"A": "Thirds", "B": 7, "C": "slope", "D": None}))
    assert result["result"]["judge_result"]["final_score"] == 40
    graded = criteria(result)
    assert {letter: entry["awarded_score"] for letter, entry in graded.items()} == {
        "A": 20,
        "B": 20,
        "C": 0,
        "D": 0,
        "E": 0,
    }
    assert all(set(e) == {"criterion", "max_score", "awarded_score", "comment"} for e in graded.values())
    assert all(entry["max_score"] == 20 and entry["comment"] for entry in graded.values())
