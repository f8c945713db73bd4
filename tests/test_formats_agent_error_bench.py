"""AgentErrorBench: prompts that repeat everything become one observation a step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError
from scout.trajectory import Trajectory

FIXTURE = Path(__file__).parent / "fixtures/agent_error_bench/A-Model_001_memory_b000_t00_e00-abc.json"


def load(path: Path) -> Trajectory:
    assert formats.detect(path) == "agent_error_bench"
    (run,) = formats.load(path)
    return run


def test_steps_are_the_assistant_messages_and_tags_tell_the_action() -> None:
    run = load(FIXTURE)
    assert run.id == FIXTURE.stem and run.outcome.passed is False and run.meta["agent_model"] == "a-model"
    searched, lost, answered = run.steps
    assert searched.action == 'tool: search\nparameters: {"query": "beetle"}'
    assert "<action>tool: guess</action>" in searched.thought and searched.thought.endswith("<plan>I search.</plan>")
    assert lost.action == "" and answered.action == "answer 6"
    assert run.meta["messages"] == [[1, 2], [3, 4], [5]]
    assert not any("results" in note for note in run.meta["warnings"])


def test_only_the_new_observation_of_a_prompt_is_kept() -> None:
    run = load(FIXTURE)
    assert run.steps[0].observation.startswith("Result: You are now at step 9.")
    assert run.steps[0].observation.endswith("Available Tools:\nnone")
    assert run.steps[1].observation == "No action was given.\nYou must provide your final answer."
    assert "old text" not in trajectory.dumps(run) and "Searches." not in trajectory.dumps(run)
    assert "2 prompts that repeat task, history and tools" in run.meta["left_out"]


def test_the_task_is_the_question_and_its_id_no_slot_of_the_file_name(tmp_path: Path) -> None:
    run = load(FIXTURE)
    assert run.task.text == "How many legs\nhas the beetle in the picture?"
    other = tmp_path / "B_002_memory_b001_t00_e00-abc.json.gz"
    other.write_bytes(gzip.compress(FIXTURE.read_bytes().replace(b"beetle in", b"spider in")))
    assert load(other).task.id != run.task.id and load(other).id == "B_002_memory_b001_t00_e00-abc"


def test_prompts_in_another_form_are_kept_whole(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": "<action>look</action>"},
        {"role": "user", "content": "There is nothing."},
        {"role": "assistant", "content": "<answer>none</answer>"},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"messages": talk, "metadata": {"won": None, "environment": "x"}}))
    run = load(tmp_path / "a.json")
    assert run.task.text == "Find it." and run.task.id is None and run.outcome.passed is None
    assert run.steps[0].observation == "There is nothing."
    assert "step 1: a prompt in another form, kept whole" in run.meta["warnings"]


@pytest.mark.parametrize(
    ("messages", "told"),
    [([{"role": "tool", "content": ""}, {"role": "user"}], ":0: role"), ([], "no assistant message")],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, messages: Any, told: str) -> None:
    content = {"messages": messages, "metadata": {"won": False, "environment": "x"}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.json"))
