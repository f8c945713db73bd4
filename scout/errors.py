"""The six exceptions of Scout, their exit codes, and one way to refuse an input with all of its problems at once."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import msgspec

OK = 0
INPUT = 1
USAGE = 2
UNSCORED = 3
MACHINERY = 4
GUARD = 5
INTERRUPTED = 130

SHOWN_PROBLEMS = 10
SHOWN_CHARACTERS = 100


class ScoutError(Exception):
    """Base of everything that Scout raises on purpose."""


class InputError(ScoutError, ValueError):
    """Data (a run, a verdict, a row) that cannot be used as it is."""


class FormatError(ScoutError, ValueError):
    """A file or folder that is not in any form that Scout reads."""


class ConfigError(ScoutError, ValueError):
    """A recipe, an override or an option that asks for something that does not exist."""


class FingerprintError(ScoutError, RuntimeError):
    """A model folder that does not match the prompt, template or budget it would be used with."""


class ServerError(ScoutError, RuntimeError):
    """An engine or endpoint that did not start, died or did not answer."""


class NothingToLearnError(ScoutError, RuntimeError):
    """A training run that a guard stopped because it could not learn."""


_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (NothingToLearnError, GUARD),
    (ServerError, MACHINERY),
    (ConfigError, USAGE),
    (InputError, INPUT),
    (FormatError, INPUT),
    (FingerprintError, INPUT),
    (KeyboardInterrupt, INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    """Exit code of a command that ended with this error; MACHINERY for whatever Scout did not raise itself."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), MACHINERY)


def tell(error: BaseException) -> int:
    """Say on stderr why a command ends, escaped so that no terminal obeys a run's id in it; returns its exit code."""
    words = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
    print(printable(words), file=sys.stderr)
    return exit_code(error)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with an input."""

    where: str
    """Place in the input, such as `runs.jsonl:3`."""
    field: str
    """Path of the field, such as `steps[4].index`; empty when the whole place is meant."""
    value: str
    """What was found, already printable and short (see `shown`)."""
    allowed: str
    """What may stand there."""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        return f"{place}: found {self.value}; allowed: {self.allowed}"


def printable(text: str, limit: int = 0) -> str:
    """The text with control characters escaped, newlines kept, so that no terminal obeys it.

    limit: at most that many characters, the middle replaced by `...`; 0 keeps all.
    """
    if limit and len(text) > limit:
        half = max(1, (limit - 3) // 2)
        text = f"{text[:half]}...{text[-half:]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


class _Shortener(reprlib.Repr):
    """reprlib with our lengths; a text of many megabytes is cut before it is escaped."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = SHOWN_CHARACTERS
        self.maxlong = 40
        self.maxlevel = 2

    def repr_str(self, x: str, level: int) -> str:
        half = self.maxstring // 2
        return repr(x) if len(x) <= self.maxstring else f"{x[:half]!r}...{x[-half:]!r} ({len(x)} characters)"


def shown(value: object) -> str:
    """A value as it may stand in a message: on one line, escaped and short, whatever its size."""
    return printable(_Shortener().repr(value), 3 * SHOWN_CHARACTERS).replace("\n", "\\n")


def refuse(
    problems: Sequence[Problem], *, hint: str, kind: type[ScoutError] = InputError, total: int | None = None
) -> NoReturn:
    """Raise `kind` with the first problems, their total and what to do next.

    total: number of problems found when `problems` holds only the first of them.
    """
    found = len(problems) if total is None else total
    rows = [printable(str(problem)) for problem in problems[:SHOWN_PROBLEMS]]
    if found > len(rows):
        rows.append(f"... and {found - len(rows)} more")
    head = "1 problem" if found == 1 else f"{found} problems"
    raise kind("\n".join([f"{head}:", *(f"  {row}" for row in rows), hint]))
