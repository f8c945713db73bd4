"""A run folder small enough to compute every figure of its report by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scout import trajectory, verdict
from scout.trajectory import Labels, Outcome, Step, StepLabel, Task, Trajectory
from scout.verdict import StepVerdict, Verdict

STEPS = 4


def make_run(
    name: str, task: str, mistake: int | None, passed: bool, *, proof: int | None = None, kind: str | None = None
) -> Trajectory:
    """Four steps, at most one of them wrong; the word "slip" gives the wrong one away in the texts."""
    places = range(1, STEPS + 1)
    labels: list[StepLabel] = ["incorrect" if place == mistake else "correct" for place in places]
    steps = tuple(Step(place, "slip" if place == mistake else "walk", "move up", "energy 3") for place in places)
    return Trajectory(
        name,
        Task("find out", task),
        steps,
        Outcome(passed, 100.0 if passed else 0.0),
        Labels(
            tuple(labels),
            mistake,
            kinds=tuple(kind if place == mistake else None for place in places),
            proof_sizes=tuple(proof if place == mistake else None for place in places),
        ),
    )


def make_verdict(name: str, flagged: int | None, p_yes: float) -> Verdict:
    """A verdict that is sure of one step, or of none."""
    places = range(1, STEPS + 1)
    steps = tuple(
        StepVerdict(place, "incorrect" if place == flagged else "correct", 0.9 if place == flagged else 0.1)
        for place in places
    )
    return Verdict(name, "scored", None, steps, flagged, p_yes)


def perfect(runs: Sequence[Trajectory]) -> list[Verdict]:
    """What the labels say."""
    return [
        make_verdict(r.id, r.labels.first_mistake if r.labels else None, 0.1 if r.has_mistake else 0.9) for r in runs
    ]


TRAIN = [
    run
    for number in range(6)
    for run in (
        make_run(f"train{number}a", f"train{number}", 2, False, proof=1, kind="looping"),
        make_run(f"train{number}b", f"train{number}", None, True),
    )
]
DEV = [
    make_run("dev0a", "dev0", 2, False, proof=1, kind="looping"),
    make_run("dev0b", "dev0", None, True),
    make_run("dev1a", "dev1", 3, False, proof=1, kind="looping"),
    make_run("dev1b", "dev1", None, True),
]
TEST = [
    make_run("t1a", "t1", 2, False, proof=1, kind="looping"),
    make_run("t1b", "t1", None, True),
    make_run("t2a", "t2", 3, True, proof=5, kind="memory"),
    make_run("t2b", "t2", None, False),
    make_run("t3a", "t3", 1, False, proof=2, kind="looping"),
    make_run("t3b", "t3", None, True),
]
GRPO = [
    make_verdict("t1a", 2, 0.1),  # exact
    make_verdict("t1b", None, 0.9),  # rightly left alone
    make_verdict("t2a", 4, 0.2),  # one step late
    Verdict("t2b", "unscored", "1 of 4 replies readable", (), None, None),
    make_verdict("t3a", None, 0.8),  # missed
    make_verdict("t3b", 1, 0.3),  # false alarm
]


def write_folder(folder: Path, stages: dict[str, list[Verdict]], *, test: Sequence[Trajectory] = TEST) -> Path:
    """A run folder with the toy's runs and these test verdicts; dev verdicts are perfect."""
    for name, runs in (("train", TRAIN), ("dev", DEV), ("test", test)):
        trajectory.write(folder / "data" / f"{name}.jsonl.zst", runs)
    for stage, verdicts in stages.items():
        verdict.write(folder / "eval" / stage / "dev.jsonl", perfect(DEV))
        verdict.write(folder / "eval" / stage / "test.jsonl", verdicts)
    return folder
