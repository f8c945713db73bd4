"""The figures of `scoutv stats` as one picture, PNG or SVG by the name of the file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scout.errors import ConfigError, printable
from scout.lines import replacing

SUFFIXES = (".png", ".svg")
_STYLE = {
    "svg.hashsalt": "scout",  # element ids are random without it
    "svg.fonttype": "path",  # the picture must look the same where the font is missing
    "font.size": 9,
    "text.usetex": False,
    "text.parse_math": False,  # names come from data; a dollar sign in one is no formula
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_BLUE, _GREY = "#1f5fa8", "#bbbbbb"
_COLOURS = (_BLUE, "#d1782c", "#3d8f5f", "#8a5fb0")
_COLUMNS = 2

Panel = Callable[[Any], None]


def require(path: str) -> None:
    """Raises ConfigError, before any work is done, when a picture of that name cannot be made."""
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(f"--plot {printable(path)}: the name ends in none of {', '.join(SUFFIXES)}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("--plot needs the package matplotlib. Install the extra `dev`.") from error


def write(path: str, result: Mapping[str, Any]) -> None:
    """Draw what `scoutv stats` found; the same figures give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = [*_run_panels(result.get("runs")), *_row_panels(result.get("rows"))]
    lines = -(-len(panels) // _COLUMNS)
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.6 * _COLUMNS, 3.1 * lines), layout="constrained", dpi=150)
        axes = figure.subplots(lines, _COLUMNS, squeeze=False).flatten()
        for panel, place in zip(panels, axes, strict=False):
            panel(place)
        for place in axes[len(panels) :]:
            place.set_axis_off()
        kind = Path(path).suffix[1:]
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, metadata=metadata)
    with replacing(path) as file:
        file.write(buffer.getvalue())


def _run_panels(figures: Mapping[str, Any] | None) -> list[Panel]:
    if not figures:
        return []
    panels: list[Panel] = [
        lambda axes: _tokens(axes, figures["tokens"], "run"),
        lambda axes: _per_task(axes, figures["runs_per_task"]),
    ]
    if figures["step_labels"]:
        panels.append(lambda axes: _labels(axes, figures["step_labels"], "step labels of runs"))
    if figures["first_mistake"]["n"]:
        panels.append(lambda axes: _positions(axes, figures["first_mistake"]["by_tenth_of_run"]))
    return panels


def _row_panels(figures: Mapping[str, Any] | None) -> list[Panel]:
    if not figures:
        return []
    return [
        lambda axes: _tokens(axes, figures["tokens"], "row"),
        lambda axes: _labels(axes, figures["step_labels"], "step labels of rows"),
    ]


def _tokens(axes: Any, tokens: Mapping[str, Any], part: str) -> None:
    """Bars side by side, one colour a tokenizer; a bin reaches from a power of two to the next."""
    lows = sorted({int(name.split("-")[0]) for parts in tokens.values() for name in parts[part]["histogram"]})
    places = {low: place for place, low in enumerate(lows)}
    width = 0.9 / max(1, len(tokens))
    for number, (name, parts) in enumerate(tokens.items()):
        counts = {int(bounds.split("-")[0]): n for bounds, n in parts[part]["histogram"].items()}
        at = [places[low] + number * width for low in counts]
        label = printable(name, 40)
        axes.bar(at, list(counts.values()), width, color=_COLOURS[number % len(_COLOURS)], label=label)
    axes.set_xticks([place + 0.45 - width / 2 for place in places.values()], [_short(low) for low in lows], rotation=45)
    axes.set(title=f"tokens of a {part}", xlabel="tokens, from", ylabel=f"{part}s")
    axes.legend(frameon=False)


def _short(number: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def _labels(axes: Any, counts: Mapping[str, int], title: str) -> None:
    bars = axes.bar(list(counts), list(counts.values()), color=_BLUE)
    axes.bar_label(bars)
    axes.set(title=title, ylabel="steps")


def _positions(axes: Any, tenths: list[int]) -> None:
    axes.bar(range(len(tenths)), tenths, 0.9, align="edge", color=_BLUE)
    axes.set(title="first mistake", xlabel="tenth of the run", ylabel="runs")


def _per_task(axes: Any, figures: Mapping[str, Any]) -> None:
    names = list(figures)
    mixed = [counts["mixed"] for counts in figures.values()]
    other = [counts["tasks"] - counts["mixed"] for counts in figures.values()]
    axes.bar(names, mixed, color=_BLUE, label="mixed outcomes")
    axes.bar(names, other, bottom=mixed, color=_GREY, label="others")
    axes.set(title="runs of a task", xlabel="runs", ylabel="tasks")
    axes.legend(frameon=False)
