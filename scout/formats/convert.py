"""One file of runs -> one part of the output, with an account of it; the files of a folder are shared by all cores.

Every part is a file of lines in a folder beside the output, so that memory does not grow with the number of runs. Parts
come back in the order of the files, whatever core was first.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec

from scout import records, trajectory
from scout.errors import FormatError, InputError, Problem, ScoutError, refuse
from scout.formats import atif_write
from scout.formats.detect import READERS, identify, refuse_unknown
from scout.formats.source import open_source
from scout.lines import open_lines
from scout.trajectory import Trajectory

WRITERS: Mapping[str, Callable[[Trajectory], bytes]] = {"scout": records.dumps, "atif": atif_write.document}
"""What `--to` takes: name -> the run as one line."""
SHARED_BYTES = 8_000_000
"""Less input than this is read by one process: starting another takes as long as reading 8 MB."""

HELD_BYTES = 2_000_000
"""Output of a file that is handed over in memory; opening and removing a file takes as long as converting 50 kB."""


class Job(msgspec.Struct, frozen=True):
    """A file to read and where its part goes."""

    path: Path
    named: bool
    """False for a file found in a folder, where files that are no runs are passed over."""
    part: Path
    format: str | None = None
    to: str = "scout"


class Part(msgspec.Struct):
    """What became of a file. No format: it is no file of runs."""

    path: Path
    part: Path
    format: str | None = None
    lines: list[bytes] = []
    """The first runs, as many as make HELD_BYTES; the others are in the file `part`."""
    more: bool = False
    ids: list[str] = []
    """Of the runs, in order; a run may share its id with another."""
    steps: int = 0
    outcomes: Counter[str] = Counter()
    warnings: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    refused: str | None = None


def parts(jobs: Sequence[Job], cores: int) -> Iterator[Part]:
    """The account of every job, in order. Raises InputError when a process died, as it does out of memory."""
    size = sum(job.path.stat().st_size for job in jobs)
    if cores < 2 or len(jobs) < 2 or size < SHARED_BYTES:
        yield from map(convert_file, jobs)
        return
    with ProcessPoolExecutor(min(cores, len(jobs))) as pool:
        try:
            yield from pool.map(convert_file, jobs)
        except BrokenProcessPool as error:
            raise InputError(
                "A process that read files died, probably out of memory; nothing was written. "
                "Convert the largest files by themselves."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def lines_of(part: Part) -> Iterator[bytes]:
    """The runs of a part, one a line; its file is gone afterwards."""
    yield from part.lines
    if part.more:
        yield from (line for _, line in open_lines(part.part))
        part.part.unlink()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def convert_file(job: Job) -> Part:
    """Read a file and write its part. A file that cannot be read is refused in the account and raises nothing."""
    part = Part(job.path, job.part, lines=[], ids=[], outcomes=Counter(), warnings=Counter(), left_out=Counter())
    try:
        _convert(job, part)
    except ScoutError as error:
        part.refused = str(error)
    return part


def _convert(job: Job, part: Part) -> None:
    try:
        source = open_source(job.path)
    except FormatError:
        if not job.named and job.path.suffix == ".txt":
            return  # a text that is no JSON is no run, and a folder may hold many
        raise
    name = job.format or identify(source)
    if name is None:
        if job.named:
            refuse_unknown(source)
        return
    write = WRITERS[job.to]

    def lines() -> Iterator[bytes]:
        for run in READERS[name].read(source):
            findings = trajectory.problems(run)
            if findings:
                where = f"run {len(part.ids) + 1} of {job.path}"
                refuse([Problem(where, field, str(value), allowed) for field, value, allowed in findings], hint=_HINT)
            _count(part, run)
            yield write(run)

    size = 0
    held = lines()
    for line in held:
        part.lines.append(line)
        size += len(line)
        if size > HELD_BYTES:
            break
    if size > HELD_BYTES:
        # Not `write_lines`: to make sure of the part on the disk takes longer than to write it, and it is read at once.
        with job.part.open("wb") as file:
            file.writelines(line + b"\n" for line in held)
        part.more = True
    part.format = name


_HINT = "The reader made a run that Scout does not take. Please report the file's format."


def _count(part: Part, run: Trajectory) -> None:
    part.ids.append(run.id)
    part.steps += len(run.steps)
    passed = run.outcome.passed
    part.outcomes["unknown" if passed is None else "passed" if passed else "failed"] += 1
    part.warnings.update(map(_general, run.meta.get("warnings", ())))
    part.left_out.update(map(_general, run.meta.get("left_out", ())))


def _general(note: str) -> str:
    """A note without its numbers and names, so that equal ones of many runs count as one."""
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'.*|: .*", "...", note))
