"""The benchmark prints what its caller reads."""

from __future__ import annotations

import json

import pytest

from eval.bench import __main__ as bench
from eval.bench import convert, reading


def test_json_is_the_last_line_and_holds_a_ratio(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "RUNS", 10)
    monkeypatch.setattr(reading, "REPEATS", 1)
    monkeypatch.setattr(convert, "RUNS", 5)
    monkeypatch.setattr(convert, "REPEATS", 1)
    assert bench.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [item["name"] for item in found["convert"]] == ["convert chat lines", "convert atif files"]
    assert all(item["ratio"] > 0 for item in found["convert"])
    assert found["ratio"] > 0 and found["runs"] == 10
