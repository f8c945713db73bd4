"""A trained checkpoint -> a model folder that vLLM loads: merged, safetensors only, with its card and scout.json.

Nothing appears under the wanted name before the export was loaded again and judged like its source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from scout import prompt
from scout.config import ModelSection, Recipe, ScoutConfig, read_scout, write_scout
from scout.errors import ConfigError, FingerprintError, FormatError, ServerError, printable
from scout.render import fingerprint
from scout.train import parity
from scout.train.card import card
from scout.train.folder import whole
from scout.train.model import ADAPTER_FILE, load_model, load_tokenizer

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl")


def export(
    checkpoint: Path, out: Path, *, threshold: float | None = None, selector: str | None = None
) -> dict[str, Any]:
    """Write the model folder `out`; returns what was compared.

    threshold, selector: how the model is to be used, fitted on dev; None keeps what the checkpoint says.
    Raises ServerError when the export judges otherwise than its source, FingerprintError when tokenizer and scout.json
    of the checkpoint do not belong together, FormatError for a folder that is no checkpoint of Scout.
    """
    disable_progress_bar()
    if not checkpoint.is_dir():
        raise FormatError(f"{printable(str(checkpoint))}: no such folder. Give the final/ folder of a run.")
    _require_replaceable(out, checkpoint)
    config = read_scout(checkpoint)
    config = msgspec.structs.replace(
        config, threshold=threshold or config.threshold, selector=selector or config.selector
    )
    _require_safetensors(checkpoint)
    tokenizer = load_tokenizer(checkpoint)
    _require_fingerprint(tokenizer, config, checkpoint)
    model = load_model(checkpoint, _as_trained(checkpoint))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    before = parity.readings(model, tokenizer, config.style)
    merged = model.merge_and_unload() if (checkpoint / ADAPTER_FILE).is_file() else model
    worst = 0.0

    def write(partial: Path) -> None:
        nonlocal worst
        merged.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        write_scout(partial, config)
        (partial / "README.md").write_text(card(out.name, config), encoding="utf-8")
        worst = _check(partial, before, config)

    whole(out, write)
    return {"model": str(out), "fingerprint": config.fingerprint, "compared": len(before), "largest_difference": worst}


def _as_trained(checkpoint: Path) -> Recipe:
    """A recipe that loads the checkpoint as it was trained: its dtype, and its adapter left in place."""
    section = ModelSection()
    if (checkpoint / ADAPTER_FILE).is_file():
        adapter = json.loads((checkpoint / ADAPTER_FILE).read_text())
        base = Path(adapter.get("base_model_name_or_path") or "")
        section = ModelSection(lora_rank=int(adapter.get("r") or 0), dtype=_dtype(base))
    else:
        section = ModelSection(dtype=_dtype(checkpoint))
    return Recipe(model=section)


def _dtype(folder: Path) -> Any:
    path = folder / "config.json"
    told = json.loads(path.read_text()) if path.is_file() else {}
    name = told.get("dtype") or told.get("torch_dtype") or "float32"
    return name if name in ("float32", "bfloat16") else "float32"


def _require_replaceable(out: Path, checkpoint: Path) -> None:
    """Raises ConfigError when `out` holds anything but an earlier export: it would be deleted."""
    if out.resolve() == checkpoint.resolve() or checkpoint.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"--out {printable(str(out))}: is or holds the checkpoint itself. Choose another folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / "scout.json").is_file():
        raise ConfigError(f"--out {printable(str(out))}: holds files that are no Scout model. Choose another folder.")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {printable(str(out))}: a file of that name is there. Choose another name.")


def _require_safetensors(checkpoint: Path) -> None:
    """Raises FormatError for weights that are pickles, and for adapters that hold more than adapters (P36)."""
    if not (checkpoint / ADAPTER_FILE).is_file():
        if not any(checkpoint.glob("*.safetensors")):
            pickles = [path.name for pattern in _PICKLES for path in checkpoint.glob(pattern)]
            found = f"only {', '.join(pickles)}, which could run code when loaded" if pickles else "no weights"
            raise FormatError(f"{printable(str(checkpoint))}: holds {found}. Scout loads safetensors only.")
        return
    told = json.loads((checkpoint / ADAPTER_FILE).read_text())
    saved = [*(told.get("modules_to_save") or []), *(told.get("trainable_token_indices") or [])]
    weights = checkpoint / ADAPTER_WEIGHTS
    if not weights.is_file():
        raise FormatError(f"{printable(str(checkpoint))}: has no {ADAPTER_WEIGHTS}. Scout loads safetensors only.")
    with safe_open(weights, framework="pt") as file:
        saved += [key for key in file.keys() if "lora_" not in key]  # noqa: SIM118 - it is no dict
    if saved:
        raise FormatError(
            f"{printable(str(checkpoint))}: the adapter also saves {', '.join(sorted(set(saved)))[:300]}. Merging "
            "would drop or double such modules and vLLM refuses them. Train without extra saved modules."
        )


def _require_fingerprint(tokenizer: Any, config: ScoutConfig, checkpoint: Path) -> None:
    if config.prompt_version != prompt.PROMPT_VERSION:
        raise FingerprintError(
            f"{printable(str(checkpoint))}: was trained with prompt version {config.prompt_version}, this Scout writes "
            f"{prompt.PROMPT_VERSION}. Export it with the version that trained it."
        )
    found = fingerprint(tokenizer, config.prompt_version, config.style, config.window_steps, config.task_tokens)
    if found != config.fingerprint:
        raise FingerprintError(
            f"{printable(str(checkpoint))}: scout.json says fingerprint {config.fingerprint}, its tokenizer and "
            f"template give {found}. One of them was changed after training; take both from the same run."
        )


def _check(partial: Path, before: list[parity.Reading], config: ScoutConfig) -> float:
    """Largest difference between the folder, loaded again from disk, and its source. Raises ServerError beyond it."""
    for pattern in _PICKLES:
        for path in partial.glob(pattern):
            path.unlink()
    model = AutoModelForCausalLM.from_pretrained(partial, dtype="auto", local_files_only=True)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(partial)
    _require_fingerprint(tokenizer, config, partial)
    worst, problems = parity.differences(before, parity.readings(model, tokenizer, config.style))
    if problems:
        shown = "\n".join(f"  {problem}" for problem in problems[:10])
        raise ServerError(
            f"The export judges otherwise than its source at {len(problems)} of {len(before)} places (largest "
            f"difference {worst:.4f}, allowed {parity.TOLERANCE}):\n{shown}\nNothing was written. Export in the dtype "
            "of training; an adapter must be merged into the base it was trained on."
        )
    return worst
