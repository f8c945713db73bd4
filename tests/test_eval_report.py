"""The report: every figure against values computed by hand, and what garbage gets."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eval import report, tables
from scout import trajectory, verdict
from scout.errors import INPUT, OK, USAGE, InputError
from scout.trajectory import Trajectory
from scout.verdict import StepVerdict, Verdict
from tests.eval_toy import DEV, GRPO, TEST, TRAIN, make_run, make_verdict, perfect, write_folder

NEVER = [make_verdict(run.id, None, 0.5) for run in TEST]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of the toy with SFT that never flags, GRPO as in the toy, and three steps without history."""
    folder = write_folder(tmp_path_factory.mktemp("toy"), {"base": NEVER[:2], "sft": NEVER, "grpo": GRPO})
    alone = [
        Verdict(name, "scored", None, (StepVerdict(1, "correct", chance),), None, 0.5)
        for name, chance in (("t1a#2", 0.9), ("t1a#1", 0.1), ("t3b#4", 0.95))
    ]
    verdict.write(folder / "eval" / "grpo" / "test_no_history.jsonl", alone)
    (folder / "run.json").write_text('{"seed": 3, "recipe": "recipes/tiny"}')
    made, _ = report.build(folder, folder / "data")
    return made


FIGURES = [
    ("localization", "exact", 1 / 3),
    ("localization", "exact_provable", 1 / 2),
    ("localization", "within_1", 2 / 3),
    ("localization", "within_3", 2 / 3),
    ("localization", "mae", 1 / 2),
    ("localization", "mae_charged", 5 / 3),
    ("localization", "coverage", 2 / 3),
    ("localization", "n", 3),
    ("localization", "n_provable", 2),
    ("detection", "precision", 2 / 4),
    ("detection", "recall", 2 / 3),
    ("detection", "f1", 4 / 7),
    ("detection", "always_flag_f1", 2 / 3),
    ("detection", "clean_share", 1 / 2),
    ("detection", "n", 6),
    ("steps", "recall_correct", 15 / 21),
    ("steps", "recall_incorrect", 1 / 3),
    ("own_labels", "product_reward", (1 + 1 + 0 + 0 + 0 + 3 / 4) / 6),
]


@pytest.mark.parametrize(("family", "name", "value"), FIGURES)
def test_strict_figures_equal_hand_computed_ones(toy: dict[str, Any], family: str, name: str, value: float) -> None:
    assert toy[family][name] == pytest.approx(value)


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("detection", "precision", 2 / 3),
        ("detection", "f1", 2 / 3),
        ("detection", "always_flag_f1", 6 / 8),
        ("detection", "n", 5),
        ("steps", "recall_correct", 15 / 17),
        ("own_labels", "product_reward", 2.75 / 5),
    ],
)
def test_scored_figures_leave_unscored_runs_out(toy: dict[str, Any], family: str, name: str, value: float) -> None:
    assert toy[family]["scored"][name] == pytest.approx(value)


def test_every_figure_has_an_interval_that_holds_it(toy: dict[str, Any]) -> None:
    for family in ("localization", "detection", "steps", "own_labels"):
        named = [name for name in toy[family] if f"{name}_low" in toy[family]]
        assert named
        for name in named:
            low, high = toy[family][f"{name}_low"], toy[family][f"{name}_high"]
            assert low <= toy[family][name] <= high, (family, name)


def test_best_of_n_equals_hand_computed_values(toy: dict[str, Any]) -> None:
    """With two candidates Scout takes t1b (passed), t2a (passed; t2b is unscored and never wins) and t3a (failed)."""
    assert list(toy["best_of_n"]) == ["1", "2"]
    two = toy["best_of_n"]["2"]
    expected = {"random": 1 / 2, "scout": 2 / 3, "oracle": 1, "gain": 1 / 6, "closed": 1 / 3, "tasks": 3}
    assert {name: two[name] for name in expected} == pytest.approx(expected)
    assert two["gain_low"] <= two["gain"] <= two["gain_high"]
    assert toy["best_of_n"]["1"]["scout"] == pytest.approx(1 / 2)


