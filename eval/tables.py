"""The tables of a report, built once from report.json and written as Markdown or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scout.errors import printable

Report = Mapping[str, Any]
SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Table:
    """One table: texts only; everything in it is escaped when it is written."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def number(value: object, digits: int = 3) -> str:
    """A figure as it stands in a table; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def figure(family: Mapping[str, Any], name: str, digits: int = 3) -> str:
    """A figure with its interval in brackets, when it has one."""
    low, high = family.get(f"{name}_low"), family.get(f"{name}_high")
    value = number(family.get(name), digits)
    return value if low is None or high is None else f"{value} [{number(low, digits)}, {number(high, digits)}]"


def build(report: Report) -> list[Table]:
    """Every table of the report, the headline first."""
    made = [headline(report), _stages(report), _scored(report), _baselines(report), _best_of_n(report)]
    made += [_selectors(report), _groups(report, "by_facts"), _groups(report, "by_kind")]
    made += [_leaks(report), _unscored(report), _data(report)]
    return [table for table in made if table.rows]


def headline(report: Report) -> Table:
    """The few figures by which a run is judged, each beside what it must beat."""
    where, found, best = report["localization"], report["detection"], report["best_of_n"]
    trivial = report["baselines"]
    five = best.get("5") or {}
    rows = [
        ("first mistake exact", figure(where, "exact"), f"best baseline {number(_best(trivial, 'exact'))}"),
        ("… provable from at most 3 facts", figure(where, "exact_provable"), f"{where.get('n_provable')} mistakes"),
        ("detection F1", figure(found, "f1"), f"always flag {number(found.get('always_flag_f1'))}"),
        ("best of 5: share passed", figure(five, "scout"), f"random {number(five.get('random'))}, oracle "
         f"{number(five.get('oracle'))}, best baseline {number(_best(trivial, 'best_of_5'))}"),
        ("best of 5: gain over random", figure(five, "gain"), f"closes {number(five.get('closed'))} of the gap"),
        ("runs unscored", str(report["unscored"]["count"]), f"of {report['unscored']['runs']}"),
    ]  # fmt: skip
    difference = report["stages"].get("difference") or {}
    for name, spoken in (("product_reward", "product reward"), ("exact", "exact"), ("f1", "F1")):
        if name in difference:
            rows.append((f"GRPO − SFT: {spoken}", figure({name: difference[name]["value"], f"{name}_low":
                         difference[name]["low"], f"{name}_high": difference[name]["high"]}, name),
                         "paired over the same runs"))  # fmt: skip
    note = (
        f"Stage {report['stage']}, {report['data']['test']['runs']} held-out runs of {report['data']['test']['tasks']} "
        "tasks. Brackets hold 95 % bootstrap intervals over tasks. Unscored runs count as wrong."
    )
    return Table("Headline", note, ("figure", "value [95 %]", "compare with"), tuple(rows))


def _best(baselines: Mapping[str, Any], name: str) -> float | None:
    return max((row[name] for row in baselines.values() if row.get(name) is not None), default=None)


_FIGURES = (
    ("localization", "exact", "exact"), ("localization", "exact_provable", "exact, provable"),
    ("localization", "within_1", "within 1"), ("localization", "within_3", "within 3"),
    ("localization", "mae", "MAE (flagged runs)"), ("localization", "mae_charged", "MAE (all, T charged)"),
    ("localization", "coverage", "coverage"), ("localization", "n", "runs with a mistake"),
    ("detection", "precision", "precision"), ("detection", "recall", "recall"), ("detection", "f1", "F1"),
    ("detection", "always_flag_f1", "F1 of always flagging"),
    ("detection", "clean_unflagged", "clean runs left alone"), ("detection", "n", "runs"),
    ("steps", "recall_correct", "recall on correct steps"),
    ("steps", "recall_incorrect", "recall on incorrect steps"), ("steps", "product", "product of recalls per run"),
    ("own_labels", "product_reward", "product reward, own labels"),
)  # fmt: skip


def _figure_rows(columns: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for family, name, spoken in _FIGURES:
        cells = [figure(column.get(family) or {}, name) for column in columns]
        if any(cell != "–" for cell in cells):
            rows.append((spoken, *cells))
    return tuple(rows)


def _stages(report: Report) -> Table:
    names = [name for name in report["stages"] if name != "difference"]
    stages = [report["stages"][name] for name in names]
    rows = list(_figure_rows(stages))
    rows.append(("tasks scored", *(f"{stage['tasks']} of {stage['tasks_of']}" for stage in stages)))
    rows.append(("threshold (from dev)", *(number(stage["threshold"]["value"]) for stage in stages)))
    rows.append(("selector (from dev)", *(stage["selector"]["name"] for stage in stages)))
    rows.append(("best of 5", *(figure(stage["best_of_n"].get("5") or {}, "scout") for stage in stages)))
    rows.append(("runs unscored", *(f"{stage['unscored']['count']}" for stage in stages)))
    note = "Strict: an unscored run counts as wrong. Steps are flagged at the threshold, which is fitted on dev only."
    return Table("Stages", note, ("figure", *names), tuple(rows))


def _scored(report: Report) -> Table:
    strict = {name: report[name] for name in ("localization", "detection", "steps", "own_labels")}
    scored = {name: family["scored"] for name, family in strict.items()}
    note = "The same figures over scored runs only, beside the strict ones; they are equal when every run is scored."
    return Table("Scored and strict", note, ("figure", "strict", "scored only"), _figure_rows((strict, scored)))


def _baselines(report: Report) -> Table:
    rows = [(f"Scout ({report['stage']})", figure(report["localization"], "exact"), figure(report["detection"], "f1"),
             figure(report["best_of_n"].get("5") or {}, "scout"), "")]  # fmt: skip
    for name, row in report["baselines"].items():
        cells = (figure(row, part) for part in ("exact", "f1", "best_of_5", "lead"))
        rows.append((name.replace("_", " "), *cells))
    note = (
        "Methods that do not understand the run. A dash: the method does not answer that question. Scout's lead: "
        "best of 5 of Scout minus that of the method, paired over tasks."
    )
    return Table("Baselines", note, ("method", "exact", "F1", "best of 5", "Scout's lead"), tuple(rows))


def _best_of_n(report: Report) -> Table:
    rows = tuple(
        (size, *(figure(row, name) for name in ("random", "scout", "oracle", "gain", "closed")), number(row["tasks"]))
        for size, row in report["best_of_n"].items()
    )
    note = "Share of tasks passed when the best of N candidates is taken, averaged over all ways to draw the N."
    return Table("Best of N", note, ("N", "random", "Scout", "oracle", "gain", "share of gap closed", "tasks"), rows)


def _selectors(report: Report) -> Table:
    compared = report["selector"]["compared"]
    rows = tuple(
        (name.replace("_", " ") + (" (chosen on dev)" if name == report["selector"]["name"] else ""),
         number(row["dev"]), number(row["test"]))
        for name, row in compared.items()
    )  # fmt: skip
    size = report["selector"]["n"]
    return Table("Selectors", f"Best of {size} by each score of a verdict.", ("selector", "dev", "test"), rows)


def _groups(report: Report, name: str) -> Table:
    spoken = {"by_kind": "Kind of mistake", "by_facts": "Facts that prove the mistake"}[name]
    rows = tuple(
        (key.replace("_", " "), number(row["n"]), *(figure(row, share) for share in ("exact", "within_1", "coverage")))
        for key, row in report[name].items()
    )  # fmt: skip
    columns = (spoken.lower(), "runs", "exact", "within 1", "flagged")
    return Table(spoken, "Of the first mistake of each run.", columns, rows)


def _leaks(report: Report) -> Table:
    rows = []
    for name, spoken in (
        ("bag_of_words_auroc", "bag of words over the step, with its position"),
        ("no_history_auroc", "the verifier, shown the step without its history"),
        ("step_auroc", "the verifier, shown the run"),
    ):
        rows.append((spoken, figure(report, name), number(report.get(f"{name}_steps"))))
    note = "AUROC on step labels of held-out tasks. The first two would be high if wording alone gave mistakes away."
    return Table("How much wording gives away", note, ("judge", "AUROC", "steps"), tuple(rows))


def _unscored(report: Report) -> Table:
    rows = tuple(
        (stage, reason, str(count))
        for stage, row in report["stages"].items() if stage != "difference"
        for reason, count in row["unscored"]["reasons"].items()
    )  # fmt: skip
    return Table("Unscored runs", "Why there is no verdict.", ("stage", "reason", "runs"), rows)


def _data(report: Report) -> Table:
    names = ("tasks", "runs", "steps_low", "steps_high", "clean_share", "clean_failed_share", "faulty_passed_share",
             "passed_share", "provable_share")  # fmt: skip
    splits = report["data"]
    rows = tuple((name.replace("_", " "), *(number(splits[split][name]) for split in splits)) for name in names)
    return Table("Data", "What the figures were taken on.", ("", *splits), rows)


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    lines = ["# Scout report", "", _markdown_cell(origin(report), 1000), ""]
    for table in build(report):
        lines += [f"## {table.title}", "", table.note, "", *markdown_table(table), ""]
    for remark in report["remarks"]:
        lines.append(f"- {_markdown_cell(remark, 1000)}")
    return "\n".join(lines).rstrip() + "\n"


def origin(report: Report) -> str:
    """Seed, recipe and versions in one line of plain text."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return f"Seed {report['seed']}, recipe {report['recipe']}. {versions}."


def markdown_table(table: Table) -> list[str]:
    """Lines of one table in Markdown."""
    head = [_row(table.columns), "|" + "---|" * len(table.columns)]
    return head + [_row(row) for row in table.rows]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |"


def _markdown_cell(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Text of a run cannot open a cell, a link, an element or a line of its own."""
    plain = html.escape(" ".join(shorten(text, limit).split()), quote=False)
    return plain if _FIGURE.fullmatch(plain) else re.sub(r"([\\`*\[\]|])", r"\\\1", plain)


_FIGURE = re.compile(r"[-–0-9., \[\]]+")
"""A figure with its interval; its brackets are no link."""


def shorten(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Printable text of at most about `limit` characters, its middle left out when it is longer."""
    return printable(text, limit)


def plain(table: Table) -> list[str]:
    """Lines of one table in aligned columns for a terminal."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    return [
        printable("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def html_table(table: Table) -> str:
    """One table as HTML, every cell escaped."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(shorten(cell))}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    title, note = html.escape(table.title), html.escape(table.note)
    return f"<h2>{title}</h2>\n<p>{note}</p>\n<table>\n<tr>{head}</tr>\n{body}\n</table>"
