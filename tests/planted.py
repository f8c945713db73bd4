"""Falsehoods to plant into a true analysis of a Mystery Grid run."""

from __future__ import annotations

import re
from collections.abc import Callable

from data_prep import check
from scout.trajectory import Trajectory

Plant = Callable[[Trajectory, dict[int, str]], int | None]
"""Spoils one paragraph and returns its step, or None where the run has nothing to spoil."""


def first(paragraphs: dict[int, str], pattern: str, new: Callable[[re.Match[str]], str], start: int = 1) -> int | None:
    for index, text in paragraphs.items():
        found = re.search(pattern, text)
        if index >= start and found:
            paragraphs[index] = text[: found.start()] + new(found) + text[found.end() :]
            return index
    return None


def wrong_number(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"score ([+-]\d+)", lambda m: f"score {int(m[1]) + 1:+d}")


def wrong_place(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"([A-E]) (\d) (even|odd)", lambda m: f"{m[1]} {(int(m[2]) + 2) % 10} {m[3]}")


def wrong_parity(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"\b(even|odd)\b", lambda m: "odd" if m[1] == "even" else "even")


def wrong_slope(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"slope ([+-]\d)", lambda m: f"slope {-1 if m[1] == '+1' else 1:+d}")


def wrong_letter(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"([A-E]) (\d)", lambda m: f"{'B' if m[1] == 'A' else 'A'} {m[2]}")


def later_visit(run: Trajectory, paragraphs: dict[int, str]) -> int | None:
    """The visit of a later step stands in place of, or beside, what the step itself saw."""
    cited = {index: m[0] for index, text in paragraphs.items() if (m := check.CITED.search(text))}
    for index, text in paragraphs.items():
        later = next((text for other, text in cited.items() if other > index and text != cited.get(index)), None)
        if later is not None:
            paragraphs[index] = text.replace(cited[index], later) if index in cited else f"{text} {later}".strip()
            return index
    return None


def invented_visit(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    index = next((i for i, text in paragraphs.items() if not check.CITED.search(text)), None)
    if index is not None:
        paragraphs[index] += " A 4 even 4 even even, slope +0, score +1 fits plus or visits or refill, left plus."
    return index


def no_visit(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, check.CITED.pattern, lambda _: "")


def left_lacks_one(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r", left ([a-z]+) or ", lambda _: ", left ")


def left_has_one_more(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(
        paragraphs, r", left ([a-z ]+)\.", lambda m: f", left {m[1]} or {'gift' if 'gift' not in m[1] else 'minus'}."
    )


def fits_lacks_one(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"fits ([a-z]+) or ", lambda _: "fits ")


def state_before_lacks_one(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(
        paragraphs, r"([A-E]) left ([a-z]+) or ([a-z ]+), (?=says|claims|holds)", lambda m: f"{m[1]} left {m[3]}, "
    )


def hindsight(run: Trajectory, paragraphs: dict[int, str]) -> int | None:
    """What is left after the step's own visit stands where what was left before belongs."""
    for index, text in paragraphs.items():
        cited, said = check.CITED.search(text), check.SAID.search(text)
        if cited and said and cited[1] == said[1] and cited[11] != said[2]:
            paragraphs[index] = text.replace(f"{said[1]} left {said[2]},", f"{said[1]} left {cited[11]},")
            return index
    return None


def says_another(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(
        paragraphs,
        r"(says|claims|holds) (?!open)([a-z ]+), left open \w+: \w+\.",
        lambda m: f"{m[1]} {'slope' if 'slope' not in m[2] else 'gift'} no, left open no: differs.",
    )


def says_less(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"(says|claims|holds) [a-z]+ (?:in|no) or ", lambda m: f"{m[1]} ")


def says_more(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"(says|claims|holds) (?!open|.*slope)", lambda m: f"{m[1]} slope no or ")


def says_nothing_known(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"(says|claims|holds) (?!open)[a-z ]+, left", lambda m: f"{m[1]} open no, left")


def wrong_mark(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r" in( or [a-z ]+)?: ", lambda m: f" no{m[1] or ''}: ")


def lists_another_left(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(
        paragraphs, r", left ([a-z]+) (in|no): ", lambda m: f", left {'gift' if m[1] != 'gift' else 'plus'} no: "
    )


def flipped_comparison(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r": (same|agrees)\.", lambda _: ": differs.")


def flipped_fault(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r": (differs|conflicts)\.", lambda _: ": agrees.")


def flipped_test(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(
        paragraphs, r": (tells|tells nothing)\.", lambda m: ": tells nothing." if m[1] == "tells" else ": tells."
    )


def invented_test(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"^", lambda _: "test E on X: tells nothing. ", start=2)


def invented_refusal(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"$", lambda _: " refused.", start=2)


def speaks_of_labels(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"$", lambda _: " The gold label says incorrect.", start=3)


def asserts_something_else(_: Trajectory, paragraphs: dict[int, str]) -> int | None:
    return first(paragraphs, r"$", lambda _: " B must be plus.", start=2)


PLANTS: list[Plant] = [
    wrong_number, wrong_place, wrong_parity, wrong_slope, wrong_letter, later_visit, invented_visit, no_visit,
    left_lacks_one, left_has_one_more, fits_lacks_one, state_before_lacks_one, hindsight, says_another, says_less,
    says_more, says_nothing_known, wrong_mark, lists_another_left, flipped_comparison, flipped_fault, flipped_test,
    invented_test, invented_refusal, speaks_of_labels, asserts_something_else,
]  # fmt: skip