def test_tables_by_kind_and_by_facts(toy: dict[str, Any]) -> None:
    assert {name: (row["exact"], row["n"]) for name, row in toy["by_kind"].items()} == {
        "looping": (1 / 2, 2),
        "memory": (0, 1),
    }
    assert {name: row["exact"] for name, row in toy["by_facts"].items()} == {"1": 1, "2": 0, "5": 0}


def test_threshold_and_selector_come_from_dev(toy: dict[str, Any]) -> None:
    assert toy["threshold"]["value"] == pytest.approx(0.5)
    assert (toy["threshold"]["split"], toy["selector"]["split"], toy["selector"]["name"]) == ("dev", "dev", "p_yes")
    assert toy["selector"]["compared"]["p_yes"] == {"dev": 1.0, "test": pytest.approx(2 / 3)}


def test_differences_are_grpo_minus_sft(toy: dict[str, Any]) -> None:
    found = toy["stages"]["difference"]
    assert found["exact"]["value"] == pytest.approx(1 / 3)
    assert found["f1"]["value"] == pytest.approx(4 / 7)
    assert found["product_reward"]["value"] == pytest.approx(2.75 / 6 - 3 / 6)
    assert found["best_of_2"]["value"] == pytest.approx(2 / 3 - 1 / 2)
    assert all(row["low"] <= row["value"] <= row["high"] for row in found.values())


def test_baselines_equal_hand_computed_values(toy: dict[str, Any]) -> None:
    rows = toy["baselines"]
    exact = {
        name: rows[name]["exact"] for name in ("always_flag", "never_flag", "fixed_position", "last_step", "majority")
    }
    assert exact == pytest.approx(
        {"always_flag": 1 / 3, "never_flag": 0, "fixed_position": 1 / 3, "last_step": 0, "majority": 0}
    )
    assert rows["random_step"]["exact"] == pytest.approx(1 / 4)
    assert rows["always_flag"]["f1"] == pytest.approx(2 / 3)
    assert rows["never_flag"]["f1"] == 0
    assert rows["shortest_run"]["exact"] is None
    assert rows["shortest_run"]["best_of_2"] == pytest.approx(1 / 2)
    assert rows["always_flag"]["lead"] == pytest.approx(2 / 3 - 1 / 2)
    # The toy gives its mistakes away by one word, so here the bag of words must be perfect.
    assert rows["bag_of_words"]["exact"] == 1
    assert toy["bag_of_words_auroc"] == 1


def test_steps_without_history_have_their_own_auroc(toy: dict[str, Any]) -> None:
    """One incorrect step (0.9) against two correct ones (0.1 and 0.95): one pair of two in order."""
    assert toy["no_history_auroc"] == pytest.approx(1 / 2)
    assert toy["no_history_auroc_steps"] == 3


def test_only_the_base_stage_may_cover_a_part_of_the_tasks(toy: dict[str, Any]) -> None:
    base = toy["stages"]["base"]
    assert (base["tasks"], base["tasks_of"], base["unscored"]["count"]) == (1, 3, 0)
    assert (toy["stages"]["sft"]["tasks"], toy["stages"]["grpo"]["tasks"]) == (3, 3)


def test_schema_and_origin(toy: dict[str, Any]) -> None:
    assert {"localization", "detection", "steps", "best_of_n", "baselines", "bag_of_words_auroc", "unscored", "stages",
            "seed", "recipe", "versions", "no_history_auroc", "threshold", "selector"} <= toy.keys()  # fmt: skip
    assert (toy["stage"], toy["seed"], toy["recipe"]) == ("grpo", 3, "recipes/tiny")
    assert toy["unscored"] == {"count": 1, "share": 1 / 6, "runs": 6, "reasons": {"1 of 4 replies readable": 1}}
    for stage in ("base", "sft", "grpo"):
        assert {"localization", "detection", "steps", "best_of_n", "unscored"} <= toy["stages"][stage].keys()
    assert toy["data"]["test"]["faulty_passed_share"] == pytest.approx(1 / 3)
    assert toy["data"]["test"]["provable_share"] == pytest.approx(2 / 3)
    json.dumps(toy, allow_nan=False)


