"""Errors name what was found and what is allowed, and nothing in them can reach a terminal as a command."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scout import errors
from scout.errors import Problem, exit_code, printable, refuse, shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError("x"), 1),
        (errors.FormatError("x"), 1),
        (errors.FingerprintError("x"), 1),
        (errors.ConfigError("x"), 2),
        (errors.ServerError("x"), 4),
        (errors.NothingToLearnError("x"), 5),
        (OSError("disk full"), 4),
        (MemoryError(), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_the_exit_code_of_the_manual(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_what_a_command_tells_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert errors.tell(errors.InputError("task \x1b[2J\x9b31m\u202e twice")) == errors.INPUT
    assert errors.tell(KeyboardInterrupt()) == errors.INTERRUPTED
    assert capsys.readouterr().err == "task \\x1b[2J\\x9b31m\\u202e twice\ninterrupted\n"


@pytest.mark.parametrize("kind", [errors.InputError, errors.FormatError, errors.ConfigError])
def test_input_errors_are_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError) and issubclass(kind, errors.ScoutError)


@pytest.mark.parametrize("kind", [errors.FingerprintError, errors.ServerError, errors.NothingToLearnError])
def test_machine_errors_are_runtime_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, RuntimeError) and issubclass(kind, errors.ScoutError)


def test_refuse_shows_ten_problems_and_the_total() -> None:
    problems = [Problem(f"runs.jsonl:{line}", "id", shown(line), "a text") for line in range(1, 26)]
    with pytest.raises(errors.InputError) as caught:
        refuse(problems, hint="Correct them.")
    text = str(caught.value)
    assert text.startswith("25 problems:")
    assert "runs.jsonl:10: id: found 10; allowed: a text" in text
    assert "runs.jsonl:11:" not in text
    assert "and 15 more" in text and text.endswith("Correct them.")


def test_refuse_escapes_the_name_of_the_file() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        refuse([Problem("\x1b[31mred", "", "1", "2")], hint="Go on.", kind=errors.ConfigError)
    assert "\x1b" not in str(caught.value)


@given(st.text() | st.binary() | st.lists(st.text()) | st.dictionaries(st.text(), st.integers()) | st.floats())
def test_shown_is_one_printable_line(value: object) -> None:
    text = shown(value)
    assert text.isprintable() and len(text) <= 600


def test_shown_cuts_a_huge_text_before_it_escapes_it() -> None:
    start = time.perf_counter()
    text = shown("\x1b" * 50_000_000)
    assert len(text) < 400 and "50000000 characters" in text
    assert time.perf_counter() - start < 0.5


def test_printable_keeps_newlines_and_escapes_the_rest() -> None:
    assert printable("a\nb\x1b[2J\x00\u202e") == "a\nb\\x1b[2J\\x00\\u202e"
