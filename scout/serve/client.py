"""A scorer whose model is behind a running `scoutv serve`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import httpx
import msgspec

from scout.errors import ConfigError, InputError, ServerError, printable
from scout.serve.wire import BODY_BYTES, About, ErrorReply, RerankReply, ScoreReply
from scout.trajectory import Trajectory
from scout.verdict import Verdict

ATTEMPTS = 6
FIRST_PAUSE_SECONDS = 0.5
"""Pause after the first failed attempt; doubles each time, 15 s in all."""
RUNS_AT_ONCE = 256
BYTES_AT_ONCE = min(BODY_BYTES, 32 << 20)


T = TypeVar("T")


class Client:
    """Sends runs in pieces; tries again when the server is busy or not reachable."""

    def __init__(self, url: str) -> None:
        """url: base address, such as `http://127.0.0.1:8000`."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"endpoint is {printable(url, 100)!r}; allowed: an address such as http://127.0.0.1:8000")
        self._url = url.rstrip("/")
        # A long run takes minutes; only connecting may not. The endpoint is named, so no proxy of the environment.
        self._http = httpx.Client(timeout=httpx.Timeout(None, connect=10), trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def version(self) -> About:
        """What runs there."""
        return _decode(self._request("GET", "/version"), About)

    def score(self, trajectories: Sequence[Trajectory]) -> list[Verdict]:
        """One verdict for each trajectory, in the same order.

        Raises ServerError when the endpoint does not answer, InputError when it refuses a run.
        """
        verdicts: list[Verdict] = []
        for body in _bodies(trajectories):
            verdicts += _decode(self._request("POST", "/v1/score", body), ScoreReply).verdicts
        if [item.trajectory_id for item in verdicts] != [run.id for run in trajectories]:
            raise ServerError(f"{self._url} answered with other runs than were sent; is it a Scout endpoint?")
        return verdicts

    def rerank(self, trajectories: Sequence[Trajectory]) -> RerankReply:
        """The candidates of one task in order, best first."""
        body = b'{"trajectories":[' + b",".join(msgspec.json.encode(run) for run in trajectories) + b"]}"
        return _decode(self._request("POST", "/v1/rerank", body), RerankReply)

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        pause = FIRST_PAUSE_SECONDS
        failure = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause)
                pause *= 2
            try:
                headers = {"Content-Type": "application/json"} if body is not None else {}
                answer = self._http.request(method, f"{self._url}{path}", content=body, headers=headers)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise ConfigError(f"endpoint {printable(self._url, 100)}: {error}") from error
            except httpx.TransportError as error:
                failure = f"no answer ({type(error).__name__}). Is `scoutv serve` running there?"
                continue
            if answer.status_code == 200:
                return answer.content
            failure = f"answered {answer.status_code}: {_message(answer)}"
            if answer.status_code in (400, 413, 422):
                raise InputError(f"{self._url}{path} {failure}")
            if answer.status_code not in (502, 503, 504):
                break
        raise ServerError(f"{printable(self._url, 100)}{path}: {failure}")


def _bodies(trajectories: Sequence[Trajectory]) -> Iterator[bytes]:
    """Request bodies of at most RUNS_AT_ONCE runs and about BYTES_AT_ONCE bytes."""
    parts: list[bytes] = []
    size = 0
    for run in trajectories:
        part = msgspec.json.encode(run)
        if parts and (len(parts) == RUNS_AT_ONCE or size + len(part) > BYTES_AT_ONCE):
            yield b'{"trajectories":[' + b",".join(parts) + b"]}"
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield b'{"trajectories":[' + b",".join(parts) + b"]}"


def _message(answer: httpx.Response) -> str:
    try:
        failure = msgspec.json.decode(answer.content, type=ErrorReply).error
    except msgspec.MsgspecError:
        return printable(answer.text, 200)
    rows = [failure.message, *(f"  {problem}" for problem in failure.problems[:10])]
    return printable("\n".join(rows))


def _decode(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ServerError(f"the endpoint's answer is not Scout's ({error}); is it a Scout endpoint?") from error
