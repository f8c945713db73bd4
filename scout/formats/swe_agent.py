"""Reader of SWE-agent's `.traj` files, 0.7 and 1.x.

Each item of `trajectory` is a step. The task is what the model was told before its first answer, in `history` or, where
there is none, in the query of the first step; demonstrations of other issues are no part of it. A file with only a
`history` is read message by message. The outcome is that of an evaluation beside the file: the patch in `info` says
nothing about it, and a run that its budget cut off may be resolved all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from scout.errors import Problem, shown
from scout.formats.outcomes import outcome_beside, run_name
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, decoded, items, keys
from scout.trajectory import Trajectory

LOOKED_FOR = (
    'an object with "trajectory", a list of {"action", "observation", "thought" or "response"}, '
    'or with "history", a list of messages with "role" and "agent"'
)
_GENERAL = ("main", "swe_main", "primary")
"""Environments that name no instance."""

_Content = str | list[Any] | None


class _Function(msgspec.Struct):
    name: str
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: _Content = None
    thought: str | None = None
    action: str | None = None
    is_demo: bool | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_ids: list[str] | None = None


class _Step(msgspec.Struct):
    action: str | None = None
    observation: _Content = None
    response: str | None = None
    thought: str | None = None
    messages: list[msgspec.Raw] | None = None
    query: list[msgspec.Raw] | None = None


class _Info(msgspec.Struct):
    exit_status: str | None = None
    swe_agent_version: str | None = None


class _Run(msgspec.Struct):
    trajectory: list[msgspec.Raw] | None = None
    history: list[msgspec.Raw] | None = None
    environment: str | None = None
    info: _Info | None = None


class _Whole(_Run):
    """A run without mistakes, decoded at one go; the parts of another are decoded one by one, to name them."""

    trajectory: list[_Step] | None = None  # type: ignore[assignment]
    history: list[_Message] | None = None  # type: ignore[assignment]


def matches(source: Source) -> bool:
    """Whether the file is one run of SWE-agent."""
    if source.shape != "object":
        return False
    found = source.members
    step = _first(found.get("trajectory"))
    if {"action", "observation"} <= step.keys() and {"thought", "response"} & step.keys():
        return True
    return {"role", "agent"} <= _first(found.get("history")).keys()


def _first(raw: Raw | None) -> Mapping[str, msgspec.Raw]:
    found = items(raw or b"")
    return keys(found[0]) if found else {}


def read(source: Source) -> Iterator[Trajectory]:
    """The run. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        run = attempt(record.raw, _Whole) or decode(record.raw, _Run, record.where, problems)
        if run is None:
            return
        before = len(problems)
        history = decoded(run.history or [], _Message, lambda at: f"{record.where}:history[{at}]", problems)
        steps = decoded(run.trajectory or [], _Step, lambda at: f"{record.where}:trajectory[{at}]", problems)
        told = history or (_query(steps[0], f"{record.where}:trajectory[0]", problems) if steps else [])
        if len(problems) > before:
            return
        recorder, positions = Recorder(f"{record.ref}:{'trajectory' if steps else 'history'}"), Positions()
        if steps:
            _task(recorder, told)
            _record(recorder, positions, steps)
            _compare(recorder, steps, history)
            _name_unread(recorder, _first(keys(record.raw).get("trajectory")))
        else:
            _walk(recorder, positions, history)
        if not recorder.steps:
            problems.append(Problem(record.where, "trajectory", "no step of the agent", "at least one"))
            return
        yield _trajectory(source, record, run, recorder, positions)

    return build_all(source, build)


def _query(step: _Step, where: str, problems: list[Problem]) -> list[_Message]:
    """The prompt of the first step, for files without a history."""
    return decoded(step.query or step.messages or [], _Message, lambda at: f"{where}:query[{at}]", problems)


