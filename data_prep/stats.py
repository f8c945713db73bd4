"""Figures about runs or rows: `python -m data_prep.stats FILE...`, the same as `scoutv stats`."""

from __future__ import annotations

import argparse
import sys

from scout.errors import ScoutError, tell
from scout.formats import stats_command


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.stats", description="Sizes, balance and duplicates of runs or of training rows."
    )
    stats_command.configure(parser)
    try:
        return stats_command.run(parser.parse_args(arguments))
    except ScoutError as error:
        return tell(error)


if __name__ == "__main__":
    sys.exit(main())
