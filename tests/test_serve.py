"""The endpoint over real HTTP with a scripted engine behind it, and the commands that use it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import tiny_model
import uvicorn
from test_scorer import CONFIG, answer

from scout import cli, render, trajectory, verdict
from scout.config import ScoutConfig
from scout.errors import ConfigError, InputError, ServerError
from scout.scorer import batch
from scout.scorer.engine import Request
from scout.scorer.folder import Folder
from scout.scorer.local import LocalScorer
from scout.scorer.scripted import ScriptedEngine
from scout.serve import client as clients
from scout.serve import wire
from scout.serve.app import make_app
from scout.serve.client import Client
from scout.trajectory import Trajectory


class Endpoint:
    """The application on a loopback port, with switches for what may go wrong."""

    def __init__(self, config: ScoutConfig = CONFIG, weights: bytes = b"weights") -> None:
        tokenizer = tiny_model.make_tokenizer()
        labels = render.label_ids(tokenizer)
        self.fail_next = 0
        self.pause = 0.0
        self.alive = True
        self.engine = ScriptedEngine(tokenizer, labels, self.script)
        path = Path(tempfile.mkdtemp()) / "models" / "toy"
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(weights)
        folder = Folder(path, tokenizer, config, labels, 0, "", frozenset())
        app = make_app(LocalScorer(folder, self.engine), lambda: self.alive)
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        threading.Thread(target=self.server.run, daemon=True).start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def script(self, text: str, request: Request) -> str:
        time.sleep(self.pause)
        if self.fail_next:
            self.fail_next -= 1
            raise ServerError("/secret/path of the engine")
        if "garbage" in text:
            return "?"
        if "crash" in text:
            raise ZeroDivisionError("/secret/path")
        lines = [line for line in text.split("\n") if line.startswith("do: ")]
        first = int(text.rsplit("Judge steps ", 1)[1].split()[0])
        return answer(text, frozenset(first + n for n, line in enumerate(lines) if "badly" in line))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.server.should_exit = True


RUNS = [tiny_model.run("good", set(), 6), tiny_model.run("bad", {2}, 6), tiny_model.run("worse", {1, 2, 6}, 6)]


def post(endpoint: Endpoint, path: str, content: bytes) -> tuple[int, dict[str, Any]]:
    answered = httpx.post(f"{endpoint.url}{path}", content=content, trust_env=False)
    return answered.status_code, answered.json()


def body(runs: list[Trajectory]) -> bytes:
    return ('{"trajectories":[' + ",".join(trajectory.dumps(run) for run in runs) + "]}").encode()


def test_score_answers_in_the_same_order(endpoint: Endpoint) -> None:
    status, found = post(endpoint, "/v1/score", body(RUNS[::-1]))
    assert status == 200
    assert [v["trajectory_id"] for v in found["verdicts"]] == ["worse", "bad", "good"]
    assert [v["first_mistake"] for v in found["verdicts"]] == [1, 2, None]
    assert found["verdicts"][0]["model"] == "models/toy"
    assert Client(endpoint.url).score([]) == []


def test_rerank_puts_the_clean_run_first(endpoint: Endpoint) -> None:
    """P45: the request and reply of the documentation."""
    status, found = post(endpoint, "/v1/rerank", body(RUNS[::-1]))
    assert status == 200 and found["best"] == "good" and found["order"][0] == "good"
    assert Client(endpoint.url).rerank(RUNS).best == "good"


def test_candidates_that_are_all_unscored_have_no_winner(endpoint: Endpoint) -> None:
    """P33."""
    runs = [trajectory.Trajectory(name, trajectory.Task("garbage", "t"), RUNS[0].steps) for name in "ab"]
    status, found = post(endpoint, "/v1/rerank", body(runs))
    assert status == 200 and found["best"] is None
    assert [v["p_yes"] for v in found["verdicts"]] == [None, None]


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "no json": (b"{", 400, "no JSON"),
    "empty": (b"", 400, "no JSON"),
    "not utf-8": (b'{"trajectories":[\xff]}', 400, "no JSON"),
    "a list": (b"[]", 422, "trajectories"),
    "another field": (b'{"trajectories":[],"k":4}', 422, "unknown field"),
    "wrong types": (b'{"trajectories":[3,{"id":"a","task":{"text":1},"steps":[]}]}', 422, "2 problems"),
    "deep": (b'{"trajectories":[' + b"[" * 100_000 + b"]}", 400, "no JSON"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_gets_every_problem_as_json(endpoint: Endpoint, name: str) -> None:
    content, status, words = BAD_BODIES[name]
    found, answered = post(endpoint, "/v1/score", content)
    assert found == status and words in answered["error"]["message"]


def test_problems_name_run_and_field(endpoint: Endpoint) -> None:
    run = json.loads(trajectory.dumps(RUNS[0]))
    run["steps"][2]["index"] = 7
    run["steps"][3]["index"] = 7
    status, found = post(endpoint, "/v1/score", json.dumps({"trajectories": [run]}).encode())
    assert status == 422
    assert [p["where"] for p in found["error"]["problems"]] == ["trajectories[0]"] * 2
    assert [p["field"] for p in found["error"]["problems"]] == ["steps[2].index", "steps[3].index"]


def test_candidates_of_two_tasks_are_refused(endpoint: Endpoint) -> None:
    other = tiny_model.run("other", set(), 2, task_id="elsewhere")
    for runs in ([RUNS[0], other], [RUNS[0], RUNS[0]], []):
        assert post(endpoint, "/v1/rerank", body(runs))[0] == 422


def test_too_large_is_refused_before_it_is_read(endpoint: Endpoint) -> None:
    with socket.create_connection(endpoint.server.servers[0].sockets[0].getsockname()) as line:
        size = wire.BODY_BYTES + 1
        line.sendall(f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 413")


def test_the_inside_of_the_server_is_not_shown(endpoint: Endpoint) -> None:
    crash = Trajectory("a", trajectory.Task("crash"), RUNS[0].steps)
    status, found = post(endpoint, "/v1/score", body([crash]))
    assert status == 500 and "secret" not in json.dumps(found) and "Traceback" not in json.dumps(found)
    endpoint.fail_next = 1
    status, found = post(endpoint, "/v1/score", body(RUNS[:1]))
    assert status == 503 and "secret" not in json.dumps(found)
    assert post(endpoint, "/v2/score", b"{}") == (
        404,
        {"error": {"type": "InputError", "message": "Not Found", "problems": []}},
    )


def test_health_and_version(endpoint: Endpoint) -> None:
    assert httpx.get(f"{endpoint.url}/healthz").status_code == 200
    endpoint.alive = False
    assert httpx.get(f"{endpoint.url}/healthz").status_code == 503
    endpoint.alive = True
    about = Client(endpoint.url).version()
    assert (about.model, about.fingerprint, about.threshold, about.selector) == ("models/toy", "f", 0.5, "p_yes")
    assert about.versions["transformers"]


def test_the_client_tries_again(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_PAUSE_SECONDS", 0.01)
    endpoint.fail_next = 2
    assert [v.first_mistake for v in Client(endpoint.url).score(RUNS)] == [None, 2, 1]
    endpoint.fail_next = 1000
    with pytest.raises(ServerError, match="answered 503"):
        Client(endpoint.url).score(RUNS)
    endpoint.fail_next = 0
    with pytest.raises(ServerError, match="Is `scoutv serve` running"):
        Client("http://127.0.0.1:1").version()
    with pytest.raises(ConfigError, match="such as http"):
        Client("localhost:8000")
    with pytest.raises(InputError, match="in common"):
        Client(endpoint.url).rerank([RUNS[0], tiny_model.run("x", set(), 2, task_id="elsewhere")])


def test_score_writes_verdicts_and_says_when_some_are_missing(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    trajectory.write(file, RUNS)
    assert cli.main(["score", str(file), "--endpoint", endpoint.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [verdict.loads(line).trajectory_id for line in lines] == ["good", "bad", "worse"]
    trajectory.write(file, [*RUNS, Trajectory("odd", trajectory.Task("garbage"), RUNS[0].steps)])
    out = tmp_path / "new" / "verdicts.jsonl"
    assert cli.main(["score", str(file), "--endpoint", endpoint.url, "--out", str(out)]) == 3
    assert [v.status for v in verdict.read(out)] == ["scored"] * 3 + ["unscored"]
    assert "3 scored, 1 unscored" in capsys.readouterr().err
    assert [path.name for path in out.parent.iterdir()] == ["verdicts.jsonl"]


def test_an_interrupted_score_goes_on(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "CHUNK", 1)
    monkeypatch.setattr(clients, "ATTEMPTS", 1)
    file, out = tmp_path / "runs.jsonl", tmp_path / "verdicts.jsonl"
    trajectory.write(file, [RUNS[0], RUNS[1], Trajectory("odd", trajectory.Task("crash"), RUNS[0].steps)])
    words = ["score", str(file), "--endpoint", endpoint.url, "--out", str(out)]
    assert cli.main(words) == 4
    assert not out.exists()
    partial = Path(f"{out}.partial")
    assert partial.read_bytes().count(b"\n") == 3
    with partial.open("ab") as half:
        half.write(b'{"trajectory_id":"od')
    before = len(endpoint.engine.requests)
    assert cli.main(words) == 4
    assert "2 of 3 runs are taken over" in capsys.readouterr().err
    assert len(endpoint.engine.requests) - before == 4, "only the third run was asked again"
    trajectory.write(file, RUNS)
    assert cli.main(words) == 0
    assert "starting anew" in capsys.readouterr().err
    assert [v.trajectory_id for v in verdict.read(out)] == ["good", "bad", "worse"] and not partial.exists()


def test_verdicts_of_other_weights_under_the_same_name_are_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model trained anew keeps its folder's name and its fingerprint, which covers everything but the weights."""
    monkeypatch.setattr(batch, "CHUNK", 1)
    monkeypatch.setattr(clients, "ATTEMPTS", 1)
    file, out = tmp_path / "runs.jsonl", tmp_path / "verdicts.jsonl"
    trajectory.write(file, [RUNS[0], Trajectory("odd", trajectory.Task("crash"), RUNS[0].steps)])
    first = Endpoint()
    assert cli.main(["score", str(file), "--endpoint", first.url, "--out", str(out)]) == 4
    first.server.should_exit = True
    second = Endpoint(weights=b"other weights")
    try:
        assert cli.main(["score", str(file), "--endpoint", second.url, "--out", str(out)]) == 4
    finally:
        second.server.should_exit = True
    assert "starting anew" in capsys.readouterr().err


