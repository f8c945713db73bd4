"""The reward: golden values, edge rules and what policies that read nothing earn (P18, P19)."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import labels, reply

from scout.errors import ConfigError, InputError
from scout.reward import REWARDS, degenerate, recalls, reward, step_reward

ANY = sorted(REWARDS)


@pytest.mark.parametrize(
    ("gold", "block", "expected"),
    [
        ("ccic", "ccic", 1.0),
        ("cccc", "cccc", 1.0),
        ("iiii", "iiii", 1.0),
        ("ccic", "cccc", 0.0),  # all correct: catches nothing, and the last line is wrong
        ("ccic", "iiii", 0.3),  # all incorrect: only the last line is right
        ("cccc", "iccc", 0.7 * 3 / 4),
        ("ccii", "icic", 0.7 * 0.25 + 0.3),
        ("ccii", "c?i?", 0.7 * 0.25 + 0.3),  # a missing step counts as wrong for its class
        ("cccc", "ccc?", 0.7 * 3 / 4),  # "Yes" does not agree with a block that leaves a step out
        ("ci??", "ciic", 1.0),  # steps after the first mistake do not count
        ("cc??", "ccii", 1.0),  # nobody knows whether a later step is wrong: the step term alone
    ],
)
def test_product_reward_of_golden_replies(gold: str, block: str, expected: float) -> None:
    assert reward(reply(block), labels(gold)) == pytest.approx(expected)


def test_last_line_that_contradicts_the_block_earns_nothing() -> None:
    assert reward(reply("ccii", "Yes"), labels("ccii")) == pytest.approx(0.7)
    assert reward(reply("cccc", "No"), labels("ccii")) == 0.0
    assert reward(reply("cccc", "No"), labels("cccc")) == pytest.approx(0.7)


def test_ungradable_is_none_and_unreadable_is_zero() -> None:
    """P18: a missing gold label is no penalty; an unreadable or unfinished reply is the documented 0."""
    assert reward(reply("cc"), {}) is None
    assert reward(reply("cc"), labels("??")) is None
    assert reward(reply("cc", readable=False), labels("??")) is None
    assert reward(reply("cc", readable=False), labels("cc")) == 0.0
    assert reward(reply("ccc"), labels("cc")) == 0.0


def test_windows_with_absolute_indices_are_graded_on_their_own_steps() -> None:
    assert reward(reply("cci", start=5), labels("cci", start=5)) == 1.0
    assert reward(reply("cci", start=1), labels("cci", start=5)) == 0.0


@pytest.mark.parametrize(
    ("block", "kernel_steps", "expected"),
    [
        ("cciccc", 2.0, 1.0),
        ("ccccic", 2.0, 0.6065306597),
        ("ccccic", 0.0, 0.0),
        ("cciccc", 0.0, 1.0),
        ("cccccc", 2.0, 0.0),
    ],
)
def test_localisation_alone_is_a_kernel_of_the_distance(block: str, kernel_steps: float, expected: float) -> None:
    value = reward(reply(block), labels("cciccc"), localisation=1.0, kernel_steps=kernel_steps)
    assert value == pytest.approx(expected)


def test_localisation_is_absent_on_clean_windows_and_shares_the_rest() -> None:
    assert reward(reply("ccc"), labels("ccc"), localisation=0.5) == 1.0
    base = reward(reply("icii"), labels("ccii"))
    mixed = reward(reply("icii"), labels("ccii"), localisation=0.2)
    assert base == pytest.approx(0.7 * 0.5 + 0.3)
    assert mixed == pytest.approx(0.8 * 0.65 + 0.2 * 0.6065306597)


def test_a_flag_on_an_unlabelled_step_is_no_localisation() -> None:
    assert reward(reply("icic"), labels("?cic"), localisation=1.0) == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "prodct"}, "product"),
        ({"w": 1.2}, "w is 1.2"),
        ({"w": float("nan")}, "nan"),
        ({"localisation": -1}, "-1"),
    ],
)
def test_wrong_settings_are_refused_with_what_is_allowed(arguments: dict[str, float | str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward(reply("cc"), labels("cc"), **arguments)  # type: ignore[arg-type]


def test_unknown_gold_label_is_refused() -> None:
    with pytest.raises(InputError, match="step 2"):
        reward(reply("cc"), {1: "correct", 2: "wrong"})


# ---- policies that read nothing -------------------------------------------------------------------------------------

P = 0.1
LIMITS = {  # all correct, all incorrect, coin at its best rate: scout-facts table on a run with 27 + 3 steps
    "exact": (0, 0, 0),
    "mean": (0.5, 0.5, 0.5),
    "product": (0, 0, 0.25),
    "geometric": (0, 0, 0.5),
    "harmonic": (0, 0, 0.5),
    "min": (0, 0, 0.5),
    "youden": (0, 0, 0),
    "f1": (0, 2 * P / (1 + P), 2 * P / (1 + P)),
}


@pytest.mark.parametrize("name", ANY)
def test_table_of_degenerate_policies(name: str) -> None:
    """P19: every reward carries what a policy earns that looks at nothing."""
    table = degenerate(name, correct=27, incorrect=3)
    found = (table["all_correct"], table["all_incorrect"], table["coin"])
    assert found == pytest.approx(LIMITS[name], abs=1e-9)
    assert table["garbage"] == 0
    if name == "product":
        assert table["always_last"] == pytest.approx(0.1 / 3)
        assert table["always_last"] < table["coin"]


@pytest.mark.parametrize("policy", ["c" * 10, "i" * 10, "c" * 9 + "i", "?" * 10])
def test_default_reward_of_a_blind_policy_stays_below_a_coin(policy: str) -> None:
    """P19: every class named, "no error", "last step" and an empty block, over runs with one mistake anywhere."""
    golds = [labels("c" * place + "i" + "c" * (9 - place)) for place in range(10)]
    blind = statistics.fmean(reward(reply(policy), gold, w=1.0) or 0 for gold in golds)
    dice = random.Random(0)
    coins = [reply("".join(dice.choice("ci") for _ in range(10))) for _ in range(2000)]
    coin = statistics.fmean(reward(one, golds[k % 10], w=1.0) or 0 for k, one in enumerate(coins))
    assert coin == pytest.approx(0.25, abs=0.02)
    assert blind < coin


@pytest.mark.parametrize("clean_share", [0.0, 0.4, 1.0])
def test_constant_policies_earn_what_the_mix_of_runs_gives_them(clean_share: float) -> None:
    """All-correct earns the share f of clean runs, all-incorrect (1 - f)(1 - w)."""

    def mixed(block: str) -> float:
        clean, wrong = reward(reply(block), labels("cccc")), reward(reply(block), labels("ccic"))
        assert clean is not None and wrong is not None
        return clean_share * clean + (1 - clean_share) * wrong

    assert mixed("cccc") == pytest.approx(clean_share)
    assert mixed("iiii") == pytest.approx((1 - clean_share) * 0.3)


CASES = [  # steps, mistakes, rate of correct kept, rate of mistakes caught
    ((30, 3, 0.98, 0.10), {"product": (0.10, 0.15, 0.08), "mean": (0.54, 0.08, 0.0), "f1": (0.13, 0.19, 0.08)}),
    ((30, 3, 0.90, 0.45), {"product": (0.41, 0.24, 0.0), "geometric": (0.57, 0.26, 0.0), "min": (0.44, 0.25, 0.0)}),
    ((30, 3, 0.97, 0.80), {"product": (0.78, 0.20, 0.0), "harmonic": (0.86, 0.14, 0.0), "exact": (0.22, 0.36, 0.14)}),
    ((100, 2, 0.98, 0.05), {"product": (0.05, 0.10, 0.44), "min": (0.05, 0.11, 0.44)}),
    ((100, 12, 0.92, 0.50), {"product": (0.46, 0.12, 0.0), "f1": (0.48, 0.11, 0.0)}),
]


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_simulated_groups_of_eight(
    case: tuple[int, int, float, float], expected: dict[str, tuple[float, float, float]]
) -> None:
    """Mean, mean spread within a group of eight and share of groups without spread, as in the reward study."""
    steps, mistakes, keeps, catches = case
    clean, share = steps - mistakes, mistakes / steps
    dice = random.Random(1)
    drawn = [
        (
            sum(dice.random() < keeps for _ in range(clean)) / clean,
            sum(dice.random() < catches for _ in range(mistakes)) / mistakes,
        )
        for _ in range(8 * 1000)
    ]
    for name, (mean, spread, dead) in expected.items():
        value = step_reward(name)
        rewards = [value(kept, caught, share) for kept, caught in drawn]
        groups = [statistics.pstdev(rewards[k : k + 8]) for k in range(0, len(rewards), 8)]
        assert statistics.fmean(rewards) == pytest.approx(mean, abs=0.02), name
        assert statistics.fmean(groups) == pytest.approx(spread, abs=0.02), name
        assert statistics.fmean(group < 1e-12 for group in groups) == pytest.approx(dead, abs=0.05), name


# ---- properties -----------------------------------------------------------------------------------------------------

golds = st.text("ci?", min_size=1, max_size=12)


@given(gold=golds, said=golds, name=st.sampled_from(ANY), w=st.floats(0, 1), part=st.floats(0, 1), data=st.data())
def test_reward_is_none_or_from_zero_to_one(
    gold: str, said: str, name: str, w: float, part: float, data: st.DataObject
) -> None:
    last = data.draw(st.sampled_from(["Yes", "No"]))
    value = reward(reply(said, last), labels(gold), name=name, w=w, localisation=part)
    assert (value is None) == (set(gold) <= {"?"})
    assert value is None or -1e-12 <= value <= 1 + 1e-12


@given(gold=st.text("ci", min_size=1, max_size=12), name=st.sampled_from(ANY), w=st.floats(0, 1), part=st.floats(0, 1))
def test_the_gold_reply_earns_one_and_no_other_block_earns_more(gold: str, name: str, w: float, part: float) -> None:
    assert reward(reply(gold), labels(gold), name=name, w=w, localisation=part) == pytest.approx(1)


@given(
    gold=st.text("ci", min_size=2, max_size=10), said=st.text("ci", min_size=10, max_size=10), place=st.integers(0, 9)
)
def test_correcting_one_step_never_lowers_the_step_reward(gold: str, said: str, place: int) -> None:
    place %= len(gold)
    said = said[: len(gold)]
    better = said[:place] + gold[place] + said[place + 1 :]
    for name in ANY:
        before = step_reward(name)(*recalls(labels(said), labels(gold)))
        assert step_reward(name)(*recalls(labels(better), labels(gold))) >= before - 1e-12, name


def test_degenerate_needs_both_classes() -> None:
    with pytest.raises(InputError, match="at least 1 of each"):
        degenerate("product", correct=3, incorrect=0)
