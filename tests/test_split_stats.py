"""Splitting runs by task and counting what a set of runs or rows holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_prep import split as splitting
from data_prep import stats as stats_module
from data_prep.split import is_leaky, leaks, split
from scout import trajectory
from scout.cli import main
from scout.errors import InputError
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory

FIXTURES = Path(__file__).parent / "fixtures"


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
    near = msgspec.structs.replace(train[2], id="near", task=Task("Another task.", "t9"), meta={})
    twin = msgspec.structs.replace(train[1], id="twin", task=Task(train[1].task.text, "t8"), meta={})
    test = [make_run(1, 1), make_run(7, 0, key="b"), twin, near]
    report = leaks({"train": train, "test": test})
    assert {name: figures["found"] for name, figures in report.items()} == {
        "shared_tasks": 1,
        "shared_leak_keys": 1,
        "duplicate_texts": 1,
        "near_duplicates": 2,
    }
    assert report["near_duplicates"]["highest"] == 1.0
    assert is_leaky(report)


def test_a_leak_writes_nothing(tmp_path: Path) -> None:
    parts = {"train": [make_run(1, 0)], "dev": [], "test": [make_run(1, 1)]}
    with pytest.raises(InputError, match="the splits leak, nothing was written"):
        splitting.write("runs.jsonl", tmp_path / "out", parts, {})
    assert not (tmp_path / "out").exists()


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
    assert report["leaks"]["near_duplicates"]["sampled"] == 21
    assert [len(list(trajectory.read(out / f"{name}.jsonl"))) for name in ("train", "dev", "test")] == [39, 6, 15]
    told = capsys.readouterr()
    assert "shared tasks 0, shared leak keys 0, duplicate texts 0" in told.err
    assert json.loads(told.out)["runs"] == {"train": 39, "dev": 6, "test": 15}
    before = (out / "test.jsonl").read_bytes()
    assert splitting.main(command) == 0
    assert (out / "test.jsonl").read_bytes() == before


def test_the_command_refuses_with_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory.write(tmp_path / "runs.jsonl", many(2))
    options = ["--out", str(tmp_path / "out"), "--seed", "3", "--test-tasks", "5", "--dev-tasks", "2"]
    assert splitting.main([str(tmp_path / "runs.jsonl"), *options]) == 1
    assert splitting.main([str(tmp_path / "none.jsonl"), *options]) == 1
    assert "can be had of 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def figures(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[dict[str, Any], str]:
    assert main(["stats", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_stats_of_labelled_runs(capsys: pytest.CaptureFixture[str]) -> None:
    result, err = figures(capsys, FIXTURES / "runs/labelled.jsonl")
    runs = result["runs"]
    assert (runs["runs"], runs["tasks"], runs["tasks_with_mixed_outcomes"]) == (4, 2, 1)
    assert runs["candidates_per_task"]["max"] == 2
    assert (runs["steps"]["min"], runs["steps"]["median"], runs["steps"]["max"]) == (3, 3.5, 4)
    assert runs["outcomes"] == {"passed": 1, "failed": 3, "unknown": 0}
    assert runs["mistakes"] == {"with_mistake": 2, "clean": 2, "not_known": 0}
    assert runs["mistakes_by_outcome"] == {"clean/failed": 1, "clean/passed": 1, "with_mistake/failed": 2}
    assert runs["step_labels"] == {"correct": 12, "incorrect": 2}
    assert runs["first_mistake"]["by_step"] == {"2": 1, "3": 1}
    assert runs["first_mistake"]["by_tenth_of_run"] == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    assert runs["first_mistake"]["share_on_last_step"] == 0.5
    assert runs["mistakes_by_kind"] == {"skipped_check": 1, "wrong_sum": 1}
    assert runs["proof_sizes"] == {"1": 1, "2": 1}
    assert runs["duplicates"]["texts"] == 0
    assert "first mistake by tenth of the run (2 runs):" in err


def test_labels_all_on_the_last_step_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P49: training labels all on the last step teach "last step"."""
    labels = Labels(("correct", "correct", "incorrect"), first_mistake=3)
    runs = [msgspec.structs.replace(make_run(task, 0), labels=labels) for task in range(4)]
    trajectory.write(tmp_path / "runs.jsonl", runs)
    result, err = figures(capsys, tmp_path / "runs.jsonl")
    assert result["runs"]["first_mistake"]["share_on_last_step"] == 1.0
    assert "warning: a model can learn" in err


