"""Reader of OpenHands: event lists, `output.jsonl` of evaluations, the issue resolver's output and SDK events.

An action of the agent is a step; actions of one model response are one step. An event holds either `action` or
`observation`, whatever its `source`, and an observation belongs to the action that `cause` names (the SDK names the
call). What is shown of a call is the model's own call where the event keeps it, else the action's arguments. A thought
that was only logged (`think`) opens the next step. A message of the agent is a step, for its claims can be wrong and
often it is the answer; one of the user is task or observation. System prompts, recalls, condensations and state
changes are no part of the run and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec

from scout.errors import Problem, shown
from scout.formats.openhands_sdk import SdkEvent, record_sdk
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, json_text
from scout.formats.session import events, read_whole
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, items, keys, text_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = (
    'events with "action" or "observation" beside "args", "extras" or "content", or with "kind": "...Event"; '
    'or objects that hold such a list under "history"'
)
_ENVELOPE = {"id", "timestamp", "source", "message", "cause", "args", "extras", "content", "thought"}
_HARNESS = {"system", "recall", "condensation", "condensation_request", "change_agent_state", "null"}
"""Actions that are none of the agent's."""
_SETTINGS = {
    "thought",
    "confirmation_state",
    "is_confirmed",
    "action_risk",
    "kernel_init_code",
    "keep_prompt",
    "hidden",
}
"""Arguments that are not the agent's words for what is to be done."""
_SILENT = {"recall", "think", "condense", "null", "agent_state_changed"}
"""Observations that tell the agent nothing about its work."""


class _Event(msgspec.Struct):
    id: int | str | None = None
    source: str | None = None
    action: str | None = None
    observation: str | None = None
    cause: int | str | None = None
    message: str | None = None
    content: str | None = None
    args: dict[str, Any] | None = None
    tool_call_metadata: Any = None


class _Issue(msgspec.Struct):
    owner: str = ""
    repo: str = ""
    number: int | str = ""


class _Run(msgspec.Struct):
    history: list[msgspec.Raw]
    instance_id: str | None = None
    issue: _Issue | None = None
    instruction: str | None = None
    test_result: Any = None
    report: Any = None
    error: Any = None
    success: bool | None = None

    @property
    def task_id(self) -> str | None:
        """The instance, or the issue as owner/repository#number."""
        if self.instance_id or self.issue is None:
            return self.instance_id
        return f"{self.issue.owner}/{self.issue.repo}#{self.issue.number}"


class _Whole(_Run, kw_only=True):
    """A run without mistakes, decoded at one go; the events of another are decoded one by one, to name them."""

    history: list[_Event]  # type: ignore[assignment]


class _Asked(NamedTuple):
    """What the model asked for in one action."""

    calls: tuple[Call, ...]
    reasoning: str
    response: str | None
    """Id of the model response; actions that share it are one turn."""


def matches(source: Source) -> bool:
    """Whether the first record is an event, or holds a history that begins with one."""
    found = source.members
    history = items(found.get("history", b""))
    if history:
        return _is_event(history[0])
    return source.shape != "object" and (_is_event(source.first) or _is_sdk(source.first))


def _is_event(raw: Raw) -> bool:
    found = keys(raw)
    one = (text_of(found.get("action")) is None) != (text_of(found.get("observation")) is None)
    return one and not {"role", "response"} & found.keys() and bool(_ENVELOPE & found.keys())


def _is_sdk(raw: Raw) -> bool:
    found = keys(raw)
    return (text_of(found.get("kind")) or "").endswith("Event") and {"id", "source"} <= found.keys()


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""
    if "history" in source.members:
        return build_all(source, lambda record, problems: _build(source, record, problems))
    sdk = _is_sdk(source.first)
    return read_whole(source, lambda problems: _whole(source, sdk, problems))


def _whole(source: Source, sdk: bool, problems: list[Problem]) -> Iterator[Trajectory]:
    """The one run of a file of events."""
    recorder, positions = Recorder(source.path.name), Positions()
    if sdk:
        record_sdk(recorder, positions, events(source.records(), SdkEvent, problems))
    else:
        whole = attempt(source.data, list[_Event]) if source.shape == "array" else None
        known = list(enumerate(whole)) if _are_new(whole) else events(map(_nested, source.records()), _Event, problems)
        _record(recorder, positions, known)
    if problems:
        return
    yield from _finish(recorder, positions, source.stem, None, Outcome(), str(source.path), "", problems)


def _are_new(found: Sequence[_Event] | None) -> TypeGuard[Sequence[_Event]]:
    """Whether all events are decoded and none has its arguments in the old place (see `_nested`)."""
    return bool(found) and all(event.action is None or event.args is not None for event in found or ())


def _nested(record: Record) -> Record:
    """Old events have the arguments beside `action`; here they stand under `args`, as in new ones."""
    found = keys(record.raw)
    if "action" not in found or "args" in found:
        return record
    own = {key: raw for key, raw in found.items() if key in ("id", "source", "action", "message")}
    arguments = {key: raw for key, raw in found.items() if key not in own}
    return record._replace(raw=msgspec.json.encode({**own, "args": arguments}))


