"""`scoutv export`: makes a checkpoint into a model folder."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scout.errors import OK


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="final/ folder of a run, or one of its checkpoints")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="model folder to write; an earlier export is replaced"
    )


def run(args: argparse.Namespace) -> int:
    """Export and print one JSON object."""
    from scout.train.command import offline

    offline()
    from scout.train.export import export

    print(json.dumps(export(Path(args.checkpoint), Path(args.out))))
    return OK
