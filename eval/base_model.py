"""The weights that SFT started from, as a folder that `scoutv score` reads: the report's stage "base".

    python -m eval.base_model --weights recipes/tiny/base --like runs/demo/sft/final --out runs/demo/base

Untrained weights have no scout.json, so they get that of the trained model: same prompt, same budget, same tokenizer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scout.config import SCOUT_FILE, read_scout, write_scout
from scout.errors import InputError, ScoutError, tell


def make(weights: Path, like: Path, out: Path) -> None:
    """Copy `weights` to `out`, with the scout.json of the folder `like`; `out` appears whole or not at all."""
    if not (weights / "config.json").is_file():
        raise InputError(f"{weights} holds no config.json, so it is no folder of weights.")
    config = read_scout(like)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
        folder = Path(made) / "model"
        folder.mkdir()
        for file in weights.iterdir():
            if file.is_file() and file.name != SCOUT_FILE:
                shutil.copy2(file, folder / file.name)
        write_scout(folder, config)
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the folder; exit code as everywhere."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.base_model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True, help="folder that SFT started from")
    parser.add_argument("--like", type=Path, required=True, help="folder of the trained model")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        make(options.weights, options.like, options.out)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
