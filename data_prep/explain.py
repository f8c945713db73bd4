"""Label-faithful analyses: labelled runs -> training rows, one a window.

    python -m data_prep.explain --data runs/demo/data --out runs/demo/rows

The writer `world` takes its reasons from the evidence a rational observer has seen, `labels` from the annotators, and
`llm` asks a large model at an OpenAI-compatible endpoint (`--writer llm --endpoint URL --llm-model NAME`).
Verdicts parsed back from each analysis must equal the gold labels exactly, none may speak of labels it was given, and
for `world` an independent check has to find every cited fact; an analysis that fails is written again, then dropped and
counted. With `llm` the same command goes on where an earlier call ended, however it ended.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from data_prep import check, labels_writer, llm_settings
from data_prep.rows import Check, Frame, Unfaithful, frame, judged_part, problem, row_of, tokenizer_of
from data_prep.world_writer import Analysis, analyse
from scout.config import Recipe, load_recipe
from scout.errors import InputError, ScoutError, tell
from scout.lines import write_lines
from scout.trajectory import Trajectory, read

TRIES = 3
"""Analyses written for a run before it is dropped."""
SPLITS = ("train", "dev")
BEGUN = 0.1
"""Share of the runs in windows that are also shown as they were when only their first step was there."""

Writer = Callable[[Trajectory, random.Random], Analysis]
WRITERS: Mapping[str, Writer] = {"world": analyse, "labels": labels_writer.analyse}
CHECKS: Mapping[Writer, Check] = {labels_writer.analyse: labels_writer.problems}
"""Writer -> what is wrong with its analysis, where that is not `_world_problems`, which knows one world only."""


def rows_of(run: Trajectory, split: str, recipe: Recipe, tokenizer: Any, writer: Writer) -> list[dict[str, Any]]:
    """The rows of a run, one a window. Raises Unfaithful when no try was faithful to its labels and its evidence."""
    run, left_out = judged_part(run)
    shared = frame(split, recipe, tokenizer)
    windows = shared.windows(run)
    found = ""
    for attempt in range(TRIES):
        analysis = writer(run, random.Random(f"{run.id}/{attempt}"))
        rows = [row_of(run, number, window, analysis, shared) for number, window in enumerate(windows, 1)]
        if len(windows) > 1 and random.Random(run.id).random() < BEGUN:
            rows.append(_begun(run, analysis, shared))
        found = problem(run, analysis, rows, CHECKS.get(writer, _world_problems))
        if not found:
            for row in rows:
                row["cut"] += [left_out] if left_out else []
                row["tries"] = attempt + 1
            return rows
    raise Unfaithful(found)


def _begun(run: Trajectory, analysis: Analysis, shared: Frame) -> dict[str, Any]:
    """The row of a run of which only the first step is there, number 0: whoever watches a run live asks that too."""
    (window,) = shared.windows(msgspec.structs.replace(run, steps=run.steps[:1]))
    return row_of(run, 0, window, analysis, shared)


def _world_problems(run: Trajectory, paragraphs: Mapping[int, str]) -> list[str]:
    assert run.labels is not None
    labels = dict(enumerate(run.labels.step_labels, 1))
    return check.contradictions(paragraphs, labels) or check.problems(run, paragraphs)


_Job = tuple[Trajectory, str, Recipe, str, str]


def _work(job: _Job) -> tuple[str, list[dict[str, Any]], str]:
    run, split, recipe, model, writer = job
    try:
        return run.id, rows_of(run, split, recipe, tokenizer_of(model), WRITERS[writer]), ""
    except (Unfaithful, InputError) as error:
        return run.id, [], str(error)


def explain(
    runs: Iterator[Trajectory], split: str, recipe: Recipe, model: str, writer: str, counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Rows of all runs on both cores, in order. counts: filled with runs, rows, rewritten, dropped and the reasons."""
    # Before the workers are forked: each of them would spend seconds on importing transformers.
    tokenizer_of(model)
    with ProcessPoolExecutor(2) as pool:
        jobs = ((run, split, recipe, model, writer) for run in runs)
        for number, (_, rows, problem) in enumerate(pool.map(_work, jobs, chunksize=16), 1):
            counts["runs"] += 1
            counts["rows"] += len(rows)
            counts["rewritten"] += bool(rows) and rows[0]["tries"] > 1
            if problem:
                counts["dropped"] += 1
                counts[f"dropped: {problem[:120]}"] += 1
            if number % 500 == 0:
                print(f"{split}: {number} runs explained", file=sys.stderr)
            yield from rows


def main(argv: Sequence[str] | None = None) -> int:
    """Writes rows/{train,dev}.jsonl and prints what was kept and dropped."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.explain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled runs, {train,dev}.jsonl.zst")
    parser.add_argument("--out", type=Path, required=True, help="folder for the rows")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/tiny/sft.yaml"), help="its scout section is used")
    parser.add_argument("--model", default="recipes/tiny/base", help="folder whose tokenizer counts the tokens")
    parser.add_argument("--writer", choices=sorted([*WRITERS, "llm"]), default="world")
    llm_settings.add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        settings, key = llm_settings.settings(args), llm_settings.key() if args.writer == "llm" else ""
        recipe = load_recipe(args.recipe, [])
        sources = {split: args.data / f"{split}.jsonl.zst" for split in SPLITS}
        missing = [str(path) for path in sources.values() if not path.is_file()]
        if missing:
            raise InputError(f"not there: {', '.join(missing)}. data_prep.collect writes them into its --out folder.")
        args.out.mkdir(parents=True, exist_ok=True)
        if settings is not None:
            from data_prep import llm_writer  # openai takes a second to import

            return llm_writer.write(sources, args.out, recipe, tokenizer_of(args.model), settings, key)
        for split, source in sources.items():
            counts: Counter[str] = Counter()
            rows = explain(read(source), split, recipe, args.model, args.writer, counts)
            write_lines(args.out / f"{split}.jsonl", (msgspec.json.encode(row) for row in rows))
            print(json.dumps({"split": split, **counts}))
            if not counts["rows"]:
                (args.out / f"{split}.jsonl").unlink()
                raise InputError(f"{source}: none of its {counts['runs']} runs gave a row; the line above says why.")
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
