"""Reader of terminal recordings: asciinema, version 2 (`.cast`).

Every command that was typed is a step: the command is the action, what the terminal showed until the next one the
observation. Where nothing typed was recorded, commands are taken from the lines that begin with a shell prompt. An
agent that ran inside the terminal and printed its turns (see `printed`) gives the steps instead, and the commands are
counted. The recording of a Terminal-Bench trial takes task, id and outcome from the trial's `results.json`, and ends
where the tests begin: their output would give the outcome away. `source_ref` is the line of the recording at which the
command, or the text of the turn, begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from scout.errors import FormatError, Problem, refuse
from scout.formats import printed
from scout.formats.bench_trial import BenchTrial, bench_trial_of
from scout.formats.run import Call, Recorder
from scout.formats.source import HINT, Record, Source, decode
from scout.formats.terminal import SIZE_LIMIT, Line, Terminal
from scout.trajectory import Trajectory

LOOKED_FOR = 'JSON lines whose first is an object with "version": 2, "width" and "height" (asciinema)'
_PROMPT = re.compile(r"^(?:\([\w.-]+\) ?)?[\w.-]+@[\w.-]+:[^#$]{0,200}[#$] (?P<command>\S.*)$")
_NAMES = {"\x1b[A": "<Up>", "\x1b[B": "<Down>", "\x1b[C": "<Right>", "\x1b[D": "<Left>"}
_KEYS = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|[\x00-\x1f]")
_ENDS = re.compile(r"[\r\n\x03\x04]")
"""Return, Ctrl-C and Ctrl-D: what was typed up to there is one command."""
_WAIT = re.compile(r"; tmux wait -S done$")
HARNESS = re.compile(r"^(clear|\^D|asciinema rec .*|(source|bash|\.) +/(installed-agent|tests)/.*)$")
"""Commands of Terminal-Bench itself."""
TESTS = re.compile(r"/tests/run-tests\.sh")


class _Header(msgspec.Struct):
    version: Literal[2]
    width: int
    height: int


class _Command(NamedTuple):
    text: str
    at: int
    """Line of the recording."""
    shown: list[Line]
    """What came before it."""


def matches(source: Source) -> bool:
    """Whether the first line is the header of a recording."""
    found = source.members
    return found.keys() >= {"version", "width", "height"} and source.shape == "lines"


def read(source: Source) -> Iterator[Trajectory]:
    """The one run. Raises FormatError listing all problems of the file."""
    problems: list[Problem] = []
    records = source.records()
    record = next(records, None)
    header = decode(record.raw, _Header, record.where, problems) if record else None
    if header is not None and not (0 < header.width <= SIZE_LIMIT and 0 < header.height <= SIZE_LIMIT):
        size = f"{header.width} x {header.height}"
        problems.append(Problem(str(source.path), "width, height", size, f"1 to {SIZE_LIMIT} each"))
    if header is None or problems:
        refuse(problems or [_no_header(source)], hint=HINT, kind=FormatError)
    terminal = Terminal(header.width, header.height)
    commands, last = _replay(records, terminal, problems)
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    yield from _runs(source, terminal, commands, last)


def _no_header(source: Source) -> Problem:
    return Problem(str(source.path), "", f"a file in the shape of {source.shape}", "a header and events, one a line")


def _replay(
    records: Iterator[Record], terminal: Terminal, problems: list[Problem]
) -> tuple[list[_Command], list[Line]]:
    """The commands that were typed, each with what was shown before it, and what was shown after the last."""
    commands: list[_Command] = []
    typed, began = "", 0
    for record in records:
        event = decode(record.raw, list[Any], record.where, problems)
        if event is None:
            continue
        if len(event) != 3 or not isinstance(event[1], str) or not isinstance(event[2], str):
            problems.append(Problem(record.where, "", f"an event of {len(event)} values", "[seconds, kind, text]"))
            continue
        _, kind, data = event
        at = record.number or 0
        if kind == "o":
            terminal.feed(data, at)
        elif kind == "i":
            began = began if typed else at
            typed += data
            while end := _ENDS.search(typed):
                text = _readable(typed[: end.end()])
                typed = typed[end.end() :]
                if text:
                    commands.append(_Command(text, began, _taken(terminal, at)))
    last = _taken(terminal, 0)
    return commands, last


def _taken(terminal: Terminal, at: int) -> list[Line]:
    lines = terminal.taken()
    if terminal.in_full_screen:
        lines.append(Line(terminal.shown(), at))
    return lines


def _readable(typed: str) -> str:
    """Keystrokes as text: what backspace took is gone, other control keys have a name or a caret."""
    kept: list[str] = []
    for piece in re.split(r"(\x1b\[[0-9;]*[A-Za-z~]|[\x7f\b])", typed):
        if piece in ("\x7f", "\b"):
            if kept:
                kept[-1] = kept[-1][:-1]
        elif piece:
            kept.append(piece)
    text = "".join(kept).removesuffix("\r").removesuffix("\n")
    return _KEYS.sub(lambda key: _NAMES.get(key[0]) or f"^{chr(ord(key[0][0]) + 64)}{key[0][1:]}", text)


def _runs(source: Source, terminal: Terminal, commands: list[_Command], last: list[Line]) -> Iterator[Trajectory]:
    trial = bench_trial_of(source.path)
    tests = next((at for at, command in enumerate(commands) if trial.known and TESTS.search(command.text)), None)
    recorder = Recorder(source.path.name)
    if terminal.dropped:
        recorder.left_out["lines of terminal output above the limit of one recording"] += terminal.dropped
    if terminal.misread:
        recorder.warnings.append(f"{terminal.misread} events hold control sequences that could not be read")
    if tests is not None:
        last = [line for line in commands[tests].shown if not TESTS.search(line.text)]
        commands = commands[:tests]
        recorder.left_out["runs of the tests in the same terminal"] += 1
    lines = [line for command in commands for line in command.shown] + last
    meta: dict[str, Any] = {"format": "asciinema", "source_file": str(source.path)}
    inside = list(printed.runs(lines, source.path))
    if inside:
        recorder.left_out["typed commands around the agent's own turns"] += len(commands)
        yield from printed.of_trial(inside, recorder, trial, meta)
        return
    if not commands:
        commands, last = _prompted(lines)
    _record(recorder, trial, commands, last)
    if not recorder.steps:
        found = "no typed command and no line with a shell prompt"
        refuse([Problem(str(source.path), "", found, "at least one")], hint=HINT, kind=FormatError)
    yield trial.trajectory(recorder, meta, source.stem)


def _prompted(lines: list[Line]) -> tuple[list[_Command], list[Line]]:
    """The same from the lines that a shell prompt begins, for recordings without typed input."""
    commands: list[_Command] = []
    shown: list[Line] = []
    for line in lines:
        if prompt := _PROMPT.match(line.text):
            commands.append(_Command(prompt["command"], line.at, shown))
            shown = []
        else:
            shown.append(line)
    return commands, shown


def _record(recorder: Recorder, trial: BenchTrial, commands: list[_Command], last: list[Line]) -> None:
    """Each command with what came after it: that is what was shown before the next one."""
    after = [*(command.shown for command in commands[1:]), last][: len(commands)]
    for command, shown in zip(commands, after, strict=True):
        text = _WAIT.sub("", command.text)
        if trial.known and HARNESS.match(text):
            recorder.left_out["commands of the harness"] += 1
            continue
        recorder.turn(command.at, "", [Call("", text)])
        recorder.result(_observation(shown, command.text))


def _observation(shown: list[Line], command: str) -> str:
    """The lines without the echo of the command."""
    texts = [line.text for line in shown]
    if texts and command and texts[0].endswith(command):
        texts = texts[1:]
    return "\n".join(texts).strip("\n")
