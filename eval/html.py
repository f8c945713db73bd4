"""One self-contained HTML page of a report: tables, plots as images, a few runs with their verdicts; no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from eval import plots, tables
from eval.figures import Judgement
from scout import metrics
from scout.trajectory import Step, Trajectory
from scout.verdict import Verdict

EXAMPLES_PER_GROUP = 2
TEXT_CHARACTERS = 600
"""Longest text of a step on the page; the run files hold the rest."""

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>Scout report</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem .8rem; border-bottom: 1px solid #ddd; vertical-align: top }
img { max-width: 100% } figure { display: inline-block; margin: 1rem } pre { white-space: pre-wrap; margin: 0 }
.incorrect { background: #fde8e8 } summary { cursor: pointer } footer { color: #666 }
</style></head><body>
"""


class Example(msgspec.Struct, frozen=True):
    """A held-out run shown in full, and why it is shown."""

    title: str
    run: Trajectory
    verdict: Verdict


def examples(judged: Judgement) -> list[Example]:
    """The first few runs of each outcome: found, misplaced, missed, false alarm, unscored."""
    shown: dict[str, list[Example]] = {}
    for run, verdict in zip(judged.runs, judged.flagged, strict=True):
        title = _title(run, verdict)
        if title is not None and len(shown.setdefault(title, [])) < EXAMPLES_PER_GROUP:
            shown[title].append(Example(title, run, verdict))
    return [example for title in sorted(shown) for example in shown[title]]


def _title(run: Trajectory, verdict: Verdict) -> str | None:
    gold, said = metrics.first_mistake(run), verdict.first_mistake
    if verdict.status == "unscored":
        return "unscored"
    if gold is None:
        return "false alarm" if said is not None and run.has_mistake is False else None
    if said is None:
        return "missed mistake"
    return "mistake found" if said == gold else "mistake misplaced"


def page(report: Mapping[str, Any], shown: Sequence[Example]) -> str:
    """The whole page. Everything that comes from data is escaped."""
    parts = [_HEAD, "<h1>Scout report</h1>"]
    made = tables.build(report)
    parts.append(tables.html_table(made[0]))
    parts += [_image(title, svg) for title, svg in plots.draw(report).items()]
    parts += [tables.html_table(table) for table in made[1:]]
    if report["remarks"]:
        parts.append("<ul>" + "".join(f"<li>{_text(remark)}</li>" for remark in report["remarks"]) + "</ul>")
    if shown:
        parts.append("<h2>Runs</h2>")
    parts += [_example(example) for example in shown]
    parts.append(f"<footer><p>{_text(tables.origin(report))}</p></footer></body></html>")
    return "\n".join(parts) + "\n"


def _text(text: str, limit: int = TEXT_CHARACTERS) -> str:
    return html.escape(tables.shorten(text, limit))


def _image(title: str, svg: bytes) -> str:
    name = html.escape(title)
    data = base64.b64encode(svg).decode("ascii")
    return f'<figure><figcaption>{name}</figcaption><img alt="{name}" src="data:image/svg+xml;base64,{data}"></figure>'


def _example(example: Example) -> str:
    run, verdict = example.run, example.verdict
    gold = metrics.gold_labels(run)
    reasons = run.labels.reasons if run.labels else ()
    said = {step.index: step for step in verdict.steps}
    rows = []
    for step in run.steps:
        ours = said.get(step.index)
        why = reasons[step.index - 1] if reasons else None
        truth = gold.get(step.index, "unlabelled")
        chance = tables.number(ours.p_incorrect, 2) if ours else "–"
        rows.append(
            f'<tr class="{html.escape(truth)}"><td>{step.index}</td><td>{_step(step)}</td><td>{_text(truth)}<br>'
            f"{_text(why or '')}</td><td>{_text(ours.label) if ours else '–'} {chance}<br>"
            f"{_text(ours.reason) if ours else ''}</td></tr>"
        )
    unread = f"<p>Unscored: {_text(verdict.unscored_reason or '')}</p>" if verdict.status == "unscored" else ""
    return (
        f"<details><summary>{_text(example.title)}: {_text(run.id)}</summary>{unread}<p>{_text(run.task.text)}</p>"
        "<table><tr><th>step</th><th>run</th><th>gold</th><th>Scout, p incorrect</th></tr>"
        + "\n".join(rows)
        + "</table></details>"
    )


def _step(step: Step) -> str:
    texts = (("", step.thought), ("do: ", step.action), ("got: ", step.observation))
    return "<pre>" + "\n".join(f"{mark}{_text(text)}" for mark, text in texts if text) + "</pre>"