def _task(recorder: Recorder, told: Sequence[_Message]) -> None:
    """What the model was told before its first answer, without demonstrations."""
    demonstrations = sum(bool(message.is_demo) for message in told)
    recorder.left_out["messages of a demonstration"] += demonstrations
    for message in told:
        if message.is_demo:
            continue
        if message.role == "assistant":
            break
        recorder.context(content_text(message.content, recorder.left_out))
    recorder.left_out = +recorder.left_out


def _record(recorder: Recorder, positions: Positions, steps: Sequence[_Step]) -> None:
    for at, step in enumerate(steps):
        action = (step.action or "").rstrip("\n")
        # A reply that the harness could not take apart has no thought and no action; it is all there is.
        thought = step.thought or ("" if action else step.response or "")
        recorder.turn(at, thought, [Call("", action)] if action else [])
        seen = content_text(step.observation, recorder.left_out)
        if action:
            recorder.result(seen)
        else:
            recorder.context(seen)
        positions.note(at, recorder.steps)


def _compare(recorder: Recorder, steps: Sequence[_Step], history: Sequence[_Message]) -> None:
    """Counts the agent's messages of the history that are in no step; the others are there twice."""
    known = {text.strip() for step in steps for text in (step.response, step.thought) if text}
    for message in history:
        if message.role != "assistant" or message.is_demo:
            continue
        text = content_text(message.content, recorder.left_out).strip()
        if text and text not in known and (message.thought or "").strip() not in known:
            recorder.left_out["messages of the agent in the history that are in no step"] += 1


def _name_unread(recorder: Recorder, first: Mapping[str, msgspec.Raw]) -> None:
    """Names what else the steps hold: states, times, and the prompt that 1.x repeats at every step."""
    unread = [key for key in first if key not in ("action", "observation", "thought")]
    if unread:
        recorder.not_followed.append(f"keys of the steps: {', '.join(unread[:12])}")


def _walk(recorder: Recorder, positions: Positions, history: Sequence[_Message]) -> None:
    """The run of a file that holds nothing but messages."""
    pending = False
    for at, message in enumerate(history):
        text = content_text(message.content, recorder.left_out)
        if message.is_demo:
            recorder.left_out["messages of a demonstration"] += 1
            continue
        if message.role == "assistant":
            calls = _calls(message)
            recorder.turn(at, message.thought or ("" if message.action else text), calls)
            pending = bool(calls)
        elif recorder.steps and (pending or message.role == "tool"):
            # The ids name the model's calls, not the one command that the harness made of them.
            recorder.result(text)
            pending = False
        else:
            recorder.context(text)
        positions.note(at, recorder.steps)


def _calls(message: _Message) -> list[Call]:
    """The command that the harness made of the reply, else the model's own calls."""
    action = (message.action or "").rstrip("\n")
    if action:
        return [Call("", action)]
    return [Call(call.function.name, json_text(call.function.arguments)) for call in message.tool_calls or []]


def _trajectory(source: Source, record: Record, run: _Run, recorder: Recorder, positions: Positions) -> Trajectory:
    environment = run.environment if run.environment not in _GENERAL else None
    task_id = environment or source.stem
    info = run.info or _Info()
    left_out = [key for key in keys(record.raw) if key not in ("trajectory", "history", "environment")]
    if left_out:
        recorder.not_followed.append(f"keys beside the steps: {', '.join(left_out[:12])}")
    status = info.exit_status or ""
    if status and status != "submitted":
        recorder.warnings.append(f"the harness stopped this run: {shown(status)}")
    meta: dict[str, Any] = {"format": "swe_agent", "source_file": record.where, "harness": "swe-agent"}
    meta["messages"] = positions.messages
    more = {"exit_status": status, "format_version": info.swe_agent_version}
    meta |= {key: value for key, value in more.items() if value}
    return recorder.trajectory(
        run_name(source.path, source.stem),
        task_id=task_id,
        outcome=outcome_beside(source.path, task_id),
        meta=meta,
    )
