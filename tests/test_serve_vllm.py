"""Real vLLM in process and behind the real served endpoint, with a tiny model that was taught a toy."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model

from scout import cli, trajectory, verdict
from scout.scorer import folder as folders
from scout.serve.client import Client

pytestmark = pytest.mark.vllm

LIMIT_SECONDS = 600
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""For a model this small a second thread only waits."""
RUNS = [tiny_model.run(f"run{i}", {2, 5} if i % 2 else set(), 6, task_id=f"task{i // 4}") for i in range(12)]
GOLD = [2 if i % 2 else None for i in range(12)]

IN_PROCESS = """
import json, sys
from scout import trajectory, verdict
from scout.scorer.engine import Request
from scout.scorer.local import open_local
from scout.scorer.vllm_engine import VllmEngine
scorer = open_local(sys.argv[1])
runs = list(trajectory.read(sys.argv[2]))
verdict.write(sys.argv[3], scorer.score(runs))
engine = scorer._engine
prompt = tuple(json.loads(sys.argv[4]))
requests = [Request(prompt, seed, 100) for seed in range(8)]
replies = engine.generate(requests)
again = engine.generate(requests[::-1])[::-1]
print(json.dumps([[list(r.token_ids), r.ended, {str(k): v for k, v in r.label_logps.items()}] for r in replies]))
print(json.dumps([list(r.token_ids) for r in again]))
"""


def descendants(pid: int) -> set[int]:
    """All processes below that one."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= {int(child)} | descendants(int(child))
    return found


def gone(pids: set[int], seconds: float = 20) -> bool:
    """Whether those processes end within that time (a zombie has ended)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not [pid for pid in pids if _runs(pid)]:
            return True
        time.sleep(0.2)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def start(folder: Path, log: Path, until: str) -> subprocess.Popen[bytes]:
    """`scoutv serve` on a free port, as far as that line of its log."""
    words = [sys.executable, "-m", "scout", "serve", str(folder), "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, env=ONE_THREAD)
    deadline = time.monotonic() + LIMIT_SECONDS
    while until not in log.read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    return process


@pytest.fixture(scope="module")
def runs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    trajectory.write(file, RUNS)
    return file


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address and process of a served taught model."""
    log = tmp_path_factory.mktemp("serve") / "log"
    process = start(tiny_model.taught_folder(), log, "ready on")
    found = re.search(r"ready on (\S+)", log.read_text())
    assert found, log.read_text()
    yield found[1], process
    process.terminate()
    process.wait(60)


def test_the_served_model_finds_first_mistakes(served: tuple[str, subprocess.Popen[bytes]], runs_file: Path) -> None:
    out = runs_file.with_name("served.jsonl")
    assert cli.main(["score", str(runs_file), "--endpoint", served[0], "--out", str(out)]) in (0, 3)
    verdicts = list(verdict.read(out))
    right = sum(v.status == "scored" and v.first_mistake == gold for v, gold in zip(verdicts, GOLD, strict=True))
    assert right >= 10
    assert all(v.usage.requests >= 4 and v.seconds > 0 and v.fingerprint for v in verdicts)
    for candidates in (RUNS[:4], RUNS[4:8]):
        assert Client(served[0]).rerank(candidates).best in {run.id for run in candidates[::2]}


def test_in_process_equals_transformers_and_the_endpoint(
    served: tuple[str, subprocess.Popen[bytes]], runs_file: Path
) -> None:
    """P29: raw label probabilities of vLLM equal those of transformers within 0.02 on the same tokens. P38: seeds."""
    import torch
    from transformers import AutoModelForCausalLM

    from scout import render
    from scout.scorer.engine import label_tuple

    folder = folders.load(tiny_model.taught_folder())
    prompt = render.render_prompt(folder.tokenizer, tiny_model.windows(RUNS[1])[0][0])
    out = runs_file.with_name("local.jsonl")
    words = [sys.executable, "-c", IN_PROCESS, str(folder.path), str(runs_file), str(out), json.dumps(prompt)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr[-3000:]
    replies, again = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert [reply[0] for reply in replies] == again, "a reply depends on its seed, not on its place in the batch"
    assert sum(ended for _, ended, _ in replies) >= 6
    model = AutoModelForCausalLM.from_pretrained(folder.path).eval()
    labels = label_tuple(folder.labels)
    compared = 0
    for ids, _, logps in replies:
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + ids])).logits[0].float()
        for place, found in logps.items():
            expected = torch.log_softmax(logits[len(prompt) + int(place) - 1], dim=-1)[list(labels)]
            assert torch.allclose(torch.tensor(found).exp(), expected.exp(), atol=0.02)
            compared += 1
    assert compared >= 40
    for one, other in zip(Client(served[0]).score(RUNS), verdict.read(out), strict=True):
        assert one.status == other.status and one.first_mistake == other.first_mistake
        assert one.p_yes is None or one.p_yes == pytest.approx(other.p_yes, abs=0.02)


@pytest.mark.data
def test_real_runs_get_a_verdict_for_every_step_or_a_reason(
    served: tuple[str, subprocess.Popen[bytes]], shared_data: Path, tmp_path: Path
) -> None:
    """Nothing is lost. Quality is not looked at: the model knows nothing of these runs."""
    from scout import formats
    from scout.errors import ScoutError

    files = []
    for file in sorted(shared_data.rglob("*.json*"), key=lambda path: path.stat().st_size):
        try:
            runs = list(formats.load(file)) if file.stat().st_size < 300_000 else []
        except ScoutError:
            continue
        if runs and sum(len(run.steps) for run in runs) in range(3, 40):
            files.append((file, runs))
        if len(files) == 3:
            break
    assert files
    for file, runs in files:
        out = tmp_path / "verdicts.jsonl"
        assert cli.main(["score", str(file), "--endpoint", served[0], "--out", str(out)]) in (0, 3)
        for run, found in zip(runs, verdict.read(out), strict=True):
            assert [s.index for s in found.steps] == [s.index for s in run.steps]
            assert found.status == "scored" or found.unscored_reason


def test_ctrl_c_stops_both_and_leaves_no_process(served: tuple[str, subprocess.Popen[bytes]]) -> None:
    """The last test of the served model."""
    process = served[1]
    below = descendants(process.pid)
    assert below
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert gone(below)


def test_ctrl_c_during_start_leaves_no_process(tmp_path: Path) -> None:
    process = start(tiny_model.random_folder(), tmp_path / "log", "starting vLLM")
    while not (below := descendants(process.pid)) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert gone(below)


def test_vllm_that_dies_during_start_is_one_error(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model.random_folder(), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    process = start(folder, tmp_path / "log", "stopped")
    assert process.wait(60) == 4
    text = (tmp_path / "log").read_text()
    assert "vLLM ended during start" in text and "vllm: " in text
    assert "ready" not in text


def test_a_random_model_is_unscored_and_stdout_holds_json_only(tmp_path: Path) -> None:
    """P46, through the command with vLLM in its own process."""
    file = tmp_path / "runs.jsonl"
    trajectory.write(file, RUNS[:2])
    words = [sys.executable, "-m", "scout", "score", str(file), "--model", str(tiny_model.random_folder())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=ONE_THREAD)
    assert done.returncode == 3, done.stderr[-3000:]
    verdicts = [verdict.loads(line) for line in done.stdout.splitlines()]
    assert [v.status for v in verdicts] == ["unscored"] * 2
    assert all("4 of 4 analyses cannot be read" in str(v.unscored_reason) for v in verdicts)
