"""Several seeds side by side: means, bars that pass and bars that fail, folders without a report."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from eval import report, seeds
from tests.eval_toy import GRPO, TEST, make_verdict, write_folder

NEVER = [make_verdict(run.id, None, 0.5) for run in TEST]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_folder(tmp_path_factory.mktemp("toy"), {"sft": NEVER, "grpo": GRPO})
    (folder / "run.json").write_text('{"seed": 3, "recipe": "recipes/tiny"}')
    made, _ = report.build(folder, folder / "data")
    return made


def _row(lines: list[str], name: str) -> list[str]:
    return next([cell.strip() for cell in line.split("|")[2:-1]] for line in lines if line.startswith(f"| {name} |"))


def test_a_bar_holds_for_the_mean(toy: dict[str, Any]) -> None:
    """exact_provable is 1/2 in the toy: alone it passes its bar of 0.50, with a worse seed the mean does not."""
    assert _row(seeds.tables([toy]), seeds.BARS[0][0]) == ["0.500", "0.500", "at least 0.50: passes"]
    worse = copy.deepcopy(toy)
    worse["localization"]["exact_provable"] = 0.4
    assert _row(seeds.tables([toy, worse]), seeds.BARS[0][0]) == ["0.500", "0.400", "0.450", "at least 0.50: **fails**"]


def test_an_interval_has_to_exclude_zero_in_every_seed(toy: dict[str, Any]) -> None:
    good, bad = copy.deepcopy(toy), copy.deepcopy(toy)
    good["best_of_n"]["5"], bad["best_of_n"]["5"] = ({**toy["best_of_n"]["2"], "gain_low": low} for low in (0.2, -0.1))
    name = "best of 5, low end of the gain over random"
    assert _row(seeds.tables([good]), name)[-1] == "above 0.00: passes"
    assert _row(seeds.tables([good, bad]), name)[-1] == "above 0.00: **fails**"


def test_first_mistakes_by_kind(toy: dict[str, Any]) -> None:
    toy, other = copy.deepcopy(toy), copy.deepcopy(toy)
    kinds = list(toy["by_kind"])
    assert kinds
    for kind in kinds:
        toy["by_kind"][kind]["exact"], other["by_kind"][kind]["exact"] = 0.25, 0.75
    for kind in kinds:
        runs = str(toy["by_kind"][kind]["n"])
        assert _row(seeds.tables([toy, other]), kind.replace("_", " ")) == [runs, "0.250", "0.750", "0.500"]


def test_a_figure_that_was_not_measured_fails_its_bar(toy: dict[str, Any]) -> None:
    """No step without history was judged in this toy: that is no evidence that the verifier stays below 0.65."""
    assert _row(seeds.tables([toy]), "AUROC of the verifier without history") == ["–", "–", "below 0.65: **fails**"]


def test_command_names_what_is_missing(toy: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(toy))
    assert seeds.main([str(tmp_path)]) == 0 and "| final model | seed 3 | mean |" in capsys.readouterr().out
    assert seeds.main([str(tmp_path), str(tmp_path / "none")]) == 1
    assert "none/report.json is not there" in capsys.readouterr().err
    (tmp_path / "report.json").write_text(json.dumps({**toy, "stages": {"sft": toy["stages"]["sft"]}}))
    assert seeds.main([str(tmp_path)]) == 1 and "lacks grpo, difference" in capsys.readouterr().err
