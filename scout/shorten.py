"""Shorten one text to a number of tokens: head and tail around a visible mark, with an account of what is unseen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scout.neutral import neutralise

Count = Callable[[str], int]
"""Tokens of a text."""

Field = Literal["observation", "action", "thought", "task"]

PART_FLOOR_TOKENS = 24
"""A step's text is never cut below this, mark included: enough for a first and a last clause."""

TASK_FLOOR_TOKENS = 64

WORD_CHARACTERS = 24
"""How far a cut moves to fall between words."""


@dataclass
class Part:
    """One text of a prompt, while it is being shortened."""

    place: int
    """Position among the steps of the window; -1 for the task."""
    index: int
    """Step index; 0 for the task."""
    field: Field
    text: str
    """As it stands in the run."""
    shown: str
    """As it will stand in the prompt."""
    tokens: int = 0
    """Of `text`; an estimate when `about`."""
    shown_tokens: int = 0
    unseen: int = 0
    """Tokens of `text` that are not shown, as the mark tells; at least 1 when anything was cut."""
    about: bool = False

    @property
    def floor(self) -> int:
        """Tokens below which the text is not cut."""
        return TASK_FLOOR_TOKENS if self.field == "task" else PART_FLOOR_TOKENS

    def line(self) -> str:
        """Line of the ledger."""
        name = "task" if self.field == "task" else f"step {self.index} {self.field}"
        return f"{name}: {'about ' if self.about else ''}{self.unseen} of {self.tokens} tokens"


def weigh(part: Part, count: Count, limit_characters: int) -> None:
    """Set the tokens of a part; a text above `limit_characters` is cut to them first and its tokens are estimated."""
    if len(part.shown) <= limit_characters:
        part.shown_tokens = count(neutralise(part.shown))
        if part.shown is part.text:
            part.tokens = part.shown_tokens
        return
    head, tail = _edges(part.text, limit_characters, keep_tail=part.field != "task")
    kept = count(neutralise(head)) + count(neutralise(tail))
    part.tokens = max(kept + 1, round(kept * len(part.text) / max(1, len(head) + len(tail))))
    part.about = True
    part.unseen = part.tokens - kept
    part.shown = _marked(head, tail, part.unseen, part.about)
    part.shown_tokens = kept + count(_marked("", "", part.unseen, part.about))


def shorten(part: Part, limit_tokens: int, count: Count) -> None:
    """Shorten a weighed part to at most `limit_tokens`, mark included, or to the bare mark if that is not enough.

    The result depends on the text and the limit only. A cut that would not make the part shorter is not made.
    """
    mark_tokens = count(_marked("", "", part.tokens, part.about))
    room = max(0, limit_tokens - mark_tokens)
    size = min(len(part.text), int(len(part.text) * room / max(1, part.tokens)))
    while True:
        head, tail = _edges(part.text, size, keep_tail=part.field != "task")
        kept = count(neutralise(head)) + count(neutralise(tail))
        unseen = max(1, part.tokens - kept)
        text = _marked(head, tail, unseen, part.about)
        tokens = count(neutralise(text))
        if tokens <= limit_tokens or size == 0:
            break
        size = min(int(size * room / max(1, tokens - mark_tokens) * 0.95), size - 1)
    if tokens < part.shown_tokens:
        part.shown, part.shown_tokens, part.unseen = text, tokens, unseen


def _edges(text: str, size: int, *, keep_tail: bool) -> tuple[str, str]:
    """Head and tail of a text, `size` characters in all, cut between words where a space is near: 128 is not 12."""
    front = size - size // 2 if keep_tail else size
    back = size - front
    head, tail = text[:front], text[len(text) - back :]
    if head and not text[front : front + 1].isspace():
        space = max(head.rfind(" ", -WORD_CHARACTERS), head.rfind("\n", -WORD_CHARACTERS))
        head = head[: space + 1] if space >= 0 else head
    if tail and not text[len(text) - back - 1].isspace():
        found = re.search(r"\s", tail[:WORD_CHARACTERS])
        tail = tail[found.start() :] if found else tail
    return head.rstrip(), tail.lstrip()


def _marked(head: str, tail: str, unseen: int, about: bool) -> str:
    mark = f"… {'about ' if about else ''}{unseen} tokens cut …"
    return " ".join(piece for piece in (head, mark, tail) if piece)
