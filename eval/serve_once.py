"""Start the real endpoint on a model folder, score and rerank a few held-out runs through HTTP, stop it.

python -m eval.serve_once --model runs/demo/model --data runs/demo/data --out runs/demo/serve
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from eval import runs as run_files
from eval.stages import end, execute
from scout import trajectory
from scout.errors import OK, UNSCORED, ScoutError, ServerError, tell

SCORED_RUNS = 4
READY_SECONDS = 300.0
"""vLLM on two cores is ready after about 25 s in eager mode; a busy machine takes minutes."""

STOP_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the first command that failed, else 0, or 3 when a run could not be scored."""
    parser = argparse.ArgumentParser(prog="python -m eval.serve_once", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder written by scoutv export")
    parser.add_argument("--data", type=Path, required=True, help="folder with the test runs")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        return serve_and_ask(options.model, options.data, options.out)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)


def serve_and_ask(model: Path, data: Path, out: Path) -> int:
    """Write score.jsonl (verdicts of a few runs) and rerank.jsonl (one group of candidates in order) into `out`."""
    groups = list(run_files.by_task(run_files.load_split(data, "test")).values())
    out.mkdir(parents=True, exist_ok=True)
    some, group = out / "some_runs.jsonl", out / "one_task.jsonl"
    trajectory.write(some, [run for runs in groups for run in runs[:1]][:SCORED_RUNS])
    trajectory.write(group, groups[0])
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    scoutv = str(Path(sys.executable).with_name("scoutv"))
    serve = (scoutv, "serve", str(model), "--host", "127.0.0.1", "--port", str(port))
    print(f"$ scoutv {' '.join(serve[1:])} &", file=sys.stderr, flush=True)
    server = subprocess.Popen(serve, stdout=sys.stderr.fileno())
    try:
        wait_until_ready(server, url)
        score = (scoutv, "score", str(some), "--endpoint", url, "--out", str(out / "score.jsonl"))
        rerank = (scoutv, "rerank", str(group), "--endpoint", url, "--out", str(out / "rerank.jsonl"))
        codes = []
        for command in (score, rerank):
            codes.append(execute(command))
            if codes[-1] not in (OK, UNSCORED):
                return codes[-1]
        return max(codes)
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)  # a second signal would cut off the end of vLLM's own processes
        end(server)
        print("endpoint stopped", file=sys.stderr, flush=True)


def free_port() -> int:
    """A port of this machine that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(server: subprocess.Popen[bytes], url: str, timeout_seconds: float = READY_SECONDS) -> None:
    """Return once `GET /healthz` answers 200. Raises ServerError when the server dies or stays silent too long."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise ServerError(f"scoutv serve ended with exit code {server.returncode} before it was ready; see above.")
        try:
            if httpx.get(f"{url}/healthz", timeout=2).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise ServerError(f"{url}/healthz did not answer within {timeout_seconds:.0f} s; the server's log stands above.")


if __name__ == "__main__":
    sys.exit(main())
