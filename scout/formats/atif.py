"""Reader of ATIF, the Agent Trajectory Interchange Format of Harbor, versions 1.0 to 1.8.

Agent entries become steps. Some writers split one model turn over several entries (the thought in one, each call in its
own with the same time and reasoning); these are one step again, and `source_ref` names all of them. User and system
entries are task or observation. Entries copied from another file (`is_copied_context`) are no steps of this run.
A continuation beside the file (`.cont-1.json`) is joined to the run; read by itself it is a run of its own.
A file in the `agent/` folder of a Harbor trial takes task, id and outcome from the trial's `result.json`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scout.errors import Problem
from scout.formats import atif_parts
from scout.formats.atif_entries import Agent, Document, Entry, ToolCall, Whole
from scout.formats.atif_write import TYPED
from scout.formats.run import Call, Recorder, content_text, json_text, outcome_of
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, decoded, keys, open_source, text_of
from scout.formats.trial import Trial, trial_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = 'an object, array or JSON lines with "steps" and "schema_version": "ATIF-v1.0" to "ATIF-v1.8"'
NEWEST = (1, 8)
_VERSION = re.compile(r"^ATIF-v?(\d{1,4})\.(\d{1,4})$", re.IGNORECASE)
_ECHO = re.compile(r"^Executed \S+ \S+$")
"""The message that Harbor's Claude Code writer puts in place of a text when an entry is only a call."""


class Place(NamedTuple):
    """Where a document is: for messages, for `source_ref`, and its name for want of an id."""

    where: str
    ref: str
    name: str


def matches(source: Source) -> bool:
    """Whether the first record names ATIF as its schema."""
    found = source.members
    return "steps" in found and bool(_VERSION.match(text_of(found.get("schema_version")) or ""))


def read(source: Source) -> Iterator[Trajectory]:
    """The runs, embedded sub-agents after their parent. Raises FormatError listing all problems."""
    trial = trial_of(source.path)

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        yield from build_document(record.raw, Place(record.where, record.ref, _name(source, record)), trial, problems)

    runs = build_all(source, build)
    part = atif_parts.following(source.path, keys(source.data).get("continued_trajectory_ref"))
    if part is None:
        return runs
    return atif_parts.join(runs, read(open_source(part)), part)


def _name(source: Source, record: Record) -> str:
    return source.stem if record.number is None else f"{source.stem}:{record.number}"


def build_document(
    raw: Raw, place: Place, trial: Trial, problems: list[Problem], parent: str = ""
) -> Iterator[Trajectory]:
    """The runs of one document: its own and those of its sub-agents. What is wrong with it goes into `problems`."""
    before = len(problems)
    document = attempt(raw, Whole) or decode(raw, Document, place.where, problems)
    if document is None:
        return
    entries = decoded(document.steps, Entry, lambda at: f"{place.where}:steps[{at}]", problems)
    if len(problems) == before:
        yield from build(document, entries, place, trial, problems, parent)


def build(
    document: Document, listed: Sequence[Entry], place: Place, trial: Trial, problems: list[Problem], parent: str = ""
) -> Iterator[Trajectory]:
    """The runs of a document whose entries are decoded."""
    entries = list(enumerate(listed))
    recorder = Recorder(place.ref)
    _record(recorder, entries)
    if not recorder.steps:
        problems.append(Problem(place.where, "steps", "no entry of the agent", 'an entry with "source": "agent"'))
        return
    recorder.warnings.extend(_version_doubts(document.schema_version))
    if document.continued_trajectory_ref:
        recorder.not_followed.append(f"{atif_parts.CONTINUED}: {document.continued_trajectory_ref}")
    run_id = _run_id(document, place.name, trial, parent)
    meta = _meta(document, place.where, entries, parent)
    task_id, outcome = (None, Outcome()) if parent else _known(document, trial)
    yield recorder.trajectory(run_id, task_id=task_id, outcome=outcome, meta=meta)
    for number, child in enumerate(document.subagent_trajectories or []):
        inner = Place(*(f"{part}:subagent_trajectories:{number}" for part in place))
        yield from build_document(child, inner, Trial(), problems, run_id)


def _record(recorder: Recorder, entries: list[tuple[int, Entry]]) -> None:
    ids = Counter(str(entry.step_id) for _, entry in entries if entry.step_id is not None)
    if twice := [key for key, count in ids.items() if count > 1]:
        recorder.warnings.append(f"step ids used more than once: {', '.join(twice[:5])}")
    ordered, moved = _in_time(entries)
    if moved:
        recorder.warnings.append(f"{moved} calls without a result stood behind later entries; put back at their time")
    previous: Entry | None = None
    for position, entry in ordered:
        if entry.is_copied_context and entry.source == "agent":
            recorder.left_out["agent entries copied from another file"] += 1
        elif entry.source == "agent":
            previous = _record_agent(recorder, position, entry, previous)
        else:
            recorder.context(content_text(entry.message, recorder.left_out))
            previous = None
        if not (entry.is_copied_context and entry.source == "agent"):
            _record_results(recorder, entry)


