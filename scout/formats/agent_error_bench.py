"""Reader of AgentErrorBench's runs: chat messages whose prompt repeats everything at every turn.

Each assistant message is a step, so the k-th label belongs to step k. The action is the `<action>` or `<answer>` of the
message, the thought all the rest with its tags. Of a later prompt only the new observation is kept: the text between
`Current Observation:` of that very step and the list of tools; the last step's prompt has an order in its place. The
task is the question alone, without the list of tools, so that the same question of another data set is seen to be the
same. `won` is the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from scout.errors import Problem
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder
from scout.formats.source import Record, Source, attempt, build_all, decode, decoded, keys
from scout.formats.stats import digest
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = 'an object or JSON lines with "messages" and "metadata" that holds "won" and "environment"'
_TOOLS = "Available Tools:"
_OBSERVATION = "\nCurrent Observation:"
_TASK = "\nTask:"
_TAG = re.compile(r"<(/?)(action|answer)>")
_ANSWER = "answer"
_THINK = "</think>"


class _Message(msgspec.Struct):
    role: Literal["system", "user", "assistant"]
    content: str


class _Metadata(msgspec.Struct):
    won: bool | None = None
    environment: str | None = None
    model: str | None = None


class _Run(msgspec.Struct):
    messages: list[msgspec.Raw]
    metadata: _Metadata


class _Whole(_Run, kw_only=True):
    """A run without mistakes, decoded at one go; the messages of another are decoded one by one, to name them."""

    messages: list[_Message]  # type: ignore[assignment]


def matches(source: Source) -> bool:
    """Whether the first record has messages, and says beside them whether the agent won."""
    found = source.members
    return "messages" in found and keys(found.get("metadata", b"")).keys() >= {"won", "environment"}


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        run = attempt(record.raw, _Whole) or decode(record.raw, _Run, record.where, problems)
        if run is None:
            return
        before = len(problems)
        messages = decoded(run.messages, _Message, lambda at: f"{record.where}:{at}", problems)
        if len(problems) > before:
            return
        recorder, positions = Recorder(record.ref), Positions()
        question = ""
        calls: list[Call] = []
        for at, message in enumerate(messages):
            if message.role == "assistant":
                thought, calls = _split(message.content)
                recorder.turn(at, thought, calls)
            elif recorder.steps:
                _observe(recorder, message.content, bool(calls))
            else:
                question = question or _question(message.content, recorder)
            positions.note(at, recorder.steps)
        if calls and all(call.name == _ANSWER for call in calls):
            recorder.result("")  # nothing comes back of an answer, so nothing is missing
        if not recorder.steps:
            problems.append(Problem(record.where, "messages", "no assistant message", "at least one"))
            return
        name = source.stem if record.number is None else f"{source.stem}:{record.number}"
        meta: dict[str, Any] = {"format": "agent_error_bench", "source_file": record.where}
        more = {"domain": run.metadata.environment, "agent_model": run.metadata.model}
        meta |= {key: value for key, value in more.items() if value} | {"messages": positions.messages}
        task_id = f"{run.metadata.environment}:{digest(question)[:12]}" if question else None
        outcome = Outcome(passed=run.metadata.won)
        yield recorder.trajectory(name, task_id=task_id, outcome=outcome, meta=meta, task_text=question)

    return build_all(source, build)


def _question(prompt: str, recorder: Recorder) -> str:
    """The question of the first prompt; another prompt is task text as it stands."""
    _, start, rest = prompt.partition(_TASK)
    question, end, _ = rest.partition(f"\n{_TOOLS}")
    if not (start and end):
        recorder.context(prompt)
        return ""
    recorder.left_out["prompts without the question: list of tools, instructions"] += 1
    return question.strip()


def _observe(recorder: Recorder, prompt: str, called: bool) -> None:
    """What is new in a later prompt. A tool's output may hold the same words, so the step's number is looked for."""
    start = f"You are now at step {recorder.steps + 1}"
    _, middle, rest = prompt.partition(f"{start}.{_OBSERVATION}")
    _, last, order = prompt.partition(f"{start} and this is the final step.{_OBSERVATION}")
    text, tools, _ = rest.rpartition(f"\n\n{_TOOLS}")
    if (middle and tools) or last:
        recorder.left_out["prompts that repeat task, history and tools"] += 1
        text = text.strip() if tools else order.strip()
    else:
        recorder.warnings.append(f"step {recorder.steps}: a prompt in another form, kept whole")
        text = prompt
    if called:
        recorder.result(text)
    else:
        recorder.context(text)


def _split(text: str) -> tuple[str, list[Call]]:
    """Thought and calls; tags inside the model's own thinking are thought."""
    thinking, end, said = text.rpartition(_THINK)
    calls: list[Call] = []
    rest: list[str] = []
    kept = 0
    opened: re.Match[str] | None = None
    # One pass from tag to tag: a pattern over both would take the square of the time on text full of open tags.
    for tag in _TAG.finditer(said):
        if not tag[1]:
            opened = opened or tag
        elif opened and opened[2] == tag[2]:
            rest.append(said[kept : opened.start()])
            calls.append(Call(_ANSWER if tag[2] == _ANSWER else "", said[opened.end() : tag.start()].strip()))
            kept, opened = tag.end(), None
    rest.append(said[kept:])
    return "\n".join(part for part in (thinking + end, "".join(rest).strip()) if part), calls
