"""Run the benchmarks: `python -m eval.bench [PATH...] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.bench import convert, reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line a benchmark; with --json one object last: that of reading, with those of converting."""
    parser = argparse.ArgumentParser(prog="python -m eval.bench", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files or folders of runs to convert as well"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args(arguments)
    converted = convert.measure(options.paths)
    for one in converted:
        print(
            f"{one['name']}, {one['megabytes']} MB: {one['seconds']} s on one core; orjson.loads of the same bytes: "
            f"{one['plain_seconds']} s; ratio {one['ratio']}"
        )
    small, large = convert.memory()
    print(
        f"convert {small['megabytes']} MB of lines: {small['peak_megabytes']} MB of memory at most; "
        f"{large['megabytes']} MB: {large['peak_megabytes']} MB"
    )
    result = reading.measure()
    print(
        f"reading {result['megabytes']} MB of runs: {result['seconds']} s; json.loads with the same checks: "
        f"{result['plain_seconds']} s; ratio {result['ratio']}"
    )
    if options.json:
        print(json.dumps({**result, "convert": converted, "memory": [small, large]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
