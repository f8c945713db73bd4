"""Good real runs -> runs with one known fault, whose label is exact.

    python -m data_prep.inject runs.jsonl -o injected.jsonl --seed 1

A run is good when it passed, or when its labels say that every step is correct. It ends at the fault, since what was
recorded after it no longer follows. Steps before the fault keep their labels; where they have none, the run says only
that this one step is incorrect. `undo` gives the run back as it was. docs/inject.md tells the kinds of faults.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from data_prep.faults import FINDERS, Fault, places
from data_prep.label import runs_in
from data_prep.labels.join import settled
from scout import trajectory
from scout.errors import InputError, ScoutError, printable, tell
from scout.formats.table import table
from scout.trajectory import Labels, Outcome, Step, StepLabel, Trajectory

ANNOTATOR = "data_prep.inject"
PER_STEP = ("messages", "spans")
"""Members of `meta` with one entry for each step."""
NO_PLACE = "none of the faults has a place in it"


class Report(msgspec.Struct):
    """What became of the runs."""

    injected: Counter[str] = msgspec.field(default_factory=Counter)
    """By kind."""
    earlier_labelled: int = 0
    """Injected runs whose steps before the fault are known to be correct."""
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    """By reason."""


def why_not(run: Trajectory) -> str | None:
    """Why no fault may be put into this run, or None when it is known to be good."""
    if run.labels is not None and run.labels.origin == "injected":
        return "it holds an injected fault already"
    if run.has_mistake:
        return "a step of it is labelled incorrect"
    if run.outcome.passed is False:
        return "it failed"
    if run.outcome.passed is None and run.has_mistake is None:
        return "nothing tells whether it is good"
    return None


def inject(runs: Iterable[Trajectory], kinds: Sequence[str], seed: int, report: Report) -> Iterator[Trajectory]:
    """The good runs, each with one fault: of the kinds that have a place in it, the rarest so far.

    The same runs in the same order, kinds and seed give the same faults. report: filled as the runs are taken.
    """
    for run in runs:
        reason = why_not(run)
        if reason is None:
            rng = random.Random(f"{seed}/{run.id}")
            faulty = _with_fault(run, kinds, rng, report.injected)
            if faulty is not None:
                kind, fault = faulty
                report.injected[kind] += 1
                made = build(run, kind, fault, seed)
                assert made.labels is not None
                report.earlier_labelled += made.labels.known == "all_steps"
                yield made
                continue
            reason = NO_PLACE
        report.skipped[reason] += 1


def _with_fault(
    run: Trajectory, kinds: Sequence[str], rng: random.Random, used: Counter[str]
) -> tuple[str, Fault] | None:
    found = places(run, kinds)
    for kind in sorted(rng.sample(sorted(found), len(found)), key=lambda kind: used[kind]):
        for place in rng.sample(found[kind], len(found[kind])):
            fault = place()
            if fault is not None:
                return kind, fault
    return None


def build(run: Trajectory, kind: str, fault: Fault, seed: int) -> Trajectory:
    """The run that ends with the fault. `meta["injected"]` says what was changed and keeps what was taken away."""
    count = len(fault.steps)
    before: Sequence[StepLabel] = run.labels.step_labels if run.labels is not None else ["unlabelled"] * len(run.steps)
    labels: tuple[StepLabel, ...] = (*(before[at - 1] for at in fault.came_from[:-1]), "incorrect")
    nothing = (None,) * (count - 1)
    known = settled(labels)
    kept = next((at for at, (old, new) in enumerate(zip(run.steps, fault.steps, strict=False)) if old != new), count)
    meta = dict(run.meta)
    for name in PER_STEP:
        if len(meta.get(name, ())) == len(run.steps):
            meta[name] = [meta[name][at - 1] for at in fault.came_from]
    meta["injected"] = {
        "kind": kind,
        "step": count,
        "made_of_step": fault.came_from[-1],
        "seed": seed,
        "id": run.id,
        "outcome": msgspec.to_builtins(run.outcome),
        "labels": msgspec.to_builtins(run.labels),
        "steps_kept": kept,
        "steps_after": msgspec.to_builtins(run.steps[kept:]),
        "meta": {name: run.meta[name] for name in PER_STEP if meta.get(name) != run.meta.get(name)},
    }
    return Trajectory(
        id=f"{run.id}~{kind}",
        task=run.task,
        steps=tuple(msgspec.structs.replace(step, index=at) for at, step in enumerate(fault.steps, 1)),
        outcome=Outcome(),
        labels=Labels(
            step_labels=labels,
            first_mistake=None if "unlabelled" in labels else count,
            known=known,
            origin="injected",
            reasons=(*nothing, fault.reason),
            annotators=(*(run.labels.annotators if run.labels is not None else ()), ANNOTATOR),
            kinds=(*nothing, kind),
        ),
        meta=meta,
    )


def undo(run: Trajectory) -> Trajectory:
    """The run as it was before the fault. Raises InputError for a run without one."""
    told = run.meta.get("injected")
    if told is None:
        raise InputError(f"run {run.id}: no fault was put into it; there is nothing to undo.")
    meta: dict[str, Any] = {name: value for name, value in run.meta.items() if name != "injected"}
    return Trajectory(
        id=told["id"],
        task=run.task,
        steps=(*run.steps[: told["steps_kept"]], *msgspec.convert(told["steps_after"], tuple[Step, ...])),
        outcome=msgspec.convert(told["outcome"], Outcome),
        labels=msgspec.convert(told["labels"], Labels | None),
        meta={**meta, **told["meta"]},
    )


def write(runs: Sequence[Path], out: Path, kinds: Sequence[str], seed: int) -> Report:
    """Write the runs with a fault. Raises InputError, and writes nothing, when there is none."""
    report = Report()

    def made() -> Iterator[Trajectory]:
        yield from inject(runs_in(runs, report.skipped), kinds, seed, report)
        if not report.injected:
            reasons = ", ".join(f"{number} x {reason}" for reason, number in report.skipped.most_common())
            raise InputError(f"no fault was put into any run: {reasons or 'there are no runs'}. Give runs that passed.")

    trajectory.write(out, made())
    return report


def show(report: Report) -> str:
    """The final table."""
    rows: list[tuple[str, int]] = [("runs with a fault", report.injected.total())]
    rows += [(f"  {kind}", number) for kind, number in sorted(report.injected.items())]
    rows.append(("  with all earlier steps labelled", report.earlier_labelled))
    rows += [(f"skipped: {reason}", number) for reason, number in sorted(report.skipped.items())]
    return table(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Put faults into runs; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.inject", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="files or folders of runs, any known format")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT.jsonl")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kinds", nargs="+", choices=list(FINDERS), default=list(FINDERS), help="all by default")
    args = parser.parse_args(argv)
    try:
        report = write(args.runs, args.out, args.kinds, args.seed)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    print(printable(show(report)), file=sys.stderr)
    told = {"out": str(args.out), "runs": report.injected.total(), "kinds": report.injected, "skipped": report.skipped}
    print(msgspec.json.encode(told).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
