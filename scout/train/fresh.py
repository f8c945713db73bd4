"""A tiny model from scratch: Qwen3 architecture, random weights, its own byte-level BPE trained on the rows' texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from scout.config import FreshModel

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
_LABELS = "\nStep 1: correct\nStep 2: incorrect\nVerdict: Yes\nVerdict: No"
_LABEL_REPEATS = 10_000
"""The label words must become single tokens, however small the vocabulary is and however rare they are in the rows."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most that size whose label words are single tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    def corpus() -> Iterable[str]:
        yield from texts
        yield from (_LABELS for _ in range(_LABEL_REPEATS))

    tokenizer.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens=[START],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def make_model(shape: FreshModel, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A model of that shape with random weights that fits the tokenizer."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=32,
        max_position_embeddings=shape.positions,
        initializer_range=shape.init_std,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def write_fresh(folder: Path, shape: FreshModel, texts: Iterable[str], seed: int) -> None:
    """Write tokenizer and random weights as a model folder."""
    tokenizer = train_tokenizer(texts, shape.vocabulary)
    make_model(shape, tokenizer, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
