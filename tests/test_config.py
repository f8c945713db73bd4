"""Recipes and scout.json: strict keys, all problems at once, resolved values that read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scout import strict_yaml
from scout.config import Recipe, ScoutConfig, ScoutSection, dump_recipe, load_recipe, read_scout, write_scout
from scout.errors import ConfigError, FormatError

RECIPE = """\
# A comment that a person reads.
model:
  dtype: bfloat16
  lora_rank: 16
data:
scout:
  style: brief
  window_steps: 4
  w: 1
trainer:
  learning_rate: 1e-4
  loss_type: no
  max_steps: 2
serve: {}
"""

ROOT = Path(__file__).resolve().parent.parent


def recipe_file(folder: Path, text: str | bytes = RECIPE) -> Path:
    path = folder / "sft.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, overrides)
    return str(caught.value)


def test_a_recipe_is_read_with_its_defaults(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file(tmp_path))
    assert recipe.model.lora_rank == 16 and recipe.data.path == ""
    assert recipe.scout == ScoutSection(style="brief", window_steps=4, w=1.0)
    assert recipe.trainer == {"learning_rate": 1e-4, "loss_type": "no", "max_steps": 2}


def test_overrides_win_and_are_read_as_yaml(tmp_path: Path) -> None:
    path = recipe_file(tmp_path)
    recipe = load_recipe(
        path,
        ["trainer.learning_rate=3e-5", "scout.w=.5", "trainer.bf16=true", "trainer.extra.deep=[1, a]", "data.path=a=b"],
    )
    assert recipe.trainer["learning_rate"] == 3e-5 and recipe.trainer["bf16"] is True
    assert recipe.trainer["extra"] == {"deep": [1, "a"]}
    assert (recipe.scout.w, recipe.data.path) == (0.5, "a=b")


def test_all_problems_of_a_recipe_come_at_once_with_line_and_nearest_key(tmp_path: Path) -> None:
    path = recipe_file(
        tmp_path, "modle: {}\nscout:\n  windw_steps: 4\n  style: breif\n  w: 1.5\n  analyses: 0\nmodel:\n  dtype: fp8\n"
    )
    text = refusal(path, "serve.max_model_tokens=10", "scout.localization=1", "x", "trainer.a=[")
    assert text.startswith("10 problems:")
    for part in (
        "sft.yaml:1: modle: found {}; allowed: no such key here; did you mean model?",
        "sft.yaml:3: scout.windw_steps: found 4; allowed: no such key here; did you mean window_steps?",
        "sft.yaml:4: scout.style: found 'breif'; allowed: did you mean brief? one of full, brief",
        "sft.yaml:5: scout.w: found 1.5; allowed: 0 to 1",
        "sft.yaml:6: scout.analyses: found 0; allowed: 1 or more",
        "sft.yaml:8: model.dtype: found 'fp8'; allowed: one of float32, bfloat16",
        "override 'serve.max_model_tokens=10': serve.max_model_tokens: found 10; allowed: 10240 or more",
        "override 'scout.localization=1': scout.localization: found 1; allowed: no such key here; "
        "did you mean localisation?",
        "override 'x': found 'x'; allowed: section.key=value",
        "override 'trainer.a=[': trainer.a: found '['; allowed: a value in YAML",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "found None; allowed: sections model, data"),
        (b"- a", "allowed: sections model, data"),
        (b"scout: [", "not YAML"),
        (
            b"scout: {w: 1}\nscout: {w: 0}",
            "scout: found 'scout'; allowed: a key once; it stands in line 1 and in line 2",
        ),
        (b"scout:\n  w: \xff", "byte 12 is not UTF-8"),
        (b"scout: 3", "scout: found 3; allowed: an object with style"),
        (b"trainer: [1]", "trainer: found [1]"),
        (b"a: &x [*x]", "levels of nesting"),
        (b"a: " + b"[" * 60 + b"]" * 60, "at most 20 levels of nesting"),
        (b"a: " + b"[" * 1100 + b"]" * 1100, "nested too deeply"),
        (b"a: " + b"1" * 5000, "no such key"),
        (b"a: !!python/object/apply:os.system ['false']", "not YAML"),
        (b"x" * 2_000_000, "at most 1 MiB"),
        (b"a: \x1b[2J", "not YAML"),
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, content: bytes, part: str) -> None:
    text = refusal(recipe_file(tmp_path, content))
    assert part in text and "sft.yaml" in text
    assert "\x1b" not in text


def test_a_missing_recipe_is_a_config_error(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "no.yaml")


@pytest.mark.parametrize("override", ["scout.w.x=1", "=1", "scout=1", "scout.=1", ".w=1", "scout"])
def test_an_override_that_is_none_is_refused(tmp_path: Path, override: str) -> None:
    assert "override" in refusal(recipe_file(tmp_path), override)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False) | TEXT
    | st.sampled_from(["1e-4", "yes", "no", "on", "null", "~", "0x1f", "010", "1_0", ".5", "2026-01-01"])
    | st.sampled_from(["1:30", "<<", "=", "-", "? a", "a: b", "- a", "# a", "&a", "*a", "!a", "%a", "@a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_a_dumped_recipe_reads_back_equal(trainer: dict[str, Any]) -> None:
    recipe = Recipe(trainer=trainer, scout=ScoutSection(style="brief", w=1e-5))
    value, _, findings = strict_yaml.parse(dump_recipe(recipe))
    assert findings == []
    assert msgspec.convert(value, Recipe) == recipe


def test_every_recipe_of_the_repository_loads() -> None:
    for path in sorted(ROOT.glob("recipes/*/*.yaml")):
        if path.parent.name != "accelerate":
            assert isinstance(load_recipe(path), Recipe), path


CONFIG = ScoutConfig("abc", "1", "brief", 4, 64, 400, 256, threshold=0.4)


def test_scout_json_reads_back_equal(tmp_path: Path) -> None:
    path = write_scout(tmp_path / "model", CONFIG)
    assert path.name == "scout.json" and read_scout(tmp_path / "model") == CONFIG
    assert [item.name for item in (tmp_path / "model").iterdir()] == ["scout.json"]


def test_a_folder_without_scout_json_is_no_model_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no Scout model folder"):
        read_scout(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('"style"', '"stile"', "did you mean style?"),
        ('"brief"', '"short"', "style: found 'short'"),
        ('"threshold": 0.4', '"threshold": 4', "threshold: found 4.0; allowed: 0 to 1"),
        ('"schema_version": 1', '"schema_version": 2', "schema_version: found 2"),
        ("}", "", "stops after"),
    ],
)
def test_a_scout_json_with_anything_unknown_is_refused(tmp_path: Path, old: str, new: str, part: str) -> None:
    path = write_scout(tmp_path, CONFIG)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(FormatError) as caught:
        read_scout(tmp_path)
    assert part in str(caught.value)


def test_an_unsound_scout_json_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="selector"):
        write_scout(tmp_path, msgspec.structs.replace(CONFIG, selector="luck"))
    assert not list(tmp_path.iterdir())


def test_only_scoring_may_be_greedy_and_then_with_one_analysis(tmp_path: Path) -> None:
    greedy = recipe_file(tmp_path, "scout:\n  scoring_temperature: 0.0\n  analyses: 1\n")
    assert load_recipe(greedy).scout.scoring_temperature == 0.0
    text = refusal(recipe_file(tmp_path, "scout: {scoring_temperature: 0.0, temperature: 0.0, analyses: 2}\n"))
    assert "scout.scoring_temperature: found 0.0; allowed: above 0, or 0 (greedy) with analyses 1" in text
    assert "scout.temperature: found 0.0; allowed: above 0\n" in text
