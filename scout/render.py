"""Chat messages -> token ids, the reply's mask, and where the label tokens of a reply stand.

One function renders prompts for training, scoring and measuring, so a length that was measured is the length that is
sent. The reply is checked against the full rendering of the tokenizer's own template, row by row.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from scout.errors import InputError
from scout.prompt import style as prompt_style

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = Sequence[Mapping[str, str]]

THINK, UNTHINK = "<think>\n", "\n</think>\n\n"
"""How Qwen3's templates set off the analysis (TRL 1.16, chat_templates/qwen3*.jinja)."""

FINGERPRINT_CHARACTERS = 16


class Rendered(msgspec.Struct, frozen=True):
    """A training row: prompt, reply and end token. The loss covers `ids[prompt_length:]` and nothing else."""

    ids: tuple[int, ...]
    prompt_length: int


class LabelIds(msgspec.Struct, frozen=True):
    """Token ids of the words whose probabilities are read, each with its leading space."""

    correct: int
    incorrect: int
    yes: int
    no: int


class LabelPositions(msgspec.Struct, frozen=True):
    """Positions, in the reply's token ids, of the tokens that are a label. A label of several tokens is not listed."""

    closing: dict[int, int]
    """Step index -> the label in the closing sentence of its paragraph."""
    block: dict[int, int]
    """Step index -> the label in its line of the block."""
    last: int | None
    """Yes or No of the last line."""


def render_prompt(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> list[int]:
    """Token ids of the prompt, up to where the reply begins.

    Raises InputError when a message holds a control token of this tokenizer: `prompt.messages` leaves none.
    """
    _refuse_controls(tokenizer, [message["content"] for message in messages], "prompt")
    return _encode(tokenizer, _template(tokenizer, messages, generation=True))


def render_row(
    tokenizer: PreTrainedTokenizerBase, messages: Messages, completion: str, *, row: str = "row"
) -> Rendered:
    """Prompt, reply and end token of one training row.

    completion: reply in the form of `prompt.reply_text`; a thinking template gets its analysis inside the think tags.
    row: name of the row for messages. Raises InputError when prompt and reply are not a prefix of the full rendering.
    """
    _refuse_controls(tokenizer, [completion], row)
    prompt_ids = render_prompt(tokenizer, messages)
    prompt = _template(tokenizer, messages, generation=True)
    content, reply = _reply(tokenizer, completion, row)
    full = _template(tokenizer, [*messages, {"role": "assistant", "content": content}], generation=False)
    if not full.startswith(prompt + reply):
        raise InputError(
            f"{row}: the chat template renders prompt and reply together differently from the prompt alone, so the "
            f"loss would cover the wrong tokens. Found {full[len(prompt) - 20 :][:80]!r} where {reply[:40]!r} should "
            f"follow {prompt[-20:]!r}. Use a template that keeps prefixes (TRL ships training templates)."
        )
    full_ids = _encode(tokenizer, full)
    both = [*prompt_ids, *_encode(tokenizer, reply)]
    length = len(both)
    ids = (*both, *full_ids[length : length + 1])
    if tuple(full_ids[: len(ids)]) != ids:
        first = next((place for place, pair in enumerate(zip(ids, full_ids, strict=False)) if pair[0] != pair[1]), -1)
        raise InputError(
            f"{row}: prompt and reply do not tokenise separately as they do together (token {first} of {len(ids)}, "
            f"prompt {len(prompt_ids)}). No token may span the end of the prompt: check the template's last characters."
        )
    if len(ids) == length or ids[-1] not in tokenizer.added_tokens_decoder:
        raise InputError(
            f"{row}: the chat template ends the reply with no end token, so a model could not learn to stop."
        )
    return Rendered(ids, len(prompt_ids))


def measure(tokenizer: PreTrainedTokenizerBase) -> Callable[[Messages], int]:
    """Function that gives the length of a rendered prompt in tokens, for `budget.fit`."""
    return lambda messages: len(render_prompt(tokenizer, messages))


def counter(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], int]:
    """Function that counts the tokens of a text, for `budget.fit`."""
    return lambda text: len(_encode(tokenizer, text))


