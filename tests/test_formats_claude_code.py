"""Claude Code: session files and the printed stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scout import formats
from scout.errors import FormatError
from scout.formats.positions import step_of_message
from scout.trajectory import Trajectory

FIXTURES = Path(__file__).parent / "fixtures/claude_code"


def load(file: Path) -> list[Trajectory]:
    assert formats.detect(file) == "claude_code"
    return list(formats.load(file))


def test_entries_of_one_message_are_one_step() -> None:
    run, _ = load(FIXTURES / "session.jsonl")
    assert run.id == "s1" and run.task.text == "Fix the bug."
    first = run.steps[0]
    assert first.thought == "Where is it?\nI look."
    assert first.action == 'Read {"file_path":"a.py"}\nBash {"command":"ls"}'
    assert first.observation == "Read: x = 1\nBash: a.py"
    assert first.source_ref == "session.jsonl:4,5,6,7"
    assert [step_of_message(run, line) for line in (3, 4, 8, 10)] == [None, 1, 1, 2]


def test_a_sub_agent_is_a_run_of_its_own() -> None:
    run, inner = load(FIXTURES / "session.jsonl")
    assert run.steps[1].action == 'Task {"prompt":"Search."}' and run.steps[1].observation == "Found it."
    assert inner.id == "s1/b1" and inner.meta["parent"] == "s1" and inner.task.text == "Search."
    assert [(step.thought, step.observation) for step in inner.steps] == [("", "a.py:1"), ("Found it.", "")]
    assert inner.outcome.passed is None


def test_only_the_last_branch_is_the_run() -> None:
    run, _ = load(FIXTURES / "session.jsonl")
    assert [step.thought for step in run.steps[2:]] == ["It is fixed.", "Tested."]
    assert run.steps[2].observation == "Please test it."
    left_out = run.meta["left_out"]
    for note in (
        "1 summary entries",
        "1 file-history-snapshot entries",
        "1 system entries",
        "2 copies of tool results with further fields",
        "1 messages of the harness in the model's name",
        "1 entries written twice",
        "2 entries of branches that were left",
    ):
        assert note in left_out


def test_the_stream_has_no_task_and_tells_how_it_ended() -> None:
    run, inner = load(FIXTURES / "stream.txt")
    assert run.id == "s2" and [step.observation for step in run.steps] == ["Found.", ""]
    assert run.meta["agent_model"] == "a-model"
    assert {"no task text was found", "the session ended with an error (error_max_turns)"} <= set(run.meta["warnings"])
    assert inner.id == "s2/t1" and inner.task.text == "Search."


def test_a_file_of_a_sub_agent_alone_is_one_run(tmp_path: Path) -> None:
    lines = [line for line in (FIXTURES / "session.jsonl").read_text().splitlines() if '"isSidechain": true' in line]
    (tmp_path / "agent-1.jsonl").write_text("\n".join(lines))
    (run,) = load(tmp_path / "agent-1.jsonl")
    assert run.id == "s1" and len(run.steps) == 2


@pytest.mark.parametrize(("reward", "passed"), [(1.0, True), (0.0, False), (None, None)])
def test_a_trial_gives_id_and_outcome(tmp_path: Path, reward: float | None, passed: bool | None) -> None:
    (tmp_path / "agent").mkdir()
    file = tmp_path / "agent/claude-code.txt"
    file.write_text((FIXTURES / "stream.txt").read_text())
    verified = None if reward is None else {"rewards": {"reward": reward}}
    result = {"task_name": "t", "trial_name": "t__1", "verifier_result": verified}
    (tmp_path / "result.json").write_text(json.dumps(result))
    run, inner = load(file)
    assert (run.id, run.task.id, run.outcome.passed, inner.outcome.passed) == ("t__1", "t", passed, None)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"type": "user", "sessionId": "s"', r"a\.jsonl:2"),
        ('{"type": "user", "message": {"content": 3}}', "content"),
        ('{"type": "user", "uuid": 3, "sessionId"', "uuid"),
        ('{"type": "user", "uuid": -1e999}', "uuid"),
    ],
)
def test_a_bad_entry_is_refused_with_its_line(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"type": "user", "sessionId": "s", "message": {"content": "Hi"}}\n' + line)
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.jsonl"))


def test_a_session_without_the_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"type": "user", "sessionId": "s", "message": {"content": "Hi"}}\n')
    with pytest.raises(FormatError, match="no message of the model"):
        list(formats.load(tmp_path / "a.jsonl"))


def test_public_streams_equal_the_converted_trajectories_beside_them(shared_data: Path) -> None:
    files = sorted((shared_data / "codetracer/kimi_k2.5").glob("*/agent/claude-code.txt"))
    assert len(files) == 5
    steps = []
    for file in files:
        (run,), (converted,) = load(file), formats.load(file.with_name("trajectory.json"))
        assert (run.id, run.task.id, run.outcome) == (converted.id, converted.task.id, converted.outcome)
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        calls = sum(
            part["type"] == "tool_use"
            for entry in entries
            if entry["type"] == "assistant"
            for part in entry["message"]["content"]
        )
        assert sum(len(step.action.splitlines()) for step in run.steps) == calls
        # The converted file has lost a call whose id was used twice, and with it a step of one run.
        assert 0 <= len(run.steps) - len(converted.steps) <= 1
        steps.append(len(run.steps))
    assert steps == [9, 22, 20, 12, 12]
