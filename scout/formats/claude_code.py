"""Reader of Claude Code: its session files (`.jsonl`) and the stream it prints (`--output-format stream-json`).

One message of the model is written in several entries, a part in each; entries with one message id are one step.
Results come back in entries of the user. A sub-agent (`isSidechain`, or `parent_tool_use_id` in the stream) is a run of
its own behind its parent; a file with nothing but a sub-agent is that one run. Where the user went back and asked anew,
only the last branch is the run. Entries written twice, branches left behind and entries that are no message are
counted. A stream holds no task. A file in the `agent/` folder of a Harbor trial takes id, task id and outcome from the
trial's `result.json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from scout.errors import Problem
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text
from scout.formats.session import events, read_whole
from scout.formats.source import Source, text_of
from scout.formats.trial import trial_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = (
    'JSON lines with "type" and "sessionId" (session file) or "session_id" (stream), as Claude Code writes them'
)
_FIRST = {"summary": "leafUuid", "file-history-snapshot": "snapshot"}
"""Kinds of entries without a session id that may open a session file, and a key that each has."""


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    id: str | None = None
    model: str | None = None


class _Entry(msgspec.Struct):
    type: str
    uuid: str | None = None
    parentUuid: str | None = None
    sessionId: str | None = None
    session_id: str | None = None
    agentId: str | None = None
    parent_tool_use_id: str | None = None
    isSidechain: bool | None = None
    isApiErrorMessage: bool | None = None
    version: str | None = None
    subtype: str | None = None
    is_error: bool | None = None
    message: _Message | str | None = None
    toolUseResult: Any = None
    tool_use_result: Any = None

    @property
    def is_prompt(self) -> bool:
        """Whether it was put to the main agent by a person or the harness; tool results are user entries too."""
        content = self.message.content if isinstance(self.message, _Message) else None
        parts = content if isinstance(content, list) else []
        return self.type == "user" and not self.isSidechain and not any(_kind(part) == "tool_result" for part in parts)


class _Parts(NamedTuple):
    text: str
    calls: list[Call]
    results: list[tuple[str, str | None]]


def matches(source: Source) -> bool:
    """Whether the first entry is one of a session file or of the stream."""
    found = source.members
    kind = text_of(found.get("type"))
    if kind is None or "payload" in found:
        return False
    known = text_of(found.get("sessionId")) or text_of(found.get("session_id"))
    return known is not None or (kind in _FIRST and _FIRST[kind] in found)


def read(source: Source) -> Iterator[Trajectory]:
    """The run and then its sub-agents'. Raises FormatError listing all problems of the file."""
    return read_whole(source, lambda problems: _runs(source, problems))


def _runs(source: Source, problems: list[Problem]) -> Iterator[Trajectory]:
    entries = events(source.records(), _Entry, problems)
    if problems:
        return
    session = next((entry.sessionId or entry.session_id for _, entry in entries if _session(entry)), None)
    trial = trial_of(source.path)
    run_id = trial.trial_name or session or source.stem
    kept, dropped = _last_branch(entries)
    tracks = _tracks(kept)
    for key, track in tracks.items():
        recorder, positions = Recorder(source.path.name), Positions()
        _record(recorder, positions, track)
        if not key:
            recorder.left_out.update(dropped)
        if not recorder.steps:
            if not key:
                problems.append(Problem(str(source.path), "", "no message of the model", 'entries of type "assistant"'))
            continue
        meta = {"format": "claude_code", "source_file": str(source.path), "harness": "claude-code", **_known(track)}
        meta["messages"] = positions.messages
        if key:
            meta["parent"] = run_id
            yield recorder.trajectory(f"{run_id}/{key}", task_id=None, outcome=Outcome(), meta=meta)
        else:
            yield recorder.trajectory(run_id, task_id=trial.task_name, outcome=trial.outcome, meta=meta)


def _session(entry: _Entry) -> bool:
    return bool(entry.sessionId or entry.session_id)


def _known(track: list[tuple[int, _Entry]]) -> dict[str, Any]:
    """The model and the version of the harness, where the entries name them."""
    models = [entry.message.model for _, entry in track if isinstance(entry.message, _Message) and entry.message.model]
    known = {
        "agent_model": next((model for model in models if model != "<synthetic>"), None),
        "harness_version": next((entry.version for _, entry in track if entry.version), None),
    }
    return {name: value for name, value in known.items() if value}


