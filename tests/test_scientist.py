"""The scripted scientist: sound when it does not slip, blind to what tools do not show, wrong in all eight ways."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest
from relabel import relabelled, said_in
from world_runs import collected, faulty

from scout.agents.scientist import Habits, Scientist
from scout.worlds.effects import draw
from scout.worlds.mystery_grid import DIRECTIONS, MysteryGrid, Rules, inside

KINDS = {
    "premature convergence",
    "environment mis-modelling",
    "memory issues",
    "uncontrolled experiments",
    "repetitive looping",
    "incoherent planning",
    "misaligned tool usage",
    "error propagation",
}
"""The labels of UltraHorizon, section 7."""


def world(seed: int, moves: int = 15) -> MysteryGrid:
    return MysteryGrid(draw(random.Random(seed)), seed=seed, required_steps=moves, rules=Rules(report_changes=True))


# Sound


@pytest.mark.parametrize("quiet", [False, True])
def test_a_sound_scientist_makes_no_mistake(quiet: bool) -> None:
    for seed in range(100):
        steps = Scientist(world(seed), seed, Habits(quiet=quiet)).play()
        assert not any(step.findings or step.refused or step.kind for step in steps)
        assert steps[-1].action.startswith("commit_final_result")


def test_a_sound_scientist_says_nothing_false_of_the_world() -> None:
    """What is entailed by evidence is true: no claim of a sound run leaves out the hidden effect."""
    for seed in range(60):
        env = world(seed)
        for step in Scientist(env, seed, Habits()).play():
            assert all(env.effects[said.letter] in said.effects for said in step.claims)


class Shown:
    """A world of which nothing is known but what its tools return: state is kept from their results alone."""

    def __init__(self, hidden: MysteryGrid) -> None:
        self._tools = {name: getattr(hidden, name) for name in ("move", "get_current_state", "reset")}
        self._commit = hidden.commit_final_result
        self.effects = dict.fromkeys("ABCDE")
        self.required_steps = hidden.required_steps
        self.total_steps = 0
        self.committed = False
        self._new_round(self._tools["get_current_state"]()["current_position"])

    def _new_round(self, tile: str) -> None:
        self.position = self._place(tile)
        self.energy, self.round_steps, self.round_over = 20, 0, False
        self.visits = dict.fromkeys("ABCDE", 0)

    @staticmethod
    def _place(tile: str) -> tuple[int, int]:
        return int(tile[1]), int(tile[3])

    def get_current_state(self) -> dict[str, Any]:
        return dict(self._tools["get_current_state"]())

    def move(self, direction: str) -> dict[str, Any]:
        result = dict(self._tools["move"](direction))
        if result["success"]:
            self.position = self._place(result["position"])
            self.energy, self.round_steps = result["energy"], result["steps"]
            self.round_over = result["game_over"]
            self.total_steps += 1
            if result["position"][-2] != "X":
                self.visits[result["position"][-2]] = result["letter_visit"]
        return result

    def reset(self) -> dict[str, Any]:
        result = dict(self._tools["reset"]())
        self._new_round(result["initial_position"])
        return result

    def commit_final_result(self, content: str) -> dict[str, Any]:
        result = dict(self._commit(content))
        self.committed = result["success"]
        return {"success": result["success"]}


@pytest.mark.parametrize("slip", [0.0, 0.4])
def test_it_sees_tool_results_only(slip: float) -> None:
    for seed in range(40):
        direct = Scientist(world(seed, 40), seed, Habits(slip=slip)).play()
        shown = Scientist(Shown(world(seed, 40)), seed, Habits(slip=slip)).play()  # type: ignore[arg-type]
        assert shown == direct


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    def played(seed: int) -> list[Any]:
        return list(Scientist(world(3), seed, Habits(slip=0.4)).play())

    random.seed(1)
    first = played(5)
    random.seed(2)
    assert played(5) == first
    assert len({str(played(seed)) for seed in range(20)}) == 20


def test_a_sound_run_with_a_mistake_would_stop_as_a_bug() -> None:
    scientist = Scientist(world(1), 1, Habits())
    scientist.false["A"] = frozenset({4})
    scientist.false["B"] = frozenset({1})
    with pytest.raises(RuntimeError, match="a sound scientist made a mistake"):
        scientist.play()


# Mistakes


def test_it_errs_in_all_eight_ways() -> None:
    kinds = Counter(kind for run in collected() if run.labels for kind in run.labels.kinds if kind)
    assert set(kinds) == KINDS
    first = Counter(run.labels.kinds[run.labels.first_mistake - 1] for run in faulty(collected()) if run.labels)
    assert "error propagation" not in first  # nothing to propagate yet


def test_every_mistake_has_a_kind_a_reason_and_a_proof_and_no_sound_step_has() -> None:
    for run in collected():
        assert run.labels is not None
        rows = zip(run.labels.step_labels, run.labels.kinds, run.labels.reasons, run.labels.proof_sizes, strict=True)
        for label, *notes in rows:
            assert all((note is not None) == (label == "incorrect") for note in notes)


def test_labels_follow_from_the_text_alone() -> None:
    """Read thought, action and observation only, work out what is left, and get the stored labels."""
    runs = [*faulty(collected())[:90], *(run for run in collected() if not run.has_mistake)][:130]
    assert sum(run.has_mistake is True for run in runs) == 90
    for run in runs:
        assert run.labels is not None
        assert tuple(relabelled(run)) == run.labels.step_labels, run.id


def test_false_beliefs_are_inherited_and_some_are_taken_back() -> None:
    inherited = repaired = 0
    for run in faulty(collected()):
        assert run.labels is not None
        false: set[str] = set()
        for step, label in zip(run.steps, run.labels.step_labels, strict=True):
            letters = [letter for letter, _ in said_in(step)]
            if label == "incorrect":
                inherited += bool(false.intersection(letters))
                false.update(letters[:1])
            elif letters and letters[0] in false and re.match("I was wrong|Correction|On second thought", step.thought):
                repaired += 1
                false.discard(letters[0])
    assert inherited > 50 and repaired > 20


def test_words_do_not_tell_sound_from_faulty_steps() -> None:
    """Openings that take something back, tests and every way to say a claim occur in sound runs as well."""
    sound = " ".join(step.thought for run in collected() if not run.has_mistake for step in run.steps)
    wrong = " ".join(
        step.thought
        for run in faulty(collected())
        if run.labels
        for step, label in zip(run.steps, run.labels.step_labels, strict=True)
        if label == "incorrect"
    )
    words = set(re.findall(r"[A-Za-z]+", wrong)) - set(re.findall(r"[A-Za-z]+", sound))
    assert not words


def test_a_refused_call_costs_nothing_and_is_reported() -> None:
    refused = [
        (run, position)
        for run in collected()
        for position, step in enumerate(run.steps)
        if step.observation.startswith("refused")
    ]
    assert refused
    for run, position in refused:
        assert run.labels is not None and run.labels.step_labels[position] == "incorrect"
        direction = json.loads(run.steps[position].action.removeprefix("move "))["direction"]
        places = [re.match(r"\((\d),(\d)", step.observation) for step in run.steps[:position]]
        x, y = next((int(at[1]), int(at[2])) for at in reversed(places) if at)
        assert direction not in DIRECTIONS or not inside(x + DIRECTIONS[direction][0], y + DIRECTIONS[direction][1])
