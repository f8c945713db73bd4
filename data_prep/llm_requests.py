"""Asks an OpenAI-compatible endpoint: bounded, patient, within a budget, and never twice for the same answer.

What an endpoint that is busy or unwell answers is waited out; what concerns one request only (a prompt it refuses) is
NotAnswered, a result like another; what concerns them all (a wrong key, a dead server) is a ServerError, after which
the same command goes on from the answers kept so far.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import NoReturn

import msgspec
import openai

from data_prep.llm_budget import Budget
from data_prep.llm_cache import Answer, Cache, Request
from data_prep.llm_settings import Settings
from scout.errors import ServerError, printable

FAILURES = 6
"""Times that a request may fail (500, no connection, no answer in time, half an answer) before it is given up."""
BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.5, 60.0
PATIENCE_SECONDS = 1800.0
"""How long an endpoint that says it is busy is waited for."""
GIVEN_UP = 5
"""Requests given up in a row, without any answer between them, after which the endpoint is taken for broken."""
CONNECT_SECONDS = 10.0
SCRUBBED = 8
"""A key of at least this length is removed from every text; shorter ones are words such as `none`, and no secret."""

_FATAL = {401: "the key was refused", 403: "access was refused", 404: "there is no such address or model"}
_NEVER_SENT = ("ConnectError", "ConnectTimeout")
"""By name: which library makes openai's connections depends on its version."""


