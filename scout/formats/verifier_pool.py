"""Reader of candidate pools of LLM-as-a-Verifier: one Terminal-Bench trial a file, around something much like ATIF.

The document is put into ATIF's own terms and read as that. What its converters added is undone and counted: calls
whose only argument is `keystrokes`, observations that are JSON with a return code, messages that repeat the call, notes
of the harness, shell quotes in the task. Texts that a converter cut (`...(+54 chars)`) stay as they are and are counted
too: what a verifier needs may be gone. Runs are candidates for one task when its name and checksum agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from scout.errors import Problem
from scout.formats import atif
from scout.formats.atif import Place
from scout.formats.atif_entries import Document, Entry, ToolCall
from scout.formats.run import json_text
from scout.formats.source import Record, Source, attempt, build_all, decode, decoded, keys
from scout.formats.trial import Trial, Verified
from scout.trajectory import Trajectory

LOOKED_FOR = 'an object or JSON lines with "trial_name", "task_name", "reward" and "trajectory" (with "steps")'
_CUT = re.compile(r"\.\.\.\(\+\d+ chars\)$")
_CUT_END = " chars)"
_NOTE = re.compile(r"(Initialize|Finished) [0-9a-f-]{36}|Update Todos\n.*", re.DOTALL)
_QUOTED = "'\"'\"'"
_SHELL = "Execute [/bin/sh] "


class _Call(ToolCall):
    function_name: str = ""
    tool_name: str | None = None


class _Entry(Entry):
    tool_calls: list[_Call] | None = None  # type: ignore[assignment]
    timestamp: Any = None


class _Document(Document, kw_only=True):
    schema_version: str = "unnamed"


class _File(msgspec.Struct):
    trial_name: str
    trajectory: _Document
    task_name: str
    reward: float | None = None
    task_checksum: str | None = None


class _WholeDocument(_Document, kw_only=True):
    steps: list[_Entry]  # type: ignore[assignment]


class _Whole(_File, kw_only=True):
    """A file without mistakes, decoded at one go; the entries of another are decoded one by one, to name them."""

    trajectory: _WholeDocument


def matches(source: Source) -> bool:
    """Whether the first record is a trial with its trajectory inside."""
    found = source.members
    return found.keys() >= {"trial_name", "task_name", "trajectory"} and "steps" in keys(found["trajectory"])


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        before = len(problems)
        file = attempt(record.raw, _Whole) or decode(record.raw, _File, record.where, problems)
        if file is None:
            return
        place = Place(f"{record.where}:trajectory", f"{record.ref}:trajectory", file.trial_name)
        document = file.trajectory
        entries = decoded(document.steps, _Entry, lambda at: f"{place.where}:steps[{at}]", problems)
        notes: Counter[str] = Counter()
        for at, entry in enumerate(entries):
            _in_atif_terms(entry, f"{place.where}:steps[{at}]", notes, problems)
        if len(problems) > before:
            return
        task = f"{file.task_name}@{file.task_checksum[:8]}" if file.task_checksum else file.task_name
        rewards = {} if file.reward is None else {"reward": file.reward}
        trial = Trial(task, file.trial_name, Verified(rewards))
        for run in atif.build(document, entries, place, trial, problems):
            left_out = [note for note in run.meta["left_out"] if not note.endswith(" empty agent entries")]
            left_out += [f"{count} {what}" for what, count in (+notes).items()]
            yield msgspec.structs.replace(run, meta={**run.meta, "format": "verifier_pool", "left_out": left_out})

    return build_all(source, build)


def _in_atif_terms(entry: _Entry, where: str, notes: Counter[str], problems: list[Problem]) -> None:
    """Rewrites the entry. What is left out is counted in `notes`."""
    if not isinstance(entry.timestamp, str) or "T" not in entry.timestamp:
        # A clock time without a date has whole seconds: entries that share it are not one turn for that.
        entry.timestamp = None
    calls = entry.tool_calls or []
    for at, call in enumerate(calls):
        if not _rewrite(call, notes):
            allowed = "a name under function_name or tool_name"
            problems.append(Problem(f"{where}.tool_calls[{at}]", "function_name", "nothing", allowed))
    for result in (entry.observation.results or ()) if entry.observation else ():
        if isinstance(result.content, str):
            notes["observations cut by the converter"] += _is_cut(result.content)
            result.content = _returned(result.content)
    message = entry.message
    if not isinstance(message, str):
        return
    if entry.source != "agent":
        entry.message = message.replace(_QUOTED, "'")
        notes["shell quotes around apostrophes of the task"] += message.count(_QUOTED)
    elif not calls and _NOTE.fullmatch(message):
        entry.message = ""
        notes["notes of the harness (Initialize, Update Todos, Finished)"] += 1
    elif calls and message.startswith(_SHELL) and message == _SHELL + str(_argument(calls[0], "command")):
        entry.message = ""
        notes["messages that repeat the call"] += 1
    elif not message and not calls and not entry.observation:
        notes["empty agent entries"] += 1


def _rewrite(call: _Call, notes: Counter[str]) -> bool:
    """Puts the call into ATIF's terms; whether it has a name."""
    text = _argument(call, "keystrokes")
    if text is not None and len(call.arguments) == 1:
        call.arguments = text
    notes["calls cut by the converter"] += _is_cut(_last(call.arguments).rstrip('"}'))
    call.function_name = call.function_name or call.tool_name or ""
    return bool(call.function_name)


def _last(value: Any) -> str:
    """The text at the end of the arguments, where a converter cuts."""
    while isinstance(value, dict) and value:
        value = next(reversed(value.values()))
    return value if isinstance(value, str) else ""


def _is_cut(text: str) -> bool:
    return text.endswith(_CUT_END) and bool(_CUT.search(text, max(0, len(text) - 40)))


def _argument(call: _Call, name: str) -> str | None:
    value = call.arguments.get(name) if isinstance(call.arguments, dict) else None
    return value if isinstance(value, str) else None


def _returned(content: str) -> str:
    """An observation that is a JSON object with a return code as lines `key: value`; any other text as it is."""
    if not content.startswith("{") or '"returncode"' not in content:
        return content
    try:
        found = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content
    return "\n".join(f"{key}: {json_text(value)}" for key, value in found.items())
