"""Answers of a paid endpoint, kept on disk the moment they arrive, so that no kill can lose one."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import msgspec

from scout.errors import InputError, ServerError


class Request(msgspec.Struct, frozen=True):
    """One request for an analysis."""

    run: str
    steps: str
    """Such as `5-8`; for messages."""
    attempt: int
    """0-based try for these steps. Part of the key: a new try is a new request, whatever its temperature."""
    messages: list[dict[str, str]]
    temperature: float
    max_tokens: int
    prompt_tokens: int
    """About how many tokens the messages have; decides what the budget holds back, not what is sent."""

    def key(self, endpoint: str, model: str) -> str:
        """Everything that the answer depends on, as a hash. No credential is part of it."""
        identity = (endpoint, model, self.run, self.attempt, self.messages, self.temperature, self.max_tokens)
        return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()


class Answer(msgspec.Struct, frozen=True):
    """A finished answer, good or bad."""

    text: str
    finish: str | None
    refusal: str | None
    prompt_tokens: int
    completion_tokens: int


class Cache:
    """A SQLite file of answers. One process at a time: two would pay for the same requests twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._base = sqlite3.connect(path, isolation_level=None, timeout=1)
        except sqlite3.OperationalError as error:
            raise InputError(f"{path}: {error}. Give an --out folder that can be written.") from None
        try:
            # The lock goes with the process, however it ends. A killed process leaves nothing half written in WAL mode.
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL"):
                self._base.execute(f"PRAGMA {pragma}")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, run TEXT, steps TEXT, attempt INTEGER, "
                "prompt_tokens INTEGER, completion_tokens INTEGER, answer BLOB) WITHOUT ROWID"
            )
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS unanswered "
                "(number INTEGER PRIMARY KEY, prompt_tokens INTEGER, completion_tokens INTEGER)"
            )
            self._base.execute("BEGIN IMMEDIATE")
            self._base.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._base.close()
            told = "Another explain works in this folder; wait for it or end it."
            if "locked" not in str(error):
                told = "Give an --out folder that can be written."
            raise InputError(f"{path}: {error}. {told}") from None
        except sqlite3.DatabaseError as error:
            self._base.close()
            raise InputError(f"{path}: not a file of answers ({error}). Move it away; its answers are lost.") from None

    def close(self) -> None:
        """Closes the file and gives up the lock."""
        self._base.close()

    def get(self, key: str) -> Answer | None:
        """The answer to a request that was asked before."""
        found = self._base.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return msgspec.json.decode(found[0], type=Answer) if found else None

    def begin(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Notes what a request may cost before it is sent, and its number.

        Whatever ends the call, what it may have paid without an answer is counted in the next one.
        """
        values = (prompt_tokens, completion_tokens)
        return self._write("INSERT INTO unanswered (prompt_tokens, completion_tokens) VALUES (?, ?)", values)

    def cancel(self, number: int) -> None:
        """Takes the note back: the request has cost nothing."""
        self._write("DELETE FROM unanswered WHERE number = ?", (number,))

    def put(self, key: str, request: Request, answer: Answer, number: int) -> None:
        """Keeps an answer in place of its note; a kill of the process after this cannot lose it."""
        tokens = (answer.prompt_tokens, answer.completion_tokens)
        values = (key, request.run, request.steps, request.attempt, *tokens, msgspec.json.encode(answer))
        self._write("BEGIN")
        self._write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self.cancel(number)
        self._write("COMMIT")

    def _write(self, statement: str, values: tuple[object, ...] = ()) -> int:
        try:
            return self._base.execute(statement, values).lastrowid or 0
        except sqlite3.Error as error:
            raise ServerError(f"{self.path}: an answer could not be kept ({error}). Is the disk full?") from error

    def spent(self) -> tuple[int, int]:
        """Prompt and completion tokens of all answers, and the most that requests without one may have cost."""
        prompt, completion = self._base.execute(
            "SELECT COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(completion_tokens), 0) FROM "
            "(SELECT prompt_tokens, completion_tokens FROM answers "
            "UNION ALL SELECT prompt_tokens, completion_tokens FROM unanswered)"
        ).fetchone()
        return int(prompt), int(completion)
