"""A Scout model folder: tokenizer and settings, checked against this version's prompt before anything is scored."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scout import prompt, render
from scout.config import ScoutConfig, read_scout
from scout.errors import ConfigError, FingerprintError, FormatError, printable
from scout.scorer.engine import end_ids

WEIGHT_SUFFIXES = (".safetensors", ".bin")
DIGEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Folder:
    """What a scorer needs from a model folder besides its weights."""

    path: Path
    tokenizer: Any
    config: ScoutConfig
    labels: render.LabelIds
    model_tokens: int
    """Longest prompt and reply together that the model takes."""
    dtype: str
    """Number type of the weights on disk, such as `bfloat16`; empty when the model does not say."""
    end_ids: frozenset[int]

    @property
    def name(self) -> str:
        """The folder's name, which verdicts carry as `model`; two levels, since training calls every result `final`."""
        return "/".join(self.path.parts[-2:]).lstrip("/")

    @property
    def digest(self) -> str:
        """Changes when anything in the folder does. Weights count by size and time of writing: to read
        gigabytes only to know whether they are the same ones could cost more than judging again."""
        digest = hashlib.sha256()
        for file in sorted(path for path in self.path.iterdir() if path.is_file()):
            state = file.stat()
            large = state.st_size > DIGEST_BYTES or file.suffix in WEIGHT_SUFFIXES
            content = f"{state.st_size} {state.st_mtime_ns}".encode() if large else file.read_bytes()
            digest.update(f"{file.name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    @property
    def context_tokens(self) -> int:
        """Tokens to reserve for one prompt and its reply."""
        return self.config.prompt_tokens + self.config.completion_tokens


def load(path: str | os.PathLike[str]) -> Folder:
    """The folder, checked.

    Raises FormatError when it is no model folder, FingerprintError when it was trained with another prompt, template or
    budget than this version of Scout would use, ConfigError when its budget is above what the model takes.
    """
    from transformers import AutoTokenizer  # seconds of import that no other command should pay

    folder = Path(path).resolve()
    shown = printable(str(path))
    if not folder.is_dir():
        raise FormatError(f"{shown}: there is no such model folder. Give the folder that `scoutv export` wrote.")
    config = read_scout(folder)
    settings = _json(folder / "config.json")
    generation = _json(folder / "generation_config.json", required=False)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever a damaged tokenizer file makes transformers raise
        raise FormatError(f"{shown}: the tokenizer cannot be read ({printable(str(error), 300)}).") from error
    _check_fingerprint(shown, tokenizer, config)
    text_settings = settings.get("text_config", settings)
    loaded = Folder(
        folder,
        tokenizer,
        config,
        render.label_ids(tokenizer),
        int(text_settings.get("max_position_embeddings", 0)),
        str(settings.get("dtype") or settings.get("torch_dtype") or ""),
        end_ids(tokenizer, generation),
    )
    if 0 < loaded.model_tokens < loaded.context_tokens:
        raise ConfigError(
            f"{shown}: prompt_tokens {config.prompt_tokens} + completion_tokens {config.completion_tokens} of "
            f"scout.json is above the {loaded.model_tokens} positions of the model. Lower prompt_tokens and train with "
            "that budget."
        )
    return loaded


def _check_fingerprint(shown: str, tokenizer: Any, config: ScoutConfig) -> None:
    found = render.fingerprint(tokenizer, prompt.PROMPT_VERSION, config.style, config.window_steps, config.task_tokens)
    if found == config.fingerprint and config.prompt_version == prompt.PROMPT_VERSION:
        return
    cause = "its chat template, label tokens or budget were changed after training"
    if config.prompt_version != prompt.PROMPT_VERSION:
        cause = f"it was trained with prompt version {config.prompt_version}, this Scout has {prompt.PROMPT_VERSION}"
    raise FingerprintError(
        f"{shown}: scout.json has fingerprint {config.fingerprint!r} but this folder makes {found!r}: {cause}. "
        "Its scores would mean nothing. Export it again from its checkpoint, or use the Scout version it was made with."
    )


def _json(path: Path, *, required: bool = True) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not required:
            return {}
        raise FormatError(f"{printable(str(path))}: missing. Give the folder that `scoutv export` wrote.") from None
    except (ValueError, OSError) as error:
        raise FormatError(f"{printable(str(path))}: cannot be read ({error}). Export the model again.") from error
    if not isinstance(value, dict):
        raise FormatError(f"{printable(str(path))}: not a JSON object. Export the model again.")
    return value
