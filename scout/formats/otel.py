"""Reader of OpenTelemetry span trees with OpenInference attributes, as TRAIL publishes them.

The `Step N` spans of one agent are the steps: thought and action from the model calls beneath, observation from the
step's output, or its error. In a code agent's text the action begins at the last `Code:` with a block; no text is lost.
An agent that works inside a step of another is a run of its own behind its parent. Model calls outside any step (plans)
are no steps; `meta["spans_outside"]` names them. Logs may hold the reference answer and are never read.

`meta["spans"]` has one list for each step: the ids of its span and of all beneath that belong to no other run, the
step's own first. `source_ref` ends with the place of the step's span, counted from 0 in the order of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from scout.errors import Problem
from scout.formats.run import Call, Recorder
from scout.formats.source import Record, Source, build_all, decode, items, keys
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = 'an object, array or JSON lines with "trace_id" and "spans" (each with "span_id" and "span_attributes")'
_STEP = re.compile(r"^Step \d+$")
_OUTPUT = "llm.output_messages."
_CODE = re.compile(r"^Code:\s*(?=```)", re.MULTILINE)


class _Span(msgspec.Struct):
    span_id: str
    span_name: str
    span_attributes: dict[str, Any] = {}
    status_code: str | None = None
    status_message: str | None = None
    child_spans: list[_Span] = []
    logs: list[msgspec.Raw] = []

    def text(self, key: str) -> str:
        """A text attribute; "" when it is missing or something else."""
        value = self.span_attributes.get(key)
        return value if isinstance(value, str) else ""

    @property
    def kind(self) -> str:
        """AGENT, LLM, TOOL, CHAIN ..., or "" where the span says none."""
        return self.text("openinference.span.kind")


class _Trace(msgspec.Struct):
    trace_id: str
    spans: list[_Span]


class _Agent(msgspec.Struct):
    """One agent's steps, each with its place, in the order of the tree."""

    span: _Span | None
    parent: str | None
    steps: list[tuple[int, _Span]] = []


class _Walk(NamedTuple):
    agents: dict[str, _Agent]
    spans: list[_Span]
    outside: dict[str, list[str]]
    """Ids of model calls outside any step, by the agent they belong to ("" for none)."""


def matches(source: Source) -> bool:
    """Whether the first record is a trace whose first span has an id and attributes."""
    found = source.members
    if not {"trace_id", "spans"} <= found.keys():
        return False
    spans = items(found["spans"])
    return bool(spans) and {"span_id", "span_attributes"} <= keys(spans[0]).keys()


def read(source: Source) -> Iterator[Trajectory]:
    """The runs, an agent inside another after it. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        trace = decode(record.raw, _Trace, record.where, problems)
        if trace is None:
            return
        walk = _walk(trace)
        agents = {key: agent for key, agent in walk.agents.items() if agent.steps}
        if not agents:
            problems.append(Problem(record.where, "spans", 'no span named "Step N"', "at least one"))
            return
        for key in agents:
            yield _trajectory(trace, walk, agents, key, record)

    return build_all(source, build)


def _walk(trace: _Trace) -> _Walk:
    """Every span in the order of the tree, each step with the agent it belongs to."""
    walk = _Walk({}, [], {})
    stack: list[tuple[_Span, str, bool]] = [(span, "", False) for span in reversed(trace.spans)]
    while stack:
        span, owner, inside = stack.pop()
        place = len(walk.spans)
        walk.spans.append(span)
        if span.kind == "AGENT":
            walk.agents[span.span_id] = _Agent(span, owner or None)
            owner, inside = span.span_id, False
        elif _STEP.match(span.span_name):
            walk.agents.setdefault(owner, _Agent(None, None)).steps.append((place, span))
            inside = True
        elif span.kind == "LLM" and not inside:
            walk.outside.setdefault(owner, []).append(span.span_id)
        stack.extend((child, owner, inside) for child in reversed(span.child_spans))
    return walk


def _beneath(step: _Span) -> Iterator[_Span]:
    """The step's span and all beneath it in the order of the tree, without other agents and their steps."""
    stack = [step]
    while stack:
        span = stack.pop()
        yield span
        stack.extend(child for child in reversed(span.child_spans) if child.kind != "AGENT")


def _run_id(trace: _Trace, agents: dict[str, _Agent], key: str) -> str:
    """The trace's id for its first agent; the others add that of their span."""
    return trace.trace_id if key == next(iter(agents)) else f"{trace.trace_id}/{key}"


