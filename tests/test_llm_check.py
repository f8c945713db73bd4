"""What a large model's analysis may say, what an endpoint may ask for, and which options are refused."""

from __future__ import annotations

import argparse
from email.utils import format_datetime

import pytest

from data_prep.explain import main
from data_prep.llm_account import length_class
from data_prep.llm_check import Reply, Unusable, Written, accept
from data_prep.llm_requests import retry_after
from data_prep.llm_settings import Settings, add_arguments, key, settings
from scout.budget import Window
from scout.errors import ConfigError
from scout.prompt import Label
from scout.trajectory import Step
from scout.verdict import Cut

STEPS = (
    Step(1, "I look.", "ls", "a.txt b.txt"),
    Step(2, "I read b.txt instead of a.txt.", "cat b.txt", "empty"),
    Step(3, "I see it holds 4711.", "", ""),
)
WINDOW = Window(STEPS, "How many lines has a.txt?", Cut(), True, True)
LABELS: dict[int, Label] = {1: "correct", 2: "incorrect", 3: "incorrect"}
GOOD = """\
[1] Looking around first fits the task. This step is correct.
[2] The task names `a.txt` and this opens b.txt. This step is incorrect.
[3] Nothing of step 2 shows 4711. This step is incorrect.
Verdicts:
Step 1: correct
Step 2: incorrect
Step 3: incorrect
Verdict: No"""
SECOND = "The task names `a.txt` and this opens b.txt."


def accepted(text: str, finish: str = "stop", refusal: str | None = None, *, limit: int = 500) -> Written:
    reply = Reply(text, finish, refusal)
    return accept(reply, WINDOW, LABELS, None, last=True, limit_tokens=limit, count=lambda text: len(text.split()))


def test_a_faithful_analysis_is_used_without_its_closing_sentences() -> None:
    written = accepted(GOOD)
    assert written.paragraphs[2] == SECOND and written.state is None
    assert accepted(f"<think>The labels say so.</think>\n```\n{GOOD}\n```") == written


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("verdicts differ", GOOD.replace("Step 2: incorrect", "Step 2: correct")),
        ("verdicts differ", GOOD.replace("b.txt. This step is incorrect", "b.txt. This step is correct")),
        ("verdicts differ", GOOD.replace("\nStep 2: incorrect", "")),
        ("contradicts itself", GOOD.replace("Verdict: No", "Verdict: Yes")),
        ("unreadable", GOOD.replace("Verdict: No", "Verdict: No. I hope this helps")),
        ("unreadable", GOOD.replace("\nVerdict: No", "")),
        ("unreadable", GOOD.replace("[3]", "[4]")),
        ("refused", "I'm sorry, but I can't help with that."),
        ("no reason", GOOD.replace(SECOND, "Bad.")),
        ("speaks of labels", GOOD.replace(SECOND, "It is labelled incorrect, so b.txt is the wrong file.")),
        ("speaks of labels", GOOD.replace(SECOND, "According to the verdict b.txt is the wrong file.")),
        ("speaks of labels", GOOD.replace(SECOND, "The annotators found b.txt wrong here.")),
        ("hindsight", GOOD.replace(SECOND, "It turns out that nothing is there.")),
        ("hindsight", GOOD.replace(SECOND, "Step 3 shows that it went wrong.")),
        ("hindsight", GOOD.replace(SECOND, "The number 4711 cannot come from it.")),
    ],
)
def test_an_unfaithful_analysis_is_not_used(kind: str, text: str) -> None:
    with pytest.raises(Unusable) as caught:
        accepted(text)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("kind", "finish", "refusal", "limit"),
    [("cut off", "length", None, 500), ("refused", "stop", "I will not.", 500), ("too long", "stop", None, 50)],
)
def test_a_reply_that_is_not_whole_or_too_long_is_not_used(
    kind: str, finish: str, refusal: str | None, limit: int
) -> None:
    with pytest.raises(Unusable) as caught:
        accepted(GOOD, finish, refusal, limit=limit)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "reason",
    [
        "The task asks for a.txt, as step 3 admits.",
        "Step 1 lists `a.txt`, and it turns out to be another file.",
        "This conflicts with what was listed earlier and shows in the next step.",
    ],
)
def test_a_reason_may_look_ahead_when_it_looks_back_too(reason: str) -> None:
    assert accepted(GOOD.replace(SECOND, reason)).paragraphs[2] == reason


def test_words_of_the_run_itself_are_no_leak() -> None:
    window = Window((Step(1, "I label the gold rows.", "", ""),), "Label rows.", Cut(), True, True)
    reason = "[1] It will label the gold rows as the task asks. This step is correct."
    reply = Reply(f"{reason}\nVerdicts:\nStep 1: correct\nVerdict: Yes", "stop", None)
    assert accept(reply, window, {1: "correct"}, None, last=True, limit_tokens=999, count=len)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "nonsense"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_wait_an_endpoint_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_the_wait_may_be_a_date() -> None:
    from datetime import UTC, datetime, timedelta

    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < (retry_after({"retry-after": later}) or 0) <= 30


def parsed(*words: str) -> Settings | None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--writer", default="llm")
    add_arguments(parser)
    return settings(parser.parse_args(words))


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("https://host/openai/v1/chat/completions", "https://host/openai/v1"),
    ],
)
def test_an_endpoint_may_be_given_in_several_forms(given: str, used: str) -> None:
    found = parsed("--endpoint", given, "--llm-model", "m")
    assert found is not None and found.endpoint == used


def test_all_bad_options_are_named_at_once_and_no_secret_is_shown() -> None:
    words = ["--endpoint", "http://me:secret@host/v1", "--tries", "0", "--concurrency", "-1", "--budget-money", "5"]
    with pytest.raises(ConfigError) as caught:
        parsed(*words, "--timeout-seconds", "nan")
    said = str(caught.value)
    for name in ("--llm-model is missing", "tries is 0", "concurrency is -1", "timeout-seconds is nan", "--price"):
        assert name in said
    assert "secret" not in said and "OPENAI_API_KEY" in said


def test_options_of_the_llm_are_refused_for_other_writers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"--endpoint.*only for --writer llm"):
        parsed("--writer", "world", "--endpoint", "http://host")
    assert main(["--data", "x", "--out", "y", "--tries", "2"]) != 0
    assert "--tries: only for --writer llm" in capsys.readouterr().err


def test_a_key_with_a_line_break_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-se\ncret")
    with pytest.raises(ConfigError) as caught:
        key()
    assert "cret" not in str(caught.value).replace("secret", "")


@pytest.mark.parametrize(("steps", "name"), [(1, "1-10"), (10, "1-10"), (11, "11-20"), (100, "51-100"), (101, "101-")])
def test_classes_of_length(steps: int, name: str) -> None:
    assert length_class(steps) == name
