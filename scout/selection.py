"""What choosing the best of N candidate runs is worth: the exact expected success over all subsets of a pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import comb

import numpy as np

from scout.errors import InputError
from scout.intervals import LEVEL, RESAMPLES, Floats, Tally, intervals, ratio, tally
from scout.metrics import task_of
from scout.trajectory import Trajectory

Score = float | tuple[float, ...]
"""A selector's score of one candidate; higher is better. `rerank.scores` makes them from verdicts."""

SIZES = range(1, 9)


def expected_best(scores: Sequence[Score | None], passed: Sequence[bool], size: int) -> float | None:
    """Chance that the best-scored of `size` candidates, drawn from the pool without replacement, has passed.

    Exact, not sampled: the r-th best of M wins in C(M-r, size-1) of the C(M, size) subsets. Equal scores share their
    places evenly, so a constant score is worth exactly a random pick. A candidate without a score (None) never wins;
    a draw of such candidates only has no winner and counts as not passed. None when the pool is smaller than `size`.
    """
    pool = len(passed)
    if len(scores) != pool or size < 1:
        raise InputError(
            f"Got {len(scores)} scores, {pool} outcomes, size {size}; allowed: as many of both, size >= 1."
        )
    if pool < size:
        return None
    keys = [score if isinstance(score, tuple) else (score,) for score in scores if score is not None]
    if any(part != part for key in keys for part in key):
        raise InputError("A score is NaN; give None for a candidate that could not be scored.")
    ranked = sorted(zip(keys, (p for s, p in zip(scores, passed, strict=True) if s is not None), strict=True))
    ranked.reverse()
    chance, rank = 0.0, 0
    for _, group in groupby(ranked, key=lambda pair: pair[0]):
        outcomes = [won for _, won in group]
        wins = sum(comb(pool - rank - place, size - 1) for place in range(1, len(outcomes) + 1))
        chance += wins * sum(outcomes) / len(outcomes)
        rank += len(outcomes)
    return chance / comb(pool, size)


def _formula(sums: Floats) -> dict[str, Floats]:
    random, scout, oracle, count = np.moveaxis(sums, -1, 0)
    return {
        "random": ratio(random, count),
        "scout": ratio(scout, count),
        "oracle": ratio(oracle, count),
        "gain": ratio(scout - random, count),
        "closed": ratio(scout - random, oracle - random),
        "tasks": count,
    }


def best_of_tally(
    scores: Mapping[str, Score | None], trajectories: Sequence[Trajectory], size: int, *, strict: bool = False
) -> Tally:
    """The sums behind one size of `best_of_n`; `intervals.differences` of two selectors is paired over tasks."""
    pools: dict[str, list[Trajectory]] = defaultdict(list)
    for run in trajectories:
        if run.id not in scores:
            raise InputError(f"Trajectory {run.id!r} has no score; give None for one that could not be scored.")
        pools[task_of(run)].append(run)
    rows = []
    for pool in pools.values():
        known = [run for run in pool if run.outcome.passed is not None and (strict or scores[run.id] is not None)]
        passed = [bool(run.outcome.passed) for run in known]
        success = expected_best([scores[run.id] for run in known], passed, size)
        if success is None:
            rows.append([0.0] * 4)
            continue
        oracle = 1 - comb(passed.count(False), size) / comb(len(passed), size)
        rows.append([sum(passed) / len(passed), success, oracle, 1])
    return tally(list(pools), rows, _formula, quantities=4, sizes=("tasks",))


def best_of_n(
    scores: Mapping[str, Score | None],
    trajectories: Sequence[Trajectory],
    *,
    sizes: Sequence[int] = SIZES,
    strict: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[str, dict[str, float | int | None]]:
    """Success of choosing among N candidates, for each N: {"5": {random, scout, oracle, gain, …}}.

    scores: trajectory id -> score of a selector (`rerank.scores`, or any rule such as minus the length), higher better.
    For N below the pool's size every figure is the exact mean over all subsets of N. random: a random candidate;
    oracle: any passed; gain: scout - random with gain_low and gain_high, an interval over tasks; closed: gain as a
    share of oracle - random; tasks: how many have at least N candidates with a known outcome.
    strict=False leaves unscored candidates out of the pools, of all three figures alike; strict=True keeps them: they
    never win, and a draw of nothing but them fails.
    """
    table: dict[str, dict[str, float | int | None]] = {}
    for size in sizes:
        one = best_of_tally(scores, trajectories, size, strict=strict)
        spread = intervals(one, resamples=resamples, seed=seed, level=level)["gain"]
        table[str(size)] = one.values() | {"gain_low": spread.low, "gain_high": spread.high}
    return table
