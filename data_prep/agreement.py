"""How far two sets of labels of the same runs agree, where they do not, and what adjudication made of it.

    python -m data_prep.agreement first.jsonl second.jsonl --disagreements todo.csv
    python -m data_prep.agreement first.jsonl second.jsonl --adjudicated todo.csv --out labelled.jsonl

Runs are paired by their steps' text, whatever their ids: two sources may have labelled one run. Fill in the columns
`label` and `reason` of the first command's file for the second; a step without an entry there stays unlabelled.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from data_prep.labels.join import settled
from scout import trajectory
from scout.errors import FormatError, InputError, Problem, ScoutError, printable, refuse, shown, tell
from scout.formats.stats import digest, run_text
from scout.formats.table import table
from scout.lines import replacing, require_file
from scout.trajectory import Labels, StepLabel, Trajectory

COLUMNS = ("run", "step", "first", "second", "first_reason", "second_reason", "label", "reason")


class Pair(msgspec.Struct, frozen=True):
    """One run with two sets of labels."""

    run: Trajectory
    """As the first set has it."""
    first: Labels
    second: Labels

    def disputed(self) -> list[int]:
        """1-based steps that both judge, and differently."""
        return [
            at
            for at, (one, two) in enumerate(zip(self.first.step_labels, self.second.step_labels, strict=True), 1)
            if one != two and "unlabelled" not in (one, two)
        ]


class Agreement(msgspec.Struct, frozen=True):
    """Figures of two sets of labels. A kappa is None where it is not defined: no pairs, or both always say the same."""

    shared: int
    only_first: int
    only_second: int
    runs_judged: int
    """Shared runs of which both say whether they hold a mistake."""
    kappa_has_mistake: float | None
    both_mistaken: int
    """Shared runs in which both see a first mistake."""
    kappa_first_mistake: float | None
    """Over `runs_judged`, each step number and "none" being a category."""
    same_first: int
    within_one: int
    listed: int
    """Runs whose first mistake by the second set is any mistake of the first set."""
    steps_judged: int
    kappa_steps: float | None
    disputed_steps: int


def pair(first: Iterable[Trajectory], second: Iterable[Trajectory]) -> tuple[list[Pair], int, int]:
    """(pairs in the order of the first set, runs of the first set only, runs of the second set only).

    Raises InputError when one set holds a run twice or a run has no labels.
    """
    one, two = _by_text(first), _by_text(second)
    pairs = [Pair(run, _labels(run), _labels(two[text])) for text, run in one.items() if text in two]
    return pairs, len(one) - len(pairs), len(two) - len(pairs)


def _by_text(runs: Iterable[Trajectory]) -> dict[str, Trajectory]:
    found: dict[str, Trajectory] = {}
    for run in runs:
        _labels(run)
        other = found.setdefault(digest(run_text(run)), run)
        if other is not run:
            raise InputError(
                f"runs {shown(other.id)} and {shown(run.id)} of one set are the same run. Keep one of them."
            )
    return found


def _labels(run: Trajectory) -> Labels:
    if run.labels is None:
        raise InputError(f"run {shown(run.id)} has no labels. data_prep.label attaches them.")
    return run.labels


def measure(pairs: Sequence[Pair], only_first: int = 0, only_second: int = 0) -> Agreement:
    """The figures."""
    judged = [item for item in pairs if None not in _has_mistake(item)]
    firsts = [(item.first.first_mistake, item.second.first_mistake) for item in judged]
    both = [(one, two) for one, two in firsts if one is not None and two is not None]
    steps = [
        (one, two)
        for item in pairs
        for one, two in zip(item.first.step_labels, item.second.step_labels, strict=True)
        if "unlabelled" not in (one, two)
    ]
    return Agreement(
        shared=len(pairs),
        only_first=only_first,
        only_second=only_second,
        runs_judged=len(judged),
        kappa_has_mistake=kappa([(str(one), str(two)) for one, two in map(_has_mistake, judged)]),
        both_mistaken=len(both),
        kappa_first_mistake=kappa([(str(one), str(two)) for one, two in firsts]),
        same_first=sum(one == two for one, two in both),
        within_one=sum(abs(one - two) <= 1 for one, two in both),
        listed=sum(_listed(item) for item in judged),
        steps_judged=len(steps),
        kappa_steps=kappa(steps),
        disputed_steps=sum(one != two for one, two in steps),
    )


def _has_mistake(item: Pair) -> tuple[bool | None, bool | None]:
    second = msgspec.structs.replace(item.run, labels=item.second)
    return item.run.has_mistake, second.has_mistake


def _listed(item: Pair) -> bool:
    at = item.second.first_mistake
    return at is not None and item.first.step_labels[at - 1] == "incorrect"


def kappa(ratings: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's kappa of two raters; None without ratings or when chance alone would make them agree always."""
    if not ratings:
        return None
    # Heavy to import, and only needed here.
    from sklearn.metrics import cohen_kappa_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where it returns NaN, which is handled below
        value = float(cohen_kappa_score(*zip(*ratings, strict=True)))
    return None if math.isnan(value) else round(value, 4)


