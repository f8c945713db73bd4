"""Files of runs -> verdicts, chunk by chunk, with a partial file from which an interrupted command goes on."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from scout import formats, verdict
from scout.errors import ConfigError, InputError, printable, shown
from scout.scorer.base import Scorer
from scout.trajectory import Trajectory
from scout.verdict import Verdict

CHUNK = 256
"""Runs judged between two writes of the partial file: some minutes lost at most, batches still large."""

PROGRESS_SECONDS = 10.0


class Identity(msgspec.Struct, frozen=True):
    """First line of a partial file: verdicts are taken over only when all of it is the same."""

    inputs: str
    """SHA-256 over the input files, in order."""
    model: str
    digest: str
    """Of the model folder: the same name may hold other weights by now."""


class Source(msgspec.Struct, frozen=True):
    """The scorer of a command and what it calls itself."""

    scorer: Scorer
    model: str
    digest: str
    selector: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments that `score` and `rerank` share."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="runs in any format that `scoutv convert` reads")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--model", metavar="DIR", help="model folder; vLLM runs inside this process")
    where.add_argument("--endpoint", metavar="URL", help="a running `scoutv serve`, such as http://127.0.0.1:8000")
    parser.add_argument("--out", metavar="FILE.jsonl", help="write here instead of to stdout; resumes when interrupted")


def open_source(args: argparse.Namespace) -> Source:
    """The scorer that the arguments ask for. Starts vLLM or calls the endpoint, so inputs are checked before this."""
    if args.endpoint:
        from scout.serve.client import Client

        client = Client(args.endpoint)
        about = client.version()
        return Source(client, about.model, about.digest, about.selector)
    from scout.scorer.local import open_local

    local = open_local(args.model, progress=_Progress())
    return Source(local, local.folder.name, local.folder.digest, local.folder.config.selector)


def read_runs(files: Sequence[str]) -> Iterator[Trajectory]:
    """Runs of all files, in order. Raises InputError for an id that comes twice: verdicts are told apart by id."""
    seen: dict[str, str] = {}
    for file in files:
        for run in formats.load(file):
            if run.id in seen:
                raise InputError(
                    f"{printable(file)}: run id {shown(run.id)} was already in {printable(seen[run.id])}; allowed: ids "
                    "that occur once in all files together. `scoutv convert` makes them so."
                )
            seen[run.id] = file
            yield run


def check_inputs(files: Sequence[str]) -> int:
    """Number of runs. Reads everything once, so that a bad line is found before a model is loaded."""
    return sum(1 for _ in read_runs(files))


def check_out(out: str | None, files: Sequence[str]) -> None:
    """Raises ConfigError when the output would replace an input or has no folder to stand in."""
    if out is None:
        return
    target = Path(out).resolve()
    if target in {Path(file).resolve() for file in files}:
        raise ConfigError(f"--out {printable(out)} is one of the input files; give another name.")
    if target.is_dir():
        raise ConfigError(f"--out {printable(out)} is a folder; give the name of a file.")
    target.parent.mkdir(parents=True, exist_ok=True)


def judge(files: Sequence[str], source: Source, total: int, out: str | None) -> Iterator[Verdict]:
    """Verdicts in the order of the runs. With `out`, finished chunks stand in `out.partial` and are not judged again.

    The partial file is removed by `finish`, after its content went where it belongs.
    """
    if out is None:
        for chunk in _chunks(read_runs(files)):
            yield from source.scorer.score(chunk)
        return
    partial = partial_path(out)
    identity = Identity(_hash(files), source.model, source.digest)
    done = _resume(partial, identity)
    if done:
        _say(f"{len(done)} of {total} runs are taken over from {partial.name}")
    waiting = (run for run in read_runs(files) if run.id not in done)
    with partial.open("ab") as file:
        for chunk in _chunks(waiting):
            lines = [verdict.dumps(item).encode() + b"\n" for item in source.scorer.score(chunk)]
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
    yield from _read_partial(partial)


def partial_path(out: str) -> Path:
    """Where unfinished work for that output stands."""
    return Path(f"{out}.partial")


def finish(out: str | None) -> None:
    """Forget the partial file: its verdicts are in the output now."""
    if out is not None:
        partial_path(out).unlink(missing_ok=True)


def report(statuses: Counter[str]) -> None:
    """One line about what came out, on stderr."""
    unscored = sum(count for reason, count in statuses.items() if reason)
    _say(f"{statuses.total()} runs: {statuses.total() - unscored} scored, {unscored} unscored")
    for reason, count in statuses.most_common(6):
        if reason:
            _say(f"  {count}x {printable(reason, 200)}")


def _chunks(runs: Iterator[Trajectory]) -> Iterator[list[Trajectory]]:
    while chunk := list(islice(runs, CHUNK)):
        yield chunk


def _hash(files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()


def _resume(partial: Path, identity: Identity) -> set[str]:
    """Ids already judged; the file is made, or made anew when it belongs to other runs or another model."""
    header = msgspec.json.encode(identity) + b"\n"
    if partial.exists():
        content = partial.read_bytes()
        if content.startswith(header):
            whole = content[: content.rfind(b"\n") + 1]  # a killed process may leave half a line
            if len(whole) < len(content):
                partial.write_bytes(whole)
            return {item.trajectory_id for item in _read_partial(partial)}
        _say(f"{partial.name} belongs to other runs or another model; starting anew")
    partial.write_bytes(header)
    return set()


def _read_partial(partial: Path) -> Iterator[Verdict]:
    with partial.open("rb") as file:
        next(file)
        for number, line in enumerate(file, start=2):
            yield verdict.loads(line, f"{partial.name}:{number}")


def _say(message: str) -> None:
    print(f"scoutv: {message}", file=sys.stderr, flush=True)


class _Progress:
    """Says now and then how far a chunk is."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._since = self._last

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS and done < total:
            self._last = now
            _say(f"{done} of {total} analyses of windows in this batch")
