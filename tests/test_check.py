"""The checker of analyses: true ones pass, each planted falsehood is found."""

from __future__ import annotations

import random

import pytest
from planted import PLANTS, Plant
from world_runs import collected, faulty

from data_prep import check
from data_prep.world_writer import analyse


def test_the_checker_finds_every_cited_fact() -> None:
    for run in collected():
        assert run.labels is not None
        analysis = analyse(run, random.Random(run.id))
        assert check.problems(run, analysis.paragraphs) == []
        assert check.contradictions(analysis.paragraphs, dict(enumerate(run.labels.step_labels, 1))) == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_false_analyses_are_rejected(plant: Plant) -> None:
    caught = 0
    for run in faulty(collected())[:80]:
        paragraphs = dict(analyse(run, random.Random(0)).paragraphs)
        spoilt = plant(run, paragraphs)
        if spoilt is not None:
            found = check.problems(run, paragraphs)
            assert any(line.startswith(f"step {spoilt}: ") for line in found), (run.id, paragraphs[spoilt])
            caught += 1
    assert caught >= 3
