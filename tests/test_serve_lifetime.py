"""What ends `scoutv serve` and `scoutv score`, and what they leave behind: nothing that runs, nothing half-written.

Here vLLM's place is taken by a process that is up in an instant and never finishes a reply; the same with real vLLM
stands in test_serve_vllm.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import tiny_model
from processes import ONE_THREAD, address, descendants, gone, serve
from test_serve import RUNS, Endpoint, body

from scout import cli, trajectory, verdict

STAND_IN = """
import http.server, json, subprocess, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["max_tokens"] > 1:
            print("sampling", flush=True)
            open(sys.argv[0].rsplit("/vllm/", 1)[0] + "/sampling", "w").close()
            time.sleep(600)
        label = str(asked["logprob_token_ids"][0])
        logps = {f"token_id:{token}": -1.0 for token in asked["logprob_token_ids"]}
        choice = {"token_ids": [int(label)], "finish_reason": "length", "logprobs": {"top_logprobs": [logps]}}
        self.answer(json.dumps({"choices": [choice]}).encode())

    def answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which vLLM's server is something else."""
    root = tmp_path_factory.mktemp("stand_in")
    server = root / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    for package in server.relative_to(root).parents[:-1]:
        (root / package / "__init__.py").touch()
    server.write_text(STAND_IN)
    return root


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.server.should_exit = True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found through /proc")
@pytest.mark.parametrize("how", ["interrupted", "vllm killed"])
def test_serving_ends_with_a_request_under_way(stand_in: Path, tmp_path: Path, how: str) -> None:
    """Ctrl-C is 130, a dead vLLM is 4 with one line that says so; either way nothing is left and nobody waits."""
    log = tmp_path / "log"
    process = serve(tiny_model.random_folder(), log, "ready on", {**ONE_THREAD, "PYTHONPATH": str(stand_in)})
    url = address(log)
    answers: list[int] = []

    def ask() -> None:
        try:
            answers.append(
                httpx.post(f"{url}/v1/score", content=body(RUNS[:1]), timeout=60, trust_env=False).status_code
            )
        except httpx.TransportError:
            answers.append(0)

    asking = threading.Thread(target=ask)
    asking.start()
    while not (stand_in / "sampling").exists():
        time.sleep(0.05)
    (stand_in / "sampling").unlink()
    below = descendants(process.pid)
    assert len(below) == 2
    child = next(pid for pid in below if descendants(pid))
    if how == "interrupted":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(child, signal.SIGKILL)
    assert process.wait(120) == (130 if how == "interrupted" else 4)
    asking.join(60)
    assert answers and answers[0] in (0, 503)
    assert gone(below)
    said = log.read_text()
    assert "Traceback" not in said
    assert ("interrupted" if how == "interrupted" else "vLLM ended while serving") in said


def test_a_client_that_leaves_is_not_scored_to_the_end(endpoint: Endpoint) -> None:
    before, content = len(endpoint.engine.requests), body(RUNS[:1])
    endpoint.pause = 0.4
    try:
        with socket.create_connection(endpoint.server.servers[0].sockets[0].getsockname()) as line:
            line.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
            while len(endpoint.engine.requests) == before:
                time.sleep(0.02)
        time.sleep(2.5)  # the replies to the first window take 1.6 seconds
    finally:
        endpoint.pause = 0.0
    assert len(endpoint.engine.requests) - before == 4, "the second window was asked for, though nobody waits"


def test_an_interrupted_score_leaves_whole_lines_and_goes_on(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out, partial = (tmp_path / name for name in ("runs.jsonl", "out.jsonl", "out.jsonl.partial"))
    runs = [tiny_model.run(f"run{i}", set(), 4) for i in range(12)]
    trajectory.write(file, runs)
    words = ["score", str(file), "--endpoint", endpoint.url, "--out", str(out)]
    program = (
        "import sys\nfrom scout import cli\nfrom scout.scorer import batch\n"
        f"batch.CHUNK = 1\nsys.exit(cli.main({words}))"
    )
    endpoint.pause = 0.1
    try:
        with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n") >= 3):
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1]
    finally:
        endpoint.pause = 0.0
    assert process.returncode == 130 and said == "scoutv: interrupted\n"
    assert not out.exists() and partial.read_bytes().endswith(b"\n")
    assert cli.main(words) == 0
    assert "are taken over" in capsys.readouterr().err
    assert [item.trajectory_id for item in verdict.read(out)] == [run.id for run in runs] and not partial.exists()


def test_a_model_folder_that_does_not_match_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P34, through both commands that load one."""
    tokenizer = tiny_model.make_tokenizer()
    model = tiny_model.save(tiny_model.make_model(tokenizer), tokenizer, tmp_path / "model", fingerprint="0" * 16)
    file, out = tmp_path / "runs.jsonl", tmp_path / "out.jsonl"
    trajectory.write(file, RUNS)
    before = signal.getsignal(signal.SIGTERM)
    for words in (["score", str(file), "--model", str(model), "--out", str(out)], ["serve", str(model), "--port", "0"]):
        assert cli.main(words) == 1
        said = capsys.readouterr().err
        assert "fingerprint '0000000000000000'" in said and "Export it again" in said and "vLLM" not in said
    assert signal.getsignal(signal.SIGTERM) is before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "runs.jsonl"]
