"""The demo's driver on trivial commands: what is kept, what runs again, and how it stops."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from data_prep import explain
from eval import base_model, demo, seeds, serve_once, slices, tells
from eval.stages import Runner, Stage
from scout import cli, config, trajectory
from scout.errors import INTERRUPTED, MACHINERY, OK, UNSCORED, InputError, ServerError
from scout.trajectory import Step
from tests.eval_toy import TEST, write_folder

ROOT = Path(__file__).resolve().parent.parent


def _count(path: Path, code: int = 0) -> tuple[str, ...]:
    """A command that adds a character to a file and ends with that exit code."""
    script = f"import sys; open({str(path)!r}, 'a').write('x'); sys.exit({code})"
    return (sys.executable, "-c", script)


class _Job:
    """Two stages; the first reads a recipe. Logs beside the run folder count how often each command ran."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.run.mkdir()
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text("lr: 1")
        self.logs = (folder / "first.log", folder / "second.log")
        self.outputs = (self.run / "first", self.run / "second")

    def stages(self, code: int = 0) -> list[Stage]:
        first = Stage("first", "counts", 1.0, (_count(self.logs[0]), _count(self.outputs[0])), (self.outputs[0],),
                      (self.recipe,))  # fmt: skip
        second = Stage("second", "counts too", 1.0, (_count(self.logs[1], code), _count(self.outputs[1])),
                       (self.outputs[1],))  # fmt: skip
        return [first, second]

    def go(self, code: int = 0) -> int:
        return Runner(self.run).run(self.stages(code))

    def counts(self) -> tuple[int, ...]:
        return tuple(len(log.read_text()) if log.exists() else 0 for log in self.logs)


@pytest.fixture
def job(tmp_path: Path) -> _Job:
    return _Job(tmp_path)


def test_finished_stages_are_kept(job: _Job, capfd: pytest.CaptureFixture[str]) -> None:
    assert (job.go(), job.go()) == (OK, OK)
    assert job.counts() == (1, 1)
    said = capfd.readouterr()
    assert "done before" in said.err
    assert said.out == "", "talk goes to stderr"


def test_a_changed_recipe_runs_its_stage_and_all_later_ones_again(job: _Job) -> None:
    job.go()
    job.recipe.write_text("lr: 2")
    assert job.go() == OK
    assert job.counts() == (2, 2)
    assert job.outputs[0].read_text() == "x", "the old output was removed first"


def test_a_lost_output_is_made_again(job: _Job) -> None:
    job.go()
    job.outputs[1].unlink()
    assert job.go() == OK
    assert job.counts() == (1, 2)


def test_a_failing_stage_stops_the_job_and_is_tried_again(job: _Job, capfd: pytest.CaptureFixture[str]) -> None:
    assert job.go(code=5) == 5
    assert "goes on from here" in capfd.readouterr().err
    assert not job.outputs[1].exists()
    assert job.go() == OK
    assert job.counts() == (1, 2), "the finished first stage is kept"


def test_unscored_runs_do_not_stop_the_job(job: _Job) -> None:
    assert job.go(code=UNSCORED) == OK


def test_a_command_that_ends_well_without_its_output_is_a_failure(tmp_path: Path) -> None:
    stage = Stage("empty", "does nothing", 1.0, ((sys.executable, "-c", ""),), (tmp_path / "nothing",))
    assert Runner(tmp_path).run([stage]) == MACHINERY


def test_training_keeps_its_folder_unless_its_inputs_changed(job: _Job) -> None:
    kept = job.run / "train"
    script = f"import pathlib; p = pathlib.Path({str(kept)!r}); p.mkdir(exist_ok=True); (p / 's').open('a').write('x')"
    unfinished = (sys.executable, "-c", f"{script}; raise SystemExit(5)")
    stage = Stage("train", "trains", 1.0, (unfinished,), (kept / "final",), (job.recipe,), kept)
    assert [Runner(job.run).run([stage]) for _ in range(2)] == [5, 5]
    assert (kept / "s").read_text() == "xx", "same inputs: the command finds what it left"
    job.recipe.write_text("lr: 3")
    assert Runner(job.run).run([stage]) == 5
    assert (kept / "s").read_text() == "x", "other inputs: stale state is removed"


