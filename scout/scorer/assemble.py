"""Chains of one run -> its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from scout.config import ScoutConfig
from scout.scorer.chains import Chain
from scout.trajectory import Trajectory
from scout.verdict import Cut, StepVerdict, Verdict

SHOWN_PROBLEMS = 3
"""Kinds of unreadable replies that an unscored reason names."""


def unscored(trajectory: Trajectory, reason: str, **rest: object) -> Verdict:
    """A verdict without any number. Every step is there, unlabelled."""
    steps = tuple(StepVerdict(step.index, "unlabelled") for step in trajectory.steps)
    verdict = Verdict(trajectory.id, "unscored", reason, steps, None, None, task_id=trajectory.task.id)
    return msgspec.structs.replace(verdict, **rest)


def verdict(trajectory: Trajectory, chains: Sequence[Chain], config: ScoutConfig, cut: Cut) -> Verdict:
    """Means over the chains whose every reply was readable; unscored when they are fewer than half of all chains."""
    alive = [chain for chain in chains if chain.problem is None]
    dead = [chain for chain in chains if chain.problem is not None]
    contradictions = tuple(text for chain in chains for text in chain.contradictions)
    warnings = tuple(text for chain in chains for text in chain.warnings)
    if not alive or 2 * len(alive) < len(chains):
        reason = f"{len(dead)} of {len(chains)} analyses cannot be read: {_count(dead)}"
        return unscored(trajectory, reason, cut=cut, contradictions=contradictions, warnings=warnings)
    if dead:
        warnings = (f"{len(dead)} of {len(chains)} analyses cannot be read: {_count(dead)}", *warnings)
    steps = tuple(_step(step.index, alive, config.threshold) for step in trajectory.steps)
    return Verdict(
        trajectory.id,
        "scored",
        None,
        steps,
        next((step.index for step in steps if step.label == "incorrect"), None),
        min(1.0, sum(chain.p_yes for chain in alive) / len(alive)),
        cut,
        contradictions,
        (*warnings, *_gaps(steps, alive)),
        trajectory.task.id,
    )


def _step(index: int, alive: Sequence[Chain], threshold: float) -> StepVerdict:
    chances = [chain.p_incorrect[index] for chain in alive if index in chain.p_incorrect]
    if not chances:
        return StepVerdict(index, "unlabelled")
    p_incorrect = min(1.0, sum(chances) / len(chances))
    label: Literal["correct", "incorrect"] = "incorrect" if p_incorrect >= threshold else "correct"
    reason = next((chain.reasons[index] for chain in alive if chain.labels.get(index) == label), "")
    return StepVerdict(index, label, p_incorrect, reason)


def _gaps(steps: Sequence[StepVerdict], alive: Sequence[Chain]) -> list[str]:
    """A warning when steps got no number, told apart by whether any analysis judged them."""
    missing = [step.index for step in steps if step.p_incorrect is None]
    judged = [index for index in missing if any(index in chain.labels for chain in alive)]
    silent = [index for index in missing if index not in judged]
    found = []
    if silent:
        found.append(f"no analysis judged step {_listed(silent)}")
    if judged:
        found.append(f"step {_listed(judged)} judged, but in tokens that carry no label probability")
    return found


def _listed(indices: Sequence[int]) -> str:
    shown = ", ".join(str(index) for index in indices[:10])
    return shown + (f" and {len(indices) - 10} more" if len(indices) > 10 else "")


def _count(dead: Sequence[Chain]) -> str:
    """The problems of dead chains, most frequent first."""
    counts = Counter(chain.problem for chain in dead)
    return "; ".join(f"{problem} ({count}x)" for problem, count in counts.most_common(SHOWN_PROBLEMS))
