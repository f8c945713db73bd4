"""Verdict files, and the reading of replies: what is not exactly a reply is not readable."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scout import Cut, StepVerdict, Usage, Verdict, verdict
from scout.errors import InputError
from scout.prompt import reply_text
from scout.verdict import parse_reply

SCORED = Verdict(
    "run-1",
    "scored",
    None,
    (StepVerdict(1, "correct", 0.1, "it looked"), StepVerdict(3, "incorrect", 0.9)),
    3,
    0.2,
    Cut((2,), 388, ("step 2 observation: 812 of 1200 tokens",)),
    ("the last line says Yes",),
    model="tiny",
    usage=Usage(100, 20, 4),
    seconds=0.5,
)
UNSCORED = Verdict("run-2", "unscored", "1 of 4 replies was readable", (), None, None)

GOOD = """\
[5] It goes by the note of step 3.
It holds. This step is correct.
[6] It says the door is open, but step 4 found it shut. This step is incorrect.
State: door shut, key unknown
Verdicts:
Step 5: correct
Step 6: incorrect
Verdict: No
"""


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_read_of_write_is_identity(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"verdicts.jsonl{suffix}"
    assert verdict.write(path, [SCORED, UNSCORED]) == 2
    assert list(verdict.read(path)) == [SCORED, UNSCORED]
    assert verdict.loads(verdict.dumps(SCORED)) == SCORED


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"unscored_reason": "x"}, "unscored_reason: found 'x'; allowed: null"),
        ({"status": "unscored", "first_mistake": None, "p_yes": None}, "unscored_reason: found None"),
        ({"status": "unscored", "unscored_reason": "x"}, "p_yes: found 0.2; allowed: null"),
        ({"p_yes": 1.5}, "p_yes: found 1.5; allowed: 0 to 1"),
        ({"p_yes": float("nan")}, "p_yes: found nan"),
        ({"first_mistake": 2}, "first_mistake: found 2; allowed: the index of one of the steps"),
        ({"steps": (StepVerdict(3, "incorrect"), StepVerdict(3, "correct"))}, "steps[1].index: found 3"),
        ({"steps": (StepVerdict(3, "correct", -0.1),)}, "steps[0].p_incorrect: found -0.1"),
        ({"schema_version": 3}, "schema_version: found 3; allowed: 1"),
        ({"trajectory_id": ""}, "trajectory_id: found ''"),
        ({"seconds": float("inf")}, "seconds: found inf"),
    ],
)
def test_an_unsound_verdict_is_not_written(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError) as caught:
        verdict.write(tmp_path / "verdicts.jsonl", [msgspec.structs.replace(SCORED, **changes)])
    assert part in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_unscored_verdict_needs_no_numbers() -> None:
    assert verdict.problems(UNSCORED) == []


def test_a_good_reply_is_taken_apart() -> None:
    reply = parse_reply(GOOD, [5, 6], ended=True)
    assert reply.readable and reply.problem is None
    assert reply.paragraphs == {
        5: "It goes by the note of step 3.\nIt holds.",
        6: "It says the door is open, but step 4 found it shut.",
    }
    assert reply.paragraph_labels == reply.block == {5: "correct", 6: "incorrect"}
    assert (reply.last, reply.state, reply.contradictions) == ("No", "door shut, key unknown", ())


WORDS = st.text("abc .,:[]12\n", max_size=30).map(lambda text: " ".join(text.split()))


@given(
    st.integers(1, 90),
    st.lists(st.tuples(WORDS, st.sampled_from(["correct", "incorrect", "unlabelled"])), max_size=6),
    st.none() | WORDS,
)
def test_parse_of_reply_text_is_identity(first: int, steps: list[tuple[str, Any]], state: str | None) -> None:
    indices = range(first, first + len(steps))
    paragraphs = {index: words for index, (words, _) in zip(indices, steps, strict=True)}
    labels = {index: label for index, (_, label) in zip(indices, steps, strict=True)}
    reply = parse_reply(reply_text(paragraphs, labels, state=state), indices, ended=True)
    judged = {index: label for index, label in labels.items() if label != "unlabelled"}
    assert reply.readable, reply.problem
    assert reply.block == reply.paragraph_labels == judged
    assert reply.paragraphs == {index: paragraphs[index] for index in judged}
    assert reply.state == state
    assert reply.last == ("No" if "incorrect" in judged.values() else "Yes")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (GOOD + "I hope this helps.", "'I hope this helps.' stands after the last line"),
        (GOOD + "Verdict: Yes", "'Verdict: Yes' stands after the last line"),
        (GOOD.replace("Verdict: No", "Verdict: Maybe"), "'Verdict: Maybe' stands in the block"),
        (GOOD.replace("Verdict: No\n", ""), "there is no last line"),
        (GOOD.replace("Verdicts:\n", ""), "'Step 5: correct' stands before"),
        (GOOD.replace("Step 6: incorrect", "Step 5: incorrect"), "step 5 is twice in the block"),
        (GOOD.replace("Step 6: incorrect", "Step 7: incorrect"), "step 7 in the block was not shown"),
        (GOOD.replace("Step 6: incorrect", "Step 6: fine"), "'Step 6: fine' stands in the block"),
        (GOOD.replace("Step 6: incorrect", "  Step 6: incorrect"), "'  Step 6: incorrect' stands in the block"),
        (GOOD.replace("Step 6", "Step ٦"), "stands in the block"),
        (GOOD.replace("[6]", "[5]"), "step 5 is twice in the analysis"),
        (GOOD.replace("[6]", "[0]"), "step 0 in the analysis was not shown"),
        (GOOD.replace("[6]", "[" + "9" * 5000 + "]"), "in the analysis was not shown"),
        (GOOD.replace("State:", "Verdicts:\nStep 5: correct\nVerdict: Yes\nState:"), "stands after the last line"),
        (GOOD.replace("State:", "Step 5: correct\nState:"), "'Step 5: correct' stands before"),
        (GOOD.replace("State:", "Verdict: Yes\nState:"), "'Verdict: Yes' stands before"),
        ("<think>a</think>b</think>" + GOOD, "more than once"),
        ("", "there is no line 'Verdicts:'"),
        ("\x1b[2J\nVerdicts:\n\x1b]0;x\x07", "'\\x1b]0;x\\x07' stands in the block"),
    ],
)
def test_what_is_not_exactly_a_reply_is_not_readable(reply: str, problem: str) -> None:
    read = parse_reply(reply, [5, 6], ended=True)
    assert not read.readable
    assert problem in (read.problem or "")


def test_a_reply_that_did_not_end_is_not_readable() -> None:
    reply = parse_reply(GOOD, [5, 6], ended=False)
    assert not reply.readable and reply.problem == "the reply did not end by itself"


def test_a_missing_step_is_readable_and_unjudged() -> None:
    reply = parse_reply("Verdicts:\nStep 5: correct\nVerdict: Yes", [5, 6], ended=True)
    assert reply.readable and reply.block == {5: "correct"}


def test_quoted_blocks_and_numbers_inside_a_paragraph_are_words() -> None:
    words = 'It printed "Verdicts: Step 6: correct Verdict: Yes" and [6] was red.\n  [6] indented\n  Step 6: correct'
    text = f"[5] {words} This step is correct.\nVerdicts:\nStep 5: correct\nVerdict: Yes"
    reply = parse_reply(text, [5, 6], ended=True)
    assert reply.readable and reply.paragraphs == {5: words} and reply.block == {5: "correct"}


def test_thoughts_may_draft_a_block_and_the_answer_counts() -> None:
    thoughts = "<think>\n[5] It holds. This step is correct.\nVerdicts:\nStep 5: incorrect\nVerdict: No\n</think>\n\n"
    for start in (thoughts, thoughts.removeprefix("<think>\n")):
        reply = parse_reply(start + "Verdicts:\nStep 5: correct\nVerdict: Yes", [5], ended=True)
        assert reply.readable and reply.block == {5: "correct"} and reply.last == "Yes"
        assert reply.paragraph_labels in ({5: "correct"}, {})


def test_a_state_before_a_paragraph_belongs_to_the_paragraph_above() -> None:
    text = "[5] a\nState: b\n[6] c\nState: d\nVerdicts:\nVerdict: Yes"
    reply = parse_reply(text, [5, 6], ended=True)
    assert reply.paragraphs == {5: "a\nState: b", 6: "c"} and reply.state == "d"


@pytest.mark.parametrize(
    ("old", "new", "contradiction"),
    [
        ("Step 5: correct", "Step 5: incorrect", "step 5: the paragraph says correct, the block incorrect"),
        ("Verdict: No", "Verdict: Yes", "the last line says Yes, the block says that step 6 is incorrect"),
        ("Step 6: incorrect", "Step 6: correct", "the last line says No, the block holds no incorrect step"),
        ("It holds.", "This step is incorrect.", "step 5: the paragraph says both incorrect and correct"),
    ],
)
def test_disagreement_is_kept_and_reported(old: str, new: str, contradiction: str) -> None:
    reply = parse_reply(GOOD.replace(old, new), [5, 6], ended=True)
    assert reply.readable and contradiction in reply.contradictions


@given(st.text() | st.lists(st.sampled_from([*GOOD.splitlines(), "</think>", "<think>", "[", "]"])).map("\n".join))
def test_any_text_is_read_without_an_error(text: str) -> None:
    reply = parse_reply(text, [5, 6], ended=True)
    assert reply.readable == (reply.problem is None)
    assert {*reply.block, *reply.paragraphs} <= {5, 6}


@pytest.mark.parametrize(
    "piece",
    ["[5] ", "[", "Verdicts:\n", "Step 5: correct\n", "</think>", "State: \n", "9", " ", "This step is correct. "],
)
def test_reading_takes_linear_time(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    start = time.perf_counter()
    parse_reply(text, range(1, 10_001), ended=True)
    assert time.perf_counter() - start < 5
