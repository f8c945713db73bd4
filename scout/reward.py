"""The reward of GRPO: balanced recall over the steps of one window, its alternatives by name, and what hacks earn.

    R = F · (w · R_step + (1 − w) · R_verdict),   optionally   (1 − λ) · R + F · λ · R_location

F is 1 for a readable reply that ended by itself, else 0. Everything here is pure and needs no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from scout.errors import ConfigError, InputError
from scout.verdict import Reply

KERNEL_STEPS = 2.0
"""Width of the location kernel in steps; about 2 is enough to order near misses inside a group."""

StepReward = Callable[[float | None, float | None, float], float]
"""(recall on correct steps, recall on incorrect steps, share of incorrect steps) -> 0 to 1; None where no such step."""


def _both(value: Callable[[float, float, float], float]) -> StepReward:
    """Extend a formula for both classes to windows of one class, where it is the recall of that class."""

    def extended(recall_correct: float | None, recall_incorrect: float | None, share_incorrect: float) -> float:
        if recall_correct is None or recall_incorrect is None:
            alone = recall_incorrect if recall_correct is None else recall_correct
            if alone is None:
                raise InputError("A step reward needs at least one labelled step; both recalls are None.")
            return alone
        return value(recall_correct, recall_incorrect, share_incorrect)

    return extended


def _harmonic(correct: float, incorrect: float, share: float) -> float:
    return 2 * correct * incorrect / (correct + incorrect) if correct + incorrect else 0.0


def _f1(correct: float, incorrect: float, share: float) -> float:
    hits, false_alarms = incorrect * share, (1 - correct) * (1 - share)
    return 2 * hits / (share + hits + false_alarms)


def _exact(recall_correct: float | None, recall_incorrect: float | None, share_incorrect: float) -> float:
    return float(recall_correct in (None, 1.0) and recall_incorrect in (None, 1.0))


REWARDS: Mapping[str, StepReward] = {
    "product": _both(lambda correct, incorrect, share: correct * incorrect),
    "harmonic": _both(_harmonic),
    "geometric": _both(lambda correct, incorrect, share: math.sqrt(correct * incorrect)),
    "min": _both(lambda correct, incorrect, share: min(correct, incorrect)),
    "youden": _both(lambda correct, incorrect, share: max(0.0, correct + incorrect - 1)),
    "mean": _both(lambda correct, incorrect, share: (correct + incorrect) / 2),
    "f1": _both(_f1),
    "exact": _exact,
}
"""Step rewards by name. `product` is the published one; `youden` is clipped at 0; `f1` is of the incorrect class."""


def step_reward(name: str) -> StepReward:
    """The step reward of that name. Raises ConfigError naming the nearest known one."""
    if name not in REWARDS:
        near = get_close_matches(name, REWARDS, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"scout.reward is {name!r}; known rewards: {', '.join(REWARDS)}.{meant}")
    return REWARDS[name]


def recalls(said: Mapping[int, str], gold: Mapping[int, str]) -> tuple[float | None, float | None, float]:
    """(recall on correct steps, recall on incorrect steps, share of incorrect steps) over the labelled steps of `gold`.

    A recall is None when gold has no step of that class. A step missing from `said` counts as wrong for its class;
    a step that gold leaves unlabelled does not count. The share is 0 when nothing is labelled.
    """
    hits = {"correct": 0, "incorrect": 0}
    sizes = {"correct": 0, "incorrect": 0}
    for index, label in gold.items():
        if label in sizes:
            sizes[label] += 1
            hits[label] += said.get(index) == label
    labelled = sizes["correct"] + sizes["incorrect"]
    return (
        hits["correct"] / sizes["correct"] if sizes["correct"] else None,
        hits["incorrect"] / sizes["incorrect"] if sizes["incorrect"] else None,
        sizes["incorrect"] / labelled if labelled else 0.0,
    )


def _verdict_reward(reply: Reply, gold: Mapping[int, str]) -> float | None:
    """1 when the last line is right and the block says the same; None when gold cannot tell whether it is right.

    "Yes" agrees with a block that judges every labelled step correct: a step left out was not judged, so leaving the
    block empty earns nothing here either.
    """
    labels = gold.values()
    flagged = "incorrect" in reply.block.values()
    if "incorrect" in labels:
        return float(reply.last == "No" and flagged)
    if "unlabelled" in labels:
        return None
    return float(reply.last == "Yes" and not flagged and gold.keys() <= reply.block.keys())


def _location_reward(reply: Reply, gold: Mapping[int, str], kernel_steps: float) -> float | None:
    """exp(-d²/2σ²) of the distance between first flagged and first wrong step; None when gold holds no mistake."""
    wrong = [index for index, label in gold.items() if label == "incorrect"]
    if not wrong:
        return None
    flagged = [i for i, label in reply.block.items() if label == "incorrect" and gold[i] != "unlabelled"]
    if not flagged:
        return 0.0
    distance = abs(min(flagged) - min(wrong))
    if kernel_steps == 0:
        return float(distance == 0)
    return math.exp(-(distance**2) / (2 * kernel_steps**2))


def _check(gold: Mapping[int, str], w: float, localisation: float, kernel_steps: float) -> None:
    for field, value in (("w", w), ("localisation", localisation)):
        if not 0 <= value <= 1:
            raise ConfigError(f"scout.{field} is {value!r}; allowed: a number from 0 to 1.")
    if not (kernel_steps >= 0 and math.isfinite(kernel_steps)):
        raise ConfigError(f"kernel_steps is {kernel_steps!r}; allowed: 0 (exact hits only) or a positive number.")
    for index, label in gold.items():
        if label not in ("correct", "incorrect", "unlabelled"):
            raise InputError(f"Gold label of step {index} is {label!r}; allowed: correct, incorrect, unlabelled.")


def reward(
    reply: Reply,
    gold: Mapping[int, str],
    *,
    name: str = "product",
    w: float = 0.7,
    localisation: float = 0.0,
    kernel_steps: float = KERNEL_STEPS,
) -> float | None:
    """Reward of one reply in [0, 1]; None when `gold` labels no step, so that "not gradable" is never a penalty.

    gold: step index -> correct, incorrect or unlabelled, for exactly the steps shown in the prompt. Runs of which only
    the first mistake m is known label the steps before m correct, m incorrect and leave later ones unlabelled.
    name: a key of `REWARDS`, computed from the block; with one class in gold it is the recall of that class.
    w: weight of the step term; the rest is the last line's, which earns only when it is right and agrees with the
       block. Where unlabelled steps leave the right last line open, the step term counts alone.
    localisation: share λ of a term for the place of the first mistake, on windows that hold one: exp(-d²/2σ²) with
       σ = kernel_steps, or exact hits only when kernel_steps is 0. The whole stays in [0, 1].
    An unreadable or unfinished reply, or one that names a step outside gold, earns 0.
    """
    formula = step_reward(name)
    _check(gold, w, localisation, kernel_steps)
    recall_correct, recall_incorrect, share_incorrect = recalls(reply.block, gold)
    if recall_correct is None and recall_incorrect is None:
        return None
    if not reply.readable or not reply.block.keys() <= gold.keys():
        return 0.0
    total = formula(recall_correct, recall_incorrect, share_incorrect)
    verdict = _verdict_reward(reply, gold)
    if verdict is not None:
        total = w * total + (1 - w) * verdict
    location = _location_reward(reply, gold, kernel_steps)
    if location is not None:
        total = (1 - localisation) * total + localisation * location
    return total


def degenerate(name: str, *, correct: int, incorrect: int) -> dict[str, float]:
    """What policies that read nothing earn from one step reward, on a run with both classes.

    correct, incorrect: number of such steps, each at least 1. `always_last` flags the last step only and is averaged
    over which step is last. `coin` flags each step with probability q, at the best q, at its expected recalls
    (1 - q, q): the value on long runs. `garbage` is unreadable.
    """
    if correct < 1 or incorrect < 1:
        raise InputError(f"Got {correct} correct and {incorrect} incorrect steps; allowed: at least 1 of each.")
    formula = step_reward(name)
    share = incorrect / (correct + incorrect)
    last_is_wrong = formula(1.0, 1 / incorrect, share)
    last_is_right = formula(1 - 1 / correct, 0.0, share)
    return {
        "all_correct": formula(1.0, 0.0, share),
        "all_incorrect": formula(0.0, 1.0, share),
        "always_last": share * last_is_wrong + (1 - share) * last_is_right,
        "coin": max(formula(1 - q / 1000, q / 1000, share) for q in range(1001)),
        "garbage": 0.0,
    }
