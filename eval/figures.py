"""Figures of one method on held-out runs, in the form in which report.json holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval import runs as run_files
from scout import calibrate, metrics, rerank, selection
from scout.errors import InputError
from scout.intervals import Interval, Tally, differences, intervals
from scout.selection import Score
from scout.trajectory import Trajectory
from scout.verdict import Verdict

Figures = dict[str, Any]
TallyOf = Callable[..., Tally]

OBJECTIVE = "processbench_f1"
"""What the threshold maximises on dev: first mistakes found and clean runs left alone, in one number."""
CHOSEN_AMONG = 5
"""N of the best-of-N figure by which selectors are compared on dev."""
AUROC_RESAMPLES = 400
"""Each resample sorts all steps; 400 settle the interval to about 0.002."""
NO_VERDICT = "no verdict for this run"


@dataclass(frozen=True)
class Judgement:
    """All that a method says about one split: a verdict and a score for choosing, for each run in order."""

    runs: Sequence[Trajectory]
    own: Sequence[Verdict]
    """Verdicts with the labels that the method gave itself."""
    flagged: Sequence[Verdict]
    """The same with labels made at the threshold fitted on dev."""
    scores: Mapping[str, Score | None]


def complete(runs: Sequence[Trajectory], verdicts: Mapping[str, Verdict]) -> list[Verdict]:
    """A verdict for every run, in order; one that is absent becomes unscored, so that no run is lost."""
    return [verdicts.get(run.id) or Verdict(run.id, "unscored", NO_VERDICT, (), None, None) for run in runs]


def with_bounds(strict: Tally, seed: int = 0) -> Figures:
    """Every figure of a tally beside its bounds: {"f1": …, "f1_low": …, "f1_high": …, "n": …}."""
    found: Figures = dict(strict.values())
    for name, spread in intervals(strict, seed=seed).items():
        found |= {f"{name}_low": spread.low, f"{name}_high": spread.high}
    return found


def family(of: TallyOf, verdicts: Sequence[Verdict], runs: Sequence[Trajectory]) -> Figures:
    """A family of figures with unscored runs counted as wrong, and under "scored" the same over scored runs only."""
    return with_bounds(of(verdicts, runs, strict=True)) | {"scored": with_bounds(of(verdicts, runs, strict=False))}


def fit(runs: Sequence[Trajectory], verdicts: Sequence[Verdict]) -> Figures:
    """The threshold fitted on these dev runs, with what it was fitted for; its value is None where nothing can be
    fitted, and "reason" says why: the labels then stand as the method gave them."""
    try:
        found = calibrate.fit_threshold(verdicts, runs, objective=OBJECTIVE, split="dev")
    except InputError as error:
        return {"value": None, "objective": OBJECTIVE, "split": "dev", "n": 0, "reason": str(error)}
    return {"value": found.value, "objective": OBJECTIVE, "objective_value": found.objective_value, "split": "dev",
            "n": found.n}  # fmt: skip


def flag(verdicts: Sequence[Verdict], threshold: float | None) -> list[Verdict]:
    """The verdicts relabelled at the threshold; as they are without one."""
    return list(verdicts) if threshold is None else [calibrate.with_threshold(one, threshold) for one in verdicts]


def group_size(runs: Sequence[Trajectory]) -> int:
    """N by which selectors are compared: 5, or the largest number of candidates any task has when that is less."""
    sizes = [sum(run.outcome.passed is not None for run in group) for group in run_files.by_task(runs).values()]
    return max(1, min(CHOSEN_AMONG, max(sizes, default=1)))


def chosen_share(scores: Mapping[str, Score | None], runs: Sequence[Trajectory], size: int) -> float | int | None:
    """Share of tasks passed by the best of `size` candidates; unscored candidates never win."""
    return selection.best_of_tally(scores, runs, size, strict=True).values()["scout"]


def compare_selectors(
    dev: Sequence[Trajectory], dev_flagged: Sequence[Verdict], test: Sequence[Trajectory], flagged: Sequence[Verdict]
) -> Figures:
    """Every selector on dev and test, and the name of the one that is best on dev (the first listed among equals)."""
    size = group_size(dev)
    compared: dict[str, Figures] = {}
    for name in rerank.SELECTORS:
        compared[name] = {
            "dev": chosen_share(rerank.scores(dev_flagged, selector=name), dev, size),
            "test": chosen_share(rerank.scores(flagged, selector=name), test, size),
        }
    best = max(compared, key=lambda name: -1.0 if compared[name]["dev"] is None else compared[name]["dev"])
    return {"name": best, "split": "dev", "n": size, "compared": compared}


def unscored(verdicts: Sequence[Verdict]) -> Figures:
    """Number, share and reasons of the runs without a verdict."""
    reasons = metrics.unscored(verdicts)
    count = sum(reasons.values())
    return {"count": count, "share": count / len(verdicts) if verdicts else None, "runs": len(verdicts),
            "reasons": reasons}  # fmt: skip


def best_of_n(scores: Mapping[str, Score | None], runs: Sequence[Trajectory]) -> Figures:
    """{"1".."8": {random, scout, oracle, gain, closed with bounds, tasks}}; sizes no task has are left out."""
    table = {}
    for size in selection.SIZES:
        one = selection.best_of_tally(scores, runs, size, strict=True)
        if one.values()["tasks"]:
            table[str(size)] = with_bounds(one)
    return table


def groups(judged: Judgement, key: Callable[[Trajectory], str | None]) -> Figures:
    """Localisation of runs with a mistake, by a property of the first mistake; runs without it are left out."""
    parts: dict[str, list[tuple[Verdict, Trajectory]]] = {}
    for verdict, run in zip(judged.flagged, judged.runs, strict=True):
        name = key(run)
        if name is not None:
            parts.setdefault(name, []).append((verdict, run))
    return {
        name: with_bounds(metrics.localisation_tally([v for v, _ in rows], [r for _, r in rows], strict=True))
        for name, rows in sorted(parts.items())
    }


def facts_key(run: Trajectory) -> str | None:
    """Group of a run by the number of facts that prove its first mistake: "0" to "5", "6 or more"."""
    size = run_files.proof_size(run)
    return None if size is None else str(size) if size < 6 else "6 or more"


def step_auroc(runs: Sequence[Trajectory], chances: Mapping[str, Sequence[float | None]], seed: int = 0) -> Figures:
    """AUROC of p_incorrect on the labelled steps of these runs, with an interval over tasks and the number of steps.

    chances: run id -> p_incorrect of each step; a step without one, or a run without an entry, is left out.
    """
    by_task: dict[str, tuple[list[float], list[bool]]] = {}
    for run in runs:
        for chance, label in zip(chances.get(run.id, ()), metrics.gold_labels(run).values(), strict=False):
            if chance is not None and label != "unlabelled":
                numbers, truths = by_task.setdefault(metrics.task_of(run), ([], []))
                numbers.append(chance)
                truths.append(label == "incorrect")
    parts = [(np.array(numbers), np.array(truths)) for numbers, truths in by_task.values()]
    low, high = _auroc_bounds(parts, seed)
    numbers, truths = _joined(parts)
    return {"value": metrics.auroc(numbers, truths), "low": low, "high": high, "steps": len(truths)}


def _joined(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    if not parts:
        return [], []
    return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([truths for _, truths in parts])


def _auroc_bounds(parts: Sequence[tuple[Any, Any]], seed: int) -> tuple[float | None, float | None]:
    if len(parts) < 2:
        return None, None
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(AUROC_RESAMPLES):
        numbers, truths = _joined([parts[place] for place in generator.integers(len(parts), size=len(parts))])
        value = metrics.auroc(numbers, truths)
        if value is not None:
            drawn.append(value)
    if not drawn:
        return None, None
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def chances_of(verdicts: Sequence[Verdict], runs: Sequence[Trajectory]) -> dict[str, list[float | None]]:
    """Run id -> p_incorrect of each of its steps, None where the verdict has none."""
    found = {}
    for verdict, run in zip(verdicts, runs, strict=True):
        known = {step.index: step.p_incorrect for step in verdict.steps}
        found[run.id] = [known.get(step.index) for step in run.steps]
    return found


def difference(after: Judgement, before: Judgement) -> Figures:
    """after - before on the same runs, paired over tasks: {"exact": {value, low, high}, …}."""
    pairs: list[tuple[str, str, TallyOf, str]] = [
        ("product_reward", "product", metrics.steps_tally, "own"),
        ("exact", "exact", metrics.localisation_tally, "flagged"),
        ("f1", "f1", metrics.detection_tally, "flagged"),
    ]
    found: Figures = {}
    for name, figure, of, which in pairs:
        new, old = (of(getattr(side, which), side.runs, strict=True) for side in (after, before))
        found[name] = _plain(differences(new, old)[figure])
    size = group_size(after.runs)
    new, old = (selection.best_of_tally(side.scores, side.runs, size, strict=True) for side in (after, before))
    found[f"best_of_{size}"] = _plain(differences(new, old)["scout"])
    return found


def _plain(spread: Interval) -> Figures:
    return {"value": spread.value, "low": spread.low, "high": spread.high}


def judge(
    dev: Sequence[Trajectory], dev_verdicts: Sequence[Verdict], test: Sequence[Trajectory], verdicts: Sequence[Verdict]
) -> tuple[Judgement, Figures]:
    """The method's judgement of the test runs, and every figure of it; threshold and selector come from dev alone."""
    threshold = fit(dev, dev_verdicts)
    dev_flagged, flagged = flag(dev_verdicts, threshold["value"]), flag(verdicts, threshold["value"])
    selector = compare_selectors(dev, dev_flagged, test, flagged)
    judged = Judgement(test, verdicts, flagged, rerank.scores(flagged, selector=selector["name"]))
    own = family(metrics.steps_tally, verdicts, test)
    chances, truths = metrics.mistake_chances(verdicts, test)
    return judged, {
        "localization": family(metrics.localisation_tally, flagged, test),
        "detection": family(metrics.detection_tally, flagged, test),
        "first_error": family(metrics.first_error_tally, flagged, test),
        "steps": family(metrics.steps_tally, flagged, test),
        "own_labels": _renamed(own) | {"scored": _renamed(own["scored"])},
        "best_of_n": best_of_n(judged.scores, test),
        "by_facts": groups(judged, facts_key),
        "by_kind": groups(judged, run_files.kind),
        "probability": metrics.probability(verdicts, test),
        "reliability": [_bin(one) for one in calibrate.reliability(chances, truths)],
        "step_auroc": step_auroc(test, chances_of(verdicts, test)),
        "unscored": unscored(verdicts),
        "threshold": threshold,
        "selector": selector,
    }


def _renamed(own: Figures) -> Figures:
    """product -> product_reward, with its bounds; recalls under their own names."""
    return {
        name.replace("product", "product_reward"): value for name, value in own.items() if not isinstance(value, dict)
    }


def _bin(one: calibrate.Bin) -> Figures:
    return {"low": one.low, "high": one.high, "n": one.n, "mean_p": one.mean_p, "share": one.share}
