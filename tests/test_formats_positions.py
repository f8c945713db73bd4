"""Which step an original message became."""

from __future__ import annotations

import json
from pathlib import Path

from scout import formats
from scout.formats.positions import step_of_message


def test_a_message_leads_to_its_step_and_the_task_to_none(tmp_path: Path) -> None:
    roles = ["system", "user", "assistant", "user", "assistant", "user", "user", "assistant"]
    file = tmp_path / "run.json"
    file.write_text(json.dumps([{"role": role, "content": f"{role} {at}"} for at, role in enumerate(roles)]))
    (run,) = formats.load(file)
    assert run.meta["messages"] == [[2, 3], [4, 5, 6], [7]]
    assert [step_of_message(run, at) for at in range(9)] == [None, None, 1, 1, 2, 2, 2, 3, None]
    assert [step.source_ref for step in run.steps] == [
        "run.json:2",
        "run.json:4",
        "run.json:7",
    ]


def test_every_label_of_hotpotqa_leads_to_a_step_of_its_own(shared_data: Path) -> None:
    file = shared_data / "agentprocessbench/hotpotqa.jsonl"
    runs = list(formats.load(file, "chat"))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(runs) == 165 and len({run.id for run in runs}) == 165 and len({run.task.id for run in runs}) == 33
    labels = 0
    for run, row in zip(runs, rows, strict=True):
        at = [step_of_message(run, int(key)) for key in row["step_labels"]]
        assert sorted(step for step in at if step) == list(range(1, len(run.steps) + 1))
        assert run.outcome.passed is {1: True, -1: False}.get(row["final_label"])
        labels += len(at)
    assert labels == 493
