"""What resembles ATIF: candidate pools, runs in several files, outcomes lying beside a run."""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from pathlib import Path

import pytest

from scout import formats
from scout.errors import FormatError
from scout.trajectory import Outcome

FIXTURES = Path(__file__).parent / "fixtures"


def test_what_the_converters_added_is_undone_and_counted() -> None:
    path = FIXTURES / "verifier_pool/keystrokes.json"
    assert formats.detect(path) == "verifier_pool"
    (run,) = formats.load(path)
    assert (run.id, run.task.id, run.task.text) == ("bake__a1", "bake@01234567", "Don't burn it.")
    assert run.outcome == Outcome(False, 0.0)
    assert [step.action for step in run.steps] == [
        "bash ls oven\nbash ls shelf",
        "bash cat > plan <<E\nbake...(+54 chars)",
        "ls [ls] {}",
    ]
    shelf = "bash: returncode: 1\noutput: \nexception_info: no shelf"
    assert run.steps[0].observation == f"bash: returncode: 0\noutput: bread\n\n{shelf}"
    assert [step.source_ref for step in run.steps] == [f"keystrokes.json:trajectory:{at}" for at in (1, 2, 3)]
    assert run.meta["left_out"] == [
        "1 shell quotes around apostrophes of the task",
        "1 calls cut by the converter",
        "1 observations cut by the converter",
    ]
    assert "not an ATIF version" in run.meta["warnings"][0]


def test_notes_of_the_harness_are_no_steps_and_clock_times_merge_nothing() -> None:
    (run,) = formats.load(FIXTURES / "verifier_pool/notes.json")
    assert [step.action for step in run.steps] == [
        'execute_bash {"command":"ls"}',
        'execute_bash {"command":"bake"}',
        "",
    ]
    assert [step.thought for step in run.steps] == ["", "", "Read oven:1-20\nIt looks done."]
    assert run.outcome == Outcome(True, 1.0)
    assert run.meta["agent_entries"] == 6
    assert run.meta["left_out"] == [
        "3 notes of the harness (Initialize, Update Todos, Finished)",
        "2 messages that repeat the call",
    ]


def test_one_task_name_with_two_checksums_is_two_tasks() -> None:
    tasks = {run.task.id for path in (FIXTURES / "verifier_pool").iterdir() for run in formats.load(path)}
    assert tasks == {"bake@01234567", "bake@fedcba98"}


def test_a_continuation_is_joined_to_its_run() -> None:
    (run,) = formats.load(FIXTURES / "atif/long.trajectory.json")
    assert [step.thought for step in run.steps] == ["I begin on the left.", "I go on.", "Done."]
    assert run.steps[0].observation == "half sorted\nSummarised.\nThe right half."
    assert [step.source_ref for step in run.steps] == [
        "long.trajectory.json:1",
        "long.trajectory.cont-1.json:3",
        "long.trajectory.cont-1.json:4",
    ]
    assert run.meta["continuations"] == ["long.trajectory.cont-1.json"]
    assert run.meta["left_out"] == ["1 agent entries copied from another file"]
    assert run.meta["warnings"] == []


def test_a_run_that_names_itself_as_its_continuation_ends(tmp_path: Path) -> None:
    document = json.loads((FIXTURES / "atif/long.trajectory.json").read_text())
    for name in ("trajectory.json", "trajectory.cont-1.json"):
        (tmp_path / name).write_text(json.dumps(document))
    (run,) = formats.load(tmp_path / "trajectory.json")
    assert len(run.steps) == 2


def test_a_bad_continuation_refuses_the_run(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "atif/long.trajectory.json", tmp_path / "trajectory.json")
    (tmp_path / "trajectory.cont-1.json").write_text('{"schema_version": "ATIF-v1.5", "steps": [{"source": "robot"}]}')
    with pytest.raises(FormatError, match=r"cont-1\.json:steps\[0\]"):
        list(formats.load(tmp_path / "trajectory.json"))


@pytest.mark.parametrize(
    ("reward", "outcome"), [("1\n", Outcome(True, 1.0)), ("0\n", Outcome(False, 0.0)), ("?", Outcome())]
)
def test_reward_txt_tells_the_outcome_where_the_result_does_not(tmp_path: Path, reward: str, outcome: Outcome) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier/reward.txt").write_text(reward)
    broken = {"task_name": "bake", "trial_name": "bake__7", "verifier_result": None, "exception_info": {"x": 1}}
    (tmp_path / "result.json").write_text(json.dumps(broken))
    shutil.copy(FIXTURES / "atif/v1.2-split-turns.json", tmp_path / "agent/trajectory.json")
    (run,) = formats.load(tmp_path / "agent/trajectory.json")
    assert (run.id, run.task.id, run.outcome) == ("bake__7", "bake", outcome)


@pytest.mark.data
@pytest.mark.parametrize(
    ("pool", "tasks", "mixed", "passed", "entries"),
    [
        ("terminal_bench_2.0_capy_gpt-5.5", 60, 14, 0.813, (7, 22, 119)),
        ("terminal_bench_2.1_mini-swe-agent_deepseek-v4-flash", 22, 17, 0.655, (9, 34, 221)),
        ("terminal_bench_2.0_forge", 16, 10, 0.700, (11, 25, 144)),
    ],
)
def test_public_pools(
    shared_data: Path, pool: str, tasks: int, mixed: int, passed: float, entries: tuple[int, int, int]
) -> None:
    files = sorted((shared_data / "llm_as_a_verifier" / pool).glob("*/*.json"))
    runs = [run for file in files for run in formats.load(file)]
    assert len(runs) == 5 * tasks == len({run.id for run in runs})
    rewards: dict[str | None, list[bool | None]] = {}
    for run in runs:
        rewards.setdefault(run.task.id, []).append(run.outcome.passed)
    assert (len(rewards), sum(len(set(found)) == 2 for found in rewards.values())) == (tasks, mixed)
    assert round(sum(run.outcome.passed is True for run in runs) / len(runs), 3) == passed
    found = [run.meta["agent_entries"] for run in runs]
    assert (min(found), statistics.median(found), max(found)) == entries
    left_out = Counter[str]()
    for note in (note for run in runs for note in run.meta["left_out"]):
        number, _, what = note.partition(" ")
        left_out[what] += int(number)
    cut = 4897 if "capy" in pool else 0
    assert left_out["observations cut by the converter"] == cut


@pytest.mark.data
def test_the_public_run_in_two_files(shared_data: Path) -> None:
    folder = shared_data / "harbor_atif/golden/terminus_2"
    (run,) = formats.load(folder / "hello-world-context-summarization-linear-history.trajectory.json")
    (whole,) = formats.load(folder / "hello-world-context-summarization.trajectory.json")
    assert len(run.steps) == len(whole.steps) == 7
