"""Mutated fixtures over all readers: runs or one of our errors, in time and in little memory."""

from __future__ import annotations

import json
import random
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval.bench import fuzz
from scout import formats
from scout.errors import FormatError

CASES = fuzz.cases()


@pytest.fixture(scope="module", autouse=True)
def time_limit() -> Iterator[None]:
    before = signal.getsignal(signal.SIGVTALRM)
    fuzz.limit_time()
    yield
    signal.signal(signal.SIGVTALRM, before)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_mutated_files_are_runs_or_one_of_our_errors(case: fuzz.Case, rng: random.Random) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as made:
        path = fuzz.write(fuzz.mutate(case, rng), Path(made))
        for reader, outcome in fuzz.outcomes(path):
            assert outcome in ("runs", "refused"), f"{reader}: {outcome}"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < fuzz.MEMORY_BYTES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.main)
def test_every_case_is_runs_before_it_is_mutated(case: fuzz.Case, tmp_path: Path) -> None:
    assert fuzz._outcome(fuzz.write(case, tmp_path), None) == "runs"


def test_a_reader_that_fails_or_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(path: Path, name: str | None) -> list[object]:
        raise KeyError("x")

    def hang(path: Path, name: str | None) -> list[object]:
        while True:
            pass

    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    monkeypatch.setattr(formats, "load", crash)
    assert "KeyError" in fuzz._outcome(tmp_path, None)
    monkeypatch.setattr(formats, "load", hang)
    assert fuzz._outcome(tmp_path, None) == "more than 0.05 s"


@pytest.mark.parametrize("name", ["trajectory.cont-1" + "x" * 300 + ".json", "trajectory.cont-1.json\x00"])
def test_a_continuation_that_no_file_can_be_named_is_not_followed(tmp_path: Path, name: str) -> None:
    step = {"step_id": 1, "source": "agent", "message": "Hello."}
    run = {"schema_version": "ATIF-v1.5", "steps": [step], "continued_trajectory_ref": name}
    (tmp_path / "trajectory.json").write_text(json.dumps(run))
    (found,) = formats.load(tmp_path / "trajectory.json")
    assert any("continuation" in note for note in found.meta["left_out"])


def test_a_version_of_very_many_digits_is_no_atif(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema_version": "ATIF-v1.%s", "steps": [{"source": "agent"}]}' % ("9" * 5000))
    with pytest.raises(FormatError):
        list(formats.load(tmp_path / "a.json"))
