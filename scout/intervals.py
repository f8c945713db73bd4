"""Bootstrap over tasks: any figure that is a formula of sums, with its interval, and paired differences of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from scout.errors import InputError

Floats = NDArray[np.float64]
Formula = Callable[[Floats], dict[str, Floats]]
"""Sums with the quantities on the last axis -> figures over the other axes, NaN where a figure is undefined."""

LEVEL = 0.95
RESAMPLES = 2000
_CHUNK = 4_000_000
"""Cells of the weight matrix held at once: 32 MB."""


class Interval(msgspec.Struct, frozen=True):
    """One figure with its percentile interval; a bound is None where fewer than two tasks or nothing defined it."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Tally:
    """What a family of figures needs to know of each task: a row of sums, and the formula over their total."""

    tasks: tuple[str, ...]
    """Task ids, sorted, none twice."""
    sums_TQ: Floats
    """Shape (tasks, quantities). A task that contributes nothing has a row of zeros."""
    formula: Formula
    sizes: tuple[str, ...] = ("n",)
    """Figures that are counts; they get no interval."""

    def values(self) -> dict[str, float | int | None]:
        """Every figure over all tasks; None where it is undefined (a share of nothing)."""
        figures = self.formula(self.sums_TQ.sum(axis=0))
        return {name: _plain(value, name in self.sizes) for name, value in figures.items()}


def tally(
    tasks: Sequence[str],
    rows: Sequence[Sequence[float]],
    formula: Formula,
    *,
    quantities: int,
    sizes: tuple[str, ...] = ("n",),
) -> Tally:
    """Add up one row of quantities per run into one row per task. tasks: the task of each row."""
    names = tuple(sorted(set(tasks)))
    place = {name: position for position, name in enumerate(names)}
    sums_TQ = np.zeros((len(names), quantities))
    if len(names):
        np.add.at(sums_TQ, [place[task] for task in tasks], np.asarray(rows, dtype=np.float64))
    return Tally(names, sums_TQ, formula, sizes)


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, NaN where whole is 0."""
    share: Floats = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) != 0)
    return share


def _plain(value: Floats | float, is_size: bool) -> float | int | None:
    number = float(value)
    if is_size:
        return int(number)
    return number if np.isfinite(number) else None


def _resampled(tallies: Sequence[Tally], resamples: int, seed: int) -> list[dict[str, Floats]]:
    """Figures of each tally under the same draws of tasks, each of shape (resamples,)."""
    count = len(tallies[0].tasks)
    generator = np.random.default_rng(seed)
    chunk = max(1, _CHUNK // count)
    parts: list[list[Floats]] = [[] for _ in tallies]
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        weights_BT = generator.multinomial(count, np.full(count, 1 / count), size=size).astype(np.float64)
        for part, one in zip(parts, tallies, strict=True):
            part.append(weights_BT @ one.sums_TQ)
    return [one.formula(np.concatenate(part)) for part, one in zip(parts, tallies, strict=True)]


def _interval(value: float | int | None, drawn: Floats | None, level: float) -> Interval:
    if value is None or drawn is None:
        return Interval(value, None, None)
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return Interval(value, None, None)
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def intervals(one: Tally, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL) -> dict[str, Interval]:
    """Every figure of the tally with its percentile interval over tasks drawn with replacement; same seed, same result.

    Resamples in which a figure is undefined are left out of its interval. Sizes are not among the figures.
    """
    _check(resamples, level)
    drawn = _resampled([one], resamples, seed)[0] if len(one.tasks) > 1 else {}
    values = one.values()
    return {name: _interval(v, drawn.get(name), level) for name, v in values.items() if name not in one.sizes}


def differences(
    after: Tally, before: Tally, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> dict[str, Interval]:
    """after - before for every figure both have, paired: both sides see the same draws of tasks.

    Raises InputError when the two cover different tasks.
    """
    _check(resamples, level)
    if after.tasks != before.tasks:
        odd = sorted(set(after.tasks) ^ set(before.tasks))
        raise InputError(
            f"A paired difference needs the same tasks on both sides; {len(odd)} are on one side only: "
            f"{', '.join(odd[:10])}. Score both on the same runs."
        )
    left, right = after.values(), before.values()
    drawn = _resampled([after, before], resamples, seed) if len(after.tasks) > 1 else [{}, {}]
    result = {}
    for name, new in left.items():
        old = right.get(name)
        if name in after.sizes or name not in right:
            continue
        gap = None if new is None or old is None else new - old
        spread = drawn[0][name] - drawn[1][name] if drawn[0] else None
        result[name] = _interval(gap, spread, level)
    return result


def _check(resamples: int, level: float) -> None:
    if resamples < 1:
        raise InputError(f"resamples is {resamples!r}; allowed: at least 1.")
    if not 0 < level < 1:
        raise InputError(f"level is {level!r}; allowed: a number between 0 and 1, such as 0.95.")
