"""The Mystery Grid world: an agent walks over letters and has to find the hidden effect of each.

Source: UltraHorizon, environment I; written from its description, no code taken. Where paper and reference
implementation differ, `Rules` has a switch; `REFERENCE_RULES` sets them as the reference implementation does.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from scout.errors import InputError
from scout.worlds.effects import EFFECTS, LETTERS, SIZE, change
from scout.worlds.rubric import grade

USED = "X"
START_ENERGY = 20
MAX_ROUND_STEPS = 30
MAX_RESETS = 20
DIRECTIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
)


class Rules(msgspec.Struct, frozen=True):
    """Switches for the points on which descriptions of the world differ; the defaults are those of the paper."""

    corner_double: bool = False
    """Effect 7 pays 6 instead of 3 on the four corner tiles."""
    refill_rescues_round: bool = False
    """Whether the round is over is decided after the letter's effect, so energy gained by the last move saves it."""
    sparse_view: bool = False
    """Nearby tiles are those at offsets -2, 0 and 2 only, not all within two tiles."""
    reset_cap_enforced: bool = True
    """A reset is refused after 20 resets."""
    report_changes: bool = False
    """Extension: move also returns what the effect changed, the energy it saw and the letter's visit count."""


PAPER_RULES = Rules()
REFERENCE_RULES = Rules(corner_double=True, sparse_view=True, reset_cap_enforced=False)


class Grid:
    """Letters of the tiles; X where a tile is used."""

    __slots__ = ("_cells",)

    def __init__(self, cells: list[str]) -> None:
        """cells: letters of the 100 tiles, row y = 0 first, x ascending."""
        self._cells = cells

    def letter_at(self, x: int, y: int) -> str:
        """The letter at column x and row y; IndexError off the grid."""
        if not inside(x, y):
            raise IndexError(f"({x},{y}) is off the grid; both coordinates run from 0 to {SIZE - 1}.")
        return self._cells[y * SIZE + x]

    def put(self, x: int, y: int, letter: str) -> None:
        """Write one tile."""
        self._cells[y * SIZE + x] = letter


