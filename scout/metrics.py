"""What a verifier is worth: localisation, detection, step recalls and probabilities, as pure functions.

Every family comes twice. `strict=False` looks at scored runs only; `strict=True` takes all runs and counts an unscored
one as wrong, whatever the question: a missed mistake, a false alarm on a clean run, the farthest step. A scorer that
returns garbage gets exactly 0 there. Functions named `*_tally` give the sums that `intervals.intervals` and
`intervals.differences` resample over tasks; the plain names give the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scout.errors import InputError
from scout.intervals import Floats, Tally, ratio, tally
from scout.reward import recalls, step_reward
from scout.trajectory import Trajectory
from scout.verdict import Verdict

Figures = dict[str, float | int | None]

PROVABLE_FACTS = 3
"""A mistake counts as provable when at most so many earlier facts prove it."""


def task_of(trajectory: Trajectory) -> str:
    """The key by which runs are grouped: the task's id, or its text where it has none."""
    return trajectory.task.id if trajectory.task.id is not None else trajectory.task.text


def pairs(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory]) -> list[tuple[Verdict, Trajectory]]:
    """Each trajectory with its verdict, in the order of the trajectories.

    Raises InputError when an id comes twice or a side lacks one: a row that got lost must not improve a figure.
    """
    by_id = {verdict.trajectory_id: verdict for verdict in verdicts}
    twice = [name for name, count in Counter(v.trajectory_id for v in verdicts).items() if count > 1]
    twice += [name for name, count in Counter(t.id for t in trajectories).items() if count > 1]
    if twice:
        raise InputError(f"{len(twice)} trajectory ids come twice: {_few(twice)}. Give one verdict per trajectory.")
    lost = by_id.keys() ^ {trajectory.id for trajectory in trajectories}
    if lost:
        raise InputError(
            f"Verdicts and trajectories do not match; {len(lost)} ids are on one side only: {_few(sorted(lost))}. "
            "A run that could not be scored needs a verdict with status unscored."
        )
    return [(by_id[trajectory.id], trajectory) for trajectory in trajectories]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def first_mistake(trajectory: Trajectory) -> int | None:
    """1-based step of the first mistake where the labels are sure that it is the first, else None."""
    labels = trajectory.labels
    if labels is None or labels.known not in ("all_steps", "first_mistake"):
        return None
    return labels.first_mistake


def _facts(trajectory: Trajectory) -> int | None:
    labels = trajectory.labels
    if labels is None or labels.first_mistake is None or not labels.proof_sizes:
        return None
    return labels.proof_sizes[labels.first_mistake - 1]


# ---------------------------------------------------------------------------------------------------------------------
# Localisation: runs with a known first mistake.
# exact, within 1, within 3, predicted, |error| summed, |error| with T charged, exact provable, n provable, n


def _localisation_formula(sums: Floats) -> dict[str, Floats]:
    exact, near, wide, predicted, error, charged, exact_provable, provable, count = np.moveaxis(sums, -1, 0)
    return {
        "exact": ratio(exact, count),
        "exact_provable": ratio(exact_provable, provable),
        "within_1": ratio(near, count),
        "within_3": ratio(wide, count),
        "mae": ratio(error, predicted),
        "mae_charged": ratio(charged, count),
        "coverage": ratio(predicted, count),
        "n_provable": provable,
        "n": count,
    }


def _localisation_row(verdict: Verdict, trajectory: Trajectory, strict: bool) -> list[float]:
    gold = first_mistake(trajectory)
    scored = verdict.status == "scored"
    if gold is None or not (scored or strict):
        return [0.0] * 9
    said = verdict.first_mistake if scored else None
    facts = _facts(trajectory)
    provable = facts is not None and facts <= PROVABLE_FACTS
    if said is None:
        return [0, 0, 0, 0, 0, len(trajectory.steps), 0, provable, 1]
    error = abs(said - gold)
    return [error == 0, error <= 1, error <= 3, 1, error, error, provable and error == 0, provable, 1]


def localisation_tally(
    verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False
) -> Tally:
    """The sums behind `localisation`."""
    both = pairs(verdicts, trajectories)
    rows = [_localisation_row(verdict, run, strict) for verdict, run in both]
    tasks = [task_of(run) for _, run in both]
    return tally(tasks, rows, _localisation_formula, quantities=9, sizes=("n", "n_provable"))


