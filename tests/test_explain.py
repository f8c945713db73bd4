"""Training rows from collected runs: verdicts equal labels, planted false analyses do not get through."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from conftest import ROOT
from planted import later_visit, speaks_of_labels, wrong_number
from tokenizers_for_tests import build
from world_runs import collected, faulty

from data_prep.explain import Unfaithful, _work, explain, main, rows_of
from data_prep.rows import known_part
from data_prep.world_writer import Analysis, analyse
from scout.config import Recipe, load_recipe
from scout.errors import InputError
from scout.render import render_prompt
from scout.trajectory import Labels, Trajectory, write
from scout.verdict import parse_reply

TOKENIZER = build("tiny")


@cache
def recipe(**changes: int) -> Recipe:
    """The tiny recipe with room for a tokenizer that knows few words of this world."""
    settings = {"scout.prompt_tokens": 1500, **{f"scout.{name}": value for name, value in changes.items()}}
    return load_recipe(ROOT / "recipes/tiny/sft.yaml", [f"{key}={value}" for key, value in settings.items()])


def rows(run: Trajectory, writer: Callable[[Trajectory, random.Random], Analysis] = analyse) -> list[dict[str, Any]]:
    return rows_of(run, "train", recipe(), TOKENIZER, writer)


def in_order(run: Trajectory) -> list[dict[str, Any]]:
    """The rows of the run's windows, without that of the run as it began."""
    return [row for row in rows(run) if not row["id"].endswith("#0")]


def labels(run: Trajectory) -> Labels:
    assert run.labels is not None
    return run.labels


def relabelled(run: Trajectory, **changes: Any) -> Trajectory:
    return msgspec.structs.replace(run, labels=msgspec.structs.replace(labels(run), **changes))


# Faithful rows


def test_parsed_verdicts_equal_the_labels() -> None:
    for run in collected()[:60]:
        covered: list[int] = []
        for row in in_order(run):
            reply = parse_reply(row["completion"], row["indices"], True)
            gold = {index: labels(run).step_labels[index - 1] for index in row["indices"]}
            assert reply.readable and not reply.contradictions
            assert reply.block == reply.paragraph_labels == gold == dict(zip(row["indices"], row["gold"], strict=True))
            assert reply.last == ("No" if "incorrect" in gold.values() else "Yes")
            covered += row["indices"]
        assert covered == [step.index for step in run.steps]


def test_some_runs_are_also_shown_as_they_began() -> None:
    begun = [row for run in collected() for row in rows(run) if row["id"].endswith("#0")]
    assert 0.03 < len(begun) / len(collected()) < 0.25
    for row in begun:
        reply = parse_reply(row["completion"], [1], True)
        assert row["indices"] == [1] and "[2]" not in row["prompt"][-1]["content"]
        assert reply.readable and reply.state is None and [reply.block[1]] == row["gold"]


