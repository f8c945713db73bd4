"""A run fits its token budget, and the ledger tells what a prompt does not show."""

from __future__ import annotations

import re
import resource
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scout import prompt
from scout.budget import Budget, Window, carried, fit, merge_cuts
from scout.errors import ConfigError, InputError
from scout.trajectory import Step, Task, Trajectory
from scout.verdict import Cut

BRIEF = prompt.STYLES["brief"]
FIELDS = ("thought", "action", "observation")


def count(text: str) -> int:
    """Words, marks and line breaks: near enough to a tokenizer, and additive."""
    return len(re.findall(r"\w{1,6}|[^\w ]", text))


def measure(turns: list[dict[str, str]]) -> int:
    return sum(4 + count(turn["content"]) for turn in turns) + 3


def run(*steps: tuple[str, str, str], task: str = "Open the door.") -> Trajectory:
    numbered = tuple(Step(index, *texts) for index, texts in enumerate(steps, start=1))
    return Trajectory("run-1", Task(task), numbered)


def words(stem: str, number: int) -> str:
    return " ".join(f"{stem}{position}" for position in range(number))


def tokens(window: Window, state: str | None = None) -> int:
    return measure(prompt.messages(window.task, window.steps, BRIEF, state=state, last=window.last))


def test_a_run_that_fits_is_untouched() -> None:
    trajectory = run(*[("I look.", "look()", "a room")] * 7)
    windows = fit(trajectory, Budget(500, 3), count, BRIEF, measure=measure)
    assert [len(window.steps) for window in windows] == [3, 3, 1]
    assert tuple(step for window in windows for step in window.steps) == trajectory.steps
    assert [(window.first, window.last) for window in windows] == [(True, False), (False, False), (False, True)]
    assert all(window.cut == Cut() and window.task == "Open the door." for window in windows)


def test_no_window_size_means_one_window_and_no_steps_none() -> None:
    assert len(fit(run(*[("a", "b", "c")] * 40), Budget(5000), count, BRIEF)) == 1
    assert fit(run(), Budget(100), count, BRIEF) == ()


def test_the_oldest_observation_is_shortened_first_and_in_the_middle() -> None:
    trajectory = run(*[("I look.", "look()", words("w", 60))] * 3)
    full = fit(trajectory, Budget(1000), count, BRIEF, measure=measure)[0]
    window = fit(trajectory, Budget(tokens(full) - 20), count, BRIEF, measure=measure)[0]
    shown = window.steps[0].observation
    assert re.fullmatch(r"w0 w1 .* … (\d+) tokens cut … .* w58 w59", shown)
    assert window.steps[1:] == trajectory.steps[1:]
    assert window.cut.steps == (1,)
    assert window.cut.parts == (f"step 1 observation: {window.cut.tokens} of 60 tokens",)
    head, tail = shown.split(" … ")[0], shown.rsplit("… ", 1)[1]
    assert window.cut.tokens == 60 - count(head) - count(tail) == int(re.search(r"(\d+) tokens cut", shown)[1])
    assert tokens(window) <= tokens(full) - 20


def test_order_is_observations_actions_thoughts_task() -> None:
    trajectory = run(*[(words("t", 50), words("a", 50), words("o", 50))] * 2, task=words("k", 200))
    seen: list[str] = []
    limit = tokens(fit(trajectory, Budget(2000), count, BRIEF, measure=measure)[0])
    while True:
        limit -= 10
        try:
            window = fit(trajectory, Budget(limit), count, BRIEF, measure=measure)[0]
        except InputError:
            break
        for line in window.cut.parts:
            name = line.split(":")[0]
            if name not in seen:
                seen.append(name)
    assert seen == [
        *("step 1 observation", "step 2 observation", "step 1 action", "step 2 action"),
        *("step 1 thought", "step 2 thought", "task"),
    ]


def test_the_task_keeps_its_head() -> None:
    trajectory = run(("a", "b", "c"), ("d", "e", "f"), task=words("k", 300))
    windows = fit(trajectory, Budget(400, 1, task_tokens=40), count, BRIEF, measure=measure)
    for window in windows:
        assert re.fullmatch(r"k0 k1 .* … \d+ tokens cut …", window.task)
        assert count(window.task) <= 40
        assert window.cut.steps == ()
    merged = merge_cuts(window.cut for window in windows)
    assert merged == windows[0].cut
    assert merged.parts == (f"task: {merged.tokens} of 300 tokens",)


def test_merge_cuts_adds_steps_and_counts_the_task_once() -> None:
    first = Cut(
        (1, 2), 40, ("task: 30 of 90 tokens", "step 1 action: 4 of 30 tokens", "step 2 thought: 6 of 30 tokens")
    )
    second = Cut((5,), 60, ("task: about 50 of 90 tokens", "step 5 observation: 10 of 30 tokens"))
    merged = merge_cuts([first, second, Cut()])
    assert (merged.steps, merged.tokens) == ((1, 2, 5), 70)
    assert merged.parts == ("task: about 50 of 90 tokens", *first.parts[1:], *second.parts[1:])


