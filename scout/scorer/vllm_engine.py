"""vLLM inside this process, on CPU or GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from scout.errors import ServerError, printable
from scout.scorer import environment
from scout.scorer.engine import Generation, Request, Stop, finish, label_tuple, never
from scout.scorer.folder import Folder


class VllmEngine:
    """Loads the model folder at construction (about ten seconds for a tiny model on CPU). One per process."""

    def __init__(self, folder: Folder, *, memory_share: float = 0.9) -> None:
        """memory_share: part of a GPU's memory that vLLM may take; without meaning on CPU."""
        environment.prepare()
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        self._folder = folder
        self._labels = label_tuple(folder.labels)
        options = environment.engine_options(folder.context_tokens, folder.dtype)
        if environment.has_gpu():
            options["gpu_memory_utilization"] = memory_share
        try:
            from vllm import LLM

            self._llm = LLM(str(folder.path), **options)
        except Exception as error:  # vLLM raises whatever its parts raise
            raise ServerError(
                f"vLLM could not load {printable(str(folder.path))}: {printable(str(error), 800)}"
            ) from error

    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """Samples all requests at once, to the end; vLLM batches them."""
        from vllm import SamplingParams, TokensPrompt

        prompts = [TokensPrompt(prompt_token_ids=list(request.prompt_ids)) for request in requests]
        params = [
            SamplingParams(
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                logprob_token_ids=list(self._labels),
                stop_token_ids=sorted(self._folder.end_ids),
                detokenize=False,
                flat_logprobs=True,
            )
            for request in requests
        ]
        try:
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        except Exception as error:
            raise ServerError(f"vLLM failed while generating: {printable(str(error), 800)}") from error
        return [self._generation(output.outputs[0]) for output in outputs]

    def _generation(self, output: Any) -> Generation:
        ids, text = finish(self._folder.tokenizer, output.token_ids, self._folder.end_ids)
        logps = {}
        for place, token in enumerate(ids):
            if token in self._labels:
                found = output.logprobs[place]
                first, second, third, fourth = (found[label].logprob for label in self._labels)
                logps[place] = (first, second, third, fourth)
        return Generation(ids, text, output.finish_reason == "stop", logps)
