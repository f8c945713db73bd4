"""Best of N: put the candidate runs of one task in order by their verdicts, and say why or why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from scout.errors import ConfigError, InputError
from scout.verdict import Verdict

TOLERANCE = 0.02
"""Scores closer than this are called a tie: repeats of one request under load may move a score by that much."""

Score = tuple[float, ...]
"""Higher is better, compared from left to right."""


class Choice(msgspec.Struct, frozen=True):
    """The result of choosing among candidates."""

    order: tuple[str, ...]
    """Trajectory ids, best first; those that cannot be ranked come last."""
    best: str | None
    """The winner, or None when no candidate can be ranked."""
    tie: bool
    """True when the runner-up is within the tolerance of the winner."""
    reason: str
    """Why this one, or why none, in one sentence."""


def _logp_correct(verdict: Verdict) -> float | None:
    """Log of the product of (1 - p_incorrect); None when a step lacks its probability: a gap would look like a pass."""
    chances = [step.p_incorrect for step in verdict.steps]
    if not chances:
        return None
    total = 0.0
    for p_incorrect in chances:
        if p_incorrect is None:
            return None
        total += math.log1p(-p_incorrect) if p_incorrect < 1 else -math.inf
    return total


def _p_yes(verdict: Verdict) -> Score | None:
    if verdict.p_yes is None:
        return None
    logp_correct = _logp_correct(verdict)
    return (verdict.p_yes, -math.inf if logp_correct is None else logp_correct)


def _p_correct_product(verdict: Verdict) -> Score | None:
    logp_correct = _logp_correct(verdict)
    return None if logp_correct is None else (logp_correct,)


def _flagged_share(verdict: Verdict) -> Score | None:
    labels = [step.label for step in verdict.steps if step.label != "unlabelled"]
    return (-labels.count("incorrect") / len(labels),) if labels else None


def _first_mistake(verdict: Verdict) -> Score | None:
    if not any(step.label != "unlabelled" for step in verdict.steps):
        return None
    return (math.inf if verdict.first_mistake is None else float(verdict.first_mistake),)


SELECTORS: Mapping[str, Callable[[Verdict], Score | None]] = {
    "p_yes": _p_yes,
    "p_correct_product": _p_correct_product,
    "flagged_share": _flagged_share,
    "first_mistake": _first_mistake,
}
"""p_yes: highest probability that no step is wrong, equal ones by the product; p_correct_product: highest product of
(1 - p_incorrect), kept as its log; flagged_share: smallest share of flagged steps; first_mistake: latest, or none."""


def _check(verdict: Verdict) -> None:
    named = [("p_yes", verdict.p_yes), *((f"step {s.index} p_incorrect", s.p_incorrect) for s in verdict.steps)]
    for field, value in named:
        if value is not None and not 0 <= value <= 1:
            raise InputError(
                f"Verdict of {verdict.trajectory_id!r}: {field} is {value!r}; allowed: a number from 0 to 1."
            )


def scores(verdicts: Sequence[Verdict], *, selector: str = "p_yes") -> dict[str, Score | None]:
    """Trajectory id -> score of the selector, higher is better; None for an unscored verdict or one it cannot rank.

    Raises ConfigError for an unknown selector, InputError for NaN, a value outside [0, 1] or an id that comes twice.
    """
    if selector not in SELECTORS:
        raise ConfigError(f"selector is {selector!r}; known selectors: {', '.join(SELECTORS)}.")
    result: dict[str, Score | None] = {}
    for verdict in verdicts:
        if verdict.trajectory_id in result:
            raise InputError(f"Two verdicts have trajectory_id {verdict.trajectory_id!r}; allowed: one per candidate.")
        _check(verdict)
        result[verdict.trajectory_id] = SELECTORS[selector](verdict) if verdict.status == "scored" else None
    return result


def _is_tie(first: float, second: float, tolerance: float) -> bool:
    return first == second or abs(first - second) <= tolerance


def choose(verdicts: Sequence[Verdict], *, selector: str = "p_yes", tolerance: float = TOLERANCE) -> Choice:
    """The candidates of one task in order, best first.

    Equal scores are put in the order of their ids, so shuffling the candidates changes nothing. The tolerance decides
    only what is reported as a tie, never the order. Unscored candidates never win: they come last, and when nobody can
    be ranked `best` is None. Raises InputError for no candidates, several tasks, a repeated id or NaN.
    """
    if not verdicts:
        raise InputError("There are no candidates to choose from; give at least one verdict.")
    if not (tolerance >= 0 and math.isfinite(tolerance)):
        raise ConfigError(f"tolerance is {tolerance!r}; allowed: a number of at least 0.")
    tasks = sorted({verdict.task_id for verdict in verdicts if verdict.task_id is not None})
    if len(tasks) > 1:
        raise InputError(f"Candidates belong to several tasks ({', '.join(tasks[:10])}); choose within one task.")
    by_id = scores(verdicts, selector=selector)
    ranked = [(score, name) for name, score in by_id.items() if score is not None]
    ranked.sort(key=lambda pair: pair[1])
    ranked.sort(key=lambda pair: pair[0], reverse=True)  # stable: equal scores stay in the order of ids
    left_over = sorted(name for name, score in by_id.items() if score is None)
    order = (*(name for _, name in ranked), *left_over)
    if not ranked:
        return Choice(order, None, False, _nobody(verdicts, selector))
    if len(ranked) == 1:
        return Choice(order, ranked[0][1], False, f"the only candidate with a score of {selector}")
    (first, _), (second, runner_up) = ranked[0], ranked[1]
    tie = _is_tie(first[0], second[0], tolerance)
    margin = f"{selector} {first[0]:.6g} against {second[0]:.6g} of {runner_up}"
    return Choice(order, ranked[0][1], tie, margin + (f", a tie within {tolerance:g}" if tie else ""))


def _nobody(verdicts: Sequence[Verdict], selector: str) -> str:
    reasons = sorted({verdict.unscored_reason or f"no value for {selector}" for verdict in verdicts})
    return f"none of {len(verdicts)} candidates can be ranked: {'; '.join(reasons[:10])}"
