"""Mutated files over all readers: `python -m eval.bench.fuzz --files 10000`.

Every result must be runs that Scout takes, or one of its errors; within 5 seconds of processor time for a read and 2 GB
of memory for the process. What breaks that is kept in a folder and named, with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from scout import formats, trajectory
from scout.errors import ScoutError

SECONDS = 5.0
MEMORY_BYTES = 2 << 30
FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
_DEEP = "\u0001deep\u0001"
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1.5, "", " ", "null", "\x00\x1b[2J\r\n", "\ud800", "x" * 70_000, [], {}, [[]], [None],
    [1, "a"], {"": None}, {"role": "assistant"}, {"type": "text"}, [{"type": "tool_use"}], _DEEP,
)  # fmt: skip
_BYTES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\\ud800", b"NaN", b"1e999", b"[" * 4000, b"]" * 50, b"}",
    b'"', b"\\", b"\x1b[9999;9999H", b"\x1f\x8b", b"(\xb5/\xfd", b"PK\x03\x04", b"9" * 5000,
)  # fmt: skip
_NO_RUNS = ("README.md", "outcomes.jsonl", "mixed.csv")
_REPEATED_BYTES = 100_000


class Case(NamedTuple):
    """A file of runs and those beside it that its reader looks at."""

    files: Mapping[str, bytes]
    main: str


class TooSlow(BaseException):
    """A read took longer than it may. No reader can take it for bad input."""


def cases(folder: Path = FIXTURES) -> list[Case]:
    """Every fixture by itself, those that lie in a trial with the trial, and the Inspect log as an archive too."""
    found = [
        Case({path.name: path.read_bytes()}, path.name)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _NO_RUNS and path.parent.name != "trajs"
    ]
    found.append(_together(folder / "swe_agent/runs", "model-a/trajs/demo__calc-1.traj", "outcomes.jsonl"))
    found.append(_together(folder / "atif", "long.trajectory.json", "long.trajectory.cont-1.json"))
    verified = {"task_name": "t", "trial_name": "t__1", "verifier_result": {"rewards": {"reward": 1.0}}}
    for name in ("atif/v1.2-split-turns.json", "claude_code/stream.txt", "mini_swe_agent/v1.traj.json"):
        main = f"agent/{Path(name).name}"
        files = {main: (folder / name).read_bytes(), "result.json": _json(verified), "verifier/reward.txt": b"1\n"}
        found.append(Case(files, main))
    trial = {"trial_name": "t.1", "task_id": "t", "instruction": "Cook.", "is_resolved": True}
    cast = {"sessions/agent.cast": (folder / "asciinema/kitchen.cast").read_bytes()}
    panes = {
        "panes/post-agent.txt": b"mini-swe-agent (step 1, $0.01):\nI look.\n```bash\nls\n```\n\nUser:\n<output>\na\n"
    }
    commands = {"commands.txt": b"['ls', 'Enter']\nclear\n"}
    for beside in (cast, panes, commands):
        found.append(Case({"results.json": _json(trial), **beside}, "results.json"))
    found.append(Case({"log.eval": _archive((folder / "inspect/log.json").read_bytes())}, "log.eval"))
    return found


def _together(folder: Path, main: str, *others: str) -> Case:
    return Case({name: (folder / name).read_bytes() for name in (main, *others)}, main)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _archive(log: bytes) -> bytes:
    whole = json.loads(log)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({**whole, "samples": None}))
        for number, sample in enumerate(whole["samples"]):
            file.writestr(f"samples/{number}.json", json.dumps(sample))
    return out.getvalue()


def mutate(case: Case, rng: random.Random) -> Case:
    """The case with one to four changes to its files; mostly to the file of runs."""
    files = dict(case.files)
    for _ in range(rng.randint(1, 4)):
        name = case.main if rng.random() < 0.7 else rng.choice(sorted(files))
        files[name] = rng.choice(_MUTATIONS)(files[name], rng)
    return Case(files, case.main)


def _inside(data: bytes, rng: random.Random) -> bytes:
    """One value of the JSON, or of one line of it, replaced, removed, renamed, doubled or put elsewhere."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    for part, put in ((data, None), (lines[at], at)):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        changed = _dumped(_change(value, rng))
        if put is None:
            return changed
        return b"\n".join([*lines[:put], changed, *lines[put + 1 :]])
    return _spliced(data, rng)


