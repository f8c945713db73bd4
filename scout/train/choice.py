"""The checkpoint of a GRPO run: the product reward of greedy replies on dev prompts, and the weights that earn most."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from scout.train.folder import RunFolder, append, truncate_after, whole
from scout.train.progress import say
from scout.train.replies import Draw, Grader
from scout.train.rows import Prepared

CHOSEN_FILE = "chosen.json"


class DevChoice(TrainerCallback):
    """Measures the model on dev before the first step and every `every` steps, and keeps the best weights in best/."""

    def __init__(
        self,
        folder: RunFolder,
        dev: Sequence[Prepared],
        every: int,
        draw: Draw,
        grader: Grader,
        write: Callable[[Path], None],
    ) -> None:
        self.folder, self.dev, self.every = folder, dev, every
        self.draw, self.grader, self.write = draw, grader, write

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Measures the start model; after a resume, forgets what belongs to later steps."""
        if state.global_step == 0:
            self.folder.dev.unlink(missing_ok=True)
            shutil.rmtree(self.folder.best, ignore_errors=True)
            self._measure(state)
        else:
            truncate_after(self.folder.dev, state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Measures when it is time, and always at the last step."""
        if state.global_step % self.every == 0 or state.global_step >= state.max_steps:
            self._measure(state)

    def _measure(self, state: TrainerState) -> None:
        replies = self.draw([item.ids[: item.prompt_length] for item in self.dev], 1, 0.0)
        graded = [
            self.grader.grade(ids, item.row.labels, name="product") for ids, item in zip(replies, self.dev, strict=True)
        ]
        count = len(graded)
        record = {
            "step": state.global_step,
            "reward": sum(item.reward for item in graded) / count,
            "readable": sum(item.reply.readable for item in graded) / count,
            "ended": sum(item.ended for item in graded) / count,
            "prompts": count,
        }
        if not state.is_world_process_zero:
            return
        before = self.best()
        append(self.folder.dev, record)
        better = before is None or record["reward"] > before["reward"]
        if better:
            whole(self.folder.best, lambda partial: self._write(partial, record))
        say(f"grpo: step {record['step']}, dev reward {record['reward']:.4f}{' (best)' if better else ''}")

    def _write(self, partial: Path, record: dict[str, Any]) -> None:
        self.write(partial)
        (partial / CHOSEN_FILE).write_text(json.dumps(record) + "\n")

    def best(self) -> dict[str, Any] | None:
        """The record of the weights in best/, or None."""
        path = self.folder.best / CHOSEN_FILE
        return json.loads(path.read_text()) if path.is_file() else None
