"""Label records of any source + runs -> labelled runs, with everything that found no place counted and named."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from scout.errors import FormatError, Problem, refuse
from scout.formats.source import HINT, decode, open_source
from scout.trajectory import Known, Labels, Origin, StepLabel, Trajectory

T = TypeVar("T")
Rest = Literal["correct", "correct_before", "unlabelled"]


class Mark(msgspec.Struct, frozen=True):
    """One judgement of one place in a run."""

    at: int | str
    """Position as the source counts, or an id; the source's `step` turns it into a step."""
    label: StepLabel
    reason: str | None = None
    kind: str | None = None


class Given(msgspec.Struct, frozen=True):
    """What a label file says of one run."""

    where: str
    run: str
    """The run's name in the label file; a run whose `names` hold it is meant."""
    marks: tuple[Mark, ...]
    rest: Rest
    """What the source knows of steps without a mark: all correct, correct before the first mistake, or nothing."""
    known: Known | None = None
    """What the source knows; None when that follows from which steps are marked."""
    origin: Origin = "human"
    annotators: tuple[str, ...] = ()
    decisive: int | None = None
    """Position of the mistake that decided the run, where the source tells it from the first one."""
    passed: bool | None = None
    """The source's verdict on the whole run."""
    notes: tuple[str, ...] = ()
    """What of the record was left out on purpose, by kind."""
    places: tuple[str, ...] = ()
    """Further names. With them the record is about all runs that carry any of its names: each mark goes to the run that
    has its place."""


class Report(msgspec.Struct):
    """What became of the label records."""

    labelled: int = 0
    steps: Counter[str] = msgspec.field(default_factory=Counter)
    """Steps by label."""
    known: Counter[str] = msgspec.field(default_factory=Counter)
    without: int = 0
    """Runs that no record is about."""
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    """Records and marks that found no place, by kind."""
    details: list[str] = msgspec.field(default_factory=list)
    """The same, one line each with its place."""

    def note(self, where: str, kind: str, detail: str = "") -> None:
        """Count one thing that found no place."""
        self.left_out[kind] += 1
        self.details.append(f"{where}: {kind}{f' ({detail})' if detail else ''}")


Names = Callable[[Trajectory], Iterable[str]]
Place = Callable[[Trajectory, Any], int | None]


def records(path: str | Path, kind: type[T]) -> list[tuple[str, int | None, T]]:
    """(place, number in the file, record) of every record. Raises FormatError listing all that are wrong."""
    problems: list[Problem] = []
    found: list[tuple[str, int | None, T]] = []
    for record in open_source(path).records():
        value = decode(record.raw, kind, record.where, problems)
        if value is not None:
            found.append((record.where, record.number, value))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    return found


def attach(
    runs: Iterable[Trajectory], given: Sequence[Given], names: Names, place: Place, report: Report
) -> Iterator[Trajectory]:
    """The runs that some record is about, with labels, in the order of the runs.

    A name that several runs carry, or that several records give, labels none of them: which one is meant is not known.
    """
    runs = list(runs)
    of_name: dict[str, set[int]] = defaultdict(set)
    for number, run in enumerate(runs):
        for name in names(run):
            of_name[name].add(number)
    records_of: dict[int, list[Given]] = defaultdict(list)
    for item in given:
        meant = {number for name in (item.run, *item.places) for number in of_name.get(name, ())}
        if len(meant) == 1:
            records_of[min(meant)].append(item)
        elif meant and item.places:
            for number, part in _parts(item, {number: runs[number] for number in sorted(meant)}, place):
                records_of[number].append(part)
        else:
            report.note(item.where, "the name of several runs" if meant else "a run that is not there", item.run)
    for number, run in enumerate(runs):
        about = records_of.get(number, [])
        if len(about) > 1:
            for item in about:
                report.note(item.where, "several records about one run", item.run)
        if len(about) != 1:
            report.without += 1
            continue
        if run.labels is not None and run.labels.origin == "injected":
            report.note(about[0].where, "a run with an injected fault, whose label stays", about[0].run)
            report.without += 1
            continue
        labelled = _labelled(run, about[0], place, report)
        if labelled is None:
            report.without += 1
        else:
            yield labelled


