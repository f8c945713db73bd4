"""Errors of TRAIL stand at spans; each labels the step that the span belongs to, in whichever run that is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data_prep.label import Report, label
from scout import trajectory
from scout.errors import FormatError, InputError
from scout.trajectory import Labels

TRACE = Path(__file__).parent / "fixtures/otel/trace.json"
NO_STEP = "a position that is no step of the run"


def error(location: str, text: str = "Wrong.", category: str = "Tool-related") -> dict[str, str]:
    return {"location": location, "description": text, "category": category, "evidence": "x", "impact": "LOW"}


def labelled(tmp_path: Path, errors: Sequence[dict[str, str]], **more: Any) -> tuple[dict[str, Labels], Report]:
    """Labels by run id."""
    file = tmp_path / "annot.json"
    file.write_text(json.dumps({"errors": list(errors), "scores": [], **more}))
    report = label("trail", [TRACE], [file], tmp_path / "out.jsonl")
    runs = trajectory.read(tmp_path / "out.jsonl")
    return {run.id: run.labels for run in runs if run.labels is not None}, report


def test_an_error_at_a_span_beneath_a_step_labels_the_step(tmp_path: Path) -> None:
    errors = [error("s2m", "No code."), error("s3t"), error("s3", "Guessed.", "Goal Deviation")]
    found, report = labelled(tmp_path, errors, trace_id="t1")
    labels = found.pop("t1")
    assert not found and not report.left_out
    assert labels.step_labels == ("unlabelled", "incorrect", "incorrect")
    assert (labels.known, labels.first_mistake, labels.origin) == ("some_failures", 2, "human")
    assert labels.reasons == (None, "No code.", "Wrong.; Guessed.")
    assert labels.kinds == (None, "Tool-related", "Tool-related; Goal Deviation")


def test_an_error_of_an_agent_inside_a_step_labels_that_agents_run(tmp_path: Path) -> None:
    found, _ = labelled(tmp_path, [error("in1t"), error("s1m")], trace_id="t1")
    assert found["t1"].step_labels == ("incorrect", "unlabelled", "unlabelled")
    assert found["t1/in"].step_labels == ("incorrect",) and found["t1/in"].known == "some_failures"
    found, report = labelled(tmp_path, [error("in1m")], trace_id="t1")
    assert set(found) == {"t1/in"} and report.without == 1


def test_errors_outside_any_step_are_reported_with_their_span(tmp_path: Path) -> None:
    found, report = labelled(tmp_path, [error("plan"), error("s1"), error("nowhere")], trace_id="t1")
    assert found["t1"].step_labels[0] == "incorrect" and found["t1"].known == "some_failures"
    assert report.left_out == {NO_STEP: 2}
    told = (tmp_path / "out.jsonl.left_out.txt").read_text()
    assert "t1: plan" in told and "t1: nowhere" in told


def test_a_record_without_a_trace_is_found_by_its_spans(tmp_path: Path) -> None:
    found, report = labelled(tmp_path, [error("plan"), error("s3m")])
    assert found["t1"].step_labels == ("unlabelled", "unlabelled", "incorrect") and report.left_out == {NO_STEP: 1}


@pytest.mark.parametrize("errors", [[], [error("plan")], [error("elsewhere")]])
def test_errors_that_label_no_step_label_no_run(tmp_path: Path, errors: list[dict[str, str]]) -> None:
    with pytest.raises(InputError, match="none of 1 label records"):
        labelled(tmp_path, errors, trace_id="t1" if errors else "t9")


def test_traces_beside_the_labels_are_passed_over_and_other_files_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(TRACE.read_text())
    (tmp_path / "annot.json").write_text(json.dumps({"errors": [error("s1")], "trace_id": "t1"}))
    assert label("trail", [tmp_path], [tmp_path], tmp_path / "out.jsonl").labelled == 1
    (tmp_path / "annot.json").write_text('{"scores": []}')
    with pytest.raises(FormatError, match="a list of errors"):
        label("trail", [TRACE], [tmp_path / "annot.json"], tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("name", "errors", "steps", "wrong", "outside"), [("trace", 3, 1, [1], 1), ("swe_trace", 12, 9, range(2, 8), 0)]
)
def test_public_traces(
    shared_data: Path, tmp_path: Path, name: str, errors: int, steps: int, wrong: Sequence[int], outside: int
) -> None:
    folder, out = shared_data / "trail_sample", tmp_path / "out.jsonl"
    file = folder / f"{name.replace('trace', 'annot')}.json"
    assert len(json.loads(file.read_text())["errors"]) == errors
    report = label("trail", [folder / f"{name}.json"], [file], out)
    (run,) = trajectory.read(out)
    assert run.labels is not None and len(run.steps) == steps
    assert [at for at, told in enumerate(run.labels.step_labels, 1) if told == "incorrect"] == list(wrong)
    assert report.left_out.total() == report.left_out[NO_STEP] == outside
    assert (run.labels.first_mistake, run.labels.known) == (wrong[0], "some_failures")


def test_public_folder(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "trail_sample"
    report = label("trail", [folder], [folder], tmp_path / "out.jsonl")
    assert (report.labelled, report.known["some_failures"], report.left_out[NO_STEP]) == (2, 2, 1)
