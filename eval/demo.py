"""The whole of Scout on the tiny recipe: collect, explain, train, export, serve, evaluate, report.

    python -m eval.demo [--run runs/demo] [--seed 0]

Every stage is a public command that is printed before it runs. Finished stages are kept: a second call goes on where
the first one stopped, and runs again only what a changed recipe or seed reaches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eval import tables
from eval.report import RUN_FILE
from eval.stages import Runner, Stage
from scout.errors import INTERRUPTED, OK, InputError, ScoutError, tell
from scout.lines import replacing

RECIPE = Path("recipes/tiny")
BASE = RECIPE / "base"
DATA_SEED = 0
"""Seeds of the demo repeat training and evaluation on the same data, so that they can be compared."""
SECONDS = {"collect": 10, "explain": 30, "check splits": 10, "sft": 520, "grpo": 300, "evaluate base": 45,
           "evaluate sft": 210, "evaluate grpo": 235, "report": 30, "export": 10, "serve": 80}  # fmt: skip
"""About how long each stage takes on two cores; they add up to what the README promises."""
FAST_TASKS = ("train=6", "dev=3", "test=3")


def plan(run: Path, seed: int, *, fast: bool = False) -> tuple[Stage, ...]:
    """The stages of the demo in a run folder. fast: two training steps on a handful of tasks, to try the plumbing."""
    return (*data_stages(run, fast), *_training(run, seed, fast), *_use(run))


def python(module: str, *words: str | Path) -> tuple[str, ...]:
    """The command that runs a module of this checkout."""
    return (sys.executable, "-m", module, *map(str, words))


def scoutv(*words: str | Path) -> tuple[str, ...]:
    """The command `scoutv` of this environment."""
    return (str(Path(sys.executable).with_name("scoutv")), *map(str, words))


def _stage(name: str, about: str, commands: Sequence[tuple[str, ...]], outputs: Sequence[Path],
           inputs: Sequence[Path] = (), keeps: Path | None = None) -> Stage:  # fmt: skip
    return Stage(name, about, SECONDS[name], tuple(commands), tuple(outputs), tuple(inputs), keeps)


def recipe_files(*, without: str) -> list[Path]:
    """Files of the recipe that a stage depends on; its README and the other stage's file change nothing."""
    files = sorted(path for path in RECIPE.rglob("*") if path.is_file())
    return [path for path in files if path.suffix != ".md" and path.name != without]


def _start(run: Path) -> Path:
    """The weights that SFT starts from: the base checkpoint of the recipe, or random ones that SFT makes itself."""
    return BASE if BASE.is_dir() else run / "sft" / "fresh"


def data_stages(run: Path, fast: bool) -> tuple[Stage, ...]:
    """Labelled runs, rows to train on, and the parts that stages are scored on, in a run folder."""
    data, rows, slices = run / "data", run / "rows", run / "slices"
    few = ("--tasks", *FAST_TASKS) if fast else ()
    return (
        _stage("collect", "a scripted scientist plays labelled runs in worlds it has not met, 8 for each task",
               [python("data_prep.collect", "--out", data, "--seed", str(DATA_SEED), *few)], [data]),
        _stage("explain", "step-by-step analyses are written and kept only where they equal the labels",
               [python("data_prep.explain", "--data", data, "--out", rows)], [rows], recipe_files(without="grpo.yaml")),
        _stage("check splits", "no held-out task may occur in training; steps for the leak check are drawn",
               [python("eval.slices", "--data", data, "--out", slices)], [slices]),
    )  # fmt: skip


def _training(run: Path, seed: int, fast: bool) -> tuple[Stage, ...]:
    sft, grpo, rows = run / "sft", run / "grpo", run / "rows"
    model = ("--model", BASE) if BASE.is_dir() else ()
    settings = (f"trainer.seed={seed}", *(("trainer.max_steps=2",) if fast else ()))
    return (
        _stage("sft", "a small model learns to write the analyses",
               [scoutv("train", "sft", RECIPE / "sft.yaml", *settings, "--run", sft, *model, "--data", rows,
                        "--resume")],
               [sft / "final"], recipe_files(without="grpo.yaml"), sft),
        _stage("grpo", "it samples its own analyses and is rewarded for balanced recall of right and wrong steps",
               [scoutv("train", "grpo", RECIPE / "grpo.yaml", *settings, "--run", grpo, "--model", sft / "final",
                        "--data", rows, "--resume")],
               [grpo / "final"], recipe_files(without="sft.yaml"), grpo),
    )  # fmt: skip


def _use(run: Path) -> tuple[Stage, ...]:
    data, slices, model = run / "data", run / "slices", run / "model"
    base, verdicts = run / "base", run / "eval"
    whole = (data / "dev.jsonl.zst", data / "test.jsonl.zst")
    few = (slices / "dev.jsonl.zst", slices / "test.jsonl.zst")
    alone = slices / "test_no_history.jsonl.zst"

    def judge(stage: str, about: str, folder: Path, files: Sequence[Path], *before: tuple[str, ...]) -> Stage:
        out = verdicts / stage / "verdicts.jsonl"
        score = scoutv("score", *files, "--model", folder, "--out", out)
        return _stage(f"evaluate {stage}", about, [*before, score], [out], keeps=verdicts / stage)

    final = run / "grpo" / "final"
    return (
        judge("base", "the model before training judges runs of a few held-out tasks", base, few,
              python("eval.base_model", "--weights", _start(run), "--like", run / "sft" / "final", "--out", base)),
        judge("sft", "the SFT model judges all held-out runs", run / "sft" / "final", whole),
        judge("grpo", "the final model judges them too, and lone steps without history", final, (*whole, alone)),
        _stage("report", "thresholds come from dev, figures from test",
               [python("eval.report", "--run", run)], [run / "report.json", run / "report.html"]),
        _stage("export", "the checkpoint, with the threshold that dev chose, becomes a model folder that vLLM loads",
               [scoutv("export", final, "--out", model, "--report", run / "report.json")], [model]),
        _stage("serve", "vLLM and the endpoint start, score and rerank a few held-out runs over HTTP, and stop",
               [python("eval.serve_once", "--model", model, "--data", data, "--out", run / "serve")], [run / "serve"]),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the report's paths and its headline table go to stdout, everything else to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="run folder (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of SFT, GRPO and evaluation (default: %(default)s)")
    parser.add_argument("--fast", action="store_true", help="two training steps on a few tasks, to try the plumbing")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        if not RECIPE.is_dir():
            raise InputError(f"{RECIPE} is not here. Call this from the root of a checkout.")
        with replacing(options.run / RUN_FILE) as file:
            file.write(json.dumps({"seed": options.seed, "recipe": str(RECIPE)}).encode() + b"\n")
        stages = plan(options.run, options.seed, fast=options.fast)
        code = Runner(options.run).run(stages)
        if code == OK:
            _show(options.run, time.monotonic() - begin)
        return code
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except (ScoutError, OSError) as error:
        return tell(error)


def _show(run: Path, seconds: float) -> None:
    table = tables.headline(json.loads((run / "report.json").read_bytes()))
    print(f"finished in {seconds / 60:.1f} min", file=sys.stderr)
    print("\n".join([*(str(run / f"report.{ending}") for ending in ("html", "md", "json")), "", table.note, ""]))
    print("\n".join(tables.plain(table)))


if __name__ == "__main__":
    sys.exit(main())
