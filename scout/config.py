"""Recipes (one YAML file a training run) and scout.json (how a trained verifier wants to be used)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from scout import records, strict_yaml
from scout.errors import ConfigError, FormatError, InputError, Problem, printable, refuse
from scout.lines import replacing, require_file
from scout.prompt import STYLES
from scout.records import Finding
from scout.rerank import SELECTORS
from scout.reward import REWARDS

TrainerCheck = Callable[[Mapping[str, Any]], Sequence[Finding]]
RECIPE_LIMIT_BYTES = 1 << 20
SCOUT_FILE = "scout.json"


class FreshModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small model of the Qwen3 architecture with random weights; its tokenizer is trained on the rows."""

    vocabulary: int = 1024
    hidden_size: int = 192
    layers: int = 3
    heads: int = 6
    """Each of 32 dimensions, the least that vLLM runs on CPU."""
    kv_heads: int = 6
    intermediate_size: int = 512
    positions: int = 4096
    """Longest prompt plus reply in tokens."""
    init_std: float = 0.06


class ModelSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which weights are trained, and how."""

    path: str = ""
    """Folder of the weights to start from; `--model` comes first."""
    fresh: FreshModel | None = None
    """Start from random weights of this shape when neither `path` nor `--model` is given."""
    name: str = ""
    """Name for the model card, such as `Qwen/Qwen3-4B-Thinking-2507`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: str = "sdpa"
    template: str = ""
    """Chat template of TRL that stands in for the model's own in a dry run without weights."""
    lora_rank: int = 0
    """0 trains all weights."""
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] = ("all-linear",)
    """Names of modules that get an adapter; `all-linear` means every linear layer but the head."""


class DataSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows are trained on."""

    path: str = ""
    """Folder of the rows, as data_prep writes it; `--data` comes first."""


class ScoutSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verifier itself: prompt, budget, reward, guards. What it is trained with is what it is served with."""

    style: str = "full"
    """Key of `prompt.STYLES`."""
    window_steps: int = 0
    """Steps in one prompt; 0 puts the whole run into one prompt."""
    task_tokens: int = 0
    """Longest task text in tokens; 0 never shortens it unless it must."""
    prompt_tokens: int = 8192
    completion_tokens: int = 2048
    analyses: int = 4
    """K: replies sampled for one prompt when scoring; fewer than K/2 readable ones mean unscored."""
    scoring_temperature: float = 1.0
    """Temperature of those replies; 0 is greedy, with one analysis. Probabilities are read raw, whatever it is."""
    temperature: float = 1.0
    """Temperature of the replies that GRPO learns from."""
    reward: str = "product"
    """Key of `reward.REWARDS`."""
    w: float = 0.7
    """Share of the step reward in the whole; the rest is for the last line."""
    localisation: float = 0.0
    """Share of the reward for the distance to the first mistake; 0 leaves it out."""
    clean_share: float = 1.0
    """Largest share of rows whose window holds no mistake; more are left out, on dev too. In GRPO a policy that calls
    everything correct earns this share, so 0.5 or less keeps it from winning."""
    dynamic_sampling: bool = False
    """Sample other prompts in place of groups whose rewards are all equal."""
    dev_prompts: int = 64
    """Prompts of the dev split on which GRPO chooses its checkpoint; 0 takes the last one."""
    preflight_prompts: int = 32
    """Prompts sampled before GRPO starts; 0 starts without looking."""
    min_spread: float = 0.1
    """Share of groups whose rewards must differ; below it GRPO cannot learn and a guard stops the run."""
    max_clipped: float = 0.5
    """Share of replies that may run into `completion_tokens`; above it a guard stops the run."""
    max_degenerate: float = 0.98
    """Share of readable replies that may call every step correct in windows with a mistake, or every step incorrect in
    windows with a correct one; above it a guard stops the run."""
    max_copied: float = 0.8
    """Share of the replies' tokens that may be copied from the prompt in long runs; above it a guard stops the run."""
    max_mismatch: float = 0.1
    """Mean difference of vLLM and trainer in the log-probability of a sampled token; above it a guard stops the run."""
    patience: int = 5
    """Logged steps in a row that must be bad before a guard stops the run."""


class ServeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine behind the endpoint."""

    max_model_tokens: int = 0
    """Longest prompt plus reply that the engine may be asked for; 0 sets no limit."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training run. `trainer` holds TRL's own keys, checked by `scout.train` against TRL's own fields."""

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    scout: ScoutSection = ScoutSection()
    trainer: dict[str, Any] = {}
    serve: ServeSection = ServeSection()


class ScoutConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """scout.json of a model folder: everything that scoring needs to know beside the weights."""

    fingerprint: str
    """Of template, prompt version, label tokens and budget; see `render.fingerprint`."""
    prompt_version: str
    style: str
    window_steps: int
    task_tokens: int
    prompt_tokens: int
    completion_tokens: int
    analyses: int = 4
    temperature: float = 1.0
    threshold: float = 0.5
    """A step is judged incorrect from this p_incorrect on; fitted on the dev split."""
    selector: str = "p_yes"
    """Key of `rerank.SELECTORS`."""
    base_model: str = ""
    recipe: str = ""
    schema_version: int = 1


_AT_LEAST_0 = ("window_steps", "task_tokens", "dev_prompts", "preflight_prompts", "lora_rank", "max_model_tokens")
_AT_LEAST_1 = ("prompt_tokens", "completion_tokens", "analyses", "patience", "lora_alpha")
_SHARES = (
    "w",
    "clean_share",
    "localisation",
    "min_spread",
    "max_clipped",
    "max_degenerate",
    "max_copied",
    "lora_dropout",
    "threshold",
)
_NAMES: tuple[tuple[str, Sequence[str]], ...] = (
    ("style", tuple(STYLES)),
    ("reward", tuple(REWARDS)),
    ("selector", tuple(SELECTORS)),
)


def _range_findings(section: msgspec.Struct, prefix: str) -> Iterator[Finding]:
    """Values outside their range; fields that a section lacks are passed over."""
    fields = section.__struct_fields__
    for names, low in ((_AT_LEAST_0, 0), (_AT_LEAST_1, 1)):
        for name in names:
            if name in fields and getattr(section, name) < low:
                yield f"{prefix}{name}", getattr(section, name), f"{low} or more"
    for name in _SHARES:
        if name in fields and not 0.0 <= getattr(section, name) <= 1.0:
            yield f"{prefix}{name}", getattr(section, name), "0 to 1"
    for name, known in _NAMES:
        if name in fields and getattr(section, name) not in known:
            yield f"{prefix}{name}", getattr(section, name), records.one_of(getattr(section, name), known)
    if "max_mismatch" in fields and not 0.0 < section.max_mismatch < float("inf"):  # type: ignore[attr-defined]
        yield f"{prefix}max_mismatch", section.max_mismatch, "above 0"  # type: ignore[attr-defined]
    for name in ("temperature", "scoring_temperature"):
        if name in fields:
            yield from _temperature_findings(section, name, prefix)


def _temperature_findings(section: msgspec.Struct, name: str, prefix: str) -> Iterator[Finding]:
    """Only scoring may be greedy, and then with one analysis: more of them would all be the same."""
    value = getattr(section, name)
    scoring = isinstance(section, ScoutConfig) or name == "scoring_temperature"
    greedy = scoring and value == 0.0 and getattr(section, "analyses", 0) == 1
    if not greedy and not 0.0 < value < float("inf"):
        yield f"{prefix}{name}", value, "above 0" + (", or 0 (greedy) with analyses 1" if scoring else "")


def _recipe_findings(recipe: Recipe) -> list[Finding]:
    found: list[Finding] = []
    for name in ("model", "data", "scout", "serve"):
        found.extend(_range_findings(getattr(recipe, name), f"{name}."))
    needed = recipe.scout.prompt_tokens + recipe.scout.completion_tokens
    limit = recipe.serve.max_model_tokens
    if 0 < limit < needed:
        allowed = f"{needed} or more (scout.prompt_tokens + scout.completion_tokens), or 0"
        found.append(("serve.max_model_tokens", limit, allowed))
    return found


