"""The folder of a training stage: what makes a second call another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scout.config import Recipe
from scout.errors import ConfigError
from scout.train import folder as folders
from scout.train.folder import RunFolder


def told(weights: str) -> dict[str, Any]:
    return folders.facts("grpo", "r.yaml", "sft/final", {"train.jsonl": "d"}, {"model.safetensors": weights})


def test_a_start_model_that_was_trained_anew_is_another_run(tmp_path: Path) -> None:
    """The path is the same, so only the weights can tell; going on would mix two models."""
    run = RunFolder(tmp_path / "grpo")
    run.open(Recipe(), told("first"), resume=False)
    assert run.open(Recipe(), told("first"), resume=True) is None
    with pytest.raises(ConfigError, match="weights"):
        run.open(Recipe(), told("second"), resume=True)
    run.final.mkdir()
    assert run.already_finished(Recipe(), told("first"))
    with pytest.raises(ConfigError, match="weights"):
        run.already_finished(Recipe(), told("second"))


def test_a_finished_stage_outlives_its_start_model(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "grpo")
    run.open(Recipe(), told("first"), resume=False)
    run.final.mkdir()
    assert run.already_finished(Recipe(), folders.facts("grpo", "r.yaml", "sft/final", {"train.jsonl": "d"}, {}))
