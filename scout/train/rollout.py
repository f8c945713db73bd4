"""What TRL's GRPOTrainer calls back: the reward of a batch of replies, and the sampling of replies without vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from trl import GRPOTrainer

from scout.train import guards
from scout.train.guards import Sample
from scout.train.replies import Draw, Grader, drawer
from scout.train.rows import Prepared
from scout.train.signs import copied_share, signs
from scout.train.stage import Stage

Messages = list[dict[str, str]]


def reward_function(stage: Stage, samples: list[Sample]) -> Callable[..., list[float]]:
    """TRL's reward function; it also leaves a few of the batch's replies in `samples`."""
    grader: Grader | None = None
    prompts = {item.row.id: item.ids[: item.prompt_length] for item in stage.train}

    def scout(
        completion_ids: Sequence[Sequence[int]],
        row_id: Sequence[str],
        indices: Sequence[Sequence[int]],
        gold: Sequence[Sequence[str]],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float]:
        nonlocal grader
        grader = grader or Grader(stage.recipe, stage.tokenizer, _ends(stage))
        known = [dict(zip(steps, labels, strict=True)) for steps, labels in zip(indices, gold, strict=True)]
        graded = [grader.grade(ids, labels) for ids, labels in zip(completion_ids, known, strict=True)]
        log_metric("readable", sum(item.reply.readable for item in graded) / len(graded))
        for name, value in signs(graded, known).items():
            log_metric(name, value)
        log_metric("copied", _copied(prompts, row_id, completion_ids))
        samples[:] = [
            Sample(row, item.reward, item.ended, item.reply.problem, item.text)
            for row, item in list(zip(row_id, graded, strict=True))[:: max(1, len(graded) // guards.SHOWN_REPLIES)]
        ]
        return [item.reward for item in graded]

    return scout


def _copied(
    prompts: Mapping[str, Sequence[int]], row_id: Sequence[str], completion_ids: Sequence[Sequence[int]]
) -> float:
    """Mean over the prompts of the batch of `copied_share`."""
    replies: dict[str, list[Sequence[int]]] = {}
    for row, ids in zip(row_id, completion_ids, strict=True):
        replies.setdefault(row, []).append(ids)
    return sum(copied_share(prompts[row], some) for row, some in replies.items()) / len(replies)


def _ends(stage: Stage) -> list[int]:
    """The end tokens that TRL goes by: the tokenizer's and all that the model declares."""
    declared = stage.model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or [])
    return [*ends, stage.tokenizer.eos_token_id]


def rollout_function(stage: Stage) -> Callable[[list[Messages], GRPOTrainer], dict[str, Any]]:
    """TRL's rollout function over `sampler`: each prompt is read once for all of its replies."""
    prompts = {_key(item.row.messages): item for item in stage.train}

    def rollout(repeated: list[Messages], trainer: GRPOTrainer) -> dict[str, Any]:
        draw = drawer(trainer, stage.recipe.scout.completion_tokens)
        groups = [(prompts[key], len(list(group))) for key, group in groupby(repeated, key=_key)]
        sizes = {size for _, size in groups}
        if len(sizes) > 1:  # several processes cut a batch anywhere
            groups, sizes = [(item, 1) for item, size in groups for _ in range(size)], {1}
        items, replies = [item for item, _ in groups], sizes.pop()
        ids = draw(prompt_ids(items), replies, stage.recipe.scout.temperature)
        if stage.recipe.scout.dynamic_sampling and replies > 1:
            items, ids = _replace_flat(stage, trainer, draw, items, ids, replies)
        rows = [item for item in items for _ in range(replies)]
        return {
            "prompt_ids": prompt_ids(rows),
            "completion_ids": ids,
            "logprobs": None,
            "row_id": [item.row.id for item in rows],
            "indices": [list(item.row.indices) for item in rows],
            "gold": [list(item.row.gold) for item in rows],
        }

    return rollout


def _key(messages: Messages) -> tuple[tuple[str, str], ...]:
    return tuple((turn["role"], turn["content"]) for turn in messages)


def prompt_ids(items: Sequence[Prepared]) -> list[list[int]]:
    """The prompts alone."""
    return [list(item.ids[: item.prompt_length]) for item in items]


def _replace_flat(
    stage: Stage, trainer: GRPOTrainer, draw: Draw, items: list[Prepared], ids: list[list[int]], replies: int
) -> tuple[list[Prepared], list[list[int]]]:
    """Groups whose rewards are all equal, replaced by groups of other prompts with spread: one more try for each."""
    grader = Grader(stage.recipe, stage.tokenizer, trainer.eos_token_ids)

    def spread(item: Prepared, group: list[list[int]]) -> bool:
        return guards.spread_share([grader.grade(reply, item.row.labels).reward for reply in group], replies) > 0

    grouped = [ids[start : start + replies] for start in range(0, len(ids), replies)]
    flat = [place for place, item in enumerate(items) if not spread(item, grouped[place])]
    if not flat:
        return items, ids
    others = [stage.train[place] for place in torch.randint(len(stage.train), (len(flat),)).tolist()]
    drawn = draw(prompt_ids(others), replies, stage.recipe.scout.temperature)
    for order, (place, item) in enumerate(zip(flat, others, strict=True)):
        group = drawn[order * replies : (order + 1) * replies]
        if spread(item, group):
            items[place], grouped[place] = item, group
    return items, [reply for group in grouped for reply in group]