def _last_branch(entries: list[tuple[int, _Entry]]) -> tuple[list[tuple[int, _Entry]], dict[str, int]]:
    """Entries without those written twice and those under a prompt that was asked anew, and how many of each."""
    prompts: dict[str, list[str]] = defaultdict(list)
    for _, entry in entries:
        if entry.is_prompt and entry.uuid and entry.parentUuid and entry.uuid not in prompts[entry.parentUuid]:
            prompts[entry.parentUuid].append(entry.uuid)
    left = {uuid for asked in prompts.values() for uuid in asked[:-1]}
    seen: set[str] = set()
    kept = []
    dropped: dict[str, int] = defaultdict(int)
    for place, entry in entries:
        if entry.uuid in seen:
            dropped["entries written twice"] += 1
            continue
        if entry.uuid:
            seen.add(entry.uuid)
        if entry.parentUuid in left and entry.uuid:
            left.add(entry.uuid)
        if entry.uuid in left:
            dropped["entries of branches that were left"] += 1
        else:
            kept.append((place, entry))
    return kept, dropped


def _tracks(entries: list[tuple[int, _Entry]]) -> dict[str, list[tuple[int, _Entry]]]:
    """Entries by agent: "" is the main one, which a file of a sub-agent alone does not have."""
    tracks: dict[str, list[tuple[int, _Entry]]] = {"": []}
    of_uuid: dict[str, str] = {}
    for place, entry in entries:
        key = entry.parent_tool_use_id or ""
        if entry.isSidechain:
            key = entry.agentId or of_uuid.get(entry.parentUuid or "", "") or entry.uuid or "sidechain"
        if entry.uuid:
            of_uuid[entry.uuid] = key
        tracks.setdefault(key, []).append((place, entry))
    if len(tracks) == 2 and not any(entry.type == "assistant" for _, entry in tracks[""]):
        return {"": sorted((item for track in tracks.values() for item in track), key=lambda item: item[0])}
    return tracks


def _record(recorder: Recorder, positions: Positions, track: list[tuple[int, _Entry]]) -> None:
    message_id: str | None = None
    for place, entry in track:
        message = _Message(entry.message) if isinstance(entry.message, str) else entry.message
        if entry.type not in ("user", "assistant") or message is None:
            recorder.left_out[f"{entry.type} entries"] += 1
            if entry.type == "result" and entry.is_error:
                recorder.warnings.append(f"the session ended with an error ({entry.subtype or 'unnamed'})")
            continue
        if entry.isApiErrorMessage or (entry.type == "assistant" and message.model == "<synthetic>"):
            recorder.left_out["messages of the harness in the model's name"] += 1
            continue
        parts = _parts(message.content, recorder)
        if entry.type == "assistant":
            if message.id is not None and message.id == message_id:
                recorder.extend(place, parts.text, parts.calls)
            else:
                recorder.turn(place, parts.text, parts.calls)
            message_id = message.id
        else:
            for text, call_id in parts.results:
                recorder.result(text, call_id)
            recorder.context(parts.text)
            if entry.toolUseResult is not None or entry.tool_use_result is not None:
                recorder.left_out["copies of tool results with further fields"] += 1
        positions.note(place, recorder.steps)


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""


def _parts(content: str | list[Any] | None, recorder: Recorder) -> _Parts:
    """The text, calls and results of a message. Parts that are none of these are named in place and counted."""
    if not isinstance(content, list):
        return _Parts(content or "", [], [])
    texts: list[Any] = []
    parts = _Parts("", [], [])
    for part in content:
        if _kind(part) == "tool_use":
            parts.calls.append(Call(str(part.get("name", "")), json_text(part.get("input")), _text(part.get("id"))))
        elif _kind(part) == "tool_result":
            body = part.get("content")
            text = content_text(body, recorder.left_out) if body is None or isinstance(body, str | list) else str(body)
            parts.results.append((text, _text(part.get("tool_use_id"))))
        elif _kind(part) == "thinking" and isinstance(part.get("thinking"), str):
            texts.append(part["thinking"])
        else:
            texts.append(part)
    return parts._replace(text=content_text([text for text in texts if text != ""], recorder.left_out))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
