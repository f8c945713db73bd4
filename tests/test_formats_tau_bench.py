"""tau-bench results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError
from scout.formats.positions import step_of_message


def row(trial: int, reward: float | None) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "get_user", "arguments": "{}"}}
    traj = [
        {"role": "system", "content": "The policy."},
        {"role": "user", "content": "Cancel it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "get_user", "tool_call_id": "c", "content": "found"},
        {"role": "assistant", "content": "Cancelled."},
        {"role": "user", "content": "###STOP###"},
    ]
    info = {"task": {"actions": [{"name": "secret_action"}], "instruction": "secret wish", "outputs": []}}
    return {"task_id": 0, "reward": reward, "info": info, "traj": traj, "trial": trial}


def test_runs_are_named_by_task_and_trial_and_keep_no_reference(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps([row(0, 1.0), row(1, 0.0), row(2, None)]))
    assert formats.detect(file) == "tau_bench"
    runs = list(formats.load(file))
    assert [run.id for run in runs] == ["results:0:0", "results:0:1", "results:0:2"]
    assert [run.outcome.passed for run in runs] == [True, False, None]
    assert len({run.task.id for run in runs}) == 1
    assert not any("secret" in trajectory.dumps(run) for run in runs)
    assert [step_of_message(runs[0], at) for at in range(6)] == [None, None, 1, 1, 2, 2]
    assert runs[0].steps[0].action == "get_user {}" and runs[0].steps[0].observation == "found"


def test_a_run_without_trial_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    bad = row(1, 0.0)
    del bad["trial"]
    file.write_text(json.dumps([row(0, 1.0), bad]))
    with pytest.raises(FormatError, match=r"results.json:1.*trial"):
        list(formats.load(file))


def test_airline_counts(shared_data: Path) -> None:
    (file,) = (shared_data / "tau_bench/historical_trajectories").rglob("*.json")
    runs = list(formats.load(file))
    tasks = Counter(run.task.id for run in runs)
    assert len(runs) == len({run.id for run in runs}) == 152 and set(tasks.values()) == {4} and len(tasks) == 38
    passed = Counter(run.task.id for run in runs if run.outcome.passed)
    assert round(passed.total() / 152, 3) == 0.480 and round(len(passed) / 38, 3) == 0.763
    assert sum(0 < passed[task] < 4 for task in tasks) == 20
    assert min(len(run.steps) for run in runs) == 2 and max(len(run.steps) for run in runs) == 30
