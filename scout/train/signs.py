"""What a batch of replies says of the policy: recalls, and the signs that it earns its reward without reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scout.reward import recalls
from scout.train.replies import Graded

COPIED_RUN = 16
"""Tokens in a row that also stand in the prompt count as copied; a quoted fact is shorter."""


def signs(graded: Sequence[Graded], gold: Sequence[Mapping[int, str]]) -> dict[str, float]:
    """Shares of the readable replies, by name; a name is missing where no reply can tell.

    all_correct: every step called correct, among windows with a mistake. all_incorrect: every step called incorrect,
    among windows with a correct step. exact: every labelled step right. recall_correct, recall_incorrect: means.
    """
    found: dict[str, list[float]] = {}
    for item, labels in zip(graded, gold, strict=True):
        if not item.reply.readable:
            continue
        said = item.reply.block
        correct, incorrect, _ = recalls(said, labels)
        if incorrect is not None:
            found.setdefault("recall_incorrect", []).append(incorrect)
            found.setdefault("all_correct", []).append(float(set(said.values()) == {"correct"}))
        if correct is not None:
            found.setdefault("recall_correct", []).append(correct)
            found.setdefault("all_incorrect", []).append(float(set(said.values()) == {"incorrect"}))
        found.setdefault("exact", []).append(float(correct in (None, 1.0) and incorrect in (None, 1.0)))
    return {name: sum(values) / len(values) for name, values in found.items()}


def copied_share(prompt: Sequence[int], replies: Sequence[Sequence[int]], run: int = COPIED_RUN) -> float:
    """Share of the replies' tokens that stand in a run of `run` tokens which the prompt holds as well."""
    known = {tuple(prompt[start : start + run]) for start in range(len(prompt) - run + 1)}
    copied = total = 0
    for reply in replies:
        marks = [False] * len(reply)
        for start in range(len(reply) - run + 1):
            if tuple(reply[start : start + run]) in known:
                marks[start : start + run] = [True] * run
        copied += sum(marks)
        total += len(reply)
    return copied / total if total else 0.0
