"""Real files of public data sets: each loads or is refused with a reason; counts equal the data's own description."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scout import formats, trajectory
from scout.trajectory import Trajectory


def spread(values: list[int]) -> tuple[int, float, int]:
    return min(values), statistics.median(values), max(values)


def test_harbor_golden_files(shared_data: Path) -> None:
    files = sorted((shared_data / "harbor_atif/golden").rglob("*.trajectory*.json"))
    assert len(files) == 10
    counts = {}
    for file in files:
        (run,) = formats.load(file)
        assert formats.detect(file) == "atif"
        assert run.task.text
        assert all(step.thought or step.action or step.observation for step in run.steps)
        counts[file.name.removeprefix("hello-world")] = len(run.steps)
    assert counts["-context-summarization.trajectory.json"] == 7
    assert counts["-context-summarization-linear-history.trajectory.cont-1.json"] == 4
    assert counts["-context-summarization.trajectory.summarization-1-answers.json"] == 1
    assert counts["-invalid-json.trajectory.json"] == 4


def test_codetracer_runs_and_outcomes(shared_data: Path) -> None:
    files = sorted((shared_data / "codetracer/kimi_k2.5").glob("*/agent/trajectory.json"))
    runs = [run for file in files for run in formats.load(file)]
    assert len(runs) == 28
    assert spread([run.meta["agent_entries"] for run in runs]) == (4, 28, 108)
    assert Counter(run.outcome.passed for run in runs) == {False: 26, True: 2}
    assert len({run.task.id for run in runs}) == 28
    assert sum("put back" in " ".join(run.meta["warnings"]) for run in runs) == 13
    for file, run in zip(files, runs, strict=True):
        _nothing_is_lost(json.loads(file.read_text())["steps"], run)


def _nothing_is_lost(entries: list[dict[str, object]], run: Trajectory) -> None:
    """Every entry of the agent is in exactly one step or is empty; every result is in an observation."""
    used = [int(number) for step in run.steps for number in str(step.source_ref).rpartition(":")[2].split(",")]
    assert len(used) == len(set(used))
    seen = "\n".join(step.observation for step in run.steps)
    for position, entry in enumerate(entries):
        if entry["source"] == "agent" and position not in used:
            assert not entry.get("tool_calls") and not entry.get("message") and not entry.get("reasoning_content")
        observation = entry.get("observation") or {}
        assert isinstance(observation, dict)
        for result in observation.get("results", []):
            assert (result["content"] or "") in seen


@pytest.mark.parametrize(
    ("name", "runs", "tasks", "passed", "steps"),
    [
        ("tau_bench/historical_trajectories/gpt-4o-airline.json", 152, 38, 73, (2, 11, 30)),
        ("agentprocessbench/hotpotqa.jsonl", 165, 33, 103, (1, 3, 30)),
        ("agentrx/tau_retail/tau_dataset_full.json", 71, 71, 52, None),
        ("agentrx/tau_retail/tau_dataset_failed.json", 20, 20, 0, None),
        ("tau_bench/docent_sample/tb_airline.json", 1, 1, 0, None),
    ],
)
def test_chat_like_sets(
    shared_data: Path, name: str, runs: int, tasks: int, passed: int, steps: tuple[int, float, int] | None
) -> None:
    found = list(formats.load(shared_data / name))
    assert len(found) == len({run.id for run in found}) == runs
    assert len({run.task.id for run in found}) == tasks
    assert sum(run.outcome.passed is True for run in found) == passed
    assert all(run.outcome.passed is not None for run in found)
    if steps is not None:
        middle = int(statistics.median_low([len(run.steps) for run in found]))
        assert (min(len(run.steps) for run in found), middle, max(len(run.steps) for run in found)) == steps
    for run in found:
        assert trajectory.loads(trajectory.dumps(run)) == run


def test_source_refs_lead_back_to_the_message(shared_data: Path) -> None:
    lines = (shared_data / "agentprocessbench/hotpotqa.jsonl").read_text().splitlines()
    for run in formats.load(shared_data / "agentprocessbench/hotpotqa.jsonl"):
        for step in run.steps:
            _, line, index = str(step.source_ref).split(":")
            row = json.loads(lines[int(line) - 1])
            assert row["messages"][int(index)]["role"] == "assistant"
            assert index in row["step_labels"]


_MEASURE = """
import re, sys
from scout import formats
runs = sum(1 for _ in formats.load(sys.argv[1]))
print(runs, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(("runs", "result_lines", "limit_kilobytes"), [(1, 22_000, 1_000_000), (30, 220, 150_000)])
def test_memory_stays_bounded(tmp_path: Path, runs: int, result_lines: int, limit_kilobytes: int) -> None:
    """P6: a run of 100 MB is read below 1 GB; a file of many runs needs the memory of one."""
    talk = [{"role": "user", "content": "Go."}]
    for number in range(500):
        talk.append({"role": "assistant", "content": f"Step {number}."})
        talk.append({"role": "tool", "content": "line no 1" * result_lines})
    line = json.dumps({"messages": talk}) + "\n"
    file = tmp_path / "big.jsonl"
    with file.open("w") as stream:
        for _ in range(runs):
            stream.write(line)
    assert file.stat().st_size > (95_000_000 if runs == 1 else 25_000_000)
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(file)], capture_output=True, text=True, check=True)
    read, kilobytes = map(int, done.stdout.split())
    assert read == runs
    assert kilobytes < limit_kilobytes
