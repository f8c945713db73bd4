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
from scout.formats.run import json_text
from scout.formats.source import Record, Source, build_all, decode, keys
from scout.formats.trial import Trial, Verified
from scout.trajectory import Trajectory

LOOKED_FOR = 'an object or JSON lines with "trial_name", "task_name", "reward" and "trajectory" (with "steps")'
_CUT = re.compile(r"\.\.\.\(\+\d+ chars\)$")
_NOTE = re.compile(r"(Initialize|Finished) [0-9a-f-]{36}|Update Todos\n.*", re.DOTALL)
_QUOTED = "'\"'\"'"
_SHELL = "Execute [/bin/sh] "


class _File(msgspec.Struct):
    trial_name: str
    trajectory: dict[str, Any]
    task_name: str
    reward: float | None = None
    task_checksum: str | None = None


def matches(source: Source) -> bool:
    """Whether the first record is a trial with its trajectory inside."""
    found = keys(source.first)
    return found.keys() >= {"trial_name", "task_name", "trajectory"} and "steps" in keys(found["trajectory"])


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        file = decode(record.raw, _File, record.where, problems)
        if file is None:
            return
        notes = _in_atif_terms(file.trajectory)
        task = f"{file.task_name}@{file.task_checksum[:8]}" if file.task_checksum else file.task_name
        rewards = {} if file.reward is None else {"reward": file.reward}
        trial = Trial(task, file.trial_name, Verified(rewards))
        place = Place(f"{record.where}:trajectory", f"{record.ref}:trajectory", file.trial_name)
        for run in atif.build_document(msgspec.json.encode(file.trajectory), place, trial, problems):
            left_out = [note for note in run.meta["left_out"] if not note.endswith(" empty agent entries")]
            left_out += [f"{count} {what}" for what, count in notes.items()]
            yield msgspec.structs.replace(run, meta={**run.meta, "format": "verifier_pool", "left_out": left_out})

    return build_all(source, build)


def _in_atif_terms(document: dict[str, Any]) -> Counter[str]:
    """Rewrites the document in place and returns what was left out; another shape is left for ATIF's checks."""
    notes: Counter[str] = Counter()
    document.setdefault("schema_version", "unnamed")
    for entry in document["steps"] if isinstance(document.get("steps"), list) else ():
        if isinstance(entry, dict):
            _entry(entry, notes)
    return +notes


def _entry(entry: dict[str, Any], notes: Counter[str]) -> None:
    if "T" not in str(entry.get("timestamp", "")):
        # A clock time without a date has whole seconds: entries that share it are not one turn for that.
        entry.pop("timestamp", None)
    calls = [call for call in _list(entry.get("tool_calls")) if isinstance(call, dict)]
    for call in calls:
        _call(call, notes)
    observation = entry.get("observation")
    for result in _list(observation.get("results")) if isinstance(observation, dict) else ():
        if isinstance(result, dict) and isinstance(result.get("content"), str):
            notes["observations cut by the converter"] += bool(_CUT.search(result["content"]))
            result["content"] = _returned(result["content"])
    message = entry.get("message")
    if not isinstance(message, str):
        return
    if entry.get("source") != "agent":
        entry["message"] = message.replace(_QUOTED, "'")
        notes["shell quotes around apostrophes of the task"] += message.count(_QUOTED)
    elif not calls and _NOTE.fullmatch(message):
        entry["message"] = ""
        notes["notes of the harness (Initialize, Update Todos, Finished)"] += 1
    elif calls and message == _SHELL + str(_argument(calls[0], "command")):
        entry["message"] = ""
        notes["messages that repeat the call"] += 1
    elif not message and not calls and not observation:
        notes["empty agent entries"] += 1


def _call(call: dict[str, Any], notes: Counter[str]) -> None:
    if "tool_name" in call:
        call.setdefault("function_name", call.pop("tool_name"))
    text = _argument(call, "keystrokes")
    if text is not None and len(call["arguments"]) == 1:
        call["arguments"] = text
    notes["calls cut by the converter"] += bool(_CUT.search(json_text(call.get("arguments")).rstrip('"}')))


def _argument(call: dict[str, Any], name: str) -> str | None:
    arguments = call.get("arguments")
    value = arguments.get(name) if isinstance(arguments, dict) else None
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


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
