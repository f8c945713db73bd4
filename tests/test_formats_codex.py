"""Codex session files, with and without envelopes."""

from __future__ import annotations

from pathlib import Path

import pytest

from scout import formats
from scout.errors import FormatError
from scout.trajectory import Trajectory

FIXTURES = Path(__file__).parent / "fixtures/codex"


def load(name: str) -> Trajectory:
    assert formats.detect(FIXTURES / name) == "codex"
    (run,) = formats.load(FIXTURES / name)
    return run


def test_what_was_written_between_two_results_is_one_step() -> None:
    run = load("rollout.jsonl")
    assert run.id == "c-1" and run.task.text == "Ask nobody.\n\nFix the bug."
    looked, patched, said = run.steps
    assert looked.thought == "Look first.\nI look."
    assert looked.action == ('shell {"command": ["cat", "a.py"]}\nlocal_shell {"type":"exec","command":["ls"]}')
    assert looked.observation == "shell: x = 1\nlocal_shell: a.py"
    assert looked.source_ref == "rollout.jsonl:6,7,8,9"
    assert patched.action == "apply_patch *** Begin Patch"
    assert patched.observation == '{"output":"Success"}\nSo far: patched.'
    assert (said.thought, run.outcome.passed) == ("It is fixed.", None)


def test_what_is_no_item_is_counted_and_a_rollback_is_told() -> None:
    run = load("rollout.jsonl")
    assert run.meta["agent_model"] == "a-model" and run.meta["harness_version"] == "0.99.0"
    assert run.meta["warnings"] == ["step 3: turns were taken back; they still stand here"]
    assert set(run.meta["left_out"]) == {
        "1 system prompts or instructions of the session",
        "1 turn_context lines",
        "3 event_msg lines",
        "1 items without text, such as encrypted reasoning",
        "1 ghost_snapshot items",
        "1 histories put in place of the past by a compaction",
    }


def test_bare_items_of_old_files() -> None:
    run = load("rollout-bare.jsonl")
    assert run.id == "c-0" and run.task.text == "List the files."
    assert [(step.thought, step.action, step.observation) for step in run.steps] == [
        ("", "shell {}", "a.py"),
        ("There is a.py.", "", ""),
    ]
    assert "2 marks of the session's state" in run.meta["left_out"]


def test_a_session_with_two_heads_says_so(tmp_path: Path) -> None:
    text = (FIXTURES / "rollout.jsonl").read_text()
    (tmp_path / "fork.jsonl").write_text(text.splitlines()[0].replace("c-1", "c-2") + "\n" + text)
    (run,) = formats.load(tmp_path / "fork.jsonl")
    assert run.id == "c-2" and "2 session heads: the past of another session was copied in" in run.meta["warnings"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"type": "response_item", "payload": {"type": "message", "role": "user", "content": 3}}',
            r"a\.jsonl:2.*content",
        ),
        ('{"type": "response_item", "payload": ', r"a\.jsonl:2"),
        ("", "no item of the model"),
    ],
)
def test_bad_lines_are_refused_with_their_place(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"type": "session_meta", "payload": {"id": "s"}}\n' + line)
    with pytest.raises(FormatError, match=told):
        list(formats.load(tmp_path / "a.jsonl"))
