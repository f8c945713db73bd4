"""The JSON members of a zip archive, unpacked one at a time within limits, so that no archive fills the memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from scout.errors import FormatError, Problem, printable, refuse

MEMBERS = 100_000
"""Most members of one archive. The directory is part of the file, so reading it costs no more than the file."""
MEMBER_BYTES = 1 << 28
"""Largest member, unpacked. A sample of an agent with its events takes some MB; a bomb takes all there is."""
TOTAL_BYTES = 1 << 34
"""Largest archive, unpacked. Members are read one after another, so this bounds time, not memory."""
_MAGIC = b"PK\x03\x04"
_PIECE = 1 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


def is_zip(path: Path) -> bool:
    """Whether the file begins as a zip archive does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def member(path: Path, names: tuple[str, ...]) -> bytes:
    """The first of these members that the archive has; empty when it has none."""
    with _opened(path) as archive:
        known = {info.filename: info for info in archive.infolist()}
        name = next((name for name in names if name in known), None)
        return b"" if name is None else _unpacked(archive, known[name], path)


def members(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of every JSON member in the folder, in the order of the archive.

    Raises FormatError for an archive that is damaged, encrypted, packed in a way Python does not know, or too large.
    """
    with _opened(path) as archive:
        total = 0
        for info in archive.infolist():
            if not (info.filename.startswith(folder) and info.filename.endswith(".json")):
                continue
            data = _unpacked(archive, info, path)
            total += len(data)
            if total > TOTAL_BYTES:
                _refuse(path, "", f"more than {TOTAL_BYTES} bytes unpacked", "a smaller archive")
            yield info.filename, data


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        _refuse(path, "", f"a damaged zip archive ({error})", "a whole one")
    with archive:
        count = len(archive.infolist())
        if count > MEMBERS:
            _refuse(path, "", f"{count} members", f"at most {MEMBERS}")
        yield archive


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bytes:
    """A member's content. What it says of its size is not trusted: unpacking stops at the limit."""
    data = bytearray()
    try:
        with archive.open(info) as file:
            while piece := file.read(_PIECE):
                data += piece
                if len(data) > MEMBER_BYTES:
                    break
    except _DAMAGE as error:
        _refuse(
            path,
            info.filename,
            f"a member that cannot be unpacked ({error})",
            "a whole one, not encrypted, stored or deflated",
        )
    if len(data) > MEMBER_BYTES:
        _refuse(path, info.filename, f"more than {MEMBER_BYTES} bytes unpacked", "a smaller member")
    return bytes(data)


def _refuse(path: Path, name: str, found: str, allowed: str) -> NoReturn:
    where = f"{path}:{name}" if name else str(path)
    refuse([Problem(where, "", printable(found), allowed)], hint="Nothing of this file was read.", kind=FormatError)
