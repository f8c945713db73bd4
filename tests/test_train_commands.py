"""`scoutv train` and `scoutv export`, for real, on a random model of two layers with its own tokenizer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from train_rows import GRPO, SFT, row, write_rows

pytest.importorskip("trl")
pytest.importorskip("peft")

from scout import cli
from scout.config import read_scout

pytestmark = pytest.mark.train

LORA = ("model.lora_rank=4", "model.lora_alpha=8")


def train(*words: object) -> int:
    """The command, in this process: importing TRL takes longer than the steps."""
    return cli.main(["train", *map(str, words)])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Place:
    """Recipes, rows and a trained SFT stage that the tests share; none of them changes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = write_rows(root / "data")
        self.sft, self.grpo = root / "sft.yaml", root / "grpo.yaml"
        self.sft.write_text(SFT)
        self.grpo.write_text(GRPO)
        self.run = root / "sft"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other make these small matrices ten times slower when another process is busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("train"))
    assert train("sft", made.sft, "--run", made.run, "--data", made.data, "trainer.max_steps=4") == 0
    return made


def test_sft_writes_a_model_its_facts_and_metrics(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    final = place.run / "final"
    assert {path.name for path in final.iterdir()} >= {"model.safetensors", "tokenizer.json", "scout.json"}
    config = read_scout(final)
    assert (config.style, config.window_steps, config.prompt_tokens) == ("brief", 4, 400)
    told = json.loads((place.run / "run.json").read_text())
    assert set(told["data"]) == {"train.jsonl", "dev.jsonl"} and told["versions"]["trl"]
    losses = [line["loss"] for line in lines(place.run / "metrics.jsonl") if "loss" in line]
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert train("sft", place.sft, "--run", place.run, "--data", place.data, "trainer.max_steps=4") == 0
    said = capsys.readouterr()
    assert "already finished" in said.err and json.loads(said.out)["already_finished"]


def test_a_finished_folder_refuses_another_recipe(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("sft", place.sft, "--run", place.run, "--data", place.data, "trainer.max_steps=5") == 2
    assert "trainer.max_steps" in capsys.readouterr().err


def test_grpo_keeps_the_best_on_dev_and_logs_replies(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.root / "grpo"
    words = ("grpo", place.grpo, "--run", run, "--data", place.data, "--model", place.run / "final")
    assert train(*words) == 0
    result = json.loads(capsys.readouterr().out)
    dev = lines(run / "dev.jsonl")
    assert [line["step"] for line in dev] == [0, 1, 2]
    best = max(dev, key=lambda line: line["reward"])
    assert (result["chosen_step"], result["dev_reward"]) == (best["step"], best["reward"])
    assert json.loads((run / "final" / "chosen.json").read_text())["step"] == best["step"]
    assert not (run / "best").exists()
    samples = lines(run / "samples.jsonl")
    assert {line["step"] for line in samples} == {1, 2} and all(0 <= line["reward"] <= 1 for line in samples)
    assert read_scout(run / "final").fingerprint == read_scout(place.run / "final").fingerprint


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_resume_ends_as_an_uninterrupted_run(place: Place, stage: str) -> None:
    """P26: four steps equal two, a stop, and two more."""
    recipe = place.sft if stage == "sft" else place.grpo
    start = () if stage == "sft" else ("--model", place.run / "final")
    keys = ("trainer.max_steps=4", "trainer.save_steps=2", "trainer.lr_scheduler_type=constant",
            "scout.dynamic_sampling=true")  # fmt: skip
    straight, stopped = place.root / f"{stage}-straight", place.root / f"{stage}-stopped"
    common = (stage, recipe, "--data", place.data, *start)
    assert train(*common, "--run", straight, *keys) == 0
    assert train(*common, "--run", stopped, *keys) == 0
    # What a kill after step 3 leaves: no result, a whole checkpoint, half of another one, logs that ran ahead.
    (stopped / "final").rename(stopped / "gone")
    (stopped / "checkpoints" / "checkpoint-4" / "trainer_state.json").unlink()
    assert train(*common, "--run", stopped, *keys) == 2
    assert train(*common, "--run", stopped, "--resume", *keys) == 0
    keep = ("step", "loss", "reward", "completions/mean_length")
    one, two = ([{key: line.get(key) for key in keep} for line in lines(run / "metrics.jsonl")]
                for run in (straight, stopped))  # fmt: skip
    assert len(one) == len(two)
    for line, other in zip(one, two, strict=True):
        assert line == pytest.approx(other, abs=1e-5)
    if stage == "grpo":
        assert lines(straight / "dev.jsonl") == lines(stopped / "dev.jsonl")


def test_lora_moves_every_adapter_and_exports_merged(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """P23 and P37: with gradient checkpointing every B matrix has left zero; merged and adapter judge alike."""
    from safetensors import safe_open

    run, out = place.root / "lora", place.root / "merged"
    words = ("--data", place.data, "--model", place.run / "final", *LORA, "trainer.gradient_checkpointing=true")
    assert train("sft", place.sft, "--run", run, *words) == 0
    with safe_open(run / "final" / "adapter_model.safetensors", framework="pt") as file:
        norms = {key: file.get_tensor(key).norm().item() for key in file.keys() if "lora_B" in key}  # noqa: SIM118
    assert len(norms) == 14 and all(norm > 0 for norm in norms.values())
    further = place.root / "lora-grpo"
    words = ("--data", place.data, "--model", run / "final", *LORA, "trainer.max_steps=1", "scout.dev_prompts=0")
    assert train("grpo", place.grpo, "--run", further, *words) == 0
    assert (further / "final" / "adapter_model.safetensors").is_file()
    capsys.readouterr()
    assert cli.main(["export", str(run / "final"), "--out", str(out)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["compared"] == 140 and result["largest_difference"] < 0.02
    names = {path.name for path in out.iterdir()}
    assert "model.safetensors" in names and not any(name.startswith("adapter") for name in names)
    assert "/v1/score" in (out / "README.md").read_text()
    assert read_scout(out).fingerprint == result["fingerprint"]


def test_export_refuses_what_it_cannot_vouch_for(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    source = place.root / "tampered"
    shutil.copytree(place.run / "final", source)
    template = source / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant", "helper"))
    assert cli.main(["export", str(source), "--out", str(place.root / "no")]) == 1
    assert "fingerprint" in capsys.readouterr().err
    assert cli.main(["export", str(place.run / "final"), "--out", str(place.data)]) == 2
    assert "no Scout model" in capsys.readouterr().err and (place.data / "train.jsonl").is_file()
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    assert cli.main(["export", str(source), "--out", str(place.root / "no")]) == 1
    assert "safetensors only" in capsys.readouterr().err
    assert not (place.root / "no").exists()


def test_export_writes_the_threshold_and_selector_that_dev_chose(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(place.run / "final"), "--out", str(place.root / "fitted")]
    for wrong in (["--threshold", "0"], ["--threshold", "1.5"], ["--threshold", "nan"], ["--selector", "best"]):
        assert cli.main([*words, *wrong]) == 2
    assert not (place.root / "fitted").exists()
    said = capsys.readouterr().err
    assert "above 0 and up to 1" in said and "p_yes" in said
    assert cli.main([*words, "--threshold", "0.62", "--selector", "flagged_share"]) == 0
    found = read_scout(place.root / "fitted")
    assert (found.threshold, found.selector) == (0.62, "flagged_share")
    assert msgspec.structs.replace(found, threshold=0.5, selector="p_yes") == read_scout(place.run / "final")
    card = (place.root / "fitted" / "README.md").read_text()
    assert "p_incorrect 0.62" in card and "flagged_share" in card
    report = place.root / "report.json"
    report.write_text('{"threshold": {"value": 0.41, "split": "dev"}, "selector": {"name": "first_mistake"}}')
    assert cli.main([*words, "--report", str(report), "--selector", "p_yes"]) == 0
    found = read_scout(place.root / "fitted")
    assert (found.threshold, found.selector) == (0.41, "p_yes")
    report.write_text("{}")
    assert cli.main([*words, "--report", str(report)]) == 1
    assert "Give the report.json that eval.report wrote" in capsys.readouterr().err


def test_export_refuses_adapters_with_extra_saved_modules(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P36."""
    import shutil

    from scout.errors import FormatError
    from scout.train.export import _require_safetensors

    source = tmp_path / "adapter"
    shutil.copytree(place.run / "final", source)
    (source / "adapter_config.json").write_text(json.dumps({"r": 4, "modules_to_save": ["lm_head"]}))
    (source / "model.safetensors").rename(source / "adapter_model.safetensors")
    with pytest.raises(FormatError, match="lm_head"):
        _require_safetensors(source)


def test_a_start_model_of_other_prompts_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--run", place.root / "other", "--data", place.data, "--model", place.run / "final")
    assert train("sft", place.sft, *words, "scout.window_steps=5") == 1
    assert "window_steps 4, here 5" in capsys.readouterr().err
    assert train("sft", place.sft, "--run", place.root / "other2", "--data", place.data, "--model", "/nowhere") == 2
    assert "/nowhere is no folder" in capsys.readouterr().err


def test_wrong_keys_are_named_with_the_nearest_before_anything_starts(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place.root / "keys"
    words = ("--run", run, "--data", place.data)
    assert train("sft", place.sft, *words, "trainer.learning_rat=1", "trainer.packing=true") == 2
    said = capsys.readouterr().err
    assert "did you mean learning_rate" in said and "trainer.packing" in said
    assert train("grpo", place.grpo, *words, "trainer.num_generation=4", "trainer.top_p=0.9") == 2
    said = capsys.readouterr().err
    assert "did you mean num_generations" in said and "top_p 1" in said
    assert train("grpo", place.grpo, *words, "trainer.use_vllm=true", "scout.dynamic_sampling=true", "--dry-run") == 2
    assert "one of the two to false" in capsys.readouterr().err
    assert train("sft", place.sft, *words, "scout.promt_tokens=4", "trainer.learning_rat=1") == 2
    said = capsys.readouterr().err
    assert "2 problems" in said and "prompt_tokens" in said and "did you mean learning_rate" in said
    assert not run.exists()


def test_rows_over_a_limit_are_refused_with_their_ids(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """P1 and P2: nothing is cut, nothing is dropped."""
    words = ("--run", place.root / "long", "--data", place.data)
    assert train("sft", place.sft, *words, "scout.completion_tokens=20") == 1
    said = capsys.readouterr().err
    assert (
        "56 problems" in said
        and "row train-40#0: completion: found 103 tokens" in said
        and "scout.completion_tokens=" in said
    )


def test_grpo_that_cannot_learn_is_stopped_with_two_replies(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """P16 and P17: before the first step, and after some steps."""
    words = ("grpo", place.grpo, "--data", place.data, "--model", place.run / "final")
    assert train(*words, "--run", place.root / "flat", "scout.preflight_prompts=4") == 5
    said = capsys.readouterr().err
    assert "rewards differ in 0% of 4 groups" in said and said.count("  row train-") == 2
    guarded = ("scout.patience=2", "scout.dev_prompts=0", "trainer.max_steps=9")
    assert (
        train(*words, "--run", place.root / "clip", *guarded, "scout.completion_tokens=110", "scout.max_clipped=0") == 5
    )
    assert "Stopped at step 2" in capsys.readouterr().err
    assert not (place.root / "clip" / "final").exists()


@pytest.mark.parametrize("recipe", ["tiny/sft", "tiny/grpo", "qwen3-4b/sft", "qwen3-4b/grpo"])
def test_every_recipe_resolves_in_a_dry_run(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    style = "brief" if recipe.startswith("tiny") else "full"
    for split in ("train", "dev"):
        text = "".join(json.dumps(row(number, split, style)) + "\n" for number in range(12))
        (tmp_path / f"{split}.jsonl").write_text(text)
    path = Path(__file__).parent.parent / "recipes" / f"{recipe}.yaml"
    shape = ("model.fresh.vocabulary=400",) if recipe.startswith("tiny") else ()
    words = (recipe.split("/")[1], path, "--run", tmp_path / "run", "--data", tmp_path, *shape)
    assert train(*words, "--dry-run") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["dev_rows"], told["over_limit"]) == (12, 12, 0) and told["steps"] >= 1
    assert not (tmp_path / "run").exists()


def test_ctrl_c_leaves_a_folder_that_resumes(place: Place) -> None:
    run = place.root / "interrupted"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "scout", "train", "sft", place.sft, "--run", run, "--data", place.data, "--resume",
               "trainer.max_steps=100000"]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        metrics = run / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.is_file() and metrics.stat().st_size) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130, process.communicate()[1]
    steps = [int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("checkpoint-*")]
    assert len(steps) == 1 and not (run / "final").exists()
    told = lines(metrics)
    assert told[-1]["step"] == steps[0]
