"""Every file of the public data: converted, held by another, or refused with a reason; counts as it describes them."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from scout import formats
from scout.errors import ScoutError
from scout.formats.beside import holder
from scout.trajectory import Trajectory


class Found(NamedTuple):
    """A run, as small as the counts allow."""

    format: str
    task: str | None
    steps: int
    passed: bool | None
    messages: int
    """Messages of the original that are in steps, for formats that tell."""
    entries: int
    """Entries of the agent in the original, for ATIF and its look-alikes."""


class Converted(NamedTuple):
    runs: dict[str, list[Found]]
    """File, relative to the data -> its runs."""
    refused: dict[str, str]
    held: dict[str, Path]

    def of(self, *starts: str) -> list[Found]:
        return [run for file, runs in self.runs.items() if file.startswith(starts) for run in runs]


def _small(run: Trajectory) -> Found:
    messages = sum(map(len, run.meta.get("messages", ())))
    entries = run.meta.get("agent_entries", 0)
    return Found(run.meta["format"], run.task.id, len(run.steps), run.outcome.passed, messages, entries)


@pytest.fixture(scope="module")
def converted(shared_data: Path) -> Converted:
    found = Converted({}, {}, {})
    for file in sorted(path for path in shared_data.rglob("*") if path.is_file()):
        name = str(file.relative_to(shared_data))
        held = holder(file)
        if held is not None:
            found.held[name] = held
            continue
        try:
            found.runs[name] = [_small(run) for run in formats.load(file)]
        except ScoutError as error:
            found.refused[name] = str(error)
    return found


def test_every_file_is_converted_or_held_or_refused_with_a_reason(converted: Converted, shared_data: Path) -> None:
    assert len(converted.runs) + len(converted.refused) + len(converted.held) == 1392
    for name, reason in converted.refused.items():
        assert str(shared_data / name) in reason and len(reason) > 80, name
    assert all(converted.runs.values())
    for name, held in converted.held.items():
        assert str(held.relative_to(shared_data)) in converted.runs, name


@pytest.mark.parametrize(
    ("start", "format", "runs", "steps", "passed", "failed", "unknown"),
    [
        ("who_and_when/Algorithm-Generated/", "who_and_when", 90, 567, 0, 90, 0),
        ("who_and_when/Hand-Crafted/", "who_and_when", 39, 1997, 0, 39, 0),
        ("agentrx/tau_retail/tau_dataset_full", "tau_bench", 71, 1003, 52, 19, 0),
        ("agentrx/tau_retail/tau_dataset_failed", "tau_bench", 20, 349, 0, 20, 0),
        ("agentrx/magentic_dataset/", "who_and_when", 39, 1997, 0, 0, 39),
        ("agentprocessbench/", "chat", 165, 493, 103, 62, 0),
        ("agenterrorbench_gaia/", "agent_error_bench", 34, 479, 0, 34, 0),
        ("tracertraj_code/", "who_and_when", 88, 1645, 0, 0, 88),
        ("trail_sample/", "otel", 2, 10, 0, 0, 2),
        ("llm_as_a_verifier/terminal_bench_2.0_capy_gpt-5.5/", "verifier_pool", 300, 8498, 244, 56, 0),
        (
            "llm_as_a_verifier/terminal_bench_2.1_mini-swe-agent_deepseek-v4-flash/",
            "verifier_pool",
            110,
            4876,
            72,
            38,
            0,
        ),
        ("llm_as_a_verifier/terminal_bench_2.0_forge/", "verifier_pool", 80, 2529, 56, 24, 0),
        ("tau_bench/historical_trajectories/", "tau_bench", 152, 1862, 73, 79, 0),
        ("tau_bench/docent_sample/", "tau_bench", 1, 20, 0, 1, 0),
        ("multi_swe_bench/", "swe_agent", 79, 1597, 17, 46, 16),
        ("terminal_bench_leaderboard/", "asciinema", 17, 305, 8, 9, 0),
        ("codetracer/claude_code/", "asciinema", 32, 338, 14, 18, 0),
        ("codetracer/kimi_k2.5/", "atif", 28, 485, 2, 26, 0),
        ("swe_agent/", "swe_agent", 22, 232, 0, 0, 22),
        ("swe_agent_v1_sonnet/", "swe_agent", 3, 40, 0, 0, 3),
        ("mini_swe_agent/", "mini_swe_agent", 3, 23, 0, 0, 3),
        ("inspect_logs/", "inspect", 274, 424, 189, 75, 10),
        ("openhands/", "openhands", 10, 145, 0, 0, 10),
    ],
)
def test_runs_steps_and_outcomes(
    converted: Converted, start: str, format: str, runs: int, steps: int, passed: int, failed: int, unknown: int
) -> None:
    found = converted.of(start)
    assert {run.format for run in found} == {format}
    outcomes = Counter(run.passed for run in found)
    assert (len(found), outcomes[True], outcomes[False], outcomes[None]) == (runs, passed, failed, unknown)
    assert sum(run.steps for run in found) == steps


def spread(values: Iterable[int]) -> tuple[int, int, int]:
    """Least, median (a half is rounded up) and greatest, as the data's description gives them."""
    known = sorted(values)
    return known[0], int(statistics.median(known) + 0.5), known[-1]