def _figures(folder: Path, verdicts: list[Verdict], dev: list[Verdict] | None = None) -> dict[str, Any]:
    write_folder(folder, {"grpo": verdicts})
    if dev is not None:
        verdict.write(folder / "eval" / "grpo" / "dev.jsonl", dev)
    return report.build(folder, folder / "data")[0]


def test_a_perfect_scorer_gets_one_everywhere(tmp_path: Path) -> None:
    made = _figures(tmp_path, perfect(TEST))
    assert (made["localization"]["exact"], made["detection"]["f1"], made["own_labels"]["product_reward"]) == (1, 1, 1)
    assert made["step_auroc"] == 1
    assert made["best_of_n"]["2"]["scout"] == pytest.approx(2 / 3), "t2's clean run failed: clean is not passed"


def test_a_garbage_scorer_gets_zero_on_every_strict_figure(tmp_path: Path) -> None:
    """P46: what could not be read is never credited, not even on clean runs."""
    dead = [Verdict(run.id, "unscored", "garbage", (), None, None) for run in TEST]
    made = _figures(tmp_path, dead, [Verdict(run.id, "unscored", "garbage", (), None, None) for run in DEV])
    assert [made["localization"][name] for name in ("exact", "within_3", "coverage")] == [0, 0, 0]
    assert [made["detection"][name] for name in ("precision", "recall", "f1", "clean_unflagged")] == [0, 0, 0, 0]
    assert (made["own_labels"]["product_reward"], made["best_of_n"]["2"]["scout"]) == (0, 0)
    assert made["unscored"] == {"count": 6, "share": 1, "runs": 6, "reasons": {"garbage": 6}}
    assert made["threshold"]["value"] is None
    assert any("labels stand" in remark for remark in made["remarks"])
    assert made["localization"]["scored"]["exact"] is None


def test_a_scorer_that_calls_everything_correct_finds_nothing_and_chooses_at_random(tmp_path: Path) -> None:
    """P19: the lazy policy."""
    made = _figures(tmp_path, NEVER)
    assert (made["localization"]["exact"], made["detection"]["f1"]) == (0, 0)
    assert made["best_of_n"]["2"]["scout"] == made["best_of_n"]["2"]["random"]
    assert made["detection"]["clean_unflagged"] == 1


def test_a_run_that_lost_its_verdict_counts_as_unscored(tmp_path: Path) -> None:
    made = _figures(tmp_path, perfect(TEST)[:-2])
    assert made["unscored"]["reasons"] == {"no verdict for this run": 2}
    assert made["localization"]["exact"] == pytest.approx(2 / 3)


def test_command_writes_three_files_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, {"sft": NEVER, "grpo": GRPO})
    assert report.main(["--run", str(tmp_path)]) == OK
    said = json.loads(capsys.readouterr().out)
    for ending in ("json", "md", "html"):
        assert Path(said[ending]).stat().st_size > 1000
    first = Path(said["html"]).read_bytes()
    assert json.loads((tmp_path / "report.json").read_text())["stage"] == "grpo"
    assert report.main(["--run", str(tmp_path)]) == OK
    assert Path(said["html"]).read_bytes() == first, "the same verdicts give the same bytes"


