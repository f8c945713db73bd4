"""Collected Mystery Grid runs that several test modules read."""

from __future__ import annotations

from functools import cache

from data_prep.collect import collect_task, world_seeds
from scout.trajectory import Trajectory

CANDIDATES = 8


@cache
def collected(tasks: int = 40, split: str = "train", seed: int = 7) -> tuple[Trajectory, ...]:
    """The runs of the first tasks of a split, task by task."""
    return tuple(run for world in world_seeds(split, seed, tasks) for run in collect_task(world, CANDIDATES))


def faulty(runs: tuple[Trajectory, ...]) -> list[Trajectory]:
    """Those with a mistake."""
    return [run for run in runs if run.has_mistake]
