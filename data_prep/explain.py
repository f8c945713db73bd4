"""Label-faithful analyses: labelled runs -> training rows, one a window.

    python -m data_prep.explain --data runs/demo/data --out runs/demo/rows --recipe recipes/tiny/sft.yaml \
        --model recipes/tiny/base

The writer `world` takes its reasons from the evidence a rational observer has seen, `labels` from the annotators.
Verdicts parsed back from each analysis must equal the gold labels exactly, none may speak of labels it was given, and
for `world` an independent check has to find every cited fact; an analysis that fails is written again, then dropped and
counted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from data_prep import check, labels_writer
from data_prep.world_writer import Analysis, analyse
from scout import budget, prompt
from scout.config import Recipe, load_recipe
from scout.errors import InputError, ScoutError, exit_code
from scout.lines import write_lines
from scout.render import counter, measure
from scout.trajectory import Trajectory, read
from scout.verdict import parse_reply

TRIES = 3
"""Analyses written for a run before it is dropped."""
STATE_MARGIN = 8
"""Tokens that a state may add to a prompt beyond its own, where it joins the text around it."""
SPLITS = ("train", "dev")

Writer = Callable[[Trajectory, random.Random], Analysis]
Check = Callable[[Trajectory, Mapping[int, str]], list[str]]
WRITERS: Mapping[str, Writer] = {"world": analyse, "labels": labels_writer.analyse}
CHECKS: Mapping[Writer, Check] = {labels_writer.analyse: labels_writer.problems}
"""Writer -> what is wrong with its analysis, where that is not `_world_problems`, which knows one world only."""


def known_part(run: Trajectory) -> tuple[Trajectory, str | None]:
    """The run up to the last step whose label is known, and what was left out.

    Where only the first mistake is known, later steps have no label: the run ends at that step.
    """
    labels = run.labels
    if labels is None or labels.known != "first_mistake" or labels.first_mistake is None:
        return run, None
    end = labels.first_mistake
    if end == len(run.steps):
        return run, None
    shorter = msgspec.structs.replace(
        labels,
        step_labels=labels.step_labels[:end],
        reasons=labels.reasons[:end],
        kinds=labels.kinds[:end],
        proof_sizes=labels.proof_sizes[:end],
    )
    left_out = f"steps {end + 1} to {len(run.steps)}: after the first mistake labels are not known"
    return msgspec.structs.replace(run, steps=run.steps[:end], labels=shorter), left_out


def rows_of(run: Trajectory, split: str, recipe: Recipe, tokenizer: Any, writer: Writer) -> list[dict[str, Any]]:
    """The rows of a run, one a window. Raises Unfaithful when no try was faithful to its labels and its evidence."""
    run, left_out = known_part(run)
    if run.labels is None or run.labels.known not in ("all_steps", "first_mistake") or not run.steps:
        raise Unfaithful("the run has no labels that tell of each step whether it is correct")
    settings = recipe.scout
    limits = budget.Budget(settings.prompt_tokens, settings.window_steps, settings.task_tokens)
    frame = _Frame(split, prompt.style(settings.style), limits, _counter(tokenizer), measure(tokenizer))
    windows = budget.fit(run, limits, frame.count, frame.style, measure=frame.measure)
    problem = ""
    for attempt in range(TRIES):
        analysis = writer(run, random.Random(f"{run.id}/{attempt}"))
        rows = [_row(run, number, window, analysis, frame) for number, window in enumerate(windows, 1)]
        problem = _problem(run, analysis, rows, CHECKS.get(writer, _world_problems))
        if not problem:
            for row in rows:
                row["cut"] += [left_out] if left_out else []
                row["tries"] = attempt + 1
            return rows
    raise Unfaithful(problem)


class Unfaithful(Exception):
    """No analysis of the run agrees with its labels and its evidence; the text says why the last one did not."""


class _Frame(NamedTuple):
    """What all rows of a split share."""

    split: str
    style: prompt.Style
    limits: budget.Budget
    count: Callable[[str], int]
    measure: budget.Measure


def _carried(window: budget.Window, state: str, frame: _Frame) -> tuple[str, tuple[str, ...]]:
    """The state as the scorer would show it, and the ledger of what of it did not fit."""
    # `fit` kept this room, so a state well within it is not measured again; close cases are, as rendered.
    if frame.count(state) + STATE_MARGIN <= frame.limits.state_tokens:
        return state, ()
    shown, cut = budget.carried(window, state, frame.limits, frame.count, frame.style, measure=frame.measure)
    return shown, cut.parts


def _row(run: Trajectory, number: int, window: budget.Window, analysis: Analysis, frame: _Frame) -> dict[str, Any]:
    assert run.labels is not None
    indices = [step.index for step in window.steps]
    gold = [run.labels.step_labels[index - 1] for index in indices]
    before, cut = None, tuple[str, ...]()
    if not window.first:
        before, cut = _carried(window, analysis.states[indices[0] - 1], frame)
    after = None if window.last else analysis.states[indices[-1]]
    paragraphs = {index: analysis.paragraphs[index] for index in indices}
    return {
        "id": f"{run.id}#{number}",
        "trajectory_id": run.id,
        "task_id": run.task.id,
        "split": frame.split,
        "prompt": prompt.messages(window.task, window.steps, frame.style, state=before, last=window.last),
        "completion": prompt.reply_text(paragraphs, dict(zip(indices, gold, strict=True)), state=after),
        "indices": indices,
        "gold": gold,
        "prompt_style": frame.style.name,
        "prompt_version": prompt.PROMPT_VERSION,
        "cut": [*window.cut.parts, *cut],
    }


def _problem(run: Trajectory, analysis: Analysis, rows: Sequence[Mapping[str, Any]], facts: Check) -> str:
    """Why the analysis cannot be used: verdicts that differ from the labels, or facts that are not there."""
    for row in rows:
        reply = parse_reply(row["completion"], row["indices"], True)
        gold = {i: label for i, label in zip(row["indices"], row["gold"], strict=True) if label != "unlabelled"}
        if not reply.readable or reply.contradictions or reply.block != gold or reply.paragraph_labels != gold:
            return f"verdicts differ from the labels: {reply.problem or reply.contradictions or reply.block}"
    return "; ".join(facts(run, analysis.paragraphs)[:3])


def _world_problems(run: Trajectory, paragraphs: Mapping[int, str]) -> list[str]:
    assert run.labels is not None
    labels = dict(enumerate(run.labels.step_labels, 1))
    return check.contradictions(paragraphs, labels) or check.problems(run, paragraphs)


@cache
def _tokenizer(model: str) -> Any:
    if not (Path(model) / "tokenizer.json").is_file():
        raise InputError(f"--model {model}: no tokenizer.json there. Give the folder of a model or of a tokenizer.")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, local_files_only=True)


@cache
def _counter(tokenizer: Any) -> Callable[[str], int]:
    """Remembers its counts: the candidates of a task share its text, which is counted again for every cut of it."""
    return lru_cache(maxsize=4096)(counter(tokenizer))


_Job = tuple[Trajectory, str, Recipe, str, str]


def _work(job: _Job) -> tuple[str, list[dict[str, Any]], str]:
    run, split, recipe, model, writer = job
    try:
        return run.id, rows_of(run, split, recipe, _tokenizer(model), WRITERS[writer]), ""
    except (Unfaithful, InputError) as error:
        return run.id, [], str(error)


def explain(
    runs: Iterator[Trajectory], split: str, recipe: Recipe, model: str, writer: str, counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Rows of all runs on both cores, in order. counts: filled with runs, rows, rewritten, dropped and the reasons."""
    # Before the workers are forked: each of them would spend seconds on importing transformers.
    _tokenizer(model)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled runs, {train,dev}.jsonl.zst")
    parser.add_argument("--out", type=Path, required=True, help="folder for the rows")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/tiny/sft.yaml"), help="its scout section is used")
    parser.add_argument("--model", default="recipes/tiny/base", help="folder whose tokenizer counts the tokens")
    parser.add_argument("--writer", choices=sorted(WRITERS), default="world")
    args = parser.parse_args(argv)
    try:
        recipe = load_recipe(args.recipe, [])
        args.out.mkdir(parents=True, exist_ok=True)
        sources = {split: args.data / f"{split}.jsonl.zst" for split in SPLITS}
        missing = [str(path) for path in sources.values() if not path.is_file()]
        if missing:
            raise InputError(f"not there: {', '.join(missing)}. data_prep.collect writes them into its --out folder.")
        for split, source in sources.items():
            counts: Counter[str] = Counter()
            rows = explain(read(source), split, recipe, args.model, args.writer, counts)
            write_lines(args.out / f"{split}.jsonl", (msgspec.json.encode(row) for row in rows))
            print(json.dumps({"split": split, **counts}))
            if not counts["rows"]:
                (args.out / f"{split}.jsonl").unlink()
                raise InputError(f"{source}: none of its {counts['runs']} runs gave a row; the line above says why.")
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        print(str(error) or "interrupted", file=sys.stderr)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
