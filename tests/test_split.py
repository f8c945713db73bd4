"""Splitting runs by task, and what splits or sources have in common."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from data_prep import leaks as leak_report
from data_prep import split as splitting
from data_prep.label import label
from data_prep.split import is_leaky, leaks, require_apart, split
from scout import trajectory
from scout.errors import InputError
from scout.trajectory import Labels, Step, Task, Trajectory


def make_run(task: int | str | None, number: int, *, key: str | None = None, text: str | None = None) -> Trajectory:
    steps = tuple(
        Step(index, text or f"In run {number} of {task} I turn {index} times.", f"turn {index}", f"{number} of {task}")
        for index in (1, 2, 3)
    )
    meta = {} if key is None else {"leak_key": key}
    return Trajectory(f"{task}-{number}", Task(f"Task {task}.", None if task is None else f"t{task}"), steps, meta=meta)


def many(tasks: int = 20, candidates: int = 3) -> list[Trajectory]:
    return [make_run(task, number, key=f"map {task}") for task in range(tasks) for number in range(candidates)]


def tasks_of(runs: list[Trajectory]) -> set[str | None]:
    return {run.task.id for run in runs}


def test_no_task_is_in_two_splits_and_the_numbers_are_exact() -> None:
    parts = split(many(), seed=1, test_tasks=6, dev_tasks=4)
    assert {name: len(tasks_of(runs)) for name, runs in parts.items()} == {"train": 10, "dev": 4, "test": 6}
    assert {name: len(runs) for name, runs in parts.items()} == {"train": 30, "dev": 12, "test": 18}
    assert not tasks_of(parts["train"]) & tasks_of(parts["test"])
    assert sorted(run.id for runs in parts.values() for run in runs) == sorted(run.id for run in many())


def test_the_seed_decides_and_the_order_of_the_runs_does_not() -> None:
    parts = split(many(), seed=1, test_tasks=6, dev_tasks=4)
    turned = split(reversed(many()), seed=1, test_tasks=6, dev_tasks=4)
    other = split(many(), seed=2, test_tasks=6, dev_tasks=4)
    assert tasks_of(parts["test"]) == tasks_of(turned["test"])
    assert tasks_of(parts["test"]) != tasks_of(other["test"])


@pytest.mark.parametrize("seed", range(5))
def test_runs_with_one_leak_key_stay_together(seed: int) -> None:
    runs = [make_run(task, number, key=f"map {task // 2}") for task in range(20) for number in range(2)]
    parts = split(runs, seed=seed, test_tasks=6, dev_tasks=4)
    keys = {name: {run.meta["leak_key"] for run in found} for name, found in parts.items()}
    assert not keys["train"] & keys["dev"] and not keys["train"] & keys["test"] and not keys["dev"] & keys["test"]
    assert not is_leaky(leaks(parts))


def test_runs_with_one_text_stay_together() -> None:
    runs = many()
    copy = msgspec.structs.replace(runs[0], id="copy", task=Task(runs[0].task.text, "t19"), meta={})
    for seed in range(5):
        parts = split([*runs, copy], seed=seed, test_tasks=6, dev_tasks=4)
        assert any({"t0", "t19"} <= tasks_of(found) for found in parts.values())


def test_runs_without_a_task_id_are_grouped_by_their_task_text() -> None:
    runs = [msgspec.structs.replace(run, task=Task(run.task.text)) for run in many()]
    parts = split(runs, seed=1, test_tasks=6, dev_tasks=4)
    assert len({run.task.text for run in parts["test"]}) == 6
    assert not is_leaky(leaks(parts))


@pytest.mark.parametrize(
    ("test_tasks", "dev_tasks", "told"),
    [(21, 0, "test: 21 tasks were asked for, 20 can be had"), (10, 10, "none is left for training"), (18, 4, "dev: 4")],
)
def test_too_few_tasks_are_refused(test_tasks: int, dev_tasks: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        split(many(), seed=1, test_tasks=test_tasks, dev_tasks=dev_tasks)


def test_tasks_bound_to_each_other_can_make_a_number_impossible() -> None:
    runs = [make_run(task, 0, key=f"map {task // 10}") for task in range(20)]
    with pytest.raises(InputError, match=r"test: 6 tasks were asked for, 0 can be had of 20 \(in 2 groups"):
        split(runs, seed=1, test_tasks=6, dev_tasks=0)


def test_every_kind_of_leak_is_found() -> None:
    train = [make_run(1, 0, key="a"), make_run(2, 0, key="b"), make_run(3, 0, key="c")]
    train.append(question("q1", "What is the tallest mountain of the southern half of Norway, in metres?"))
    near = msgspec.structs.replace(train[2], id="near", task=Task("Another task.", "t9"), meta={})
    twin = msgspec.structs.replace(train[1], id="twin", task=Task(train[1].task.text, "t8"), meta={})
    other = question("q2", "What is the tallest mountain of the southern half of norway - in metres?")
    test = [make_run(1, 1), make_run(7, 0, key="b"), twin, near, other]
    report = leaks({"train": train, "test": test})
    assert {name: figures["found"] for name, figures in report.items()} == {
        "shared_tasks": 1,
        "shared_leak_keys": 1,
        "duplicate_texts": 1,
        "near_tasks": 1,
        "near_duplicates": 2,
    }
    assert report["near_duplicates"]["highest"] == 1.0
    assert report["near_tasks"]["pairs"] == [
        {"first": "q1-run", "first_file": "train", "second": "q2-run", "second_file": "test", "similarity": 1.0}
    ]
    assert is_leaky(report)
    with pytest.raises(InputError, match="the splits leak, nothing was written"):
        require_apart(report)


def question(name: str, text: str, **meta: object) -> Trajectory:
    """A run of a task with this text, whose steps are like those of no other run."""
    steps = (Step(1, f"I look {name} up.", f"search {name}", f"nothing about {name}"),)
    return Trajectory(f"{name}-run", Task(text, name), steps, meta=dict(meta))


WRAPPING = "Answer the question below.\nUse the tools when you need them. You may search as often as you want.\n"
QUESTIONS = [
    f"{what} {where}?"
    for what in ("How many bridges cross the river in", "Who built the oldest church of", "Which tram line leads to")
    for where in ("Bergen", "the harbour of Oslo", "Stavanger, by the census of 1920", "the north of Trondheim")
]


@pytest.mark.parametrize("seed", range(3))
def test_a_question_in_another_wrapping_and_wording_stays_with_its_twin(seed: int) -> None:
    """One question under two ids, bare in one source and inside a prompt in the other."""
    bare = [question(f"a{number}", text) for number, text in enumerate(QUESTIONS)]
    wrapped = [
        question(f"b{number}", WRAPPING + text.replace("?", ", please?")) for number, text in enumerate(QUESTIONS)
    ]
    parts = split([*bare, *wrapped], seed=seed, test_tasks=8, dev_tasks=4)
    assert {name: len(runs) for name, runs in parts.items()} == {"train": 12, "dev": 4, "test": 8}
    for runs in parts.values():
        names = {run.task.id for run in runs if run.task.id}
        assert {f"b{name[1:]}" for name in names if name[0] == "a"} == {name for name in names if name[0] == "b"}
    assert not is_leaky(leaks(parts))


def test_what_many_tasks_have_in_common_joins_none_of_them() -> None:
    policy = "\n".join(
        f"Rule {number}: an agent never does thing {number} without being asked." for number in range(40)
    )
    runs = [question(f"t{number}", f"{policy}\n{text}") for number, text in enumerate(QUESTIONS)]
    parts = split(runs, seed=1, test_tasks=5, dev_tasks=2)
    assert {name: len(found) for name, found in parts.items()} == {"train": 5, "dev": 2, "test": 5}


def test_a_held_out_domain_is_for_test_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What belongs to a held-out task goes with it, even from another source."""
    retail = [question(f"r{number}", text, domain="retail") for number, text in enumerate(QUESTIONS[:6])]
    code = [question(f"c{number}", text) for number, text in enumerate(["Sort a list.", *QUESTIONS[5:]])]
    trajectory.write(tmp_path / "shop.jsonl", retail)
    trajectory.write(tmp_path / "code.jsonl.zst", code)
    files = [str(tmp_path / "shop.jsonl"), str(tmp_path / "code.jsonl.zst")]
    options = ["--out", str(tmp_path / "out"), "--seed", "1", "--test-tasks", "2", "--dev-tasks", "1"]
    assert splitting.main([*files, *options, "--held-out", "retail"]) == 0
    test = list(trajectory.read(tmp_path / "out/test.jsonl.zst"))
    held = [run for run in test if run.meta.get("domain") == "retail"]
    assert len(held) == 6 and "c1" in tasks_of(test) and len(test) == 9
    assert {run.meta["source"] for run in test} == {"shop", "code"}
    report = json.loads((tmp_path / "out/split.json").read_text())
    assert report["held_out"] == ["retail"]
    assert report["joined"]["same_task_text"]["found"] == 1
    assert report["sources"]["test"]["shop"] == 6
    assert splitting.main([*files, *options, "--held-out", "garden"]) == 1
    assert "no run has the domain, source or format garden. There are: code, shop, retail." in capsys.readouterr().err


