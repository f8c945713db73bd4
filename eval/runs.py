"""What an evaluation reads from a run folder: held-out runs, and the verdicts of each stage joined to them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from scout import metrics, trajectory, verdict
from scout.errors import InputError, Problem, refuse, shown
from scout.metrics import task_of
from scout.trajectory import Trajectory
from scout.verdict import Verdict

STAGES = ("base", "sft", "grpo")
"""Stages in the order in which they build on each other; the last one present is the report's subject."""
SAMPLED_STAGES = frozenset({"base"})
"""Stages that may be scored on a part of the tasks (see `eval.slices`); elsewhere a run without verdict is unscored."""
SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")


def find(folder: Path, name: str) -> Path | None:
    """The file `name` of a folder, plain or compressed; None when there is none."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)


def load_split(folder: Path, name: str) -> list[Trajectory]:
    """All runs of one split. Raises InputError when the file is absent or empty."""
    path = find(folder, name)
    if path is None:
        raise InputError(f"{folder} holds no {name}.jsonl (.zst or .gz). Make it with: python -m data_prep.collect.")
    runs = list(trajectory.read(path))
    if not runs:
        raise InputError(f"{path} holds no run. Make it with: python -m data_prep.collect.")
    return runs


def load_verdicts(folder: Path, known: Container[str]) -> dict[str, Verdict]:
    """Every verdict in the files of a folder, by trajectory id, whatever the files are called; empty without files.

    known: ids of the runs, and of the steps without history, that verdicts may be about. Raises InputError for any
    other id and for one that comes twice.
    """
    found: dict[str, Verdict] = {}
    problems = []
    for path in sorted(path for suffix in SUFFIXES for path in folder.glob(f"*{suffix}")):
        for row in verdict.read(path):
            name = shown(row.trajectory_id)
            if row.trajectory_id in found:
                problems.append(Problem(str(path), "trajectory_id", name, "each run once in the folder"))
            elif row.trajectory_id not in known:
                problems.append(Problem(str(path), "trajectory_id", name, "a run of the dev or test split"))
            found[row.trajectory_id] = row
    if problems:
        refuse(problems, hint="Verdicts must be about the runs of this run folder; score them again.")
    return found


def by_task(runs: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """Candidate runs of each task, in file order."""
    groups: dict[str, list[Trajectory]] = {}
    for run in runs:
        groups.setdefault(task_of(run), []).append(run)
    return groups


def sampled(runs: Sequence[Trajectory], verdicts: Mapping[str, Verdict]) -> list[Trajectory]:
    """The runs of every task of which at least one run has a verdict."""
    return [run for group in by_task(runs).values() if any(r.id in verdicts for r in group) for run in group]


def proof_size(run: Trajectory) -> int | None:
    """Number of earlier facts that prove the run's first mistake; None when it has none or nobody counted."""
    where = metrics.first_mistake(run)
    if where is None or run.labels is None or not run.labels.proof_sizes:
        return None
    return run.labels.proof_sizes[where - 1]


def kind(run: Trajectory) -> str | None:
    """Kind of the run's first mistake; None when it has none or nobody named it."""
    where = metrics.first_mistake(run)
    if where is None or run.labels is None or not run.labels.kinds:
        return None
    return run.labels.kinds[where - 1]
