"""The `trainer` section of a recipe: its keys against TRL's fields, then TRL's own config object."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, SFTConfig

from scout import records
from scout.config import Recipe
from scout.errors import ConfigError
from scout.records import Finding, Plain

CONFIGS: Mapping[str, type[Any]] = {"sft": SFTConfig, "grpo": GRPOConfig}
"""Stage -> TRL's class of its settings."""
OURS: Mapping[str, str] = {
    "output_dir": "--run sets it",
    "max_length": "scout.prompt_tokens and scout.completion_tokens limit rows, and nothing is ever cut",
    "max_completion_length": "set scout.completion_tokens",
    "temperature": "set scout.temperature",
    "completion_only_loss": "the loss is on exactly the reply",
    "assistant_only_loss": "the loss is on exactly the reply",
    "packing": "rows must not see each other",
    "eval_packing": "rows must not see each other",
    "dataset_kwargs": "rows arrive prepared",
    "remove_unused_columns": "the reward needs all columns",
    "log_completions": "sampled replies are in samples.jsonl and, with report_to: wandb, in a table there",
    "chat_template_path": "the template of the model folder is used",
    "eos_token": "the end token of the model folder is used",
    "resume_from_checkpoint": "use --resume",
    "load_best_model_at_end": "final/ is the checkpoint that is best on dev",
    "push_to_hub": "nothing leaves this machine",
    "disable_tqdm": "progress is Scout's own",
    "model_init_kwargs": "set model.dtype and model.attention",
    "mask_truncated_completions": "an unfinished reply earns 0 and must be learned from",
}
"""TRL keys that a recipe may not set, and what to do instead."""

OURS_SFT: Mapping[str, str] = {"shuffle_dataset": "trainer.seed gives the order of rows"}
OURS_GRPO: Mapping[str, str] = {
    "eval_strategy": "GRPO is measured on scout.dev_prompts every trainer.eval_steps",
    "do_eval": "GRPO is measured on scout.dev_prompts every trainer.eval_steps",
    "eval_on_start": "the start model is always measured",
}

_DERIVED_SFT = {"max_length": None, "packing": False, "remove_unused_columns": True}
_DERIVED_GRPO = {"remove_unused_columns": False, "disable_dropout": True}


def findings(trainer: Mapping[str, Any], kind: type[Any]) -> list[Finding]:
    """Every key of a recipe's `trainer` section that TRL lacks, takes otherwise, or Scout sets. kind: TRL's class."""
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    found: list[Finding] = []
    ours = {**OURS, **(OURS_GRPO if kind is GRPOConfig else OURS_SFT)}
    for key, value in trainer.items():
        if key in ours and key in fields:
            found.append((f"trainer.{key}", value, f"not set in a recipe: {ours[key]}"))
        elif key not in fields:
            settable = sorted(fields - ours.keys())
            found.append((f"trainer.{key}", value, _nearest(str(key), settable, kind.__name__)))
    report = trainer.get("report_to", "none")
    if report not in ("none", "wandb", [], ["none"], ["wandb"]):
        found.append(("trainer.report_to", report, "none or wandb (offline); metrics.jsonl is always written"))
    if trainer.get("top_p", 1.0) != 1.0 or trainer.get("top_k", 0) not in (0, -1, None):
        value = Plain(f"top_p {trainer.get('top_p', 1.0)}, top_k {trainer.get('top_k', 0)}")
        found.append(("trainer.top_p", value, "top_p 1 and top_k 0, or sampler and trainer disagree"))
    return found


def _nearest(key: str, known: list[str], name: str) -> str:
    phrase = records.one_of(key, known)
    return (
        f"{phrase.partition('? ')[0]}? A key of TRL's {name}" if "did you mean" in phrase else f"a key of TRL's {name}"
    )


def make_config(recipe: Recipe, kind: type[Any], run: Path, where: str, *, dry: bool = False) -> Any:
    """TRL's config object for a recipe whose trainer section has no `findings`.

    Raises ConfigError for what TRL itself refuses, with TRL's words.

    dry: check a recipe for a GPU on a machine without one.
    """
    values = dict(recipe.trainer)
    values["output_dir"] = str(run / "checkpoints")
    values.setdefault("report_to", "none")
    values["disable_tqdm"] = True
    if dry and not torch.cuda.is_available():
        values["use_cpu"] = True
    if kind is GRPOConfig:
        limits = {"max_completion_length": recipe.scout.completion_tokens, "temperature": recipe.scout.temperature}
        values.update(_DERIVED_GRPO, **limits)
        if values.get("use_vllm"):
            if recipe.scout.dynamic_sampling:
                raise ConfigError(
                    f"{where}: scout.dynamic_sampling is true, but so is trainer.use_vllm, and TRL then samples by "
                    "itself and replaces no group. Set one of the two to false."
                )
            needed = recipe.scout.prompt_tokens + recipe.scout.completion_tokens
            longest = values.setdefault("vllm_max_model_length", needed)
            if not isinstance(longest, int) or longest < needed:
                raise ConfigError(
                    f"{where}: trainer.vllm_max_model_length is {longest}, but scout.prompt_tokens "
                    f"{recipe.scout.prompt_tokens} and scout.completion_tokens {recipe.scout.completion_tokens} need "
                    f"{needed}. Raise it to {needed} or leave it out."
                )
    else:
        values.update(_DERIVED_SFT)
    if "wandb" in values["report_to"]:
        os.environ["WANDB_MODE"] = "offline"
        os.environ.setdefault("WANDB_DIR", str(run))
        os.environ.setdefault("WANDB_SILENT", "true")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return kind(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: TRL refuses the trainer section: {error}") from error
