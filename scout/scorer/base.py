"""The one thing that rerank, eval and the commands need from a scorer, wherever its model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scout.trajectory import Trajectory
from scout.verdict import Verdict


class Scorer(Protocol):
    """Judges whole runs."""

    def score(self, trajectories: Sequence[Trajectory]) -> list[Verdict]:
        """One verdict for each trajectory, in the same order; a run that cannot be judged is unscored.

        Raises ServerError when the machinery behind it fails.
        """
        ...
