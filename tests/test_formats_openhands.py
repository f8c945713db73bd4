"""OpenHands: which events are steps, what belongs to which, and what is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scout import formats
from scout.errors import FormatError
from scout.formats.positions import step_of_message
from scout.trajectory import Trajectory

FIXTURES = Path(__file__).parent / "fixtures/openhands"


def load(name: str) -> list[Trajectory]:
    assert formats.detect(FIXTURES / name) == "openhands"
    return list(formats.load(FIXTURES / name))


def test_events_of_an_evaluation() -> None:
    run, _ = load("output.jsonl")
    assert (run.id, run.task.id, run.task.text) == ("demo__demo-1", "demo__demo-1", "Fix the bug.")
    read, listed, edited, finished = run.steps
    assert read.thought == "Where is it?\nI read the file."
    assert (read.action, read.observation) == ('execute_bash {"command": "cat a.py"}', "x = 1")
    assert [step.source_ref for step in run.steps] == [f"output.jsonl:1:{at}" for at in ("4", "6,7", "11,13", "16")]
    assert edited.thought == "The value is wrong.\nI edit it." and edited.action == 'edit {"path":"a.py"}'
    assert finished.action == 'finish {"outputs":{}}'
    assert "message" not in "".join(step.thought for step in run.steps) and "Running command" not in listed.thought
    assert [step_of_message(run, at) for at in (1, 4, 5, 8, 11, 14)] == [None, 1, 1, 2, 3, 3]


def test_observations_pair_by_cause_whatever_their_source_and_order() -> None:
    run, _ = load("output.jsonl")
    assert run.steps[1].observation.startswith("execute_bash: a.py\nexecute_bash: /work\n")


def test_an_error_without_its_call_is_shown_and_no_result() -> None:
    run, _ = load("output.jsonl")
    assert run.steps[1].observation.endswith("Parameter 'command' is wrong.")
    assert "step 2: an error without its call, which was not recorded" in run.meta["warnings"]


def test_events_that_are_no_steps_are_counted() -> None:
    run, _ = load("output.jsonl")
    left_out = " ".join(run.meta["left_out"])
    for kind in ("1 system events", "1 recall events", "1 recall observations", "1 think obs", "1 condensation events"):
        assert kind in left_out


def test_outcome_is_the_tests_verdict_and_else_unknown() -> None:
    tested, stopped = load("output.jsonl")
    assert tested.outcome.passed is False and stopped.outcome.passed is None
    assert any("maximum iteration" in warning for warning in stopped.meta["warnings"])


def test_old_events_of_the_resolver() -> None:
    (run,) = load("resolver.jsonl")
    assert run.id == run.task.id == "o/r#5" and run.task.text == "Add a licence."
    assert [step.action for step in run.steps] == [
        'run {"command":"touch LICENSE"}',
        'run_ipython {"code":"print(1)"}',
        'finish {"outputs":{}}',
    ]
    assert [step.observation for step in run.steps] == ["$ ", "1", ""]


def test_the_resolvers_own_opinion_is_no_outcome() -> None:
    (run,) = load("resolver.jsonl")
    assert run.outcome.passed is None
    assert "success: the opinion of the resolver's own model, no outcome" in run.meta["left_out"]


def test_messages_of_the_agent_are_steps() -> None:
    (run,) = load("events.json")
    assert run.task.text == "What is 1+1?"
    assert [(step.thought, step.observation) for step in run.steps] == [("It is 2.", "And 2+2?"), ("It is 4.", "")]


def test_sdk_events() -> None:
    (run,) = load("sdk.jsonl")
    assert run.task.text == "List the files."
    both, said = run.steps
    assert both.thought == "<think>I look.</think>"
    assert both.action == 'terminal {"command": "ls"}\nterminal {"command":"pwd","kind":"TerminalAction"}'
    assert both.observation == "terminal: a.py\nterminal: no such command"
    assert (said.thought, said.source_ref) == ("There is a.py.", "sdk.jsonl:7")
    assert run.meta["left_out"] == ["1 ConversationStateUpdateEvents"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.json",
            json.dumps([{"id": 1, "source": "user", "action": "message", "args": {}}]),
            "no action of the agent",
        ),
        ("a.jsonl", '{"instance_id": "i", "history": [{"id": 1, "action": "run"}, {"id": 2, "action": 3}]}', "action"),
        ("b.jsonl", '{"id": "a", "source": "agent", "kind": "ActionEvent"}\nnonsense\n', "b.jsonl:2"),
    ],
)
def test_bad_events_are_refused_with_their_place(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / name))


@pytest.mark.parametrize("metadata", [3, {}, {"model_response": 1}, {"model_response": {"choices": [{"message": 1}]}}])
def test_a_call_without_the_models_own_words_falls_back_to_the_arguments(tmp_path: Path, metadata: Any) -> None:
    event = {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls"}, "tool_call_metadata": metadata}
    (tmp_path / "a.json").write_text(json.dumps([event]))
    (run,) = formats.load(tmp_path / "a.json")
    assert run.steps[0].action == 'run {"command":"ls"}'


def test_public_files(shared_data: Path) -> None:
    folder = shared_data / "openhands"
    runs = list(formats.load(folder / "multi_swe_bench_output.jsonl"))
    rows = [json.loads(line) for line in (folder / "multi_swe_bench_output.jsonl").read_text().splitlines()]
    assert [len(row["history"]) for row in rows] == [49, 70, 103]
    for run, row in zip(runs, rows, strict=True):
        kinds = Counter(event.get("action") for event in row["history"])
        assert len(run.steps) == sum(kinds[kind] for kind in ("run", "read", "edit", "finish"))
        seen = "\n".join(step.observation for step in run.steps)
        shown = [event["content"] for event in row["history"] if event.get("observation") in ("run", "read", "edit")]
        assert shown and all(text in seen for text in shown)
    resolved = list(formats.load(folder / "resolver_output.jsonl"))
    assert [run.outcome.passed for run in resolved] == [None, None] and [len(run.steps) for run in resolved] == [4, 22]
    files = sorted((folder / "runtime_trajs").glob("*.json"))
    assert [len(run.steps) for file in files for run in formats.load(file)] == [2, 5, 3, 4]
    (run,) = formats.load(folder / "sdk_events.jsonl")
    assert len(run.steps) == 2 and any("which no step made" in warning for warning in run.meta["warnings"])
    with pytest.raises(FormatError, match="No reader knows"):
        formats.detect(folder / "swe_bench_example_model_output.json")
