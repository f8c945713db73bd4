"""Agents that ran inside a terminal and printed their turns: the runs cut out of its lines.

Known are mini-swe-agent, whose turns begin with `mini-swe-agent (step 3, $0.01):`, and Claude Code with
`--output-format stream-json`, which prints one JSON object a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scout.formats import claude_code
from scout.formats.bench_trial import BenchTrial
from scout.formats.run import Call, Recorder
from scout.formats.source import Source, keys
from scout.formats.terminal import Line
from scout.trajectory import Trajectory

_TURN = re.compile(r"^mini-swe-agent \(step \d+, \$\d+\.\d+\):$")
_BACK = "User:"
_FENCE = re.compile(r"^```(?:bash|sh)?\s*$")
_SAVED = re.compile(r"^Saved trajectory to '.*'$")
_STREAM = re.compile(r'^\{"type":"(system|assistant|user|result)"')


class Inside:
    """What was printed: turns as (line, thought, action, observation), or the runs that Claude Code's reader made."""

    def __init__(self) -> None:
        self.turns: list[tuple[int, str, str, str]] = []
        self.runs: list[Trajectory] = []
        self.broken = 0
        self.other = 0
        self.harness = ""


def runs(lines: Sequence[Line], path: Path) -> Iterator[Inside]:
    """The run that an agent printed, or nothing when none is known to have."""
    starts = [at for at, line in enumerate(lines) if _TURN.match(line.text)]
    if starts:
        yield _mini(lines, starts)
        return
    streamed = [line for line in lines if _STREAM.match(line.text)]
    if any(line.text.startswith('{"type":"assistant"') for line in streamed):
        found = _claude(streamed, path)
        if found.runs:
            found.other = len(lines) - len(streamed)
            yield found


def of_trial(
    inside: Sequence[Inside], recorder: Recorder, trial: BenchTrial, meta: dict[str, Any]
) -> Iterator[Trajectory]:
    """The runs with what the trial and the terminal say of them."""
    for found in inside:
        meta = {**meta, "harness": found.harness}
        recorder.left_out["other lines of the terminal"] += found.other
        if found.broken:
            recorder.left_out["printed entries that are not whole"] += found.broken
        if found.runs:
            shell = Recorder("")
            shell.left_out, shell.warnings = recorder.left_out, recorder.warnings
            yield from _with_trial(found.runs, shell, trial, meta)
            continue
        for at, thought, action, observation in found.turns:
            recorder.turn(at, thought, [Call("", action)] if action else [])
            if observation:
                recorder.result(observation) if action else recorder.context(observation)
        yield trial.trajectory(recorder, meta, "run")


def _with_trial(
    found: Sequence[Trajectory], notes: Recorder, trial: BenchTrial, meta: dict[str, Any]
) -> Iterator[Trajectory]:
    known = trial.trajectory(notes, meta, found[0].id)
    for number, run in enumerate(found):
        merged = {**run.meta, **meta, "left_out": [*run.meta["left_out"], *known.meta["left_out"]]}
        merged["warnings"] = [
            note for note in run.meta["warnings"] if not (known.task.text and note.startswith("no task"))
        ]
        merged.pop("messages", None)
        if number:
            yield msgspec.structs.replace(run, id=f"{known.id}/{run.id.rpartition('/')[2]}", meta=merged)
            continue
        task = msgspec.structs.replace(known.task, text=known.task.text or run.task.text)
        merged |= {key: value for key, value in known.meta.items() if key == "failure_mode"}
        yield msgspec.structs.replace(run, id=known.id, task=task, outcome=known.outcome, meta=merged)


def _mini(lines: Sequence[Line], starts: Sequence[int]) -> Inside:
    found = Inside()
    found.harness = "mini-swe-agent"
    found.other = starts[0]
    # What follows the note that the run was saved is the shell again.
    saved = (at for at, line in enumerate(lines) if at > starts[-1] and _SAVED.match(line.text))
    stop = next(saved, len(lines))
    found.other += len(lines) - stop
    for start, end in zip(starts, [*starts[1:], stop], strict=True):
        texts = [line.text for line in lines[start + 1 : end]]
        back = texts.index(_BACK) if _BACK in texts else len(texts)
        thought, action = _split(texts[:back])
        found.turns.append((lines[start].at, thought, action, "\n".join(texts[back + 1 :]).strip("\n")))
    return found


def _split(texts: Sequence[str]) -> tuple[str, str]:
    """Thought and action of a turn: the action stands in the first fenced block, what follows it is thought again."""
    opened = next((at for at, text in enumerate(texts) if _FENCE.match(text)), None)
    closed = (
        None if opened is None else next((at for at in range(len(texts) - 1, opened, -1) if texts[at] == "```"), None)
    )
    if opened is None or closed is None:
        return "\n".join(texts).strip("\n"), ""
    rest = [*texts[:opened], *texts[closed + 1 :]]
    return "\n".join(rest).strip("\n"), "\n".join(texts[opened + 1 : closed])


def _claude(streamed: Sequence[Line], path: Path) -> Inside:
    """The stream through its own reader; `source_ref` is led back from the entry to the line of the recording."""
    found = Inside()
    found.harness = "claude-code"
    whole = [line for line in streamed if keys(line.text.encode("utf-8", "replace"))]
    found.broken = len(streamed) - len(whole)
    data = b"[" + b",".join(line.text.encode("utf-8", "replace") for line in whole) + b"]"
    source = Source(path, "array", whole[0].text.encode() if whole else b"", data)
    for run in claude_code.read(source):
        steps = tuple(
            msgspec.structs.replace(step, source_ref=_led_back(step.source_ref or "", whole)) for step in run.steps
        )
        found.runs.append(msgspec.structs.replace(run, steps=steps))
    return found


def _led_back(ref: str, whole: Sequence[Line]) -> str:
    name, _, entries = ref.rpartition(":")
    return f"{name}:{','.join(str(whole[int(entry)].at) for entry in entries.split(','))}"
