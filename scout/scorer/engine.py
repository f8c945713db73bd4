"""What the scoring loop asks of a language model: sampled replies and the log-probabilities of the label tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scout.render import LabelIds

FOUR = ("correct", "incorrect", "yes", "no")
"""Order of the log-probabilities in `Generation.label_logps`; the fields of `LabelIds`."""


@dataclass(frozen=True)
class Request:
    """One reply to sample."""

    prompt_ids: tuple[int, ...]
    seed: int
    """Decides the sample, so that a reply does not depend on what else is in the batch."""
    max_tokens: int
    temperature: float = 1.0


@dataclass(frozen=True)
class Generation:
    """One sampled reply."""

    token_ids: tuple[int, ...]
    """Without the end token."""
    text: str
    ended: bool
    """The model ended by itself; False when it ran into `max_tokens`."""
    label_logps: Mapping[int, tuple[float, float, float, float]] = field(default_factory=dict)
    """Position in `token_ids` -> raw log-probabilities there (before temperature and any filter) of correct, incorrect,
    Yes and No. Only positions whose sampled token is one of the four."""


Stop = Callable[[], bool]
"""Asked now and then; True when nobody waits for the result any more."""


def never() -> bool:
    """The `Stop` of a caller that waits as long as it takes."""
    return False


class Engine(Protocol):
    """A language model that samples."""

    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """One generation for each request, in order. Raises ServerError when the engine is dead.

        stop: an engine that can drops what it has not begun and raises ServerError.
        """
        ...


def label_tuple(labels: LabelIds) -> tuple[int, int, int, int]:
    """The four label token ids in the order of `FOUR`."""
    return labels.correct, labels.incorrect, labels.yes, labels.no


def finish(tokenizer: Any, token_ids: Sequence[int], end_ids: frozenset[int]) -> tuple[tuple[int, ...], str]:
    """Token ids without a final end token, and their text with every other special token left visible."""
    ids = tuple(token_ids)
    if ids and ids[-1] in end_ids:
        ids = ids[:-1]
    return ids, tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def end_ids(tokenizer: Any, generation_config: Mapping[str, Any] | None = None) -> frozenset[int]:
    """Ids that end a reply: the tokenizer's end token and those of the model's generation config."""
    ids = {tokenizer.eos_token_id}
    extra = (generation_config or {}).get("eos_token_id")
    ids.update(extra if isinstance(extra, list) else [extra])
    return frozenset(index for index in ids if index is not None)
