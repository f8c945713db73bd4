"""A fault that is put into a good run is one for certain, and the run says what it was before."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_prep.faults import FINDERS
from data_prep.inject import Report, inject, main, undo, write
from scout import trajectory
from scout.errors import InputError
from scout.trajectory import Labels, Outcome, Step, StepLabel, Task, Trajectory

PASSED = Outcome(True, 1.0)
Parts = Sequence[tuple[str, str, str]]


def run_of(parts: Parts, name: str = "a", outcome: Outcome = PASSED, labels: Labels | None = None) -> Trajectory:
    steps = tuple(Step(at, *texts, source_ref=f"a.json:{at}") for at, texts in enumerate(parts, 1))
    meta = {"format": "chat", "messages": [[2 * at, 2 * at + 1] for at in range(1, len(parts) + 1)]}
    return Trajectory(name, Task("Fix the shop.", "shop"), steps, outcome, labels, meta)


def all_correct(steps: int) -> Labels:
    labels: list[StepLabel] = ["correct"] * steps
    return Labels(tuple(labels), annotators=("ann",))


def faulty(run: Trajectory, kind: str, seed: int = 1) -> Trajectory | None:
    found = list(inject([run], [kind], seed, Report()))
    return found[0] if found else None


SHOP: Parts = [
    ("I look around.", "bash ls", "cart.py price.py test_cart.py"),
    ("I read price.py first.", "bash cat price.py", "TOTAL = total 430 for order K7Q2ZX\nLIMIT = limit 815"),
    ("The total 430 is off for K7Q2ZX.", "bash show K7Q2ZX", "paid"),
    ("Now the tests.", "bash pytest test_cart.py", "1 failed, 3 passed"),
    ("I mend it.", "bash sed -i s/1/2/ price.py", "done"),
    ("Once more.", "bash pytest -q test_cart.py", "4 passed"),
    ("All tests pass.", "submit", ""),
]


@pytest.mark.parametrize("kind", FINDERS)
def test_each_kind_ends_the_run_with_one_incorrect_step_that_can_be_undone(kind: str) -> None:
    run = run_of(SHOP)
    made = faulty(run, kind)
    assert made is not None and made.labels is not None and not trajectory.problems(made)
    last = len(made.steps)
    assert made.labels.step_labels == ("unlabelled",) * (last - 1) + ("incorrect",)
    assert (made.labels.origin, made.labels.known, made.labels.first_mistake) == ("injected", "some_failures", None)
    assert made.labels.kinds[-1] == kind and made.labels.reasons[-1]
    assert made.outcome == Outcome() and made.meta["injected"]["step"] == last
    assert len(made.meta["messages"]) == last and all(step.source_ref for step in made.steps)
    assert undo(made) == run and undo(trajectory.loads(trajectory.dumps(made))) == run


@pytest.mark.parametrize("kind", FINDERS)
def test_earlier_steps_keep_the_labels_of_people(kind: str) -> None:
    run = run_of(SHOP, outcome=Outcome(), labels=all_correct(len(SHOP)))
    made = faulty(run, kind)
    assert made is not None and made.labels is not None
    assert made.labels.step_labels == ("correct",) * (len(made.steps) - 1) + ("incorrect",)
    assert made.labels.first_mistake == len(made.steps)
    assert (made.labels.known, made.labels.annotators) == ("all_steps", ("ann", "data_prep.inject"))
    assert undo(made) == run


@pytest.mark.parametrize("kind", FINDERS)
@pytest.mark.parametrize("seed", range(5))
def test_every_word_of_a_fault_is_the_runs_own(kind: str, seed: int) -> None:
    made = faulty(run_of(SHOP), kind, seed)
    assert made is not None
    own = set(re.findall(r"\w+", " ".join(" ".join(texts) for texts in SHOP)))
    last = made.steps[-1]
    assert set(re.findall(r"\w+", f"{last.thought} {last.action} {last.observation}")) <= own


def test_a_repeated_command_is_the_step_before_word_for_word() -> None:
    made = faulty(run_of(SHOP[:2]), "repeated_command")
    assert made is not None
    before, last = made.steps[-2:]
    assert msgspec.structs.replace(last, index=before.index) == before


def test_a_dropped_observation_leaves_a_value_that_nothing_shows() -> None:
    made = faulty(run_of(SHOP), "dropped_observation")
    assert made is not None and made.labels is not None
    assert [step.action for step in made.steps] == ["bash ls", "bash show K7Q2ZX"]
    assert made.steps[-1].observation == "paid" and made.meta["messages"] == [[2, 3], [6, 7]]
    assert made.labels.reasons[-1] == "It uses K7Q2ZX, which nothing before it shows."


def test_a_contradicted_claim_cites_another_number_of_the_run() -> None:
    made = faulty(run_of(SHOP), "contradicted_claim")
    assert made is not None and made.labels is not None
    assert made.steps[-1].thought == "The total 815 is off for K7Q2ZX."
    assert made.labels.reasons[-1] == "It says total 815, but step 2 shows total 430."


def test_a_wrong_file_is_not_the_one_of_the_thought() -> None:
    found = {made.steps[-1].action for seed in range(9) if (made := faulty(run_of(SHOP), "wrong_file", seed))}
    assert found == {"bash cat cart.py", "bash cat test_cart.py"}


def test_success_is_claimed_where_a_test_failed_or_nothing_was_done() -> None:
    reasons = set()
    for seed in range(20):
        made = faulty(run_of(SHOP), "fake_success", seed)
        assert made is not None and made.labels is not None
        assert made.steps[-1].thought == "All tests pass." and len(made.steps) in (2, 3, 4, 5)
        reasons.add(made.labels.reasons[-1])
    assert reasons == {
        "It claims success (All tests pass.), but step 4 shows: 1 failed, 3 passed",
        "It claims success (All tests pass.), but nothing was written or tested so far.",
    }
    calls = [("", "find {}", "K1"), ("", "cancel_order {}", "ok"), ("Your order has been cancelled.", "", "Thanks.")]
    made = faulty(run_of(calls), "fake_success")
    assert made is not None and [step.thought for step in made.steps] == ["", "Your order has been cancelled."]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("repeated_command", [("", "bash ls", "a"), ("", "bash ls", "a b")]),
        ("repeated_command", [("", "bash cat a.log", "a")]),
        ("repeated_command", [("", "bash python run.py", "a")]),
        ("repeated_command", [("", "bash cat a && rm a", "a")]),
        ("repeated_command", [("", 'bash {"command":"ls; make"}', "a")]),
        ("repeated_command", [("", "cancel_order {}", "a")]),
        ("repeated_command", [("", "bash ls", "")]),
        ("dropped_observation", [("See K7Q2ZX.", "a", "b"), ("", "c", "K7Q2ZX"), ("", "show K7Q2ZX", "")]),
        ("dropped_observation", [("", "a", "b"), ("", "c", "sha256 x86_64 10000"), ("", "d sha256 x86_64 10000", "")]),
        ("contradicted_claim", [("", "a", "total 430, total 815"), ("The total 430 is off.", "b", "")]),
        ("contradicted_claim", [("", "a", "total 430, limit 815"), ("If the total 430 is off", "b", "")]),
        ("wrong_file", [("", "ls", "a.py b.py"), ("", "cat a.py", "x")]),
        ("wrong_file", [("", "ls", "a.py b.py"), ("Compare a.py and b.py.", "cat a.py", "x")]),
        ("fake_success", [("", "ls", "a"), ("", "b", "c"), ("See whether all tests pass.", "pytest", "")]),
        ("fake_success", [("", "pytest", "3 passed"), ("", "b", "c"), ("All tests pass.", "", "")]),
        ("fake_success", [("", "cat test.py", "def FAILED"), ("", "b", "c"), ("All tests pass.", "", "")]),
    ],
)
def test_a_place_where_it_may_be_harmless_is_none(kind: str, parts: Parts) -> None:
    assert faulty(run_of(parts), kind) is None


def test_runs_that_are_not_known_to_be_good_are_skipped_and_counted() -> None:
    wrong = Labels(("correct",) * 6 + ("incorrect",), 7)
    some = Labels(("correct",) + ("unlabelled",) * 6, known="some_failures")
    runs = [
        run_of(SHOP, "unknown", Outcome()),
        run_of(SHOP, "some", Outcome(), some),
        run_of(SHOP, "failed", Outcome(False), all_correct(7)),
        run_of(SHOP, "wrong", PASSED, wrong),
        run_of([("Hello.", "", "")], "short"),
        run_of(SHOP, "good"),
    ]
    report = Report()
    (made,) = inject(runs, list(FINDERS), 1, report)
    assert not list(inject([made], list(FINDERS), 1, report))
    assert made.meta["injected"]["id"] == "good" and report.injected.total() == 1
    assert report.skipped == {
        "nothing tells whether it is good": 2,
        "it failed": 1,
        "a step of it is labelled incorrect": 1,
        "none of the faults has a place in it": 1,
        "it holds an injected fault already": 1,
    }
    with pytest.raises(InputError, match="nothing to undo"):
        undo(runs[-1])


def test_kinds_are_balanced_and_the_same_seed_gives_the_same_faults() -> None:
    runs = [run_of(SHOP, f"r{number}") for number in range(20)]
    report = Report()
    made = list(inject(runs, list(FINDERS), 3, report))
    assert set(report.injected.values()) == {4} and set(report.injected) == set(FINDERS)
    assert made == list(inject(runs, list(FINDERS), 3, Report()))
    assert made != list(inject(runs, list(FINDERS), 4, Report()))


def test_the_command_writes_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(tmp_path / "runs.jsonl"), tmp_path / "out.jsonl"
    trajectory.write(source, [run_of(SHOP), run_of(SHOP, "b", Outcome(False))])
    assert main([source, "-o", str(out), "--seed", "1", "--kinds", "wrong_file"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "out": str(out), "runs": 1, "kinds": {"wrong_file": 1}, "skipped": {"it failed": 1}
    }  # fmt: skip
    assert "skipped: it failed" in said.err
    assert [run.id for run in trajectory.read(out)] == ["a~wrong_file"]


def test_nothing_is_written_where_no_run_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "runs.jsonl", tmp_path / "out.jsonl"
    trajectory.write(source, [run_of(SHOP, outcome=Outcome(False))])
    assert main([str(source), "-o", str(out), "--seed", "1"]) == 1
    assert "1 x it failed" in capsys.readouterr().err and not out.exists()


def test_public_runs_that_passed(shared_data: Path, tmp_path: Path) -> None:
    pools = sorted((shared_data / "llm_as_a_verifier/terminal_bench_2.1_mini-swe-agent_deepseek-v4-flash").iterdir())
    report = write(
        [shared_data / "tau_bench/historical_trajectories", *pools[:4]], tmp_path / "out.jsonl", [*FINDERS], 1
    )
    made = list(trajectory.read(tmp_path / "out.jsonl"))
    assert len(made) == report.injected.total() > 60 and len(report.injected) == len(FINDERS)
    assert report.skipped["it failed"] > 60
    kinds: Counter[Any] = Counter()
    for run in made:
        before = undo(run)
        assert before.outcome.passed and not trajectory.problems(before)
        last, kind = msgspec.structs.replace(run.steps[-1], observation=""), run.meta["injected"]["kind"]
        same = [msgspec.structs.replace(step, observation="", index=last.index) == last for step in before.steps]
        assert any(same) == (kind not in ("wrong_file", "contradicted_claim"))
        kinds[kind] += 1
    assert kinds == report.injected
