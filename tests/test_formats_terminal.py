"""Terminal recordings and Terminal-Bench trials: what was on the screen, whose command it was, how it ended."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scout import formats
from scout.errors import FormatError
from scout.formats.terminal import Terminal
from scout.trajectory import Outcome, Trajectory

FIXTURES = Path(__file__).parent / "fixtures"
RESULT = {
    "id": "1",
    "trial_name": "bake.1-of-1.now",
    "task_id": "bake",
    "instruction": "Bake bread.",
    "is_resolved": True,
    "failure_mode": "agent_timeout",
    "recording_path": "x",
}
MINI = [
    "$ mini -t 'Bake bread.'",
    "System:",
    "User:",
    "Please solve this issue: Bake bread.",
    "mini-swe-agent (step 1, $0.00):",
    "THOUGHT: I look first.",
    "```bash",
    "ls",
    "```",
    "User:",
    "<returncode>0</returncode>",
    "oven",
    "mini-swe-agent (step 2, $0.01):",
    "THOUGHT: I am done.",
    "Saved trajectory to '/root/last.json'",
]


def cast(path: Path, events: Sequence[tuple[str, str]], **header: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"version": 2, "width": 80, "height": 5, **header}, *([0.1, kind, data] for kind, data in events)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def trial(folder: Path, events: Sequence[tuple[str, str]] = (), **result: Any) -> Path:
    (folder / "results.json").write_text(json.dumps({**RESULT, **result}))
    if events:
        cast(folder / "sessions" / "agent.cast", events)
    return folder / "results.json"


def load(path: Path) -> Trajectory:
    (run,) = formats.load(path)
    return run


def test_commands_become_actions_and_the_screen_is_undone() -> None:
    assert formats.detect(FIXTURES / "asciinema/kitchen.cast") == "asciinema"
    run = load(FIXTURES / "asciinema/kitchen.cast")
    assert [(step.action, step.observation) for step in run.steps] == [
        ("ls", "oven  shelf\ncook@inn:/app#"),
        ("bake", "done\nA line that is longer than the forty columns of it.\ncook@inn:/app#"),
        ("vim plan", "bread\n~"),
        ("ibread^[:wq", "cook@inn:/app#"),
        ("sleep 9", ""),
        ("^C", "cook@inn:/app#"),
    ]
    lines = (FIXTURES / "asciinema/kitchen.cast").read_text().splitlines()
    for step in run.steps:
        assert json.loads(lines[int(str(step.source_ref).rpartition(":")[2]) - 1])[1] == "i"


def test_without_typed_input_prompts_tell_the_commands(tmp_path: Path) -> None:
    shown = "root@box:/app# ls\r\noven\r\nroot@box:/app# bake\r\nbread\r\nroot@box:/app# "
    run = load(cast(tmp_path / "run.cast", [("o", shown)]))
    assert [(step.action, step.observation) for step in run.steps] == [
        ("ls", "oven"),
        ("bake", "bread\nroot@box:/app#"),
    ]


def test_a_trial_gives_task_and_outcome_and_its_own_commands_are_no_steps(tmp_path: Path) -> None:
    """A run that the clock stopped can be resolved all the same."""
    events = [("i", "clear\r"), ("i", "source /installed-agent/setup.sh; tmux wait -S done\r"), ("i", "bake\r")]
    events += [("o", "bread\r\n"), ("i", "look\r"), ("i", "eat\r"), ("i", "\x04")]
    result = trial(tmp_path, events)
    for path in (result, tmp_path / "sessions/agent.cast"):
        run = load(path)
        assert (run.id, run.task.id, run.task.text) == ("bake.1-of-1.now", "bake", "Bake bread.")
        assert (run.outcome, run.meta["failure_mode"]) == (Outcome(True), "agent_timeout")
        assert [step.action for step in run.steps] == ["bake", "look", "eat"]
        assert run.meta["left_out"] == ["3 commands of the harness"]


@pytest.mark.parametrize("resolved", [True, False, None])
def test_not_tested_is_not_failed(tmp_path: Path, resolved: bool | None) -> None:
    assert load(trial(tmp_path, [("i", "bake\r")], is_resolved=resolved)).outcome.passed is resolved


def test_the_tests_in_the_same_terminal_are_never_shown(tmp_path: Path) -> None:
    """After a time-out the tests run in the agent's own terminal; their output would give the outcome away."""
    events = [("o", "\r\n".join(MINI[:12]) + "\r\n"), ("i", "\x03"), ("i", "bash "), ("i", "/tests/run-tests.sh\r")]
    events += [("o", "bash /tests/run-tests.sh\r\n1 failed\r\n")]
    run = load(trial(tmp_path, events))
    assert len(run.steps) == 1
    assert "failed" not in run.steps[0].observation
    assert "1 runs of the tests in the same terminal" in run.meta["left_out"]


def test_turns_that_mini_swe_agent_printed_are_the_steps(tmp_path: Path) -> None:
    run = load(trial(tmp_path, [("i", "mini -t x\r"), ("o", "\r\n".join(MINI) + "\r\nroot@box:/app# ")]))
    first, last = run.steps
    assert (first.thought, first.action) == ("THOUGHT: I look first.", "ls")
    assert first.observation == "<returncode>0</returncode>\noven"
    assert (last.thought, last.action, last.observation) == ("THOUGHT: I am done.", "", "")
    assert run.meta["harness"] == "mini-swe-agent"
    assert run.meta["left_out"] == ["1 typed commands around the agent's own turns", "6 other lines of the terminal"]


