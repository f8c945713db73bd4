"""What stops a GRPO run, and what a batch of replies says of its policy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("trl")

from scout.config import ScoutSection
from scout.errors import NothingToLearnError
from scout.prompt import reply_text
from scout.reply import parse_reply
from scout.train.guards import Guards, Sample, findings
from scout.train.replies import Graded
from scout.train.signs import copied_share, signs

GOOD = {
    "completions/clipped_ratio": 0.1, "frac_reward_zero_std": 0.5, "all_correct": 0.4, "all_incorrect": 0.2,
    "copied": 0.1, "sampling/sampling_logp_difference/mean": 0.01,
}  # fmt: skip
BAD = {
    "max_clipped": ("completions/clipped_ratio", 0.6, "Raise scout.completion_tokens"),
    "min_spread": ("frac_reward_zero_std", 0.95, "Train SFT longer first"),
    "all_correct": ("all_correct", 0.99, "scout.reward=product"),
    "all_incorrect": ("all_incorrect", 0.99, "scout.reward=product"),
    "max_copied": ("copied", 0.9, "repeats the run"),
    "max_mismatch": ("sampling/sampling_logp_difference/mean", 0.3, "vLLM's version"),
}


def graded(said: dict[int, str], gold: dict[int, str]) -> Graded:
    text = reply_text(dict.fromkeys(said, "So it is."), said)  # type: ignore[arg-type]
    return Graded(text, True, parse_reply(text, list(gold), True), 0.0)


def test_a_sound_step_has_no_finding_and_a_missing_figure_is_none() -> None:
    assert not findings(GOOD, ScoutSection())
    assert not findings({key: None for key in GOOD if key != "frac_reward_zero_std"}, ScoutSection())  # type: ignore[misc]


@pytest.mark.parametrize("name", BAD)
def test_each_guard_stops_at_its_patience_and_says_what_to_change(name: str) -> None:
    key, value, advice = BAD[name]
    guards = Guards(ScoutSection(patience=3), [Sample("row 7", 0.0, True, None, "a reply")] * 2)
    state = SimpleNamespace(global_step=12)

    def log(figures: dict[str, float]) -> None:
        guards.on_log(None, state, None, logs=figures)  # type: ignore[arg-type]

    for _ in range(2):
        log({**GOOD, key: value})
    log(GOOD)  # one good step, and it counts anew
    for _ in range(2):
        log({**GOOD, key: value})
    log({"loss": 1.0})  # no step of GRPO
    with pytest.raises(NothingToLearnError) as stopped:
        log({**GOOD, key: value})
    said = str(stopped.value)
    assert "Stopped at step 12" in said and advice in said and said.count("row 7") == 2


def test_signs_tell_a_policy_that_does_not_read() -> None:
    mixed, clean = {1: "correct", 2: "incorrect"}, {1: "correct", 2: "correct"}
    trusting = {1: "correct", 2: "correct"}
    found = signs([graded(trusting, mixed), graded(trusting, clean)], [mixed, clean])
    assert found == {
        "recall_correct": 1.0, "recall_incorrect": 0.0, "all_correct": 1.0, "all_incorrect": 0.0, "exact": 0.5,
    }  # fmt: skip
    doubting = {1: "incorrect", 2: "incorrect"}
    found = signs([graded(doubting, mixed), graded(doubting, clean)], [mixed, clean])
    assert found["all_incorrect"] == 1.0 and found["recall_incorrect"] == 1.0 and found["exact"] == 0.0
    assert "all_correct" not in signs([graded(doubting, clean)], [clean])
    unreadable = Graded("no block", True, parse_reply("no block", [1, 2], True), 0.0)
    assert signs([unreadable], [mixed]) == {}


def test_copied_tokens_are_counted_in_long_runs_alone() -> None:
    prompt = list(range(100))
    assert copied_share(prompt, [list(range(20, 60))]) == 1.0
    assert copied_share(prompt, [list(range(20, 30)) + [500] * 30]) == 0.0
    assert copied_share(prompt, [list(range(20, 40)) + [500] * 20, []]) == 0.5
    assert copied_share(prompt, [[]]) == 0.0
