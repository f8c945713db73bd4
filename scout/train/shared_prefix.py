"""GRPO log-probabilities with each prompt read once for all of its replies, forward and backward: P + G * C tokens
instead of G * (P + C).

TRL gives every reply a row with its own copy of the prompt. Here the replies of a micro-batch to one prompt stand
behind it in one packed row (`prefix_attention`). Loss, advantages, head and everything else stay TRL's; the results
are TRL's within rounding, and tests hold that. The idea is known as Prefix Grouper (arXiv 2506.05433).

Two methods of TRL are replaced: that of the log-probabilities, and the shuffling of rows over micro-batches, which
keeps the replies to a prompt together here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from accelerate.utils import is_peft_model
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from scout.train import prefix_attention
from scout.train.prefix_attention import KEYWORD, Group, Layout
from scout.train.progress import say

_CHECKED = 1e-3
"""Largest difference of a log-probability between both ways in the check at the start, in float32."""


class SharedPrefixTrainer(GRPOTrainer):
    """TRL's GRPOTrainer; micro-batches that hold several replies to a prompt read it once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what GRPOTrainer takes. Says once, with the reason, when prompts are not shared after all."""
        super().__init__(*args, **kwargs)
        self._said: set[str] = set()
        reasons = (self._install(model) for model in (self.model, self.ref_model) if model is not None)
        self.not_shared: str | None = next(filter(None, reasons), None)
        """Why prompts are not shared; None when they are."""
        if self.aux_loss_enabled:
            self.not_shared = "the loss that balances experts counts every copy of a prompt"
        if self.not_shared:
            self._say(self.not_shared)

    def _install(self, model: Any) -> str | None:
        causal = _causal(self.accelerator.unwrap_model(model))
        return prefix_attention.install(causal) or check(causal)

    def _say(self, reason: str) -> None:
        if reason not in self._said and self.accelerator.is_main_process:
            self._said.add(reason)
            say(f"grpo: prompts are NOT shared by their replies, each is computed once for every reply: {reason}")

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        with _groups_together():
            return super()._prepare_inputs(generation_batch)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **inputs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        size = batch_size or len(input_ids)
        chunks = [
            pack(input_ids[start : start + size], attention_mask[start : start + size], logits_to_keep)
            for start in range(0, len(input_ids), size)
        ]
        reason = self.not_shared
        if reason is None and any(value is not None for value in inputs.values()):
            reason = "the batch holds more than text"
        if reason is None and all(len(packed.layout.groups) == len(packed.rows) for packed in chunks):
            reason = (
                f"no micro-batch of {size} holds two replies to a prompt; set trainer.per_device_train_batch_size to "
                f"{self.num_generations} (trainer.num_generations) or a part of it"
            )
        if reason is not None:
            self._say(reason)
            return super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **inputs,
            )
        results = []
        for packed in chunks:
            with self.accelerator.autocast():
                results.append(forward(model, packed, logits_to_keep))
        logps = torch.cat([result[0] for result in results])
        entropies = torch.cat([result[1] for result in results]) if compute_entropy else None
        return logps, entropies, None


def _causal(model: Any) -> PreTrainedModel:
    return model.get_base_model() if is_peft_model(model) else model


class Packed(NamedTuple):
    """A micro-batch as one row."""

    ids: torch.Tensor
    """(1, N)"""
    positions: torch.Tensor
    """(1, N): a reply goes on from its prompt."""
    labels: torch.Tensor
    """(1, M): the token that each place of `layout.predicting` predicts."""
    layout: Layout
    rows: torch.Tensor
    """(B,): rows of the batch in the order of the packed replies."""
    lengths: tuple[int, ...]
    """Tokens of those replies; they sum up to M."""


def pack(input_ids: torch.Tensor, attention_mask: torch.Tensor, reply_tokens: int) -> Packed:
    """The rows (B, S) of left-padded prompts and right-padded replies as one row without padding.

    reply_tokens: length of the part of S that holds replies. The last token of a reply predicts nothing and is left
    out.
    """
    device = input_ids.device
    split = input_ids.shape[1] - reply_tokens
    prompt_mask, lengths = attention_mask[:, :split].bool(), attention_mask[:, split:].sum(dim=1).tolist()
    groups, ids, positions, labels, predicting, order = [], [], [], [], [], []
    at = 0
    for rows in same_prompts(input_ids[:, :split], prompt_mask):
        prompt = input_ids[rows[0], :split][prompt_mask[rows[0]]]
        rows = sorted(rows, key=lambda row: lengths[row] < 2)  # those without a token to run stand at the end
        start, at = at, at + len(prompt)
        ids.append(prompt)
        positions.append(torch.arange(len(prompt), device=device))
        for row in rows:
            reply = input_ids[row, split : split + lengths[row]]
            run = max(0, lengths[row] - 1)
            ids.append(reply[:run])
            positions.append(torch.arange(len(prompt), len(prompt) + run, device=device))
            labels.append(reply)
            if lengths[row]:
                predicting += [start + len(prompt) - 1, *range(at, at + run)]
            at += run
        groups.append(Group(start, len(prompt), tuple(lengths[row] - 1 for row in rows if lengths[row] > 1)))
        order += rows
    return Packed(
        torch.cat(ids)[None],
        torch.cat(positions)[None],
        torch.cat(labels)[None],
        Layout(groups, torch.tensor(predicting, dtype=torch.long, device=device)),
        torch.tensor(order, device=device),
        tuple(lengths[row] for row in order),
    )


