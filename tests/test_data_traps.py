"""What misleads in public runs and labels: a small case of each trap that no test of its reader already holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.label import label
from scout import formats, trajectory
from scout.trajectory import Outcome, Trajectory


def save(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def atif(path: Path, *entries: dict[str, Any]) -> Trajectory:
    steps = [{"step_id": 1, "source": "user", "message": "Do it."}]
    steps += [{"step_id": at, "source": "agent", **entry} for at, entry in enumerate(entries, 2)]
    (run,) = formats.load(save(path, {"schema_version": "ATIF-v1.2", "steps": steps}))
    return run


def test_a_parse_error_is_an_observation_without_a_call_and_a_call_may_bring_none(tmp_path: Path) -> None:
    call = {"tool_call_id": "c", "function_name": "Bash", "arguments": {"command": "ls"}}
    back = {"results": [{"content": "Previous response had parsing errors."}]}
    nothing = {"results": [{"source_call_id": "c", "content": None}]}
    run = atif(
        tmp_path / "a.json",
        {"message": "I think.", "observation": back},
        {"message": "Now.", "tool_calls": [call]},
        {"message": "Again.", "tool_calls": [{**call, "tool_call_id": "c2"}], "observation": nothing},
    )
    assert [(step.action, step.observation) for step in run.steps] == [
        ("", "Previous response had parsing errors."),
        ('Bash {"command":"ls"}', ""),
        ('Bash {"command":"ls"}', ""),
    ]


def test_calls_whose_arguments_were_lost_stay_as_the_harness_ran_them(tmp_path: Path) -> None:
    call = {"tool_call_id": "c", "function_name": "Bash", "arguments": {"": ""}}
    run = atif(tmp_path / "a.json", {"message": "", "tool_calls": [call]}, {"message": "", "tool_calls": [call]})
    assert [step.action for step in run.steps] == ['Bash {"":""}'] * 2


def test_a_repeated_result_in_extra_is_not_shown_twice(tmp_path: Path) -> None:
    entry = {
        "message": "Look.",
        "tool_calls": [{"tool_call_id": "c", "function_name": "Bash", "arguments": {"command": "ls"}}],
        "observation": {"results": [{"source_call_id": "c", "content": "a.txt"}]},
        "extra": {"tool_result_metadata": {"stdout": "a.txt and much more"}},
    }
    (step,) = atif(tmp_path / "a.json", entry).steps
    assert step.observation == "a.txt" and "much more" not in trajectory.dumps(atif(tmp_path / "b.json", entry))


@pytest.mark.parametrize("name", ["exit_status", "info"])
def test_a_run_of_one_step_without_a_status_is_a_run_of_unknown_outcome(tmp_path: Path, name: str) -> None:
    step = {"action": "ls\n", "observation": "a.txt", "response": "Look.", "thought": "Look.", "state": "{}"}
    history = [{"role": "user", "agent": "main", "content": "Fix it."}]
    run = {"environment": "repo-1", "trajectory": [step], "history": history, "info": {} if name == "info" else None}
    (read,) = formats.load(save(tmp_path / "run/trajs/repo-1.traj", run))
    assert (len(read.steps), read.task.id, read.outcome) == (1, "repo-1", Outcome())


def test_demonstrations_of_one_instance_are_named_by_their_folder(tmp_path: Path) -> None:
    step = {"action": "ls", "observation": "", "response": "Look.", "thought": "Look.", "messages": []}
    run = {"environment": "marshmallow-1867", "trajectory": [step], "replay_config": '{"a": 1}', "info": {}}
    files = [save(tmp_path / folder / "marshmallow-1867.traj", run) for folder in ("default", "function_calling")]
    ids = [next(formats.load(file)).id for file in files]
    assert ids == ["default/marshmallow-1867", "function_calling/marshmallow-1867"]


def test_a_right_answer_after_a_wrong_step_stays_both(tmp_path: Path) -> None:
    """A verdict on the run must not be derived from its steps."""
    turns = [{"role": "user", "content": "Go."}]
    for text in ("One.", "Two."):
        turns += [{"role": "assistant", "content": text}, {"role": "user", "content": "Yes?"}]
    row = {"messages": turns, "query_index": 0, "sample_index": 0, "data_source": "h", "final_label": 1}
    file = tmp_path / "hotpotqa.jsonl"
    file.write_text(json.dumps({**row, "step_labels": {"1": -1, "3": 1}}) + "\n")
    label("agentprocessbench", [file], [file], tmp_path / "out.jsonl")
    (run,) = trajectory.read(tmp_path / "out.jsonl")
    assert run.has_mistake and run.outcome.passed and run.task.id == "h:0"
    assert run.labels is not None and run.labels.step_labels == ("incorrect", "correct")


def test_messages_of_one_role_in_a_row_are_read_in_their_order(tmp_path: Path) -> None:
    turns = [("user", "Go."), ("user", "Please."), ("assistant", "One."), ("user", "And?"), ("user", "Well?")]
    turns += [("assistant", "Two."), ("assistant", "Three.")]
    file = save(tmp_path / "a.json", [{"role": role, "content": text} for role, text in turns])
    (run,) = formats.load(file)
    assert run.task.text == "Go.\n\nPlease."
    assert [(step.thought, step.observation) for step in run.steps] == [
        ("One.", "And?\nWell?"),
        ("Two.", ""),
        ("Three.", ""),
    ]


def test_files_of_one_name_in_two_parts_are_two_runs_of_one_task(tmp_path: Path) -> None:
    """`12.json` is in both parts of Who&When; `level` is a text, a number or missing, and `labels` a stray key."""
    row = {"question": "How many?", "question_ID": "q1", "mistake_step": "0", "mistake_agent": "Ann"}
    first = {**row, "history": [{"role": "user", "name": "Ann", "content": "Six."}], "is_correct": False, "level": "2"}
    other = {**row, "history": [{"role": "Ann", "content": "Seven."}], "is_corrected": False, "level": 2, "labels": [1]}
    (a,) = formats.load(save(tmp_path / "one/12.json", first))
    (b,) = formats.load(save(tmp_path / "two/12.json", other))
    assert a.task.id == b.task.id == "q1" and a.steps[0].thought == "Ann: Six." and b.steps[0].thought == "Ann: Seven."
    assert a.outcome.passed is b.outcome.passed is False
    assert any("labels" in note for note in b.meta["left_out"])


def test_one_kind_of_failure_has_one_spelling(tmp_path: Path) -> None:
    kinds = ["Instruction Adherence Failure", "Instruction/Plan Adherence Failure", "Intent not supported"]
    run = [{"role": "human", "content": "Go."}, *({"role": "Websurfer", "content": f"Step {at}."} for at in range(3))]
    failures = [
        {"failure_id": at, "step_number": at + 2, "failure_category": kind, "failed_agent": "WebSurfer"}
        for at, kind in enumerate(kinds)
    ]
    record = {"trajectory_id": "0a-1", "failures": failures, "root_cause": {"failure_id": 0}}
    file = save(tmp_path / "0a-1.json", run)
    label("agentrx", [file], [save(tmp_path / "labels.json", [record])], tmp_path / "out.jsonl")
    (found,) = trajectory.read(tmp_path / "out.jsonl")
    same = "instruction/plan adherence failure"
    assert found.labels is not None and found.labels.kinds == (same, same, "intent not supported")