def label_ids(tokenizer: PreTrainedTokenizerBase) -> LabelIds:
    """Ids of the label words. Raises InputError when one is not a single token in its place in a reply (P29)."""
    places = {
        " correct": ("Step 1: correct", "[1] x This step is correct."),
        " incorrect": ("Step 1: incorrect", "[1] x This step is incorrect."),
        " Yes": ("Verdict: Yes",),
        " No": ("Verdict: No",),
    }
    ids: list[int] = []
    for word, texts in places.items():
        alone = _encode(tokenizer, word)
        if len(alone) != 1 or any(alone[0] not in _encode(tokenizer, text)[-2:] for text in texts):
            raise InputError(
                f"the tokenizer splits the label {word!r} ({len(alone)} tokens alone), so its probability cannot be "
                f"read from one token. Use a tokenizer in which {', '.join(map(repr, places))} are one token each."
            )
        ids.append(alone[0])
    return LabelIds(*ids)


def fingerprint(
    tokenizer: PreTrainedTokenizerBase, prompt_version: str, style: str, window_steps: int, task_tokens: int
) -> str:
    """Hex digest of what a model's scores depend on besides its weights: template, prompt text, labels, budget.

    style: key of `prompt.STYLES`. Two models with the same fingerprint can be asked in the same way.
    """
    chosen = prompt_style(style)
    parts = [
        tokenizer.get_chat_template(),
        [prompt_version, chosen.name, chosen.system, chosen.closing],
        list(msgspec.structs.astuple(label_ids(tokenizer))),
        [window_steps, task_tokens],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:FINGERPRINT_CHARACTERS]


def label_positions(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], indices: Sequence[int]
) -> LabelPositions:
    """Where the labels of the steps `indices` stand in a reply, read in the grammar of `reply.parse_reply`.

    Works on the tokens as they were generated, never on a second tokenisation. An index that occurs twice is left out.
    """
    pieces = _pieces(tokenizer)
    texts = [pieces[token] if token in pieces else _piece(tokenizer, pieces, token) for token in token_ids]
    text = "".join(texts)
    starts = list(accumulate(map(len, texts), initial=0))

    def place(character: int, label: str) -> int | None:
        found = bisect_right(starts, character) - 1
        return found if texts[found].strip() == label else None

    answer = text.rfind("</think>") + 1
    header = _HEADER.search(text, answer)
    block_start = header.start() if header else len(text)
    closing = _once((index, place(start, label)) for index, start, label in _closings(text, block_start))
    block = _once((int(match[1]), place(match.start(2), match[2])) for match in _BLOCK_LINE.finditer(text, block_start))
    last = _LAST.search(text, block_start)
    return LabelPositions(
        {index: closing[index] for index in indices if index in closing},
        {index: block[index] for index in indices if index in block},
        place(last.start(1), last[1]) if last else None,
    )


# Spaces are optional: some tokenizers lose them when tokens are decoded one by one.
_HEADER = re.compile(r"^Verdicts:[ \t]*$", re.MULTILINE)
_BLOCK_LINE = re.compile(r"^Step ?([0-9]{1,9}): ?(correct|incorrect)[ \t]*$", re.MULTILINE)
_LAST = re.compile(r"^Verdict: ?(Yes|No)\s*\Z", re.MULTILINE)
_PARAGRAPH = re.compile(r"^\[([0-9]{1,9})\](?=\s|$)", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"^State:|</think>", re.MULTILINE)
_CLOSING = re.compile(r"This ?step ?is ?(correct|incorrect)\.\Z")
_CLOSING_CHARACTERS = len("This step is incorrect.")


