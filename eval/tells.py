"""How far a fault that was put into a run can be told by its words alone.

    python -m eval.tells injected.jsonl

A bag-of-words classifier learns to tell the step with the fault from an untouched step of the same run: one drawn at
random, or the one that the fault was made of. It is tested on tasks that it has not seen. An AUROC of 0.5 says that the
words tell nothing. Needs scikit-learn (the extra `dev`).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline

from data_prep.inject import undo
from scout import trajectory
from scout.errors import InputError, ScoutError, tell
from scout.formats.stats import task_key
from scout.formats.table import table
from scout.trajectory import Step, Trajectory

FOLDS = 5
FEWEST = 20
"""With fewer runs of a kind no figure is given."""
TEXTS: dict[str, Callable[[Step], str]] = {
    "thought and action": lambda step: f"{step.thought}\n{step.action}",
    "with observation": lambda step: f"{step.thought}\n{step.action}\n{step.observation}",
}
"""What is read of a step."""


class Pair(NamedTuple):
    """A fault and two untouched steps of the same run."""

    kind: str
    task: str
    fault: Step
    drawn: Step
    original: Step


def pairs(runs: Iterable[Trajectory], seed: int) -> list[Pair]:
    """One a run. Raises InputError for a run without an injected fault."""
    found = []
    for run in runs:
        before, told = undo(run), run.meta["injected"]
        original = before.steps[told["made_of_step"] - 1]
        others = [step for step in before.steps if step is not original]
        rng = random.Random(f"{seed}/{run.id}")
        if others:
            found.append(Pair(told["kind"], task_key(run), run.steps[-1], rng.choice(others), original))
    return found


def auroc(faults: Sequence[str], untouched: Sequence[str], tasks: Sequence[str]) -> float:
    """AUROC over all folds of tasks together; three lists of the same length."""
    texts = [*faults, *untouched]
    is_fault = np.repeat([1, 0], len(faults))
    scores = np.zeros(len(texts))
    for train, test in GroupKFold(FOLDS).split(texts, is_fault, [*tasks, *tasks]):
        model = make_pipeline(
            CountVectorizer(binary=True, min_df=2, max_features=20000), LogisticRegression(max_iter=500)
        )
        model.fit([texts[at] for at in train], is_fault[train])
        scores[test] = model.decision_function([texts[at] for at in test])
    return float(roc_auc_score(is_fault, scores))


def measure(found: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """Kind, and `all`, -> number of runs and AUROCs. Kinds with few runs or tasks are left out."""
    result = {}
    for kind in ["all", *sorted({pair.kind for pair in found})]:
        these = [pair for pair in found if kind in ("all", pair.kind)]
        tasks = [pair.task for pair in these]
        if len(these) < FEWEST or len(set(tasks)) < FOLDS:
            continue
        figures: dict[str, float] = {"runs": len(these)}
        for name, text in TEXTS.items():
            faults = [text(pair.fault) for pair in these]
            figures[f"{name}, drawn"] = round(auroc(faults, [text(pair.drawn) for pair in these], tasks), 3)
            figures[f"{name}, original"] = round(auroc(faults, [text(pair.original) for pair in these], tasks), 3)
        bare = [np.mean([not getattr(pair, name).observation.strip() for pair in these]) for name in ("fault", "drawn")]
        figures["nothing came back, drawn"] = round(float(bare[0] - bare[1]) / 2 + 0.5, 3)
        result[kind] = figures
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, and the figures as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="INJECTED.jsonl", help="what data_prep.inject wrote")
    parser.add_argument("--seed", type=int, default=1, help="draws the untouched steps")
    args = parser.parse_args(argv)
    try:
        result = measure(pairs(list(trajectory.read(args.runs)), args.seed))
        if not result:
            raise InputError(f"{args.runs}: too few runs; at least {FEWEST} of {FOLDS} tasks are needed.")
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    names = list(next(iter(result.values())))
    print(
        table([("", *result), *((name, *(each[name] for each in result.values())) for name in names)]), file=sys.stderr
    )
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
