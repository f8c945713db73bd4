"""Training rows of one run: what every writer's analysis is made into, and the check that it equals the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from data_prep.world_writer import Analysis
from scout import budget, prompt
from scout.config import Recipe
from scout.errors import InputError
from scout.render import counter, measure
from scout.trajectory import Trajectory
from scout.verdict import parse_reply

STATE_MARGIN = 8
"""Tokens that a state may add to a prompt beyond its own, where it joins the text around it."""

Check = Callable[[Trajectory, Mapping[int, str]], list[str]]


class Unfaithful(Exception):
    """No analysis of the run agrees with its labels and its evidence; the text says why the last one did not."""


class Frame(NamedTuple):
    """What all rows of a split share."""

    split: str
    style: prompt.Style
    limits: budget.Budget
    count: Callable[[str], int]
    measure: budget.Measure

    def windows(self, run: Trajectory) -> tuple[budget.Window, ...]:
        """The windows of the run as the verifier sees them."""
        return budget.fit(run, self.limits, self.count, self.style, measure=self.measure)


def frame(split: str, recipe: Recipe, tokenizer: Any) -> Frame:
    """The frame of a split under that recipe."""
    settings = recipe.scout
    limits = budget.Budget(settings.prompt_tokens, settings.window_steps, settings.task_tokens)
    return Frame(split, prompt.style(settings.style), limits, _counter(tokenizer), measure(tokenizer))


def known_part(run: Trajectory) -> tuple[Trajectory, str | None]:
    """The run up to the last step whose label is known, and what was left out.

    Where only the first mistake is known, later steps have no label: the run ends at that step.
    """
    labels = run.labels
    if labels is None or labels.known != "first_mistake" or labels.first_mistake is None:
        return run, None
    end = labels.first_mistake
    if end == len(run.steps):
        return run, None
    shorter = msgspec.structs.replace(
        labels,
        step_labels=labels.step_labels[:end],
        reasons=labels.reasons[:end],
        kinds=labels.kinds[:end],
        proof_sizes=labels.proof_sizes[:end],
    )
    left_out = f"steps {end + 1} to {len(run.steps)}: after the first mistake labels are not known"
    return msgspec.structs.replace(run, steps=run.steps[:end], labels=shorter), left_out


def judged_part(run: Trajectory) -> tuple[Trajectory, str | None]:
    """`known_part` of a run that can be explained. Raises Unfaithful when its labels do not tell of each step."""
    run, left_out = known_part(run)
    if run.labels is None or run.labels.known not in ("all_steps", "first_mistake") or not run.steps:
        raise Unfaithful("the run has no labels that tell of each step whether it is correct")
    return run, left_out


def carried(window: budget.Window, state: str, frame: Frame) -> tuple[str, tuple[str, ...]]:
    """The state as the scorer would show it, and the ledger of what of it did not fit."""
    # `fit` kept this room, so a state well within it is not measured again; close cases are, as rendered.
    if frame.count(state) + STATE_MARGIN <= frame.limits.state_tokens:
        return state, ()
    shown, cut = budget.carried(window, state, frame.limits, frame.count, frame.style, measure=frame.measure)
    return shown, cut.parts


def row_of(run: Trajectory, number: int, window: budget.Window, analysis: Analysis, frame: Frame) -> dict[str, Any]:
    """The row of one window; number: 1-based. The analysis holds its steps and the states around them."""
    assert run.labels is not None
    indices = [step.index for step in window.steps]
    gold = [run.labels.step_labels[index - 1] for index in indices]
    before, cut = None, tuple[str, ...]()
    if not window.first:
        before, cut = carried(window, analysis.states[indices[0] - 1], frame)
    after = None if window.last else analysis.states[indices[-1]]
    paragraphs = {index: analysis.paragraphs[index] for index in indices}
    return {
        "id": f"{run.id}#{number}",
        "trajectory_id": run.id,
        "task_id": run.task.id,
        "split": frame.split,
        "prompt": prompt.messages(window.task, window.steps, frame.style, state=before, last=window.last),
        "completion": prompt.reply_text(paragraphs, dict(zip(indices, gold, strict=True)), state=after),
        "indices": indices,
        "gold": gold,
        "prompt_style": frame.style.name,
        "prompt_version": prompt.PROMPT_VERSION,
        "cut": [*window.cut.parts, *cut],
    }


def problem(run: Trajectory, analysis: Analysis, rows: Sequence[Mapping[str, Any]], facts: Check) -> str:
    """Why the analysis cannot be used: verdicts that differ from the labels, or facts that are not there."""
    for row in rows:
        reply = parse_reply(row["completion"], row["indices"], True)
        gold = {i: label for i, label in zip(row["indices"], row["gold"], strict=True) if label != "unlabelled"}
        if not reply.readable or reply.contradictions or reply.block != gold or reply.paragraph_labels != gold:
            return f"verdicts differ from the labels: {reply.problem or reply.contradictions or reply.block}"
    return "; ".join(facts(run, analysis.paragraphs)[:3])


@cache
def tokenizer_of(model: str) -> Any:
    """The tokenizer in that folder. Raises InputError when there is none."""
    if not (Path(model) / "tokenizer.json").is_file():
        raise InputError(f"--model {model}: no tokenizer.json there. Give the folder of a model or of a tokenizer.")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, local_files_only=True)


@cache
def _counter(tokenizer: Any) -> Callable[[str], int]:
    """Remembers its counts: the candidates of a task share its text, which is counted again for every cut of it."""
    return lru_cache(maxsize=4096)(counter(tokenizer))
