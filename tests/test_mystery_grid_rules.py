"""The switches of the Mystery Grid world, its tools, equal episodes from equal seeds, and its speed."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scout.worlds.effects import DIFFICULTY, draw
from scout.worlds.mystery_grid import MAX_RESETS, PAPER_RULES, MysteryGrid, Rules, tool_schemas, tools

HARD = DIFFICULTY["hard"]


def world(rules: Rules = PAPER_RULES, *, seed: int = 0, required_steps: int = 50) -> MysteryGrid:
    return MysteryGrid(HARD, seed=seed, required_steps=required_steps, rules=rules)


# Switches


@pytest.mark.parametrize(("on", "score"), [(False, 3), (True, 6)])
def test_switch_corner_double(on: bool, score: int) -> None:
    env = world(Rules(corner_double=on))
    env.place((0, 8), letters={(0, 9): "B"})
    assert env.move("up")["score"] == score


@pytest.mark.parametrize("on", [False, True])
def test_switch_refill_rescues_round(on: bool) -> None:
    env = world(Rules(refill_rescues_round=on))
    env.place((5, 5), energy=1, letters={(5, 6): "D"})
    assert env.move("up")["game_over"] is not on
    assert env.move("down")["success"] is on


def test_rescue_does_not_lift_the_step_limit() -> None:
    env = world(Rules(refill_rescues_round=True))
    env.place((5, 5), energy=1, round_steps=29, letters={(5, 6): "D"})
    assert env.move("up")["game_over"]


@pytest.mark.parametrize(("on", "middle", "corner"), [(False, 25, 9), (True, 9, 4)])
def test_switch_sparse_view(on: bool, middle: int, corner: int) -> None:
    env = world(Rules(sparse_view=on))
    env.place((5, 5))
    assert len(env.get_current_state()["nearby_tiles"]) == middle
    env.place((0, 0))
    assert len(env.get_current_state()["nearby_tiles"]) == corner


@pytest.mark.parametrize(("on", "remaining"), [(True, 0), (False, -5)])
def test_switch_reset_cap_enforced(on: bool, remaining: int) -> None:
    env = world(Rules(reset_cap_enforced=on))
    answers = [env.reset()["success"] for _ in range(25)]
    assert answers == [True] * 20 + [not on] * 5
    env.place((5, 5))
    assert env.move("up")["remain_reset_times"] == remaining


def test_refused_reset_leaves_the_round_alone() -> None:
    env = world()
    env.place(resets=MAX_RESETS)
    before = env.get_full_map()
    assert set(env.reset()) == {"success", "message"}
    assert env.get_full_map() == before and env.resets == MAX_RESETS


@pytest.mark.parametrize(
    ("letter", "expected"),
    [("D", (-2, 10, 4, 1)), ("C", (1, 0, 4, 1)), ("X", (0, 0, 4, 0))],
)
def test_switch_report_changes(letter: str, expected: tuple[int, int, int, int]) -> None:
    names = ("score_change", "energy_change", "energy_before_effect", "letter_visit")
    env, plain = world(Rules(report_changes=True)), world()
    for each in (env, plain):
        each.place((5, 5), energy=5, letters={(5, 6): letter})
    result, reference = env.move("up"), plain.move("up")
    assert tuple(result[name] for name in names) == expected
    assert {key: value for key, value in result.items() if key not in names} == reference


# Tools, determinism, speed


def test_tool_schemas_follow_the_signatures() -> None:
    schemas = {entry["function"]["name"]: entry["function"] for entry in tool_schemas(tools(world()).values())}
    assert tuple(schemas) == MysteryGrid.TOOLS
    required = {name: schema["parameters"]["required"] for name, schema in schemas.items()}
    assert required == {
        "move": ["direction"],
        "get_current_state": [],
        "get_full_map": [],
        "reset": [],
        "commit_final_result": ["content"],
    }
    assert schemas["move"]["parameters"]["properties"] == {"direction": {"type": "string"}}
    assert all(schema["description"] for schema in schemas.values())


def play(env: MysteryGrid, actions: list[str]) -> list[Any]:
    return [env.reset() if action == "reset" else env.move(action) for action in actions] + [env.get_full_map()]


ACTIONS = st.lists(st.sampled_from(["up", "down", "left", "right", "reset", "nowhere"]), max_size=80)
SEEDS = st.integers(0, 2**32)
RULES = st.builds(Rules, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())


@settings(max_examples=40, deadline=None)
@given(SEEDS, RULES, ACTIONS)
def test_equal_seeds_and_actions_give_equal_episodes(seed: int, rules: Rules, actions: list[str]) -> None:
    random.seed(1)
    first = play(world(rules, seed=seed), actions)
    random.seed(2)
    assert play(world(rules, seed=seed), actions) == first


def test_other_seeds_give_other_grids() -> None:
    assert len({tuple(world(seed=seed).get_full_map()["map"]) for seed in range(20)}) == 20


@settings(max_examples=80, deadline=None)
@given(SEEDS, RULES, ACTIONS)
def test_invariants_hold_after_every_action(seed: int, rules: Rules, actions: list[str]) -> None:
    env = MysteryGrid(draw(random.Random(seed)), seed=seed, rules=rules)
    moves = resets = 0
    for action in actions:
        before = env.get_full_map()["map"]
        result = env.reset() if action == "reset" else env.move(action)
        moves += action != "reset" and result["success"]
        resets += action == "reset" and result["success"]
        assert (env.total_steps, env.resets) == (moves, resets)
        assert env.energy >= 0 and 0 <= env.round_steps <= 30
        assert env.round_over or (env.energy > 0 and env.round_steps < 30)
        assert all(0 <= value <= 9 for value in env.position)
        assert sum(env.visits.values()) <= env.round_steps
        changed = sum(a != b for a, b in zip(before, env.get_full_map()["map"], strict=True))
        assert (result["success"] and (action == "reset" or changed <= 1)) or not changed
        assert json.loads(json.dumps(result)) == result


def test_moves_are_fast_enough_to_collect_runs() -> None:
    """At least 50,000 moves a second, measured in processor time so that a busy machine does not matter."""
    env = world(Rules(reset_cap_enforced=False), required_steps=10**9)
    directions = random.Random(0).choices(["up", "down", "left", "right"], k=20_000)
    begin = time.process_time()
    for direction in directions:
        if env.round_over:
            env.reset()
        env.move(direction)
    assert len(directions) / (time.process_time() - begin) > 50_000
