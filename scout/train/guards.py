"""What stops a GRPO run that cannot learn or learns to cheat, and says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


class Finding(NamedTuple):
    """What is bad at a logged step."""

    what: str
    advice: str


def findings(figures: Mapping[str, float], section: ScoutSection) -> dict[str, Finding]:
    """What is bad in the figures that TRL logs at a step, by the name of the setting that says so."""
    found: dict[str, Finding] = {}
    clipped = figures.get("completions/clipped_ratio") or 0.0
    if clipped > section.max_clipped:
        found["max_clipped"] = Finding(
            f"{clipped:.0%} of replies ran into scout.completion_tokens ({section.completion_tokens}) without ending, "
            f"more than scout.max_clipped ({section.max_clipped:.0%}); they earn 0",
            "Raise scout.completion_tokens, or train SFT longer so that replies end.",
        )
    spread = 1 - (figures.get("frac_reward_zero_std") or 0.0)
    if spread < section.min_spread or spread == 0:
        found["min_spread"] = Finding(
            f"rewards differ in {spread:.0%} of groups, less than scout.min_spread ({section.min_spread:.0%})",
            spread_advice(section),
        )
    for name, label, other in (("all_correct", "correct", "mistake"), ("all_incorrect", "incorrect", "correct step")):
        if (figures.get(name) or 0.0) > section.max_degenerate:
            found[name] = Finding(
                f"{figures[name]:.0%} of the replies to windows with a {other} call every step {label}, more than "
                f"scout.max_degenerate ({section.max_degenerate:.0%})",
                f"The policy earns its reward without reading. Use scout.reward=product (now {section.reward}), set "
                f"scout.clean_share to 0.5 or less (now {section.clean_share}), lower trainer.learning_rate, and begin "
                "again from the SFT model.",
            )
    if (figures.get("copied") or 0.0) > section.max_copied:
        found["max_copied"] = Finding(
            f"{figures['copied']:.0%} of the replies' tokens are copied from the prompt in long runs, more than "
            f"scout.max_copied ({section.max_copied:.0%})",
            "The policy repeats the run instead of judging it. Train SFT longer, and look at samples.jsonl.",
        )
    mismatch = figures.get("sampling/sampling_logp_difference/mean") or 0.0
    if mismatch > section.max_mismatch:
        found["max_mismatch"] = Finding(
            f"vLLM and the trainer differ by {mismatch:.3f} in the log-probability of a sampled token, more than "
            f"scout.max_mismatch ({section.max_mismatch})",
            "They do not run the same model: check that vLLM's version is one that TRL supports, that both use the "
            "same dtype, and that no server with older weights answers at trainer.vllm_server_host.",
        )
    return found


class Guards(TrainerCallback):
    """Counts bad logged steps in a row and stops the run at `scout.patience` of them."""

    def __init__(self, section: ScoutSection, samples: Sequence[Sample]) -> None:
        self.section = section
        self.samples = samples
        """Filled by the reward function; read when a run is stopped."""
        self.bad: Counter[str] = Counter()
        """Logged steps in a row, by what was bad."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Raises NothingToLearnError after `patience` logged steps in a row with the same finding."""
        figures = logs or {}
        if "frac_reward_zero_std" not in figures:
            return
        found = findings(figures, self.section)
        self.bad = Counter({name: self.bad[name] + 1 for name in found})
        for name, finding in found.items():
            if self.bad[name] >= self.section.patience:
                what = f"Stopped at step {state.global_step}: {finding.what}, for {self.bad[name]} logged steps."
                raise stop(what, finding.advice, self.samples)
