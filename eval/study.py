"""The reward study: GRPO with each named reward from one SFT start, and what each of them taught.

    python -m eval.study [--out runs/study] [--study recipes/study.yaml] [--arms product mean]

Collects and explains once, trains one start by SFT, then runs every arm of the study file with each of its seeds and
scores held-out runs with what came out. Finished parts are kept: the same command goes on after a stop. Writes
study.json, study.csv, study.svg and study.md into --out, after each arm anew, and prints the last.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eval import demo, study_report
from eval.stages import Runner, Stage
from scout import records, strict_yaml
from scout.errors import INTERRUPTED, OK, InputError, ScoutError, refuse, tell
from scout.lines import require_file


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of GRPO run."""

    seeds: int
    """How often it is run; `trainer.seed` is 0, 1, …"""
    set: tuple[str, ...]
    """Overrides of the recipe's grpo.yaml."""


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A study file."""

    recipe: str
    start: tuple[str, ...]
    """Overrides of the recipe's sft.yaml."""
    grpo: tuple[str, ...]
    """Overrides of grpo.yaml that all arms share."""
    arms: dict[str, Arm]


def read(path: Path) -> Study:
    """The study in that file. Raises InputError with everything that is wrong with it."""
    tree, lines, repeated = strict_yaml.parse(require_file(path).read_text(encoding="utf-8"))
    found = [*repeated, *records.explain(Study, tree)]
    if not found:
        study = msgspec.convert(tree, Study)
        found = [(f"arms.{name}.seeds", arm.seeds, "1 or more") for name, arm in study.arms.items() if arm.seeds < 1]
    if found:
        places = (f"{path}:{lines[item[0]]}" if item[0] in lines else str(path) for item in found)
        refuse([records.problem(*both) for both in zip(places, found, strict=True)], hint="Nothing was started.")
    return study


def start_stages(study: Study, out: Path, *, fast: bool) -> tuple[Stage, ...]:
    """What all arms share: data, rows, slices, and the model that they start from; its verdicts are the first row."""
    few = ("trainer.max_steps=2",) if fast else ()
    sft = Stage(
        "sft", "one start for all arms", 180.0,
        (demo.scoutv("train", "sft", Path(study.recipe) / "sft.yaml", *study.start, *few, "--run", out / "sft",
                     "--model", demo.BASE, "--data", out / "rows", "--resume"),),
        (out / "sft" / "final",), tuple(demo.recipe_files(without="grpo.yaml")), out / "sft",
    )  # fmt: skip
    return (*demo.data_stages(out, fast), sft, _score(out, "start", out / "sft" / "final"))


def arm_stages(study: Study, name: str, seed: int, out: Path, *, fast: bool) -> tuple[Stage, ...]:
    """One run of one arm, and its verdicts on held-out runs."""
    arm = out / "arms" / study_report.folder_name(name, seed)
    few = ("trainer.max_steps=2",) if fast else ()
    train = Stage(
        f"{name}, seed {seed}", "GRPO from the start", 180.0,
        (demo.scoutv("train", "grpo", Path(study.recipe) / "grpo.yaml", *study.grpo, *study.arms[name].set, *few,
                     f"trainer.seed={seed}", "--run", arm, "--model", out / "sft" / "final", "--data", out / "rows",
                     "--resume"),),
        (arm / "final",), (Path(study.recipe) / "grpo.yaml",), arm,
    )  # fmt: skip
    return train, _score(out, study_report.folder_name(name, seed), arm / "final")


def _score(out: Path, name: str, model: Path) -> Stage:
    verdicts = out / "verdicts" / f"{name}.jsonl"
    command = demo.scoutv("score", out / "slices" / "test.jsonl.zst", "--model", model, "--out", verdicts)
    return Stage(f"score {name}", "held-out runs", 25.0, (command,), (verdicts,), keeps=out / "verdicts" / f".{name}")


def run(study: Study, out: Path, arms: Sequence[str], *, fast: bool) -> int:
    """Exit code of the whole. Runs seed by seed, so that a stop early on leaves every arm with something."""
    shared = Runner(out)
    code = shared.run(start_stages(study, out, fast=fast))
    most = max(study.arms[name].seeds for name in arms)
    for seed in range(most):
        for name in arms:
            if code or seed >= study.arms[name].seeds:
                continue
            code = Runner(out, list(shared.history)).run(arm_stages(study, name, seed, out, fast=fast))
            if code == OK:
                study_report.write(out, {name: study.arms[name].seeds for name in arms})
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study; its table goes to stdout, everything else to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="folder (default: %(default)s)")
    parser.add_argument("--study", type=Path, default=Path("recipes/study.yaml"), help="file (default: %(default)s)")
    parser.add_argument("--arms", nargs="+", metavar="NAME", help="only these arms of the file")
    parser.add_argument("--fast", action="store_true", help="two steps each on a handful of tasks, to try the plumbing")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        study = read(options.study)
        arms = options.arms or list(study.arms)
        unknown = [name for name in arms if name not in study.arms]
        if unknown:
            raise InputError(f"--arms: {unknown[0]!r} is no arm of {options.study}; {', '.join(study.arms)}.")
        code = run(study, options.out, arms, fast=options.fast)
        if code == OK:
            print((options.out / "study.md").read_text(encoding="utf-8"), end="")
        return code
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except (ScoutError, OSError) as error:
        return tell(error)


if __name__ == "__main__":
    sys.exit(main())
