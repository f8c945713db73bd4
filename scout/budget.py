"""Fit a run into a token budget: windows of steps, long texts shortened where it hurts least, a ledger of every cut.

Observations go first, then actions, then thoughts, then the task; within each the oldest step first, down to a short
head and tail around a visible mark. Nothing is dropped silently: what a prompt does not show stands in `Window.cut`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import msgspec

from scout.errors import ConfigError, InputError, shown
from scout.prompt import CARRIED_CHARACTERS, Style, messages
from scout.shorten import Count, Field, Part, shorten, weigh
from scout.trajectory import Step, Trajectory
from scout.verdict import Cut

Measure = Callable[[list[dict[str, str]]], int]
"""Tokens of a rendered prompt, see `render.measure`."""

TIERS: tuple[Field, ...] = ("observation", "action", "thought", "task")
"""What is shortened, in this order. The agent's own words are what the verifier judges, so they go late."""

STATE_SHARE = 8
STATE_TOKENS = 512
"""A window that is not the first keeps 1/STATE_SHARE of the budget, at most STATE_TOKENS, for the carried state."""

TURN_TOKENS = 8
"""What a chat template adds to a message when no `measure` is given (ChatML 5, Llama 3 6)."""

CHARACTERS_PER_TOKEN = 16
"""A window with more characters than this for each token of its budget cannot fit and is cut by characters first, so
that megabytes are never tokenised. English has 4, indented code up to 10."""

EDGE_CHARACTERS = 400
"""What a cut by characters leaves of a text at least."""