def localisation(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Figures:
    """How well the first mistake is found, on runs that have a known one.

    exact, within_1, within_3: share of the n runs; nothing flagged counts as wrong. exact_provable: exact over the
    n_provable runs whose first mistake is proved by at most 3 earlier facts. coverage: share with any flag. mae: mean
    distance in steps over flagged runs; mae_charged: over all n, where nothing flagged costs the length of the run.
    """
    return localisation_tally(verdicts, trajectories, strict=strict).values()


# ---------------------------------------------------------------------------------------------------------------------
# Detection: runs of which it is known whether they hold a mistake. hits, false alarms, misses, quiet clean runs


def _zero_if_empty(part: Floats, whole: Floats) -> Floats:
    return np.nan_to_num(ratio(part, whole))


def _detection_formula(sums: Floats) -> dict[str, Floats]:
    hit, alarm, missed, quiet = np.moveaxis(sums, -1, 0)
    wrong, clean = hit + missed, alarm + quiet
    return {
        "precision": np.where(wrong + clean > 0, _zero_if_empty(hit, hit + alarm), np.nan),
        "recall": ratio(hit, wrong),
        "f1": ratio(2 * hit, 2 * hit + alarm + missed),
        "always_flag_f1": ratio(2 * wrong, 2 * wrong + clean),
        "clean_share": ratio(clean, wrong + clean),
        "clean_unflagged": ratio(quiet, clean),
        "n": wrong + clean,
    }


def _detection_row(verdict: Verdict, trajectory: Trajectory, strict: bool) -> list[float]:
    has_mistake = trajectory.has_mistake
    scored = verdict.status == "scored"
    if has_mistake is None or not (scored or strict):
        return [0.0] * 4
    flagged = verdict.first_mistake is not None if scored else not has_mistake
    return [
        has_mistake and flagged,
        flagged and not has_mistake,
        has_mistake and not flagged,
        not (has_mistake or flagged),
    ]


def detection_tally(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Tally:
    """The sums behind `detection`."""
    both = pairs(verdicts, trajectories)
    rows = [_detection_row(verdict, run, strict) for verdict, run in both]
    return tally([task_of(run) for _, run in both], rows, _detection_formula, quantities=4)


def detection(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Figures:
    """How well runs with a mistake are told from clean ones; a run is flagged when any step of it is.

    precision (0 when nothing is flagged), recall, f1: of "holds a mistake". always_flag_f1: F1 of flagging every one of
    the same runs. clean_share: share of clean runs among the n. clean_unflagged: share of clean runs left alone.
    """
    return detection_tally(verdicts, trajectories, strict=strict).values()


# ---------------------------------------------------------------------------------------------------------------------
# First error: clean runs and runs with a known first mistake. exact, flagged wrong, wrong, flagged clean, clean


def _first_error_formula(sums: Floats) -> dict[str, Floats]:
    exact, flagged_wrong, wrong, flagged_clean, clean = np.moveaxis(sums, -1, 0)
    found, quiet = ratio(exact, wrong), ratio(clean - flagged_clean, clean)
    harmonic = _zero_if_empty(2 * found * quiet, found + quiet)
    alarms, misses = flagged_wrong - exact + flagged_clean, wrong - exact
    return {
        "accuracy_wrong": found,
        "accuracy_clean": quiet,
        "processbench_f1": np.where(np.isnan(found + quiet), np.nan, harmonic),
        "exact_f1": ratio(2 * exact, 2 * exact + alarms + misses),
        "n": wrong + clean,
    }


def _first_error_row(verdict: Verdict, trajectory: Trajectory, strict: bool) -> list[float]:
    gold, clean = first_mistake(trajectory), trajectory.has_mistake is False
    scored = verdict.status == "scored"
    if (gold is None and not clean) or not (scored or strict):
        return [0.0] * 5
    said = verdict.first_mistake if scored else None
    if clean:
        return [0, 0, 0, said is not None or not scored, 1]
    return [said == gold, said is not None, 1, 0, 0]


def first_error_tally(
    verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False
) -> Tally:
    """The sums behind `first_error`."""
    both = pairs(verdicts, trajectories)
    rows = [_first_error_row(verdict, run, strict) for verdict, run in both]
    return tally([task_of(run) for _, run in both], rows, _first_error_formula, quantities=5)


def first_error(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Figures:
    """Both biases in one number, over clean runs and runs with a known first mistake.

    accuracy_wrong: share of runs with a mistake whose first mistake is named. accuracy_clean: share of clean runs left
    alone. processbench_f1: their harmonic mean, 0 when both are 0, None when a class is absent (Zheng et al., ACL
    2025). exact_f1: the exact step is a hit, any other flag a false alarm, any other run with a mistake a miss
    (AgentForesight).
    """
    return first_error_tally(verdicts, trajectories, strict=strict).values()


# ---------------------------------------------------------------------------------------------------------------------
# Steps. hits and sizes of both classes, product summed, n


def _steps_formula(sums: Floats) -> dict[str, Floats]:
    hit_correct, correct, hit_incorrect, incorrect, product, count = np.moveaxis(sums, -1, 0)
    return {
        "recall_correct": ratio(hit_correct, correct),
        "recall_incorrect": ratio(hit_incorrect, incorrect),
        "product": ratio(product, count),
        "n_correct": correct,
        "n_incorrect": incorrect,
        "n": count,
    }


def gold_labels(trajectory: Trajectory) -> dict[int, str]:
    """Step index -> gold label; empty for a run without labels."""
    if trajectory.labels is None:
        return {}
    return {step.index: label for step, label in zip(trajectory.steps, trajectory.labels.step_labels, strict=True)}


def _steps_row(verdict: Verdict, trajectory: Trajectory, strict: bool) -> list[float]:
    gold = gold_labels(trajectory)
    scored = verdict.status == "scored"
    correct, incorrect = (list(gold.values()).count(label) for label in ("correct", "incorrect"))
    if correct + incorrect == 0 or not (scored or strict):
        return [0.0] * 6
    said = {step.index: step.label for step in verdict.steps} if scored else {}
    hits = Counter(label for index, label in gold.items() if label == said.get(index))
    product = step_reward("product")(*recalls(said, gold))
    return [hits["correct"], correct, hits["incorrect"], incorrect, product, 1]


def steps_tally(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Tally:
    """The sums behind `steps`."""
    both = pairs(verdicts, trajectories)
    rows = [_steps_row(verdict, run, strict) for verdict, run in both]
    sizes = ("n", "n_correct", "n_incorrect")
    return tally([task_of(run) for _, run in both], rows, _steps_formula, quantities=6, sizes=sizes)


def steps(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Figures:
    """Recalls over all labelled steps pooled, and the product reward of R_step averaged over the n labelled runs.

    A step without a judgement counts as wrong for its class; steps that gold leaves unlabelled do not count.
    """
    return steps_tally(verdicts, trajectories, strict=strict).values()


# ---------------------------------------------------------------------------------------------------------------------
# Probabilities


def _checked(numbers: Sequence[float], truths: Sequence[bool]) -> tuple[Floats, NDArray[np.bool_]]:
    if len(numbers) != len(truths):
        raise InputError(f"Got {len(numbers)} numbers and {len(truths)} truths; allowed: the same number of both.")
    values = np.asarray(numbers, dtype=np.float64)
    if np.isnan(values).any():
        raise InputError(f"Number {int(np.isnan(values).argmax())} is NaN; leave out what has no score.")
    return values, np.asarray(truths, dtype=bool)


def auroc(numbers: Sequence[float], truths: Sequence[bool]) -> float | None:
    """Chance that a true case has the larger number than a false one, equal ones counting half; None without both."""
    values, truth = _checked(numbers, truths)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return None
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(sizes)
    ranks = (last_rank - (sizes - 1) / 2)[group]
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def brier(chances: Sequence[float], truths: Sequence[bool]) -> float | None:
    """Mean squared distance between probability and truth (0 best, 0.25 for a flat half); None without cases."""
    values, truth = _checked(chances, truths)
    return float(np.mean((values - truth) ** 2)) if len(values) else None


def ece(chances: Sequence[float], truths: Sequence[bool], *, bins: int = 10) -> float | None:
    """Expected calibration error over equal-width bins: mean gap of probability and share of true cases, by size."""
    values, truth = _checked(chances, truths)
    if not len(values):
        return None
    place = bin_of(values, bins)
    gaps = np.bincount(place, weights=values - truth, minlength=bins)
    return float(np.abs(gaps).sum() / len(values))


def bin_of(chances: Floats, bins: int) -> NDArray[np.intp]:
    """Equal-width bin of each probability; 1.0 belongs to the last bin. Raises InputError outside [0, 1]."""
    if bins < 1 or (len(chances) and not (chances.min() >= 0 and chances.max() <= 1)):
        raise InputError(f"Got {bins} bins and probabilities; allowed: at least 1 bin and numbers from 0 to 1.")
    return np.minimum((chances * bins).astype(np.intp), bins - 1)


def mistake_chances(
    verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False
) -> tuple[list[float], list[bool]]:
    """(1 - p_yes, holds a mistake) of every run whose labels tell; strict puts in unscored runs as surely wrong."""
    chances, truths = [], []
    for verdict, run in pairs(verdicts, trajectories):
        truth = run.has_mistake
        if truth is None:
            continue
        if verdict.status == "scored" and verdict.p_yes is not None:
            chances.append(1 - verdict.p_yes)
        elif strict:
            chances.append(0.0 if truth else 1.0)
        else:
            continue
        truths.append(truth)
    return chances, truths


def probability(verdicts: Sequence[Verdict], trajectories: Sequence[Trajectory], *, strict: bool = False) -> Figures:
    """auroc, brier, ece and n of 1 - p_yes as the probability that a run holds a mistake."""
    chances, truths = mistake_chances(verdicts, trajectories, strict=strict)
    return {
        "auroc": auroc(chances, truths),
        "brier": brier(chances, truths),
        "ece": ece(chances, truths),
        "n": len(truths),
    }


def unscored(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts are unscored, by reason, the most frequent first; empty when all are scored."""
    reasons = Counter(v.unscored_reason or "no reason given" for v in verdicts if v.status == "unscored")
    return dict(reasons.most_common())
