"""Real runs with labels of people go the whole way to a trained model, through the commands that a user types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scout import trajectory
from scout.config import read_scout

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "recipes/tiny-real/sft.yaml"
BASE = "recipes/tiny/base"
WHO_AND_WHEN = 16
"""Runs of that source, the first by number; the other source has 165 short ones."""

pytestmark = [pytest.mark.train]


def command(*words: object) -> dict[str, Any]:
    """The last line on stdout of a command that ends well, as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_readme_leads_from_mixed_runs_and_a_csv_to_a_trained_model(tmp_path: Path) -> None:
    """Every command of that section as it stands there, in another folder; what it shows is printed."""
    pytest.importorskip("trl")
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    place = next(place for place, block in enumerate(blocks) if "fixtures/labels" in block)
    said = []
    for line in blocks[place].replace("/tmp/mine", str(tmp_path)).splitlines():
        if line.startswith("make "):
            dry = ["make", "--no-print-directory", "-n", "-o", "setup", *line.split()[1:]]
            # Settings of the make that runs these tests are not those of the README.
            own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "ARGS"}
            line = subprocess.run(dry, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout
            line = line.replace("\\\n", " ").replace("runs/tiny-real", str(tmp_path / "run"))
        words = line.split()
        module = ["-m", "scout"] if words[0] == ".venv/bin/scoutv" else []
        done = subprocess.run(
            [sys.executable, *module, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (line, done.stderr[-2000:])
        said += done.stderr.splitlines()
    shown = [line for line in blocks[place + 1].splitlines() if line != "…"]
    assert shown and [line for line in shown if line not in said] == []
    assert (tmp_path / "run/sft/final/scout.json").is_file()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.data
def test_public_runs_become_rows_that_train(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    folder = shared_data / "who_and_when/Algorithm-Generated"
    failed = sorted(folder.iterdir(), key=lambda path: int(path.stem))[:WHO_AND_WHEN]
    judged = shared_data / "agentprocessbench/hotpotqa.jsonl"
    labelled = []
    for source, files, count in (("who_and_when", failed, WHO_AND_WHEN), ("agentprocessbench", [judged], 165)):
        runs, out = tmp_path / f"{source}.jsonl", tmp_path / f"{source}-labelled.jsonl"
        assert command("scout", "convert", *files, "-o", runs)["runs"] == count
        told = command("data_prep.label", "--source", source, "--runs", runs, "--labels", *files, "--out", out)
        assert told["runs"] == count and not told["left_out"]
        labelled.append(out)

    split = tmp_path / "split"
    command("data_prep.split", *labelled, "--out", split, "--seed", 1, "--test-tasks", 4, "--dev-tasks", 6)
    parts = {name: list(trajectory.read(split / f"{name}.jsonl.zst")) for name in ("train", "dev", "test")}
    assert sum(map(len, parts.values())) == WHO_AND_WHEN + 165
    assert all(run.labels is not None and run.labels.origin == "human" for runs in parts.values() for run in runs)

    rows = tmp_path / "rows"
    command("data_prep.explain", "--writer", "labels", "--data", split, "--out", rows, "--recipe", RECIPE,
            "--model", BASE)  # fmt: skip
    train, dev = lines(rows / "train.jsonl"), lines(rows / "dev.jsonl")
    of_run = {run.id: run for run in parts["train"]}
    for row in train:
        labels = of_run[row["trajectory_id"]].labels
        assert labels is not None
        assert row["gold"] == [labels.step_labels[index - 1] for index in row["indices"]]
    wrong = [row for row in train if "incorrect" in row["gold"]]
    assert len(wrong) >= 8 and len(train) > 80 and dev
    reasons = {reason for run in parts["train"] if run.labels for reason in run.labels.reasons if reason}
    said = " ".join(" ".join(row["completion"].split()) for row in wrong)
    assert sum(" ".join(reason.split())[:40] in said for reason in reasons) >= 8

    figures = command("scout", "stats", rows / "train.jsonl", "--tokenizer", BASE)["rows"]
    assert figures["rows"] == len(train) and figures["mistakes"]["with_mistake"] == len(wrong)

    trained = command("scout", "train", "sft", RECIPE, "--run", tmp_path / "sft", "--model", BASE, "--data", rows,
                      "trainer.max_steps=2")  # fmt: skip
    assert trained["steps"] == 2 and read_scout(tmp_path / "sft/final").window_steps == 2
    losses = [line["loss"] for line in lines(tmp_path / "sft/metrics.jsonl") if "loss" in line]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