def _record_agent(recorder: Recorder, position: int, entry: Entry, previous: Entry | None) -> Entry | None:
    reasoning = content_text(entry.reasoning_content, recorder.left_out)
    message = content_text(entry.message, recorder.left_out)
    if entry.tool_calls and _ECHO.match(message):
        message = ""
    calls = [_call(call) for call in entry.tool_calls or []]
    if not (reasoning or message or calls or entry.observation):
        recorder.left_out["empty agent entries"] += 1
        return previous
    if previous is not None and _same_turn(previous, entry):
        recorder.extend(position, message, calls)
    else:
        recorder.turn(position, "\n".join(filter(None, (reasoning, message))), calls)
    return entry


def _call(call: ToolCall) -> Call:
    """The call. One named `action` that holds a text is how Scout writes an action that is no call."""
    arguments = call.arguments
    if call.function_name == TYPED and isinstance(arguments, dict) and arguments.keys() == {"text"}:
        return Call("", json_text(arguments["text"]), call.tool_call_id)
    return Call(call.function_name, json_text(arguments), call.tool_call_id)


def _same_turn(before: Entry, entry: Entry) -> bool:
    """Whether an entry that is only a call goes with the entry before it: same time, same reasoning.

    A writer that gives every entry the same time (or none) and no reasoning cannot be told apart and is left alone.
    """
    if not entry.tool_calls or entry.timestamp is None or entry.timestamp != before.timestamp:
        return False
    echo = isinstance(entry.message, str) and (not entry.message or bool(_ECHO.match(entry.message)))
    return echo and entry.reasoning_content == before.reasoning_content


def _in_time(entries: list[tuple[int, Entry]]) -> tuple[list[tuple[int, Entry]], int]:
    """Entries with calls that have no result moved in front of the first later entry; the number of moves.

    Timestamps are ISO 8601 in one zone within a file, so they compare as text; others never move anything.
    """
    if not any(entry.observation is None and entry.tool_calls for _, entry in entries):
        return entries, 0
    ordered: list[tuple[int, Entry]] = []
    moved = 0
    latest = ""
    for position, entry in entries:
        time = entry.timestamp or ""
        late = entry.source == "agent" and entry.tool_calls and entry.observation is None and time and time < latest
        if late and time[:4].isdigit() and "T" in time:
            at = next(number for number, (_, other) in enumerate(ordered) if (other.timestamp or "") > time)
            ordered.insert(at, (position, entry))
            moved += 1
        else:
            ordered.append((position, entry))
            latest = max(latest, time)
    return ordered, moved


def _record_results(recorder: Recorder, entry: Entry) -> None:
    for result in (entry.observation.results or []) if entry.observation else []:
        if result.subagent_trajectory_ref is not None:
            names = _names(result.subagent_trajectory_ref)
            recorder.not_followed.extend(f"sub-agent run in another place: {name}" for name in names)
        text = content_text(result.content, recorder.left_out)
        if entry.source == "agent":
            recorder.result(text, result.source_call_id)
        else:
            recorder.context(text)


def _names(reference: Any) -> list[str]:
    items = reference if isinstance(reference, list) else [reference]
    fields = ("trajectory_path", "trajectory_id", "session_id")
    return [
        str(next((item[field] for field in fields if item.get(field)), "unnamed"))
        if isinstance(item, dict)
        else str(item)
        for item in items
    ]


def _version_doubts(version: str) -> list[str]:
    match = _VERSION.match(version)
    if match is None:
        return [f"schema_version is {version!r}, not an ATIF version; read as ATIF"]
    if (int(match.group(1)), int(match.group(2))) > NEWEST:
        return [f"{version} is newer than {NEWEST[0]}.{NEWEST[1]}; what is known of it was read"]
    return []


def _run_id(document: Document, name: str, trial: Trial, parent: str) -> str:
    run_id = document.trajectory_id or document.session_id or name
    if parent:
        return f"{parent}/{document.trajectory_id or name}"
    if trial.trial_name:
        run_id = trial.trial_name
    extra = document.agent.extra if document.agent else None
    part = extra.get("continuation_index") if isinstance(extra, dict) else None
    return f"{run_id}.cont-{part}" if part is not None else run_id


def _known(document: Document, trial: Trial) -> tuple[str | None, Outcome]:
    """Task id and outcome, from the trial or from the document's own `extra`."""
    extra = document.extra if isinstance(document.extra, dict) else {}
    task_id, reward, passed = extra.get("task_id"), extra.get("reward"), extra.get("passed")
    if trial.outcome != Outcome():
        return trial.task_name or task_id, trial.outcome
    task_id = trial.task_name or task_id
    number = float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None
    outcome = outcome_of(number, passed if isinstance(passed, bool) else None)
    return (None if task_id is None else str(task_id)), outcome


def _meta(document: Document, where: str, entries: list[tuple[int, Entry]], parent: str) -> dict[str, Any]:
    agent = document.agent or Agent()
    meta: dict[str, Any] = {
        "format": "atif",
        "format_version": document.schema_version,
        "source_file": where,
        "agent_entries": sum(entry.source == "agent" for _, entry in entries),
    }
    extra = agent.extra if isinstance(agent.extra, dict) else {}
    parent = parent or str(extra.get("parent_session_id") or "")
    optional = {"harness": agent.name, "agent_model": agent.model_name, "parent": parent}
    return meta | {key: value for key, value in optional.items() if value}
