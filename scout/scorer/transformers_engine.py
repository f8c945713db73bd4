"""transformers, one request at a time: slow, simple, and therefore what the other engines are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from scout.errors import ServerError, printable
from scout.scorer.engine import Generation, Request, Stop, finish, label_tuple, never
from scout.scorer.folder import Folder


class TransformersEngine:
    """A causal language model on CPU in the number type of its folder."""

    def __init__(self, folder: Folder) -> None:
        from transformers import AutoModelForCausalLM

        self._folder = folder
        self._labels = label_tuple(folder.labels)
        try:
            self._model: Any = AutoModelForCausalLM.from_pretrained(folder.path, local_files_only=True).eval()
        except Exception as error:
            raise ServerError(
                f"transformers could not load {printable(str(folder.path))}: {printable(str(error), 800)}"
            ) from error

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """Replies sampled token by token with a key-value cache, all of them."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        generator = torch.Generator().manual_seed(request.seed)
        given = torch.tensor([request.prompt_ids])
        cache = None
        sampled: list[int] = []
        logps: dict[int, tuple[float, float, float, float]] = {}
        while len(sampled) < request.max_tokens:
            output = self._model(input_ids=given, past_key_values=cache, use_cache=True)
            cache, logits = output.past_key_values, output.logits[0, -1].float()
            if request.temperature > 0:
                chances = torch.softmax(logits / request.temperature, dim=-1)
                token = int(torch.multinomial(chances, 1, generator=generator))
            else:
                token = int(logits.argmax())
            if token in self._labels:
                raw = torch.log_softmax(logits, dim=-1)[list(self._labels)].tolist()
                logps[len(sampled)] = (raw[0], raw[1], raw[2], raw[3])
            sampled.append(token)
            if token in self._folder.end_ids:
                break
            given = torch.tensor([[token]])
        ids, text = finish(self._folder.tokenizer, sampled, self._folder.end_ids)
        return Generation(ids, text, sampled[-1] in self._folder.end_ids, logps)
