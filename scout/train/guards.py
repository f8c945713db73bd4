"""What stops a GRPO run that cannot learn, and says why: groups without spread, replies that never end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from scout.config import ScoutSection
from scout.errors import NothingToLearnError, printable

SHOWN_REPLIES = 2
_SPREAD = 1e-6


class Sample(msgspec.Struct, frozen=True):
    """A sampled reply as it is shown and logged."""

    row_id: str
    reward: float
    ended: bool
    problem: str | None
    reply: str


def spread_share(rewards: Sequence[float], replies: int) -> float:
    """Share of groups of `replies` neighbouring rewards in which not all are equal."""
    groups = [rewards[start : start + replies] for start in range(0, len(rewards), replies)]
    return sum(max(group) - min(group) > _SPREAD for group in groups) / len(groups)


def stop(what: str, advice: str, samples: Sequence[Sample]) -> NothingToLearnError:
    """The error of a guard: what was found, two sampled replies, what to change."""
    shown = [
        f"  row {sample.row_id}, reward {sample.reward:.3f}, {sample.problem or 'readable'}:\n"
        + "\n".join(f"    {line}" for line in printable(sample.reply, 1500).split("\n"))
        for sample in samples[:SHOWN_REPLIES]
    ]
    return NothingToLearnError("\n".join([what, "Two sampled replies:", *shown, advice]))


def spread_advice(section: ScoutSection) -> str:
    """What helps when all replies to a prompt earn the same."""
    return (
        "GRPO learns from differences inside a group only. Train SFT longer first, raise scout.temperature "
        f"(now {section.temperature}) or trainer.num_generations, or lower scout.w (now {section.w}) so that the last "
        "line counts more."
    )


class Guards(TrainerCallback):
    """Counts bad logged steps in a row and stops the run at `scout.patience` of them."""

    def __init__(self, section: ScoutSection, samples: Sequence[Sample]) -> None:
        self.section = section
        self.samples = samples
        """Filled by the reward function; read when a run is stopped."""
        self.flat = self.clipped = 0

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Raises NothingToLearnError after `patience` logged steps without spread or with too many cut replies."""
        figures = logs or {}
        if "frac_reward_zero_std" not in figures:
            return
        section = self.section
        spread, clipped = 1 - figures["frac_reward_zero_std"], figures["completions/clipped_ratio"]
        self.flat = self.flat + 1 if spread < section.min_spread or spread == 0 else 0
        self.clipped = self.clipped + 1 if clipped > section.max_clipped else 0
        if self.clipped >= section.patience:
            raise stop(
                f"Stopped at step {state.global_step}: {clipped:.0%} of replies ran into scout.completion_tokens "
                f"({section.completion_tokens}) without ending, more than scout.max_clipped "
                f"({section.max_clipped:.0%}) for {self.clipped} logged steps; they earn 0.",
                "Raise scout.completion_tokens, or train SFT longer so that replies end.",
                self.samples,
            )
        if self.flat >= section.patience:
            raise stop(
                f"Stopped at step {state.global_step}: rewards differ in {spread:.0%} of groups, less than "
                f"scout.min_spread ({section.min_spread:.0%}), for {self.flat} logged steps.",
                spread_advice(section),
                self.samples,
            )
