"""Writer `llm`: a large model sees the steps with their gold labels and writes the analysis that arrives at them.

Each window of the verifier is one request (or several, where it is too long for the writer), and shows the state that
the writer itself carried on from the window before. An analysis that differs from the labels, speaks of them or leans
on hindsight is asked for again at a higher temperature; after the last try its run is set aside with the reasons.

Every answer is kept on disk when it arrives, and what becomes of it depends on nothing else. So a call that was killed
is simply made again: it asks for what is missing and writes the very rows that one call would have written.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from data_prep import labels_writer, llm_prompt
from data_prep.llm_account import Account, Explained, Rejection, SetAside
from data_prep.llm_budget import BudgetSpent
from data_prep.llm_cache import Cache, Request
from data_prep.llm_check import Reply, Unusable, Written, accept
from data_prep.llm_requests import Client, NotAnswered
from data_prep.llm_settings import Settings
from data_prep.rows import Frame, Unfaithful, carried, frame, judged_part, problem, row_of
from data_prep.world_writer import Analysis
from scout import budget
from scout.config import Recipe
from scout.errors import OK, UNSCORED, InputError, printable
from scout.lines import write_lines
from scout.trajectory import Task, Trajectory, read

ANSWERS = "llm_answers.sqlite"
"""File of the answers, in the folder of the rows."""
FIRST_TEMPERATURE, RISE, HIGHEST_TEMPERATURE = 0.4, 0.2, 1.2
AHEAD = 3
"""Runs under way for each request that may be under way: a slow run at the head does not stop the others."""
LABEL_TOKENS = 8
"""What the line with its label adds to a step."""
SPARE_TOKENS = 64
REPORT_RUNS = 100
SHOWN_CHARACTERS = 400


class _Failed(Exception):
    """No usable analysis of these steps."""

    def __init__(self, kind: str, reason: str, steps: str) -> None:
        super().__init__(reason)
        self.kind, self.steps = kind, steps


def temperature(attempt: int) -> float:
    """Of a 0-based try."""
    return min(HIGHEST_TEMPERATURE, round(FIRST_TEMPERATURE + RISE * attempt, 2))


class LlmWriter:
    """Explains the runs of one folder. Use it in a `with` block: it holds connections and the file of answers."""

    def __init__(self, settings: Settings, key: str, out: Path, recipe: Recipe, tokenizer: Any) -> None:
        self._settings, self._recipe, self._tokenizer = settings, recipe, tokenizer
        self._cache = Cache(out / ANSWERS)
        self._runner = asyncio.Runner()
        self._pending: deque[asyncio.Task[Explained]] = deque()
        count = frame("", recipe, tokenizer).count
        self.client = Client(settings, key, self._cache, count)
        self._fixed_tokens = count(llm_prompt.fixed_text()) + budget.STATE_TOKENS + SPARE_TOKENS

    def __enter__(self) -> LlmWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._close())
        finally:
            self._runner.close()
            self._cache.close()

    def explain(self, runs: Iterator[Trajectory], split: str, account: Account) -> Iterator[dict[str, Any]]:
        """Rows of all runs, in their order. account: filled on the way.

        Raises ServerError when the endpoint cannot be used any more.
        """
        shared = frame(split, self._recipe, self._tokenizer)
        for run in runs:
            self._pending.append(self._runner.get_loop().create_task(self._run(run, shared)))
            if len(self._pending) > AHEAD * self._settings.concurrency:
                yield from self._next(split, account)
        while self._pending:
            yield from self._next(split, account)

    def _next(self, split: str, account: Account) -> list[dict[str, Any]]:
        run = self._runner.run(_result(self._pending[0]))
        self._pending.popleft()
        account.add(run)
        if account.runs % REPORT_RUNS == 0:
            print(f"{split}: {account.runs} runs; {self.told()}", file=sys.stderr)
        return run.rows

    def told(self) -> str:
        """What this call has asked and what has been spent, for people."""
        tally = ", ".join(f"{name} {count}" for name, count in sorted(self.client.tally.items()))
        return f"requests of this call: {tally or 'none'}; {self.client.budget}"

    async def _close(self) -> None:
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self.client.close()

    async def _run(self, run: Trajectory, shared: Frame) -> Explained:
        """The rows of a run, or why it has none."""
        done = Explained(run.id, str(run.meta.get("domain") or "unknown"), len(run.steps))
        try:
            done.rows = await self._rows(run, shared, done)
        except _Failed as error:
            _set_aside(done, error.kind, error, error.steps)
        except BudgetSpent as error:
            _set_aside(done, "budget", error)
        except Unfaithful as error:
            _set_aside(done, "labels", error)
        except InputError as error:
            _set_aside(done, "too long", error)
        return done

    async def _rows(self, run: Trajectory, shared: Frame, done: Explained) -> list[dict[str, Any]]:
        run, left_out = judged_part(run)
        analysis, rows = Analysis({}, {}), []
        for number, window in enumerate(shared.windows(run), 1):
            first, last = window.steps[0].index, window.steps[-1].index
            state = None if window.first else carried(window, analysis.states[first - 1], shared)[0]
            tries = len(done.rejections)
            written, unseen = await self._window(run, window, state, shared, done)
            analysis.paragraphs.update(written.paragraphs)
            if written.state is not None:
                analysis.states[last] = written.state
            row = row_of(run, number, window, analysis, shared)
            row["cut"] += [*([left_out] if left_out else []), *unseen]
            row["tries"] = len(done.rejections) - tries + 1
            rows.append(row)
        if found := problem(run, analysis, rows, labels_writer.problems):
            raise _Failed("as a whole", found, f"1-{len(run.steps)}")
        return rows

    async def _window(
        self, run: Trajectory, window: budget.Window, state: str | None, shared: Frame, done: Explained
    ) -> tuple[Written, list[str]]:
        """The analysis of a window, asked for part by part, and what of the window the writer did not see."""
        parts = self._parts(window, shared)
        paragraphs: dict[int, str] = {}
        for place, part in enumerate(parts, 1):
            share = len(part.steps) / len(window.steps)
            last = window.last and place == len(parts)
            written = await self._part(run, part, state, shared, done, last=last, share=share)
            paragraphs.update(written.paragraphs)
            state = written.state
        return Written(paragraphs, state), [f"writer: {line}" for part in parts for line in part.cut.parts]

    def _parts(self, window: budget.Window, shared: Frame) -> tuple[budget.Window, ...]:
        """The window as far as the writer can read it at once: as few parts as show all of its text."""
        run = Trajectory("the window", Task(window.task), window.steps)
        size = len(window.steps)
        while True:
            room = self._settings.prompt_tokens - self._fixed_tokens - LABEL_TOKENS * size
            limits = budget.Budget(max(1, room), size)
            try:
                found = budget.fit(run, limits, shared.count, shared.style, measure=shared.measure)
                if size == 1 or not any(part.cut.parts for part in found):
                    return found
            except InputError:
                if size == 1:
                    raise
            size = ceil(size / 2)

    async def _part(
        self, run: Trajectory, part: budget.Window, state: str | None, shared: Frame, done: Explained, *,
        last: bool, share: float,
    ) -> Written:  # fmt: skip
        """A usable analysis of these steps. Raises _Failed when no try gave one. share: of the verifier's reply."""
        assert run.labels is not None
        labels = {step.index: run.labels.step_labels[step.index - 1] for step in part.steps}
        steps = f"{part.steps[0].index}-{part.steps[-1].index}"
        limit = int(self._recipe.scout.completion_tokens * share)
        turns = llm_prompt.messages(
            part, labels, state, reply_tokens=limit, state_tokens=shared.limits.state_tokens, last=last
        )
        about = sum(shared.count(turn["content"]) + budget.TURN_TOKENS for turn in turns)
        for attempt in range(self._settings.tries):
            request = Request(
                run.id, steps, attempt, turns, temperature(attempt), self._settings.completion_tokens, about
            )
            try:
                answer = await self.client.ask(request)
            except NotAnswered as error:
                raise _Failed(error.kind, str(error), steps) from error
            done.prompt_tokens += answer.prompt_tokens
            done.completion_tokens += answer.completion_tokens
            try:
                return accept(
                    Reply(answer.text, answer.finish, answer.refusal), part, labels, state,
                    last=last, limit_tokens=limit, count=shared.count,
                )  # fmt: skip
            except Unusable as error:
                done.rejections.append(Rejection(steps, attempt + 1, error.kind, str(error)))
        _fail(done.rejections[-1], self._settings.tries)