@pytest.mark.parametrize(
    ("start", "least", "median", "greatest"),
    [
        ("agentprocessbench/", 1, 3, 30),
        ("agenterrorbench_gaia/", 1, 6, 30),
        ("tau_bench/historical_trajectories/", 2, 11, 30),
        ("multi_swe_bench/", 1, 15, 59),
        ("swe_agent/", 4, 11, 21),  # the one of 5 steps has a history alone, so its `trajectory` has 0
    ],
)
def test_steps_of_a_run(converted: Converted, start: str, least: int, median: int, greatest: int) -> None:
    assert spread(run.steps for run in converted.of(start)) == (least, median, greatest)


@pytest.mark.parametrize(
    ("start", "least", "median", "greatest", "task"),
    [
        ("who_and_when/Algorithm-Generated/", 5, 10, 10, 0),
        ("who_and_when/Hand-Crafted/", 5, 32, 130, 1),
        ("agentrx/magentic_dataset/", 5, 32, 130, 1),
        ("tracertraj_code/", 10, 13, 100, 0),
    ],
)
def test_messages_of_a_run(converted: Converted, start: str, least: int, median: int, greatest: int, task: int) -> None:
    """Where a message is a step or an observation; `task` of them, the human's, come in front of the first step."""
    assert spread(run.messages + task for run in converted.of(start)) == (least, median, greatest)


@pytest.mark.parametrize(
    ("start", "least", "median", "greatest"),
    [
        ("llm_as_a_verifier/terminal_bench_2.0_capy_gpt-5.5/", 7, 22, 119),
        ("llm_as_a_verifier/terminal_bench_2.1_mini-swe-agent_deepseek-v4-flash/", 9, 34, 221),
        ("llm_as_a_verifier/terminal_bench_2.0_forge/", 11, 25, 144),
        ("codetracer/kimi_k2.5/", 4, 28, 108),
    ],
)
def test_entries_of_the_agent(converted: Converted, start: str, least: int, median: int, greatest: int) -> None:
    assert spread(run.entries for run in converted.of(start)) == (least, median, greatest)


@pytest.mark.parametrize(
    ("start", "tasks", "mixed", "mean", "oracle"),
    [
        ("agentprocessbench/", 33, None, None, None),
        ("llm_as_a_verifier/terminal_bench_2.0_capy_gpt-5.5/", 60, 14, 0.813, 0.917),
        ("llm_as_a_verifier/terminal_bench_2.1_mini-swe-agent_deepseek-v4-flash/", 22, 17, 0.655, 1.0),
        ("llm_as_a_verifier/terminal_bench_2.0_forge/", 16, 10, 0.7, 0.938),
        ("tau_bench/historical_trajectories/", 38, 20, 0.480, 0.763),
        ("multi_swe_bench/", 16, 11, 0.271, 0.688),
        ("codetracer/claude_code/", 8, 8, None, None),
        ("terminal_bench_leaderboard/", 4, None, None, None),
    ],
)
def test_tasks_and_how_many_can_be_passed(
    converted: Converted, start: str, tasks: int, mixed: int | None, mean: float | None, oracle: float | None
) -> None:
    """Runs that were not evaluated are no failures: they count neither way."""
    known: dict[str | None, list[bool]] = defaultdict(list)
    for run in converted.of(start):
        known[run.task] += [] if run.passed is None else [run.passed]
    assert len(known) == tasks
    if mixed is not None:
        assert sum(len(set(outcomes)) == 2 for outcomes in known.values()) == mixed
    if mean is not None:
        means = [statistics.mean(outcomes) for outcomes in known.values()]
        assert round(statistics.mean(means), 3) == mean
        assert round(statistics.mean(any(outcomes) for outcomes in known.values()), 3) == oracle


@pytest.mark.parametrize(
    ("start", "files"),
    [
        ("agentprocessbench/AnswerOnly/", 4),
        ("agentprocessbench/llm_judges/", 4),
        ("agentrx/ground_truth/", 2),
        ("agenterrorbench_gaia/gaia_labels.json", 1),
        ("trail_sample/", 2),
        ("openhands/sdk_llm_logs/", 10),
        ("openhands/swe_bench_example_model_output.json", 1),
        ("multi_swe_bench/outcomes.jsonl", 1),
        ("mini_swe_agent/tests/results.json", 1),
        ("inspect_logs/", 2),
        ("harbor_atif/", 8),
        ("swe_agent/", 4),
        ("llm_as_a_verifier/", 0),
        ("who_and_when/", 0),
        ("tau_bench/", 0),
        ("tracertraj_code/", 0),
    ],
)
def test_files_that_hold_no_run_are_refused(converted: Converted, start: str, files: int) -> None:
    """Labels, predictions, results, logs of single calls, samples made of runs that are there, aborted evaluations."""
    assert sum(name.startswith(start) for name in converted.refused) == files
