"""Whether two copies of a verifier judge alike: label probabilities at the places where scoring reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from scout import prompt, render
from scout.trajectory import Step

TOLERANCE = 0.02
"""Largest difference of a label's probability between source and export; what P37 of our list of pains allows."""

_RUNS = 20
_STEPS = 3


class Reading(msgspec.Struct, frozen=True):
    """The probability of the second label of a pair (incorrect, No) at one place of one prompt."""

    place: str
    probability: float


def readings(model: Any, tokenizer: Any, style: str) -> list[Reading]:
    """Label probabilities of the model after the same made-up prompts and replies, in the same order on every call."""
    ids = render.label_ids(tokenizer)
    was_training = model.training
    model.eval()
    found = []
    for number in range(_RUNS):
        messages, reply, indices = _example(number, style)
        rendered = render.render_row(tokenizer, messages, reply)
        with torch.inference_mode():
            logits = model(torch.tensor([rendered.ids], device=model.device)).logits[0].float()
        positions = render.label_positions(tokenizer, rendered.ids[rendered.prompt_length :], indices)
        places = [(f"closing {i}", p, (ids.correct, ids.incorrect)) for i, p in positions.closing.items()]
        places += [(f"block {i}", p, (ids.correct, ids.incorrect)) for i, p in positions.block.items()]
        if positions.last is not None:
            places.append(("last", positions.last, (ids.yes, ids.no)))
        for place, position, pair in places:
            both = logits[rendered.prompt_length + position - 1, list(pair)].softmax(dim=0)
            found.append(Reading(f"prompt {number}, {place}", both[1].item()))
    model.train(was_training)
    return found


def _example(number: int, style: str) -> tuple[list[dict[str, str]], str, list[int]]:
    """A made-up run of three steps with some verdict on it."""
    steps = [
        Step(
            index,
            f"I try door {number + index}.",
            f"open {number * 7 + index}",
            "It is locked." if index % 2 else "It opens.",
        )
        for index in range(1, _STEPS + 1)
    ]
    labels: dict[int, prompt.Label] = {
        step.index: "incorrect" if (number >> step.index) % 2 else "correct" for step in steps
    }
    reasons = {step.index: f"The step opens {number * 7 + step.index}." for step in steps}
    messages = prompt.messages("Find the open door.", steps, prompt.style(style))
    return messages, prompt.reply_text(reasons, labels), list(labels)


def differences(source: list[Reading], export: list[Reading]) -> tuple[float, list[str]]:
    """(largest difference, what is beyond the tolerance or has another likeliest label)."""
    worst, problems = 0.0, []
    for before, after in zip(source, export, strict=True):
        gap = abs(before.probability - after.probability)
        worst = max(worst, gap)
        # Two labels that are equally likely within rounding have no order to keep.
        flipped = (before.probability > 0.5) != (after.probability > 0.5) and gap > 1e-3
        if gap > TOLERANCE or flipped or gap != gap:
            problems.append(f"{before.place}: {before.probability:.4f} in the source, {after.probability:.4f} exported")
    return worst, problems
