"""What a Harbor trial says about the run recorded in its `agent/` folder: `result.json`, else `verifier/reward.txt`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from scout.formats.run import outcome_of
from scout.trajectory import Outcome


class Verified(msgspec.Struct):
    """What the verifier of a trial found."""

    rewards: dict[str, float] | None = None


class Trial(msgspec.Struct):
    """The part of a trial's result that belongs to the run."""

    task_name: str | None = None
    trial_name: str | None = None
    verifier_result: Verified | None = None

    @property
    def outcome(self) -> Outcome:
        """The verifier's verdict; unknown where the trial broke before it."""
        rewards = self.verifier_result.rewards if self.verifier_result else None
        return outcome_of((rewards or {}).get("reward"))


def trial_of(path: Path) -> Trial:
    """The trial that the file lies in; an empty one where it lies in none or nothing of it can be read."""
    place = path.parent if path.parent.name else path.absolute().parent
    if place.name != "agent":
        return Trial()
    trial = Trial()
    with contextlib.suppress(OSError, msgspec.DecodeError):
        trial = msgspec.json.decode((place.parent / "result.json").read_bytes(), type=Trial)
    if trial.verifier_result is None or not trial.verifier_result.rewards:
        reward = _reward(place.parent / "verifier" / "reward.txt")
        if reward is not None:
            trial.verifier_result = Verified({"reward": reward})
    return trial


def _reward(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
