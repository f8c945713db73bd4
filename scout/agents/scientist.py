"""A scripted scientist who finds the hidden effects of a Mystery Grid from tool results alone.

It explores with a small map of what it has seen, says in every thought what it believes and what the step is for,
keeps notes and commits a structured answer. With `Habits` it errs in the eight ways of UltraHorizon (see `slips`);
labels come from a rational observer that sees what the agent has been shown, so a slip that happens to be right is
not a mistake.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from scout.agents import phrases
from scout.agents.explorer import Explorer, Move
from scout.agents.slips import slip
from scout.worlds.effects import NAMES, change
from scout.worlds.mystery_grid import DIRECTIONS, MysteryGrid
from scout.worlds.observer import Case, Claim, Finding, Observer, Test, Visit


@dataclass(frozen=True)
class Habits:
    """How the scientist works; the rates are per step and in [0, 1]."""

    slip: float = 0.0
    """Chance of a first mistake at a step."""
    slip_again: float = 0.3
    """Chance of a fresh mistake at a step once one was made (mistakes come in clusters)."""
    inherit: float = 0.72
    """Chance that a false belief is repeated when its letter comes up; else the scientist notices and repairs it."""
    guess: float = 0.35
    """Chance that, after a mistake, an unsettled letter is guessed in the commit."""
    fixation: float = 0.25
    """Chance that a thought turns to a false belief while there is one."""
    mix_up: float = 0.45
    """Chance that, after a mistake, two letters are mixed up in the commit."""
    declare: float = 0.12
    """Chance that a move that can tell something is called a test."""
    note_every: int = 5
    """Steps between notes."""
    quiet: bool = False
    """Pass on hearsay in thoughts and notes, in the words of a claim and drawn at random, instead of saying what is
    believed: such a run holds no view before its commit."""


@dataclass
class Plan:
    """What the scientist means to do in a step."""

    claims: list[Claim]
    aim: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    """Letter that is tested or stepped on."""
    kind: str | None = None
    """Way of erring that shaped this plan."""
    repaired: bool = False


@dataclass(frozen=True)
class Done:
    """A step as it happened, with everything a judge may know of it."""

    thought: str
    action: str
    observation: str
    claims: tuple[Claim, ...]
    test: Test | None
    refused: bool
    visit: Visit | None
    findings: tuple[Finding, ...]
    kind: str | None


class Scientist:
    """Plays one world to its commit. `steps` holds what happened."""

    def __init__(self, world: MysteryGrid, seed: int, habits: Habits) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.habits = habits
        self.letters = list(world.effects)
        self.observer = Observer()
        self.false: dict[str, frozenset[int]] = {}
        """Letter -> effects wrongly believed to be left."""
        self.unsaid: dict[str, str] = {}
        """Letter -> kind of error behind a false belief that no step has shown yet."""
        self.explorer = Explorer(self.rng)
        self.explorer.look(world.get_current_state()["nearby_tiles"])
        self.start = self._observation("get_current_state", {})
        """What the scientist was shown before its first step."""
        self.steps: list[Done] = []
        self.heard: list[Claim] = []
        """Rumours of a quiet scientist, one a step."""
        self.erred = False
        self.since_note = 0
        self.last_letter: str | None = None

    def belief(self, letter: str) -> frozenset[int]:
        """What the scientist takes to be left for the letter."""
        return self.false.get(letter, self.observer.left(letter))

    def play(self) -> list[Done]:
        """Runs until the commit. Raises RuntimeError when a sound scientist makes a mistake (a bug here)."""
        while not self.world.committed:
            plan = self.plan()
            rate = self.habits.slip_again if self.erred else self.habits.slip
            if rate and self.rng.random() < rate:
                plan = slip(self, plan) or plan
            self.act(plan)
        if not self.habits.slip and any(step.findings for step in self.steps):
            raise RuntimeError("a sound scientist made a mistake")
        return self.steps

    def plan(self, claims: list[Claim] | None = None) -> Plan:
        """The next step under the current beliefs, as a sound scientist plans it. claims: what to say, else chosen."""
        repaired = False
        if claims is None:
            claims, repaired = self._claims()
        world = self.world
        if world.total_steps >= world.required_steps:
            return self._commit(claims)
        if world.round_over:
            return Plan(claims, "reset", "reset", repaired=repaired)
        if self.explorer.blind:
            return Plan(claims, "look", "get_current_state", repaired=repaired)
        if self.since_note >= self.habits.note_every + self.rng.randrange(-1, 2):
            return self._note()
        move = self.explorer.choose(world, self.belief)
        if move is None:
            return Plan(claims, "look", "get_current_state", repaired=repaired)
        return self.walk(claims, move, repaired)

    def walk(self, claims: list[Claim], move: Move, repaired: bool = False) -> Plan:
        """A plan that makes the move; an informative one is at times declared a test, a claim of its own."""
        aim = "test" if move.informative and self.rng.random() < self.habits.declare else "go"
        return Plan(claims, aim, "move", {"direction": move.direction}, move.letter, repaired=repaired)

    def topic(self, letters: list[str]) -> str:
        """A letter to speak of: often the last one stepped on, or one wrongly thought known, sometimes a new one."""
        fixed = [letter for letter in letters if letter in self.false]
        if fixed and self.rng.random() < self.habits.fixation:
            return self.rng.choice(fixed)
        seen = [letter for letter in letters if letter in self.observer.visits or letter in self.false]
        if self.last_letter in seen and self.rng.random() < 0.5:
            return str(self.last_letter)
        return self.rng.choice(letters if not seen or self.rng.random() < 0.25 else seen)

    def _claims(self) -> tuple[list[Claim], bool]:
        letter = self.topic(self.letters)
        repaired = letter in self.false and self.rng.random() > self.habits.inherit
        if repaired:
            del self.false[letter]
        believed = self.belief(letter)
        return [Claim(letter, believed)], repaired

    def _note(self) -> Plan:
        letter = self.topic(self.letters)
        claims = [Claim(letter, self.belief(letter))]
        text = phrases.note([self._hear(letter)] if self.habits.quiet else claims, self.rng)
        return Plan(claims, "note", "note_tool", {"action": "write_note", "note": text})

    def _commit(self, claims: list[Claim]) -> Plan:
        answer: dict[str, str | None] = {}
        claims = list(claims)
        beliefs = {letter: self.belief(letter) for letter in self.letters}
        mixed_up = self.erred and self.rng.random() < self.habits.mix_up
        if mixed_up:
            one, other = self.rng.sample(self.letters, 2)
            beliefs[one], beliefs[other] = beliefs[other], beliefs[one]
        for letter, believed in beliefs.items():
            if self.erred and len(believed) > 1 and self.rng.random() < self.habits.guess:
                believed = self.belief(self.rng.choice(self.letters))
            answer[letter] = NAMES[next(iter(believed))][0] if len(believed) == 1 else None
            if len(believed) == 1:
                claims.append(Claim(letter, believed))
        return Plan(
            claims,
            "commit",
            "commit_final_result",
            {"content": json.dumps(answer)},
            kind="memory issues" if mixed_up else None,
        )

    def act(self, plan: Plan) -> None:
        """Carries the plan out, judges it on the evidence so far, then adds what it showed."""
        world = self.world
        test = self._test(plan)
        thought = self._thought(plan, test)
        result = getattr(world, plan.tool)(**plan.arguments) if plan.tool != "note_tool" else {"success": True}
        refused = result.get("success") is False
        found = [self.observer.judge_claim(claim) for claim in plan.claims]
        if refused:
            found.append(Finding(Case.REFUSED, 0))
        elif test is not None:
            found.append(self.observer.judge_test(test))
        findings = tuple(finding for finding in found if finding)
        origins = [self.unsaid.pop(f.letter) for f in findings if f.letter in self.unsaid]
        kind = next(iter([*origins, plan.kind or "error propagation"])) if findings else None
        visit = None if refused else self._after(plan, result)
        self.erred = self.erred or bool(findings)
        self.steps.append(
            Done(
                thought,
                f"{plan.tool} {json.dumps(plan.arguments)}",
                self._observation(plan.tool, result),
                tuple(plan.claims),
                None if refused else test,
                refused,
                visit,
                findings,
                kind,
            )
        )

    def _after(self, plan: Plan, result: dict[str, Any]) -> Visit | None:
        self.since_note = 0 if plan.tool == "note_tool" else self.since_note + 1
        visit = None
        if plan.tool == "get_current_state":
            self.explorer.look(result["nearby_tiles"])
        elif plan.tool == "reset":
            self.explorer.forget()
        elif plan.tool == "move":
            visit = visit_of(result)
            self.explorer.step_on(self.world.position)
            self.last_letter = visit.letter if visit else self.last_letter
        if visit:
            self.observer.see(visit)
            if self.false.get(visit.letter) == self.observer.left(visit.letter):
                del self.false[visit.letter]
        return visit

    def _test(self, plan: Plan) -> Test | None:
        if plan.aim != "test":
            return None
        world = self.world
        dx, dy = DIRECTIONS.get(str(plan.arguments.get("direction")), (0, 0))
        x, y = world.position[0] + dx, world.position[1] + dy
        landed = self.explorer.known.get((x, y), "")
        return Test(
            plan.target,
            landed,
            x,
            y,
            world.energy - 1,
            world.round_steps + 1,
            world.visits.get(landed, 0) + 1,
        )

    def _thought(self, plan: Plan, test: Test | None) -> str:
        rng = self.rng
        parts: list[str] = []
        if plan.aim != "note":
            said = self._hear(plan.claims[0].letter) if self.habits.quiet else plan.claims[0]
            other = rng.choice(self.letters)
            if other != said.letter and other in self.observer.visits and rng.random() < 0.3:
                past = self.observer.visits[other][-1]
                parts.append(phrases.recall(other, past.x, past.y, past.score_change, rng))
            opening = phrases.repair(rng) if plan.repaired or rng.random() < 0.05 else ""
            if self.habits.quiet and rng.random() < 0.5:
                opening = phrases.hearsay(rng)
            parts.append(opening + phrases.claim(said, rng))
        parts.append(phrases.aim(plan.aim, plan.target, rng))
        believed = sorted(self.belief(plan.target)) if plan.aim == "test" else []
        expects = test is not None and test.landed == test.letter
        if test is not None and expects and len(believed) < 6 and rng.random() < 0.3:
            effect = rng.choice(believed)
            parts.append(
                phrases.expectation(effect, *change(effect, test.x, test.y, test.energy, test.step, test.visit), rng)
            )
        return " ".join(parts)

    def _hear(self, letter: str) -> Claim:
        """Something heard of the letter: what is left for some letter, so that it gives nothing away."""
        self.heard.append(Claim(letter, self.belief(self.rng.choice(self.letters))))
        return self.heard[-1]

    def _observation(self, tool: str, result: dict[str, Any]) -> str:
        if result.get("success") is False:
            return f"refused: {result['message']}"
        world = self.world
        x, y = world.position
        if tool == "move":
            letter = result["position"][-2]
            changed = f" score {result['score_change']:+d} energy {result['energy_before_effect']}"
            if result["energy_change"]:
                changed += f" {result['energy_change']:+d}"
            visit = f" visit {result['letter_visit']}" if letter != "X" else ""
            return (
                f"({x},{y},{letter}){changed} step {result['steps']}{visit}{' round over' if world.round_over else ''}"
            )
        if tool == "get_current_state":
            return f"({x},{y}) energy {world.energy} step {world.round_steps} view {self.explorer.view(x, y)}"
        if tool == "reset":
            return f"({x},{y}) energy {world.energy} step 0"
        return "saved" if tool == "note_tool" else "committed"


def visit_of(result: dict[str, Any]) -> Visit | None:
    """The visit that an accepted move reports, or None on a used tile."""
    x, y, letter = result["position"].strip("()").split(",")
    if letter == "X":
        return None
    return Visit(
        letter,
        int(x),
        int(y),
        result["energy_before_effect"],
        result["steps"],
        result["letter_visit"],
        result["score_change"],
        result["energy_change"],
    )