def test_each_window_shows_the_state_that_the_one_before_wrote() -> None:
    for run in collected()[:30]:
        windows = in_order(run)
        assert len(windows) == -(-len(run.steps) // recipe().scout.window_steps)
        for number, row in enumerate(windows):
            text = row["prompt"][-1]["content"]
            carried = re.findall(r"^State: (.*)$", text, re.MULTILINE)
            before = parse_reply(windows[number - 1]["completion"], windows[number - 1]["indices"], True).state
            assert carried == ([before] if number else [])
            last = number == len(windows) - 1
            assert (parse_reply(row["completion"], row["indices"], True).state is None) is last
            assert ("Then state." in text) is not last


def test_prompts_fit_the_budget_as_rendered() -> None:
    """P3: the length that counts is that of the rendered prompt."""
    states = 0
    for limit in (500, 700):
        for run in collected()[:6]:
            for row in rows_of(
                run, "train", recipe(prompt_tokens=limit, window_steps=4, task_tokens=0), TOKENIZER, analyse
            ):
                assert len(render_prompt(TOKENIZER, row["prompt"])) <= limit
                states += any(line.startswith("state: ") for line in row["cut"])
                assert bool(row["cut"]) == ("tokens cut" in row["prompt"][-1]["content"])
    assert states  # a carried state that does not fit is cut as the scorer cuts it, and that is told


def test_wording_varies_between_runs_and_not_between_calls() -> None:
    texts = [row["completion"] for run in collected()[:20] for row in rows(run)]
    for words in (("says", "claims", "holds"), ("same", "agrees"), ("differs", "conflicts")):
        assert all(any(word in text for text in texts) for word in words)
    assert rows(collected()[0]) == rows(collected()[0])


def test_prompts_hold_no_label_and_no_hidden_effect() -> None:
    for run in collected()[:20]:
        for row in rows(run):
            text = row["prompt"][-1]["content"]
            assert not re.search(r"incorrect|correct\b|first_mistake|leak_key|world_seed", text)


# Analyses that are not faithful


def test_a_false_analysis_is_written_again() -> None:
    tries = []

    def improves(run: Trajectory, rng: random.Random) -> Analysis:
        analysis = analyse(run, rng)
        tries.append(analysis)
        if len(tries) == 1:
            assert wrong_number(run, analysis.paragraphs)
        return analysis

    assert {row["tries"] for row in rows(collected()[0], improves)} == {2}
    assert len(tries) == 2


def test_an_analysis_that_stays_false_is_dropped() -> None:
    def stubborn(run: Trajectory, rng: random.Random) -> Analysis:
        analysis = analyse(run, rng)
        assert later_visit(run, analysis.paragraphs)
        return analysis

    with pytest.raises(Unfaithful, match="cites"):
        rows(collected()[0], stubborn)


def test_an_analysis_that_names_its_labels_is_dropped() -> None:
    def told(run: Trajectory, rng: random.Random) -> Analysis:
        analysis = analyse(run, rng)
        assert speaks_of_labels(run, analysis.paragraphs)
        return analysis

    with pytest.raises(Unfaithful, match="speaks of 'gold'"):
        rows(collected()[0], told)


def test_a_flipped_label_drops_the_run() -> None:
    """Reasons that do not lead to the label would teach a verdict without a reason."""
    for run in faulty(collected())[:20]:
        at = labels(run).first_mistake or 0
        mild = tuple("correct" if i == at else label for i, label in enumerate(labels(run).step_labels, 1))
        first_left = mild.index("incorrect") + 1 if "incorrect" in mild else None
        with pytest.raises(Unfaithful, match=f"step {at}: the analysis finds a fault, the label is correct"):
            rows(relabelled(run, step_labels=mild, first_mistake=first_left))
        harsh = tuple("incorrect" if i == 1 else label for i, label in enumerate(labels(run).step_labels, 1))
        if at > 1:
            with pytest.raises(Unfaithful, match="step 1: the analysis finds no fault, the label is incorrect"):
                rows(relabelled(run, step_labels=harsh, first_mistake=1))


def test_a_reply_that_imitates_a_verdict_is_dropped() -> None:
    def imitates(run: Trajectory, rng: random.Random) -> Analysis:
        analysis = analyse(run, rng)
        analysis.paragraphs[1] += "\nVerdicts:\nStep 1: incorrect\nVerdict: No\n"
        return analysis

    with pytest.raises(Unfaithful, match="verdicts differ"):
        rows(collected()[0], imitates)


# What is known of a run


def test_a_run_with_its_first_mistake_known_ends_there() -> None:
    run = next(run for run in faulty(collected()) if (labels(run).first_mistake or 0) not in (0, len(run.steps)))
    at = labels(run).first_mistake or 0
    unknown = ("unlabelled",) * (len(run.steps) - at)
    partly = relabelled(run, known="first_mistake", step_labels=(*labels(run).step_labels[:at], *unknown))
    made = rows(partly)
    assert made[-1]["indices"][-1] == at and made[-1]["gold"][-1] == "incorrect"
    assert made[-1]["prompt"][-1]["content"].endswith(f"to {at}.")
    for row in made:
        assert f"steps {at + 1} to {len(run.steps)}: after the first mistake labels are not known" in row["cut"]
    assert not any("first mistake" in line for row in rows(run) for line in row["cut"])


def test_a_run_known_to_be_clean_is_shown_whole() -> None:
    run = relabelled(next(run for run in collected() if not run.has_mistake), known="first_mistake")
    assert known_part(run) == (run, None)
    assert rows(run)[-1]["indices"][-1] == len(run.steps)


@pytest.mark.parametrize("known", ["some_failures", "final_only"])
def test_labels_that_do_not_judge_each_step_make_no_rows(known: str) -> None:
    run = collected()[0]
    with pytest.raises(Unfaithful, match="no labels that tell of each step"):
        rows(relabelled(run, known=known, step_labels=("unlabelled",) * len(run.steps), first_mistake=None))


def test_a_run_of_another_origin_is_refused() -> None:
    with pytest.raises(InputError, match=r"data_prep\.collect"):
        rows(msgspec.structs.replace(collected()[0], meta={}))


# The command


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer, a recipe and the runs of two splits."""
    folder = tmp_path_factory.mktemp("explain")
    TOKENIZER.save_pretrained(folder / "model")
    text = (ROOT / "recipes/tiny/sft.yaml").read_text()
    (folder / "sft.yaml").write_text(re.sub(r"prompt_tokens: \d+", "prompt_tokens: 1500", text))
    (folder / "data").mkdir()
    blank = msgspec.structs.replace(collected()[3], labels=None)
    write(folder / "data/train.jsonl.zst", [*collected()[:3], blank, *collected()[4:8]])
    write(folder / "data/dev.jsonl.zst", collected()[8:11])
    return folder


def run_command(folder: Path, data: Path, out: Path) -> int:
    words = {"--data": data, "--out": out, "--recipe": folder / "sft.yaml", "--model": folder / "model"}
    return main([str(word) for pair in words.items() for word in pair])


def test_rows_load_with_datasets_and_drops_are_counted(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    assert run_command(folders, folders / "data", tmp_path / "rows") == 0
    train, dev = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    reason = "the run has no labels that tell of each step whether it is correct"
    assert (train["runs"], train["dropped"], train[f"dropped: {reason}"], train["rewritten"]) == (8, 1, 1, 0)
    assert (dev["runs"], "dropped" in dev) == (3, False)
    files = {split: str(tmp_path / f"rows/{split}.jsonl") for split in ("train", "dev")}
    loaded = datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert (loaded["train"].num_rows, loaded["dev"].num_rows) == (train["rows"], dev["rows"])
    assert loaded["train"][0] == rows(collected()[0])[0]
    assert set(loaded["train"]["split"]) == {"train"} and set(loaded["dev"]["split"]) == {"dev"}
    expected = [row["id"] for n in (0, 1, 2, 4, 5, 6, 7) for row in rows(collected()[n])]
    assert list(loaded["train"]["id"]) == expected


def test_drops_are_counted_with_their_reason(folders: Path) -> None:
    counts: Counter[str] = Counter()
    foreign = msgspec.structs.replace(collected()[1], meta={})
    blank = [msgspec.structs.replace(run, labels=None) for run in collected()[2:4]]
    kept = list(
        explain(iter([collected()[0], foreign, *blank]), "dev", recipe(), str(folders / "model"), "world", counts)
    )
    assert {row["trajectory_id"] for row in kept} == {collected()[0].id}
    assert (counts["runs"], counts["dropped"], counts["rows"]) == (4, 3, len(kept))
    reasons = {key: number for key, number in counts.items() if key.startswith("dropped: ")}
    assert sorted(reasons.values()) == [1, 2]
    assert _work((blank[0], "dev", recipe(), str(folders / "model"), "world"))[1] == []


def refused(folders: Path, data: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(folders, data, out) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_a_missing_file_is_one_clear_error(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "train.jsonl.zst", collected()[:1])
    error = refused(folders, tmp_path, tmp_path / "rows", capsys)
    assert "dev.jsonl.zst" in error and "data_prep.collect" in error and error.count("\n") == 1
    assert not list((tmp_path / "rows").glob("*"))


@pytest.mark.parametrize("content", [b"", b'{"id": "x", "task"', b'{"id": 1}\n', b"\xff\xfe\n"])
def test_a_bad_file_is_one_clear_error(
    content: bytes, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl.zst").write_bytes(zstandard.compress(content))
    assert "train.jsonl.zst" in refused(folders, tmp_path, tmp_path / "rows", capsys)
    assert not list((tmp_path / "rows").glob("*"))


def test_runs_without_labels_are_counted_and_then_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blank = [msgspec.structs.replace(run, labels=None) for run in collected()[:3]]
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.jsonl.zst", blank)
    assert run_command(folders, tmp_path, tmp_path / "rows") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["dropped"] == 3
    assert "none of its 3 runs gave a row" in printed.err
    assert not list((tmp_path / "rows").glob("*"))


def test_a_folder_without_a_tokenizer_is_one_clear_error(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(folders / "data"), "--out", str(tmp_path / "rows"), "--model", str(tmp_path)]
    assert main(words) == 1
    assert "no tokenizer.json there" in capsys.readouterr().err
