"""Where to step next: a map of the tiles seen so far and a search for the nearest informative one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from scout.worlds.effects import change
from scout.worlds.mystery_grid import DIRECTIONS, USED, MysteryGrid

REACH = 3
"""Longest walk that is planned, in moves: the view shows two tiles in each direction."""


WHIM = 3.0
"""Size of the random part in the choice between goals, in outcomes: people do not search perfectly either."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step in a direction onto a known letter. informative: the outcome would tell something."""

    direction: str
    letter: str
    informative: bool


class Explorer:
    """Remembers the letters of seen tiles in this round."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.known: dict[tuple[int, int], str] = {}
        self.blind = True
        """True until the surroundings were looked at in this round."""
        self._moved = True

    def look(self, tiles: list[str]) -> None:
        """Adds tiles in the form "(x,y,L)"."""
        for tile in tiles:
            x, y, letter = tile.strip("()").split(",")
            self.known[int(x), int(y)] = letter
        self.blind = False
        self._moved = False

    def forget(self) -> None:
        """A new round: another grid."""
        self.known.clear()
        self.blind = True

    def step_on(self, position: tuple[int, int]) -> None:
        """The tile is used up."""
        self.known[position] = USED
        self._moved = True

    def view(self, x: int, y: int) -> str:
        """The 5 x 5 surroundings, top row first; a dot is off the grid or unknown."""
        rows = ("".join(self.known.get((x + dx, y + dy), ".") for dx in range(-2, 3)) for dy in range(2, -3, -1))
        return "/".join(rows)

    def moves(self, world: MysteryGrid, belief: Callable[[str], frozenset[int]]) -> list[Move]:
        """Every step onto a known neighbouring tile."""
        x, y = world.position
        found = []
        for direction, (dx, dy) in DIRECTIONS.items():
            letter = self.known.get((x + dx, y + dy))
            if letter is not None:
                tells = self._gain(world, belief, (x + dx, y + dy), 1, letter) > 1
                found.append(Move(direction, letter, tells))
        return found

    def choose(self, world: MysteryGrid, belief: Callable[[str], frozenset[int]]) -> Move | None:
        """First move towards the best informative tile near by; a crossing when none is; None to look around first."""
        best: tuple[float, str] | None = None
        queue = [(world.position, "", 0)]
        reached = {world.position}
        while queue:
            (x, y), first, length = queue.pop(0)
            for direction, (dx, dy) in DIRECTIONS.items():
                tile = (x + dx, y + dy)
                letter = self.known.get(tile)
                if letter is None or tile in reached or length >= REACH:
                    continue
                reached.add(tile)
                gain = self._gain(world, belief, tile, length + 1, letter)
                if gain > 1:
                    value = gain - length + WHIM * self.rng.random()
                    best = max(best or (float("-inf"), ""), (value, first or direction))
                queue.append((tile, first or direction, length + 1))
        neighbours = self.moves(world, belief)
        if best is None and (self._moved or not neighbours):
            return None
        wanted = best[1] if best else self.rng.choice(neighbours).direction
        return next(move for move in neighbours if move.direction == wanted)

    def _gain(
        self,
        world: MysteryGrid,
        belief: Callable[[str], frozenset[int]],
        tile: tuple[int, int],
        length: int,
        letter: str,
    ) -> int:
        """Number of different outcomes that the believed effects predict at the tile after `length` moves."""
        if letter == USED:
            return 1
        energy, step = world.energy - length, world.round_steps + length
        visit = world.visits[letter] + 1
        return len({change(effect, *tile, energy, step, visit) for effect in belief(letter)})
