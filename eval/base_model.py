"""The weights that SFT started from, as a folder that `scoutv score` reads: the report's stage "base".

    python -m eval.base_model --sft runs/demo/sft --out runs/demo/base

Untrained weights have no scout.json, so they get that of the trained model: same prompt, same budget, same tokenizer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scout.config import SCOUT_FILE, load_recipe, read_scout, write_scout
from scout.errors import InputError, ScoutError, exit_code


def start_weights(sft: Path) -> Path:
    """The folder of weights that this SFT run started from. Raises InputError when neither place has it."""
    named = load_recipe(sft / "recipe.yaml").model.path
    places = [Path(named)] if named else []
    places.append(sft / "fresh")
    found = next((place for place in places if (place / "config.json").is_file()), None)
    if found is None:
        raise InputError(f"{sft}: found no start weights in {' or '.join(map(str, places))}. Run SFT again.")
    return found


def make(sft: Path, out: Path) -> None:
    """Copy the start weights to `out` and add scout.json; `out` appears whole or not at all."""
    weights, config = start_weights(sft), read_scout(sft / "final")
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
    parser.add_argument("--sft", type=Path, required=True, help="folder of the SFT run")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        make(options.sft, options.out)
    except (ScoutError, OSError) as error:
        print(error, file=sys.stderr)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
