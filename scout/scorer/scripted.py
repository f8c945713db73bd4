"""An engine whose replies come from a function: for tests and for trying a pipeline without a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scout.render import LabelIds
from scout.scorer.engine import FOUR, Generation, Request, Stop, label_tuple, never

Script = Callable[[str, Request], str | Generation]
"""Prompt text and request -> reply text, or a whole Generation for replies that did not end."""


class ScriptedEngine:
    """Turns scripted replies into generations; each label token written gets probability `confidence` in its pair."""

    def __init__(self, tokenizer: Any, labels: LabelIds, script: Script, *, confidence: float = 0.9) -> None:
        self._tokenizer = tokenizer
        self._labels = label_tuple(labels)
        self._script = script
        self._sure, self._unsure = math.log(confidence), math.log(1 - confidence)
        self.requests: list[Request] = []
        """Everything that was asked, in order."""

    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """Replies of the script, in order, all of them."""
        self.requests.extend(requests)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        reply = self._script(self._tokenizer.decode(request.prompt_ids), request)
        if isinstance(reply, Generation):
            return reply
        ids = tuple(self._tokenizer.encode(reply, add_special_tokens=False))
        places = {place: self._logps(token) for place, token in enumerate(ids) if token in self._labels}
        return Generation(ids, reply, len(ids) < request.max_tokens, places)

    def _logps(self, token: int) -> tuple[float, float, float, float]:
        chosen = self._labels.index(token)
        first = chosen - chosen % 2
        values = [float("-inf")] * len(FOUR)
        values[first] = values[first + 1] = self._unsure
        values[chosen] = self._sure
        return values[0], values[1], values[2], values[3]
