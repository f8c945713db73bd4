"""How fast `scoutv convert` is, on one core, against `orjson.loads` of the same bytes in the same run."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from eval.bench.reading import words
from scout import errors
from scout.formats import command

RUNS = 60
STEPS = 20
OBSERVATION_CHARACTERS = 5000
"""Recorded runs of SWE-agent, OpenHands and ATIF's writers hold 5 to 9 kB a step."""
LINE_WORDS = 5
"""Public recorded runs hold a backslash every 20 to 50 bytes (median 32); a line break each 5 words comes to that. Text
with fewer is copied by orjson at the speed of memory, text with more is not."""
REPEATS = 5
LINES = (250, 1000)
"""Runs of the two files of which the memory is compared."""

_PEAK = """
import sys
from scout.cli import main
assert main(sys.argv[1:]) == 0
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
"""A command that ends by printing its peak in kB; what `wait4` tells begins with the memory of the parent."""

Row = dict[str, float | int | str]


def measure(given: Sequence[Path] = (), folder: Path | None = None) -> list[Row]:
    """For each format, and each file or folder given, median processor seconds of both, taken in turn, and
    `ratio` = orjson's seconds / convert's seconds.

    Convert detects the format, reads, validates and writes; orjson only decodes. Detection and reading look at the
    bytes several times, so a ratio of 1 cannot be had; 0.25 is what we want.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made, _one_core():
        made_up = [(name, _written(write, Path(made) / name)) for name, write in _FORMATS.items()]
        own = [(str(path), path) for path in given]
        return [_measure(name, path, Path(made)) for name, path in [*made_up, *own]]


def memory(folder: Path | None = None) -> list[Row]:
    """Peak memory of a process that converts JSON lines, for a file and for one four times as large."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for runs in LINES:
            path = Path(made, f"{runs}.jsonl")
            with path.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(_chat(number)) + "\n" for number in range(runs))
            arguments = [sys.executable, "-c", _PEAK, "convert", str(path), "-o", str(Path(made, "out.jsonl"))]
            told = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            peak = int(told.stdout.split()[-2]) * 1024
            size = round(path.stat().st_size / 1e6, 1)
            rows.append({"megabytes": size, "peak_megabytes": round(peak / 1e6, 1)})
    return rows


def _measure(name: str, path: Path, folder: Path) -> Row:
    files = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
    ours, plain = [], []
    for _ in range(REPEATS):
        (folder / "out.jsonl").unlink(missing_ok=True)  # to free an old output's memory is not convert's work
        ours.append(_seconds(lambda: _convert(path, folder / "out.jsonl")))
        plain.append(_seconds(lambda: _decode(files)))
    ours_seconds, plain_seconds = statistics.median(ours), statistics.median(plain)
    return {
        "name": f"convert {name}",
        "megabytes": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        "seconds": round(ours_seconds, 4),
        "plain_seconds": round(plain_seconds, 4),
        "ratio": round(plain_seconds / ours_seconds, 3),
    }


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """This process on one core, where the system can do that; convert then starts no others."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _convert(path: Path, out: Path) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        code = command.run(parser.parse_args([str(path), "-o", str(out)]))
    assert code in (errors.OK, errors.INPUT), code  # INPUT: a folder of one's own may hold files that are refused


def _decode(files: list[Path]) -> None:
    for file in files:
        data = file.read_bytes()
        for line in data.splitlines() if file.suffix == ".jsonl" else [data]:
            with contextlib.suppress(orjson.JSONDecodeError):  # a folder may hold files that are no JSON
                orjson.loads(line)


def _written(write: Callable[[int], Any], folder: Path) -> Path:
    """The folder with one file a run; one file of lines for chat messages."""
    folder.mkdir()
    if write is _chat:
        (folder / "runs.jsonl").write_text("".join(json.dumps(write(number)) + "\n" for number in range(RUNS)), "utf-8")
    else:
        for number in range(RUNS):
            (folder / f"{number}.json").write_text(json.dumps(write(number), indent=1), "utf-8")
    return folder


def _chat(number: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
    for step, (thought, seen) in enumerate(_turns(number)):
        function = {"name": "bash", "arguments": json.dumps({"command": f"ls {step}"})}
        calls = [{"id": f"c{step}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": seen})
    return {"messages": messages, "task_id": f"t{number // 4}", "trial": number % 4}


def _atif(number: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "Do it."}]
    for step, (thought, seen) in enumerate(_turns(number)):
        call = {"tool_call_id": f"c{step}", "function_name": "bash", "arguments": {"command": f"ls {step}"}}
        results = [{"source_call_id": f"c{step}", "content": seen}]
        entry = {"step_id": step + 2, "source": "agent", "message": thought, "tool_calls": [call]}
        steps.append({**entry, "observation": {"results": results}})
    run = {"schema_version": "ATIF-v1.5", "session_id": f"s{number}", "agent": {"name": "a", "version": "1"}}
    return {**run, "steps": steps}


def _swe_agent(number: int) -> dict[str, Any]:
    history: list[dict[str, Any]] = [{"role": "user", "agent": "main", "content": "Do it."}]
    trajectory = []
    for step, (thought, seen) in enumerate(_turns(number)):
        action = f"ls {step}"
        trajectory.append({"action": action, "observation": seen, "response": thought, "thought": thought})
        history.append({"role": "assistant", "agent": "main", "content": thought, "thought": thought, "action": action})
        history.append({"role": "user", "agent": "main", "content": seen})
    return {"environment": f"repo-{number}", "trajectory": trajectory, "history": history, "info": {}}


def _openhands(number: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"id": 0, "source": "user", "timestamp": "t", "action": "message", "args": {"content": "Do it."}}
    ]
    for step, (thought, seen) in enumerate(_turns(number)):
        at = 2 * step + 1
        told = {"command": f"ls {step}", "thought": thought}
        events.append({"id": at, "source": "agent", "timestamp": "t", "action": "run", "args": told})
        back = {"id": at + 1, "source": "agent", "timestamp": "t", "observation": "run", "cause": at}
        events.append({**back, "content": seen, "extras": {"command": f"ls {step}"}})
    return events


def _who_and_when(number: int) -> dict[str, Any]:
    history = []
    for thought, seen in _turns(number):
        history.append({"role": "assistant", "name": "Coder", "content": thought})
        history.append({"role": "user", "name": "Computer_terminal", "content": seen})
    return {"history": history, "question": "Do it.", "question_ID": f"q{number}", "mistake_step": "1"}


def _turns(number: int) -> Iterator[tuple[str, str]]:
    generator, known = words(number)
    for _ in range(STEPS):
        texts = generator.choices(known, k=OBSERVATION_CHARACTERS // 7)
        lines = [" ".join(texts[at : at + LINE_WORDS]) for at in range(0, len(texts), LINE_WORDS)]
        yield " ".join(generator.choices(known, k=40)), "\n".join(lines)


_FORMATS: dict[str, Callable[[int], Any]] = {
    "chat lines": _chat,
    "atif": _atif,
    "swe_agent": _swe_agent,
    "openhands": _openhands,
    "who_and_when": _who_and_when,
}
