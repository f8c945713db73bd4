"""Labels of people find their steps; what finds none is counted and never guessed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_prep.label import label, main
from data_prep.labels import plain
from data_prep.labels.join import settled
from scout import trajectory
from scout.errors import FormatError, InputError
from scout.trajectory import Labels, Step, Task, Trajectory


def save(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def chat(steps: int, **more: Any) -> dict[str, Any]:
    """System, user, then assistant and tool in turn: assistant messages are at 2, 4, 6 ..."""
    turns = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Go."}]
    for number in range(1, steps + 1):
        turns += [{"role": "assistant", "content": f"Turn {number}."}, {"role": "tool", "content": f"Result {number}."}]
    return {"messages": turns, **more}


def labelled(source: str, runs: Path, labels: Path) -> tuple[list[tuple[Trajectory, Labels]], Counter[str]]:
    out = labels.parent / "out.jsonl"
    report = label(source, [runs], [labels], out)
    found = [(run, run.labels) for run in trajectory.read(out)]
    return [(run, labels) for run, labels in found if labels is not None], report.left_out


# AgentProcessBench


def test_zero_is_no_label_and_keys_sort_as_numbers(tmp_path: Path) -> None:
    keys = {"10": -1, "2": 1, "4": 0, "6": -1, "8": 1}
    row = chat(5, query_index=0, sample_index=1, data_source="hotpot", step_labels=keys, final_label=-1)
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(row) + "\n")
    file = tmp_path / "hotpotqa.jsonl"
    ((run, labels),), left_out = labelled("agentprocessbench", file, file)
    assert labels.step_labels == ("correct", "unlabelled", "incorrect", "correct", "incorrect")
    assert (labels.first_mistake, labels.known, labels.origin) == (3, "some_failures", "human")
    assert run.outcome.passed is False and not left_out


# AgentRx


def agentrx(tmp_path: Path, failures: list[tuple[int, str]], cause: object) -> tuple[Trajectory, Labels, Counter[str]]:
    runs = [{"task_id": 3, "reward": 0.0, "info": {}, "trial": 0, "traj": chat(3)["messages"]}]
    given = [
        {
            "failure_id": at,
            "step_number": step,
            "step_reason": f"Why {at}.",
            "failure_category": "A",
            "failed_agent": who,
        }
        for at, (step, who) in enumerate(failures, 1)
    ]
    record = {"trajectory_id": 3, "failures": given, "root_cause": {"failure_id": cause}}
    found, left_out = labelled("agentrx", save(tmp_path / "runs.json", runs), save(tmp_path / "labels.json", [record]))
    ((run, labels),) = found
    return run, labels, left_out


def test_steps_count_from_one_over_all_messages_and_the_root_cause_is_kept_apart(tmp_path: Path) -> None:
    run, labels, left_out = agentrx(tmp_path, [(5, "Assistant"), (7, "Assistant")], 2)
    assert labels.step_labels == ("correct", "incorrect", "incorrect")
    assert (labels.first_mistake, labels.known) == (2, "all_steps")
    assert labels.reasons == (None, "Why 1.", "Why 2.")
    assert run.meta["decisive_mistake"] == 3 and not left_out


def test_the_users_failure_is_not_the_agents(tmp_path: Path) -> None:
    _, labels, left_out = agentrx(tmp_path, [(2, "User"), (5, "Assistant")], 9)
    assert labels.step_labels == ("correct", "incorrect", "correct")
    assert left_out == {
        "a failure of the simulated user, not of the agent": 1,
        "a root cause that names no failure": 1,
    }


def test_after_a_lost_failure_no_step_is_called_correct(tmp_path: Path) -> None:
    _, labels, left_out = agentrx(tmp_path, [(5, "Assistant"), (99, "Assistant")], 1)
    assert labels.step_labels == ("unlabelled", "incorrect", "unlabelled")
    assert labels.known == "some_failures"
    assert left_out == {"a position that is no step of the run": 1}


# Who&When, TracerTraj, AgentErrorBench


@pytest.mark.parametrize(("source", "origin"), [("who_and_when", "human"), ("tracertraj", "injected")])
def test_a_position_in_history_counts_from_zero_and_later_steps_have_no_label(
    tmp_path: Path, source: str, origin: str
) -> None:
    history = [{"role": "assistant", "name": f"Agent {at}", "content": f"Text {at}."} for at in range(4)]
    row = {"question": "How many?", "question_ID": "q", "history": history, "mistake_agent": "Agent 2"}
    file = save(tmp_path / "1.json", {**row, "mistake_step": "2", "mistake_reason": "It miscounts."})
    ((_, labels),), _ = labelled(source, file, file)
    assert labels.step_labels == ("correct", "correct", "incorrect", "unlabelled")
    assert (labels.known, labels.first_mistake, labels.origin) == ("first_mistake", 3, origin)
    assert labels.reasons[2] == "It miscounts."


def test_a_position_that_is_no_number_is_refused(tmp_path: Path) -> None:
    row = {"question": "q", "history": [{"role": "a", "content": "x"}], "mistake_step": "two"}
    file = save(tmp_path / "1.json", row)
    with pytest.raises(FormatError, match="mistake_step"):
        label("who_and_when", [file], [file], tmp_path / "out.jsonl")


def test_critical_steps_count_assistant_messages_and_lost_ones_label_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / f"{name}.json", {"messages": chat(3)["messages"][1:]})
    found = {"failure_type": " Bad_Plan ", "reasoning": "Repeats itself."}
    rows = [
        {"trajectory_id": name, "critical_failure_step": at, "step_annotations": [{"step": at, "planning": found}]}
        for name, at in (("a", 2), ("b", 4), ("c", 1))
    ]
    (tmp_path / "labels").mkdir()
    file = save(tmp_path / "labels/labels.json", rows)
    out = tmp_path / "labels/out.jsonl"
    report = label("agenterrorbench", [tmp_path / "a.json", tmp_path / "b.json"], [file], out)
    (run,) = trajectory.read(out)
    assert run.labels is not None and run.labels.step_labels == ("correct", "incorrect", "unlabelled")
    assert run.labels.kinds[1] == "planning: bad_plan" and run.labels.reasons[1] == "Repeats itself."
    assert report.left_out == {"a position that is no step of the run": 1, "a run that is not there": 1}
    assert (tmp_path / "labels/out.jsonl.left_out.txt").read_text().count("\n") == 2


# Our own file


def own_runs(tmp_path: Path) -> Path:
    steps = tuple(Step(at, f"Turn {at}.") for at in (1, 2, 3))
    trajectory.write(tmp_path / "runs.jsonl", [Trajectory(name, Task("Go.", name), steps) for name in ("a", "b")])
    return tmp_path / "runs.jsonl"


@pytest.mark.parametrize(
    ("lines", "expected", "known"),
    [
        ("a,1,correct\na,2,incorrect\na,3,correct", ("correct", "incorrect", "correct"), "all_steps"),
        ("a,2,first_mistake", ("correct", "incorrect", "unlabelled"), "first_mistake"),
        ("a,2,incorrect", ("unlabelled", "incorrect", "unlabelled"), "some_failures"),
        ("a,,incorrect", ("unlabelled",) * 3, "final_only"),
    ],
)
def test_a_csv_says_what_is_known(tmp_path: Path, lines: str, expected: tuple[str, ...], known: str) -> None:
    (tmp_path / "l.csv").write_text("\ufeffrun,step,label\n" + lines + "\n")
    ((run, labels),), _ = labelled("plain", own_runs(tmp_path), tmp_path / "l.csv")
    assert (labels.step_labels, labels.known) == (expected, known)
    assert run.outcome.passed is (False if known == "final_only" else None)


def test_json_lines_say_the_same_as_csv(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text('run,step,label,reason,annotator\na,2,incorrect,"Wrong, twice.",ann\n')
    row = {"run": "a", "step": 2, "label": "incorrect", "reason": "Wrong, twice.", "annotator": "ann"}
    (tmp_path / "l.jsonl").write_text(json.dumps(row) + "\n")
    assert [row for _, row in plain.rows(tmp_path / "l.csv")] == [row for _, row in plain.rows(tmp_path / "l.jsonl")]


def test_a_disputed_step_has_no_label(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("run,step,label,annotator\na,1,correct,x\na,1,incorrect,y\na,2,correct,x\n")
    ((_, labels),), left_out = labelled("plain", own_runs(tmp_path), tmp_path / "l.csv")
    assert labels.step_labels == ("unlabelled", "correct", "unlabelled") and labels.annotators == ("x", "y")
    assert left_out == {plain.DISPUTED: 1}


def test_every_bad_line_is_listed_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "l.csv"
    file.write_text("run,step,label\na,one,correct\na,0,correct\n,1,correct\na,1,wrong\na,1\na,,unlabelled\n")
    runs, out = str(own_runs(tmp_path)), tmp_path / "out.jsonl"
    assert main(["--source", "plain", "--runs", runs, "--labels", str(file), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert "6 problems" in told and all(f"l.csv:{line}" in told for line in range(2, 8))
    assert not out.exists()


def test_labels_of_other_runs_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("run,step,label\nz,1,correct\n")
    with pytest.raises(InputError, match="a run that is not there"):
        label("plain", [own_runs(tmp_path)], [tmp_path / "l.csv"], tmp_path / "out.jsonl")


def test_the_label_of_an_injected_fault_stays(tmp_path: Path) -> None:
    """Labels of people belong to the run as it was; after the injection it is another one."""
    runs = [
        Trajectory(name, Task("Go."), (Step(1, "a"), Step(2, "b")), labels=given)
        for name, given in (
            ("plain", None),
            ("made", Labels(("unlabelled", "incorrect"), known="some_failures", origin="injected")),
        )
    ]
    trajectory.write(tmp_path / "runs.jsonl", runs)
    (tmp_path / "labels.csv").write_text("run,step,label\nplain,1,correct\nmade,2,correct\n")
    ((run, labels),), left_out = labelled("plain", tmp_path / "runs.jsonl", tmp_path / "labels.csv")
    assert run.id == "plain" and labels.origin == "human"
    assert left_out == {"a run with an injected fault, whose label stays": 1}


def test_a_name_of_two_runs_labels_neither(tmp_path: Path) -> None:
    runs = [{"task_id": 3, "reward": 0.0, "info": {}, "trial": at, "traj": chat(3)["messages"]} for at in (0, 1)]
    record = {"trajectory_id": 3, "failures": []}
    with pytest.raises(InputError, match="the name of several runs"):
        label("agentrx", [save(tmp_path / "r.json", runs)], [save(tmp_path / "l.json", [record])], tmp_path / "o.jsonl")


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        ("cc", "all_steps"),
        ("cic", "all_steps"),
        ("ciu", "first_mistake"),
        ("uic", "some_failures"),
        ("cu", "some_failures"),
    ],
)
def test_what_is_known_follows_from_the_judgements(labels: str, known: str) -> None:
    words = {"c": "correct", "i": "incorrect", "u": "unlabelled"}
    assert settled([words[letter] for letter in labels]) == known  # type: ignore[misc]


# Public data


@pytest.mark.parametrize(
    ("source", "runs", "labels", "count", "incorrect", "left_out"),
    [
        ("agentprocessbench", "agentprocessbench/hotpotqa.jsonl", "agentprocessbench/hotpotqa.jsonl", 165, 132, 0),
        (
            "agentrx",
            "agentrx/tau_retail/tau_dataset_failed.json",
            "agentrx/ground_truth/tau_ground_truth.json",
            20,
            24,
            5,
        ),
        ("agentrx", "who_and_when/Hand-Crafted", "agentrx/ground_truth/magentic_one_ground_truth.json", 29, 203, 0),
        ("who_and_when", "who_and_when", "who_and_when", 129, 129, 0),
        ("tracertraj", "tracertraj_code", "tracertraj_code", 88, 88, 0),
        ("agenterrorbench", "agenterrorbench_gaia/GAIA", "agenterrorbench_gaia/gaia_labels.json", 33, 33, 2),
    ],
)
def test_public_labels(
    shared_data: Path, tmp_path: Path, source: str, runs: str, labels: str, count: int, incorrect: int, left_out: int
) -> None:
    report = label(source, [shared_data / runs], [shared_data / labels], tmp_path / "out.jsonl")
    assert (report.labelled, report.steps["incorrect"], report.left_out.total()) == (count, incorrect, left_out)
    if source == "agentprocessbench":
        assert report.steps == {"correct": 327, "incorrect": 132, "unlabelled": 34}