def write_disagreements(path: Path, pairs: Sequence[Pair]) -> int:
    """Write every disputed step with both labels and reasons as CSV, to be filled in; returns their number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for item in pairs:
        for at in item.disputed():
            labels = item.first.step_labels[at - 1], item.second.step_labels[at - 1]
            writer.writerow([item.run.id, at, *labels, _reason(item.first, at), _reason(item.second, at), "", ""])
            count += 1
    with replacing(path) as file:
        file.write(text.getvalue().encode())
    return count


def _reason(labels: Labels, at: int) -> str:
    return (labels.reasons[at - 1] or "") if labels.reasons else ""


def read_decisions(path: Path) -> dict[tuple[str, int], tuple[StepLabel, str]]:
    """(run, step) -> (label, reason) of the lines that were filled in. Raises FormatError with all problems."""
    found: dict[tuple[str, int], tuple[StepLabel, str]] = {}
    problems: list[Problem] = []
    with require_file(path).open(encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        if tuple(lines.fieldnames or ()) != COLUMNS:
            problems.append(Problem(f"{path}:1", "columns", shown(lines.fieldnames), ", ".join(COLUMNS)))
        for line in lines if not problems else ():
            where = f"{path}:{lines.line_num}"
            label, step = (line["label"] or "").strip(), (line["step"] or "").strip()
            if not step.isdecimal() or len(step) > 9:
                problems.append(Problem(where, "step", shown(step), "the number that was written there"))
            elif label and label not in get_args(StepLabel):
                problems.append(Problem(where, "label", shown(label), f"{', '.join(get_args(StepLabel))}, or empty"))
            elif label:
                found[line["run"], int(step)] = msgspec.convert(label, StepLabel), (line["reason"] or "").strip()
    if problems:
        refuse(problems, hint="Repair what is listed; nothing was written.", kind=FormatError)
    return found


def adjudicate(
    pairs: Sequence[Pair], decisions: dict[tuple[str, int], tuple[StepLabel, str]]
) -> tuple[list[Trajectory], int]:
    """The shared runs with one set of labels, and the number of disputed steps that nobody decided.

    A step that one set alone judges keeps that label; a disputed one gets the decision, or none. Raises InputError for
    sets of different origin: labels of people are not mixed with others.
    """
    origins = sorted({labels.origin for item in pairs for labels in (item.first, item.second)})
    if len(origins) > 1:
        raise InputError(f"the labels are of different origin ({', '.join(origins)}). Adjudicate sets of one origin.")
    undecided = 0
    runs = []
    for item in pairs:
        labels: list[StepLabel] = []
        reasons: list[str | None] = []
        disputed = set(item.disputed())
        for at, (one, two) in enumerate(zip(item.first.step_labels, item.second.step_labels, strict=True), 1):
            label: StepLabel = one if one != "unlabelled" else two
            given = [_reason(each, at) for each in (item.first, item.second)]
            reason = "; ".join(dict.fromkeys(text for text in given if text))
            if at in disputed:
                label, reason = decisions.get((item.run.id, at), ("unlabelled", ""))
                undecided += label == "unlabelled"
            labels.append(label)
            reasons.append(reason or None)
        runs.append(msgspec.structs.replace(item.run, labels=_merged(item, labels, reasons)))
    return runs, undecided


def _merged(item: Pair, labels: Sequence[StepLabel], reasons: Sequence[str | None]) -> Labels:
    return Labels(
        step_labels=tuple(labels),
        first_mistake=labels.index("incorrect") + 1 if "incorrect" in labels else None,
        known=settled(labels),
        origin=item.first.origin,
        reasons=tuple(reasons) if any(reasons) else (),
        annotators=tuple(dict.fromkeys((*item.first.annotators, *item.second.annotators))),
    )


def show(figures: Agreement) -> str:
    """The figures as a table."""
    rows = [(name.replace("_", " "), value) for name, value in msgspec.structs.asdict(figures).items()]
    return table([(name, "not defined" if value is None else value) for name, value in rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two sets of labels, or merge them with decisions; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.agreement", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path, metavar="FIRST.jsonl", help="labelled runs")
    parser.add_argument("second", type=Path, metavar="SECOND.jsonl", help="the same runs with other labels")
    parser.add_argument("--disagreements", type=Path, metavar="TODO.csv", help="write the disputed steps there")
    parser.add_argument("--adjudicated", type=Path, metavar="TODO.csv", help="that file, filled in")
    parser.add_argument("--out", type=Path, metavar="LABELLED.jsonl", help="for the adjudicated runs")
    args = parser.parse_args(argv)
    if (args.adjudicated is None) != (args.out is None):
        parser.error("--adjudicated and --out go together")
    try:
        pairs, only_first, only_second = pair(trajectory.read(args.first), trajectory.read(args.second))
        if not pairs:
            raise InputError(
                f"{args.first} and {args.second} share no run: runs are paired by the text of their steps."
            )
        figures = measure(pairs, only_first, only_second)
        result = msgspec.structs.asdict(figures)
        if args.disagreements is not None:
            result["disagreements"] = write_disagreements(args.disagreements, pairs)
        if args.out is not None:
            runs, result["undecided"] = adjudicate(pairs, read_decisions(args.adjudicated))
            trajectory.write(args.out, runs)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    print(printable(show(figures)), file=sys.stderr)
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