def same_prompts(prompt_ids: torch.Tensor, prompt_mask: torch.Tensor) -> list[list[int]]:
    """Rows of a batch that hold the same prompt, in order of first appearance."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, (ids, mask) in enumerate(zip(prompt_ids.tolist(), prompt_mask.tolist(), strict=True)):
        rows.setdefault(tuple(token for token, real in zip(ids, mask, strict=True) if real), []).append(row)
    return list(rows.values())


def forward(model: Any, packed: Packed, reply_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities, entropies) of the replies' tokens, both (B, reply_tokens) in the order of the batch.

    model: with TRL's fused head and `prefix_attention.install`, wrapped or not. Places behind a reply's end are 0.
    """
    output = model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        attention_mask=packed.ids.new_zeros(1, 1, 1, 1),  # a mask of four dimensions is passed on as it is, unused
        shift_labels=packed.labels,
        fused_lm_head=True,
        **{KEYWORD: packed.layout},
    )
    entropy = output.log_probs.detach().new_zeros(output.log_probs.shape) if output.entropy is None else output.entropy
    return _unpacked(output.log_probs[0], packed, reply_tokens), _unpacked(entropy[0], packed, reply_tokens)


def _unpacked(values: torch.Tensor, packed: Packed, reply_tokens: int) -> torch.Tensor:
    lengths = torch.tensor(packed.lengths, device=values.device)
    real = torch.arange(reply_tokens, device=values.device)[None] < lengths[:, None]
    batch = values.new_zeros(real.shape).masked_scatter(real, values)
    return batch[packed.rows.argsort()]


@contextmanager
def _groups_together() -> Iterator[None]:
    """While this holds, TRL shuffles groups over micro-batches, not rows."""
    before = grpo_trainer.shuffle_sequence_dict
    grpo_trainer.shuffle_sequence_dict = shuffle_groups
    try:
        yield
    finally:
        grpo_trainer.shuffle_sequence_dict = before


def shuffle_groups(batch: dict[str, Any]) -> dict[str, Any]:
    """TRL's `shuffle_sequence_dict`, but replies to one prompt stay neighbours. Draws as many random numbers."""
    prompts = same_prompts(batch["prompt_ids"], batch["prompt_mask"].bool())
    group_of = {row: number for number, rows in enumerate(prompts) for row in rows}
    drawn = torch.randperm(len(batch["prompt_ids"])).tolist()
    first: dict[int, int] = {}
    for place, row in enumerate(drawn):
        first.setdefault(group_of[row], place)
    order = sorted(drawn, key=lambda row: first[group_of[row]])
    return {key: _permuted(value, order) for key, value in batch.items()}


def _permuted(value: Any, order: Sequence[int]) -> Any:
    if value is None or (isinstance(value, torch.Tensor) and value.ndim == 0):
        return value
    return value[order] if isinstance(value, torch.Tensor) else [value[row] for row in order]


@torch.no_grad()
def check(model: PreTrainedModel) -> str | None:
    """Why both ways of computing differ on this model, or None: two replies to one prompt, a few random tokens.

    A model may put tokens into places by other means than position ids; then sharing would be wrong and is refused.
    """
    device = model.device
    if device.type == "meta" or hasattr(model, "hf_device_map"):
        return None
    draw = torch.Generator().manual_seed(0)
    limit = model.config.get_text_config().vocab_size
    prompt = torch.randint(limit, (1, 12), generator=draw).expand(2, -1)
    rows = torch.cat([prompt, torch.randint(limit, (2, 5), generator=draw)], dim=1).to(device)
    packed = pack(rows, torch.ones_like(rows), 5)
    training = model.training
    model.eval()
    try:
        ids = {"input_ids": packed.ids, "position_ids": packed.positions}
        shared = model.base_model(
            **ids, attention_mask=packed.ids.new_zeros(1, 1, 1, 1), use_cache=False, **{KEYWORD: packed.layout}
        ).last_hidden_state[0]
        plain = model.base_model(input_ids=rows, use_cache=False).last_hidden_state[:, 11:-1].flatten(0, 1)
    finally:
        model.train(training)
    # Both are one of few roundings of the same; a wrong place or mask moves a state by its own size.
    off = (shared - plain).float().norm() / plain.float().norm()
    if not off <= max(_CHECKED, 20 * torch.finfo(model.dtype).eps):
        return f"{type(model).__name__} answers otherwise then (relative difference {float(off):.2g})"
    return None