def _trajectory(trace: _Trace, walk: _Walk, agents: dict[str, _Agent], key: str, record: Record) -> Trajectory:
    agent = agents[key]
    recorder = Recorder(record.ref)
    spans = []
    for place, step in agent.steps:
        beneath = list(_beneath(step))
        spans.append([span.span_id for span in beneath])
        _record(recorder, place, step, beneath)
    outside = walk.outside.get(key, [])
    if key == next(iter(agents)):
        outside = [*walk.outside.get("", []), *outside] if key else outside
        recorder.left_out["logs of spans, which may hold the reference answer"] += sum(
            len(span.logs) for span in walk.spans
        )
    recorder.left_out["model calls outside any step"] += len(outside)
    recorder.left_out = +recorder.left_out
    meta: dict[str, Any] = {"format": "otel", "source_file": record.where, "trace_id": trace.trace_id, "spans": spans}
    meta["spans_outside"] = outside
    models = [span.text("llm.model_name") for _, step in agent.steps for span in _beneath(step)]
    if model := next(filter(None, models), ""):
        meta["agent_model"] = model
    if agent.parent in agents:
        meta["parent"] = _run_id(trace, agents, agent.parent)
    return recorder.trajectory(
        _run_id(trace, agents, key),
        task_id=None,
        outcome=Outcome(),
        meta=meta,
        task_text=_task(agent),
    )


def _task(agent: _Agent) -> str:
    """The agent's own task, else what its first model call was asked."""
    given = agent.span.text("input.value") if agent.span is not None else ""
    task = _member(given, "task")
    if task:
        return task
    for _, step in agent.steps:
        for span in _beneath(step):
            texts = _messages(span, "llm.input_messages.", "user")
            if texts:
                return texts[0]
    return given


def _member(text: str, name: str) -> str:
    """A text member of an object that stands as JSON in a string; "" when there is none."""
    value = decode(keys(text.encode("utf-8", "replace")).get(name, msgspec.Raw(b"null")), Any, "", [])
    return value if isinstance(value, str) else ""


def _messages(span: _Span, prefix: str, role: str) -> list[str]:
    """Texts of the span's messages of that role, in order."""
    texts = []
    number = 0
    while f"{prefix}{number}.message.role" in span.span_attributes:
        if span.text(f"{prefix}{number}.message.role") == role:
            texts.append(_content(span, f"{prefix}{number}.message."))
        number += 1
    return [text for text in texts if text]


def _content(span: _Span, prefix: str) -> str:
    """A message's text, which is one attribute or one for each part."""
    parts = [span.text(f"{prefix}content")]
    number = 0
    while f"{prefix}contents.{number}.message_content.type" in span.span_attributes:
        parts.append(span.text(f"{prefix}contents.{number}.message_content.text"))
        number += 1
    return "\n".join(part for part in parts if part)


def _calls(span: _Span) -> Iterator[Call]:
    """The tool calls in the span's output."""
    number = 0
    while f"{_OUTPUT}0.message.tool_calls.{number}.tool_call.function.name" in span.span_attributes:
        prefix = f"{_OUTPUT}0.message.tool_calls.{number}.tool_call."
        arguments = span.text(f"{prefix}function.arguments")
        yield Call(span.text(f"{prefix}function.name"), arguments, span.text(f"{prefix}id") or None)
        number += 1


def _record(recorder: Recorder, place: int, step: _Span, beneath: list[_Span]) -> None:
    """One step: what the model said and called, then what came back."""
    texts: list[str] = []
    calls: list[Call] = []
    returned: list[str] = []
    for span in beneath:
        if span.kind == "LLM":
            said = _messages(span, _OUTPUT, "assistant") or [span.text("output.value")]
            texts += said
            calls += _calls(span)
        elif span.kind == "TOOL":
            returned.append(span.text("output.value"))
    thought = "\n".join(text for text in texts if text)
    blocks = [] if calls else list(_CODE.finditer(thought))
    if blocks:
        calls = [Call("Code:", thought[blocks[-1].end() :])]
        thought = thought[: blocks[-1].start()].rstrip()
    recorder.turn(place, thought, calls)
    own = [text for text in (step.text("output.value"), step.status_message or "") if text]
    if own and returned:
        recorder.left_out["tool spans of steps that have an output of their own"] += len(returned)
    for text in own or returned:
        recorder.result(text)
