"""Several seeds of one recipe side by side: each figure of every report, their mean, and the bar that it must pass.

    python -m eval.demo --run runs/seed1 --seed 1
    python -m eval.seeds runs/demo runs/seed1 runs/seed2

Prints Markdown. A bar holds for the mean, and an interval must exclude zero in every seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from eval.tables import Report, number
from scout.errors import InputError, ScoutError, printable, tell

_Value = Callable[[Report], float | None]
LEAD = 0.20
"""First mistakes found must lie this far above the best trivial baseline."""
F1_LEAD = 0.08
"""F1 must lie this far above that of flagging every run."""


def _lead(name: str, *path: str) -> _Value:
    """How far the figure at `path` lies above the best of the methods that do not understand the run."""

    def value(report: Report) -> float | None:
        own = _at(*path)(report)
        others = [row[name] for row in report["baselines"].values() if row.get(name) is not None]
        return own - max(others) if own is not None and others else None

    return value


def _at(*path: str) -> _Value:
    def value(report: Report) -> float | None:
        found: Any = report
        for part in path:
            found = (found or {}).get(part)
        return found if isinstance(found, int | float) else None

    return value


BARS: tuple[tuple[str, _Value, float], ...] = (
    ("first mistake exact, provable from at most 3 facts", _at("localization", "exact_provable"), 0.50),
    ("… share of all mistakes that is so provable",
     lambda r: r["localization"]["n_provable"] / r["localization"]["n"], 0.60),
    ("first mistake exact, lead over the best baseline",
     _lead("exact", "localization", "exact"), LEAD),
    ("detection F1, lead over always flag",
     lambda r: r["detection"]["f1"] - r["detection"]["always_flag_f1"], F1_LEAD),
    ("best of 5, share of the gap from random to oracle closed", _at("best_of_n", "5", "closed"), 0.40),
    ("best of 5, low end of the gain over random", _at("best_of_n", "5", "gain_low"), 0.0),
    ("best of 5, lead over the best trivial selector",
     _lead("best_of_5", "best_of_n", "5", "scout"), 0.0),
)  # fmt: skip
"""What is measured, how it is read from a report, and what its mean must reach (0: must be above it)."""

CEILINGS: tuple[tuple[str, _Value, float], ...] = (
    ("AUROC of a bag of words on steps", _at("bag_of_words_auroc"), 0.65),
    ("AUROC of the verifier without history", _at("no_history_auroc"), 0.65),
)
"""The same for what must stay below: wording alone must not give mistakes away."""

FIGURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("first mistake exact", ("localization", "exact")), ("within 1", ("localization", "within_1")),
    ("within 3", ("localization", "within_3")), ("MAE of flagged runs", ("localization", "mae")),
    ("detection F1", ("detection", "f1")), ("precision", ("detection", "precision")),
    ("recall", ("detection", "recall")), ("clean runs left alone", ("detection", "clean_unflagged")),
    ("recall on correct steps", ("steps", "recall_correct")),
    ("recall on incorrect steps", ("steps", "recall_incorrect")),
    ("product reward of its own labels", ("own_labels", "product_reward")),
    ("best of 5", ("best_of_n", "5", "scout")), ("threshold from dev", ("threshold", "value")),
    ("runs unscored", ("unscored", "count")),
)  # fmt: skip
"""Figures of a stage: name, and where the report has it."""


def tables(reports: Sequence[Report]) -> list[str]:
    """The Markdown lines: bars, stages seed by seed, what GRPO changed, first mistakes by kind and by proving facts."""
    seeds = [f"seed {report['seed']}" for report in reports]
    runs = reports[0]["data"]["test"]["runs"]
    bars = [*(_bar(*bar, reports) for bar in BARS), *(_ceiling(*bar, reports) for bar in CEILINGS)]
    lines = _rows("final model", [*seeds, "mean", "needed"], bars)
    for stage in ("sft", "grpo"):
        found = [report["stages"][stage] for report in reports]
        rows = [[name, *_cells([_at(*path)(one) for one in found])] for name, path in FIGURES]
        lines += ["", *_rows(f"{stage.upper()}, {runs} held-out runs", [*seeds, "mean"], rows)]
    lines += ["", *_rows("GRPO − SFT, paired", [*seeds, "mean"], [_change(n, reports) for n in _CHANGES])]
    for corner, name in (("first mistake exact, by kind", "by_kind"), ("by facts that prove it", "by_facts")):
        lines += ["", *_rows(corner, ["runs", *seeds, "mean"], _groups(name, reports))]
    return lines


_CHANGES = ("product_reward", "exact", "f1")


def _bar(name: str, value: _Value, needed: float, reports: Sequence[Report]) -> list[str]:
    values = [value(report) for report in reports]
    known = [one for one in values if one is not None]
    reached = 0.0
    if len(known) == len(values):
        reached = min(known) if "low end" in name else mean(known)
    passed = len(known) == len(values) and (reached > 0.0 if needed == 0.0 else reached >= needed)
    return [name, *_cells(values), f"{'above' if needed == 0.0 else 'at least'} {needed:.2f}: {_said(passed)}"]


def _ceiling(name: str, value: _Value, most: float, reports: Sequence[Report]) -> list[str]:
    values = [value(report) for report in reports]
    known = [one for one in values if one is not None]
    passed = len(known) == len(values) and mean(known) < most
    return [name, *_cells(values), f"below {most:.2f}: {_said(passed)}"]


def _said(passed: bool) -> str:
    return "passes" if passed else "**fails**"


def _change(name: str, reports: Sequence[Report]) -> list[str]:
    found = [report["stages"]["difference"][name] for report in reports]
    cells = [f"{one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" for one in found]
    return [name.replace("_", " "), *cells, f"{mean(one['value'] for one in found):+.3f}"]


def _groups(name: str, reports: Sequence[Report]) -> list[list[str]]:
    """A row for each group of the first report, the largest first; all seeds judge the same runs."""
    groups = sorted(reports[0][name].items(), key=lambda item: -item[1]["n"])
    return [
        [key.replace("_", " "), number(row["n"]), *_cells([_at(name, key, "exact")(one) for one in reports])]
        for key, row in groups
    ]


def _cells(values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    return [*map(number, values), number(mean(known) if len(known) == len(values) else None)]


def _rows(corner: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head = [f"| {corner} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def read(folder: Path) -> Report:
    """The report of a run folder. Raises InputError when it has none or one without both stages."""
    path = folder / "report.json"
    if not path.is_file():
        raise InputError(f"{printable(str(path))} is not there. `python -m eval.demo --run {folder}` makes it.")
    try:
        report: Report = json.loads(path.read_bytes())
        stages = report["stages"]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is no report ({error}). `python -m eval.report --run {folder}` makes it.") from error
    missing = [name for name in ("sft", "grpo", "difference") if name not in stages]
    if missing:
        raise InputError(f"{printable(str(path))} lacks {', '.join(missing)}. Both stages have to be evaluated.")
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of the run folders."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.seeds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder of eval.demo")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(tables([read(folder) for folder in options.runs])))
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
