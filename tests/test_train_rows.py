"""The mix of clean and faulty windows that GRPO is given."""

from __future__ import annotations

import pytest

from scout.train.rows import Message, Row, balanced


def row(number: int, label: str) -> Row:
    return Row(
        id=f"run#{number}", trajectory_id="run", task_id=None, split="train", prompt=(Message("user", "?"),),
        completion="", indices=(number,), gold=(label,), prompt_style="brief", prompt_version="1",
    )  # fmt: skip


ROWS = [row(number, "incorrect" if number % 5 == 0 else "correct") for number in range(1, 101)]


@pytest.mark.parametrize(("share", "clean"), [(1.0, 80), (0.5, 20), (0.2, 5), (0.0, 0)])
def test_clean_windows_stay_within_their_share(share: float, clean: int) -> None:
    """A policy that calls everything correct earns the clean share, so the share has a limit."""
    kept = [one.gold[0] for one in balanced(ROWS, share, seed=1)]
    assert (kept.count("correct"), kept.count("incorrect")) == (clean, 20)


def test_the_choice_depends_on_the_seed_alone() -> None:
    assert balanced(ROWS, 0.5, seed=1) == balanced(ROWS, 0.5, seed=1) != balanced(ROWS, 0.5, seed=2)