def test_the_stream_that_claude_code_printed_is_read_over_wrapped_lines(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls " + "x" * 200}}
    back = {"type": "tool_result", "tool_use_id": "t1", "content": "oven"}
    entries = [
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "assistant", "message": {"id": "m1", "content": [call]}, "session_id": "s"},
        {"type": "user", "message": {"role": "user", "content": [back]}, "session_id": "s"},
        {
            "type": "assistant",
            "message": {"id": "m2", "content": [{"type": "text", "text": "Done."}]},
            "session_id": "s",
        },
    ]
    texts = [json.dumps(entry, separators=(",", ":")) for entry in entries]
    events = [("i", "claude -p x\r"), *(("o", f"a note\r\n{text}\r\n") for text in texts), ("o", '{"type":"result","a')]
    run = load(trial(tmp_path, events))
    assert [step.action for step in run.steps] == ["Bash " + json.dumps(call["input"], separators=(",", ":")), ""]
    assert (run.steps[0].observation, run.steps[1].thought) == ("oven", "Done.")
    assert [step.source_ref for step in run.steps] == ["agent.cast:4", "agent.cast:6"]
    assert (run.id, run.task.text, run.meta["harness"]) == ("bake.1-of-1.now", "Bake bread.", "claude-code")
    assert "1 printed entries that are not whole" in run.meta["left_out"]


def test_without_a_recording_the_pane_and_then_the_commands_are_read(tmp_path: Path) -> None:
    result = trial(tmp_path)
    with pytest.raises(FormatError, match="a trial without a recorded run"):
        list(formats.load(result))
    commands = [
        "['clear', 'Enter']",
        "['bake', 'Enter']",
        "['bash ', '/tests/run-tests.sh', 'Enter']",
        "['C-d']",
        "look",
    ]
    (tmp_path / "commands.txt").write_text("\n".join(commands))
    run = load(result)
    assert [(step.action, step.source_ref) for step in run.steps] == [
        ("bake", "commands.txt:2"),
        ("look", "commands.txt:5"),
    ]
    assert "nothing is known of what came back" in run.meta["warnings"][0]
    (tmp_path / "panes").mkdir()
    (tmp_path / "panes/post-agent.txt").write_text("\n".join(MINI))
    assert [step.action for step in load(result).steps] == ["ls", ""]


@pytest.mark.parametrize(
    ("header", "event", "told"),
    [
        ({"width": 10**9}, [0.1, "o", "x"], "width, height: found 1000000000 x 5; allowed: 1 to 1000 each"),
        ({"version": 3}, [0.1, "o", "x"], "version"),
        ({}, [0.1, "o"], "an event of 2 values"),
        ({}, {"a": 1}, "run.cast:2"),
        ({}, [0.1, "o", "x"], "no typed command and no line with a shell prompt"),
    ],
)
def test_a_bad_recording_is_refused_with_its_place(
    tmp_path: Path, header: dict[str, Any], event: Any, told: str
) -> None:
    path = tmp_path / "run.cast"
    path.write_text("\n".join(map(json.dumps, [{"version": 2, "width": 80, "height": 5, **header}, event])))
    with pytest.raises(FormatError, match=r"run\.cast") as caught:
        list(formats.load(path, "asciinema"))
    assert told in str(caught.value)


def test_control_sequences_that_make_no_sense_lose_one_event_at_most() -> None:
    terminal = Terminal(20, 3)
    for at, text in enumerate(
        ["one\r\n", "\x1b[?1;2;3r\x1b[99999999999L\x1b[;;;;H\x1b[?99999h\x1b[38;5m", "\x1bc", "two\r\n"]
    ):
        terminal.feed(text, at)
    texts = [line.text for line in terminal.taken()]
    assert texts[0] == "one"
    assert texts[-1].endswith("two")


def test_four_thousand_events_are_fast(tmp_path: Path) -> None:
    events = [("o", f"\r\x1b[K{number}% [{'#' * 60}]") for number in range(3900)]
    events += [("o", "x" * 70 + "\r\n")] * 100 + [("i", "ls\r"), ("o", "oven\r\n")]
    path = cast(tmp_path / "run.cast", events, width=160, height=40)
    begin = time.perf_counter()
    assert load(path).steps[0].observation == "oven"
    assert time.perf_counter() - begin < 20


@pytest.mark.data
@pytest.mark.parametrize(
    ("pattern", "count", "tasks", "passed", "steps", "late"),
    [
        ("codetracer/claude_code/*/*/*/results.json", 32, 8, 14, (1, 11, 23), 0),
        ("terminal_bench_leaderboard/*/*/*/*/results.json", 17, 4, 8, (9, 18, 36), 9),
    ],
)
def test_public_recordings(
    shared_data: Path,
    pattern: str,
    count: int,
    tasks: int,
    passed: int,
    steps: tuple[int, float, int] | None,
    late: int,
) -> None:
    files = sorted(shared_data.glob(pattern))
    runs = [run for file in files for run in formats.load(file)]
    assert len(runs) == count == len({run.id for run in runs})
    assert len({run.task.id for run in runs}) == tasks
    assert Counter(run.outcome.passed for run in runs)[True] == passed
    assert sum(run.meta.get("failure_mode") == "agent_timeout" for run in runs) == late
    found = [len(run.steps) for run in runs]
    assert steps in (None, (min(found), statistics.median(found), max(found)))
    for run in runs:
        assert not any("short test summary" in step.observation for step in run.steps)
