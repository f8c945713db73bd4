"""Exporting runs and rows to a folder that `datasets` loads, with its data card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from data_prep import export as exporting
from data_prep import split as splitting
from data_prep.columns import BATCH_ROWS, run_of
from scout import trajectory
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory

datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")

FAULTY = Labels(
    ("correct", "incorrect"),
    first_mistake=2,
    reasons=(None, "the count is wrong"),
    annotators=("Ann", "Bo"),
    kinds=(None, "wrong_sum"),
    proof_sizes=(None, 2),
)
LABELS = (
    FAULTY,
    Labels(("correct", "correct"), origin="world"),
    None,
    Labels(("correct", "unlabelled"), known="some_failures"),
)


def make_run(number: int, **meta: Any) -> Trajectory:
    steps = (
        Step(
            1, f"Thought {number}\nof two lines", f"act {number}", f"seen {number} 漢字 \u0000", f"runs.json:{number}"
        ),
        Step(2, action=f"stop {number}"),
    )
    outcome = (Outcome(True, 0.5), Outcome(False), Outcome())[number % 3]
    task = Task(f"Count the {number} sheep | of `field` {number}.", f"t{number // 2}")
    return Trajectory(f"r{number}", task, steps, outcome, LABELS[number % 4], meta)


def make_row(run: str, number: int) -> dict[str, Any]:
    return {
        "id": f"{run}#{number}",
        "trajectory_id": run,
        "task_id": "t1",
        "split": "train",
        "prompt": [{"role": "system", "content": "Judge."}, {"role": "user", "content": f"Run {run}"}],
        "completion": "[1] fine\nVerdict: Yes",
        "indices": [1, 2],
        "gold": ["correct", "incorrect"],
        "prompt_style": "brief",
        "prompt_version": "1",
        "cut": ["step 2 observation: 8 of 9 tokens"],
        "tries": 2,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of runs that `data_prep.split` made from two files."""
    trajectory.write(tmp_path / "who_and_when.jsonl", [make_run(n, left_out=[f"{n} calls"]) for n in range(12)])
    mine = [make_run(n, source_file="/home/ann/secret/runs.json:3", warnings=["odd"]) for n in range(12, 20)]
    trajectory.write(tmp_path / "mine.jsonl", mine)
    files = [str(tmp_path / "who_and_when.jsonl"), str(tmp_path / "mine.jsonl")]
    options = ["--seed", "1", "--test-tasks", "3", "--dev-tasks", "1", "--out", str(tmp_path / "split")]
    assert splitting.main([*files, *options]) == 0
    return tmp_path / "split"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(json.dumps(make_row("r1", number)) for number in (1, 2)))
    (folder / "dev.jsonl").write_text("")
    return folder


def load(folder: Path, name: str, tmp_path: Path) -> Any:
    return datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))


def test_datasets_loads_every_run_as_it_was(data: Path, tmp_path: Path) -> None:
    assert exporting.main([str(data), "--out", str(tmp_path / "set")]) == 0
    loaded = load(tmp_path / "set", "runs", tmp_path)
    assert {name: len(part) for name, part in loaded.items()} == {"train": 12, "dev": 2, "test": 6}
    for name, part in loaded.items():
        for record, run in zip(part, trajectory.read(data / f"{name}.jsonl.zst"), strict=True):
            if "source_file" in run.meta:
                run = msgspec.structs.replace(run, meta={**run.meta, "source_file": "runs.json:3"})
            assert run_of(record) == run


def test_no_path_of_the_machine_is_passed_on(data: Path, tmp_path: Path) -> None:
    assert exporting.main([str(data), "--out", str(tmp_path / "set")]) == 0
    for record in load(tmp_path / "set", "runs", tmp_path)["train"]:
        assert "secret" not in str(record)
    assert str(tmp_path) not in (tmp_path / "set/README.md").read_text()


def test_rows_go_along_and_training_reads_them(data: Path, rows: Path, tmp_path: Path) -> None:
    assert exporting.main([str(data), "--rows", str(rows), "--out", str(tmp_path / "set")]) == 0
    (first, _) = load(tmp_path / "set", "rows", tmp_path)["train"]
    expected = make_row("r1", 1)
    assert json.loads(first.pop("extra")) == {"tries": expected.pop("tries")}
    assert first == expected
    assert sorted(path.name for path in (tmp_path / "set/rows").iterdir()) == ["train.parquet"]
    train_rows = pytest.importorskip("scout.train.rows", reason="the extra train is not installed")
    assert train_rows.rows_file(tmp_path / "set/rows", "train") == tmp_path / "set/rows/train.parquet"


