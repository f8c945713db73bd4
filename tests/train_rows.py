"""Training rows of a small made-up world, for the tests of `scout.train`."""

from __future__ import annotations

import json
import random
from pathlib import Path

from scout import prompt
from scout.trajectory import Step

LETTERS = "ABCDE"
STEPS = 4


def row(number: int, split: str, style: str = "brief") -> dict[str, object]:
    """One row: four steps that restate the last reading, some of them falsely."""
    draw = random.Random(f"{split}{number}")
    steps, labels, reasons = [], {}, {}
    reading = draw.randint(1, 9)
    for index in range(1, STEPS + 1):
        wrong = draw.random() < 0.3
        claimed = reading % 9 + 1 if wrong else reading
        following = draw.randint(1, 9)
        letter = draw.choice(LETTERS)
        steps.append(Step(index, f"The counter shows {claimed}.", f"press {letter}", f"counter {following}"))
        labels[index] = "incorrect" if wrong else "correct"
        reasons[index] = f"The counter was {reading}, the step says {claimed}."
        reading = following
    task = f"Find what each letter does. The counter shows {steps[0].thought.split()[-1]}"
    return {
        "id": f"{split}-{number}#0",
        "trajectory_id": f"{split}-{number}",
        "task_id": f"task-{split}-{number}",
        "split": split,
        "prompt": prompt.messages(task, steps, prompt.style(style)),
        "completion": prompt.reply_text(reasons, labels),
        "indices": list(labels),
        "gold": list(labels.values()),
        "prompt_style": style,
        "prompt_version": prompt.PROMPT_VERSION,
    }


def write_rows(folder: Path, train: int = 48, dev: int = 8) -> Path:
    """A data folder with train and dev rows; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("dev", dev)):
        lines = [json.dumps(row(number, split)) for number in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


SFT = """\
model:
  fresh: {vocabulary: 400, hidden_size: 64, layers: 2, heads: 2, kv_heads: 2, intermediate_size: 128, positions: 1024}
scout: {style: brief, window_steps: 4, prompt_tokens: 400, completion_tokens: 400}
trainer:
  max_steps: 2
  per_device_train_batch_size: 4
  learning_rate: 3.0e-3
  logging_steps: 1
  use_cpu: true
  bf16: false
  gradient_checkpointing: false
"""

GRPO = """\
scout: {style: brief, window_steps: 4, prompt_tokens: 400, completion_tokens: 160, preflight_prompts: 0, dev_prompts: 4}
trainer:
  max_steps: 2
  per_device_train_batch_size: 8
  num_generations: 4
  learning_rate: 1.0e-4
  logging_steps: 1
  eval_steps: 1
  save_steps: 1
  use_cpu: true
  bf16: false
  gradient_checkpointing: false
"""
