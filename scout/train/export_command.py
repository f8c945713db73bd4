"""`scoutv export`: makes a checkpoint into a model folder."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec

from scout.errors import OK, InputError
from scout.rerank import SELECTORS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="final/ folder of a run, or one of its checkpoints")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="model folder to write; an earlier export is replaced"
    )
    parser.add_argument(
        "--threshold",
        type=_threshold,
        metavar="P",
        help="judge a step incorrect from this p_incorrect on, above 0 and up to 1, such as the one that the report "
        "fitted on dev; default: what the checkpoint says (0.5 after training)",
    )
    parser.add_argument(
        "--selector",
        choices=sorted(SELECTORS),
        help="score by which runs of a task are put in order; default: what the checkpoint says (p_yes after training)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="report.json of an evaluation of this checkpoint: what it fitted on dev is written where --threshold or "
        "--selector do not say otherwise",
    )


class _Threshold(msgspec.Struct):
    value: float | None


class _Selector(msgspec.Struct):
    name: str


class _Report(msgspec.Struct):
    """What is read of a report."""

    threshold: _Threshold
    selector: _Selector


def _fitted(path: Path | None) -> tuple[float | None, str | None]:
    """Threshold and selector of the report. Raises InputError when the file is no report."""
    if path is None:
        return None, None
    try:
        report = msgspec.json.decode(path.read_bytes(), type=_Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"--report {path}: {error}. Give the report.json that eval.report wrote.") from error
    return report.threshold.value, report.selector.name


def run(args: argparse.Namespace) -> int:
    """Export and print one JSON object."""
    threshold, selector = _fitted(args.report)
    from scout.train.command import offline

    offline()
    from scout.train.export import export

    told = export(
        Path(args.checkpoint), Path(args.out), threshold=args.threshold or threshold, selector=args.selector or selector
    )
    print(json.dumps(told))
    return OK


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number above 0 and up to 1")
    return value
