"""Files of one JSON record a line: strict typed reading that names every problem, and writing that reads back."""

from __future__ import annotations

import contextlib
import difflib
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import orjson

from scout.errors import SHOWN_PROBLEMS, InputError, Problem, printable, refuse, shown
from scout.lines import open_lines, write_lines

T = TypeVar("T", bound=msgspec.Struct)
Finding = tuple[str, object, str]
"""(field, value found, what is allowed)"""
Check = Callable[[T], list[Finding]]

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null", Any: "any"}


def describe(kind: Any) -> str:
    """What a field of that type may hold, in words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind]
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in args)
    if origin in (tuple, list):
        return f"a list of: {describe(args[0])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "an object with " + ", ".join(kind.__struct_fields__)
    return "an object"


def one_of(name: object, known: Sequence[str]) -> str:
    """The known names as a phrase for a message, the nearest to `name` first."""
    near = difflib.get_close_matches(str(name)[:100], known, n=1)
    listed = f"one of {', '.join(known)}"
    return f"did you mean {near[0]}? {listed}" if near else listed


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return next((item for item in options if isinstance(item, type) and issubclass(item, msgspec.Struct)), None)


def explain(kind: Any, value: object, field: str = "") -> Iterator[Finding]:
    """Every place where a decoded JSON value does not fit a type made of structs, lists and plain values."""
    struct = _struct_in(kind)
    if struct is not None and isinstance(value, dict):
        yield from _explain_struct(struct, value, field)
    elif typing.get_origin(kind) in (tuple, list) and isinstance(value, list | tuple):
        element = typing.get_args(kind)[0]
        for position, item in enumerate(value):
            yield from explain(element, item, f"{field}[{position}]")
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            yield field, value, describe(kind)


def _explain_struct(struct: type[msgspec.Struct], value: dict[Any, Any], field: str) -> Iterator[Finding]:
    prefix = f"{field}." if field else ""
    known = {info.encode_name: info for info in msgspec.structs.fields(struct)}
    for name, item in value.items():
        if name not in known:
            shortened = printable(str(name), 60).replace("\n", "\\n")
            yield f"{prefix}{shortened}", item, "no such key here; " + one_of(str(name), tuple(known))
    for name, info in known.items():
        if name in value:
            yield from explain(info.type, value[name], f"{prefix}{name}")
        elif info.required:
            yield f"{prefix}{name}", _MISSING, describe(info.type)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING = _Missing()


def _broken(line: bytes, error: Exception) -> Finding:
    """Why a line is no JSON at all."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"byte {bad.start} of the line", line[bad.start : bad.start + 1], "UTF-8 text"
    tail = line[-60:].decode("utf-8", errors="replace")
    if "truncated" in str(error).lower():
        return "", f"a line that stops after {tail!r}", "one whole JSON object a line"
    return "", f"no JSON ({error}) near {tail!r}", "one JSON object a line"


class Plain(str):
    """A finding's value that is a description and is shown without quotes."""


def parse(line: bytes, kind: type[T], check: Check[T]) -> tuple[T | None, list[Finding]]:
    """The record on that line, or None and everything that is wrong with it."""
    try:
        record = msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return None, _diagnose(line, kind, error)
    findings = check(record)
    return (None if findings else record), findings


def _diagnose(line: bytes, kind: type[T], error: Exception) -> list[Finding]:
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as broken:
        field, value, allowed = _broken(line, broken)
        return [(field, Plain(value) if isinstance(value, str) else value, allowed)]
    if not isinstance(raw, dict):
        return [("", raw, describe(kind))]
    return list(explain(kind, raw)) or [("", Plain(str(error)), describe(kind))]


def problem(where: str, finding: Finding) -> Problem:
    """The finding as it stands in a message."""
    field, value, allowed = finding
    text = printable(value, 200).replace("\n", "\\n") if isinstance(value, Plain) else shown(value)
    return Problem(where=where, field=field, value=text, allowed=allowed)


def loads(line: str | bytes, kind: type[T], check: Check[T], where: str = "") -> T:
    """The record on that line. Raises one InputError with everything that is wrong with it."""
    data = line.encode("utf-8", errors="surrogatepass") if isinstance(line, str) else line
    record, findings = parse(data, kind, check)
    if record is None:
        refuse([problem(where, finding) for finding in findings], hint=f"No {kind.__name__} was read.")
    return record


def dumps(record: msgspec.Struct) -> bytes:
    """The record as one JSON line without newline. Raises InputError for text that is not Unicode."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
        # Writes long texts four times faster than msgspec does, but no numbers of more than 64 bits.
        return orjson.dumps(msgspec.to_builtins(record))
    try:
        return msgspec.json.encode(record)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"A {type(record).__name__} cannot be written as JSON: {printable(str(error), 200)}. "
            "Replace lone surrogates, very long integers and objects that are not JSON values."
        ) from error


def read(path: str | os.PathLike[str], kind: type[T], check: Check[T], identity: Callable[[T], str]) -> Iterator[T]:
    """Records of a file, one at a time. The whole file is checked before this returns.

    Raises one InputError with all problems of the file. identity: a record's id, which may occur once.
    """
    _check_file(path, kind, check, identity)
    return (loads(line, kind, check, f"{path}:{number}") for number, line in open_lines(path))


def _check_file(path: str | os.PathLike[str], kind: type[T], check: Check[T], identity: Callable[[T], str]) -> None:
    first: list[Problem] = []
    total = 0
    seen: dict[str, int] = {}
    number = 0
    for number, line in open_lines(path):
        record, findings = parse(line, kind, check)
        if record is not None:
            before = seen.setdefault(identity(record), number)
            if before != number:
                findings = [("id", identity(record), f"an id that no other line has; line {before} has it too")]
        total += len(findings)
        room = SHOWN_PROBLEMS - len(first)
        first.extend(problem(f"{path}:{number}", finding) for finding in findings[:room])
    if number == 0:
        first.append(problem(str(path), ("", Plain("an empty file"), f"one {kind.__name__} a line as JSON")))
        total = 1
    if first:
        refuse(first, total=total, hint="Nothing of this file was used. Correct these lines, or remove them.")


def write(
    path: str | os.PathLike[str],
    records: Iterable[T],
    kind: type[T],
    check: Check[T],
    identity: Callable[[T], str],
) -> int:
    """Write the records and return their number; the file appears whole or not at all.

    Each line is read back first, so that whatever `write` accepts `read` accepts too.
    """
    seen: set[str] = set()

    def lines() -> Iterator[bytes]:
        for position, record in enumerate(records, start=1):
            line = dumps(record)
            findings = parse(line, kind, check)[1]
            if findings:
                # The object says more than its line: NaN became null there.
                findings = list(explain(kind, msgspec.to_builtins(record))) or check(record) or findings
            else:
                findings = check(record)
            if not findings and identity(record) in seen:
                findings = [("id", identity(record), "an id that no earlier record has")]
            if findings:
                where = f"record {position} for {path}"
                refuse([problem(where, finding) for finding in findings], hint="Nothing was written.")
            seen.add(identity(record))
            yield line

    return write_lines(path, lines())
