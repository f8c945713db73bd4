"""Small byte-level BPE tokenizers with the control tokens and chat templates of the models that Scout is made for."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SMOLLM2_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>"),
    *("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>"),
    *("<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>"),
)

SMOLLM2_MISSING = frozenset("ùĄÀÁöüñĖûĔÿ÷Ćēòĝõúýøþ")
"""Bytes (as byte-level BPE writes them) that SmolLM2 has no token for and reads as `<|endoftext|>`."""

QWEN3_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
QWEN3_PLAIN_TOKENS = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)
"""Added tokens of Qwen3 that are not special: decoding keeps them, and yet text can turn into them."""

NAMES = ("tiny", "smollm2", "qwen3", "qwen3-thinking", "qwen3.5-thinking", "qwen3-instruct")

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_TEXTS = [
    "[1] I look around the room. This step is correct.\n[2] I open the door. This step is incorrect.\n",
    "Verdicts:\nStep 1: correct\nStep 2: incorrect\nVerdict: Yes\nVerdict: No\nState: the door is open\n",
    "Task: find the key\ndo: look()\ngot: a room with 3 doors, 12 tokens cut\nJudge steps 1 to 9.",
] * 20


def trl_template(name: str) -> str:
    """A chat template that TRL ships, read as a file: importing TRL takes seconds."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


def qwen3_thinking_2507() -> str:
    """Template of Qwen3-4B-Thinking-2507: that of Qwen3, with the think tag opened in the generation prompt."""
    head, _, _ = trl_template("qwen3").rpartition("{%- if add_generation_prompt %}")
    return head + "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}"


@functools.cache
def build(name: str) -> PreTrainedTokenizerFast:
    """One of NAMES. The vocabularies are small and trained here; control tokens and templates are the models' own."""
    if name == "tiny":
        return _train(CHATML, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), (), pad="<|endoftext|>")
    if name == "smollm2":
        return _train(SMOLLM2, SMOLLM2_TOKENS, (), pad="<|im_end|>", missing=SMOLLM2_MISSING)
    template = {
        "qwen3": lambda: trl_template("qwen3"),
        "qwen3-thinking": qwen3_thinking_2507,
        "qwen3.5-thinking": lambda: trl_template("qwen3_5_think"),
        "qwen3-instruct": lambda: trl_template("qwen3_instruct_2507"),
    }[name]()
    return _train(template, QWEN3_TOKENS, QWEN3_PLAIN_TOKENS, pad="<|endoftext|>")


def _train(
    template: str, special: tuple[str, ...], plain: tuple[str, ...], pad: str, missing: frozenset[str] = frozenset()
) -> PreTrainedTokenizerFast:
    """missing: bytes without a token, which become the first special token."""
    tokenizer = Tokenizer(models.BPE(unk_token=special[0] if missing else None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - missing)
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=template, eos_token="<|im_end|>", pad_token=pad
    )
