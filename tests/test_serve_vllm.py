"""Real vLLM in process and behind the real served endpoint, with a tiny model that was taught a toy.

vLLM takes half a minute to start, so one endpoint and one process are shared; tests about an end come last.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from processes import LIMIT_SECONDS, ONE_THREAD, address, descendants, gone, serve

from scout import cli, formats, prompt, render, trajectory, verdict
from scout.errors import ServerError
from scout.scorer import folder as folders
from scout.serve.client import Client
from scout.trajectory import Trajectory

pytestmark = pytest.mark.vllm

RUNS = [tiny_model.run(f"run{i}", {2, 5} if i % 2 else set(), 6, task_id=f"task{i // 4}") for i in range(12)]
GOLD = [2 if i % 2 else None for i in range(12)]

IN_PROCESS = """
import json, sys
from scout import cli
from scout.scorer import folder
from scout.scorer.engine import Request
from scout.scorer.vllm_engine import VllmEngine
taught, random, runs, out, prompt = sys.argv[1:]
sys.stderr.write(f"taught: {cli.main(['score', runs, '--model', taught, '--out', out])}\\n")
sys.stderr.write(f"random: {cli.main(['score', runs, '--model', random])}\\n")
engine = VllmEngine(folder.load(taught))
requests = [Request(tuple(json.loads(prompt)), seed, 100) for seed in range(8)]
replies = engine.generate(requests)
again = engine.generate(requests[::-1])[::-1]
facts = [[list(r.token_ids), r.ended, {str(k): v for k, v in r.label_logps.items()}] for r in replies]
with open(out + ".replies", "w") as file:
    json.dump([facts, [list(r.token_ids) for r in again]], file)
"""

TWO_ENGINES = """
import os, signal, sys
from scout import trajectory, verdict
from scout.errors import ServerError
from scout.scorer.local import open_local
from scout.scorer.replicas import Replicas
taught, runs, out = sys.argv[1:]
scorer = open_local(taught)
engines = scorer._engine
assert isinstance(engines, Replicas) and len(engines._workers) == 2
verdict.write(out, scorer.score(list(trajectory.read(runs))))
os.kill(engines._workers[1].pid, signal.SIGKILL)
try:
    scorer.score(list(trajectory.read(runs)))
except ServerError as error:
    print(error)
