"""Methods that do not understand a run: whatever a verifier claims, it must beat these on the same held-out runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval import figures
from eval.bag_of_words import BagOfWords
from eval.figures import Judgement
from scout import metrics, rerank, selection
from scout.errors import InputError
from scout.intervals import differences
from scout.selection import Score
from scout.trajectory import Trajectory
from scout.verdict import StepVerdict, Verdict

Figures = dict[str, Any]
Place = Callable[[Trajectory], int | None]
"""The step that a rule flags in a run; None flags nothing."""
Rule = Callable[[Trajectory], float]
"""Score by which a rule chooses among candidates; higher is better."""

_MOVE = re.compile(r"\bmove\b")

SELECTORS: Mapping[str, Rule] = {
    "shortest_run": lambda run: -float(len(run.steps)),
    "longest_run": lambda run: float(len(run.steps)),
    "most_moves": lambda run: float(_moves(run)),
    "fewest_moves": lambda run: -float(_moves(run)),
    "least_text": lambda run: -float(_characters(run)),
    "most_text": lambda run: float(_characters(run)),
}
"""Rules that choose by size alone; equal candidates share the choice evenly."""


def _moves(run: Trajectory) -> int:
    return sum(bool(_MOVE.search(step.action)) for step in run.steps)


def _characters(run: Trajectory) -> int:
    return sum(len(step.thought) + len(step.action) + len(step.observation) for step in run.steps)


def evaluate(
    train: Sequence[Trajectory], dev: Sequence[Trajectory], scout: Judgement
) -> tuple[Figures, Figures, list[str]]:
    """(figures of every baseline, step AUROC of the bag of words, remarks on what could not be made).

    scout: the verifier's judgement of the test runs; "lead" is its best-of-5 minus the baseline's, paired over tasks.
    Whatever has to be fitted is fitted on train, chosen on dev, and only then looked at on test. A baseline that
    cannot choose among candidates gets the figure of a random choice; one that cannot flag has no exact and no F1.
    """
    test = scout.runs
    table: Figures = {}
    for name, place in _places(train).items():
        table[name] = _flagging(test, [_flags(run, place(run)) for run in test]) | _choosing(scout, {})
    table["random_step"] = _random_step(test) | _choosing(scout, {})
    for name, rule in SELECTORS.items():
        table[name] = _silent() | _choosing(scout, {run.id: rule(run) for run in test})
    try:
        judged, found = _bag_of_words(train, dev, test)
    except InputError as error:
        return table, {"value": None, "low": None, "high": None, "steps": 0}, [str(error)]
    table["bag_of_words"] = _flagging(test, judged.flagged) | _choosing(scout, judged.scores)
    return table, found, []


def _places(train: Sequence[Trajectory]) -> dict[str, Place]:
    best = best_position(train)
    known = [run.has_mistake for run in train if run.has_mistake is not None]
    mostly_faulty = sum(known) * 2 > len(known)
    return {
        "always_flag": lambda run: 1,
        "never_flag": lambda run: None,
        "majority": lambda run: best if mostly_faulty else None,
        "fixed_position": lambda run: best if best <= len(run.steps) else None,
        "last_step": lambda run: len(run.steps),
    }


def best_position(train: Sequence[Trajectory]) -> int:
    """The most frequent step of the first mistake, the earliest of equal ones; 1 when no run has a known one."""
    places = Counter(place for run in train if (place := metrics.first_mistake(run)) is not None)
    return min(places, key=lambda place: (-places[place], place)) if places else 1


def _flags(run: Trajectory, place: int | None) -> Verdict:
    """A verdict that flags that one step, or nothing when the run has no such step."""
    where = place if place is not None and place <= len(run.steps) else None
    steps = tuple(StepVerdict(s.index, "incorrect" if s.index == where else "correct") for s in run.steps)
    return Verdict(run.id, "scored", None, steps, where, None)


def _flagging(test: Sequence[Trajectory], verdicts: Sequence[Verdict]) -> Figures:
    where = figures.with_bounds(metrics.localisation_tally(verdicts, test, strict=True))
    found = figures.with_bounds(metrics.detection_tally(verdicts, test, strict=True))
    kept = {name: where[name] for name in where if name.startswith(("exact", "within"))}
    return kept | {name: found[name] for name in ("f1", "f1_low", "f1_high")}


def _random_step(test: Sequence[Trajectory]) -> Figures:
    """Expected exact of flagging one step of each run at random; F1 is that of flagging every run."""
    faulty = [run for run in test if metrics.first_mistake(run) is not None]
    exact = sum(1 / len(run.steps) for run in faulty) / len(faulty) if faulty else None
    always = _flagging(test, [_flags(run, 1) for run in test])
    return {"exact": exact} | {name: always[name] for name in ("f1", "f1_low", "f1_high")}


def _silent() -> Figures:
    return {"exact": None, "f1": None}


def _choosing(scout: Judgement, scores: Mapping[str, Score | None]) -> Figures:
    """best_of_<N> and lead of a rule; without scores every candidate is equal, which is a random choice."""
    size = figures.group_size(scout.runs)
    theirs = {run.id: scores.get(run.id, 0.0) for run in scout.runs}
    rule = selection.best_of_tally(theirs, scout.runs, size, strict=True)
    ours = selection.best_of_tally(scout.scores, scout.runs, size, strict=True)
    found, lead = figures.with_bounds(rule), differences(ours, rule)["scout"]
    chosen = {f"best_of_{size}{bound}": found[f"scout{bound}"] for bound in ("", "_low", "_high")}
    return chosen | {"lead": lead.value, "lead_low": lead.low, "lead_high": lead.high}


def _bag_of_words(
    train: Sequence[Trajectory], dev: Sequence[Trajectory], test: Sequence[Trajectory]
) -> tuple[Judgement, Figures]:
    """The bag of words with the same threshold fitting and the same choice of selector as the verifier."""
    model = BagOfWords(train, dev)
    dev_verdicts, verdicts = ([_worded(model, run) for run in runs] for runs in (dev, test))
    threshold = figures.fit(dev, dev_verdicts)["value"]
    dev_flagged, flagged = figures.flag(dev_verdicts, threshold), figures.flag(verdicts, threshold)
    selector = figures.compare_selectors(dev, dev_flagged, test, flagged)["name"]
    judged = Judgement(test, verdicts, flagged, rerank.scores(flagged, selector=selector))
    return judged, figures.step_auroc(test, figures.chances_of(verdicts, test))


def _worded(model: BagOfWords, run: Trajectory) -> Verdict:
    chances = model.p_incorrect(run)
    steps = tuple(
        StepVerdict(step.index, "incorrect" if chance >= 0.5 else "correct", chance)
        for step, chance in zip(run.steps, chances, strict=True)
    )
    flagged = [step.index for step in steps if step.label == "incorrect"]
    clean = 1.0
    for chance in chances:
        clean *= 1 - chance
    return Verdict(run.id, "scored", None, steps, min(flagged, default=None), clean)