def test_nothing_outside_the_run_folder_is_removed(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    outside.write_text("mine")
    stage = Stage("careful", "", 1.0, ((sys.executable, "-c", ""),), (outside,))
    assert Runner(run).run([stage]) == OK
    assert outside.read_text() == "mine"


def test_a_half_written_marker_means_not_done(job: _Job) -> None:
    job.go()
    (job.run / ".stages" / "second.json").write_text('{"inputs": "ab')
    assert job.go() == OK
    assert job.counts() == (1, 2)


SLEEPER = """
import sys
from collections.abc import Sequence
from pathlib import Path
from eval.stages import Runner, Stage
run = Path(sys.argv[1])
out = run / "out"
script = f"import time; print('up', flush=True); time.sleep({sys.argv[2]}); open({str(out)!r}, 'w')"
command = (sys.executable, "-c", script)
sys.exit(Runner(run).run([Stage("sleep", "sleeps", 1.0, (command,), (out,))]))
"""


def test_ctrl_c_ends_the_command_with_130_and_the_job_goes_on_later(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", SLEEPER, str(tmp_path)]
    process = subprocess.Popen(
        [*words, "60"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    while (line := process.stderr.readline()) != "up\n":  # the line that shows the command holds the word too
        assert line, "the command never started"
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends Ctrl-C to the whole group
    said = process.communicate(timeout=30)[1]
    assert process.returncode == INTERRUPTED, said
    assert time.monotonic() - begin < 10
    assert "goes on from here" in said
    assert not (tmp_path / "out").exists()
    assert subprocess.run([*words, "0"], cwd=ROOT, env=environment, timeout=60).returncode == OK
    assert (tmp_path / "out").exists()


def test_the_plan_has_all_stages_in_order_and_passes_the_seed_on(tmp_path: Path) -> None:
    stages = demo.plan(tmp_path / "run", 7)
    assert [stage.name for stage in stages] == list(demo.SECONDS)
    words = {stage.name: [word for command in stage.commands for word in command] for stage in stages}
    assert "trainer.seed=7" in words["sft"] and "trainer.seed=7" in words["grpo"]
    assert "--resume" in words["sft"]
    assert words["collect"] == [word for stage in demo.plan(tmp_path / "run", 8)[:1] for word in stage.commands[0]]
    assert sum(demo.SECONDS.values()) <= 25 * 60, "what the README promises"


def test_every_command_of_the_plan_is_understood_by_its_verb(tmp_path: Path) -> None:
    commands = [command for stage in demo.plan(tmp_path, 0, fast=True) for command in stage.commands]
    verbs = [command[1:] for command in commands if Path(command[0]).name == "scoutv"]
    assert [words[0] for words in verbs] == ["train", "train", "score", "score", "score", "export"]
    for verb, *words in verbs:
        parser = argparse.ArgumentParser()
        importlib.import_module(cli.VERBS[verb].module).configure(parser)
        parser.parse_args(words)


def test_the_demo_refuses_to_start_outside_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo.main([]) == 1
    assert "root of a checkout" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_slices_keep_labels_and_hide_the_number_of_a_step() -> None:
    alone = slices.without_history(TEST, per_class=2, seed=1)
    assert len(alone) == 4
    by_id = {run.id: run for run in TEST}
    for row in alone:
        name, number = row.id.rsplit("#", 1)
        gold = by_id[name].labels
        assert gold is not None and row.labels is not None
        assert row.labels.step_labels[0] == gold.step_labels[int(number) - 1]
        assert row.steps[0].index == 1 and row.outcome.passed is None
        assert not trajectory.problems(row)
    assert alone == slices.without_history(TEST, per_class=2, seed=1)
    assert {run.task.id for run in slices.first_tasks(TEST, 2)} == {"t1", "t2"}


def texts(steps: Sequence[Step]) -> list[tuple[str, str, str]]:
    return [(step.thought, step.action, step.observation) for step in steps]


def test_a_lone_step_is_followed_by_the_beginning_of_another_task() -> None:
    """A prompt of one step is a shape that training never shows; all 400 lone steps were unreadable."""
    by_id = {run.id: run for run in TEST}
    for row in slices.without_history(TEST, per_class=5, seed=1):
        assert [step.index for step in row.steps] == [1, 2]
        assert row.labels is not None and row.labels.step_labels[1:] == ("unlabelled",)
        task = by_id[row.id.rsplit("#", 1)[0]].task
        others = [texts(run.steps[:1]) for run in TEST if run.task != task]
        assert texts(row.steps[1:]) in others


def test_modules_end_on_ctrl_c_with_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(slices.run_files, "load_split", interrupted)
    monkeypatch.setattr(base_model, "make", interrupted)
    assert slices.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == INTERRUPTED
    assert base_model.main(["--weights", "a", "--like", "b", "--out", str(tmp_path / "out")]) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\ninterrupted\n"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (explain, ["--data", "HERE", "--out", "HERE/rows"]),
        (seeds, ["HERE"]),
        (slices, ["--data", "HERE", "--out", "HERE/slices"]),
        (tells, ["HERE/runs.jsonl"]),
    ],
)
def test_a_name_with_escapes_cannot_steer_the_terminal(
    module: ModuleType, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "a\x1b[2J\x9b31m"
    here.mkdir()
    assert module.main([word.replace("HERE", str(here)) for word in words]) == 1
    said = capsys.readouterr().err
    assert "\\x1b[2J\\x9b31m" in said and "\x1b" not in said and "\x9b" not in said


def test_a_broken_report_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ('{"stages": ', "{}", "[]"):
        (tmp_path / "report.json").write_text(content)
        assert seeds.main([str(tmp_path)]) == 1
        assert "is no report" in capsys.readouterr().err


def test_slices_refuse_splits_that_share_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, {})
    trajectory.write(tmp_path / "data" / "train.jsonl.zst", TEST)
    words = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "slices")]
    assert slices.main(words) == 1
    assert "leak" in capsys.readouterr().err
    assert not (tmp_path / "slices").exists()