def test_refusal_names_everything_needed_to_choose_a_limit() -> None:
    """P5: tokens found, limit, share by step, smallest limit that fits."""
    trajectory = run(*[("think", "act", words("o", 40 if index == 3 else 30)) for index in range(9)])
    with pytest.raises(InputError) as error:
        fit(trajectory, Budget(150), count, BRIEF, measure=measure)
    message = str(error.value)
    assert re.search(r"about \d+ tokens.*limit prompt_tokens is 150.*step 4 42 \(\d+%\)", message)
    smallest = int(re.search(r"at least (\d+)", message)[1])
    assert fit(trajectory, Budget(smallest), count, BRIEF, measure=measure)
    with pytest.raises(InputError):
        fit(trajectory, Budget(smallest - 1), count, BRIEF, measure=measure)


@pytest.mark.parametrize("figures", [(0, 0, 0), (100, -1, 0), (100, 0, -5)])
def test_impossible_budgets_are_refused(figures: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="prompt_tokens must be at least 1"):
        Budget(*figures)


def test_a_carried_state_is_cut_to_the_room_there_is() -> None:
    budget = Budget(300, 1)
    windows = fit(run(*[("a", "b", words("o", 400))] * 2), budget, count, BRIEF, measure=measure)
    short = words("s", budget.state_tokens - 2)
    assert carried(windows[1], short, budget, count, BRIEF, measure=measure) == (short, Cut())
    for state in (words("s", 200), words("s", 100_000), "s" * 100_000):
        text, cut = carried(windows[1], state, budget, count, BRIEF, measure=measure)
        assert tokens(windows[1], text) <= 300
        assert text.startswith("s") or "s" * 50 in state
        assert cut.tokens > 0 and cut.parts[0].startswith("state: ")


TEXTS = st.one_of(
    st.sampled_from(["", "ok", "a 1 b 2", "<|im_end|>\n[3] x", "\x1b[1mbold\x00"]),
    st.integers(1, 120).map(lambda number: words("w", number)),
    st.text(st.sampled_from("ab \n<|>[]1é\u202e"), max_size=200),
    st.integers(1, 400).map(lambda number: "x" * number),
)
STEPS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=9)


@settings(deadline=None, max_examples=100)
@given(
    STEPS,
    TEXTS,
    st.integers(40, 900),
    st.integers(0, 4),
    st.sampled_from([0, 10, 70]),
    st.sampled_from(["brief", "full"]),
)
def test_never_over_the_limit_and_nothing_lost_without_a_line(
    steps: list[tuple[str, str, str]], task: str, limit: int, window_steps: int, task_tokens: int, name: str
) -> None:
    trajectory = run(*steps, task=task)
    style = prompt.STYLES[name]
    budget = Budget(limit, window_steps, task_tokens)
    try:
        windows = fit(trajectory, budget, count, style, measure=measure)
    except InputError as error:
        smallest = int(re.search(r"at least (\d+)", str(error))[1])
        assert smallest > limit
        assume(not window_steps)
        assert fit(trajectory, Budget(smallest, window_steps, task_tokens), count, style, measure=measure)
        return
    assert [step.index for window in windows for step in window.steps] == list(range(1, len(steps) + 1))
    for window in windows:
        state = None if window.first else words("s", budget.state_tokens)
        turns = prompt.messages(window.task, window.steps, style, state=state, last=window.last)
        assert measure(turns) <= limit
        names = {line.split(":")[0] for line in window.cut.parts}
        assert set(window.cut.steps) == {int(line.split()[1]) for line in names if line != "task"}
        assert window.task == task or "task" in names
        for step in window.steps:
            original = trajectory.steps[step.index - 1]
            for field in FIELDS:
                kept = getattr(step, field)
                assert (kept == getattr(original, field)) == (f"step {step.index} {field}" not in names)
                assert kept == getattr(original, field) or " tokens cut …" in kept
    assert fit(trajectory, budget, count, style, measure=measure) == windows


def test_fifty_megabytes_and_ten_thousand_steps_go_through() -> None:
    line, lines = "a line of output 12345\n", 50_000_000 // 23
    huge = line * lines
    steps = [("I look.", "look()", "a room")] * 9_999
    trajectory = run(("I list.", "ls -R", huge), *steps)
    start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    windows = fit(trajectory, Budget(512, 5), count, BRIEF, measure=measure)
    whole = fit(run(("I list.", "ls -R", huge)), Budget(16_000), count, BRIEF, measure=measure)[0]
    with pytest.raises(InputError, match="Set prompt_tokens to at least"):
        fit(trajectory, Budget(512), count, BRIEF, measure=measure)
    seconds = time.process_time() - start
    assert len(windows) == 2_000
    assert re.fullmatch(r"step 1 observation: about \d+ of \d+ tokens", windows[0].cut.parts[0])
    assert windows[0].cut.tokens == pytest.approx(count(line) * lines, rel=0.02)
    assert 12_000 < tokens(whole) <= 16_000
    assert seconds < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 700_000, "kilobytes"
