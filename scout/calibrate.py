"""Thresholds and temperatures fitted on a named split, and how far stated probabilities can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from scout.errors import ConfigError, InputError
from scout.intervals import Floats
from scout.metrics import Figures, bin_of, detection, first_error, localisation, steps
from scout.trajectory import Trajectory
from scout.verdict import StepVerdict, Verdict

Family = Callable[[Sequence[Verdict], Sequence[Trajectory]], Figures]

OBJECTIVES: Mapping[str, tuple[Family, str]] = {
    "processbench_f1": (first_error, "processbench_f1"),
    "exact_f1": (first_error, "exact_f1"),
    "exact": (localisation, "exact"),
    "detection_f1": (detection, "f1"),
    "product": (steps, "product"),
}
"""What a threshold may maximise, over scored runs: name -> (family of figures, figure)."""

CANDIDATES = 100
"""Thresholds tried at most: quantiles of the probabilities seen. More would fit noise of a dev split."""

MOST_CERTAIN = 1e-6
"""Probabilities are held this far from 0 and 1 before logs are taken."""


class Threshold(msgspec.Struct, frozen=True):
    """A fitted threshold and where it came from; stored with the model."""

    value: float
    """A step is incorrect when its p_incorrect is at least this."""
    objective: str
    """Key of `OBJECTIVES` that was maximised."""
    objective_value: float
    """The objective at this threshold, on the same split: optimistic, not a result."""
    split: str
    """Name of the split it was fitted on."""
    n: int
    """Number of scored runs it was fitted on."""


class Bin(msgspec.Struct, frozen=True):
    """One bar of a reliability plot."""

    low: float
    high: float
    n: int
    mean_p: float | None
    """Mean probability stated in this bin; None when it is empty."""
    share: float | None
    """Share of true cases in this bin; None when it is empty."""


def with_threshold(verdict: Verdict, threshold: float) -> Verdict:
    """The verdict with labels and first mistake made from p_incorrect; a step is incorrect at p_incorrect >= threshold.

    A step without a probability keeps its label, an unscored verdict stays as it is. threshold: in [0, 1].
    """
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold is {threshold!r}; allowed: a number from 0 to 1.")
    if verdict.status == "unscored":
        return verdict
    judged = tuple(_judged(step, threshold) for step in verdict.steps)
    wrong = [step.index for step in judged if step.label == "incorrect"]
    return msgspec.structs.replace(verdict, steps=judged, first_mistake=min(wrong, default=None))


def _judged(step: StepVerdict, threshold: float) -> StepVerdict:
    if step.p_incorrect is None:
        return step
    if math.isnan(step.p_incorrect):
        raise InputError(f"p_incorrect of step {step.index} is NaN; a step without a probability has none.")
    label = "incorrect" if step.p_incorrect >= threshold else "correct"
    return step if label == step.label else msgspec.structs.replace(step, label=label)


def _candidates(verdicts: Sequence[Verdict]) -> list[float]:
    """Midpoints between neighbouring probabilities, from one that flags every step to one that flags none."""
    seen = sorted({s.p_incorrect for v in verdicts for s in v.steps if s.p_incorrect is not None})
    if len(seen) > CANDIDATES:
        seen = [seen[round(k * (len(seen) - 1) / (CANDIDATES - 1))] for k in range(CANDIDATES)]
    middles = [(low + high) / 2 for low, high in pairwise([0.0, *seen, 1.0])] if seen else []
    return [t for t in middles if 0 < t < 1]


def fit_threshold(
    verdicts: Sequence[Verdict],
    trajectories: Sequence[Trajectory],
    *,
    objective: str = "processbench_f1",
    split: str = "dev",
) -> Threshold:
    """The threshold for p_incorrect that maximises `objective` on these runs; of equal ones the nearest to 0.5.

    split: the name of the split, stored with the result; never the one that is reported. Raises InputError when no
    verdict has probabilities or the objective is undefined there (such as no run with a known mistake).
    """
    if objective not in OBJECTIVES:
        raise ConfigError(f"objective is {objective!r}; known objectives: {', '.join(OBJECTIVES)}.")
    scored = [verdict for verdict in verdicts if verdict.status == "scored"]
    candidates = _candidates(scored)
    if not candidates:
        raise InputError(
            f"None of {len(verdicts)} verdicts of split {split!r} has p_incorrect between 0 and 1, so there is nothing "
            "to fit; score with an engine that returns log-probabilities."
        )
    family, figure = OBJECTIVES[objective]
    best: tuple[float, float, float] | None = None
    for threshold in candidates:
        value = family([with_threshold(verdict, threshold) for verdict in verdicts], trajectories)[figure]
        if value is not None:
            best = max(best or (-math.inf, 0.0, 0.0), (value, -abs(threshold - 0.5), threshold))
    if best is None:
        raise InputError(f"{objective} is undefined on split {split!r}: it needs runs with labels, of both classes.")
    return Threshold(best[2], objective, best[0], split, len(scored))


def reliability(chances: Sequence[float], truths: Sequence[bool], *, bins: int = 10) -> tuple[Bin, ...]:
    """Equal-width bins of stated probability against the share of true cases; 1.0 belongs to the last bin."""
    values, truth = _both(chances, truths)
    place = bin_of(values, bins)
    sizes = np.bincount(place, minlength=bins)
    stated = np.bincount(place, weights=values, minlength=bins)
    true = np.bincount(place, weights=truth, minlength=bins)
    return tuple(
        Bin(k / bins, (k + 1) / bins, int(n), float(stated[k] / n) if n else None, float(true[k] / n) if n else None)
        for k, n in enumerate(sizes)
    )


def _both(chances: Sequence[float], truths: Sequence[bool]) -> tuple[Floats, Floats]:
    values, truth = np.asarray(chances, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if values.shape != truth.shape or not np.all((values >= 0) & (values <= 1)):
        raise InputError(
            f"Got {len(chances)} probabilities and {len(truths)} truths; allowed: as many of both, from 0 to 1."
        )
    return values, truth


def _logits(values: Floats) -> Floats:
    held = np.clip(values, MOST_CERTAIN, 1 - MOST_CERTAIN)
    odds: Floats = np.log(held) - np.log1p(-held)
    return odds


def at_temperature(chance: float, temperature: float) -> float:
    """The probability with its log-odds divided by the temperature: above 1 it moves towards 0.5 but never past it."""
    if not (temperature > 0 and math.isfinite(temperature)):
        raise InputError(f"temperature is {temperature!r}; allowed: a positive number.")
    values, _ = _both([chance], [False])
    return float(1 / (1 + np.exp(-_logits(values)[0] / temperature)))


def fit_temperature(chances: Sequence[float], truths: Sequence[bool]) -> float:
    """The temperature in [0.05, 20] that minimises the log loss of these probabilities.

    The loss is convex in 1 / temperature, so a golden-section search finds it. Raises InputError unless both true and
    false cases are there: with one class the best temperature is 0 and says nothing.
    """
    values, truth = _both(chances, truths)
    if len(set(truth.tolist())) < 2:
        raise InputError(f"Got {len(truths)} cases of one class; allowed: true and false ones. Use a larger dev split.")
    signed = _logits(values) * (2 * truth - 1)
    low, high, step = 1 / 20, 1 / 0.05, (math.sqrt(5) - 1) / 2

    def loss(inverse: float) -> float:
        return float(np.logaddexp(0, -signed * inverse).sum())

    left, right = high - step * (high - low), low + step * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(60):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - step * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + step * (high - low)
            at_right = loss(right)
    return 2 / (low + high)
