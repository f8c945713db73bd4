"""What SFT and GRPO share: from a recipe to a stage that is ready to train, and from a trained one to final/."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.utils.logging import disable_progress_bar

from scout.config import Recipe, ScoutConfig, write_scout
from scout.errors import ConfigError
from scout.train import model as models
from scout.train import rows as rowing
from scout.train.folder import RunFolder, facts, require_folder, require_rows
from scout.train.progress import Progress, Stop, say
from scout.train.rows import Prepared
from scout.train.trainer_keys import make_config


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    stage: str
    recipe: Recipe
    recipe_name: str
    run: Path
    model: str | None
    data: str | None
    resume: bool


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage that is ready to train."""

    request: Request
    folder: RunFolder
    checkpoint: Path | None
    config: Any
    """TRL's config object."""
    start: Path
    tokenizer: Any
    model: Any
    scout: ScoutConfig
    train: list[Prepared]
    dev: list[Prepared]

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return self.request.recipe


def data_folder(request: Request) -> Path:
    """The folder of the rows. Raises ConfigError when nothing names one."""
    path = request.data or request.recipe.data.path
    if not path:
        raise ConfigError("The recipe names no rows. Give the folder that data_prep wrote with --data DIR.")
    return require_folder(path, "--data" if request.data else "data.path")


def prepare(request: Request, kind: type[Any]) -> Stage | None:
    """Everything that can be checked before weights move; None when the stage is already finished."""
    disable_progress_bar()
    config = make_config(request.recipe, kind, request.run, request.recipe_name)
    data = data_folder(request)
    train_file = require_rows(rowing.rows_file(data, "train"), data, "train")
    dev_file = rowing.rows_file(data, "dev")
    hashes = {path.name: rowing.file_hash(path) for path in (train_file, dev_file) if path}
    folder = RunFolder(request.run)
    model = request.model or request.recipe.model.path
    told = facts(request.stage, request.recipe_name, model, hashes, models.weight_hashes(model))
    if folder.already_finished(request.recipe, told):
        return None
    train = rowing.read_rows(data, "train", request.recipe)
    dev = rowing.read_rows(data, "dev", request.recipe)
    checkpoint = folder.open(request.recipe, told, resume=request.resume)
    texts = (text for row in train for text in (*(turn.content for turn in row.prompt), row.completion))
    start = models.start_folder(request.recipe, request.model, request.run, texts, config.seed)
    tokenizer = models.load_tokenizer(start)
    scout = models.scout_config(request.recipe, tokenizer, request.recipe.model.name or str(start), request.recipe_name)
    models.require_same_fingerprint(start, scout)
    share = request.recipe.scout.clean_share
    kept = [rowing.balanced(rows, share, config.seed) for rows in (train, dev)]
    prepared, prepared_dev = (rowing.prepare(rows, tokenizer) for rows in kept)
    rowing.require_fit([*prepared, *prepared_dev], request.recipe)
    weights = models.load_model(start, request.recipe)
    models.require_positions(weights, request.recipe)
    return Stage(
        request, folder, checkpoint, config, start, tokenizer, weights, scout, prepared, prepared_dev
    )  # fmt: skip


class Exportable(TrainerCallback):
    """Writes scout.json into each checkpoint, so that `scoutv export` takes it as well as final/."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The checkpoint of this step is whole by now."""
        folder = self.stage.folder.checkpoints / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            write_scout(folder, self.stage.scout)


@contextmanager
def speaking(trainer: Trainer, stage: Stage) -> Iterator[None]:
    """While this holds, the trainer reports the way Scout does, and Ctrl-C leaves a folder that can be resumed."""
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    stop = Stop()
    trainer.add_callback(Exportable(stage))
    trainer.add_callback(Progress(stage.folder, stage.request.stage))
    trainer.add_callback(stop)
    if stage.checkpoint:
        say(f"{stage.request.stage}: going on from {stage.checkpoint}")
    with stop.listening():
        yield


def train(trainer: Trainer, stage: Stage) -> None:
    """Run the trainer from the stage's checkpoint, or from its beginning."""
    trainer.train(resume_from_checkpoint=str(stage.checkpoint) if stage.checkpoint else None)
