"""Counting what a set of runs or rows holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_prep import stats as stats_module
from scout import trajectory
from scout.cli import main
from scout.formats.stats_command import describe
from scout.formats.workers import FEW
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory

FIXTURES = Path(__file__).parent / "fixtures"


def make_run(task: int | str | None, number: int, *, key: str | None = None, text: str | None = None) -> Trajectory:
    steps = tuple(
        Step(index, text or f"In run {number} of {task} I turn {index} times.", f"turn {index}", f"{number} of {task}")
        for index in (1, 2, 3)
    )
    meta = {} if key is None else {"leak_key": key}
    return Trajectory(f"{task}-{number}", Task(f"Task {task}.", None if task is None else f"t{task}"), steps, meta=meta)


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
    assert runs["runs_per_task"] == {"2": {"tasks": 2, "mixed": 1}}
    assert sum(runs["tokens"]["white space"]["run"]["histogram"].values()) == 4
    assert "tokens of a run, counted by white space:" in err
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


def long_run(name: str, words: list[str]) -> Trajectory:
    return Trajectory(name, Task("Copy the words.", name), (Step(1, observation=" ".join(words)),))


def test_near_duplicates_are_told_with_files_and_similarity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"word{number}" for number in range(200)]
    changed = [*words[:190], *(f"other{number}" for number in range(10))]
    trajectory.write(tmp_path / "a.jsonl", [long_run("first", words), long_run("apart", [w * 2 for w in words])])
    trajectory.write(tmp_path / "b.jsonl", [long_run("second", changed)])
    result, err = figures(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    near = result["runs"]["near_duplicates"]
    (found,) = near["pairs"]
    assert (near["runs"], found["first"], found["second"]) == (1, "first", "second")
    assert (found["first_file"], found["second_file"]) == (str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
    assert found["similarity"] == pytest.approx(183 / 203, abs=0.08)
    assert "near-duplicates: 1 runs at least 80% like an earlier one, such as first = second" in err


def test_many_runs_are_counted_on_all_cores_like_few(tmp_path: Path) -> None:
    runs = [make_run(task, number) for task in range(50) for number in range(3)]
    trajectory.write(tmp_path / "all.jsonl", runs)
    for part in range(3):
        trajectory.write(tmp_path / f"{part}.jsonl", runs[50 * part : 50 * part + 50])
    whole = describe([str(tmp_path / "all.jsonl")])["runs"]
    parts = describe([str(tmp_path / f"{part}.jsonl") for part in range(3)])["runs"]
    assert len(runs) > 2 * FEW
    assert {**whole, "near_duplicates": None} == {**parts, "near_duplicates": None}
    assert (whole["runs"], whole["tasks"]) == (150, 50)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_figures_are_drawn(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the package matplotlib is not installed")
    rows = write_rows(tmp_path / "train.jsonl", [make_row(1, ["correct", "incorrect"])])
    picture = tmp_path / f"figures{suffix}"
    figures(capsys, FIXTURES / "runs/labelled.jsonl", rows, "--plot", picture)
    drawn = picture.read_bytes()
    assert drawn.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    figures(capsys, FIXTURES / "runs/labelled.jsonl", rows, "--plot", picture)
    assert picture.read_bytes() == drawn


def test_a_picture_of_another_kind_is_refused_before_work_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(tmp_path / "none.jsonl"), "--plot", str(tmp_path / "figures.jpg")]) == 2
    assert "ends in none of .png, .svg" in capsys.readouterr().err


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
    tokens = found["tokens"]["white space"]
    assert tokens["prompt"]["max"] == 5
    assert (tokens["row"]["sum"], tokens["row"]["histogram"]) == (3 * 9, {"8-15": 3})
    assert found["longest_row"]["white space"]["tokens"] == 9
    assert found["step_labels"] == {"correct": 5, "incorrect": 1}
    assert found["mistakes"] == {"clean": 2, "with_mistake": 1}
    assert found["split"] == {"train": 3}
    assert found["duplicates"]["surplus"] == 1
    assert result["runs"]["runs"] == 4
    assert "3 rows of 2 runs" in err


def test_rows_without_a_task_id_are_not_taken_for_one_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        make_row(1, ["correct"] * 2),
        *({**make_row(number, ["correct"] * 2), "task_id": None} for number in (2, 3)),
    ]
    result, err = figures(capsys, write_rows(tmp_path / "train.jsonl", rows))
    assert (result["rows"]["tasks"], result["rows"]["trajectories_without_task_id"]) == (1, 2)
    assert "3 rows of 3 runs and 1 tasks, 2 of the runs without a task id" in err
    assert "warning: more than half of the rows are clean; set scout.clean_share to 0.5" in err


def test_commands_start_without_the_heavy_packages() -> None:
    heavy = {"datasketch", "matplotlib", "scipy"}
    code = f"import sys, scout.cli, scout.formats.stats_command; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


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
    other = tmp_path / "characters"
    other.mkdir()
    characters = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    characters.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    characters.save(str(other / "tokenizer.json"))
    result, err = figures(capsys, tmp_path / "runs.jsonl", "--tokenizer", tmp_path, "--tokenizer", other)
    assert result["counted_with"] == [str(tmp_path), str(other)]
    tokens = result["runs"]["tokens"]
    assert (tokens[str(tmp_path)]["task"]["max"], tokens[str(other)]["task"]["max"]) == (3, len("Task 1."))
    assert f"tokens: task ({other})" in err
    assert main(["stats", str(tmp_path / "runs.jsonl"), "--tokenizer", str(tmp_path / "none")]) == 2


def test_stats_from_a_checkout_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = figures(capsys, FIXTURES / "runs/labelled.jsonl")
    assert stats_module.main([str(FIXTURES / "runs/labelled.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out) == result
    assert stats_module.main(["none.jsonl"]) == 1
