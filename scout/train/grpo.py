"""GRPO: TRL's GRPOTrainer with Scout's reward, guards, and a checkpoint chosen on dev.

Left to TRL: batching, advantages, loss, optimiser, checkpoints, vLLM. Without vLLM the replies come from `sampler`
through TRL's `rollout_func`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from scout.errors import ConfigError
from scout.train import guards, sampler
from scout.train import model as models
from scout.train import rows as rowing
from scout.train import stage as staging
from scout.train.choice import DevChoice
from scout.train.folder import append
from scout.train.guards import Guards, Sample
from scout.train.progress import say
from scout.train.replies import Draw, Grader, drawer
from scout.train.rollout import Messages, prompt_ids, reward_function, rollout_function
from scout.train.shared_prefix import SharedPrefixTrainer
from scout.train.stage import Request, Stage


def run(request: Request) -> dict[str, Any] | None:
    """Train and write final/; returns what happened, or None when the stage was finished before."""
    stage = staging.prepare(request, GRPOConfig)
    if stage is None:
        return None
    _require_enough(stage)
    samples: list[Sample] = []
    trainer = _trainer(stage, samples)
    draw = drawer(trainer, stage.recipe.scout.completion_tokens)
    grader = Grader(stage.recipe, stage.tokenizer, trainer.eos_token_ids)
    trainer.add_callback(SampleLog(stage, samples))
    trainer.add_callback(Guards(stage.recipe.scout, samples))
    choice = _choice(trainer, stage, draw, grader)
    if choice:
        trainer.add_callback(choice)
    with staging.speaking(trainer, stage):
        if stage.checkpoint is None:
            preflight(stage, draw, grader)
        staging.train(trainer, stage)
    chosen = choice.best() if choice else None
    if trainer.is_world_process_zero():
        _finish(trainer, stage, choice)
    return {
        "stage": "grpo",
        "final": str(stage.folder.final),
        "steps": trainer.state.global_step,
        "chosen_step": chosen["step"] if chosen else trainer.state.global_step,
        "dev_reward": chosen["reward"] if chosen else None,
    }


def _require_enough(stage: Stage) -> None:
    wanted = stage.config.generation_batch_size // stage.config.num_generations
    if len(stage.train) < wanted:
        raise ConfigError(
            f"{len(stage.train)} training rows are fewer than the {wanted} prompts of one step (batch size "
            f"{stage.config.generation_batch_size} / num_generations {stage.config.num_generations}). Add rows or "
            "lower trainer.per_device_train_batch_size."
        )


def _trainer(stage: Stage, samples: list[Sample]) -> GRPOTrainer:
    rowing.require_same_prompts(stage.train, _renderer(stage))
    plain = not stage.config.use_vllm and sampler.supports(stage.model)
    if stage.recipe.scout.dynamic_sampling and not plain:
        raise ConfigError(
            f"{stage.request.recipe_name}: scout.dynamic_sampling is true, but TRL itself samples this model, whose "
            "attention is not plain causal, and replaces no group. Set it to false."
        )
    return SharedPrefixTrainer(
        stage.model,
        reward_funcs=[reward_function(stage, samples)],
        args=stage.config,
        train_dataset=rowing.promptings(stage.train),
        processing_class=stage.tokenizer,
        peft_config=models.lora(stage.recipe, stage.model),
        rollout_func=rollout_function(stage) if plain else None,
    )


def _renderer(stage: Stage) -> Callable[[Messages], list[int]]:
    """How TRL renders a prompt."""

    def render(messages: Messages) -> list[int]:
        encoded = stage.tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **(stage.config.chat_template_kwargs or {}),
        )
        return list(encoded["input_ids"])

    return render


def preflight(stage: Stage, draw: Draw, grader: Grader) -> None:
    """Raises NothingToLearnError when too few groups of sampled replies differ in their reward."""
    section = stage.recipe.scout
    replies = stage.config.num_generations
    items = stage.train[:: max(1, len(stage.train) // max(1, section.preflight_prompts))][: section.preflight_prompts]
    if not items:
        return
    say(f"grpo: sampling {replies} replies to {len(items)} prompts to see whether their rewards differ")
    with torch.random.fork_rng():
        ids = draw(prompt_ids(items), replies, section.temperature)
    graded = [grader.grade(reply, items[place // replies].row.labels) for place, reply in enumerate(ids)]
    share = guards.spread_share([item.reward for item in graded], replies)
    ended = sum(item.ended for item in graded) / len(graded)
    readable = sum(item.reply.readable for item in graded) / len(graded)
    say(f"grpo: rewards differ in {share:.0%} of groups; {ended:.0%} of replies end, {readable:.0%} are readable")
    if share < section.min_spread:
        shown = [
            Sample(items[place // replies].row.id, item.reward, item.ended, item.reply.problem, item.text)
            for place, item in enumerate(graded[: replies * guards.SHOWN_REPLIES : replies])
        ]
        raise guards.stop(
            f"Not started: rewards differ in {share:.0%} of {len(items)} groups, less than scout.min_spread "
            f"({section.min_spread:.0%}); {ended:.0%} of replies end, {readable:.0%} are readable.",
            guards.spread_advice(section),
            shown,
        )


def _choice(trainer: GRPOTrainer, stage: Stage, draw: Draw, grader: Grader) -> DevChoice | None:
    dev = stage.dev[: stage.recipe.scout.dev_prompts]
    if not dev:
        say("grpo: no dev prompts, so the last step is the result")
        return None
    every = stage.config.eval_steps or 10
    if every != int(every):
        raise ConfigError(f"trainer.eval_steps is {every}; allowed: a whole number of steps.")

    def write(folder: Any) -> None:
        models.save(folder, trainer.accelerator.unwrap_model(trainer.model), stage.tokenizer, stage.scout)

    return DevChoice(stage.folder, dev, int(every), draw, grader, write)


def _finish(trainer: GRPOTrainer, stage: Stage, choice: DevChoice | None) -> None:
    if choice is None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        stage.folder.finish(lambda folder: models.save(folder, model, stage.tokenizer, stage.scout))
        return

    def copy(folder: Path) -> None:
        shutil.copytree(stage.folder.best, folder, dirs_exist_ok=True)

    stage.folder.finish(copy)


class SampleLog(TrainerCallback):
    """Writes a few sampled replies of each logged step to samples.jsonl and, where W&B is on, into a table there."""

    def __init__(self, stage: Stage, samples: list[Sample]) -> None:
        self.stage, self.samples = stage, samples
        self.rows: list[list[Any]] = []

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """The replies of the batch that was rewarded last."""
        if not state.is_world_process_zero or "reward" not in (logs or {}):
            return
        for sample in self.samples:
            append(
                self.stage.folder.samples,
                {"step": state.global_step, **{key: getattr(sample, key) for key in Sample.__struct_fields__}},
            )
        if "wandb" in self.stage.config.report_to:
            import wandb

            columns = ["step", *Sample.__struct_fields__]
            self.rows += [[state.global_step, *(getattr(s, key) for key in columns[1:])] for s in self.samples]
            if wandb.run is not None:
                wandb.log({"replies": wandb.Table(columns=columns, data=self.rows)})