def _dumped(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace(json.dumps(_DEEP), "[" * 3000 + "]" * 3000).encode("utf-8", "surrogatepass")


def _change(value: Any, rng: random.Random) -> Any:
    """The value with one place in it changed, chosen by a walk from the top."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.08:
        return _replacement(value, rng)
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(keys)
    kind = rng.random()
    if kind < 0.75:
        value[key] = _change(value[key], rng)
    elif kind < 0.85:
        del value[key]
    elif isinstance(value, list):
        value.insert(rng.randrange(len(value) + 1), rng.choice(value))
    else:
        value[rng.choice([*value, "", "extra", "role", "id"])] = value.pop(key)
    return value


def _replacement(value: Any, rng: random.Random) -> Any:
    if isinstance(value, str) and value and rng.random() < 0.4:
        start = rng.randrange(len(value))
        piece = value[start : start + rng.randint(1, 12)]
        return (value[:start] + piece * (_REPEATED_BYTES // len(piece)) + value[start:])[: 2 * _REPEATED_BYTES]
    return rng.choice(_VALUES)


def _spliced(data: bytes, rng: random.Random) -> bytes:
    """A piece cut out, doubled, moved or overwritten."""
    start, length = rng.randrange(len(data) + 1), rng.randint(0, 200)
    piece = data[start : start + length]
    inserts = (b"", piece + piece, rng.choice(_BYTES), rng.randbytes(rng.randint(1, 40)), piece[::-1])
    return data[:start] + rng.choice(inserts) + data[start + length :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _lines(data: bytes, rng: random.Random) -> bytes:
    """Lines in another order, some of them gone or twice."""
    lines = data.split(b"\n")
    return b"\n".join(rng.choices(lines, k=rng.randint(1, min(len(lines) + 2, 500))))


def _as_array(data: bytes, rng: random.Random) -> bytes:
    """The file in another shape: an array of itself, an object around it, or on one line."""
    shape = rng.choice((b"[%s]", b'{"messages": %s}', b"%s\n%s", b'{"trajectory": [%s]}', b"[[%s]]"))
    return shape.replace(b"%s", data.replace(b"\n", b" "))


def _packed(data: bytes, rng: random.Random) -> bytes:
    """Compressed, and sometimes damaged."""
    packed = gzip.compress(data, 1)
    return packed if rng.random() < 0.5 else _spliced(packed, rng)


_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *[_inside] * 8, _spliced, _spliced, _cut, _lines, _as_array, _packed,
)  # fmt: skip


def write(case: Case, folder: Path) -> Path:
    """The case's files in an empty folder; returns the file of runs."""
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / case.main


def outcomes(path: Path) -> Iterator[tuple[str, str]]:
    """Reader -> "runs", "refused", or what it did wrong; first the detected reader, then every one by name."""
    for name in (None, *formats.READERS):
        yield name or "detected", _outcome(path, name)


def _outcome(path: Path, name: str | None) -> str:
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        for run in formats.load(path, name):
            findings = trajectory.problems(run)
            if findings:
                return f"a run that Scout does not take: {findings[0]}"
            if trajectory.loads(trajectory.dumps(run)) != run:
                return "a run that is another one once written and read"
        return "runs"
    except ScoutError:
        return "refused"
    except TooSlow:
        return f"more than {SECONDS} s"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def limit_time() -> None:
    """From now on a read that runs out of time raises TooSlow. The main thread of a process may call this."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGVTALRM, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files; exit code 1 when one broke a reader."""
    parser = argparse.ArgumentParser(prog="python -m eval.bench.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="number of mutated files (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first file; the next ones count on")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for files that broke a reader")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    limit_time()
    known = cases()
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    for seed in range(options.seed, options.seed + options.files):
        rng = random.Random(seed)
        case = mutate(rng.choice(known), rng)
        with tempfile.TemporaryDirectory() as made:
            path = write(case, Path(made))
            for reader, outcome in outcomes(path):
                counts[outcome if outcome in ("runs", "refused") else "broken"] += 1
                if outcome not in ("runs", "refused"):
                    print(f"seed {seed}, {case.main}, reader {reader}: {outcome}", file=sys.stderr)
                    shutil.copytree(made, options.keep / str(seed), dirs_exist_ok=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{options.files} files over {len(formats.READERS)} readers and detection in {time.monotonic() - begin:.0f} s: "
        f"{counts['runs']} reads gave runs, {counts['refused']} were refused, {counts['broken']} broke; "
        f"{peak} MB of memory at most"
    )
    return 1 if counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