class Budget(msgspec.Struct, frozen=True):
    """How much of a run one prompt may show."""

    prompt_tokens: int
    """Upper limit of a rendered prompt."""
    window_steps: int = 0
    """Steps of one prompt; 0 = the whole run."""
    task_tokens: int = 0
    """The task is shortened to this; 0 = only when nothing else can give way."""

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.window_steps < 0 or self.task_tokens < 0:
            raise ConfigError(f"{self}: prompt_tokens must be at least 1, window_steps and task_tokens at least 0.")

    @property
    def state_tokens(self) -> int:
        """Tokens kept free for the carried state in every window but the first."""
        return min(STATE_TOKENS, self.prompt_tokens // STATE_SHARE)


class Window(msgspec.Struct, frozen=True):
    """What one prompt shows: pass its fields to `prompt.messages`."""

    steps: tuple[Step, ...]
    """With their own indices; texts possibly shortened."""
    task: str
    cut: Cut
    first: bool
    last: bool


def fit(
    trajectory: Trajectory, budget: Budget, count: Count, style: Style, *, measure: Measure | None = None
) -> tuple[Window, ...]:
    """Windows of the run, in order, each of which renders to at most `budget.prompt_tokens`; () for a run of no steps.

    count: tokens of a text. measure: exact length of rendered messages (`render.measure`); without it, the tokens of
    the contents and TURN_TOKENS for each turn. A window that is not the first leaves room for a state of
    `budget.state_tokens`, see `carried`.
    Raises InputError when the shortest form of a window is still too long, with the figures needed to choose a limit.
    """
    fitter = _Fitter(trajectory, budget, count, style, measure or _measure(count))
    size = budget.window_steps or max(1, len(trajectory.steps))
    return tuple(fitter.window(start, start + size) for start in range(0, len(trajectory.steps), size))


def carried(
    window: Window, state: str, budget: Budget, count: Count, style: Style, *, measure: Measure | None = None
) -> tuple[str, Cut]:
    """The state as far as it fits into the prompt of `window`, and what of it was cut.

    The state comes from a model and may be longer than the room that `fit` left; its head is kept.
    """
    rendered = measure or _measure(count)
    part = Part(-1, 0, "task", state, state)
    weigh(part, count, CARRIED_CHARACTERS - EDGE_CHARACTERS if len(state) > CARRIED_CHARACTERS else len(state))
    limit = part.shown_tokens
    while True:
        turns = messages(window.task, window.steps, style, state=part.shown, last=window.last)
        over = rendered(turns) - budget.prompt_tokens
        if over <= 0 or not part.shown:
            break
        limit -= over
        shorten(part, limit, count)
        if part.shown_tokens > limit:
            part.shown, part.unseen = "", max(1, part.tokens)
    return part.shown, Cut((), part.unseen, (part.line().replace("task", "state", 1),)) if part.unseen else Cut()


def merge_cuts(cuts: Iterable[Cut]) -> Cut:
    """One ledger for all windows of a run. The task, which every window shows, counts once: as its largest cut."""
    steps: set[int] = set()
    parts: dict[str, None] = {}
    tokens = task_tokens = 0
    task_line: str | None = None
    for cut in cuts:
        steps.update(cut.steps)
        tokens += cut.tokens
        for line in cut.parts:
            found = re.match(r"task: (?:about )?(\d+) of", line)
            if found is None:
                parts[line] = None
                continue
            tokens -= int(found[1])
            if int(found[1]) > task_tokens:
                task_tokens, task_line = int(found[1]), line
    lines = ([task_line] if task_line else []) + list(parts)
    return Cut(tuple(sorted(steps)), tokens + task_tokens, tuple(lines))


def _measure(count: Count) -> Measure:
    return lambda turns: sum(count(turn["content"]) + TURN_TOKENS for turn in turns) + TURN_TOKENS


class _Fitter:
    """Fits the windows of one run."""

    def __init__(self, run: Trajectory, budget: Budget, count: Count, style: Style, measure: Measure) -> None:
        self.run, self.budget, self.count, self.style, self.measure = run, budget, count, style, measure
        self.task = Part(-1, 0, "task", run.task.text, run.task.text)
        limit = max(EDGE_CHARACTERS, budget.prompt_tokens * CHARACTERS_PER_TOKEN)
        if len(run.task.text) > limit:
            weigh(self.task, count, limit)
        if budget.task_tokens:
            weigh(self.task, count, len(self.task.shown))
            if self.task.shown_tokens > budget.task_tokens:
                shorten(self.task, budget.task_tokens, count)

    def window(self, start: int, stop: int) -> Window:
        """The window of the steps at positions start to stop."""
        steps = self.run.steps[start:stop]
        first, last = start == 0, stop >= len(self.run.steps)
        task = Part(**vars(self.task))
        parts = [*_parts(steps), task]
        self._cut_by_characters(parts)
        over = self._surplus(steps, parts, first, last)
        if over > 0:
            for part in parts:
                if not part.tokens:
                    weigh(part, self.count, len(part.shown))
            self._squeeze(steps, parts, first, last, over)
        cut = [part for part in parts if part.unseen]
        indices = sorted({part.index for part in cut if part.index})
        lines = tuple(part.line() for part in sorted(cut, key=lambda part: (part.index, TIERS.index(part.field))))
        ledger = Cut(tuple(indices), sum(part.unseen for part in cut), lines)
        return Window(_rebuilt(steps, parts), task.shown, ledger, first, last)

    def _surplus(self, steps: Sequence[Step], parts: Sequence[Part], first: bool, last: bool) -> int:
        """Tokens above the limit; negative when there is room."""
        state = None if first else ""
        turns = messages(parts[-1].shown, _rebuilt(steps, parts), self.style, state=state, last=last)
        room = self.budget.prompt_tokens - (0 if first else self.budget.state_tokens)
        return self.measure(turns) - room

    def _cut_by_characters(self, parts: Sequence[Part]) -> None:
        """Cut what surely cannot fit, without tokenising it: oldest observations first, as with tokens."""
        limit = self.budget.prompt_tokens * CHARACTERS_PER_TOKEN
        total = sum(len(part.shown) for part in parts)
        for part in _in_order(parts):
            if total <= limit:
                return
            before = len(part.shown)
            keep = max(EDGE_CHARACTERS, before - (total - limit))
            if keep + EDGE_CHARACTERS < before:
                weigh(part, self.count, keep)
            total -= before - len(part.shown)

    def _squeeze(self, steps: Sequence[Step], parts: Sequence[Part], first: bool, last: bool, over: int) -> None:
        """Shorten parts until nothing is over the limit. Raises InputError when all are at their floor before that."""
        while over > 0:
            wanted, moved = over, False
            for part in _in_order(parts):
                before = part.shown_tokens
                if before > part.floor:
                    shorten(part, max(part.floor, before - wanted), self.count)
                wanted -= before - part.shown_tokens
                moved = moved or part.shown_tokens < before
                if wanted <= 0:
                    break
            if not moved:
                self._refuse(steps, parts, first, over)
            over = self._surplus(steps, parts, first, last)

    def _refuse(self, steps: Sequence[Step], parts: Sequence[Part], first: bool, over: int) -> NoReturn:
        reserved = 0 if first else self.budget.state_tokens
        shortest = self.budget.prompt_tokens + over - reserved
        smallest = shortest
        while not first and smallest - Budget(smallest).state_tokens < shortest:
            smallest += 1
        found = shortest + sum(part.tokens - part.shown_tokens for part in parts)
        by_step = dict.fromkeys((step.index for step in steps), 0)
        for part in parts[:-1]:
            by_step[part.index] += part.tokens
        largest = sorted(by_step, key=by_step.__getitem__, reverse=True)[:5]
        shares = ", ".join(f"step {index} {by_step[index]} ({by_step[index] / found:.0%})" for index in largest)
        advice = f", or window_steps below {len(steps)}" if len(steps) > 1 else ""
        raise InputError(
            f"run {shown(self.run.id)}, steps {steps[0].index} to {steps[-1].index}: the prompt has about {found} "
            f"tokens, {shortest} with every text at its shortest, and {reserved} are kept for the carried state; the "
            f"limit prompt_tokens is {self.budget.prompt_tokens}. Largest shares: {shares}; task {parts[-1].tokens}. "
            f"Set prompt_tokens to at least {smallest}{advice}."
        )


def _parts(steps: Sequence[Step]) -> list[Part]:
    """The texts of the steps that are not empty."""
    fields: tuple[tuple[Field, Callable[[Step], str]], ...] = (
        ("thought", lambda step: step.thought),
        ("action", lambda step: step.action),
        ("observation", lambda step: step.observation),
    )
    texts = ((place, step, name, text(step)) for place, step in enumerate(steps) for name, text in fields)
    return [Part(place, step.index, name, text, text) for place, step, name, text in texts if text]


def _in_order(parts: Sequence[Part]) -> list[Part]:
    """Parts in the order in which they are shortened."""
    return sorted(parts, key=lambda part: (TIERS.index(part.field), part.place))


def _rebuilt(steps: Sequence[Step], parts: Sequence[Part]) -> tuple[Step, ...]:
    changes: dict[int, dict[str, str]] = {}
    for part in parts:
        if part.index and part.shown is not part.text:
            changes.setdefault(part.place, {})[part.field] = part.shown
    return tuple(
        msgspec.structs.replace(step, **changes[place]) if place in changes else step
        for place, step in enumerate(steps)
    )
