"""Reader of Codex session files (`rollout-*.jsonl`), with the items inside `payload` or, in old files, bare.

What the model wrote between two results (reasoning, messages, calls) is one step; the items do not say which response
they came in. Results carry the call's id. Messages of the user or developer are task or observation, and so is the
summary that a compaction puts in place of the past. The events (`event_msg`) repeat the items and are counted, like
settings and snapshots. Encrypted reasoning cannot be read. A session says nothing about its outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from scout.errors import Problem
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text
from scout.formats.session import read_whole
from scout.formats.source import Raw, Source, decode, text_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = 'JSON lines with "type" and "payload", or old ones that begin with "id", "timestamp" and "instructions"'
_ENVELOPES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output", "mcp_tool_call_output"}
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}


class _Item(msgspec.Struct):
    """An item of the model's protocol; each kind fills some of the fields."""

    type: str | None = None
    role: str | None = None
    content: str | list[Any] | None = None
    summary: list[Any] | None = None
    encrypted_content: str | None = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    call_id: str | None = None
    output: Any = None


class _Line(msgspec.Struct):
    type: str | None = None
    payload: msgspec.Raw = msgspec.Raw()
    id: str | None = None


class _Payload(msgspec.Struct):
    """What is read of a payload that is no item."""

    type: str | None = None
    id: str | None = None
    session_id: str | None = None
    cli_version: str | None = None
    model: str | None = None
    message: str | None = None
    replacement_history: Any = None
    base_instructions: Any = None
    instructions: Any = None


def matches(source: Source) -> bool:
    """Whether the first line is an envelope with a payload, or the head of an old session file."""
    found = source.members
    if "payload" in found:
        return text_of(found.get("type")) in _ENVELOPES
    return source.shape == "lines" and found.keys() >= {"id", "timestamp", "instructions"} and "steps" not in found


def read(source: Source) -> Iterator[Trajectory]:
    """The run. Raises FormatError listing all problems of the file."""
    return read_whole(source, lambda problems: _runs(source, problems))


class _Session:
    """The run as far as it was read."""

    def __init__(self, name: str) -> None:
        self.recorder = Recorder(name)
        self.positions = Positions()
        self.heads: list[str] = []
        self.known: dict[str, str] = {}
        self._open = False
        """Whether the last step is still being written: nothing came back since."""

    def add(self, place: int, kind: str, body: Raw, where: str, problems: list[Problem]) -> None:
        """Record one line; kind is that of its envelope, or `response_item` for a bare item."""
        if kind == "response_item":
            item = decode(body, _Item, where, problems)
            if item is not None:
                self._item(place, item)
        else:
            payload = decode(body, _Payload, where, problems)
            if payload is not None:
                self._other(kind, payload)
        self.positions.note(place, self.recorder.steps)

    def _item(self, place: int, item: _Item) -> None:
        left_out = self.recorder.left_out
        if item.type in _OUTPUTS:
            self.recorder.result(_output(item.output, left_out), item.call_id)
            self._open = False
        elif item.type == "message" and item.role != "assistant":
            self.recorder.context(content_text(item.content, left_out))
            self._open = False
        elif item.type in ("message", "reasoning") or item.type in _CALLS:
            thought = "" if item.type in _CALLS else _words(item, left_out)
            calls = [_call(item)] if item.type in _CALLS else []
            if not thought and not calls:
                left_out["items without text, such as encrypted reasoning"] += 1
            elif self._open:
                self.recorder.extend(place, thought, calls)
            else:
                self.recorder.turn(place, thought, calls)
                self._open = True
        else:
            left_out[f"{item.type or 'nameless'} items"] += 1

    def _other(self, kind: str, payload: _Payload) -> None:
        if kind == "session_meta":
            self.heads.append(payload.id or payload.session_id or "")
            if payload.base_instructions or payload.instructions:
                self.recorder.left_out["system prompts or instructions of the session"] += 1
        elif kind == "compacted":
            self.recorder.context(payload.message or "")
            self._open = False
            if payload.replacement_history:
                self.recorder.left_out["histories put in place of the past by a compaction"] += 1
        else:
            if payload.type == "thread_rolled_back":
                self.recorder.warnings.append(
                    f"step {self.recorder.steps}: turns were taken back; they still stand here"
                )
            self.recorder.left_out[f"{kind} lines"] += 1
        for name, value in (("agent_model", payload.model), ("harness_version", payload.cli_version)):
            if value and kind in ("session_meta", "turn_context"):
                self.known.setdefault(name, value)


def _runs(source: Source, problems: list[Problem]) -> Iterator[Trajectory]:
    session = _Session(source.path.name)
    for record in source.records():
        line = decode(record.raw, _Line, record.where, problems)
        if line is None:
            continue
        place = record.number or 0
        if bytes(line.payload):
            session.add(place, line.type or "", line.payload, record.where, problems)
        elif line.type is None and line.id is not None:
            session.add(place, "session_meta", record.raw, record.where, problems)
        elif line.type is None:
            session.recorder.left_out["marks of the session's state"] += 1
        else:
            session.add(place, "response_item", record.raw, record.where, problems)
    if problems:
        return
    recorder = session.recorder
    if not recorder.steps:
        problems.append(Problem(str(source.path), "", "no item of the model", "messages or calls of the assistant"))
        return
    if len(session.heads) > 1:
        recorder.warnings.append(f"{len(session.heads)} session heads: the past of another session was copied in")
    meta: dict[str, Any] = {"format": "codex", "source_file": str(source.path), "harness": "codex", **session.known}
    meta["messages"] = session.positions.messages
    run_id = next((head for head in session.heads if head), source.stem)
    yield recorder.trajectory(run_id, task_id=None, outcome=Outcome(), meta=meta)


def _words(item: _Item, left_out: Counter[str]) -> str:
    """The text of a message, or of reasoning: what was thought, else its summary."""
    if item.type == "message":
        return content_text(item.content, left_out)
    return content_text(item.content, left_out) or content_text(item.summary, left_out)


def _call(item: _Item) -> Call:
    name = item.name or (item.type or "").removesuffix("_call")
    given = next((value for value in (item.arguments, item.input, item.action) if value is not None), None)
    return Call(name, json_text(given), item.call_id)


def _output(output: Any, left_out: Counter[str]) -> str:
    """What a call returned: text, parts, or an object that holds either."""
    body = output.get("content", output) if isinstance(output, dict) else output
    return content_text(body, left_out) if body is None or isinstance(body, str | list) else json_text(body)
