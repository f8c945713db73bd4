"""Collected runs: splits that share nothing, seeded candidates, exact outcomes, the mix that best-of-N needs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from conftest import ROOT
from world_runs import CANDIDATES, collected, faulty

from data_prep.collect import BUCKETS, bucket, collect, collect_run, main, make_world, world_seeds
from scout.agents.scientist import Habits, Scientist
from scout.trajectory import Trajectory, dumps, read
from scout.worlds.effects import EFFECTS, draw
from scout.worlds.mystery_grid import MysteryGrid
from scout.worlds.rubric import grade


def effect_map(run: Trajectory) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(make_world(run.meta["world_seed"]).effects.items()))


def committed(run: Trajectory) -> str:
    return str(json.loads(run.steps[-1].action.removeprefix("commit_final_result "))["content"])


# Splits


def test_splits_share_no_effect_map_and_no_world() -> None:
    seeds = {split: list(world_seeds(split, 0, 150)) for split in BUCKETS}
    maps = {split: {tuple(make_world(seed).effects.values()) for seed in seeds[split]} for split in seeds}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not set(seeds[one]) & set(seeds[other])
        assert not maps[one] & maps[other]


def test_every_map_belongs_to_exactly_one_split() -> None:
    assert sorted(number for numbers in BUCKETS.values() for number in numbers) == list(range(100))
    for seed in world_seeds("test", 0, 30):
        assert bucket(dict(make_world(seed).effects)) in BUCKETS["test"]


def test_seeds_of_different_data_sets_do_not_meet() -> None:
    assert not set(world_seeds("train", 0, 2000)) & set(world_seeds("train", 1, 2000))


def test_all_effects_and_number_of_moves_occur() -> None:
    worlds = [make_world(seed) for seed in world_seeds("train", 0, 200)]
    assert {effect for world in worlds for effect in world.effects.values()} == set(EFFECTS)
    assert {world.required_steps for world in worlds} == set(range(9, 18))


# Runs


def test_candidates_of_a_task_share_its_world_and_budget() -> None:
    runs = collected()
    for start in range(0, len(runs), CANDIDATES):
        group = runs[start : start + CANDIDATES]
        assert len({run.task for run in group}) == len({run.meta["world_seed"] for run in group}) == 1
        assert [run.id for run in group] == [f"{group[0].task.id}-{n}" for n in range(CANDIDATES)]
        assert len({str(run.steps) for run in group}) > 1
        world = make_world(group[0].meta["world_seed"])
        assert f"after {world.required_steps} moves" in group[0].task.text
        for run in group:
            done = [s for s in run.steps if s.action.startswith("move") and not s.observation.startswith("refused")]
            assert len(done) == world.required_steps


def test_runs_have_ten_to_thirty_steps() -> None:
    lengths = [len(run.steps) for run in collected()]
    assert 10 <= min(lengths) < 14 and 24 < max(lengths) <= 30


def test_passed_means_a_rubric_score_of_sixty_or_more() -> None:
    for run in collected():
        score = grade(committed(run), dict(effect_map(run))).final_score
        assert run.outcome.score == score
        assert run.outcome.passed is (score >= 60)
    assert {run.outcome.score for run in collected()} >= {20.0, 40.0, 60.0, 80.0}


def test_the_task_and_the_steps_do_not_give_the_answer_away() -> None:
    for run in collected()[:80]:
        shown = run.task.text + "".join(step.thought + step.action + step.observation for step in run.steps)
        assert "world_seed" not in shown and json.dumps(dict(effect_map(run))) not in shown
        assert all(effect.text in run.task.text for effect in EFFECTS.values())


def test_the_mix_of_runs() -> None:
    runs = collected()
    clean, wrong = [run for run in runs if not run.has_mistake], faulty(runs)
    assert len(runs) == 320
    assert len(clean) / len(runs) >= 0.40
    assert sum(not run.outcome.passed for run in clean) / len(clean) >= 0.10
    assert sum(bool(run.outcome.passed) for run in wrong) / len(wrong) >= 0.15


def test_most_mistakes_are_provable_from_three_facts() -> None:
    sizes = [size for run in collected() if run.labels for size in run.labels.proof_sizes if size is not None]
    first = [run.labels.proof_sizes[(run.labels.first_mistake or 0) - 1] for run in faulty(collected()) if run.labels]
    for each in (sizes, first):
        assert sum(size is not None and size <= 3 for size in each) / len(each) >= 0.60


def test_a_sound_scientist_with_many_moves_solves_maps_it_has_never_met() -> None:
    scores = []
    for seed in world_seeds("test", 3, 30):
        env = make_world(seed)
        env = MysteryGrid(env.effects, seed=seed, required_steps=60, rules=env.rules)
        done = Scientist(env, seed, Habits()).play()
        content = json.loads(done[-1].action.split(" ", 1)[1])["content"]
        scores.append(grade(content, env.effects).final_score)
    assert sum(scores) / len(scores) >= 90


# The same again


def test_a_run_follows_from_its_seeds() -> None:
    seed = next(world_seeds("dev", 2, 1))
    assert collect_run(seed, 3) == collect_run(seed, 3)
    assert collect_run(seed, 3).steps != collect_run(seed, 4).steps


def test_the_number_of_workers_does_not_matter() -> None:
    expected = [dumps(run) for run in collected()[: 6 * CANDIDATES]]
    for workers in (1, 3):
        assert [dumps(run) for run in collect("train", 7, 6, workers)] == expected


def test_hash_randomisation_does_not_matter() -> None:
    code = (
        "from data_prep.collect import collect_run, world_seeds; from scout.trajectory import dumps; "
        "print(dumps(collect_run(next(world_seeds('train', 7, 1)), 0)))"
    )
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == dumps(collected()[0])


# The command


def test_the_command_writes_three_files_that_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--seed", "7", "--tasks", "train=2", "dev=1", "test=1"]) == 0
    assert list(read(tmp_path / "train.jsonl.zst")) == list(collected()[: 2 * CANDIDATES])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["split"], line["runs"]) for line in printed] == [("train", 16), ("dev", 8), ("test", 8)]
    maps = [{effect_map(run) for run in read(tmp_path / f"{split}.jsonl.zst")} for split in ("train", "dev", "test")]
    assert not maps[0] & maps[1] and not maps[0] & maps[2] and not maps[1] & maps[2]


@pytest.mark.parametrize("words", [["--tasks", "trian=3"], ["--tasks", "train=0"], ["--seed", "-1"], ["--seed", "x"]])
def test_wrong_options_are_refused(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--out", str(tmp_path / "data"), *words])
    assert stopped.value.code == 2
    assert repr(words[1]) in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file" / "data")]) != 0
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_maps_are_drawn_as_in_the_world() -> None:
    for seed in islice(world_seeds("train", 0, 20), 20):
        assert dict(make_world(seed).effects) == draw(random.Random(seed))
