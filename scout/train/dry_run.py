"""`--dry-run`: everything about a training run but its weights, and a table of what it would do."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scout import records
from scout.errors import ConfigError
from scout.train import model as models
from scout.train import rows as rowing
from scout.train import stage as staging
from scout.train.folder import require_rows
from scout.train.fresh import train_tokenizer
from scout.train.rows import Prepared, Row
from scout.train.stage import Request
from scout.train.trainer_keys import CONFIGS, make_config

_STAND_IN_VOCABULARY = 8192
_STAND_IN_ROWS = 2000
"""Rows whose text is enough to train a tokenizer that stands in for the model's own."""


def run(request: Request) -> dict[str, Any]:
    """Check and print the table on stderr; returns its figures. Raises what training would raise."""
    recipe = request.recipe
    config = make_config(recipe, CONFIGS[request.stage], request.run, request.recipe_name, dry=True)
    told: dict[str, Any] = {"stage": request.stage, "recipe": request.recipe_name, "keys": len(recipe.trainer)}
    if not (request.data or recipe.data.path):
        told["rows"] = None
        _print(told, "no rows: give a folder with --data to see lengths and steps")
        return told
    data = staging.data_folder(request)
    require_rows(rowing.rows_file(data, "train"), data, "train")
    train, dev = (rowing.read_rows(data, split, recipe) for split in ("train", "dev"))
    tokenizer, origin = _tokenizer(request, train)
    prepared, prepared_dev = rowing.prepare(train, tokenizer), rowing.prepare(dev, tokenizer)
    everything = [*prepared, *prepared_dev]
    told |= {
        "rows": len(train),
        "dev_rows": len(dev),
        "prompt_tokens": _spread([item.prompt_length for item in everything]),
        "completion_tokens": _spread([item.reply_length for item in everything]),
        "over_limit": len({problem.where for problem in rowing.over_limit(everything, recipe)}),
        "steps": steps(request.stage, config, prepared),
        "tokenizer": origin,
    }
    _print(told, None)
    rowing.require_fit(everything, recipe)
    return told


def steps(stage: str, config: Any, prepared: Sequence[Prepared]) -> int:
    """Optimiser steps of the run on one process."""
    if config.max_steps > 0:
        return int(config.max_steps)
    batch = config.per_device_train_batch_size * config.gradient_accumulation_steps
    rows = len(prepared) * config.num_generations if stage == "grpo" else len(prepared)
    return math.ceil(math.ceil(rows / batch) * config.num_train_epochs)


def _tokenizer(request: Request, train: Sequence[Row]) -> tuple[Any, str]:
    """The tokenizer that training would use, or the nearest that can be had without weights, and which it is."""
    recipe = request.recipe
    if request.model or recipe.model.path:
        folder = models.start_folder(recipe, request.model, request.run, (), 0)
        tokenizer = models.load_tokenizer(folder)
        scout = models.scout_config(recipe, tokenizer, str(folder), request.recipe_name)
        models.require_same_fingerprint(folder, scout)
        return tokenizer, str(folder)
    texts = (
        text for row in islice(train, _STAND_IN_ROWS) for text in (*(t.content for t in row.prompt), row.completion)
    )
    if recipe.model.fresh:
        return train_tokenizer(texts, recipe.model.fresh.vocabulary), "fresh"
    if not recipe.model.template:
        raise ConfigError("The recipe names no weights, no fresh model and no model.template. Add --model DIR.")
    stand_in = train_tokenizer(texts, _STAND_IN_VOCABULARY, template(recipe.model.template))
    return stand_in, f"stand-in with TRL's template {recipe.model.template}; lengths are estimates"


def template(name: str) -> str:
    """The chat template that TRL ships under that name. Raises ConfigError naming the nearest one."""
    folder = Path(str(resources.files("trl") / "chat_templates"))
    known = sorted(path.stem for path in folder.glob("*.jinja"))
    if name not in known:
        raise ConfigError(f"model.template is {name!r}; {records.one_of(name, known)}.")
    return (folder / f"{name}.jinja").read_text(encoding="utf-8")


def _spread(lengths: Sequence[int]) -> dict[str, int]:
    ordered = sorted(lengths)
    return {
        "min": ordered[0],
        "median": ordered[len(ordered) // 2],
        "p95": ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)],
        "max": ordered[-1],
    }


def _print(told: dict[str, Any], note: str | None) -> None:
    table = Table(title=f"dry run: {told['stage']}, {told['recipe']}", show_header=False)
    for key, value in told.items():
        text = (
            ", ".join(f"{name} {figure}" for name, figure in value.items()) if isinstance(value, dict) else str(value)
        )
        table.add_row(key, text)
    console = Console(file=sys.stderr, width=110)
    console.print(table)
    if note:
        console.print(note)
