"""How fast `scoutv convert` is, on one core, against `orjson.loads` of the same bytes in the same run."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from eval.bench.reading import words
from scout.formats import command

RUNS = 100
STEPS = 30
OBSERVATION_CHARACTERS = 1500
REPEATS = 5


def measure(folder: Path | None = None) -> list[dict[str, float | int | str]]:
    """For each format median seconds of both, taken in turn, and `ratio` = orjson's seconds / convert's seconds.

    Convert detects the format, reads, validates and writes; orjson only decodes. Detection and reading look at the
    bytes several times, so a ratio of 1 cannot be had; 0.25 is what we want.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made, _one_core():
        return [_measure(name, write(Path(made)), Path(made)) for name, write in _FORMATS.items()]


def _measure(name: str, path: Path, folder: Path) -> dict[str, float | int | str]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    ours, plain = [], []
    for _ in range(REPEATS):
        ours.append(_seconds(lambda: _convert(path, folder / "out.jsonl")))
        plain.append(_seconds(lambda: _decode(files)))
    ours_seconds, plain_seconds = statistics.median(ours), statistics.median(plain)
    size = sum(file.stat().st_size for file in files)
    return {
        "name": f"convert {name}",
        "runs": RUNS,
        "megabytes": round(size / 1e6, 1),
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
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _convert(path: Path, out: Path) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        code = command.run(parser.parse_args([str(path), "-o", str(out)]))
    assert code == 0, code


def _decode(files: list[Path]) -> None:
    for file in files:
        data = file.read_bytes()
        for line in data.splitlines() if file.suffix == ".jsonl" else [data]:
            orjson.loads(line)


def _chat(folder: Path) -> Path:
    path = folder / "chat.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(RUNS):
            messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
            for step, (thought, seen) in enumerate(_turns(number)):
                function = {"name": "bash", "arguments": json.dumps({"command": f"ls {step}"})}
                calls = [{"id": f"c{step}", "type": "function", "function": function}]
                messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
                messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": seen})
            file.write(json.dumps({"messages": messages, "task_id": f"t{number // 4}", "trial": number % 4}) + "\n")
    return path


def _atif(folder: Path) -> Path:
    place = folder / "atif"
    place.mkdir()
    for number in range(RUNS):
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "Do it."}]
        for step, (thought, seen) in enumerate(_turns(number)):
            call = {"tool_call_id": f"c{step}", "function_name": "bash", "arguments": {"command": f"ls {step}"}}
            results = [{"source_call_id": f"c{step}", "content": seen}]
            entry = {"step_id": step + 2, "source": "agent", "message": thought, "tool_calls": [call]}
            steps.append({**entry, "observation": {"results": results}})
        run = {"schema_version": "ATIF-v1.5", "session_id": f"s{number}", "agent": {"name": "a", "version": "1"}}
        (place / f"{number}.json").write_text(json.dumps({**run, "steps": steps}), encoding="utf-8")
    return place


def _turns(number: int) -> Iterator[tuple[str, str]]:
    generator, known = words(number)
    for _ in range(STEPS):
        texts = generator.choices(known, k=OBSERVATION_CHARACTERS // 7 + 20)
        yield " ".join(texts[:20]), "\n".join(texts[20:])


_FORMATS: dict[str, Callable[[Path], Path]] = {"chat lines": _chat, "atif files": _atif}
