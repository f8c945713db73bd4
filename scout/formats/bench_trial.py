"""What the `results.json` of a Terminal-Bench trial says about the run recorded in its `sessions/` folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from scout.formats.run import Recorder
from scout.trajectory import Outcome, Trajectory


class BenchTrial(msgspec.Struct):
    """The part of a trial's result that belongs to the run; empty where the run is no trial's."""

    trial_name: str | None = None
    task_id: str | None = None
    instruction: str = ""
    is_resolved: bool | None = None
    """None: not tested. A run that the clock stopped can be resolved all the same."""
    failure_mode: str | None = None

    @property
    def known(self) -> bool:
        """Whether there is a trial."""
        return self.task_id is not None

    def trajectory(self, recorder: Recorder, meta: dict[str, Any], name: str) -> Trajectory:
        """The recorded run with what the trial knows of it. name: its id for want of a trial's."""
        mode = self.failure_mode
        more = {"failure_mode": mode} if mode and mode not in ("unset", "none") else {}
        return recorder.trajectory(
            self.trial_name or name,
            task_id=self.task_id,
            outcome=Outcome(passed=self.is_resolved),
            meta={**meta, **more},
            task_text=self.instruction,
        )


def bench_trial_of(path: Path) -> BenchTrial:
    """The trial whose `sessions/` folder the recording lies in; an empty one where there is none to read."""
    place = path.parent if path.parent.name else path.absolute().parent
    if place.name != "sessions":
        return BenchTrial()
    try:
        trial = msgspec.json.decode((place.parent / "results.json").read_bytes(), type=BenchTrial)
    except (OSError, msgspec.DecodeError):
        return BenchTrial()
    return trial
