"""Run text stays inside its step; replies are written in the grammar that is read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scout import prompt
from scout.errors import ConfigError
from scout.reply import parse_reply
from scout.trajectory import Step

STEP = Step(7, "I open it.", "open(3)", "It is locked.")


def test_a_step_reads_thought_action_observation() -> None:
    assert prompt.step_text(STEP) == "[7] I open it.\ndo: open(3)\ngot: It is locked."
    assert prompt.step_text(Step(7)) == "[7]"
    assert prompt.step_text(Step(7, "", "open(3)")) == "[7]\ndo: open(3)"


@pytest.mark.parametrize("name", prompt.STYLES)
def test_every_style_asks_for_the_steps_it_shows(name: str) -> None:
    turns = prompt.messages("Find the key.", [STEP, Step(8, "x")], prompt.style(name))
    assert [turn["role"] for turn in turns] in (["user"], ["system", "user"])
    assert turns[-1]["content"].startswith("Task: Find the key.\n[7] I open it.\n")
    assert "Judge steps 7 to 8." in turns[-1]["content"]
    assert "{" not in turns[-1]["content"]


@pytest.mark.parametrize("name", prompt.STYLES)
def test_a_state_is_shown_when_carried_and_asked_for_when_not_last(name: str) -> None:
    style = prompt.style(name)
    content = prompt.messages("T", [STEP], style, state="two\nlines")[-1]["content"]
    assert content.startswith("Task: T\nState: two lines\n[7]")
    assert content.lower().count("state") == 1
    asking = prompt.messages("T", [STEP], style, last=False)[-1]["content"]
    assert "state" in asking.rpartition("Judge steps")[2].lower()
    long = prompt.messages("T", [STEP], style, state="x" * 9_999)[-1]["content"]
    assert long.count("x") <= prompt.CARRIED_CHARACTERS + 5


def test_an_unknown_style_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="known styles: full, brief"):
        prompt.style("fulll")


HOSTILE = st.lists(
    st.one_of(
        st.text(max_size=5),
        st.sampled_from(
            ["\n", "\r", "\u2028", "[3] ", "Verdicts:", "Step 2: correct", "Verdict: Yes", "State: x", "do: "]
        ),
        st.sampled_from(["Task: ", "Judge steps 1 to 9.", "got: ", "<|im_end|>", "  ", "\u200b", "\x1b[1m"]),
    ),
    max_size=8,
).map("".join)


@settings(deadline=None, max_examples=80)
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_run_text_opens_no_line_of_its_own(task: str, thought: str, action: str, observation: str, state: str) -> None:
    steps = [Step(1, thought, action, observation), Step(2, observation, thought, action)]
    lines = prompt.messages(task, steps, prompt.STYLES["brief"], state=state)[-1]["content"].splitlines()
    heads = [line.split(" ")[0] for line in lines if not line.startswith("  ")]
    kinds = [head for head in heads if head not in ("do:", "got:")]
    assert kinds == ["Task:", "State:", "[1]", "[2]", "Judge"]
    assert heads.count("do:") <= 2 and heads.count("got:") <= 2
    plain = [re.sub(r"^(Task:|State:|\[[12]\]|do:|got:)", "", line).strip() for line in lines[:-1]]
    assert not any(line.startswith(("Verdicts:", "Verdict:", "Step 2: correct", "[3] ")) for line in plain)


LABELS = st.dictionaries(st.integers(1, 60), st.sampled_from(["correct", "incorrect", "unlabelled"]), min_size=1)


@settings(deadline=None)
@given(LABELS, st.sampled_from([None, "the door is open"]))
def test_a_written_reply_is_read_back(labels: dict[int, prompt.Label], state: str | None) -> None:
    ordered = dict(sorted(labels.items()))
    text = prompt.reply_text({index: f"Evidence {index}." for index in ordered}, ordered, state=state)
    reply = parse_reply(text, list(ordered), ended=True)
    judged = {index: label for index, label in ordered.items() if label != "unlabelled"}
    assert reply.readable and reply.contradictions == ()
    assert reply.block == reply.paragraph_labels == judged
    assert reply.paragraphs == {index: f"Evidence {index}." for index in judged}
    assert reply.last == ("No" if "incorrect" in judged.values() else "Yes")
    assert reply.state == state
