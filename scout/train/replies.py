"""Sampled replies: how they are made by whichever sampler the run has, and what each of them earns.

A reply is read from its token ids. TRL's own text drops special tokens, and with them the knowledge whether it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec
import torch

from scout.config import Recipe
from scout.reply import Reply, parse_reply
from scout.reward import reward
from scout.train import sampler

Draw = Callable[[Sequence[Sequence[int]], int, float], list[list[int]]]
"""(prompts as ids, replies for each, temperature) -> replies as ids, those of one prompt next to each other."""


class Graded(msgspec.Struct, frozen=True):
    """A sampled reply and what it earns."""

    text: str
    ended: bool
    reply: Reply
    reward: float


class Grader:
    """Reads replies and rewards them as the recipe says."""

    def __init__(self, recipe: Recipe, tokenizer: Any, ends: Sequence[int]) -> None:
        self.recipe, self.tokenizer, self.ends = recipe, tokenizer, frozenset(ends)

    def grade(self, ids: Sequence[int], gold: Mapping[int, str], *, name: str | None = None) -> Graded:
        """The reply with those ids to a prompt that showed the steps of `gold`. An unfinished one earns 0.

        name: reward to use instead of the recipe's, without its localisation term; for choosing a checkpoint.
        """
        ended = bool(ids) and ids[-1] in self.ends
        text = self.tokenizer.decode(list(ids[:-1] if ended else ids), skip_special_tokens=False)
        reply = parse_reply(text, list(gold), ended)
        section = self.recipe.scout
        earned = reward(
            reply,
            gold,
            name=name or section.reward,
            w=section.w,
            localisation=0.0 if name else section.localisation,
        )
        return Graded(text, ended, reply, earned if earned is not None and ended else 0.0)


def drawer(trainer: Any, limit_tokens: int) -> Draw:
    """How this trainer's model is sampled outside its own steps: vLLM where the run has it, else on the spot.

    vLLM always samples at the recipe's temperature; the temperature given to the function is for the others.
    """
    if trainer.args.use_vllm:

        def from_vllm(prompts: Sequence[Sequence[int]], replies: int, _: float) -> list[list[int]]:
            trainer.vllm_generation.sync_weights()
            repeated = [list(prompt) for prompt in prompts for _ in range(replies)]
            _, ids, _, _ = trainer.vllm_generation.generate(
                prompts=repeated, images=None, num_generations=replies, profiler=nullcontext()
            )
            return list(ids)

        return from_vllm
    tokenizer, ends = trainer.processing_class, trainer.eos_token_ids
    rows_at_once = trainer.args.generation_batch_size

    def here(prompts: Sequence[Sequence[int]], replies: int, temperature: float) -> list[list[int]]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        make = sampler.sample if sampler.supports(model) else _generate
        some = max(1, rows_at_once // replies)
        made: list[list[int]] = []
        for start in range(0, len(prompts), some):
            made += make(
                model,
                prompts[start : start + some],
                replies=replies,
                limit_tokens=limit_tokens,
                ends=ends,
                pad=tokenizer.pad_token_id,
                temperature=temperature,
            )
        return made

    return here


@torch.inference_mode()
def _generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    replies: int,
    limit_tokens: int,
    ends: Sequence[int],
    pad: int,
    temperature: float,
) -> list[list[int]]:
    """`sampler.sample` by transformers' own `generate`, for models that ours does not serve."""
    was_training = model.training
    model.eval()
    rows = [list(prompt) for prompt in prompts for _ in range(replies)]
    longest = max(map(len, rows))
    ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows], device=model.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=model.device)
    how = (
        {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature
        else {"do_sample": False}
    )
    output = model.generate(
        ids, attention_mask=mask, max_new_tokens=limit_tokens, eos_token_id=list(ends), pad_token_id=pad, **how
    )
    model.train(was_training)
    return [_until_end(row, frozenset(ends)) for row in output[:, longest:].tolist()]


def _until_end(ids: list[int], ends: frozenset[int]) -> list[int]:
    place = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return ids[: place + 1]
