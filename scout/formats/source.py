"""One file of runs, whatever its shape: a JSON object, a JSON array, JSON lines, plain or compressed, or a zip of JSON.

Readers get a `Source` and walk its records. JSON is kept raw until a reader decodes the part it wants, so a file costs
about its own size in memory, not that of all the Python objects in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import msgspec

from scout.errors import FormatError, Problem, printable, refuse, shown
from scout.formats import archive
from scout.lines import open_lines, read_document, read_small, require_file
from scout.records import describe
from scout.trajectory import Trajectory

T = TypeVar("T")
Raw = bytes | msgspec.Raw

HINT = "Repair or remove what is listed; nothing of this file was read."
ZIP_FOLDER = "samples/"
ZIP_HEADERS = ("header.json", "_journal/start.json")
"""Where the one known zip of runs, an Inspect log, has its runs, and what they have in common."""
KEPT_BYTES = 16_000_000
"""Runs of a streamed file are kept while its JSON is at most that long; reading it again takes as long as at first."""
KEPT_FROM_BYTES = 4096
"""Members of smaller texts are cheaper to find again than to push those of the document out."""
LINES_NAME = re.compile(r"\.(jsonl|ndjson)(\.gz|\.zst)?$")
_SUFFIXES = re.compile(r"(\.traj|(\.traj)?\.(jsonl|ndjson|json|eval|txt))(\.gz|\.zst)?$")
_LOOSE = re.compile(rb"\\u[dD][89a-fA-F]|NaN|Infinity")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")


class Record(NamedTuple):
    """One top-level JSON value that may be a run."""

    where: str
    """Place for messages: `folder/runs.jsonl:3` (line), `folder/runs.json:2` (item, from 0) or `folder/run.json`."""
    ref: str
    """The same with the file's name only: prefix of a step's `source_ref`."""
    number: int | None
    """Line (1-based) or item (0-based); None when the file is one object or a zip, whose members have names."""
    raw: Raw


class Source(msgspec.Struct, frozen=True, dict=True):
    """A file that was opened far enough to know its shape."""

    path: Path
    shape: Literal["object", "array", "lines", "zip"]
    first: Raw
    """The first record, still raw; empty for an empty array. Of a zip: its header."""
    data: bytes = b""
    """The whole document; empty for JSON lines and a zip, which are streamed."""

    @property
    def stem(self) -> str:
        """File name without the suffixes of data and compression."""
        return _SUFFIXES.sub("", self.path.name)

    @cached_property
    def members(self) -> Mapping[str, msgspec.Raw]:
        """The undecoded members of the first record, by which every reader tells whether the file is its own."""
        return keys(self.first)

    @property
    def streamed(self) -> bool:
        """Whether records come from the file one by one, so that no more than one is in memory."""
        return self.shape in ("lines", "zip")

    def records(self) -> Iterator[Record]:
        """Every record in file order. A line that is no JSON comes as it is; decoding it reports the problem."""
        if self.shape == "object":
            yield Record(str(self.path), self.path.name, None, self.data)
        elif self.shape == "array":
            for number, raw in enumerate(items(self.data)):
                yield self._numbered(number, raw)
        elif self.shape == "zip":
            for name, data in archive.members(self.path, ZIP_FOLDER):
                yield Record(f"{self.path}:{name}", f"{self.path.name}:{name}", None, canonical(data) or data)
        else:
            for number, line in open_lines(self.path):
                yield self._numbered(number, canonical(line) or line)

    def _numbered(self, number: int, raw: Raw) -> Record:
        return Record(f"{self.path}:{number}", f"{self.path.name}:{number}", number, raw)


def open_source(path: str | Path) -> Source:
    """The file with its shape and first record.

    Raises FormatError when it is empty, not UTF-8 or not JSON, and InputError when it is missing or damaged.
    """
    path = require_file(path)
    data = None if LINES_NAME.search(path.name) else canonical((read_small(path) or b"").strip())
    if data is not None:
        return _document(path, data)
    if archive.is_zip(path):
        header = archive.member(path, ZIP_HEADERS)
        return Source(path, "zip", canonical(header) or header)
    lines = open_lines(path)
    number, line = next(lines, (0, b""))
    if not number:
        refuse_file(str(path), "", "an empty file", "JSON or JSON lines")
    first = canonical(line.strip())
    following = next(lines, None)
    if first is not None and (following or LINES_NAME.search(path.name)):
        return Source(path, "lines", first)
    lines.close()
    # Not JSON lines, or broken ones: a document may stand on one line or on many.
    data = first or canonical(read_document(path))
    if data is None:
        _refuse_json(path, line)
    return _document(path, data)


def _document(path: Path, data: bytes) -> Source:
    if data.lstrip().startswith(b"["):
        found = items(data)
        return Source(path, "array", found[0] if found else b"", data)
    return Source(path, "object", data, data)


def canonical(data: bytes) -> bytes | None:
    """The same JSON as strict JSON, or None when it is none.

    Python's own writer emits `NaN` and lone surrogates, and harnesses write with it; these become null and "?".
    """
    if items(data) if data.startswith(b"[") else keys(data):
        return data
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return data
    except RecursionError:
        return None
    except msgspec.DecodeError:
        if not _LOOSE.search(data):
            return None
    try:
        value = json.loads(data, parse_constant=lambda _: None)
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


def _refuse_json(path: Path, line: bytes) -> NoReturn:
    """What is wrong with a file that is no JSON: its first line when it calls itself JSON lines, else all of it."""
    as_lines = LINES_NAME.search(path.name)
    data = line if as_lines else read_document(path).rstrip()
    problems: list[Problem] = []
    decode(data, Any, f"{path}:1" if as_lines else str(path), problems)
    refuse(problems, hint=HINT, kind=FormatError)


def refuse_file(where: str, field: str, found: str, allowed: str) -> NoReturn:
    """Raises FormatError with this one problem."""
    refuse([Problem(where, field, found, allowed)], hint=HINT, kind=FormatError)


def keys(raw: Raw) -> Mapping[str, msgspec.Raw]:
    """The undecoded members of a JSON object; empty when it is something else or no JSON at all.

    Those of the last two documents are kept: every reader asks for them to see whether the file is its own.
    """
    global _last
    for known, members in _last:
        if raw is known:
            return members
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = {}
    if memoryview(raw).nbytes >= KEPT_FROM_BYTES:
        _last = ((raw, found), _last[0])
    return found


_last: tuple[tuple[Raw, Mapping[str, msgspec.Raw]], ...] = ((b"", {}), (b"", {}))


def items(raw: Raw) -> Sequence[msgspec.Raw]:
    """The undecoded items of a JSON array; empty when it is something else or no JSON at all. Kept as `keys` are."""
    global _last_items
    if raw is not _last_items[0]:
        try:
            found = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = []
        if memoryview(raw).nbytes < KEPT_FROM_BYTES:
            return found
        _last_items = (raw, found)
    return _last_items[1]


_last_items: tuple[Raw, Sequence[msgspec.Raw]] = (b"", ())


def text_of(raw: Raw | None) -> str | None:
    """The string that this JSON is, or None when it is something else."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode(raw: Raw, kind: type[T] | Any, where: str, problems: list[Problem]) -> T | None:
    """The decoded value, or None after adding what is wrong with it to `problems`."""
    try:
        result: T = msgspec.json.decode(raw, type=kind)
        return result
    except RecursionError:
        problems.append(Problem(where, "", "JSON nested too deep", "at most about 1000 levels"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problems.append(_problem(where, bytes(raw), kind, error))
    return None


def attempt(raw: Raw, kind: type[T]) -> T | None:
    """The decoded value, or None when it is another; then the caller decodes it in parts, to name what is wrong."""
    try:
        result: T = msgspec.json.decode(raw, type=kind)
        return result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decoded(
    listed: Sequence[T | msgspec.Raw], kind: type[T], place: Callable[[int], str], problems: list[Problem]
) -> list[T]:
    """The items, decoded where they are not yet; those that are wrong are named in `problems` and missing.

    place: position -> where the item stands, for messages.
    """
    if listed and not isinstance(listed[0], msgspec.Raw):
        return list(listed)  # type: ignore[arg-type]
    found: list[T] = []
    for at, one in enumerate(listed):
        item: T | None = decode(one, kind, place(at), problems)  # type: ignore[arg-type]
        if item is not None:
            found.append(item)
    return found


def _problem(where: str, data: bytes, kind: Any, error: Exception) -> Problem:
    """msgspec's message as a Problem. It reads ``Expected `str`, got `int` - at `$.steps[0].id` ``."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as bad:
        return Problem(where, f"byte {bad.start}", repr(data[bad.start : bad.start + 1]), "UTF-8 text")
    told, _, at = str(error).partition(" - at ")
    field = at.strip("`").removeprefix("$").removeprefix(".")
    if match := _MISSING.search(told):
        return Problem(where, f"{field}.{match.group(1)}".lstrip("."), "nothing", "this field is needed")
    known = {info.encode_name: info.type for info in msgspec.structs.fields(kind)} if _is_struct(kind) else {}
    # A line can break off behind the wrong value; then the value cannot be shown.
    value = keys(data).get(field) if field in known else None
    if value is not None:
        return Problem(where, field, _shown(value), describe(known[field]))
    if match := _EXPECTED.search(told):
        return Problem(where, field, match.group(2), match.group(1))
    tail = printable(data[-60:].decode("utf-8", "replace")).replace("\n", "\\n")
    return Problem(where, field, f"no JSON ({told}), it ends {tail!r}", "complete JSON, or one JSON value a line")


def _shown(raw: msgspec.Raw) -> str:
    """A JSON value as messages show it; as it stands in the file when it cannot be decoded, such as 1e999."""
    try:
        return shown(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return shown(bytes(raw).decode("utf-8", "replace"))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def build_all(source: Source, build: Callable[[Record, list[Problem]], Iterable[Trajectory]]) -> Iterator[Trajectory]:
    """Every run that `build` makes of the records, all or nothing.

    JSON lines and zips above KEPT_BYTES are walked twice, first to collect every problem, then to yield, so that a file
    larger than memory can be read and a file with one bad line yields nothing. Raises FormatError listing all problems.
    """
    problems: list[Problem] = []
    kept: list[Trajectory] = []
    if not source.first:
        problems.append(Problem(str(source.path), "", "an empty array", "at least one run"))
    room = KEPT_BYTES
    for record in source.records():
        room -= len(bytes(record.raw)) if source.streamed else 0
        if room < 0:
            kept.clear()
        try:
            for trajectory in build(record, problems):
                if room >= 0:
                    kept.append(trajectory)
        except RecursionError:
            problems.append(Problem(record.where, "", "runs nested too deep", "at most about 100 levels"))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    yield from kept
    if room < 0:
        for record in source.records():
            yield from build(record, problems)
