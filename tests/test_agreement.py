"""Two sets of labels of the same runs: agreement, disputed steps, adjudication."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_prep import agreement
from data_prep.agreement import COLUMNS, adjudicate, kappa, main, measure, pair, read_decisions
from data_prep.label import label
from scout import trajectory
from scout.errors import FormatError, InputError
from scout.trajectory import Labels, Step, Task, Trajectory

WORDS = {"c": "correct", "i": "incorrect", "u": "unlabelled"}


def run(number: int, letters: str, **more: Any) -> Trajectory:
    steps = tuple(Step(at, f"Turn {at} of {number}.") for at in range(1, len(letters) + 1))
    first = letters.index("i") + 1 if "i" in letters else None
    known = more.pop("known", "all_steps" if "u" not in letters else "first_mistake")
    words: Any = tuple(WORDS[letter] for letter in letters)
    labels = Labels(words, first, known=known, **more)
    return Trajectory(f"{more.get('annotators', ('x',))[0]}-{number}", Task("Go.", "t"), steps, labels=labels)


def both(tmp_path: Path, first: list[str], second: list[str], **more: Any) -> tuple[Path, Path]:
    for name, sets in (("a", first), ("b", second)):
        runs = [run(at, letters, annotators=(name,), **more) for at, letters in enumerate(sets)]
        trajectory.write(tmp_path / f"{name}.jsonl", runs)
    return tmp_path / "a.jsonl", tmp_path / "b.jsonl"


def test_kappa_of_a_table_worked_by_hand() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed 0.7, by chance 0.5.
    ratings = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert kappa(ratings) == pytest.approx(0.4)
    assert kappa([]) is None and kappa([("y", "y")] * 3) is None


def test_runs_are_paired_by_text_and_the_figures_count_what_both_judge() -> None:
    first = [run(0, "ccic"), run(1, "cccc"), run(2, "icci"), run(9, "cc")]
    second = [run(2, "ccci", annotators=("y",)), run(1, "cccc", annotators=("y",)), run(0, "cciu", annotators=("y",))]
    figures = measure(*pair(first, second))
    assert (figures.shared, figures.only_first, figures.only_second) == (3, 1, 0)
    assert (figures.both_mistaken, figures.same_first, figures.within_one, figures.listed) == (2, 1, 1, 2)
    assert figures.kappa_has_mistake == 1.0
    assert (figures.steps_judged, figures.disputed_steps) == (11, 1)


def test_disputed_steps_are_written_decided_and_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = both(tmp_path, ["cic", "ccc"], ["cci", "cuu"])
    todo, out = tmp_path / "todo.csv", tmp_path / "out.jsonl"
    assert main([str(one), str(two), "--disagreements", str(todo)]) == 0
    assert json.loads(capsys.readouterr().out)["disagreements"] == 2
    with todo.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["run"], line["step"], line["first"], line["second"]) for line in lines] == [
        ("a-0", "2", "incorrect", "correct"),
        ("a-0", "3", "correct", "incorrect"),
    ]
    lines[1] |= {"label": "incorrect", "reason": "It invents a file."}
    with todo.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
    assert main([str(one), str(two), "--adjudicated", str(todo), "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["undecided"] == 1
    merged = [run.labels for run in trajectory.read(out)]
    assert merged[0] is not None and merged[1] is not None
    assert merged[0].step_labels == ("correct", "unlabelled", "incorrect") and merged[0].known == "some_failures"
    assert merged[0].reasons[2] == "It invents a file." and merged[0].annotators == ("a", "b")
    assert merged[1].step_labels == ("correct",) * 3


def test_labels_of_people_are_not_mixed_with_others() -> None:
    pairs, _, _ = pair([run(0, "ci")], [run(0, "ic", origin="model")])
    with pytest.raises(InputError, match="different origin"):
        adjudicate(pairs, {})


def test_a_bad_decision_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "todo.csv"
    file.write_text(",".join(COLUMNS) + "\na,1,,,,,wrong,\na,x,,,,,correct,\n")
    with pytest.raises(FormatError, match=r"(?s)todo.csv:2.*todo.csv:3"):
        read_decisions(file)


def test_sets_without_a_common_run_or_without_labels_are_refused(tmp_path: Path) -> None:
    one, two = both(tmp_path, ["ci"], ["cii"])
    assert main([str(one), str(two)]) == 1
    with pytest.raises(InputError, match="no labels"):
        pair([msgspec.structs.replace(run(0, "ci"), labels=None)], [])
    with pytest.raises(InputError, match="the same run"):
        pair([run(0, "ci"), msgspec.structs.replace(run(0, "ci"), id="again")], [])


def test_who_and_when_against_agentrx(shared_data: Path, tmp_path: Path) -> None:
    runs = [shared_data / "who_and_when/Hand-Crafted"]
    truth = shared_data / "agentrx/ground_truth/magentic_one_ground_truth.json"
    label("agentrx", runs, [truth], tmp_path / "a.jsonl")
    label("who_and_when", runs, runs, tmp_path / "w.jsonl")
    pairs, only_first, only_second = pair(trajectory.read(tmp_path / "a.jsonl"), trajectory.read(tmp_path / "w.jsonl"))
    figures = measure(pairs, only_first, only_second)
    assert (figures.shared, figures.only_first, figures.only_second) == (29, 0, 10)
    assert (figures.same_first, figures.within_one, figures.listed) == (13, 17, 20)
    assert agreement.show(figures)
