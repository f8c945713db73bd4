"""The plots of a report as SVG: drawn from report.json alone, the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from scout.errors import printable

Report = Mapping[str, Any]

_STYLE = {
    "svg.hashsalt": "scout",  # element ids are random without it
    "svg.fonttype": "path",  # the page must look the same where the font is missing
    "font.size": 9,
    "text.usetex": False,
    "text.parse_math": False,  # names come from data; a dollar sign in one is no formula
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_WIDTH, _HEIGHT = 5.2, 3.4


def draw(report: Report) -> dict[str, bytes]:
    """Title -> SVG; a plot without data is left out."""
    made = {
        "Best of N": _best_of_n(report),
        "Stages": _stages(report),
        "First mistakes found, by number of facts that prove them": _groups(report["by_facts"]),
        "First mistakes found, by kind": _groups(report["by_kind"]),
        "Probability of a mistake: stated and true": _reliability(report),
    }
    return {title: _svg(figure) for title, figure in made.items() if figure is not None}


def curves(lines: Mapping[str, Sequence[float]], across: str, up: str) -> bytes:
    """SVG of shares over steps, one line for each name."""
    figure, axes = _axes()
    for name, values in lines.items():
        axes.plot(range(1, len(values) + 1), values, label=name)
    axes.set(xlabel=across, ylabel=up, ylim=(0, 1.02))
    if lines:
        axes.legend(frameon=False, fontsize=7)
    return _svg(figure)


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    return buffer.getvalue()


def _axes() -> tuple[Figure, Any]:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        return figure, figure.add_subplot()


def _errors(rows: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    """Distances below and above each value, 0 where there is no interval."""
    below, above = [], []
    for row in rows:
        value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
        below.append(max(0.0, value - low) if low is not None else 0.0)
        above.append(max(0.0, high - value) if high is not None else 0.0)
    return [below, above]


def _best_of_n(report: Report) -> Figure | None:
    table = report["best_of_n"]
    if not table:
        return None
    figure, axes = _axes()
    sizes = [int(size) for size in table]
    rows = list(table.values())
    for name, colour in (("oracle", "#888888"), ("random", "#bbbbbb")):
        axes.plot(sizes, [row[name] for row in rows], "--", color=colour, label=name)
    shares = [row["scout"] for row in rows]
    axes.errorbar(sizes, shares, yerr=_errors(rows, "scout"), marker="o", capsize=2, color="#1f5fa8", label="Scout")
    axes.set(xlabel="candidates N", ylabel="share of tasks passed", ylim=(0, 1.02), xticks=sizes)
    axes.legend(frameon=False)
    return figure


def _stages(report: Report) -> Figure | None:
    stages = {name: stage for name, stage in report["stages"].items() if name != "difference"}
    figure, axes = _axes()
    wanted = (("localization", "exact", "exact"), ("localization", "exact_provable", "exact, provable"),
              ("detection", "f1", "F1"), ("own_labels", "product_reward", "product reward"))  # fmt: skip
    width = 0.8 / len(stages)
    for number, (name, stage) in enumerate(stages.items()):
        found = [(place, stage[family], key) for place, (family, key, _) in enumerate(wanted)]
        known = [(place, family, key) for place, family, key in found if family[key] is not None]
        bars = [family[key] for _, family, key in known]
        spread = [_errors([family], key) for _, family, key in known]
        errors = [[one[side][0] for one in spread] for side in (0, 1)]
        places = [place + number * width for place, *_ in known]
        axes.bar(places, bars, width * 0.9, yerr=errors, capsize=2, label=name)
    axes.set(ylim=(0, 1.02), ylabel="value")
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(wanted))], [spoken for *_, spoken in wanted])
    axes.legend(frameon=False)
    return figure


def _groups(table: Mapping[str, Any]) -> Figure | None:
    rows = {name: row for name, row in table.items() if row["exact"] is not None}
    if not rows:
        return None
    figure, axes = _axes()
    shares = [row["exact"] for row in rows.values()]
    axes.barh(range(len(rows)), shares, xerr=_errors(list(rows.values()), "exact"), capsize=2, color="#1f5fa8")
    labels = [f"{printable(name.replace('_', ' '), 30)} (n={row['n']})" for name, row in rows.items()]
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.02), xlabel="exact")
    return figure


def _reliability(report: Report) -> Figure | None:
    bins = [row for row in report["reliability"] if row["n"]]
    if not bins:
        return None
    figure, axes = _axes()
    axes.plot([0, 1], [0, 1], ":", color="#888888")
    axes.plot([row["mean_p"] for row in bins], [row["share"] for row in bins], "o-", color="#1f5fa8")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="1 − p_yes", ylabel="share of runs with a mistake")
    return figure
