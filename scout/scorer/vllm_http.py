"""vLLM's own OpenAI-style server over HTTP: token ids in, token ids and label log-probabilities out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from scout.errors import ServerError, printable
from scout.scorer.engine import Generation, Request, Stop, finish, label_tuple, never
from scout.scorer.folder import Folder

ABSENT = -9999.0
"""What vLLM's JSON holds instead of minus infinity."""


class VllmHttpEngine:
    """Sends every request on its own connection of a pool; the server batches what is under way."""

    def __init__(self, folder: Folder, base_url: str, *, model: str, key: str = "", connections: int = 64) -> None:
        """base_url: without path, such as `http://127.0.0.1:8001`. model, key: served name and API key."""
        self._folder = folder
        self._labels = label_tuple(folder.labels)
        self._model = model
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(None, connect=10),
            limits=limits,
            trust_env=False,
        )
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="vllm")

    def close(self) -> None:
        """Drops what is waiting and closes the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """One generation for each request.

        Raises ServerError at the first request that fails, or once `stop` says so; what was not sent yet is dropped.
        """
        failed = threading.Event()
        try:
            return list(self._pool.map(lambda request: self._one(request, failed, stop), requests))
        except RuntimeError as error:  # also what a pool says that was closed meanwhile
            raise error if isinstance(error, ServerError) else ServerError("the engine is being closed") from error

    def _one(self, request: Request, failed: threading.Event, stop: Stop) -> Generation:
        if failed.is_set() or stop():
            raise ServerError("the rest of this batch is dropped")
        body = {
            "model": self._model,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stop_token_ids": sorted(self._folder.end_ids),
            "logprobs": 1,
            "logprob_token_ids": list(self._labels),
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        try:
            answer = self._client.post("/v1/completions", json=body)
            answer.raise_for_status()
            return self._generation(answer.json()["choices"][0])
        except httpx.HTTPStatusError as error:
            failed.set()
            text = printable(error.response.text, 400)
            raise ServerError(f"vLLM answered {error.response.status_code}: {text}") from error
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            failed.set()
            raise ServerError(f"vLLM did not answer: {type(error).__name__} {printable(str(error), 200)}") from error

    def _generation(self, choice: dict[str, Any]) -> Generation:
        ids, text = finish(self._folder.tokenizer, choice["token_ids"], self._folder.end_ids)
        logps = {}
        for place, token in enumerate(ids):
            if token in self._labels:
                found = choice["logprobs"]["top_logprobs"][place]
                values = [float(found[f"token_id:{label}"]) for label in self._labels]
                first, second, third, fourth = (float("-inf") if value <= ABSENT else value for value in values)
                logps[place] = (first, second, third, fourth)
        return Generation(ids, text, choice["finish_reason"] == "stop", logps)
