"""The model a stage starts from: tokenizer, weights, adapter, and whether its scout.json fits the recipe."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from scout import prompt
from scout.config import SCOUT_FILE, Recipe, ScoutConfig, read_scout, write_scout
from scout.errors import ConfigError, FingerprintError, FormatError, printable
from scout.render import fingerprint
from scout.train.folder import whole
from scout.train.fresh import write_fresh
from scout.train.rows import file_hash

ADAPTER_FILE = "adapter_config.json"


def start_folder(recipe: Recipe, model: str | None, run: Path, texts: Iterable[str], seed: int) -> Path:
    """The folder of the weights to start from: `--model`, `model.path`, or a fresh model made in the run folder."""
    if model or recipe.model.path:
        folder = Path(model or recipe.model.path)
        key = "--model" if model else "model.path"
        if not folder.is_dir():
            raise ConfigError(f"{key}: {printable(str(folder))} is no folder. Give a folder of weights with --model.")
        if not (folder / "config.json").is_file() and not (folder / ADAPTER_FILE).is_file():
            raise ConfigError(f"{key}: {printable(str(folder))} holds no config.json, so it is no model folder.")
        return folder
    shape = recipe.model.fresh
    if shape is None:
        raise ConfigError("The recipe names no weights to start from. Give a folder with --model DIR.")
    folder = run / "fresh"
    if not folder.is_dir():
        whole(folder, lambda partial: write_fresh(partial, shape, texts, seed))
    return folder


def weight_hashes(model: str) -> dict[str, str]:
    """File name -> sha256 of the weights in the folder `model`; empty without one."""
    if not model:
        return {}
    return {path.name: file_hash(path) for path in sorted(Path(model).glob("*.safetensors"))}


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder, with a pad token. Raises FormatError when it has no template or end token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise FormatError(f"{printable(str(folder))}: holds no tokenizer that transformers reads: {error}") from error
    if not tokenizer.chat_template:
        raise FormatError(f"{printable(str(folder))}: the tokenizer has no chat template. Use a chat model.")
    if tokenizer.eos_token_id is None:
        raise FormatError(f"{printable(str(folder))}: the tokenizer has no end token, so no reply could end.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def scout_config(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, base_model: str, recipe_name: str) -> ScoutConfig:
    """scout.json of what this recipe trains."""
    section = recipe.scout
    return ScoutConfig(
        fingerprint=fingerprint(
            tokenizer, prompt.PROMPT_VERSION, section.style, section.window_steps, section.task_tokens
        ),
        prompt_version=prompt.PROMPT_VERSION,
        style=section.style,
        window_steps=section.window_steps,
        task_tokens=section.task_tokens,
        prompt_tokens=section.prompt_tokens,
        completion_tokens=section.completion_tokens,
        analyses=section.analyses,
        temperature=section.scoring_temperature,
        base_model=base_model,
        recipe=recipe_name,
    )


def require_same_fingerprint(folder: Path, wanted: ScoutConfig) -> None:
    """Raises FingerprintError when the start model was trained on other prompts than this recipe renders.

    A folder without scout.json, such as a base model, is never refused.
    """
    if not (folder / SCOUT_FILE).is_file():
        return
    found = read_scout(folder)
    if found.fingerprint == wanted.fingerprint:
        return
    keys = ("prompt_version", "style", "window_steps", "task_tokens")
    other = [f"{key} {getattr(found, key)!r}, here {getattr(wanted, key)!r}"
             for key in keys if getattr(found, key) != getattr(wanted, key)]  # fmt: skip
    reason = "; ".join(other) or "the chat template or the tokenizer is another one"
    raise FingerprintError(
        f"{printable(str(folder))}: was trained with fingerprint {found.fingerprint}, this recipe renders "
        f"{wanted.fingerprint} ({reason}). Train on rows made for one of them, or start from another model."
    )


def load_model(folder: Path, recipe: Recipe) -> PreTrainedModel | PeftModel:
    """The weights of a folder. An adapter is loaded on its base: trainable when the recipe trains one, else merged."""
    if not (folder / ADAPTER_FILE).is_file():
        return _load_weights(folder, recipe)
    adapter = json.loads((folder / ADAPTER_FILE).read_text())
    base = Path(adapter.get("base_model_name_or_path") or "")
    if not base.is_dir():
        raise ConfigError(
            f"{printable(str(folder))}: its adapter needs the base model {printable(str(base))}: no folder."
        )
    rank = recipe.model.lora_rank
    if rank and rank != adapter.get("r"):
        raise ConfigError(
            f"{printable(str(folder))}: holds an adapter of rank {adapter.get('r')}, the recipe has model.lora_rank "
            f"{rank}. Set model.lora_rank={adapter.get('r')}, or export it first and start from the merged model."
        )
    model = PeftModel.from_pretrained(_load_weights(base, recipe), folder, is_trainable=bool(rank))
    return model if rank else model.merge_and_unload()


def _load_weights(folder: Path, recipe: Recipe) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, recipe.model.dtype),
            attn_implementation=recipe.model.attention,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise FormatError(f"{printable(str(folder))}: transformers cannot load these weights: {error}") from error


def lora(recipe: Recipe, model: PreTrainedModel | PeftModel) -> LoraConfig | None:
    """The adapter that the recipe asks for; None for full training and for a model that has one already."""
    section = recipe.model
    if section.lora_rank == 0 or isinstance(model, PeftModel):
        return None
    targets: Any = list(section.lora_targets)
    return LoraConfig(
        r=section.lora_rank,
        lora_alpha=section.lora_alpha,
        lora_dropout=section.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )


def require_positions(model: PreTrainedModel | PeftModel, recipe: Recipe) -> None:
    """Raises ConfigError when prompt and reply together may be longer than the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = recipe.scout.prompt_tokens + recipe.scout.completion_tokens
    if limit is not None and needed > limit:
        raise ConfigError(
            f"scout.prompt_tokens {recipe.scout.prompt_tokens} and scout.completion_tokens "
            f"{recipe.scout.completion_tokens} need {needed} positions; the model has {limit}. Lower one of them."
        )


def save(folder: Path, model: Any, tokenizer: PreTrainedTokenizerBase, config: ScoutConfig) -> None:
    """Write weights (or adapter), tokenizer and scout.json."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_scout(folder, config)
