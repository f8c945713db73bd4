"""The command `scoutv`: one verb, one module, imported only when the verb is used."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from scout.errors import INTERRUPTED, MACHINERY, OK, USAGE, ScoutError, exit_code, printable


class Verb(NamedTuple):
    """One verb. Its module offers `configure(parser)` and `run(args) -> int`."""

    module: str
    help: str
    example: str


VERBS: dict[str, Verb] = {
    "train": Verb(
        "scout.train.command",
        "train a verifier by SFT or GRPO from a recipe",
        "scoutv train sft recipes/tiny/sft.yaml --run runs/mine/sft --dry-run",
    ),
    "export": Verb(
        "scout.train.export_command",
        "make a checkpoint into a model folder that vLLM loads",
        "scoutv export runs/demo/grpo/final --out runs/demo/model",
    ),
    "serve": Verb(
        "scout.serve.command",
        "start vLLM and the scoring endpoint in front of it",
        "scoutv serve runs/demo/model --host 127.0.0.1 --port 8000",
    ),
    "score": Verb(
        "scout.scorer.score_command",
        "judge runs step by step",
        "scoutv score runs/demo/data/test.jsonl.zst --model runs/demo/model --out verdicts.jsonl",
    ),
    "rerank": Verb(
        "scout.scorer.rerank_command",
        "choose the best of several runs of a task",
        "scoutv rerank runs/demo/data/test.jsonl.zst --model runs/demo/model --out best.jsonl",
    ),
    "convert": Verb(
        "scout.formats.command",
        "read runs of another harness into trajectories",
        "scoutv convert tests/fixtures/atif --out runs.jsonl",
    ),
    "stats": Verb(
        "scout.formats.stats_command",
        "count steps, tokens, labels and duplicates of trajectory files",
        "scoutv stats runs.jsonl",
    ),
}


def _exists(module: str) -> bool:
    """Whether a module is there, without importing it; its packages are imported and must be cheap."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _Parser(argparse.ArgumentParser):
    """argparse whose error message cannot carry terminal escapes that stood in an argument."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {printable(message)}\n")


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    """The parser of `scoutv`; only the wanted verb is configured, so that no other verb is imported."""
    from scout import __version__

    verbs = {name: verb for name, verb in VERBS.items() if _exists(verb.module)}
    example = next((verb.example for verb in verbs.values()), "scoutv --version")
    parser = _Parser(
        prog="scoutv",
        description="Find the first mistake in an agent's run, and choose the best of several runs.",
        epilog=f"example: {example}",
    )
    parser.add_argument("--version", action="version", version=f"scout-verifier {__version__}")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in verbs.items():
        command = commands.add_parser(
            name,
            help=verb.help,
            description=f"{verb.help[0].upper()}{verb.help[1:]}.",
            epilog=f"example:\n  {verb.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == wanted:
            importlib.import_module(verb.module).configure(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `scoutv` and return its exit code (see `scout.errors`)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in words if not word.startswith("-")), None)
    try:
        args = _parser(wanted).parse_args(words)
        return int(importlib.import_module(VERBS[args.verb].module).run(args))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else (OK if stop.code is None else USAGE)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our results left (`| head`). Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MACHINERY
    except ImportError as error:
        _say(f"{error}. This verb needs more than the core: pip install 'scout-verifier[train,serve]'")
        return MACHINERY
    except (ScoutError, OSError, MemoryError) as error:
        _say(str(error) or type(error).__name__)
        return exit_code(error)
    except Exception:
        # A defect of ours or of a library. Python's own exit code for it would be 1, which means a refused input.
        _say(traceback.format_exc())
        return MACHINERY


def _say(message: str) -> None:
    print(f"scoutv: {printable(message)}", file=sys.stderr)
