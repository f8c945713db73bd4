"""mini-swe-agent: the bare list, version 1, and version 2 with tool calls or the Responses API."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from scout import formats
from scout.errors import FormatError
from scout.trajectory import Trajectory

FIXTURES = Path(__file__).parent / "fixtures/mini_swe_agent"


def load(name: str) -> Trajectory:
    assert formats.detect(FIXTURES / name) == "mini_swe_agent"
    (run,) = formats.load(FIXTURES / name)
    return run


def test_a_bare_list() -> None:
    run = load("bare.traj.json")
    assert run.id == "mini_swe_agent/bare" and run.task.text.endswith("greet me.") and run.task.id is None
    hello, end = run.steps
    assert (hello.thought, hello.action) == ("THOUGHT: I say hello.", "echo hello")
    assert hello.observation == "<returncode>0</returncode>\n<output>\nhello\n</output>"
    assert end.thought == "THOUGHT: I end.\nThat is all." and end.observation == ""
    assert [step.source_ref for step in run.steps] == ["bare.traj.json:2", "bare.traj.json:4"]
    assert run.meta["messages"] == [[2, 3], [4, 5]] and run.outcome.passed is None
    assert not any("results" in note for note in run.meta["warnings"])


def test_version_1_takes_exactly_one_bash_block_as_the_action() -> None:
    run = load("v1.traj.json")
    both, one, last = run.steps
    assert both.action == "" and "```bash\npwd" in both.thought and both.observation.startswith("Please always")
    assert one.action == "cat <<'EOF' > a.py\nprint(1)\nEOF" and "```python" in one.thought
    assert one.observation.startswith("<returncode>0") and last.action == "python a.py"
    assert run.task.id == "demo__greet-3" and run.meta["agent_model"] == "a-model"
    assert "the harness stopped this run: 'LimitsExceeded'" in run.meta["warnings"] and run.outcome.passed is None


def test_version_2_pairs_results_by_call_and_counts_the_harness_last_word() -> None:
    run = load("v1.1-tools.traj.json")
    both, aloud, end = run.steps
    assert both.thought == "Two calls are quicker.\nI look twice."
    assert both.action == 'bash {"command": "ls"}\nbash {"command": "pwd"}'
    assert both.observation.startswith("bash: <returncode>0") and "/repo" in both.observation
    assert aloud.action == "" and aloud.observation.startswith("No tool calls")
    assert end.observation == "diff --git a/x b/x\n"
    assert run.meta["warnings"] == [] and run.meta["format_version"] == "mini-swe-agent-1.1"


def test_the_responses_api() -> None:
    run = load("v1.1-responses.traj.json")
    first, second = run.steps
    assert first.thought == "I look first.\nLooking." and first.action == 'bash {"command": "ls"}'
    assert "print(1)" in second.observation and "LimitsExceeded" not in second.observation
    assert "1 messages of the harness at the end of the run" in run.meta["left_out"]


def test_a_harbor_trial_and_an_evaluation_give_the_outcome(tmp_path: Path) -> None:
    agent = tmp_path / "trial" / "agent"
    agent.mkdir(parents=True)
    shutil.copy(FIXTURES / "v1.traj.json", agent / "mini-swe-agent.trajectory.json")
    result = {"task_name": "greet", "trial_name": "greet__x", "verifier_result": {"rewards": {"reward": 1.0}}}
    (tmp_path / "trial/result.json").write_text(json.dumps(result))
    (run,) = formats.load(agent / "mini-swe-agent.trajectory.json")
    assert (run.id, run.task.id, run.outcome.passed) == ("greet__x", "greet", True)
    shutil.copy(FIXTURES / "v1.traj.json", tmp_path / "v1.traj.json")
    (tmp_path / "results.json").write_text(json.dumps({"unresolved_ids": ["demo__greet-3"]}))
    (run,) = formats.load(tmp_path / "v1.traj.json")
    assert run.outcome.passed is False


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"trajectory_format": "mini-swe-agent-1", "messages": [{"role": "user", "content": "x"}]}, "no message of"),
        (
            {"trajectory_format": "mini-swe-agent-1", "messages": [{"role": 1}, {"role": "user", "content": 2}]},
            ":0: role",
        ),
        (
            {"trajectory_format": "mini-swe-agent-1.1", "messages": [{"object": "response", "output": [{"type": 1}]}]},
            ":0:output",
        ),
    ],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, content: Any, told: str) -> None:
    (tmp_path / "a.traj.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.traj.json"))


def test_other_lists_of_messages_stay_with_the_chat_reader(tmp_path: Path) -> None:
    talk = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "How do I list files?"},
        {"role": "assistant", "content": "Like this:\n```bash\nls\n```"},
        {"role": "user", "content": "Thanks."},
    ]
    (tmp_path / "a.json").write_text(json.dumps(talk))
    assert formats.detect(tmp_path / "a.json") == "chat"


def test_a_newer_version_is_read_with_a_warning(tmp_path: Path) -> None:
    content = json.loads((FIXTURES / "v1.traj.json").read_text())
    (tmp_path / "a.traj.json").write_text(json.dumps({**content, "trajectory_format": "mini-swe-agent-9"}))
    (run,) = formats.load(tmp_path / "a.traj.json")
    assert any("not a known version" in note for note in run.meta["warnings"])
