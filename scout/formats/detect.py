"""Which reader reads a file, told by its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from scout.errors import FormatError, Problem, printable, refuse
from scout.formats import (
    agent_error_bench,
    asciinema,
    atif,
    chat,
    claude_code,
    codex,
    inspect_log,
    mini_swe_agent,
    openhands,
    otel,
    own,
    swe_agent,
    tau_bench,
    terminal_bench,
    verifier_pool,
    who_and_when,
)
from scout.formats.source import Source, open_source
from scout.trajectory import Trajectory

READERS: Mapping[str, ModuleType] = {
    "scout": own,
    "atif": atif,
    "mini_swe_agent": mini_swe_agent,
    "who_and_when": who_and_when,
    "swe_agent": swe_agent,
    "agent_error_bench": agent_error_bench,
    "chat": chat,
    "claude_code": claude_code,
    "codex": codex,
    "inspect": inspect_log,
    "openhands": openhands,
    "otel": otel,
    "tau_bench": tau_bench,
    "terminal_bench": terminal_bench,
    "asciinema": asciinema,
    "verifier_pool": verifier_pool,
}
"""Name -> module with `LOOKED_FOR`, `matches(source)` and `read(source)`. A new reader is one file and one entry."""


def identify(source: Source) -> str | None:
    """Name of the first reader that recognises the file, or None."""
    return next((name for name, reader in READERS.items() if reader.matches(source)), None)


def detect(path: str | Path) -> str:
    """Name of the format that a file is in.

    Raises FormatError when the file cannot be read as JSON or no reader recognises it; the message says what each
    reader looked for.
    """
    source = open_source(path)
    name = identify(source)
    if name is None:
        refuse_unknown(source)
    return name


def load(path: str | Path, format: str | None = None) -> Iterator[Trajectory]:
    """The runs in a file, all or nothing.

    format: a key of `READERS`; None detects it. Warnings and what was left out stand in each run's `meta`.
    Raises FormatError (InputError for Scout's own format) listing every problem of the file before anything is yielded.
    """
    if format is not None and format not in READERS:
        refuse(
            [Problem(str(path), "format", format, ", ".join(READERS))],
            hint="Give a known format, or none to detect it.",
            kind=FormatError,
        )
    source = open_source(path)
    name = format or identify(source)
    if name is None:
        refuse_unknown(source)
    return READERS[name].read(source)


def refuse_unknown(source: Source) -> NoReturn:
    """Raises FormatError: what the file begins with, and what every reader looked for."""
    found = ", ".join(printable(key, 40) for key in list(source.members)[:12])
    value = f"{source.shape} with keys {found}" if found else f"{source.shape} whose first value is no object with keys"
    wanted = "".join(f"\n    {name}: {reader.LOOKED_FOR}" for name, reader in READERS.items())
    refuse([Problem(str(source.path), "", value, wanted)], hint="No reader knows this file.", kind=FormatError)