def test_plain_table_lines_up(toy: dict[str, Any]) -> None:
    lines = tables.plain(tables.headline(toy))
    assert lines[0].startswith("figure")
    assert len({line.index("[") for line in lines[1:] if "[" in line}) >= 1
    assert "0.333" in lines[1]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></tr></table><h1>owned</h1>",
    "a|b\n| c | d |",
    "[link](javascript:alert(1)) `code` **bold**",
    "\x1b[31mred\x00",
    "$\\frac{",
]


ALLOWED_TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td", "figure",
                "figcaption", "img", "details", "summary", "pre", "br", "ul", "li", "footer"}  # fmt: skip


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.headings = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.headings += tag == "h1"
        self.attributes |= {(tag, name) for name, _ in attrs}


def _hostile_runs() -> tuple[list[Trajectory], list[Verdict]]:
    runs, verdicts = [], []
    for number, text in enumerate(HOSTILE):
        for name, mistake in (("a", 2), ("b", None)):
            run = make_run(f"{text}{name}", f"{text}{number}", mistake, mistake is None, proof=1, kind=text)
            steps = tuple(trajectory.Step(s.index, text, text, text) for s in run.steps)
            task = trajectory.Task(text, run.task.id)
            runs.append(Trajectory(run.id, task, steps, run.outcome, run.labels))
            one = make_verdict(run.id, mistake, 0.5)
            if name == "b":
                one = Verdict(run.id, "unscored", text, (), None, None)
            verdicts.append(one)
    return runs, verdicts


def test_text_of_runs_cannot_break_out_of_the_pages(tmp_path: Path) -> None:
    runs, verdicts = _hostile_runs()
    write_folder(tmp_path, {"grpo": verdicts}, test=runs)
    assert report.main(["--run", str(tmp_path)]) == OK
    page = (tmp_path / "report.html").read_text()
    parser = _Tags()
    parser.feed(page)
    assert parser.seen <= ALLOWED_TAGS
    assert parser.headings == 1
    assert not {name for _, name in parser.attributes if name.startswith("on")}
    assert {name for tag, name in parser.attributes if tag == "img"} == {"alt", "src"}
    assert "\x1b" not in page
    text = (tmp_path / "report.md").read_text()
    assert "<" not in text and "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert not any("](" in row.replace("\\]", "") for row in rows)
    kinds = text[text.index("## Kind of mistake") : text.index("## How much")]
    assert {row.replace("\\|", "").count("|") for row in kinds.splitlines() if row.startswith("|")} == {6}


def test_a_verdict_about_another_run_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, {"grpo": [*GRPO, make_verdict("stranger", None, 0.5)]})
    with pytest.raises(InputError, match="stranger"):
        report.build(tmp_path, tmp_path / "data")


def test_a_run_judged_twice_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, {"grpo": GRPO})
    verdict.write(tmp_path / "eval" / "grpo" / "again.jsonl", GRPO[:1])
    with pytest.raises(InputError, match="each run once"):
        report.build(tmp_path, tmp_path / "data")


def test_a_task_in_train_and_test_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, {"grpo": GRPO})
    trajectory.write(tmp_path / "data" / "train.jsonl.zst", [*TRAIN, make_run("x", "t1", None, True)])
    with pytest.raises(InputError, match="in train and in test"):
        report.build(tmp_path, tmp_path / "data")


def test_test_verdicts_without_dev_verdicts_are_refused(tmp_path: Path) -> None:
    """P47: a threshold is never fitted on the split that is reported."""
    write_folder(tmp_path, {"grpo": GRPO})
    (tmp_path / "eval" / "grpo" / "dev.jsonl").unlink()
    with pytest.raises(InputError, match="none of dev"):
        report.build(tmp_path, tmp_path / "data")


def test_exit_codes_of_a_folder_without_verdicts_and_of_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, {})
    assert report.main(["--run", str(tmp_path)]) == INPUT
    assert "no verdicts" in capsys.readouterr().err
    assert not (tmp_path / "report.json").exists()
    assert report.main(["--run", str(tmp_path / "absent")]) == USAGE
