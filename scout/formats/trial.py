"""What the `result.json` of a Harbor trial says about the run recorded in the trial's `agent/` folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from scout.formats.run import outcome_of
from scout.trajectory import Outcome


class _Verified(msgspec.Struct):
    rewards: dict[str, float] | None = None


class Trial(msgspec.Struct):
    """The part of a trial's result that belongs to the run."""

    task_name: str | None = None
    trial_name: str | None = None
    verifier_result: _Verified | None = None

    @property
    def outcome(self) -> Outcome:
        """The verifier's verdict; unknown where the trial broke before it."""
        rewards = self.verifier_result.rewards if self.verifier_result else None
        return outcome_of((rewards or {}).get("reward"))


def trial_of(path: Path) -> Trial:
    """The trial that the file lies in; an empty one where it lies in none or the result cannot be read."""
    place = path.resolve().parent
    result = place.parent / "result.json"
    if place.name != "agent" or not result.is_file():
        return Trial()
    try:
        return msgspec.json.decode(result.read_bytes(), type=Trial)
    except (OSError, msgspec.DecodeError):
        return Trial()
