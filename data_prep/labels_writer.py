"""Writer `labels`: analyses from the annotators' own reasons; no model writes anything.

An incorrect step gets its annotators' reason, a correct one theirs too or one neutral line made of the step itself. A
run with an incorrect step that nobody gave a reason for has no analysis: none is made up.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from data_prep.check import TELLTALE
from data_prep.world_writer import Analysis
from scout.errors import InputError
from scout.neutral import neutralise
from scout.trajectory import Step, Trajectory

SHOWN_CHARACTERS = 120
"""Of a thought, an action and an observation at most this much stands in a description; the step itself is in view."""
STATE_CHARACTERS = 60


def analyse(run: Trajectory, rng: random.Random) -> Analysis:
    """The analysis of a run with labels; the same every time. Raises InputError when a reason is missing.

    rng: not used; the annotators' words are not varied.
    """
    labels = run.labels
    if labels is None:
        raise InputError(f"run {run.id}: it has no labels. data_prep.label attaches them.")
    paragraphs, states = {}, {}
    wrong: list[int] = []
    for step, label in zip(run.steps, labels.step_labels, strict=True):
        reason = labels.reasons[step.index - 1] if labels.reasons else None
        if label == "incorrect":
            if not reason or not reason.strip():
                raise InputError(f"run {run.id}: step {step.index} is labelled incorrect without a reason.")
            wrong.append(step.index)
        paragraphs[step.index] = _sentence(reason) if reason and reason.strip() else describe(step)
        states[step.index] = _state(step, wrong)
    return Analysis(paragraphs, states)


def problems(run: Trajectory, paragraphs: Mapping[int, str]) -> list[str]:
    """Paragraphs that speak of labels they were given, in words that the run itself has not used so far."""
    found: list[str] = []
    seen = run.task.text.casefold()
    for step in run.steps:
        seen += f"\n{step.thought}\n{step.action}\n{step.observation}".casefold()
        words = {match.group(0).casefold() for match in TELLTALE.finditer(paragraphs.get(step.index, ""))}
        found.extend(f"step {step.index}: speaks of {word!r}" for word in sorted(words) if word not in seen)
    return found


def describe(step: Step) -> str:
    """What the step did and what came back, on one line, without judging it."""
    did = f"It does: {_short(step.action)}" if step.action.strip() else f"It says: {_short(step.thought)}"
    back = f" Back comes: {_short(step.observation)}" if step.observation.strip() else ""
    return did + back


def _state(step: Step, wrong: list[int]) -> str:
    last = _short(step.action if step.action.strip() else step.thought, STATE_CHARACTERS)
    return f"wrong so far: {', '.join(map(str, wrong)) or 'none'}; step {step.index}: {last}"


def _short(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """The beginning of the text on one line, as a sentence."""
    line = " ".join(neutralise(text[: 4 * limit]).split())
    return _sentence(line) if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit].rstrip()} ..."


def _sentence(text: str) -> str:
    """The text on one line with an end, so that the closing sentence after it stands alone."""
    line = " ".join(neutralise(text).split())
    return line if line.endswith((".", "!", "?")) else f"{line}."
