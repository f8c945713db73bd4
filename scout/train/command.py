"""`scoutv train sft|grpo`: reads the recipe and hands over to the stage; the heavy imports happen only then."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from scout.config import load_recipe
from scout.errors import OK


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`."""
    parser.add_argument("stage", choices=("sft", "grpo"), help="sft learns the analyses, grpo the verdicts' reward")
    parser.add_argument("recipe", metavar="RECIPE", help="YAML file with model, data, scout, trainer, serve")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="overrides of recipe values")
    parser.add_argument("--run", required=True, metavar="DIR", help="folder of this run; the result is DIR/final")
    parser.add_argument("--model", metavar="DIR", help="weights to start from, instead of the recipe's model.path")
    parser.add_argument("--data", metavar="DIR", help="folder with train and dev rows, instead of data.path")
    parser.add_argument("--resume", action="store_true", help="go on with an unfinished run in DIR, or begin one")
    parser.add_argument("--dry-run", action="store_true", help="check everything but the weights, print a table, stop")
    _take_overrides_anywhere(parser)


def _take_overrides_anywhere(parser: argparse.ArgumentParser) -> None:
    """Let overrides stand after options as well; argparse itself ends a list of positionals at the first option."""
    parse = parser.parse_known_args

    def parse_all(args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        found, rest = parse(args, namespace)
        overrides = [word for word in rest if "=" in word and not word.startswith("-")]
        found.overrides = [*found.overrides, *overrides]
        return found, [word for word in rest if word not in overrides]

    parser.parse_known_args = parse_all  # type: ignore[method-assign,assignment]


def offline() -> None:
    """Settings that keep transformers, datasets and TRL from asking any server, and their noise from stderr."""
    for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY",
                "HF_DATASETS_DISABLE_PROGRESS_BARS", "TRL_EXPERIMENTAL_SILENCE"):  # fmt: skip
        os.environ[key] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def run(args: argparse.Namespace) -> int:
    """Train, or check with --dry-run; prints one JSON object with the result."""
    offline()
    from scout.train import trainer_keys
    from scout.train.stage import Request

    kind = trainer_keys.CONFIGS[args.stage]
    recipe = load_recipe(args.recipe, args.overrides, lambda trainer: trainer_keys.findings(trainer, kind))

    request = Request(args.stage, recipe, args.recipe, Path(args.run), args.model, args.data, args.resume)
    if args.dry_run:
        from scout.train import dry_run

        print(json.dumps(dry_run.run(request)))
        return OK
    if args.stage == "sft":
        from scout.train import sft as stage
    else:
        from scout.train import grpo as stage  # type: ignore[no-redef]
    result = stage.run(request)
    if result is None:
        print(f"{args.stage}: already finished; the result is {request.run / 'final'}", file=sys.stderr)
        result = {"stage": args.stage, "final": str(request.run / "final"), "already_finished": True}
    print(json.dumps(result))
    return OK