def test_the_same_text_under_two_ids_is_a_duplicate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(1, 0)
    runs = [first, msgspec.structs.replace(first, id="again", outcome=Outcome(True)), make_run(1, 2)]
    trajectory.write(tmp_path / "runs.jsonl", runs)
    result, _ = figures(capsys, tmp_path / "runs.jsonl")
    assert result["runs"]["duplicates"] == {"texts": 1, "surplus": 1, "examples": [["1-0", "again"]]}


def make_row(number: int, gold: list[str]) -> dict[str, Any]:
    return {
        "id": f"r{number}#1",
        "trajectory_id": f"r{number}",
        "task_id": "t1",
        "split": "train",
        "prompt": [{"role": "user", "content": f"Judge run {number} now please"}],
        "completion": "[1] fine\nVerdict: Yes",
        "indices": [1, 2],
        "gold": gold,
        "prompt_style": "brief",
        "prompt_version": "1",
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_stats_of_training_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_row(1, ["correct", "correct"]), make_row(2, ["correct", "incorrect"]), make_row(1, ["correct"] * 2)]
    result, err = figures(capsys, write_rows(tmp_path / "train.jsonl", rows), FIXTURES / "runs/labelled.jsonl")
    found = result["rows"]
    assert (found["rows"], found["trajectories"], found["tasks"]) == (3, 2, 1)
    assert found["tokens"]["prompt"]["max"] == 5
    assert found["tokens"]["row"]["sum"] == 3 * 9
    assert found["step_labels"] == {"correct": 5, "incorrect": 1}
    assert found["mistakes"] == {"clean": 2, "with_mistake": 1}
    assert found["split"] == {"train": 3}
    assert found["duplicates"]["surplus"] == 1
    assert result["runs"]["runs"] == 4
    assert "3 rows of 2 runs" in err


def test_rows_in_parquet_count_like_rows_in_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the package pyarrow is not installed")
    arrow = pytest.importorskip("pyarrow", reason="the package pyarrow is not installed")
    rows = [make_row(1, ["correct", "correct"]), make_row(2, ["correct", "incorrect"])]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    from_parquet, _ = figures(capsys, tmp_path / "train.parquet")
    from_lines, _ = figures(capsys, write_rows(tmp_path / "train.jsonl", rows))
    assert from_parquet["rows"] == from_lines["rows"]
    assert main(["stats", str(tmp_path / "none.parquet")]) == 1
    parquet.write_table(arrow.Table.from_pylist([{"id": "a"}]), tmp_path / "short.parquet")
    assert main(["stats", str(tmp_path / "short.parquet")]) == 1
    assert "short.parquet:1: found Object missing required field `trajectory_id`" in capsys.readouterr().err
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert main(["stats", str(tmp_path / "broken.parquet")]) == 1


def test_rows_that_are_none_are_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_row(number, ["correct"]) for number in range(4)]
    del rows[1]["indices"]
    rows[2]["prompt"] = "text"
    rows[3]["gold"] = None
    assert main(["stats", str(write_rows(tmp_path / "train.jsonl", rows))]) == 1
    err = capsys.readouterr().err
    assert "train.jsonl:2: indices: found nothing" in err
    assert "train.jsonl:3: prompt: found 'text'" in err
    assert "train.jsonl:4: gold: found None" in err


def test_stats_count_with_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "Task": 1, ".": 2}, unk_token="?"))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    letters.save(str(tmp_path / "tokenizer.json"))
    trajectory.write(tmp_path / "runs.jsonl", [make_run(1, 0)])
    result, _ = figures(capsys, tmp_path / "runs.jsonl", "--tokenizer", tmp_path)
    assert result["runs"]["tokens"]["task"]["max"] == 3
    assert main(["stats", str(tmp_path / "runs.jsonl"), "--tokenizer", str(tmp_path / "none")]) == 2


def test_stats_from_a_checkout_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = figures(capsys, FIXTURES / "runs/labelled.jsonl")
    assert stats_module.main([str(FIXTURES / "runs/labelled.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out) == result
    assert stats_module.main(["none.jsonl"]) == 1
