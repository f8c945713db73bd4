"""GRPO's policy step with prompts shared by their replies, against TRL's own path: forward and backward, no roll-out.

On a CPU TRL runs the head over prompts as well, on a GPU over replies alone; the second is measured beside the first
(`trl_lean`), and the ratio that arithmetic allows is for that one. Peaks of memory are those of processes that do
nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "model_type": "qwen3", "vocab_size": 1024, "hidden_size": 192, "num_hidden_layers": 3, "head_dim": 32,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 512, "tie_word_embeddings": True,
    },
    "smollm2": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "head_dim": 64,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""Shape of `recipes/tiny` and of SmolLM2-135M."""
PROMPT_TOKENS = {"tiny": 1024, "smollm2": 256}
REPLIES = 8
RATIO = 8
"""Prompt tokens for each token of a reply."""
REPEATS = 5
TABLE = [(8, ratio) for ratio in (1, 2, 4, 16)] + [(replies, 8) for replies in (2, 4, 16)]

WAYS = ("trl", "trl_lean", "shared")

Row = dict[str, float | int | str]


def ceiling(shape: dict[str, Any], prompt: int, reply: int, replies: int) -> float:
    """How many times fewer multiplications sharing needs at most, the head on replies only, attention included."""
    hidden, heads, width = shape["hidden_size"], shape["num_attention_heads"], shape["head_dim"]
    projections = hidden * width * 2 * (heads + shape["num_key_value_heads"])
    body = shape["num_hidden_layers"] * (projections + 3 * hidden * shape["intermediate_size"])
    head = hidden * shape["vocab_size"]
    seen = 2 * shape["num_hidden_layers"] * heads * width  # for each pair of tokens
    over_prompt, own = prompt * prompt / 2, reply * reply / 2
    each = (prompt + reply) * body + reply * head + seen * (over_prompt + reply * prompt + own)
    shared = (prompt + replies * reply) * body + replies * reply * head
    shared += seen * (over_prompt + replies * (reply * prompt + own))
    return replies * each / shared


def measure(name: str, *, replies: int = REPLIES, ratio: int = RATIO, repeats: int = REPEATS) -> Row:
    """One row: median seconds of all ways, taken in turn, ratios, the arithmetic ceiling, and peaks of memory."""
    prompt = PROMPT_TOKENS[name]
    reply = prompt // ratio
    sizes = [name, str(prompt), str(reply), str(replies)]
    times = _child([*sizes, "all", str(repeats)])
    peaks = {way: _child([*sizes, way, "1"])["peak_megabytes"] for way in WAYS}
    most = ceiling(SHAPES[name], prompt, reply, replies)
    lean = times["trl_lean"] / times["shared"]
    return {
        "model": name, "replies": replies, "prompt_tokens": prompt, "reply_tokens": reply,
        **{f"{way}_seconds": round(times[way], 3) for way in WAYS},
        "ratio": round(times["trl"] / times["shared"], 2), "lean_ratio": round(lean, 2),
        "ceiling": round(most, 2), "of_ceiling": round(lean / most, 2),
        **{f"{way}_megabytes": round(peaks[way]) for way in WAYS},
    }  # fmt: skip


def _child(arguments: Sequence[str]) -> dict[str, float]:
    told = subprocess.run(
        [sys.executable, "-m", "eval.bench.shared_prefix", "--child", *arguments],
        check=True, stdout=subprocess.PIPE, env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1"},
    )  # fmt: skip
    result: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return result


def _run(name: str, prompt: int, reply: int, replies: int, way: str, repeats: int) -> dict[str, float]:
    """What the child prints: seconds of each way, or the peak of one way's memory in MB above the model's own."""
    import torch
    from trl.trainer import utils

    as_it_is = utils._use_triton
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(name, Path(folder), replies)
    vocabulary = SHAPES[name]["vocab_size"]
    ids = torch.cat(
        [torch.randint(vocabulary, (1, prompt)).expand(replies, -1), torch.randint(vocabulary, (replies, reply))], dim=1
    )
    mask, weights = torch.ones_like(ids), torch.rand(replies, reply)

    def step(own: str) -> float:
        trainer.not_shared = None if own == "shared" else "the benchmark asks for TRL's own way"
        trainer._said.add(trainer.not_shared)
        utils._use_triton = (lambda device: True) if own == "trl_lean" else as_it_is  # what drops unlabelled places
        trainer.model.zero_grad(set_to_none=False)
        begin = time.perf_counter()
        logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, reply, compute_entropy=True)
        (logps * weights).sum().backward()
        return time.perf_counter() - begin

    for parameter in trainer.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if way != "all":
        before = _memory("VmRSS")
        step(way)
        return {"peak_megabytes": _memory("VmHWM") - before}
    for own in WAYS:
        step(own)
    rounds = [[step(own) for own in WAYS] for _ in range(repeats)]
    return {own: statistics.median(one) for own, one in zip(WAYS, zip(*rounds, strict=True), strict=True)}


def _memory(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1000
    raise RuntimeError(f"/proc/self/status has no {field}")


def _trainer(name: str, folder: Path, replies: int) -> Any:
    from datasets import Dataset
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl import GRPOConfig

    from scout.train.fresh import train_tokenizer
    from scout.train.shared_prefix import SharedPrefixTrainer

    shape = dict(SHAPES[name])
    config = AutoConfig.for_model(shape.pop("model_type"), **shape, max_position_embeddings=8192)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    settings = GRPOConfig(
        output_dir=str(folder), report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
        num_generations=replies, per_device_train_batch_size=replies, disable_dropout=True,
    )  # fmt: skip
    return SharedPrefixTrainer(
        model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * replies),
        processing_class=train_tokenizer(["a b c"], 300),
    )


def table(*, wide: bool) -> list[Row]:
    """The two shapes at 8 replies and 8 : 1; wide: also other numbers of replies and ratios, for the tiny shape."""
    rows = [measure(name) for name in SHAPES]
    if wide:
        rows += [measure("tiny", replies=replies, ratio=ratio) for replies, ratio in TABLE]
    return rows


def sentence(row: Row) -> str:
    """One row for people."""
    return (
        f"policy step, {row['model']}, {row['replies']} replies of {row['reply_tokens']} tokens to a prompt of "
        f"{row['prompt_tokens']}: TRL {row['trl_seconds']} s, shared {row['shared_seconds']} s, ratio {row['ratio']}; "
        f"TRL with the head on replies alone {row['trl_lean_seconds']} s, ratio {row['lean_ratio']} of "
        f"{row['ceiling']} that arithmetic allows ({row['of_ceiling']:.0%}); memory {row['trl_megabytes']}, "
        f"{row['trl_lean_megabytes']} and shared {row['shared_megabytes']} MB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --json one object last."""
    parser = argparse.ArgumentParser(prog="python -m eval.bench.shared_prefix", description=__doc__)
    parser.add_argument(
        "--wide", action="store_true", help="also 2 to 16 replies and prompts of 1 to 16 replies' length"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        name, prompt, reply, replies, way, repeats = options.child
        print(json.dumps(_run(name, int(prompt), int(reply), int(replies), way, int(repeats))))
        return 0
    rows = table(wide=options.wide)
    for row in rows:
        print(sentence(row))
    if options.json:
        print(json.dumps({"name": "shared prefix", "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
