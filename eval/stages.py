"""Stages of a long job: commands that run once, leave a marker that hashes their inputs, and go on after a stop."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from scout.errors import INTERRUPTED, MACHINERY, OK, UNSCORED
from scout.lines import replacing

_PATIENCE = ((None, 5.0), (signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))
"""What an interrupted command gets, and how many seconds it then has. A terminal sends Ctrl-C to it as well, so at
first it only gets time."""


class Marker(msgspec.Struct, frozen=True):
    """What is known of a stage that was begun; written as one JSON object."""

    inputs: str
    """Hash of the commands, the input files and the markers of earlier stages."""
    done: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Stage:
    """One stage: what it says, what it runs, what it needs and what it leaves."""

    name: str
    about: str
    """What happens, in a few words, for the line before the stage."""
    seconds: float
    """About how long it takes."""
    commands: tuple[tuple[str, ...], ...]
    outputs: tuple[Path, ...]
    """Files or folders that must exist afterwards; removed before a stage starts anew."""
    inputs: tuple[Path, ...] = ()
    """Files that the commands read and no earlier stage makes."""
    keeps: Path | None = None
    """Folder in which an interrupted command goes on by itself; removed only when the inputs have changed."""


@dataclass
class Runner:
    """Runs stages in order and remembers, under `folder`, which are finished."""

    folder: Path
    history: list[str] = field(default_factory=list)
    """Hashes of the stages that came before; a stage runs again when one of them changes."""

    def run(self, stages: Sequence[Stage]) -> int:
        """Exit code of the whole: 0 when every stage is finished, else that of the command that stopped it."""
        left = sum(stage.seconds for stage in stages)
        for number, stage in enumerate(stages, start=1):
            head = f"[{number}/{len(stages)}] {stage.name}"
            wanted = self._inputs(stage)
            if self._finished(stage, wanted):
                _say(f"{head}: done before, {self._marker(stage).seconds:.0f} s; kept")
            else:
                _say(f"{head}: {stage.about}; about {_span(stage.seconds)}, all that is left about {_span(left)}")
                code = self._carry_out(stage, wanted)
                if code:
                    _say(f"{head}: stopped with exit code {code}. {_next(code)}")
                    return code
                _say(f"{head}: finished after {self._marker(stage).seconds:.0f} s")
            self.history.append(wanted)
            left -= stage.seconds
        return 0

    def seconds(self, stages: Sequence[Stage]) -> dict[str, float]:
        """Measured time of each finished stage."""
        return {stage.name: round(self._marker(stage).seconds, 1) for stage in stages}

    def _inputs(self, stage: Stage) -> str:
        digest = hashlib.sha256(json.dumps([self.history, stage.commands]).encode())
        for path in stage.inputs:
            for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
                digest.update(f"{file}\0".encode())
                digest.update(file.read_bytes() if file.is_file() else b"absent")
        return digest.hexdigest()

    def _marker_path(self, stage: Stage) -> Path:
        return self.folder / ".stages" / f"{stage.name.replace(' ', '-')}.json"

    def _marker(self, stage: Stage) -> Marker:
        try:
            return msgspec.json.decode(self._marker_path(stage).read_bytes(), type=Marker)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Marker("", False)

    def _mark(self, stage: Stage, marker: Marker) -> None:
        with replacing(self._marker_path(stage)) as file:
            file.write(msgspec.json.encode(marker) + b"\n")

    def _finished(self, stage: Stage, wanted: str) -> bool:
        marker = self._marker(stage)
        return marker.done and marker.inputs == wanted and all(path.exists() for path in stage.outputs)

    def _carry_out(self, stage: Stage, wanted: str) -> int:
        before = self._marker(stage)
        goes_on = stage.keeps is not None and before.inputs == wanted
        if not goes_on:
            self._clear(stage)
        spent = before.seconds if goes_on else 0.0
        begin = time.monotonic()
        self._mark(stage, Marker(wanted, False, spent))
        code = OK
        try:
            code = self._commands(stage)
        finally:
            self._mark(stage, Marker(wanted, False, spent + time.monotonic() - begin))
        if code == OK:
            self._mark(stage, Marker(wanted, True, spent + time.monotonic() - begin))
        return code

    def _commands(self, stage: Stage) -> int:
        for command in stage.commands:
            code = execute(command)
            if code == UNSCORED:
                _say("some runs could not be scored; the report counts them")
            elif code != OK:
                return code
        missing = [str(path) for path in stage.outputs if not path.exists()]
        if missing:
            _say(f"{stage.name} ended well but did not leave {', '.join(missing)}")
            return MACHINERY
        return OK

    def _clear(self, stage: Stage) -> None:
        inside = self.folder.resolve()
        for path in stage.outputs if stage.keeps is None else (*stage.outputs, stage.keeps):
            if inside not in path.resolve().parents:
                continue  # never remove what does not belong to this run folder
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def execute(command: Sequence[str]) -> int:
    """Run one command, its results sent to stderr with its talk; its exit code, 130 after Ctrl-C."""
    _say(f"$ {shlex.join(_shown(command))}")
    process = subprocess.Popen(list(command), stdout=sys.stderr.fileno())
    try:
        return _code(process.wait())
    except KeyboardInterrupt:
        end(process)
        return INTERRUPTED


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait until an interrupted command has ended; ask more firmly each time it lingers."""
    for number, seconds in _PATIENCE:
        if number is not None:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(seconds)
            return


def _code(returned: int) -> int:
    return INTERRUPTED if returned in (-signal.SIGINT, INTERRUPTED) else abs(returned)


def _shown(command: Sequence[str]) -> list[str]:
    """The command as a user types it: `python` or `scoutv` instead of the full path of this environment's one."""
    first = Path(command[0])
    inside = first.parent == Path(sys.executable).parent
    return [first.name if inside else command[0], *command[1:]]


def _next(code: int) -> str:
    """What to do after a stage stopped with that code."""
    if code == INTERRUPTED:
        return "The same command goes on from here."
    return "See above for the cause; once it is removed, the same command goes on from here."


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
