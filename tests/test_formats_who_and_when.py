"""Multi-agent runs under `history`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError
from scout.formats.positions import step_of_message


def save(path: Path, history: list[dict[str, Any]], **more: Any) -> Path:
    labels = {"mistake_agent": "Expert", "mistake_step": "2", "mistake_reason": "secret", "ground_truth": "secret"}
    path.write_text(json.dumps({"question": "How many?", "question_ID": "q", "history": history, **labels, **more}))
    return path


def test_names_are_kept_and_a_terminal_is_an_observation(tmp_path: Path) -> None:
    history = [
        {"role": "assistant", "name": "Expert", "content": "Run this."},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0"},
        {"role": "user", "name": "Checker", "content": "It is 3."},
    ]
    (run,) = formats.load(save(tmp_path / "1.json", history, is_correct=False))
    assert [step.thought for step in run.steps] == ["Expert: Run this.", "Checker: It is 3."]
    assert run.steps[0].observation == "Computer_terminal: exitcode: 0"
    assert [step_of_message(run, at) for at in range(3)] == [1, 1, 2]
    assert run.meta["authors"] == ["Expert", "Checker"]
    assert run.outcome.passed is False and run.task.text == "How many?" and run.task.id == "q"
    assert "secret" not in trajectory.dumps(run)


def test_roles_are_authors_where_there_are_no_names_and_a_human_gives_the_task(tmp_path: Path) -> None:
    history = [
        {"role": "human", "content": "How many?"},
        {"role": "Orchestrator (-> WebSurfer)", "content": "Look it up."},
    ]
    (run,) = formats.load(save(tmp_path / "1.json", history))
    assert run.steps[0].thought.startswith("Orchestrator (-> WebSurfer): ")
    assert [step_of_message(run, at) for at in range(2)] == [None, 1]
    assert run.outcome.passed is None


def test_no_file_name_tells_that_a_run_was_attacked(tmp_path: Path) -> None:
    said = "See Taco_7_I/Taco_7_I_attacked_solution.py and Bake_2_solution.py."
    history = [{"role": "assistant", "name": "Bob", "content": text} for text in (said, "An attacked_oven.")]
    run = {"question": "Bake.", "mistake_step": "1", "history": history}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (found,) = formats.load(tmp_path / "run.json")
    assert [step.thought for step in found.steps] == [
        "Bob: See Taco_7/Taco_7_solution.py and Bake_2_solution.py.",
        "Bob: An attacked_oven.",
    ]
    assert "2 marks of an attack in names of files" in found.meta["left_out"]


def test_a_bare_list_is_named_by_its_file_and_its_outcome_is_unknown() -> None:
    file = Path(__file__).parent / "fixtures/agentrx/0badc0de.json"
    assert formats.detect(file) == "who_and_when"
    (run,) = formats.load(file)
    assert run.id == run.task.id == "0badc0de" and run.outcome.passed is None
    assert run.task.text.endswith("How many legs has a beetle?")
    assert [step.thought.partition(":")[0] for step in run.steps][-1] == "Orchestrator (-> ComputerTerminal)"
    assert run.steps[-1].observation == "ComputerTerminal: 6" and len(run.steps) == 4
    # AgentRx counts from 1 over all messages, the human's included.
    assert [step_of_message(run, number - 1) for number in (1, 2, 6)] == [None, 1, 4]


def test_every_bad_message_is_listed(tmp_path: Path) -> None:
    history = [{"role": "a", "content": 1}, {"content": "x"}]
    with pytest.raises(FormatError, match=r"(?s)history\[0\].*history\[1\]"):
        list(formats.load(save(tmp_path / "1.json", history)))


def test_who_and_when_counts(shared_data: Path) -> None:
    files = sorted((shared_data / "who_and_when").glob("*/*.json"))
    assert len(files) == 129
    for file in files:
        (run,) = formats.load(file)
        row = json.loads(file.read_text())
        assert formats.detect(file) == "who_and_when" and run.outcome.passed is False
        assert sum(map(len, run.meta["messages"])) + (row["history"][0]["role"] == "human") == len(row["history"])
        assert step_of_message(run, int(row["mistake_step"])) is not None


def test_tracertraj_counts(shared_data: Path) -> None:
    """47 of the runs name the attack in their files; none is left."""
    runs = list(formats.load(shared_data / "tracertraj_code/tracertraj-code-test.jsonl"))
    assert len(runs) == len({run.id for run in runs}) == 88
    sizes = sorted(sum(map(len, run.meta["messages"])) for run in runs)
    assert sizes[0] == 10 and sizes[-1] == 100
    marked = [run for run in runs if any("marks of an attack" in note for note in run.meta["left_out"])]
    assert len(marked) == 47
    assert not any("_attacked" in step.thought for run in runs for step in run.steps)
