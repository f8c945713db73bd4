"""Reader of chat messages with tool calls, as agents exchange them with a model over an OpenAI-like interface.

Each assistant message is one step, however many calls it makes. Tool messages are the observation of the step before
them; so is a user message, unless it stands in front of the first step, where it is the task, like the system message.
Tool calls and results inside the content (`tool_use`, `tool_result` parts) are read as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from scout.errors import Problem
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text, outcome_of
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, decoded, items, keys
from scout.formats.stats import digest
from scout.trajectory import Trajectory

LOOKED_FOR = 'a list of {"role", "content"}, an object with such a list under "messages" or "traj", or lines of either'

_Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ROLES: tuple[str, ...] = get_args(_Role)
_CALL_LOG = {"messages", "response", "kwargs"}
"""What only a log of one model call has. It holds the prompt so far: a piece of a run with which other files go on."""

_Content = str | list[Any] | None


class _Function(msgspec.Struct):
    name: str
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    function: _Function | str
    id: str | None = None
    arguments: Any = None


class _Message(msgspec.Struct):
    role: _Role
    content: _Content = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: _Content = None
    reasoning: Any = None


class _Run(msgspec.Struct):
    """The object around the messages; every key that some harness writes and that says what the run is."""

    messages: list[msgspec.Raw] | None = None
    traj: list[msgspec.Raw] | None = None
    id: str | int | None = None
    run_id: str | int | None = None
    trajectory_id: str | int | None = None
    task_id: str | int | None = None
    instance_id: str | int | None = None
    query_index: str | int | None = None
    sample_index: str | int | None = None
    trial: str | int | None = None
    data_source: str | None = None
    question: str | None = None
    reward: float | None = None
    passed: bool | None = None
    final_label: Literal[-1, 0, 1] | None = None


class _Whole(_Run):
    """A run without mistakes, decoded at one go; the messages of another are decoded one by one, to name them."""

    messages: list[_Message] | None = None  # type: ignore[assignment]
    traj: list[_Message] | None = None  # type: ignore[assignment]


def matches(source: Source) -> bool:
    """Whether the file begins with a message, a list of messages or an object that holds one."""
    if source.shape == "array" and _is_message(source.first):
        return True
    found = source.members
    if found.keys() >= {"task_id", "reward", "info", "traj", "trial"}:
        return False  # tau-bench: its `info` holds the reference solution and has a reader of its own
    lists: list[Raw] = [found[key] for key in ("messages", "traj") if key in found] or [source.first]
    return any(_is_message(first) for raw in lists for first in items(raw)[:1])


def _is_message(raw: Raw) -> bool:
    found = keys(raw)
    return "role" in found and ("content" in found or "tool_calls" in found)


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""
    if source.shape == "array" and _is_message(source.first):
        source = msgspec.structs.replace(source, shape="object")

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        trajectory = build_run(record, source.stem, problems)
        if trajectory is not None:
            yield trajectory

    return build_all(source, build)


def build_run(record: Record, stem: str, problems: list[Problem], unnamed: Sequence[str] = ()) -> Trajectory | None:
    """The run in one record, or None after adding what is wrong with it to `problems`.

    unnamed: keys that the caller accounts for; others that are not read are named in the run's `left_out`.
    """
    before = len(problems)
    if keys(record.raw).keys() >= _CALL_LOG:
        allowed = "the run itself, such as the file of its events"
        problems.append(
            Problem(record.where, "response", "a log of one model call, which is a piece of a run", allowed)
        )
        return None
    is_list = memoryview(record.raw)[:64].tobytes().lstrip().startswith(b"[")
    run: _Run | None = None if is_list else attempt(record.raw, _Whole)
    if run is None:
        raw_messages = decode(record.raw, list[msgspec.Raw], record.where, problems) if is_list else None
        run = _Run(messages=raw_messages) if is_list else decode(record.raw, _Run, record.where, problems)
    if run is None or len(problems) > before:
        return None
    listed = run.messages if run.messages is not None else run.traj
    if listed is None:
        problems.append(Problem(record.where, "messages", "nothing", "a list of messages (also under traj)"))
        return None
    messages = decoded(listed, _Message, lambda at: f"{record.where}:{at}", problems)
    if len(problems) > before:
        return None
    recorder = Recorder(record.ref)
    positions = Positions()
    for position, message in enumerate(messages):
        _record(recorder, position, message)
        positions.note(position, recorder.steps)
    if not recorder.steps:
        problems.append(Problem(record.where, "messages", "no assistant message", "at least one"))
        return None
    first = messages[0]
    system = content_text(first.content, Counter()) if first.role == "system" else ""
    unread = [key for key in keys(record.raw) if key not in _Run.__struct_fields__ and key not in unnamed]
    if unread:
        recorder.not_followed.append(f"keys beside the messages: {', '.join(unread[:12])}")
    trajectory = _trajectory(run, recorder, record, system, stem)
    return msgspec.structs.replace(trajectory, meta={**trajectory.meta, "messages": positions.messages})


def _record(recorder: Recorder, position: int, message: _Message) -> None:
    content = message.content
    calls: list[Call] = []
    if isinstance(content, list):
        content, calls, results = _parts(content)
        for result_text, call_id in results:
            recorder.result(content_text(result_text, recorder.left_out), call_id)
    text = content_text(content, recorder.left_out)
    if message.role == "assistant":
        reasoning = message.reasoning_content or (message.reasoning if isinstance(message.reasoning, str) else None)
        thought = "\n".join(filter(None, (content_text(reasoning, recorder.left_out), text)))
        recorder.turn(position, thought, [*_calls(message), *calls])
    elif message.role in ("tool", "function"):
        recorder.result(text, message.tool_call_id, name=message.name or "")
    else:
        recorder.context(text)


def _calls(message: _Message) -> Iterator[Call]:
    for call in message.tool_calls or []:
        if isinstance(call.function, str):
            yield Call(call.function, json_text(call.arguments), call.id)
        else:
            yield Call(call.function.name, json_text(call.function.arguments), call.id)
    if message.function_call is not None:
        yield Call(message.function_call.name, json_text(message.function_call.arguments))


def _parts(content: list[Any]) -> tuple[list[Any], list[Call], list[tuple[_Content, str | None]]]:
    """Content without its tool parts, the calls in it, and the results in it."""
    rest: list[Any] = []
    calls: list[Call] = []
    results: list[tuple[_Content, str | None]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_use":
            calls.append(Call(str(part.get("name", "")), json_text(part.get("input")), _text(part.get("id"))))
        elif kind == "tool_result":
            body = part.get("content")
            results.append((body if isinstance(body, str | list) else None, _text(part.get("tool_use_id"))))
        elif kind == "thinking" and isinstance(part.get("thinking"), str):
            rest.append(part["thinking"])
        else:
            rest.append(part)
    return rest, calls, results


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _trajectory(run: _Run, recorder: Recorder, record: Record, system: str, stem: str) -> Trajectory:
    name = stem if record.number is None else f"{stem}:{record.number}"
    passed = run.passed
    if passed is None and run.final_label is not None:
        passed = {1: True, -1: False}.get(run.final_label)
    meta: dict[str, Any] = {"format": "chat", "source_file": record.where}
    if run.data_source:
        meta["domain"] = run.data_source
    return recorder.trajectory(
        _run_id(run, name, stem),
        task_id=_task_id(run, system),
        outcome=outcome_of(run.reward, passed),
        meta=meta,
        task_text=run.question or "",
    )


def _run_id(run: _Run, name: str, stem: str) -> str:
    given = next((value for value in (run.id, run.run_id, run.trajectory_id) if value not in (None, "")), None)
    if given is not None:
        return str(given)
    task = next((value for value in (run.task_id, run.instance_id, run.query_index) if value is not None), None)
    repeat = run.trial if run.trial is not None else run.sample_index
    return f"{stem}:{task}:{repeat}" if task is not None and repeat is not None else name


def _task_id(run: _Run, system: str) -> str | None:
    """The task's id. A bare number is unique within one benchmark only, so it carries the source or a hash of the
    system message, which a benchmark gives to all of its tasks."""
    known = next((value for value in (run.task_id, run.instance_id, run.query_index) if value is not None), None)
    if known is None:
        return None
    source = run.data_source or (digest(system)[:8] if system else "")
    return f"{source}:{known}" if source and str(known).isdigit() else str(known)
