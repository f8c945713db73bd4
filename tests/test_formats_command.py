"""`scoutv convert` as a user runs it: everything readable is written, everything else is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import atif
import pytest

from scout import formats, trajectory
from scout.cli import main
from scout.formats import convert as converting

FIXTURES = Path(__file__).parent / "fixtures"


def convert(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    code = main(["convert", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_files_folders_and_globs_become_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    out = tmp_path / "new" / f"runs.{suffix}"
    code, result, err = convert(
        capsys, FIXTURES / "atif", FIXTURES / "chat/*.jsonl", FIXTURES / "chat/list.json", "-o", out
    )
    assert (code, result["files"], result["runs"], result["refused"]) == (0, 7, 11, [])
    assert len(list(trajectory.read(out))) == 11
    assert [line.split() for line in err.splitlines()[:4]] == [
        ["format", "files", "runs", "steps", "passed", "failed", "unknown"],
        ["atif", "5", "6", "15", "1", "0", "5"],
        ["chat", "2", "5", "8", "1", "1", "3"],
        ["total", "7", "11", "23", "2", "1", "8"],
    ]
    assert "left out" in err
    assert "not read by themselves: 1 files" in err


def test_a_refused_file_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"messages": [{"role": "user", "content": ')
    unknown = tmp_path / "unknown.json"
    unknown.write_text('{"colour": "red"}')
    out = tmp_path / "runs.jsonl"
    code, result, err = convert(capsys, bad, unknown, FIXTURES / "chat/list.json", "-o", out)
    assert (code, result["runs"]) == (1, 1)
    assert [item["file"] for item in result["refused"]] == [str(bad), str(unknown)]
    assert "refused (2):" in err
    assert f"{unknown}: found object with keys colour" in err
    assert "chat: a list of" in result["refused"][1]["reason"]
    assert len(list(trajectory.read(out))) == 1


def test_files_of_a_folder_that_are_no_runs_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text('{"model": "x"}')
    (tmp_path / "in" / "notes.txt").write_text("nothing")
    (tmp_path / "in" / "run.json").write_bytes((FIXTURES / "chat/list.json").read_bytes())
    code, result, err = convert(capsys, tmp_path / "in", "-o", tmp_path / "runs.jsonl")
    assert (code, result["files"]) == (0, 1)
    assert "passed over: 2 files" in err


def test_nothing_readable_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text("{")
    out = tmp_path / "runs.jsonl"
    out.write_text("older content")
    code, result, err = convert(capsys, tmp_path / "bad.json", "-o", out)
    assert (code, result["out"]) == (1, None)
    assert "nothing was written" in err
    assert out.read_text() == "older content"


def test_a_path_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, err = convert(capsys, tmp_path / "none*.json", "-o", tmp_path / "runs.jsonl")
    assert (code, result) == (1, {})
    assert "Check the path" in err


def test_runs_with_one_id_are_renamed_and_stay_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "list.json").write_bytes((FIXTURES / "chat/list.json").read_bytes())
    out = tmp_path / "runs.jsonl"
    code, _, err = convert(capsys, *(tmp_path / name / "list.json" for name in "abca"), "-o", out)
    runs = list(trajectory.read(out))
    assert [run.id for run in runs] == ["list", "list~2", "list~3"]
    assert runs[2].meta["original_id"] == "list"
    assert code == 0
    assert "renamed: 2 runs" in err


def test_a_chosen_format_is_not_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = convert(capsys, FIXTURES / "chat/list.json", "--format", "atif", "-o", tmp_path / "runs.jsonl")
    assert (code, len(result["refused"])) == (1, 1)


def test_terminal_escapes_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil\x1b[31m.json").write_text(json.dumps({"\x1b[2J": 1}))
    _, _, err = convert(capsys, tmp_path / "evil\x1b[31m.json", "-o", tmp_path / "runs.jsonl")
    assert "\x1b" not in err


def test_order_does_not_depend_on_the_number_of_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "SHARED_BYTES", 0)
    outs = []
    for cores in (1, 2):
        monkeypatch.setattr("scout.formats.command.cores", lambda number=cores: number)
        outs.append(tmp_path / f"{cores}.jsonl")
        code, result, _ = convert(capsys, FIXTURES, "-o", outs[-1])
        assert (code, result["refused"]) == (0, [])
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == outs, "nothing of the parts is left"


def test_atif_is_accepted_by_its_published_models_and_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, out = tmp_path / "plain.jsonl", tmp_path / "atif.jsonl"
    assert convert(capsys, FIXTURES, "-o", plain)[0] == 0
    code, result, _ = convert(capsys, plain, "--to", "atif", "-o", out)
    runs = {run.id: run for run in trajectory.read(plain)}
    assert (code, result["runs"]) == (0, len(runs))
    for line in out.read_text().splitlines():
        document = atif.Trajectory.model_validate_json(line)
        known = {call.tool_call_id for step in document.steps for call in step.tool_calls or []}
        results = [item for step in document.steps for item in (step.observation.results if step.observation else [])]
        assert all(item.source_call_id is None or item.source_call_id in known for item in results)
    for back in formats.load(out):
        run = runs[back.id]
        assert (back.task, back.outcome) == (run.task, run.outcome)
        steps = [(step.thought, step.observation) for step in run.steps]
        empty = [not (step.thought or step.action or step.observation) for step in run.steps]
        if not any(empty):
            assert [(step.thought, step.observation) for step in back.steps] == steps


def test_runs_with_one_id_are_renamed_in_atif_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(FIXTURES / "chat/list.json", tmp_path / name / "list.json")
    convert(capsys, tmp_path / "a", tmp_path / "b", "--to", "atif", "-o", tmp_path / "out.jsonl")
    assert [run.id for run in formats.load(tmp_path / "out.jsonl")] == ["list", "list~2"]


def test_a_part_is_read_by_itself_where_the_rest_is_not_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = FIXTURES / "atif/long.trajectory.cont-1.json"
    code, result, _ = convert(capsys, part, "-o", tmp_path / "runs.jsonl")
    assert (code, result["runs"], result["steps"]) == (0, 1, 2)


def test_a_trial_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = tmp_path / "bake"
    (trial / "sessions").mkdir(parents=True)
    shutil.copy(FIXTURES / "asciinema/kitchen.cast", trial / "sessions/agent.cast")
    result = {"trial_name": "t", "task_id": "bake", "instruction": "Bake.", "is_resolved": None}
    (trial / "results.json").write_text(json.dumps(result))
    (trial / "commands.txt").write_text("['ls', 'Enter']")
    code, result, err = convert(capsys, trial, "-o", tmp_path / "runs.jsonl")
    assert (code, result["runs"]) == (0, 1)
    assert "not read by themselves: 1 files" in err


@pytest.mark.data
def test_public_folders_are_converted_as_one(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every trial once: the printed streams beside the trajectories and the continuation are not read again."""
    folders = (shared_data / "codetracer/kimi_k2.5", shared_data / "harbor_atif/golden/terminus_2")
    code, result, err = convert(capsys, *folders, "-o", tmp_path / "r.jsonl")
    assert (code, result["runs"], result["steps"], result["refused"]) == (0, 28 + 7, 509, [])
    assert "not read by themselves: 6 files" in err
    runs = list(trajectory.read(tmp_path / "r.jsonl"))
    assert sum(run.outcome.passed is True for run in runs) == 2


def test_every_format_has_a_row_in_the_docs() -> None:
    rows = (Path(__file__).parent.parent / "docs/formats.md").read_text().splitlines()
    named = [row.split("|")[1].strip(" `") for row in rows if row.startswith("| `")]
    assert sorted(named) == sorted(formats.READERS)
    assert all(row.count("|") == 9 for row in rows if row.startswith("|"))
