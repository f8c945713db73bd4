"""OpenTelemetry span trees: which spans are steps, and where the others went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError

TRACE = Path(__file__).parent / "fixtures/otel/trace.json"


def test_steps_are_the_step_spans_with_the_model_calls_beneath() -> None:
    assert formats.detect(TRACE) == "otel"
    run, _ = formats.load(TRACE)
    assert (run.id, run.task.text, run.outcome.passed) == ("t1", "Which fish?", None)
    searched, forgot, answered = run.steps
    assert searched.thought == 'Thought: I say "Code:" and search.'
    assert searched.action == "Code: ```py\nsearch()\n```<end_code>"
    assert searched.observation == "Execution logs:\na fish"
    assert (forgot.thought, forgot.action) == ("I forgot the code.", "")
    assert forgot.observation == "AgentParsingError: no code"
    assert (answered.action, answered.observation) == ("Code: ```py\nfinal_answer(1)\n```", "1")
    assert [step.source_ref for step in run.steps] == ["trace.json:3", "trace.json:9", "trace.json:11"]


def test_an_agent_inside_a_step_is_a_run_of_its_own() -> None:
    _, inner = formats.load(TRACE)
    assert (inner.id, inner.meta["parent"], inner.task.text) == ("t1/in", "t1", "Find the fish.")
    assert [(step.action, step.observation) for step in inner.steps] == [('search {"q": "fish"}', "a fish")]


def test_a_trace_without_a_name_goes_by_its_place(tmp_path: Path) -> None:
    trace = json.loads(TRACE.read_text())
    (tmp_path / "one.json").write_text(json.dumps({**trace, "trace_id": ""}))
    assert [run.id for run in formats.load(tmp_path / "one.json")] == ["one.json", "/in"]


def test_each_span_of_a_step_is_kept_once_and_calls_outside_are_named() -> None:
    run, inner = formats.load(TRACE)
    assert run.meta["spans"] == [["s1", "s1m"], ["s2", "s2m"], ["s3", "s3m", "s3t"]]
    assert inner.meta["spans"] == [["in1", "in1m", "in1t"]]
    assert run.meta["spans_outside"] == ["after", "plan"]
    assert "2 model calls outside any step" in run.meta["left_out"]


def test_logs_are_never_read() -> None:
    runs = list(formats.load(TRACE))
    assert not any("secret" in trajectory.dumps(run) for run in runs)
    assert "1 logs of spans, which may hold the reference answer" in runs[0].meta["left_out"]


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([{"span_id": "a", "span_name": "main", "span_attributes": {}}], "Step N"),
        ([{"span_id": "a", "span_attributes": {}}], "span_name"),
        ([{"span_id": "a", "span_name": "Step 1", "span_attributes": 3}], "span_attributes"),
    ],
)
def test_traces_without_steps_are_refused(tmp_path: Path, spans: list[dict[str, Any]], told: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"trace_id": "t", "spans": spans}))
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.json"))


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    head = '{"span_id": "a", "span_name": "Step 1", "span_attributes": {}, "child_spans": ['
    (tmp_path / "a.json").write_text('{"trace_id": "t", "spans": [' + head * 5000 + "]}" * 5000 + "]}")
    with pytest.raises(FormatError, match="too deep"):
        list(formats.load(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("name", "steps", "spans", "errors", "outside"), [("trace", 1, 11, 3, 1), ("swe_trace", 9, 22, 12, 0)]
)
def test_public_traces(shared_data: Path, name: str, steps: int, spans: int, errors: int, outside: int) -> None:
    folder = shared_data / "trail_sample"
    text = (folder / f"{name}.json").read_text()
    assert text.count('"parent_span_id"') == spans
    (run,) = formats.load(folder / f"{name}.json")
    assert len(run.steps) == len(run.meta["spans"]) == steps
    assert all(step.thought and step.action and step.observation for step in run.steps)
    labels = json.loads((folder / f"{name.replace('trace', 'annot')}.json").read_text())["errors"]
    assert len(labels) == errors
    found = [sum(label["location"] in ids for ids in run.meta["spans"]) for label in labels]
    assert set(found) <= {0, 1} and found.count(0) == outside
    left = [label["location"] for label, times in zip(labels, found, strict=True) if not times]
    assert set(left) <= set(run.meta["spans_outside"])
