"""Reader of multi-agent runs: under `history`, as Who&When and TracerTraj write them, or a bare list, as AgentRx does.

Every message is a step and its author stays in front of the text, except a terminal's, which is the observation of the
step before it, and a human's, which is task in front of the first step and observation after it. The answer and the
labels (`mistake_*`, `ground_truth`) are no part of the run; nothing of them is kept. A bare list is named by its file
and says nothing about its outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from scout.errors import Problem
from scout.formats.chat import ROLES
from scout.formats.positions import Positions
from scout.formats.run import Recorder
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, decoded, keys, text_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = (
    'an object or JSON lines with "history" (messages), "question" and "mistake_step", '
    'or a list of {"role", "content"} whose roles are names of agents'
)
_TERMINAL = re.compile(r"^computer_?terminal$", re.IGNORECASE)
_ATTACK = "_attacked_solution"
_ATTACKED = re.compile(r"_(?:[Ii]_)?attacked(?=_solution)|_[Ii](?=/\S{0,200}_attacked_solution)")
"""TracerTraj names files after the fault that was put into a run (`Taco_7_I_attacked_solution.py`); a verifier would
learn the name in place of the fault."""
_LABELS = ("ground_truth", "mistake_agent", "mistake_step", "mistake_reason", "mistake_type", "labels")


class _Message(msgspec.Struct):
    content: str
    role: str
    """The agent, where messages have no name."""
    name: str | None = None


class _Run(msgspec.Struct):
    history: list[msgspec.Raw]
    question: str = ""
    question_ID: str | None = None
    is_correct: bool | None = None
    is_corrected: bool | None = None


class _Whole(_Run, kw_only=True):
    """A run without mistakes, decoded at one go; the messages of another are decoded one by one, to name them."""

    history: list[_Message]  # type: ignore[assignment]


def matches(source: Source) -> bool:
    """Whether the first record has a history, a question and the place of a mistake, or is a message of an agent."""
    return source.members.keys() >= {"history", "question", "mistake_step"} or _is_bare(source)


def _is_bare(source: Source) -> bool:
    """Whether the file is a list of messages whose roles no chat interface has."""
    found = source.members
    role = text_of(found.get("role"))
    return source.shape == "array" and found.keys() == {"role", "content"} and role is not None and role not in ROLES


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""

    bare = _is_bare(source)
    if bare:
        data = b'{"history":' + source.data + b"}"
        source = msgspec.structs.replace(source, shape="object", first=data, data=data)

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        run = attempt(record.raw, _Whole) or decode(record.raw, _Run, record.where, problems)
        if run is None:
            return
        before = len(problems)
        messages = decoded(run.history, _Message, lambda at: f"{record.where}:history[{at}]", problems)
        if len(problems) > before:
            return
        name = source.stem if record.number is None else f"{source.stem}:{record.number}"
        if bare:
            run.question_ID = name
        trajectory = _trajectory(run, messages, record, name)
        if trajectory is None:
            problems.append(Problem(record.where, "history", "no message of an agent", "at least one"))
            return
        yield trajectory

    return build_all(source, build)


def _trajectory(run: _Run, messages: list[_Message], record: Record, name: str) -> Trajectory | None:
    recorder = Recorder(record.ref)
    positions = Positions()
    authors: list[str] = []
    terminals = {name for name in {message.name or message.role for message in messages} if _TERMINAL.match(name)}
    for position, message in enumerate(messages):
        content = message.content
        if _ATTACK in content:
            content, attacks = _ATTACKED.subn("", content)
            recorder.left_out["marks of an attack in names of files"] += attacks
        author = message.name or message.role
        text = f"{author}: {content}"
        if author == "human" or (author in terminals and recorder.steps):
            recorder.context(text)
        else:
            recorder.turn(position, text, ())
            authors.append(author)
        positions.note(position, recorder.steps)
    if not recorder.steps:
        return None
    raw: Raw = record.raw
    recorder.not_followed.extend(f"{key}: a label or the answer" for key in keys(raw) if key in _LABELS)
    passed = run.is_correct if run.is_correct is not None else run.is_corrected
    meta: dict[str, Any] = {"format": "who_and_when", "source_file": record.where}
    meta |= {"messages": positions.messages, "authors": authors}
    return recorder.trajectory(
        f"{run.question_ID}:{name}" if run.question_ID and run.question_ID != name else name,
        task_id=run.question_ID,
        outcome=Outcome(passed=passed),
        meta=meta,
        task_text=run.question,
    )
