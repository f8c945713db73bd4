"""Lines of a plain, gzip or zstandard file, read as a stream and written whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import zstandard

from scout.errors import InputError, printable

LINE_LIMIT_BYTES = 1 << 30
"""A longer line is refused: it is a damaged file or a decompression bomb, and it would fill the memory."""

SMALL_BYTES = 1 << 22
"""What is read at one go before anything is known of a file."""

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)
_MARK = b"\xef\xbb\xbf"
"""Byte order mark."""
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_PIECE = 4096
"""Compressed bytes fed at a time. One block of a few bytes may unfold to 128 KiB, so a large piece could unfold to
gigabytes at once."""


class _ZstdStream(io.RawIOBase):
    """Decompressed bytes of all frames of a file. zstandard's own reader takes a cut-off file for a complete one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._pending:
            piece = self._file.read(_ZSTD_PIECE)
            if not piece:
                if self._started:
                    raise EOFError("the zstandard frame does not end")
                return 0
            self._pending = memoryview(self._unfold(piece))
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _unfold(self, piece: bytes) -> bytes:
        out = []
        while piece:
            self._started = True
            out.append(self._frame.decompress(piece))
            piece = b""
            if self._frame.eof:
                piece = self._frame.unused_data
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._started = False
        return b"".join(out)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed file. The first bytes decide, not the suffix: a renamed download is read as what it is."""
    with path.open("rb", buffering=1 << 18) as file:
        magic = file.read(4)
        file.seek(0)
        if magic.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield cast(IO[bytes], unzipped)
        elif magic == _ZSTD_MAGIC:
            yield cast(IO[bytes], io.BufferedReader(_ZstdStream(file), 1 << 17))
        else:
            yield file


def require_file(path: str | os.PathLike[str]) -> Path:
    """The path of a regular file. Raises InputError for anything else; a pipe cannot be checked first and then read."""
    path = Path(path)
    if path.is_file():
        return path
    if not path.exists():
        raise InputError(f"{printable(str(path))}: there is no such file. Check the path.")
    raise InputError(f"{printable(str(path))}: not a regular file. Write it to a file first and give that.")


def open_lines(path: str | os.PathLike[str]) -> Generator[tuple[int, bytes], None, None]:
    """Yield (1-based line number, line without its newline) of a file, plain or compressed; blank lines are skipped.

    Raises InputError for a file that is missing, cut off or damaged, or has a line above LINE_LIMIT_BYTES.
    """
    path = require_file(path)
    number = 0
    name = printable(str(path))
    try:
        with _opened(path) as file:
            while line := file.readline(LINE_LIMIT_BYTES + 1):
                number += 1
                if len(line) > LINE_LIMIT_BYTES:
                    raise InputError(f"{name}:{number}: longer than {LINE_LIMIT_BYTES} bytes. One JSON object a line?")
                if number == 1:
                    line = line.removeprefix(_MARK)
                line = line.removesuffix(b"\n")
                if line.strip():
                    yield number, line
    except _DAMAGED as error:
        raise InputError(
            f"{name}: the compressed data is damaged or cut off after line {number} ({error}). "
            "Copy or download the file again."
        ) from error


def read_small(path: str | os.PathLike[str]) -> bytes | None:
    """All of a plain file of at most SMALL_BYTES, without a byte order mark; None for one that is larger or compressed.

    Most files of runs are such, and a look at them and then at their lines costs more than their JSON does.
    """
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > SMALL_BYTES:
            return None
        data = file.read()
    if data.startswith((_GZIP_MAGIC, _ZSTD_MAGIC)):
        return None
    return data.removeprefix(_MARK)


def read_document(path: str | os.PathLike[str]) -> bytes:
    """All of a file, plain or compressed, for a document that is no JSON lines; without a byte order mark.

    Raises InputError as `open_lines` does; the limit of a line holds for the document.
    """
    path = require_file(path)
    name = printable(str(path))
    try:
        with _opened(path) as file:
            data = file.read(LINE_LIMIT_BYTES + 1)
    except _DAMAGED as error:
        raise InputError(
            f"{name}: the compressed data is damaged or cut off ({error}). Copy or download the file again."
        ) from error
    if len(data) > LINE_LIMIT_BYTES:
        raise InputError(f"{name}: longer than {LINE_LIMIT_BYTES} bytes. Write it as one JSON object a line.")
    return data.removeprefix(_MARK)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends well; after an error nothing is left of it.

    Folders on the way are made. A reader sees the old content or the new one, never a part.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        raise InputError(f"{printable(str(path))}: exists and is not a regular file. Give the name of a file.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_lines(path: str | os.PathLike[str], lines: Iterable[bytes]) -> int:
    """Write each line and a newline, compressed when the name ends in `.gz` or `.zst`; returns the number of lines.

    The file appears only when all lines are written (see `replacing`); equal lines give equal bytes.
    """
    suffix = Path(path).suffix
    count = 0
    with replacing(path) as file:
        sink: IO[bytes] = file
        if suffix == ".gz":
            sink = cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        elif suffix == ".zst":
            sink = cast(IO[bytes], zstandard.ZstdCompressor().stream_writer(file, closefd=False))
        for line in lines:
            sink.write(line)
            sink.write(b"\n")
            count += 1
        if sink is not file:
            sink.close()
    return count