class NotAnswered(Exception):
    """This request got no answer. kind: for counting."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(msgspec.Struct):
    """What is read of an answer."""

    choices: list[_Choice]
    usage: _Usage | None = None


class _Trouble(Exception):
    """An answer that may be better next time. wait: seconds that the endpoint asked for."""

    def __init__(self, kind: str, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.kind, self.wait = kind, wait


class Client:
    """Asks and keeps. Used within one event loop."""

    def __init__(self, settings: Settings, key: str, cache: Cache, count: Callable[[str], int]) -> None:
        """count: tokens of a text, for endpoints that do not tell what they used."""
        self._settings, self._key, self._cache, self._count = settings, key, cache, count
        self._openai = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=settings.endpoint,
            max_retries=0,  # retries are ours: openai's ignore a Retry-After above a minute and know no budget
            timeout=openai.Timeout(settings.timeout_seconds, connect=CONNECT_SECONDS),
        )
        self.budget = Budget(settings.budget_tokens, settings.budget_money, settings.price, cache.spent())
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._open_at = 0.0
        self._given_up = 0
        self._broken = ""
        self.tally: Counter[str] = Counter()
        """What happened to the requests of this call."""

    async def close(self) -> None:
        """Closes the connections."""
        await self._openai.close()

    async def ask(self, request: Request) -> Answer:
        """The answer, from the cache or from the endpoint.

        Raises NotAnswered, BudgetSpent, or ServerError when going on makes no sense.
        """
        key = request.key(self._settings.endpoint, self._settings.model)
        found = self._cache.get(key)
        if found is not None:
            self.tally["from the cache"] += 1
            return found
        answer = await self._answer(key, request)
        self._given_up = 0
        return answer

    async def _answer(self, key: str, request: Request) -> Answer:
        failures, busy, busy_since = 0, 0, 0.0
        while True:
            try:
                async with self._slots:
                    return await self._once(key, request)
            except _Trouble as trouble:
                self.tally[trouble.kind] += 1
                if trouble.kind == "busy":
                    busy, busy_since = busy + 1, busy_since or time.monotonic()
                else:
                    failures += 1
                    if failures >= FAILURES:
                        self._give_up("not answered", f"{failures} failures, the last: {trouble}")
                waited = time.monotonic() - busy_since if busy else 0.0
                if waited + (trouble.wait or 0) > PATIENCE_SECONDS:
                    self._break(f"{trouble}, and has been busy for {PATIENCE_SECONDS:.0f} s or wants to be")
                await self._pause(trouble.wait, failures + busy)

    async def _pause(self, wait: float | None, troubles: int) -> None:
        """Waits after the so-manieth trouble of a request; what the endpoint asked for holds for all requests."""
        if wait is not None:
            self._open_at = max(self._open_at, time.monotonic() + wait)
            if troubles == 1:
                return
        # An endpoint that says "at once" again and again is not believed.
        backoff = min(LONGEST_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** min(troubles - 1, 10))
        await asyncio.sleep(backoff * random.uniform(0.5, 1))

    async def _once(self, key: str, request: Request) -> Answer:
        """Sends the request once and keeps the answer. Raises _Trouble or NotAnswered."""
        while (pause := self._open_at - time.monotonic()) > 0:
            # Not all at the same instant: the endpoint has just said that this is too many.
            await asyncio.sleep(pause + random.uniform(0, min(1.0, pause / 4)))
        if self._broken:
            raise ServerError(self._broken)
        held = (request.prompt_tokens, request.max_tokens)
        await self.budget.hold(*held)
        self.tally["sent"] += 1
        used, number = held, 0  # what an answer that never arrives may have cost
        try:
            number = self._cache.begin(*held)
            async with asyncio.timeout(self._settings.timeout_seconds):
                raw = await self._openai.chat.completions.with_raw_response.create(
                    model=self._settings.model,
                    messages=request.messages,  # type: ignore[arg-type]
                    temperature=request.temperature,
                    max_tokens=request.max_tokens,
                )
            answer = self._read(raw.content, request)
            used = (answer.prompt_tokens, answer.completion_tokens)
            self._cache.put(key, request, answer, number)
            self.tally["answered"] += 1
            return answer
        except openai.APIStatusError as error:
            used = (0, 0)
            self._status(error)
        except (openai.APITimeoutError, TimeoutError) as error:
            used = (0, 0) if _never_sent(error) else held
            text = f"no answer within {self._settings.timeout_seconds:g} s"
            raise _Trouble("timed out", text) from None
        except openai.APIConnectionError as error:
            used = (0, 0) if _never_sent(error) else held
            text = self._clean(f"no connection: {error.__cause__ or error}")
            raise _Trouble("no connection", text) from None
        finally:
            self.budget.settle(held, used)
            if used == (0, 0):
                self._cache.cancel(number)

    def _read(self, content: bytes, request: Request) -> Answer:
        try:
            body = msgspec.json.decode(content, type=_Body)
            choice = body.choices[0]
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
            raise _Trouble("half an answer", self._clean(f"an answer that is none: {error}")) from None
        text = self._clean(choice.message.content or "", 0)
        refusal = self._clean(choice.message.refusal) if choice.message.refusal else None
        usage = body.usage or _Usage()
        prompt = request.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
        completion = self._count(text) if usage.completion_tokens is None else usage.completion_tokens
        return Answer(text, choice.finish_reason, refusal, prompt, completion)

    def _status(self, error: openai.APIStatusError) -> NoReturn:
        """Raises what an answer other than 200 means."""
        status = error.status_code
        text = self._clean(f"answered {status}: {error.response.text}")
        wait = retry_after(error.response.headers)
        if error.code == "insufficient_quota":
            self._break(f"{text} (the quota is used up)")
        if status in _FATAL:
            self._break(f"{text} ({_FATAL[status]})")
        if status == 429 or (status == 503 and wait is not None):
            raise _Trouble("busy", text, wait) from None
        if status >= 500 or status in (408, 409):
            raise _Trouble("server error", text, wait) from None
        self._give_up("refused by the endpoint", text)

    def _give_up(self, kind: str, text: str) -> NoReturn:
        self._given_up += 1
        if self._given_up >= GIVEN_UP:
            self._break(f"{text} ({self._given_up} requests in a row got no answer)")
        raise NotAnswered(kind, text) from None

    def _break(self, text: str) -> NoReturn:
        self._broken = (
            f"{self._settings.endpoint} {text}. Every answer so far is kept in {self._cache.path}; "
            "the same command goes on from there."
        )
        raise ServerError(self._broken) from None

    def _clean(self, text: str, limit: int = 300) -> str:
        """The text without the key; limit > 0: short and printable."""
        if len(self._key) >= SCRUBBED:
            text = text.replace(self._key, "***")
        return printable(text, limit) if limit else text


def _never_sent(error: BaseException) -> bool:
    return type(error.__cause__).__name__ in _NEVER_SENT


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait, from `retry-after-ms` or `retry-after` (seconds or a date)."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
