"""`scoutv convert` as a user runs it: everything readable is written, everything else is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scout import trajectory
from scout.cli import main

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
    assert (code, result["files"], result["runs"], result["refused"]) == (0, 6, 10, [])
    assert len(list(trajectory.read(out))) == 10
    assert [line.split() for line in err.splitlines()[:4]] == [
        ["format", "files", "runs", "steps", "passed", "failed", "unknown"],
        ["atif", "4", "5", "12", "1", "0", "4"],
        ["chat", "2", "5", "8", "1", "1", "3"],
        ["total", "6", "10", "20", "2", "1", "7"],
    ]
    assert "left out" in err


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
    assert "passed over: 1 files" in err


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
