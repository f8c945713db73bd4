"""A scorer whose model runs in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from scout.scorer.engine import Engine, Stop, never
from scout.scorer.folder import Folder, load
from scout.scorer.loop import Progress, score
from scout.scorer.replicas import open_engine
from scout.trajectory import Trajectory
from scout.verdict import Verdict


class LocalScorer:
    """An engine and the model folder it runs."""

    def __init__(self, folder: Folder, engine: Engine, *, progress: Progress | None = None) -> None:
        self.folder = folder
        self._engine = engine
        self._progress = progress

    def score(self, trajectories: Sequence[Trajectory], *, stop: Stop = never) -> list[Verdict]:
        """One verdict for each trajectory, in the same order (see `loop.score`)."""
        return score(
            trajectories,
            self._engine,
            self.folder.tokenizer,
            self.folder.config,
            model=self.folder.name,
            progress=self._progress,
            stop=stop,
        )


def open_local(path: str | os.PathLike[str], *, progress: Progress | None = None) -> LocalScorer:
    """A scorer on vLLM of this machine. The folder is checked before vLLM starts (see `folder.load`)."""
    folder = load(path)
    return LocalScorer(folder, open_engine(folder), progress=progress)
