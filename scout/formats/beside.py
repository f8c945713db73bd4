"""Which file of a folder already holds the run of another, so that no run of a folder is read twice."""

from __future__ import annotations

from pathlib import Path

from scout.formats import atif_parts
from scout.formats.source import keys, open_source
from scout.formats.terminal_bench import RECORDING


def holder(path: Path) -> Path | None:
    """The file whose reader also reads `path`, or None when `path` stands for itself.

    A continuation is held by the part before it, a recording in `sessions/` by the trial's `results.json`, and a
    printed stream in a Harbor trial's `agent/` folder by the trajectory that Harbor made of it.
    """
    previous = atif_parts.before(path)
    if previous is not None and previous.is_file():
        ref = keys(open_source(previous).data).get("continued_trajectory_ref")
        return previous if atif_parts.following(previous, ref) == path else None
    folder = path.parent
    if folder.name == RECORDING.parent.name and path.suffix == RECORDING.suffix:
        result = folder.parent / "results.json"
        return result if result.is_file() else None
    if folder.name == "agent" and path.suffix == ".txt":
        trajectory = folder / "trajectory.json"
        return trajectory if trajectory.is_file() and (folder.parent / "result.json").is_file() else None
    return None