"""


@dataclass
class Served:
    """A served taught model."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class InProcess:
    """What a process wrote that ran the command and the engine on vLLM of its own."""

    out: Path
    """Verdicts of the taught model on RUNS."""
    replies: list[tuple[list[int], bool, dict[str, list[float]]]]
    """To the first window of RUNS[1]."""
    again: list[list[int]]
    """Token ids of the same replies, asked for in the other order."""
    prompt: list[int]
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def runs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    trajectory.write(file, RUNS)
    return file


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("serve") / "log"
    process = serve(tiny_model.taught_folder(), log, "ready on")
    try:
        yield Served(address(log), process, log)
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture(scope="module")
def in_process(runs_file: Path) -> InProcess:
    folder = folders.load(tiny_model.taught_folder())
    ids = render.render_prompt(folder.tokenizer, tiny_model.windows(RUNS[1])[0][0])
    out = runs_file.with_name("local.jsonl")
    words = [folder.path, tiny_model.random_folder(), runs_file, out, json.dumps(ids)]
    command = [sys.executable, "-c", IN_PROCESS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr[-3000:]
    replies, again = json.loads(out.with_name("local.jsonl.replies").read_text())
    return InProcess(out, replies, again, ids, done.stdout, done.stderr)


def test_the_served_model_finds_first_mistakes(served: Served, runs_file: Path) -> None:
    out = runs_file.with_name("served.jsonl")
    assert cli.main(["score", str(runs_file), "--endpoint", served.url, "--out", str(out)]) in (0, 3)
    verdicts = list(verdict.read(out))
    right = sum(v.status == "scored" and v.first_mistake == gold for v, gold in zip(verdicts, GOLD, strict=True))
    assert right >= 10
    assert all(v.usage.requests >= 4 and v.seconds > 0 and v.fingerprint for v in verdicts)
    for candidates in (RUNS[:4], RUNS[4:8]):
        assert Client(served.url).rerank(candidates).best in {run.id for run in candidates[::2]}


def test_in_process_equals_transformers(in_process: InProcess) -> None:
    """P29: raw label probabilities of vLLM equal those of transformers within 0.02 on the same tokens. P38: seeds."""
    import torch
    from transformers import AutoModelForCausalLM

    from scout.scorer.engine import label_tuple

    folder = folders.load(tiny_model.taught_folder())
    replies = in_process.replies
    assert [reply[0] for reply in replies] == in_process.again, "a reply depends on its seed, not on its place"
    assert sum(ended for _, ended, _ in replies) >= 6
    model: Any = AutoModelForCausalLM.from_pretrained(folder.path).eval()
    labels = label_tuple(folder.labels)
    compared = 0
    for ids, _, logps in replies:
        with torch.inference_mode():
            logits = model(torch.tensor([in_process.prompt + ids])).logits[0].float()
        for place, found in logps.items():
            expected = torch.log_softmax(logits[len(in_process.prompt) + int(place) - 1], dim=-1)[list(labels)]
            assert torch.allclose(torch.tensor(found).exp(), expected.exp(), atol=0.02)
            compared += 1
    assert compared >= 40


def test_in_process_equals_the_endpoint(served: Served, in_process: InProcess) -> None:
    assert "taught: 0" in in_process.stderr or "taught: 3" in in_process.stderr
    for one, other in zip(Client(served.url).score(RUNS), verdict.read(in_process.out), strict=True):
        assert one.status == other.status and one.first_mistake == other.first_mistake
        assert one.p_yes is None or one.p_yes == pytest.approx(other.p_yes, abs=0.02)


def test_an_engine_a_core_gives_the_same_verdicts_and_its_death_is_one_error(
    in_process: InProcess, runs_file: Path
) -> None:
    out = runs_file.with_name("two.jsonl")
    command = [sys.executable, "-c", TWO_ENGINES, str(tiny_model.taught_folder()), str(runs_file), str(out)]
    two = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=two)
    assert done.returncode == 0, done.stderr[-3000:]
    for one, other in zip(verdict.read(out), verdict.read(in_process.out), strict=True):
        assert one.status == other.status and one.first_mistake == other.first_mistake
        assert one.p_yes is None or one.p_yes == pytest.approx(other.p_yes, abs=0.02)
    assert done.stdout.startswith("A vLLM process ended (exit code -9)") and done.stdout.count("\n") == 1


def test_a_random_model_is_unscored_and_stdout_holds_json_only(in_process: InProcess) -> None:
    """P46, through the command with vLLM in its own process."""
    assert "random: 3" in in_process.stderr
    verdicts = [verdict.loads(line) for line in in_process.stdout.splitlines()]
    assert [v.trajectory_id for v in verdicts] == [run.id for run in RUNS]
    assert {v.status for v in verdicts} == {"unscored"}
    assert all("4 of 4 analyses cannot be read" in str(v.unscored_reason) for v in verdicts)


REAL = {
    "harbor_atif/golden/terminus_2/hello-world-context-summarization.trajectory.json": 1,
    "harbor_atif/golden/openhands/hello-world.trajectory.json": 1,
    "codetracer/kimi_k2.5/count-dataset-tokens__RWDmuaA/agent/trajectory.json": 1,
    "codetracer/kimi_k2.5/hf-model-inference__y3xBxYz/agent/trajectory.json": 1,
    "agentrx/tau_retail/tau_dataset_failed.json": 2,
    "agentprocessbench/hotpotqa.jsonl": 4,
    "tau_bench/historical_trajectories/gpt-4o-airline.json": 2,
    "tau_bench/docent_sample/tb_airline.json": 1,
}
"""Public files in ATIF and in chat messages, and how many of their runs are scored; the fourth run has 52 steps."""