def _build(source: Source, record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
    """The run of one row of an evaluation or of the resolver."""
    whole = attempt(record.raw, _Whole)
    known = list(enumerate(whole.history)) if whole and _are_new(whole.history) else None
    run: _Run | None = whole if known else decode(record.raw, _Run, record.where, problems)
    if run is None:
        return
    before = len(problems)
    places = (Record(f"{record.where}:history[{at}]", "", at, raw) for at, raw in enumerate(run.history))
    found = known or events(map(_nested, places), _Event, problems)
    if len(problems) > before:
        return
    recorder, positions = Recorder(record.ref), Positions()
    _record(recorder, positions, found)
    if run.error:
        recorder.warnings.append(f"the harness stopped this run: {shown(str(run.error))}")
    unread = [key for key in keys(record.raw) if key not in _Run.__struct_fields__]
    if unread:
        recorder.not_followed.append(f"keys beside the history: {', '.join(unread[:12])}")
    outcome = _outcome(run, recorder)
    name = source.stem if record.number is None else f"{source.stem}:{record.number}"
    instruction = run.instruction or ""
    yield from _finish(
        recorder, positions, run.task_id or name, run.task_id, outcome, record.where, instruction, problems
    )


def _finish(
    recorder: Recorder,
    positions: Positions,
    run_id: str,
    task_id: str | None,
    outcome: Outcome,
    where: str,
    instruction: str,
    problems: list[Problem],
) -> Iterator[Trajectory]:
    if not recorder.steps:
        problems.append(Problem(where, "", "no action of the agent", "at least one"))
        return
    meta: dict[str, Any] = {"format": "openhands", "source_file": where, "harness": "openhands"}
    meta["messages"] = positions.messages
    yield recorder.trajectory(run_id, task_id=task_id, outcome=outcome, meta=meta, task_text=instruction)


def _outcome(run: _Run, recorder: Recorder) -> Outcome:
    """The tests' verdict; where there is none the outcome is unknown, whatever the resolver's model thought of it."""
    tested = run.test_result if isinstance(run.test_result, dict) else {}
    for report in (run.report, tested.get("report")):
        resolved = report.get("resolved") if isinstance(report, dict) else None
        if isinstance(resolved, bool):
            return Outcome(passed=resolved)
    if run.success is not None:
        recorder.not_followed.append("success: the opinion of the resolver's own model, no outcome")
    return Outcome()


def _record(recorder: Recorder, positions: Positions, found: list[tuple[int, _Event]]) -> None:
    response: str | None = None
    logged = False
    for place, event in found:
        if event.observation is not None:
            _observe(recorder, event)
        elif event.action in _HARNESS:
            recorder.left_out[f"{event.action} events"] += 1
        elif event.action == "message" and event.source != "agent":
            recorder.context(_message(event))
            response, logged = None, False
        elif event.action is not None:
            asked = _asked(event)
            thought = _thought(event, asked.reasoning)
            if logged or (asked.response is not None and asked.response == response):
                recorder.extend(place, thought, asked.calls)
            else:
                recorder.turn(place, thought, asked.calls)
            response, logged = asked.response, event.action == "think"
        else:
            recorder.left_out["events that are neither action nor observation"] += 1
        positions.note(place, recorder.steps)


def _observe(recorder: Recorder, event: _Event) -> None:
    if event.observation in _SILENT:
        recorder.left_out[f"{event.observation} observations"] += 1
        return
    text = event.content if event.content is not None else event.message or ""
    if event.cause is None and event.id is not None:
        if event.observation == "error":
            recorder.warnings.append(f"step {recorder.steps}: an error without its call, which was not recorded")
        recorder.context(text)
    else:
        recorder.result(text, None if event.cause is None else str(event.cause))


def _message(event: _Event) -> str:
    text = (event.args or {}).get("content")
    return text if isinstance(text, str) else event.message or ""


def _asked(event: _Event) -> _Asked:
    """The model's own call, kept in `tool_call_metadata`, else the action's arguments."""
    metadata = event.tool_call_metadata if isinstance(event.tool_call_metadata, dict) else {}
    response = metadata.get("model_response")
    response = response if isinstance(response, dict) else {}
    response_id = response.get("id") if isinstance(response.get("id"), str) else None
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    message = choice.get("message") if isinstance(choice, dict) else None
    message = message if isinstance(message, dict) else {}
    reasoning = message.get("reasoning_content")
    reasoning = reasoning if isinstance(reasoning, str) else ""
    if event.action in ("message", "think"):
        return _Asked((), reasoning, response_id)
    call_id = None if event.id is None else str(event.id)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) and call.get("id") == _call_id(metadata) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            asked = Call(function["name"], json_text(function.get("arguments")), call_id)
            return _Asked((asked,), reasoning, response_id)
    arguments = {key: value for key, value in (event.args or {}).items() if key not in _SETTINGS and value is not None}
    call = Call(event.action or "", json_text(arguments) if arguments else "", call_id)
    return _Asked((call,), reasoning, response_id)


def _call_id(metadata: dict[str, Any]) -> str:
    """The id of the call, or a text that no call has for an id."""
    value = metadata.get("tool_call_id")
    return value if isinstance(value, str) else ""


def _thought(event: _Event, reasoning: str) -> str:
    """The thought; `message` beside an action is a label made by the harness, not the agent's text."""
    if event.action == "message":
        text = _message(event)
    else:
        given = (event.args or {}).get("thought")
        text = given if isinstance(given, str) else ""
    return text if reasoning.strip() in text else "\n".join(filter(None, (reasoning, text)))