def test_one_run_in_two_files_is_named_and_stays_in_one_split(tmp_path: Path) -> None:
    trajectory.write(tmp_path / "people.jsonl", many(6, 1))
    trajectory.write(tmp_path / "others.jsonl", many(6, 1)[:2])
    command = [str(tmp_path / "people.jsonl"), str(tmp_path / "others.jsonl"), "--out", str(tmp_path / "out")]
    assert splitting.main([*command, "--seed", "1", "--test-tasks", "2", "--dev-tasks", "1"]) == 0
    report = json.loads((tmp_path / "out/split.json").read_text())
    assert report["joined"]["same_run"]["found"] == 2
    assert report["joined"]["same_run"]["pairs"][0] == {
        "first": "0-0",
        "first_file": str(tmp_path / "people.jsonl"),
        "second": "0-0~2",
        "second_file": str(tmp_path / "others.jsonl"),
        "similarity": 1.0,
    }
    runs = [run for name in splitting.SPLITS for run in trajectory.read(tmp_path / f"out/{name}.jsonl.zst")]
    assert len(runs) == 8
    assert {run.meta.get("original_id") for run in runs} == {None, "0-0", "1-0"}


def test_too_many_clean_runs_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean, faulty = Labels(("correct",) * 3), Labels(("correct", "incorrect", "correct"), first_mistake=2)
    runs = [msgspec.structs.replace(run, labels=faulty if at % 4 == 0 else clean) for at, run in enumerate(many(8, 4))]
    trajectory.write(tmp_path / "runs.jsonl", runs)
    options = ["--out", str(tmp_path / "out"), "--seed", "1", "--test-tasks", "2", "--dev-tasks", "0"]
    assert splitting.main([str(tmp_path / "runs.jsonl"), *options]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["clean_share"] == {"train": 0.75, "dev": None, "test": 0.75}
    assert "warning: 75% of the labelled training runs are clean" in told.err


def test_injected_faults_among_other_labels_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for task in range(6):
        run = make_run(task, 0)
        labels = Labels(("incorrect",) * len(run.steps), first_mistake=1, origin="injected" if task % 2 else "human")
        runs.append(msgspec.structs.replace(run, labels=labels))
    trajectory.write(tmp_path / "runs.jsonl", runs)
    command = [str(tmp_path / "runs.jsonl"), "--seed", "1", "--test-tasks", "0", "--dev-tasks", "0"]
    assert splitting.main([*command, "--out", str(tmp_path / "mixed")]) == 0
    assert "warning: train mixes 3 runs with an injected fault with others (3 human)" in capsys.readouterr().err
    assert json.loads((tmp_path / "mixed/split.json").read_text())["label_origins"]["train"] == {
        "injected": 3,
        "human": 3,
    }


def test_the_leak_report_of_files_names_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory.write(tmp_path / "train.jsonl", many(4, 1))
    trajectory.write(tmp_path / "test.jsonl", [make_run(3, 7), make_run(9, 0)])
    trajectory.write(tmp_path / "apart.jsonl", [make_run(20, 0)])
    assert leak_report.main([str(tmp_path / "train.jsonl"), str(tmp_path / "test.jsonl")]) == 1
    told = capsys.readouterr()
    found = json.loads(told.out)["shared_tasks"]
    assert [(row["first"], row["second"]) for row in found["pairs"]] == [("3-0", "3-7")]
    assert f"1.00  3-0 ({tmp_path / 'train.jsonl'}) = 3-7 ({tmp_path / 'test.jsonl'})" in told.err
    assert leak_report.main([str(tmp_path / "train.jsonl"), str(tmp_path / "apart.jsonl")]) == 0
    assert leak_report.main([str(tmp_path / "train.jsonl")]) == 1


@pytest.mark.data
def test_sources_that_share_runs_and_tasks_are_told(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Magentic-One runs of AgentRx are the Hand-Crafted ones of Who&When, 31 of whose questions occur twice."""
    runs, truth = shared_data / "who_and_when/Hand-Crafted", shared_data / "agentrx/ground_truth"
    label("who_and_when", [runs], [runs], tmp_path / "who_and_when.jsonl")
    label("agentrx", [runs], [truth / "magentic_one_ground_truth.json"], tmp_path / "agentrx.jsonl")
    other = shared_data / "who_and_when/Algorithm-Generated"
    label("who_and_when", [other], [other], tmp_path / "generated.jsonl")
    gaia = shared_data / "agenterrorbench_gaia"
    label("agenterrorbench", [gaia / "GAIA"], [gaia / "gaia_labels.json"], tmp_path / "gaia.jsonl")
    files = [str(tmp_path / f"{name}.jsonl") for name in ("who_and_when", "agentrx", "generated", "gaia")]
    capsys.readouterr()
    assert leak_report.main(files[:2]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["duplicate_texts"]["found"] == report["shared_tasks"]["found"] == 29
    named = report["duplicate_texts"]["pairs"]
    assert len(named) == 29 and all(row["first"] == row["second"] for row in named)
    assert {(row["first_file"], row["second_file"]) for row in named} == {(files[0], files[1])}

    options = ["--out", str(tmp_path / "out"), "--seed", "1", "--test-tasks", "30", "--dev-tasks", "10"]
    assert splitting.main([*files, *options]) == 0
    record = json.loads((tmp_path / "out/split.json").read_text())
    assert sum(record["tasks"].values()) == 98 + 13
    assert record["joined"]["same_run"]["found"] == 29
    assert record["joined"]["same_task_text"]["found"] + record["joined"]["near_task_text"]["found"] >= 13
    places = {
        name: {run.meta.get("original_id", run.id) for run in trajectory.read(tmp_path / f"out/{name}.jsonl.zst")}
        for name in splitting.SPLITS
    }
    assert not places["train"] & places["test"] and not places["train"] & places["dev"]


def test_the_command_writes_three_files_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory.write(tmp_path / "runs.jsonl.zst", many())
    out = tmp_path / "split"
    command = [
        str(tmp_path / "runs.jsonl.zst"),
        "--out",
        str(out),
        "--seed",
        "3",
        "--test-tasks",
        "5",
        "--dev-tasks",
        "2",
    ]
    assert splitting.main(command) == 0
    report = json.loads((out / "split.json").read_text())
    assert report["tasks"] == {"train": 13, "dev": 2, "test": 5}
    assert report["leaks"]["near_duplicates"]["compared"] == 21
    assert [len(list(trajectory.read(out / f"{name}.jsonl.zst"))) for name in ("train", "dev", "test")] == [39, 6, 15]
    told = capsys.readouterr()
    assert "shared tasks 0, shared leak keys 0, duplicate texts 0" in told.err
    assert json.loads(told.out)["runs"] == {"train": 39, "dev": 6, "test": 15}
    before = (out / "test.jsonl.zst").read_bytes()
    assert splitting.main(command) == 0
    assert (out / "test.jsonl.zst").read_bytes() == before


def test_the_command_refuses_with_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory.write(tmp_path / "runs.jsonl", many(2))
    options = ["--out", str(tmp_path / "out"), "--seed", "3", "--test-tasks", "5", "--dev-tasks", "2"]
    assert splitting.main([str(tmp_path / "runs.jsonl"), *options]) == 1
    assert splitting.main([str(tmp_path / "none.jsonl"), *options]) == 1
    assert "can be had of 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