@pytest.mark.data
def test_real_runs_get_a_verdict_for_every_step_or_a_reason(served: Served, shared_data: Path, tmp_path: Path) -> None:
    """Nothing is lost and nothing is hidden. Quality is not looked at: the model knows nothing of such runs."""
    runs = [run for name, count in REAL.items() for run in islice(formats.load(shared_data / name), count)]
    assert len(runs) == sum(REAL.values()) and max(len(run.steps) for run in runs) >= 50
    verdicts = Client(served.url).score(runs)
    assert [item.trajectory_id for item in verdicts] == [run.id for run in runs]
    count = render.counter(folders.load(tiny_model.taught_folder()).tokenizer)
    for run, found in zip(runs, verdicts, strict=True):
        _check_real(run, found, {step.index for step in run.steps if count(prompt.step_text(step)) > 768})
    # The command reads such a file as it is.
    file, out = shared_data / list(REAL)[-1], tmp_path / "verdicts.jsonl"
    assert cli.main(["score", str(file), "--endpoint", served.url, "--out", str(out)]) in (0, 3)
    assert [(item.trajectory_id, len(item.steps)) for item in verdict.read(out)] == [(runs[-1].id, len(runs[-1].steps))]


def _check_real(run: Trajectory, found: verdict.Verdict, too_long: set[int]) -> None:
    assert [step.index for step in found.steps] == [step.index for step in run.steps]
    assert not verdict.problems(found) and found.task_id == run.task.id
    if found.status == "unscored":
        assert found.unscored_reason and found.p_yes is None
        assert all(step.label == "unlabelled" and step.p_incorrect is None for step in found.steps)
    else:
        silent = [step.index for step in found.steps if step.p_incorrect is None]
        assert found.p_yes is not None and (not silent or "step" in " ".join(found.warnings))
    assert found.usage.requests >= 4, "the run was refused before the model saw it"
    assert too_long <= set(found.cut.steps) <= {step.index for step in run.steps}
    named = {int(number) for number in re.findall(r"\bstep (\d+)", " ".join(found.cut.parts))}
    assert found.cut.tokens > 0 and named == set(found.cut.steps)


def test_ctrl_c_during_start_leaves_no_process(tmp_path: Path) -> None:
    process = serve(tiny_model.random_folder(), tmp_path / "log", "starting vLLM")
    while not (below := descendants(process.pid)) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert gone(below)


def test_vllm_that_dies_during_start_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what makes it end soonest: a setting of its own that it does not know."""
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "NONSENSE")
    before, running = signal.getsignal(signal.SIGTERM), descendants(os.getpid())
    try:
        assert cli.main(["serve", str(tiny_model.random_folder()), "--port", "0"]) == 4
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr().err
    assert "vLLM ended during start (exit code 1)" in said and "vllm: " in said and "NONSENSE" in said
    assert "ready on" not in said and descendants(os.getpid()) <= running


def test_vllm_that_dies_while_serving_is_one_error(served: Served) -> None:
    """The last test of the served model: a process of vLLM is killed under a long job."""
    below = descendants(served.process.pid)
    assert len(below) >= 3
    long = [tiny_model.run(f"long{i}", set(), 40) for i in range(40)]
    failures: list[str] = []

    def ask() -> None:
        try:
            Client(served.url).score(long)
        except ServerError as error:
            failures.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(1)
    os.kill(next(pid for pid in below if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()), signal.SIGKILL)
    assert served.process.wait(120) == 4
    assert gone(below)
    said = served.log.read_text()
    assert (
        said.rindex("vLLM ended while serving") > said.rindex("ready on") and "Traceback" not in said.split("vllm:")[0]
    )
    asking.join(60)
    assert failures and "no answer" in failures[0]