class MysteryGrid:
    """One episode: rounds on random grids with the same hidden effects, ended by one commit."""

    TOOLS = ("move", "get_current_state", "get_full_map", "reset", "commit_final_result")
    """Names of the methods an agent may call."""

    def __init__(
        self,
        effects: Mapping[str, int],
        *,
        seed: int,
        required_steps: int = 50,
        rules: Rules = PAPER_RULES,
        difficulty: str = "hard",
    ) -> None:
        """effects: letter A..E -> effect number 1..10; the grid holds only these letters.

        required_steps: total moves allowed, and needed before a commit. difficulty: the word the tools report.
        Raises InputError for no letters, a letter outside A..E or an unknown effect.
        """
        wrong = {
            letter: number
            for letter, number in effects.items()
            if letter not in tuple(LETTERS) or number not in EFFECTS
        }
        if wrong or not effects:
            raise InputError(f"effects has {wrong or 'no letters'}; needed are letters A..E with effect numbers 1..10.")
        self.effects = MappingProxyType(dict(sorted(effects.items())))
        self.required_steps = required_steps
        self.rules = rules
        self.difficulty = difficulty
        self.total_steps = 0
        self.resets = 0
        self.committed = False
        self._rng = random.Random(seed)
        self._new_round()

    def _new_round(self) -> None:
        self.grid = Grid(self._rng.choices(tuple(self.effects), k=SIZE * SIZE))
        self.position = (self._rng.randrange(SIZE), self._rng.randrange(SIZE))
        self.energy = START_ENERGY
        self.score = 0
        self.round_steps = 0
        self.round_over = False
        self.visits = dict.fromkeys(self.effects, 0)
        """Letter -> visits in this round."""

    def place(
        self,
        position: tuple[int, int] | None = None,
        *,
        letters: Mapping[tuple[int, int], str] = MappingProxyType({}),
        **state: Any,
    ) -> None:
        """Put the episode into a given state.

        letters: tile (x, y) -> letter or X. state: new values of energy, score, round_steps, total_steps, round_over,
        visits (letters left out keep their count), resets. Raises InputError for a tile off the grid, a letter that the
        grid cannot hold or another name, and changes nothing then.
        """
        allowed = {"energy", "score", "round_steps", "total_steps", "round_over", "visits", "resets"}
        wrong: list[Any] = [tile for tile in (*letters, *([position] if position else [])) if not inside(*tile)]
        wrong += sorted({*letters.values()} - {*self.effects, USED}) + sorted(
            {*state.get("visits", {})} - {*self.effects}
        )
        wrong += sorted(state.keys() - allowed)
        if wrong:
            raise InputError(
                f"Cannot place {wrong}; allowed are tiles on the grid, the letters {', '.join(self.effects)} and X, "
                f"and the names {', '.join(sorted(allowed))}."
            )
        self.position = position or self.position
        for (x, y), letter in letters.items():
            self.grid.put(x, y, letter)
        self.visits |= state.pop("visits", {})
        for name, value in state.items():
            setattr(self, name, value)

    def move(self, direction: str) -> dict[str, Any]:
        """Move one tile up, down, left or right; costs 1 energy and triggers the tile's letter."""
        refusal = self._move_refusal(direction)
        if refusal:
            return {"success": False, "message": refusal}
        dx, dy = DIRECTIONS[direction.lower()]
        x, y = self.position[0] + dx, self.position[1] + dy
        self.position = (x, y)
        self.energy -= 1
        self.round_steps += 1
        self.round_over = self._exhausted()
        self.total_steps += 1
        letter = self.grid.letter_at(x, y)
        energy_before_effect = self.energy
        score_change, energy_change, visit = self._visit(letter, x, y)
        self.grid.put(x, y, USED)
        if self.rules.refill_rescues_round:
            self.round_over = self._exhausted()
        result = {
            "success": True,
            "position": f"({x},{y},{letter})",
            "energy": self.energy,
            "score": self.score,
            "steps": self.round_steps,
            "game_over": self.round_over,
            "difficulty": self.difficulty,
            "remain_reset_times": MAX_RESETS - self.resets,
        }
        if self.rules.report_changes:
            result["score_change"] = score_change
            result["energy_change"] = energy_change
            result["energy_before_effect"] = energy_before_effect
            result["letter_visit"] = visit
        return result

    def _move_refusal(self, direction: str) -> str | None:
        """Why a move is refused, or None; the order decides which reason the agent sees."""
        if self.round_over:
            return "The round is over. Reset to start a new round."
        if self.total_steps >= self.required_steps:
            return f"All {self.required_steps} steps are used. Commit the final result."
        if self.committed:
            return "The final result is already committed."
        if not isinstance(direction, str) or direction.lower() not in DIRECTIONS:
            return "The direction is unknown. Use up, down, left or right."
        dx, dy = DIRECTIONS[direction.lower()]
        if not inside(self.position[0] + dx, self.position[1] + dy):
            return "The target is off the grid."
        if self.energy <= 0:
            return "No energy is left."
        return None

    def _exhausted(self) -> bool:
        return self.energy <= 0 or self.round_steps >= MAX_ROUND_STEPS

    def _visit(self, letter: str, x: int, y: int) -> tuple[int, int, int]:
        """Apply the letter's effect: (score change, energy change, visits of the letter); zeros on a used tile."""
        if letter == USED:
            return 0, 0, 0
        self.visits[letter] += 1
        score_change, energy_change = change(
            self.effects[letter],
            x,
            y,
            self.energy,
            self.round_steps,
            self.visits[letter],
            corner_double=self.rules.corner_double,
        )
        self.score += score_change
        self.energy += energy_change
        return score_change, energy_change, self.visits[letter]

    def get_current_state(self) -> dict[str, Any]:
        """Show the own tile, energy, score, steps of the round and the nearby tiles; costs nothing."""
        x, y = self.position
        offsets = (-2, 0, 2) if self.rules.sparse_view else (-2, -1, 0, 1, 2)
        nearby = [(x + dx, y + dy) for dx in offsets for dy in offsets]
        return {
            "current_position": self._tile(x, y),
            "energy": self.energy,
            "score": self.score,
            "steps": self.round_steps,
            "max_steps_in_this_round": MAX_ROUND_STEPS,
            "nearby_tiles": [self._tile(*tile) for tile in nearby if inside(*tile)],
            "game_over": self.round_over,
            "difficulty": self.difficulty,
        }

    def get_full_map(self) -> dict[str, Any]:
        """Show all 100 tiles from the top row down; costs nothing."""
        x, y = self.position
        return {
            "map": [self._tile(column, row) for row in reversed(range(SIZE)) for column in range(SIZE)],
            "agent_position": f"({x},{y})",
            "difficulty": self.difficulty,
        }

    def reset(self) -> dict[str, Any]:
        """Start a new round on a new random grid; total steps go on counting."""
        if self.rules.reset_cap_enforced and self.resets >= MAX_RESETS:
            return {"success": False, "message": f"All {MAX_RESETS} resets are used."}
        self.resets += 1
        self._new_round()
        return {
            "success": True,
            "message": f"A new round begins. Resets used: {self.resets}.",
            "initial_position": self._tile(*self.position),
            "energy": self.energy,
            "max_steps_in_this_round": MAX_ROUND_STEPS,
            "difficulty": self.difficulty,
        }

    def commit_final_result(self, content: str) -> dict[str, Any]:
        """Hand in the rule of each letter as JSON text such as {"A": "thirds", "B": null}; allowed once."""
        if self.committed:
            return {"success": False, "message": "The final result is already committed."}
        if self.total_steps < self.required_steps and self.resets < MAX_RESETS:
            missing = self.required_steps - self.total_steps
            return {"success": False, "message": f"Steps still needed before a commit: {missing}."}
        self.committed = True
        judged = msgspec.to_builtins(grade(content, self.effects))
        return {"success": True, "result": {"judge_input": content, "judge_result": judged}}

    def _tile(self, x: int, y: int) -> str:
        return f"({x},{y},{self.grid.letter_at(x, y)})"


def inside(x: int, y: int) -> bool:
    """Whether the tile is on the grid."""
    return 0 <= x < SIZE and 0 <= y < SIZE


def tools(world: MysteryGrid) -> dict[str, Callable[..., dict[str, Any]]]:
    """Name -> bound method of every tool of a world."""
    return {name: getattr(world, name) for name in world.TOOLS}


def tool_schemas(functions: Iterable[Callable[..., Any]]) -> list[dict[str, Any]]:
    """Tool definitions in OpenAI form, from the signatures and doc texts of functions with text parameters."""
    schemas = []
    for function in functions:
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        parameters = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
        description = inspect.getdoc(function) or ""
        schemas.append(
            {
                "type": "function",
                "function": {"name": function.__name__, "description": description, "parameters": parameters},
            }
        )
    return schemas
