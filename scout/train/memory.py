"""How much memory a training step will take: the real step of the real model, run on tensors without contents.

PyTorch's FakeTensorMode carries shapes, types and lifetimes through forward and backward but allocates nothing, so a
step of a 4B model at 60,000 tokens is weighed on a laptop in seconds. What is counted is tensors alone: CUDA's context,
the libraries and the allocator's spare blocks come on top (`RESERVE_SHARE`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import msgspec
import torch
from peft import get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from trl.trainer.utils import add_fused_lm_head

from scout.config import Recipe
from scout.train import model as models
from scout.train import prefix_attention, shared_prefix

GIGABYTE = 1e9
RESERVE_SHARE = 0.08
"""Of a card, what the driver, the libraries and blocks that the allocator cannot use take; of no source but habit."""


class Peak(msgspec.Struct, frozen=True):
    """Bytes of tensors at the worst moment of a training step, and what they are made of."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """All else that is alive at that moment: activations, casts of weights, tiles of logits."""
    reference: int = 0
    """A second copy of the weights that GRPO with beta above 0 compares with."""

    @property
    def total(self) -> int:
        """Their sum."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.reference


class LiveBytes(TorchDispatchMode):
    """While this holds, counts the bytes of storages that were made and are still alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and counts the storages of its results that are new."""
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.count(leaf)
        return result

    def count(self, tensor: torch.Tensor) -> None:
        """Counts the tensor's storage until it is gone."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def sft_peak(recipe: Recipe, config: PretrainedConfig, trainer: Any, lengths: Sequence[int]) -> Peak:
    """The peak of a micro-batch of rows of these lengths in tokens. trainer: TRL's SFTConfig."""

    def loss(model: PreTrainedModel) -> torch.Tensor:
        longest, rows = max(lengths), len(lengths)
        ids = torch.zeros((rows, longest), dtype=torch.long)
        # Rows of different lengths are padded, and then attention takes a mask of all pairs of places.
        padded = rows > 1 and min(lengths) < longest
        mask = torch.ones((rows, 1, longest, longest), dtype=torch.bool) if padded else None
        output = model(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False, fused_lm_head=True)
        return -output.log_probs.sum()

    return _peak(recipe, config, trainer, loss, reference=False)


def grpo_peak(
    recipe: Recipe, config: PretrainedConfig, trainer: Any, prompts: Sequence[int], replies: Sequence[int]
) -> Peak:
    """The peak of a micro-batch: one reply for each entry of `replies` to a prompt of that length in `prompts`.

    Entries with the same prompt length that stand next to each other, up to `num_generations`, share one prompt.
    trainer: TRL's GRPOConfig.
    """
    ids, mask, width = _batch(prompts, replies, trainer.num_generations)
    packed = shared_prefix.pack(ids, mask, width)

    def loss(model: PreTrainedModel) -> torch.Tensor:
        core = model.get_base_model() if hasattr(model, "get_base_model") else model
        if prefix_attention.install(core) is None:
            fake = packed._replace(
                ids=torch.zeros_like(packed.ids),
                positions=torch.zeros_like(packed.positions),
                labels=torch.zeros_like(packed.labels),
                rows=torch.zeros_like(packed.rows),
                layout=prefix_attention.Layout(packed.layout.groups, torch.zeros_like(packed.layout.predicting)),
            )
            logps, _ = shared_prefix.forward(model, fake, width)
            return logps.sum()
        every = torch.zeros(ids.shape, dtype=torch.long)
        return model(input_ids=every, labels=every, use_cache=False, fused_lm_head=True).log_probs.sum()

    return _peak(recipe, config, trainer, loss, reference=trainer.beta > 0 and not recipe.model.lora_rank)


def _batch(prompts: Sequence[int], replies: Sequence[int], group: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Left-padded prompts and right-padded replies whose ids tell groups apart; the longest reply."""
    before, after = max(prompts), max(replies)
    ids = torch.zeros((len(prompts), before + after), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        ids[row, before - prompt : before] = row // group
        mask[row, before - prompt : before + reply] = 1
    return ids, mask, after


def _peak(recipe: Recipe, config: PretrainedConfig, trainer: Any, loss: Any, *, reference: bool) -> Peak:
    dtype = getattr(torch, recipe.model.dtype)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if trainer.bf16 else nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True), LiveBytes() as live:
        model = AutoModelForCausalLM.from_config(config, attn_implementation=recipe.model.attention, dtype=dtype)
        add_fused_lm_head(model)
        adapter = models.lora(recipe, model)
        wrapped = get_peft_model(model, adapter) if adapter else model
        wrapped.train()
        if trainer.gradient_checkpointing:
            if adapter:
                model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        trained = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
        weights = _bytes(list({id(p): p for p in wrapped.parameters()}.values()))
        gradients = _bytes(trained)
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        live.peak = before = live.now
        with autocast:
            value = loss(wrapped)
        value.backward()
        activations = live.peak - before
    # AdamW keeps two averages in the type of the weights.
    return Peak(weights, gradients, 2 * gradients, activations, weights if reference else 0)
