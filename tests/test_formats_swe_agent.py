"""SWE-agent's `.traj`: steps, task without demonstrations, and outcomes that lie beside the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError
from scout.formats.outcomes import outcome_beside
from scout.trajectory import Outcome, Trajectory

FIXTURES = Path(__file__).parent / "fixtures/swe_agent"
OLD = "runs/model-a/trajs/demo__calc-1.traj"
NEW = "demo__licence-2/demo__licence-2.traj"


def load(name: str) -> Trajectory:
    assert formats.detect(FIXTURES / name) == "swe_agent"
    (run,) = formats.load(FIXTURES / name)
    return run


def test_steps_of_0_7() -> None:
    run = load(OLD)
    assert (run.id, run.task.id) == ("model-a/demo__calc-1", "demo__calc-1")
    assert [step.action for step in run.steps] == ["ls", "open calc.py", "edit 1:1\nprint(1)\nend_of_edit"]
    assert run.steps[0].thought == "DISCUSSION\nWhere is it?\n" and run.steps[0].observation == "calc.py\n"
    assert run.steps[2].observation == ""
    assert [step.source_ref for step in run.steps] == [f"demo__calc-1.traj:trajectory:{at}" for at in range(3)]


def test_the_demonstration_is_no_part_of_the_task() -> None:
    run = load(OLD)
    assert run.task.text.startswith("SETTING") and "divides by zero" in run.task.text
    assert "marmalade" not in trajectory.dumps(run)
    assert "1 messages of a demonstration" in run.meta["left_out"]


def test_agent_messages_that_only_the_history_has_are_counted() -> None:
    assert "1 messages of the agent in the history that are in no step" in load(OLD).meta["left_out"]


def test_a_run_cut_off_by_its_budget_can_be_resolved_and_null_is_unknown() -> None:
    runs = [load(f"runs/model-{model}/trajs/demo__calc-1.traj") for model in "abc"]
    assert [run.outcome.passed for run in runs] == [True, False, None]
    assert len({run.id for run in runs}) == 3 and {run.task.id for run in runs} == {"demo__calc-1"}
    assert runs[0].meta["exit_status"] == "submitted (exit_cost)"
    assert any("stopped this run" in note for note in runs[0].meta["warnings"])
    assert "exit_status" not in runs[1].meta


def test_steps_of_1_x() -> None:
    run = load(NEW)
    assert run.id == "swe_agent/demo__licence-2" and run.outcome.passed is None
    assert run.task.text == "You use tools.\n\n<pr_description>\nAdd a licence.\n</pr_description>"
    assert [step.action for step in run.steps][2:] == ["", "submit"]
    assert run.steps[2].thought == "I thought of something without calling a tool."
    assert run.steps[0].observation == "src/\r\n"
    assert "keys of the steps: response, execution_time, state, query, extra_info" in run.meta["left_out"]


def test_without_a_history_the_first_query_is_the_task() -> None:
    run = load("query-only.traj")
    assert run.task.text.endswith("Add a licence.\n</pr_description>") and len(run.steps) == 2
    assert run.task.id == "query-only"


def test_without_steps_the_history_is_the_run() -> None:
    run = load("history-only.traj")
    assert [step.action for step in run.steps][::2] == ["ls -F", ""] and run.steps[0].observation == "src/\r\n"
    assert [step.source_ref for step in run.steps] == [f"history-only.traj:history:{at}" for at in (3, 5, 7)]
    assert run.meta["messages"] == [[3, 4], [5, 6], [7]] and run.steps[2].thought == "Nothing more to do."


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"trajectory": [{"action": 1, "observation": "", "thought": ""}]}, r"trajectory\[0\]: action"),
        ({"history": [{"role": "user", "content": "x", "agent": "main"}]}, "no step of the agent"),
        (
            {"trajectory": [{"action": "a", "observation": "", "thought": ""}], "history": [{"content": 1}]},
            r"history\[0\]",
        ),
    ],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, content: Any, told: str) -> None:
    (tmp_path / "a.traj").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.traj"))


@pytest.mark.parametrize(
    ("name", "content", "passed"),
    [
        ("results.json", {"resolved": ["demo__licence-2"], "no_logs": []}, True),
        ("results/results.json", {"resolved_ids": [], "unresolved_ids": ["demo__licence-2"]}, False),
        ("results.json", {"resolved": ["other"]}, None),
        ("results.json", {"resolved": 3, "unresolved": 2, "resolved_ids": ["demo__licence-2"]}, True),
        ("results.json", {"demo__licence-2": {"model_patch": ""}}, None),
        ("results.json", ["demo__licence-2"], None),
        ("outcomes.jsonl", {"path": "other.traj", "resolved": True}, None),
    ],
)
def test_outcomes_beside(tmp_path: Path, name: str, content: Any, passed: bool | None) -> None:
    run = tmp_path / "run" / "demo__licence-2"
    shutil.copytree(FIXTURES / "demo__licence-2", run)
    place = tmp_path / "run" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(content))
    (found,) = formats.load(run / "demo__licence-2.traj")
    assert found.outcome.passed is passed


def test_a_broken_row_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "outcomes.jsonl").write_text('{"path": 3}\nnonsense\n{"path": "a.traj", "resolved": false}\n')
    assert outcome_beside(tmp_path / "a.traj", "a") == Outcome(passed=False)