def load_recipe(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), check_trainer: TrainerCheck | None = None
) -> Recipe:
    """The recipe in that file with `section.key=value` overrides on top; values are read as YAML.

    check_trainer: what is wrong with the `trainer` section, whose keys are TRL's; None takes any.
    Raises one ConfigError with everything that is wrong: unknown keys with the nearest known one, types, ranges.
    """
    name = str(path)
    try:
        content = require_file(path)
    except InputError as error:
        raise ConfigError(str(error)) from error
    if content.stat().st_size > RECIPE_LIMIT_BYTES:
        raise ConfigError(f"{printable(name)}: {content.stat().st_size} bytes; a recipe has at most 1 MiB.")
    try:
        tree, lines, repeated = strict_yaml.parse(content.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{printable(name)}: byte {error.start} is not UTF-8. Save the recipe as UTF-8.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{printable(name)}: not YAML: {printable(str(error))}") from error
    problems = [records.problem(_place(name, lines, {}, found[0]), found) for found in repeated]
    if not problems and not isinstance(tree, dict):
        found = ("", tree, "sections " + ", ".join(Recipe.__struct_fields__))
        problems.append(records.problem(name, found))
    if problems:
        refuse(problems, hint="Nothing was started.", kind=ConfigError)
    return _resolve(name, tree, lines, overrides, check_trainer or (lambda _: []))


def _resolve(
    name: str, tree: dict[str, Any], lines: dict[str, int], overrides: Sequence[str], check_trainer: TrainerCheck
) -> Recipe:
    problems: list[Problem] = []
    origin: dict[str, str] = {}
    # An empty section is written as a heading with nothing under it.
    tree = {key: {} if value is None else value for key, value in tree.items()}
    for override in overrides:
        finding = _override(tree, override, origin)
        if finding:
            problems.append(records.problem(f"override {override!r}", finding))
    found = list(records.explain(Recipe, tree))
    recipe = msgspec.convert(_sound(tree, found), Recipe)
    found += [*_recipe_findings(recipe), *check_trainer(recipe.trainer)]
    if not found and not problems:
        return recipe
    problems.extend(records.problem(_place(name, lines, origin, item[0]), item) for item in found)
    refuse(problems, hint="Nothing was started. Correct the recipe or the override.", kind=ConfigError)


def _sound(tree: dict[str, Any], found: Sequence[Finding]) -> dict[str, Any]:
    """The part of the tree without findings, so that its ranges can be checked as well."""
    bad = {field for field, _, _ in found}
    sections = {key: value for key, value in tree.items() if key not in bad}
    return {
        section: {key: value for key, value in values.items() if not _is_under(bad, f"{section}.{key}")}
        for section, values in sections.items()
    }


def _is_under(bad: set[str], key: str) -> bool:
    return any(field == key or field.startswith((f"{key}.", f"{key}[")) for field in bad)


def _override(tree: dict[str, Any], override: str, origin: dict[str, str]) -> Finding | None:
    """Put one override into the tree; what is wrong with it, or None."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    if not equals or len(parts) < 2 or not all(parts):
        return "", override, "section.key=value, such as trainer.learning_rate=1e-4"
    try:
        value, _, repeated = strict_yaml.parse(text)
    except (yaml.YAMLError, ValueError):
        return key, text, "a value in YAML"
    if repeated:
        return repeated[0]
    below = tree
    for depth, part in enumerate(parts[:-1], start=1):
        child = below.setdefault(part, {})
        if not isinstance(child, dict):
            return key, child, f"a key of {'.'.join(parts[:depth])}, which has no keys"
        below = child
    below[parts[-1]] = value
    origin[key] = f"override {override!r}"
    return None


def _place(name: str, lines: dict[str, int], origin: dict[str, str], field: str) -> str:
    """Where a field was set: the override, else the line of the file, else the file."""
    for key, override in origin.items():
        if key == field or (field not in lines and key.startswith(f"{field}.")):
            return override
    return f"{name}:{lines[field]}" if field in lines else name


def dump_recipe(recipe: Recipe) -> str:
    """The recipe with every value resolved, as YAML that `load_recipe` reads back to an equal recipe."""
    return strict_yaml.dump(msgspec.to_builtins(recipe))


def _scout_findings(config: ScoutConfig) -> list[Finding]:
    found = list(_range_findings(config, ""))
    if config.schema_version != 1:
        found.append(("schema_version", config.schema_version, "1 (this version of Scout)"))
    return found


def read_scout(folder: str | os.PathLike[str]) -> ScoutConfig:
    """scout.json of a model folder. Raises FormatError when it is missing or holds what Scout does not know."""
    path = Path(folder) / SCOUT_FILE
    if not path.is_file():
        raise FormatError(
            f"{printable(str(path))}: there is no such file, so this is no Scout model folder. "
            "Make one with `scoutv export CHECKPOINT --out DIR`."
        )
    try:
        return records.loads(path.read_bytes(), ScoutConfig, _scout_findings, str(path))
    except InputError as error:
        raise FormatError(str(error)) from error


def write_scout(folder: str | os.PathLike[str], config: ScoutConfig) -> Path:
    """Write scout.json into a model folder, whole or not at all; returns its path. Refuses what `read_scout` would."""
    path = Path(folder) / SCOUT_FILE
    data = msgspec.json.format(records.dumps(config), indent=2)
    try:
        records.loads(data, ScoutConfig, _scout_findings, str(path))
    except InputError as error:
        raise FormatError(str(error)) from error
    with replacing(path) as file:
        file.write(data + b"\n")
    return path
