"""`scoutv serve`: vLLM and the endpoint in front of it, until a signal or until vLLM ends."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from types import FrameType

from scout.errors import OK, ConfigError, ServerError, printable
from scout.scorer import folder as folders
from scout.scorer.engine import Engine, Request
from scout.scorer.folder import Folder
from scout.scorer.local import LocalScorer

EXAMPLE = """
then, in another terminal:
  curl -s http://127.0.0.1:8000/v1/score -H 'content-type: application/json' -d '{"trajectories": [{"id": "run-1",
    "task": {"text": "Find out how many lines the log has."},
    "steps": [{"index": 1, "action": "wc -l log.txt", "observation": "212 log.txt"},
              {"index": 2, "action": "answer 221", "observation": "wrong"}]}]}'
or, from a file of runs:
  scoutv score runs.jsonl --endpoint http://127.0.0.1:8000 --out verdicts.jsonl"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.epilog = f"{parser.epilog or ''}\n{EXAMPLE}"
    parser.add_argument("model", metavar="MODEL_DIR", help="folder that `scoutv export` wrote")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="default %(default)s; 0 takes a free one")


def run(args: argparse.Namespace) -> int:
    """Serves until interrupted. Raises ServerError when the port is taken, vLLM does not start or dies later."""
    listener = _bind(args.host, args.port)
    with listener:
        _say(f"checking {printable(args.model)}")
        folder = folders.load(args.model)
        signal.signal(signal.SIGTERM, _interrupt)
        return _serve(folder, listener)


def _serve(folder: Folder, listener: socket.socket) -> int:
    import uvicorn

    from scout.scorer.vllm_http import VllmHttpEngine
    from scout.serve.app import make_app
    from scout.serve.child import SERVED_NAME, VllmServer

    server = VllmServer(folder)
    try:
        _say("starting vLLM; a small model takes half a minute, a large one several minutes")
        server.start()
        engine = VllmHttpEngine(folder, server.url, model=SERVED_NAME, key=server.key)
        _probe(engine, folder)
        app = make_app(LocalScorer(folder, engine), lambda: server.running)
        web = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5))

        def watch() -> None:
            server.wait()
            web.should_exit = True

        threading.Thread(target=watch, daemon=True).start()
        host, port = listener.getsockname()[:2]
        _say(f"ready on http://{host}:{port}")
        web.run(sockets=[listener])
        if not server.running:
            raise ServerError(f"vLLM ended while serving.\n{server.last_log()}")
        return OK
    finally:
        server.stop()
        _say("stopped")


def _probe(engine: Engine, folder: Folder) -> None:
    """One token, so that the first real request does not pay for the engine's warm-up."""
    engine.generate([Request((folder.labels.correct,), 0, 1)])


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket, held while vLLM starts, so that a taken port is known before anything is loaded."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port is {port}; allowed: 0 to 65535.")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--host {printable(host)}: {error}. Give an address of this machine.") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServerError(
            f"cannot listen on {printable(host)}:{port} ({error.strerror}). Stop what uses it, or give another --port."
        ) from error
    return listener


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(message: str) -> None:
    print(f"scoutv: {message}", file=sys.stderr, flush=True)
