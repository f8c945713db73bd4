"""Inspect logs: samples as runs, their scores, and archives that are damaged or too large."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scout import formats, trajectory
from scout.errors import FormatError, ScoutError
from scout.formats import archive
from scout.formats.positions import step_of_message
from scout.trajectory import Trajectory

LOG = Path(__file__).parent / "fixtures/inspect/log.json"


def content() -> dict[str, Any]:
    log: dict[str, Any] = json.loads(LOG.read_text())
    return log


def zipped(path: Path, log: dict[str, Any], header: str = "header.json") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for sample in log["samples"]:
            file.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        file.writestr("summaries.json", "[]")
        file.writestr(header, json.dumps({key: value for key, value in log.items() if key != "samples"}))
    return path


def load(path: Path) -> list[Trajectory]:
    assert formats.detect(path) == "inspect"
    return list(formats.load(path))


@pytest.mark.parametrize("kind", ["json", "eval", "journal"])
def test_each_sample_and_epoch_is_a_run(tmp_path: Path, kind: str) -> None:
    header = "_journal/start.json" if kind == "journal" else "header.json"
    file = LOG if kind == "json" else zipped(tmp_path / "log.eval", content(), header)
    runs = load(file)
    assert [run.id for run in runs] == ["log:1:1", "log:1:2", "log:two:1"]
    assert [run.task.id for run in runs] == ["reading:1", "reading:1", "reading:two"]
    assert [run.outcome.passed for run in runs] == [True, False, None]
    assert runs[0].task.text == "Use tools.\n\nWhat is in a.txt?" and runs[0].meta["agent_model"] == "a-model"
    read, slept, said = runs[0].steps
    assert (read.thought, read.action) == ("I read it.\nReading.", 'bash {"cmd":"cat a.txt"}')
    assert said.thought == "It says hello."
    assert slept.observation == "timeout: Too slow.\nPlease go on."
    place = "log.json:0" if kind == "json" else "log.eval:samples/1_epoch_1.json"
    assert [step.source_ref for step in runs[0].steps] == [f"{place}:2", f"{place}:4", f"{place}:7"]
    assert [step_of_message(runs[0], at) for at in (1, 2, 3, 6, 7)] == [None, 1, 1, 2, 3]


def test_attachments_are_put_back_and_a_lost_one_stays_named() -> None:
    first, _, third = load(LOG)
    assert first.steps[0].observation == "hello\n" and third.steps[0].observation == "attachment://h1"


def test_target_and_explanation_are_no_part_of_a_run() -> None:
    runs = load(LOG)
    assert not any("secret" in trajectory.dumps(run) for run in runs)
    assert "target" in " ".join(runs[0].meta["left_out"])


def test_a_sample_without_the_model_is_told_and_a_limit_warned_of() -> None:
    first, second, _ = load(LOG)
    assert first.meta["left_out"][-1] == "samples of this log in which the model never spoke: three:1"
    assert "never spoke" not in " ".join(second.meta["left_out"])
    assert "the sample was stopped by a limit: 'message'" in second.meta["warnings"]


@pytest.mark.parametrize(
    ("values", "passed", "score"),
    [
        (["C"], True, 1.0),
        (["I"], False, 0.0),
        (["N"], False, 0.0),
        (["P"], None, 0.5),
        ([1], True, 1.0),
        ([0.25], None, 0.25),
        ([True], True, None),
        ([float("nan")], None, None),
        ([None], None, None),
        (["maybe"], None, None),
        ([{"a": 1}], None, None),
        (["C", "C"], True, None),
        (["C", "I"], None, None),
        ([], None, None),
    ],
)
def test_scores(tmp_path: Path, values: list[Any], passed: bool | None, score: float | None) -> None:
    log = content()
    log["samples"] = log["samples"][:1]
    log["samples"][0]["scores"] = {f"s{number}": {"value": value} for number, value in enumerate(values)}
    (tmp_path / "a.json").write_text(json.dumps(log))
    (run,) = load(tmp_path / "a.json")
    assert (run.outcome.passed, run.outcome.score) == (passed, score)


def test_no_answer_is_a_verdict_and_said(tmp_path: Path) -> None:
    log = content()
    log["samples"] = log["samples"][:1]
    log["samples"][0]["scores"] = {"judge": {"value": "N"}}
    (tmp_path / "a.json").write_text(json.dumps(log))
    (run,) = load(tmp_path / "a.json")
    assert run.outcome.passed is False
    assert any("no answer or refusal" in note for note in run.meta["warnings"])


@pytest.mark.parametrize("samples", [None, [], [{"id": 1, "messages": []}]])
def test_a_log_without_the_model_is_refused(tmp_path: Path, samples: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**content(), "status": "cancelled", "samples": samples}))
    with pytest.raises(FormatError, match=r"no message of the model .status cancelled"):
        list(formats.load(tmp_path / "a.json"))


def test_one_bad_sample_refuses_the_log_with_its_place(tmp_path: Path) -> None:
    log = content()
    log["samples"][1]["messages"][3]["role"] = 7
    with pytest.raises(FormatError, match=r"samples/1_epoch_2\.json:messages\[3\]: role"):
        list(formats.load(zipped(tmp_path / "a.eval", log)))


def test_archives_that_are_no_log_damaged_or_encrypted_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.eval"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a.txt", "text")
    with pytest.raises(FormatError, match="No reader knows"):
        formats.detect(other)
    whole = zipped(tmp_path / "whole.eval", content()).read_bytes()
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="damaged zip"):
        list(formats.load(tmp_path / "cut.eval"))
    locked = bytearray(whole)
    at = locked.rindex(b"PK\x01\x02")
    locked[at + 8] |= 1
    (tmp_path / "locked.eval").write_bytes(bytes(locked))
    with pytest.raises(FormatError, match=r"header\.json.*cannot be unpacked"):
        list(formats.load(tmp_path / "locked.eval"))


@pytest.mark.parametrize(
    ("name", "limit", "told"),
    [("MEMBERS", 5, "6 members"), ("MEMBER_BYTES", 1000, "bytes unpacked"), ("TOTAL_BYTES", 3000, "bytes unpacked")],
)
def test_bombs_are_refused_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int, told: str
) -> None:
    file = zipped(tmp_path / "a.eval", content())
    monkeypatch.setattr(archive, name, limit)
    with pytest.raises(FormatError, match=told):
        list(formats.load(file))


def test_a_small_archive_of_a_huge_member_is_not_unpacked_whole(tmp_path: Path) -> None:
    file = tmp_path / "bomb.eval"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("header.json", json.dumps({**content(), "samples": None}))
        with out.open("samples/1.json", "w", force_zip64=True) as member:
            for _ in range(archive.MEMBER_BYTES // (1 << 20) + 2):
                member.write(b" " * (1 << 20))
    assert file.stat().st_size < 1 << 20
    with pytest.raises(FormatError, match="bytes unpacked"):
        list(formats.load(file))


def test_public_logs(shared_data: Path) -> None:
    folder = shared_data / "inspect_logs"
    files = sorted([*folder.rglob("*.json"), *folder.rglob("*.eval")])
    runs: list[Trajectory] = []
    refused = []
    for file in files:
        try:
            runs += load(file)
        except ScoutError:
            refused.append(file.name)
    assert refused == ["2025-05-12T20-28-13-04-00_no-samples.json", "log_tool_call_error.json"]
    # 275 samples; one has neither scores nor a message of the model.
    assert len(runs) == len({run.meta["source_file"] for run in runs}) == 274
    assert Counter(run.outcome.passed for run in runs) == {True: 189, False: 75, None: 10}
    agents = load(folder / "docent/log.eval")
    assert len(agents) == 15 and sum(len(run.steps) for run in agents) == 147
    assert len({run.task.id for run in load(folder / "inspect_ai/log_streaming.eval")}) == 2