def _parts(item: Given, runs: Mapping[int, Trajectory], place: Place) -> Iterator[tuple[int, Given]]:
    """What a record says of each of its runs. Marks without a place and the notes go to the first of them."""
    rest = item.marks
    of_run: dict[int, tuple[Mark, ...]] = {}
    for number, run in runs.items():
        of_run[number] = tuple(mark for mark in rest if place(run, mark.at) is not None)
        rest = tuple(mark for mark in rest if mark not in of_run[number])
    first = next((number for number, marks in of_run.items() if marks), min(runs))
    of_run[first] += rest
    for number, marks in of_run.items():
        if marks:
            notes = item.notes if number == first else ()
            yield number, msgspec.structs.replace(item, marks=marks, notes=notes)


def _labelled(run: Trajectory, item: Given, place: Place, report: Report) -> Trajectory | None:
    """The run with its labels; None when none of them found a place and the outcome is not told either."""
    labels: list[StepLabel] = ["unlabelled"] * len(run.steps)
    reasons: list[list[str]] = [[] for _ in run.steps]
    kinds: list[list[str]] = [[] for _ in run.steps]
    lost = 0
    for mark in item.marks:
        step = place(run, mark.at)
        if step is None:
            report.note(item.where, "a position that is no step of the run", f"{item.run}: {mark.at}")
            lost += 1
            continue
        if labels[step - 1] != "incorrect":
            labels[step - 1] = mark.label
        reasons[step - 1] += [mark.reason] if mark.reason and mark.reason not in reasons[step - 1] else []
        kinds[step - 1] += [mark.kind] if mark.kind and mark.kind not in kinds[step - 1] else []
    for note in item.notes:
        report.note(item.where, note, item.run)
    marked = {step for step in (place(run, mark.at) for mark in item.marks) if step is not None}
    first = next((at for at, label in enumerate(labels, 1) if label == "incorrect"), None)
    # A mark without a place may be the first mistake, so nothing is said of the steps that have none.
    if not lost and item.rest != "unlabelled":
        end = len(labels) if item.rest == "correct" else (first or 0)
        labels = ["correct" if at not in marked and at <= end else label for at, label in enumerate(labels, 1)]
    # Of some failures known, some stay known whatever was lost; the other claims do not stay true.
    stays = not lost or (item.known == "some_failures" and first is not None)
    known = item.known if item.known is not None and stays else settled(labels)
    if known == "final_only" and item.passed is None:
        return None
    return _build(run, item, place, labels, first, known, reasons, kinds, report)


def _build(
    run: Trajectory,
    item: Given,
    place: Place,
    labels: Sequence[StepLabel],
    first: int | None,
    known: Known,
    reasons: Sequence[Sequence[str]],
    kinds: Sequence[Sequence[str]],
    report: Report,
) -> Trajectory:
    report.labelled += 1
    report.steps.update(labels)
    report.known[known] += 1
    outcome = run.outcome
    if item.passed is not None and outcome.passed is None:
        outcome = msgspec.structs.replace(outcome, passed=item.passed)
    elif item.passed is not None and outcome.passed != item.passed:
        report.note(item.where, "an outcome that differs from the run's own, which is kept", item.run)
    meta: dict[str, Any] = {**run.meta, "label_source": item.where}
    if item.decisive is not None:
        meta["decisive_mistake"] = place(run, item.decisive)
    joined = tuple("; ".join(each) or None for each in reasons)
    named = tuple("; ".join(each) or None for each in kinds)
    return msgspec.structs.replace(
        run,
        outcome=outcome,
        meta=meta,
        labels=Labels(
            step_labels=tuple(labels),
            first_mistake=first,
            known=known,
            origin=item.origin,
            reasons=joined if any(joined) else (),
            annotators=item.annotators,
            kinds=named if any(named) else (),
        ),
    )


def settled(labels: Sequence[StepLabel]) -> Known:
    """What is known when these are all the judgements there are."""
    if "unlabelled" not in labels:
        return "all_steps"
    if set(labels) == {"unlabelled"}:
        return "final_only"
    if "incorrect" in labels and "unlabelled" not in labels[: labels.index("incorrect")]:
        return "first_mistake"
    return "some_failures"