def _fail(last: Rejection, tries: int) -> NoReturn:
    raise _Failed(last.kind, f"{tries} tries, the last: {last.reason}", last.steps)


def _set_aside(done: Explained, kind: str, error: Exception, steps: str = "") -> None:
    reason = printable(str(error), SHOWN_CHARACTERS)
    done.set_aside = SetAside(
        done.id, kind, reason, steps, tuple(done.rejections), done.prompt_tokens, done.completion_tokens
    )


async def _result(task: asyncio.Task[Explained]) -> Explained:
    return await task


def write(sources: Mapping[str, Path], out: Path, recipe: Recipe, tokenizer: Any, settings: Settings, key: str) -> int:
    """Writes the rows, and the runs set aside, of each split; prints the account. Returns the exit code.

    UNSCORED when the budget did not last for all runs: more budget and the same command go on from there.
    """
    code = OK
    with LlmWriter(settings, key, out, recipe, tokenizer) as writer:
        for left in (path for split in sources for path in out.glob(f".{split}.*.tmp")):
            left.unlink()  # of a call that was killed: the file of answers is ours, so no other one is at work here
        for split, source in sources.items():
            account = Account()
            rows = writer.explain(read(source), split, account)
            write_lines(out / f"{split}.jsonl", (msgspec.json.encode(row) for row in rows))
            aside = (msgspec.json.encode(item) for item in account.set_aside)
            write_lines(out / f"{split}.set_aside.jsonl", aside)
            summary = account.summary()
            print(json.dumps({"split": split, **summary}))
            if "budget" in summary["set_aside"]:
                code = UNSCORED
            if not account.rows:
                (out / f"{split}.jsonl").unlink()
                if code != UNSCORED:
                    raise InputError(
                        f"{source}: none of its {account.runs} runs gave a row; {split}.set_aside.jsonl says why."
                    )
        print(writer.told(), file=sys.stderr)
    if code:
        print("The budget did not last for all runs; a larger one and the same command go on.", file=sys.stderr)
    return code
