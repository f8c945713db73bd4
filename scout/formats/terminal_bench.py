"""Reader of Terminal-Bench trials: a folder with `results.json`, named by that file.

The run is in `sessions/agent.cast` (see `asciinema`). Without a recording it is cut out of `panes/post-agent.txt`, the
last screen; without that the commands of `commands.txt` are the steps, and nothing is known of what came back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scout.errors import FormatError, Problem, refuse
from scout.formats import asciinema, printed
from scout.formats.bench_trial import BenchTrial
from scout.formats.run import Call, Recorder
from scout.formats.source import HINT, Source, decode, open_source
from scout.formats.terminal import Line
from scout.trajectory import Trajectory

LOOKED_FOR = 'an object with "trial_name", "task_id", "instruction" and "is_resolved" (results.json of a trial)'
RECORDING = Path("sessions", "agent.cast")
_PANE = Path("panes", "post-agent.txt")
_COMMANDS = "commands.txt"
_KEYS = {"Enter": "", "C-c": "^C", "C-d": "^D"}


def matches(source: Source) -> bool:
    """Whether the file is the result of one trial."""
    return source.members.keys() >= {"trial_name", "task_id", "instruction", "is_resolved"}


def read(source: Source) -> Iterator[Trajectory]:
    """The run. Raises FormatError when the folder holds none or the recording is broken."""
    problems: list[Problem] = []
    trial = decode(source.data or source.first, BenchTrial, str(source.path), problems)
    if trial is None:
        refuse(problems, hint=HINT, kind=FormatError)
    folder = source.path.parent
    if (folder / RECORDING).is_file():
        yield from asciinema.read(open_source(folder / RECORDING))
        return
    meta: dict[str, Any] = {"format": "terminal_bench", "source_file": str(source.path)}
    lines = [Line(text.rstrip(), at) for at, text in enumerate(_text(folder / _PANE).splitlines(), 1)]
    tests = next((at for at, line in enumerate(lines) if asciinema.TESTS.search(line.text)), len(lines))
    inside = list(printed.runs(lines[:tests], folder / _PANE))
    if inside:
        recorder = Recorder(_PANE.name)
        recorder.warnings.append("there is no recording; the steps were cut out of the last screen")
        yield from printed.of_trial(inside, recorder, trial, meta)
        return
    recorder = Recorder(_COMMANDS)
    for at, line in enumerate(_text(folder / _COMMANDS).splitlines(), 1):
        text = _command(line)
        if asciinema.HARNESS.match(text):
            recorder.left_out["commands of the harness"] += 1
        elif text:
            recorder.turn(at, "", [Call("", text)])
    if not recorder.steps:
        allowed = f"{RECORDING}, {_PANE} or {_COMMANDS} with a command of the agent"
        refuse([Problem(str(source.path), "", "a trial without a recorded run", allowed)], hint=HINT, kind=FormatError)
    recorder.warnings.append("there is no recording; nothing is known of what came back")
    yield trial.trajectory(recorder, meta, source.stem)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _command(line: str) -> str:
    """Keys as `commands.txt` lists them, `['ls', 'Enter']`, as text."""
    try:
        keys_sent = ast.literal_eval(line[:1_000_000])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return line.strip()
    if isinstance(keys_sent, str):
        return keys_sent
    return (
        "".join(_KEYS.get(key, key) for key in keys_sent if isinstance(key, str)) if isinstance(keys_sent, list) else ""
    )