def test_rerank_prints_one_object_a_task(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    other = tiny_model.run("lone", {1}, 3, task_id="second")
    trajectory.write(file, [RUNS[2], other, RUNS[0], RUNS[1]])
    assert cli.main(["rerank", str(file), "--endpoint", endpoint.url]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["task_id"], row["best"]) for row in found] == [("toy", "good"), ("second", "lone")]
    assert found[0]["order"][0] == "good" and not found[0]["tie"] and len(found[0]["verdicts"]) == 3
    trajectory.write(file, [tiny_model.run("x", set(), 2, task_id=None)])
    assert cli.main(["rerank", str(file), "--endpoint", endpoint.url]) == 1
    assert "no task.id" in capsys.readouterr().err


def test_threshold_and_selector_of_the_model_folder_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scripted model is 0.9 sure, so from 0.95 on it flags nothing; the last of several first mistakes is best."""
    runs = [tiny_model.run("early", {1}, 6), tiny_model.run("late", {5, 6}, 6)]
    file = tmp_path / "runs.jsonl"
    trajectory.write(file, runs)
    for threshold, found in ((0.5, [1, 5]), (0.95, [None, None])):
        running = Endpoint(msgspec.structs.replace(CONFIG, threshold=threshold, selector="first_mistake"))
        try:
            assert [item.first_mistake for item in Client(running.url).score(runs)] == found
            about = Client(running.url).version()
            assert (about.threshold, about.selector) == (threshold, "first_mistake")
            assert cli.main(["rerank", str(file), "--endpoint", running.url]) == 0
            ranking = json.loads(capsys.readouterr().out)
            assert ranking["reason"] == Client(running.url).rerank(runs).reason
            assert ranking["order"] == ["late", "early"] if threshold == 0.5 else ranking["tie"]
        finally:
            running.server.should_exit = True


def test_help_of_serve_holds_a_request_that_is_accepted(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--help"]) == 0
    example = re.search(r"-d '(.*?)'", capsys.readouterr().out, re.DOTALL)
    assert example and post(endpoint, "/v1/score", example[1].encode())[0] == 200


def test_bad_files_are_refused_before_the_model_is_asked(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    before = len(endpoint.engine.requests)
    words = ["--endpoint", endpoint.url]
    for content in (b"", b'{"id":', b"\xff\xfe", b'{"id":"a"}\n'):
        file.write_bytes(content)
        assert cli.main(["score", str(file), *words]) == 1
    trajectory.write(file, RUNS)
    assert cli.main(["score", str(file), str(file), *words]) == 1
    assert "already in" in capsys.readouterr().err
    assert cli.main(["score", str(file), "--out", str(file), *words]) == 2
    assert cli.main(["score", str(file)]) == 2
    assert len(endpoint.engine.requests) == before


def test_a_taken_port_is_one_error_before_anything_starts(endpoint: Endpoint) -> None:
    port = endpoint.url.rsplit(":", 1)[1]
    words = [sys.executable, "-m", "scout", "serve", "nowhere", "--port", port]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "give another --port" in done.stderr and "Traceback" not in done.stderr
    assert cli.main(["serve", "nowhere", "--port", "0"]) == 1
    assert cli.main(["serve", "nowhere", "--port", "70000"]) == 2
    assert cli.main(["serve", "nowhere", "--host", "no.such.host.invalid"]) == 2
