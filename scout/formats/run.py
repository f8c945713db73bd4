"""Turns of a recorded run -> Trajectory: the part that every reader of a foreign format shares.

What came back is attached in the order of the file, never to an earlier step than the one it followed, so that a
verifier sees no observation before the agent did.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from scout.trajectory import Outcome, Step, Task, Trajectory

FEW_STEPS = 3
"""A run with fewer agent steps is probably a fragment (a 23-step run was once exported as two invented steps)."""
_NAMED = 5
"""At most this many ids or steps are named in a warning."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One tool call as the agent made it."""

    name: str
    arguments: str
    """JSON text, or whatever text the model wrote in its place."""
    id: str | None = None

    def text(self) -> str:
        """The call as it stands in `Step.action`; a command typed into a terminal has no name."""
        return f"{self.name} {self.arguments}".rstrip() if self.name else self.arguments


class _Seen(msgspec.Struct, frozen=True, gc=False):
    text: str
    is_result: bool = False
    call_id: str | None = None
    name: str = ""


class _Turn(msgspec.Struct):
    thought: str
    calls: tuple[Call, ...]
    refs: list[int]
    seen: list[_Seen]

    def step(self, number: int, ref: str) -> Step:
        """The turn as the run's step of that number. ref: prefix of `source_ref`."""
        calls, refs = self.calls, self.refs
        # Most turns make one call of one entry: a run of 100 steps is put together in half the time so.
        action = calls[0].text() if len(calls) == 1 else "\n".join([call.text() for call in calls])
        places = refs[0] if len(refs) == 1 else ",".join(map(str, refs))
        return Step(number, self.thought, action, self.observation(), f"{ref}:{places}")

    def observation(self) -> str:
        """What came back. Where several calls were made each result says whose it is, in the order of the calls."""
        if not self.seen:
            return ""
        if len(self.calls) < 2:
            return self.seen[0].text if len(self.seen) == 1 else "\n".join([item.text for item in self.seen])
        calls: dict[str | None, int] = {call.id: at for at, call in enumerate(self.calls) if call.id is not None}
        results = [item for item in self.seen if item.is_result]
        if all(item.call_id in calls for item in results):
            results.sort(key=lambda item: calls[item.call_id])
        nameless = not any(item.call_id for item in results) and len(results) == len(self.calls)
        texts = []
        number = 0
        for item in self.seen:
            if not item.is_result:
                texts.append(item.text)
                continue
            result = results[number]
            call = number if nameless else calls.get(result.call_id)
            name = result.name if call is None else self.calls[call].name
            texts.append(f"{name}: {result.text}" if name else result.text)
            number += 1
        return "\n".join(texts)


class Recorder:
    """Collects the turns of one run in file order."""

    def __init__(self, ref: str) -> None:
        """ref: prefix of every step's `source_ref`."""
        self._ref = ref
        self._task: list[str] = []
        self._turns: list[_Turn] = []
        self._ids: dict[str, list[int]] = {}
        self._results = 0
        self.warnings: list[str] = []
        self.left_out: Counter[str] = Counter()
        """What was dropped, counted by kind."""
        self.not_followed: list[str] = []
        """What the file points to or holds beside the run, in words."""

    @property
    def steps(self) -> int:
        """Agent turns so far."""
        return len(self._turns)

    def context(self, text: str) -> None:
        """Text that no tool returned: task before the first turn, later part of the last turn's observation."""
        if not text.strip():
            return
        if self._turns:
            self._turns[-1].seen.append(_Seen(text))
        else:
            self._task.append(text)

    def turn(self, index: int, thought: str, calls: Iterable[Call]) -> None:
        """A new step. index: position in the original file."""
        turn = _Turn(thought, tuple(calls), [index], [])
        self._turns.append(turn)
        if turn.calls:
            self._note_ids(turn.calls)

    def extend(self, index: int, thought: str, calls: Iterable[Call]) -> None:
        """More of the last step, for formats that record one model turn in several entries."""
        turn = self._turns[-1]
        more = tuple(calls)
        turn.thought = "\n".join(filter(None, (turn.thought, thought)))
        turn.calls += more
        turn.refs.append(index)
        self._note_ids(more)

    def _note_ids(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call.id is not None:
                self._ids.setdefault(call.id, []).append(len(self._turns))

    def result(self, text: str, call_id: str | None = None, *, name: str = "") -> None:
        """What one tool call returned; it belongs to the last turn. name: the tool's, where the recording says it."""
        self._results += 1
        if not self._turns:
            self.warnings.append("a tool result stands before the first agent step; it became part of the task")
            self._task.append(text)
            return
        if call_id is not None and call_id not in self._ids:
            self.warnings.append(f"step {self.steps}: result for call {call_id!r}, which no step made")
        self._turns[-1].seen.append(_Seen(text, True, call_id, name))

    def trajectory(
        self, run_id: str, *, task_id: str | None, outcome: Outcome, meta: dict[str, Any], task_text: str = ""
    ) -> Trajectory:
        """The run. An empty run_id is replaced by the place in the file; task_text is used when the recording itself
        holds no text before the first turn."""
        task = "\n\n".join(self._task) or task_text
        steps = tuple([turn.step(number, self._ref) for number, turn in enumerate(self._turns, 1)])
        left_out = [f"{count} {what}" for what, count in self.left_out.items()] + self.not_followed
        notes = {"warnings": [*self.warnings, *self._doubts(task)], "left_out": left_out}
        return Trajectory(
            id=run_id or self._ref, task=Task(task, task_id), steps=steps, outcome=outcome, meta={**meta, **notes}
        )

    def _doubts(self, task: str) -> list[str]:
        doubts = []
        if not task:
            doubts.append("no task text was found")
        if len(self._turns) < FEW_STEPS:
            doubts.append(
                f"fewer than {FEW_STEPS} agent steps ({len(self._turns)}): check that the file holds the whole run"
            )
        calls = sum(len(turn.calls) for turn in self._turns)
        if calls != self._results and calls:
            doubts.append(f"{calls} tool calls but {self._results} results")
        twice = [f"{key!r} (steps {', '.join(map(str, at))})" for key, at in self._ids.items() if len(at) > 1]
        if twice:
            more = f" and {len(twice) - _NAMED} more" if len(twice) > _NAMED else ""
            doubts.append(f"call ids used more than once: {'; '.join(twice[:_NAMED])}{more}")
        return doubts


def outcome_of(reward: float | None = None, passed: bool | None = None) -> Outcome:
    """Outcome from what a file says. A reward of 1 or more passed, 0 or less failed, between is a score only."""
    if reward is not None and not math.isfinite(reward):
        reward = None
    if passed is None and reward is not None:
        passed = True if reward >= 1 else False if reward <= 0 else None
    return Outcome(passed=passed, score=reward)


def json_text(value: Any) -> str:
    """Arguments of a call as text: a string is the text itself, anything else becomes JSON on one line."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def content_text(content: str | list[Any] | None, left_out: Counter[str]) -> str:
    """The text of a message: a string, nothing, or parts. Parts that are no text are named in place and counted."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = str(part.get("type", "unknown")) if isinstance(part, dict) else type(part).__name__
            left_out[f"{kind} parts of messages"] += 1
            texts.append(f"[{kind}]")
    return "\n".join(texts)
