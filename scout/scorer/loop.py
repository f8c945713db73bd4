"""Runs -> verdicts: all runs and all of their analyses go forward together, window by window.

An engine is fast when it gets thousands of requests at once, so a round asks for the next window of every analysis
that is still alive. Within a run windows have to be in order: what an analysis carries into a window it wrote in the
one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from scout import budget, prompt
from scout.config import ScoutConfig
from scout.errors import InputError, ServerError
from scout.render import counter, measure, render_prompt
from scout.scorer.assemble import unscored, verdict
from scout.scorer.chains import Chain, seed
from scout.scorer.engine import Engine, Generation, Request, Stop, never
from scout.scorer.readings import read
from scout.trajectory import Trajectory
from scout.verdict import Cut, Usage, Verdict, parse_reply

ReadAt = Literal["closing", "block"]
"""Where P(incorrect) of a step is read: where its paragraph closes (the first time the label is written) or at its line
of the block. The other place stands in where the preferred one has no label token."""

Progress = Callable[[int, int], None]
"""Called with (windows judged, windows in all), analyses counted one by one."""

SLICE = 2048
"""Requests given to the engine at once: enough to keep any engine full, few enough to report progress."""


class _Setup:
    """What stays the same for all runs."""

    def __init__(self, tokenizer: Any, config: ScoutConfig, read_at: ReadAt) -> None:
        self.tokenizer, self.config, self.read_at = tokenizer, config, read_at
        self.style = prompt.style(config.style)
        self.limits = budget.Budget(config.prompt_tokens, config.window_steps, config.task_tokens)
        self.count = counter(tokenizer)
        self.measure = measure(tokenizer)


@dataclass
class _Run:
    """A run on its way to a verdict."""

    trajectory: Trajectory
    windows: tuple[budget.Window, ...] = ()
    chains: list[Chain] = field(default_factory=list)
    state_cuts: list[Cut] = field(default_factory=list)
    refused: str | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    def window(self, number: int) -> budget.Window | None:
        """The window of that round; None when the run has no more or was refused."""
        return self.windows[number] if self.refused is None and number < len(self.windows) else None


def score(
    trajectories: Sequence[Trajectory],
    engine: Engine,
    tokenizer: Any,
    config: ScoutConfig,
    *,
    model: str = "",
    read_at: ReadAt = "closing",
    progress: Progress | None = None,
    stop: Stop = never,
) -> list[Verdict]:
    """One verdict for each trajectory, in the same order.

    A run that does not fit, or of which fewer than half of the analyses are readable, is unscored with the reason.
    Raises ServerError when the engine fails, or soon after `stop` says that nobody waits any more.
    """
    setup = _Setup(tokenizer, config, read_at)
    runs = [_start(trajectory, setup) for trajectory in trajectories]
    total = sum(len(run.windows) * config.analyses for run in runs)
    done = 0
    for number in range(max((len(run.windows) for run in runs), default=0)):
        for jobs in _sliced(_requests(runs, number, setup)):
            if stop():
                raise ServerError("scoring was given up: nobody waits for it any more")
            started = time.monotonic()
            generations = engine.generate([request for _, _, request in jobs], stop)
            seconds = (time.monotonic() - started) / len(jobs)
            for (run, chain, request), generation in zip(jobs, generations, strict=True):
                _account(run, request, generation, seconds)
                _take(run, chain, number, generation, setup)
            done += len(jobs)
            if progress is not None:
                progress(done, total)
    return [_finish(run, config, model) for run in runs]


def _start(trajectory: Trajectory, setup: _Setup) -> _Run:
    started = time.monotonic()
    run = _Run(trajectory, chains=[Chain(number) for number in range(1, setup.config.analyses + 1)])
    if not trajectory.steps:
        run.refused = "the run has no steps"
    try:
        run.windows = budget.fit(trajectory, setup.limits, setup.count, setup.style, measure=setup.measure)
    except InputError as error:
        run.refused = str(error)
    run.seconds = time.monotonic() - started
    return run


_Job = tuple[_Run, Chain, Request]


def _requests(runs: Sequence[_Run], number: int, setup: _Setup) -> Iterator[_Job]:
    """Requests of one round. Analyses of a run stand side by side, so that an engine reuses their common prefix."""
    limit, temperature = setup.config.completion_tokens, setup.config.temperature
    for run in runs:
        window = run.window(number)
        if window is None or 2 * sum(chain.problem is None for chain in run.chains) < len(run.chains):
            continue
        rendered: dict[str | None, tuple[int, ...]] = {}
        for chain in run.chains:
            if chain.problem is not None:
                continue
            try:
                if chain.state not in rendered:
                    rendered[chain.state] = _prompt(run, window, chain.state, setup)
            except InputError as error:
                run.refused = str(error)
                break
            identity = seed(run.trajectory.id, chain.number, number + 1)
            yield run, chain, Request(rendered[chain.state], identity, limit, temperature)


def _prompt(run: _Run, window: budget.Window, state: str | None, setup: _Setup) -> tuple[int, ...]:
    """Token ids of the prompt. A carried state that is too long loses its tail: it must not push out the run's text."""
    if state:
        state, cut = budget.carried(window, state, setup.limits, setup.count, setup.style, measure=setup.measure)
        run.state_cuts.append(cut)
    turns = prompt.messages(window.task, window.steps, setup.style, state=state, last=window.last)
    return tuple(render_prompt(setup.tokenizer, turns))


def _sliced(jobs: Iterator[_Job]) -> Iterator[list[_Job]]:
    batch: list[_Job] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == SLICE:
            yield batch
            batch = []
    if batch:
        yield batch


def _account(run: _Run, request: Request, generation: Generation, seconds: float) -> None:
    used = run.usage
    run.usage = Usage(
        used.prompt_tokens + len(request.prompt_ids),
        used.completion_tokens + len(generation.token_ids) + generation.ended,
        used.requests + 1,
    )
    run.seconds += seconds


def _take(run: _Run, chain: Chain, number: int, generation: Generation, setup: _Setup) -> None:
    window = run.windows[number]
    indices = [step.index for step in window.steps]
    reply = parse_reply(generation.text, indices, generation.ended)
    where = f"steps {indices[0]}-{indices[-1]}"
    readings = read(generation, reply, indices, setup.tokenizer)
    chain.take(reply, readings, last=window.last, read_at=setup.read_at, where=where)


def _finish(run: _Run, config: ScoutConfig, model: str) -> Verdict:
    cut = budget.merge_cuts([*(window.cut for window in run.windows), *run.state_cuts])
    if run.refused is not None:
        result = unscored(run.trajectory, run.refused, cut=cut)
    else:
        result = verdict(run.trajectory, run.chains, config, cut)
    noted = run.trajectory.meta.get("warnings")
    carried = tuple(str(text) for text in noted) if isinstance(noted, list) else ()
    return msgspec.structs.replace(
        result,
        warnings=(*carried, *result.warnings),
        model=model,
        prompt_version=config.prompt_version,
        fingerprint=config.fingerprint,
        usage=run.usage,
        seconds=round(run.seconds, 4),
    )