def _closings(text: str, stop: int) -> Iterator[tuple[int, int, str]]:
    """Step index, position of the label and label of each paragraph that ends in a closing sentence."""
    starts = [(match.start(), int(match[1])) for match in _PARAGRAPH.finditer(text, 0, stop)]
    ends = [*(start for start, _ in starts[1:]), stop]
    for (start, index), end in zip(starts, ends, strict=False):
        other = _PARAGRAPH_END.search(text, start, end)
        paragraph = text[start : other.start() if other else end].rstrip()
        found = _CLOSING.search(paragraph, max(0, len(paragraph) - _CLOSING_CHARACTERS))
        if found:
            yield index, start + found.start(1), found[1]


def _once(found: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """Positions of the indices that occur exactly once and whose label is one token."""
    positions: dict[int, list[int | None]] = {}
    for index, position in found:
        positions.setdefault(index, []).append(position)
    return {index: seen[0] for index, seen in positions.items() if len(seen) == 1 and seen[0] is not None}


_PIECES: WeakKeyDictionary[object, dict[int, str]] = WeakKeyDictionary()
_CONTROLS: WeakKeyDictionary[object, re.Pattern[str]] = WeakKeyDictionary()
_THINKING: WeakKeyDictionary[object, tuple[object, bool, bool]] = WeakKeyDictionary()
"""Template -> what `_thinking` found of it; rendering two probes for every row costs as much as the row."""


def _pieces(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Text of the tokens seen so far; special tokens have none."""
    if tokenizer not in _PIECES:
        _PIECES[tokenizer] = dict.fromkeys(tokenizer.all_special_ids, "")
    return _PIECES[tokenizer]


def _piece(tokenizer: PreTrainedTokenizerBase, pieces: dict[int, str], token: int) -> str:
    piece: str = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    pieces[token] = piece
    return piece


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return ids


def _template(tokenizer: PreTrainedTokenizerBase, messages: Messages, *, generation: bool) -> str:
    if not tokenizer.chat_template:
        raise InputError(
            "the tokenizer has no chat template, so a prompt cannot be rendered. Set tokenizer.chat_template."
        )
    text: str = tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=generation
    )
    return text


def _reply(tokenizer: PreTrainedTokenizerBase, completion: str, row: str) -> tuple[str, str]:
    """Content of the assistant's message, and the text that follows the prompt: the same but for a tag already open."""
    opened, thinks = _thinking(tokenizer)
    if not thinks:
        return completion, completion
    analysis, header, block = f"\n{completion}".rpartition("\nVerdicts:\n")
    if not header:
        raise InputError(f"{row}: the reply has no line 'Verdicts:', so its analysis cannot be set off as thinking.")
    analysis = f"{analysis.strip()}{UNTHINK}{header.lstrip()}{block}"
    return THINK + analysis, analysis if opened else THINK + analysis


def _thinking(tokenizer: PreTrainedTokenizerBase) -> tuple[bool, bool]:
    """Whether the prompt of this template opens the think tag, and whether its replies have one at all."""
    template = tokenizer.chat_template
    known = _THINKING.get(tokenizer)
    if known is None or known[0] != template:
        probe: Messages = [{"role": "user", "content": "?"}]
        prompt = _template(tokenizer, probe, generation=True)
        full = _template(tokenizer, [*probe, {"role": "assistant", "content": "!"}], generation=False)
        opened = prompt.endswith(THINK)
        known = _THINKING[tokenizer] = (template, opened, opened or UNTHINK.strip() in full[len(prompt) :])
    return known[1:]


def _refuse_controls(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], row: str) -> None:
    if tokenizer not in _CONTROLS:
        tokens = [
            str(token)
            for token in tokenizer.added_tokens_decoder.values()
            if str(token).strip() and (token.special or not str(token).strip().isalnum())
        ]
        _CONTROLS[tokenizer] = re.compile("|".join(map(re.escape, sorted(tokens))) or r"(?!)")
    for text in texts:
        found = _CONTROLS[tokenizer].search(text)
        if found:
            raise InputError(
                f"{row}: the text holds {found[0]!r}, a control token of this tokenizer, near "
                f"{text[max(0, found.start() - 30) : found.end() + 30]!r}. Pass it through neutral.neutralise."
            )
