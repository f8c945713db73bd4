"""The benchmark prints what its caller reads."""

from __future__ import annotations

import json
from pathlib import Path

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
    monkeypatch.setattr(convert, "LINES", (5, 20))
    own = Path(__file__).parent / "fixtures" / "verifier_pool"
    assert bench.main([str(own), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ["chat lines", "atif", "swe_agent", "openhands", "who_and_when", str(own)]
    assert [item["name"] for item in found["convert"]] == [f"convert {name}" for name in names]
    assert all(item["ratio"] > 0 for item in found["convert"])
    assert found["ratio"] > 0 and found["runs"] == 10


def test_memory_does_not_grow_with_a_file_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files above what is kept in memory while they are read."""
    monkeypatch.setattr(convert, "LINES", (250, 600))
    small, large = convert.memory()
    assert large["megabytes"] > 2 * float(small["megabytes"]) > 40
    assert large["peak_megabytes"] < 1.2 * float(small["peak_megabytes"])