def test_base_model_is_the_start_weights_with_the_trained_models_settings(tmp_path: Path) -> None:
    weights, trained, base = tmp_path / "weights", tmp_path / "final", tmp_path / "base"
    weights.mkdir()
    trained.mkdir()
    settings = config.ScoutConfig(
        fingerprint="f",
        prompt_version="1",
        style="brief",
        window_steps=4,
        task_tokens=0,
        prompt_tokens=256,
        completion_tokens=128,
    )
    config.write_scout(trained, settings)
    with pytest.raises(InputError, match="no folder of weights"):
        base_model.make(weights, trained, base)
    (weights / "config.json").write_text("{}")
    for _ in range(2):
        base_model.make(weights, trained, base)
        assert config.read_scout(base) == settings
        assert (base / "config.json").read_text() == "{}"


def test_a_server_that_dies_during_start_is_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(4)"])
    with pytest.raises(ServerError, match="exit code 4"):
        serve_once.wait_until_ready(process, f"http://127.0.0.1:{serve_once.free_port()}")


def test_a_server_that_stays_silent_is_given_up() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with pytest.raises(ServerError, match="did not answer"):
            serve_once.wait_until_ready(process, f"http://127.0.0.1:{serve_once.free_port()}", timeout_seconds=1)
    finally:
        process.kill()
        process.wait()
