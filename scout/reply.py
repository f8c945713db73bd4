"""Reading a verifier's reply: paragraphs, carried state, block and last line, in one pass over its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from scout.errors import shown

_PARAGRAPH = re.compile(r"\[([0-9]+)\](?:\s|$)")
_BLOCK_LINE = re.compile(r"Step ([0-9]+): (correct|incorrect)")
_LAST_LINE = re.compile(r"Verdict: (Yes|No)")
_HEADER = "Verdicts:"
_STATE = "State:"
_CLOSING = {"incorrect": "This step is incorrect.", "correct": "This step is correct."}
_INDEX_DIGITS = 9
"""A longer index is out of range whatever it is; int() of a very long one would be slow."""


class Reply(msgspec.Struct, frozen=True):
    """What stands in a reply. When it is not readable, the parts hold whatever was found before the problem."""

    readable: bool
    """It ended by itself, every index was shown and occurs once, and the block and the last line are there."""
    problem: str | None
    """First reason why it is not readable."""
    paragraphs: dict[int, str]
    """Step index -> reasoning, without its closing sentence."""
    paragraph_labels: dict[int, str]
    """Step index -> correct or incorrect, for paragraphs with a closing sentence."""
    block: dict[int, str]
    """Step index -> correct or incorrect; a step that is missing here was not judged."""
    last: Literal["Yes", "No"] | None
    state: str | None
    """What the verifier carries on to its next window."""
    contradictions: tuple[str, ...]


class _Parts:
    """The parts of one reply while they are collected."""

    def __init__(self, indices: Sequence[int]) -> None:
        self.allowed = frozenset(indices)
        self.problems: list[str] = []
        self.paragraphs: dict[int, str] = {}
        self.labels: dict[int, str] = {}
        self.contradictions: list[str] = []
        self.block: dict[int, str] = {}
        self.last: Literal["Yes", "No"] | None = None
        self.state: str | None = None

    def index(self, digits: str, taken: dict[int, str], place: str) -> int | None:
        """The index if it may stand here, else None and a problem."""
        number = int(digits) if len(digits) <= _INDEX_DIGITS else None
        if number not in self.allowed:
            self.problems.append(f"step {digits[:20]} in the {place} was not shown")
            return None
        if number in taken:
            self.problems.append(f"step {number} is twice in the {place}")
            return None
        return number


def parse_reply(text: str, indices: Sequence[int], ended: bool) -> Reply:
    """What stands in a reply to a prompt that showed the steps `indices` (1-based, absolute).

    ended: whether the model ended by itself; a reply that ran into its limit is not readable.
    Takes time linear in the length of the text, whatever the text is.
    """
    parts = _Parts(indices)
    if not ended:
        parts.problems.append("the reply did not end by itself")
    thinking, _, answer = text.rpartition("</think>")
    thoughts = [line.rstrip() for line in thinking.removeprefix("<think>").split("\n")] if thinking else []
    answer_lines = [line.rstrip() for line in answer.split("\n")]
    if text.count("</think>") > 1:
        parts.problems.append("</think> stands there more than once")
    start = answer_lines.index(_HEADER) if _HEADER in answer_lines else len(answer_lines)
    before = answer_lines[:start]
    # Thoughts may draft a block; in front of the block of the answer itself a second one would be ambiguous.
    for line in before:
        if _BLOCK_LINE.fullmatch(line) or _LAST_LINE.fullmatch(line):
            parts.problems.append(f"{shown(line)} stands before the line {_HEADER!r}")
    _read_analysis(parts, [*thoughts, *before])
    if start == len(answer_lines):
        parts.problems.append(f"there is no line {_HEADER!r}")
    else:
        _read_block(parts, answer_lines[start + 1 :])
    contradictions = (*parts.contradictions, *_disagreements(parts))
    problem = parts.problems[0] if parts.problems else None
    return Reply(
        problem is None, problem, parts.paragraphs, parts.labels, parts.block, parts.last, parts.state, contradictions
    )


def _read_analysis(parts: _Parts, lines: Sequence[str]) -> None:
    index: int | None = None
    collected: list[str] = []
    for line in lines:
        start = _PARAGRAPH.match(line)
        if start:
            # A state line stands after the last paragraph, so the one seen so far was only part of a paragraph.
            if parts.state is not None:
                collected.append(f"{_STATE} {parts.state}")
            parts.state = None
            _close_paragraph(parts, index, collected)
            index = parts.index(start[1], parts.paragraphs, "analysis")
            collected = [line[start.end() :]]
        elif line.startswith(_STATE):
            parts.state = line.removeprefix(_STATE).strip()
        elif parts.state is None:
            collected.append(line)
    _close_paragraph(parts, index, collected)


def _close_paragraph(parts: _Parts, index: int | None, collected: Sequence[str]) -> None:
    if index is None:
        return
    text = "\n".join(collected).strip()
    for label, closing in _CLOSING.items():
        if text.endswith(closing):
            parts.labels[index] = label
            text = text.removesuffix(closing).rstrip()
            break
    judged = parts.labels.get(index)
    for label, closing in _CLOSING.items():
        if judged is not None and label != judged and closing in text:
            parts.contradictions.append(f"step {index}: the paragraph says both {label} and {judged}")
    parts.paragraphs[index] = text


def _read_block(parts: _Parts, lines: Sequence[str]) -> None:
    for line in lines:
        if not line:
            continue
        if parts.last is not None:
            parts.problems.append(f"{shown(line)} stands after the last line")
            return
        if step := _BLOCK_LINE.fullmatch(line):
            index = parts.index(step[1], parts.block, "block")
            if index is not None:
                parts.block[index] = step[2]
        elif last := _LAST_LINE.fullmatch(line):
            parts.last = "Yes" if last[1] == "Yes" else "No"
        else:
            parts.problems.append(f"{shown(line)} stands in the block")
    if parts.last is None:
        parts.problems.append("there is no last line 'Verdict: Yes' or 'Verdict: No'")


def _disagreements(parts: _Parts) -> list[str]:
    found = [
        f"step {index}: the paragraph says {label}, the block {parts.block[index]}"
        for index, label in parts.labels.items()
        if parts.block.get(index, label) != label
    ]
    incorrect = sorted(index for index, label in parts.block.items() if label == "incorrect")
    if parts.last == "Yes" and incorrect:
        found.append(f"the last line says Yes, the block says that step {incorrect[0]} is incorrect")
    if parts.last == "No" and not incorrect:
        found.append("the last line says No, the block holds no incorrect step")
    return found
