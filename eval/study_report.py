"""What the arms of a reward study taught: figures on held-out runs, and degenerate policies over time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from eval import figures, plots
from eval import runs as run_files
from scout import metrics, verdict
from scout.lines import replacing
from scout.trajectory import Trajectory
from scout.verdict import Verdict

START = "start"
FIGURES = {
    "exact": "exact", "f1": "F1", "recall_correct": "recall, correct", "recall_incorrect": "recall, incorrect",
    "product": "product reward", "all_correct": "runs with a mistake called all correct", "unscored": "unscored",
}  # fmt: skip
"""Figure -> its name in the table. From the labels that the model gives by itself, without a threshold from dev."""
SIGNS = ("all_correct", "all_incorrect")
"""Shares of sampled windows that GRPO logs at each step; see `scout.train.signs`."""
ENDS = 5
"""Steps at either end of a run over which a share is averaged."""

Row = dict[str, Any]


def folder_name(name: str, seed: int) -> str:
    """Where an arm's run lies: letters, digits and dashes."""
    plain = "".join(sign if sign.isalnum() else "-" for sign in name)
    return f"{plain}-{seed}".replace("--", "-")


def held_out(runs: Sequence[Trajectory], verdicts: Sequence[Verdict]) -> Row:
    """Figures of one model; unscored runs count as wrong."""
    found = metrics.localisation(verdicts, runs, strict=True)
    steps = metrics.steps(verdicts, runs, strict=True)
    faulty = [one for one, run in zip(verdicts, runs, strict=True) if run.has_mistake]
    quiet = [one.status == "scored" and one.first_mistake is None for one in faulty]
    return {
        "exact": found["exact"],
        "f1": metrics.detection(verdicts, runs, strict=True)["f1"],
        **{name: steps[name] for name in ("recall_correct", "recall_incorrect", "product")},
        "all_correct": sum(quiet) / len(quiet) if quiet else None,
        "unscored": sum(one.status != "scored" for one in verdicts),
    }


def signs_over_time(log: Path) -> dict[str, list[float | None]]:
    """Share of degenerate replies at each step of a GRPO run, from its metrics.jsonl."""
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [row for row in rows if "reward" in row]
    return {name: [row.get(name) for row in steps] for name in SIGNS}


def collect(out: Path, arms: Mapping[str, int]) -> list[Row]:
    """One row for each model that has been scored, the start first. arms: name -> seeds."""
    runs = run_files.load_split(out / "slices", "test")
    rows = []
    for name, seed in [(START, None), *((name, seed) for name, seeds in arms.items() for seed in range(seeds))]:
        label = START if seed is None else folder_name(name, seed)
        path = out / "verdicts" / f"{label}.jsonl"
        if not path.is_file():
            continue
        verdicts = figures.complete(runs, {one.trajectory_id: one for one in verdict.read(path)})
        signs = {} if seed is None else signs_over_time(out / "arms" / label / "metrics.jsonl")
        rows.append({"arm": name, "seed": seed, **held_out(runs, verdicts), "signs": signs})
    return rows


def write(out: Path, arms: Mapping[str, int]) -> None:
    """study.json, study.csv, study.svg and study.md from what has been scored so far."""
    rows = collect(out, arms)
    texts = {"study.json": json.dumps(rows, indent=1) + "\n", "study.csv": _csv(rows), "study.md": markdown(rows)}
    for name, text in texts.items():
        with replacing(out / name) as file:
            file.write(text.encode())
    with replacing(out / "study.svg") as file:
        file.write(plots.curves({name: curve(rows, name) for name in _arms(rows)}, "step",
                                "replies that call a window with a mistake all correct"))  # fmt: skip


def _arms(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows if row["seed"] is not None))


def curve(rows: Sequence[Row], arm: str, sign: str = "all_correct") -> list[float]:
    """Mean over the arm's seeds of that share at each step; a step without the figure is passed over."""
    logs = [row["signs"][sign] for row in rows if row["arm"] == arm]
    return [mean(known) for step in zip(*logs, strict=False) if (known := [one for one in step if one is not None])]


def markdown(rows: Sequence[Row]) -> str:
    """The table: means over seeds with lowest and highest, and all-correct replies at both ends of the run."""
    head = ["reward", "seeds", *FIGURES.values(), f"all-correct replies, first {ENDS} steps to last {ENDS}"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in (START, *_arms(rows)):
        own = [row for row in rows if row["arm"] == name]
        cells = [_spread([row[figure] for row in own]) for figure in FIGURES]
        shares = curve(rows, name) if name != START else []
        ends = f"{mean(shares[:ENDS]):.3f} to {mean(shares[-ENDS:]):.3f}" if shares else ""
        lines.append("| " + " | ".join([name, str(len(own)), *cells, ends]) + " |")
    return "\n".join(lines) + "\n"


def _spread(values: Sequence[float | int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "—"
    shown = (lambda value: f"{value:.0f}") if all(isinstance(v, int) for v in known) else (lambda v: f"{v:.3f}")
    if len(known) == 1:
        return shown(known[0])
    return f"{shown(mean(known))} [{shown(min(known))}, {shown(max(known))}]"


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(["arm", "seed", *FIGURES])
    table.writerows([row["arm"], row["seed"], *(row[name] for name in FIGURES)] for row in rows)
    return buffer.getvalue()
