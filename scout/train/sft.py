"""Supervised fine-tuning: TRL's SFTTrainer on rows that arrive tokenised, with the loss on exactly the reply.

Left to TRL: batching, loss, optimiser, checkpoints, evaluation. The last step is the result.
"""

from __future__ import annotations

from typing import Any

from trl import SFTConfig, SFTTrainer

from scout.train import model as models
from scout.train import rows as rowing
from scout.train import stage as staging
from scout.train.progress import say
from scout.train.stage import Request, Stage


def run(request: Request) -> dict[str, Any] | None:
    """Train and write final/; returns what happened, or None when the stage was finished before."""
    stage = staging.prepare(request, SFTConfig)
    if stage is None:
        return None
    evaluated = stage.config.eval_strategy != "no" and stage.dev
    trainer = SFTTrainer(
        stage.model,
        args=stage.config,
        train_dataset=rowing.supervised(stage.train),
        eval_dataset=rowing.supervised(stage.dev) if evaluated else None,
        processing_class=stage.tokenizer,
        peft_config=models.lora(stage.recipe, stage.model),
    )
    rowing.require_supervised(trainer.train_dataset, stage.train)
    if evaluated:
        rowing.require_supervised(trainer.eval_dataset, stage.dev)
    tokens = sum(item.reply_length for item in stage.train)
    say(f"sft: {len(stage.train)} rows, {tokens} reply tokens, all of them supervised")
    with staging.speaking(trainer, stage):
        staging.train(trainer, stage)
    if trainer.is_world_process_zero():
        _finish(trainer, stage)
    return {"stage": "sft", "final": str(stage.folder.final), "steps": trainer.state.global_step}


def _finish(trainer: SFTTrainer, stage: Stage) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    stage.folder.finish(lambda folder: models.save(folder, model, stage.tokenizer, stage.scout))