def test_the_card_tells_sources_licences_counts_labels_and_splits(data: Path, rows: Path, tmp_path: Path) -> None:
    stated = tmp_path / "sources.yaml"
    stated.write_text("mine: {origin: my | own runs, licence: cc-by-4.0}\n")
    options = ["--rows", str(rows), "--name", "Sheep: counted", "--sources", str(stated)]
    assert exporting.main([str(data), "--out", str(tmp_path / "set"), *options]) == 0
    text = (tmp_path / "set/README.md").read_text()
    _, header, body = text.split("---\n", 2)
    found = yaml.safe_load(header)
    assert (found["pretty_name"], found["license"], found["size_categories"]) == ("Sheep: counted", "other", ["n<1K"])
    assert [config["config_name"] for config in found["configs"]] == ["runs", "rows"]
    assert found["configs"][1]["data_files"] == [{"split": "train", "path": "rows/train.parquet"}]
    for line in (
        "| test | 3 | 6 | 12 |",
        "| mit | github.com/ag2ai/Agents_Failure_Attribution |",
        "| cc-by-4.0 | my \\| own runs |",
        "| human | Ann, Bo | all_steps | 5 | 5 | 5 | 0 | 5 |",
        "- `world`: a rational observer",
        "with seed 1: 3 tasks for test and 1 for dev.",
        "Shared between splits: no task,",
        "- Share of clean runs among those that are judged: train ",
        "- 11 of 12 runs of train have no rows",
        "  - in 12 runs: N calls",
        "  - in 8 runs: odd",
    ):
        assert line in body, line
    assert "not stated" not in body


def test_a_source_without_a_licence_is_pointed_out(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exporting.main([str(data), "--out", str(tmp_path / "set")]) == 0
    told = capsys.readouterr()
    assert "no licence is stated for: mine" in told.err
    assert json.loads(told.out)["runs"] == {"train": 12, "dev": 2, "test": 6}
    assert (
        "No licence is stated for mine: find out before you pass this data on."
        in (tmp_path / "set/README.md").read_text()
    )


def test_one_licence_of_all_sources_is_that_of_the_set(tmp_path: Path) -> None:
    trajectory.write(tmp_path / "data/test.jsonl", [make_run(1, source="agentrx"), make_run(2, source="who_and_when")])
    assert exporting.main([str(tmp_path / "data"), "--out", str(tmp_path / "set")]) == 0
    text = (tmp_path / "set/README.md").read_text()
    assert yaml.safe_load(text.split("---\n")[1])["license"] == "mit"
    assert "how they were made is not recorded" in text


def test_more_runs_than_a_row_group_holds_keep_their_order(tmp_path: Path) -> None:
    runs = [make_run(number) for number in range(BATCH_ROWS + 10)]
    trajectory.write(tmp_path / "data/train.jsonl.gz", runs)
    assert exporting.main([str(tmp_path / "data"), "--out", str(tmp_path / "set")]) == 0
    assert load(tmp_path / "set", "runs", tmp_path)["train"]["id"][:] == [run.id for run in runs]


def test_what_cannot_be_exported_leaves_nothing_behind(
    data: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    assert exporting.main([str(tmp_path), "--out", str(out)]) == 1
    assert "no runs there" in capsys.readouterr().err
    bad = rows / "train.jsonl"
    bad.write_text(bad.read_text() + '\n{"id": "r9#1"}\nno JSON')
    assert exporting.main([str(data), "--rows", str(rows), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert f"{bad}:3:" in told and f"{bad}:4:" in told and "missing required field `trajectory_id`" in told
    stated = tmp_path / "sources.yaml"
    stated.write_text("mine: {license: mit}\n")
    assert exporting.main([str(data), "--out", str(out), "--sources", str(stated)]) == 2
    assert "unknown field `license`" in capsys.readouterr().err
    assert not out.exists() and not list(tmp_path.glob(".export-*"))
    out.mkdir()
    assert exporting.main([str(data), "--out", str(out)]) == 1
    assert "is there already" in capsys.readouterr().err
