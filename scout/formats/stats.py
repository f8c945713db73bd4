"""Figures about a set of runs or training rows: sizes, balance, positions of first mistakes, duplicates."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from scout.trajectory import Trajectory

Count = Callable[[str], int]

_DECILES = 10
LAST_STEP_LIMIT = 0.5
"""A larger share of first mistakes on the last step is worth a warning: a model can learn "last step" instead."""


def count_words(text: str) -> int:
    """Number of pieces between white space; a stand-in for tokens that needs no tokenizer."""
    return len(text.split())


def spread(values: Sequence[float]) -> dict[str, float]:
    """n, min, median, p90, max, mean and sum; only n when there is no value."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
        "max": ordered[-1],
        "mean": round(statistics.fmean(ordered), 2),
        "sum": sum(ordered),
    }


def run_text(run: Trajectory) -> str:
    """Everything that a verifier could read of a run, as one text; equal texts are duplicates whatever their ids."""
    steps = (f"{step.thought}\x1f{step.action}\x1f{step.observation}" for step in run.steps)
    return "\x1e".join([run.task.text, *steps])


def task_key(run: Trajectory) -> str:
    """The task id, or a hash of the task's text where there is none."""
    return run.task.id if run.task.id is not None else f"text:{digest(run.task.text)}"


def digest(text: str) -> str:
    """Short hash of a text, for comparing many."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class RunStats:
    """Figures about runs, added one at a time."""

    def __init__(self, count: Count = count_words) -> None:
        """count: number of tokens of a text."""
        self._count = count
        self._steps: list[int] = []
        self._tokens: dict[str, list[int]] = defaultdict(list)
        self._tasks: dict[str, list[bool | None]] = defaultdict(list)
        self._labels: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        self._origin: Counter[str] = Counter()
        self._crossed: Counter[tuple[str, str]] = Counter()
        self._positions: Counter[int] = Counter()
        self._deciles: Counter[int] = Counter()
        self._last = 0
        self._kinds: Counter[str] = Counter()
        self._proofs: Counter[int] = Counter()
        self._texts: dict[str, list[str]] = defaultdict(list)
        self._warned = 0

    def add(self, run: Trajectory) -> None:
        """Count one run."""
        self._steps.append(len(run.steps))
        sizes = {
            "task": self._count(run.task.text),
            "thought": sum(self._count(step.thought) for step in run.steps),
            "action": sum(self._count(step.action) for step in run.steps),
            "observation": sum(self._count(step.observation) for step in run.steps),
        }
        sizes["run"] = sum(sizes.values())
        for part, size in sizes.items():
            self._tokens[part].append(size)
        self._tasks[task_key(run)].append(run.outcome.passed)
        self._texts[digest(run_text(run))].append(run.id)
        self._warned += bool(run.meta.get("warnings"))
        passed = {True: "passed", False: "failed", None: "unknown"}[run.outcome.passed]
        mistake = {True: "with_mistake", False: "clean", None: "not_known"}[run.has_mistake]
        self._crossed[mistake, passed] += 1
        if run.labels is not None:
            self._add_labels(run)

    def _add_labels(self, run: Trajectory) -> None:
        labels = run.labels
        assert labels is not None
        self._labels.update(labels.step_labels)
        self._known[labels.known] += 1
        self._origin[labels.origin] += 1
        self._kinds.update(kind for kind in labels.kinds if kind is not None)
        self._proofs.update(size for size in labels.proof_sizes if size is not None)
        first = labels.first_mistake
        if first is not None and run.steps:
            self._positions[first] += 1
            self._deciles[min(_DECILES - 1, (first - 1) * _DECILES // len(run.steps))] += 1
            self._last += first == len(run.steps)

    def result(self) -> dict[str, Any]:
        """All figures, as JSON values."""
        first_mistakes = self._positions.total()
        share = round(self._last / first_mistakes, 4) if first_mistakes else None
        candidates = [len(outcomes) for outcomes in self._tasks.values()]
        mixed = sum({True, False} <= set(outcomes) for outcomes in self._tasks.values())
        return {
            "runs": len(self._steps),
            "tasks": len(self._tasks),
            "tasks_with_mixed_outcomes": mixed,
            "candidates_per_task": spread(candidates),
            "steps": spread(self._steps),
            "tokens": {part: spread(sizes) for part, sizes in self._tokens.items()},
            "outcomes": self._table(("passed", "failed", "unknown"), by_outcome=True),
            "mistakes": self._table(("with_mistake", "clean", "not_known"), by_outcome=False),
            "mistakes_by_outcome": {f"{mistake}/{passed}": n for (mistake, passed), n in sorted(self._crossed.items())},
            "step_labels": dict(sorted(self._labels.items())),
            "labels_known": dict(self._known),
            "labels_origin": dict(self._origin),
            "first_mistake": {
                "n": first_mistakes,
                "by_step": {str(step): self._positions[step] for step in sorted(self._positions)},
                "by_tenth_of_run": [self._deciles[tenth] for tenth in range(_DECILES)],
                "share_on_last_step": share,
            },
            "mistakes_by_kind": dict(self._kinds.most_common()),
            "proof_sizes": {str(size): self._proofs[size] for size in sorted(self._proofs)},
            "duplicates": duplicates(self._texts),
            "runs_with_warnings": self._warned,
        }

    def _table(self, names: Iterable[str], *, by_outcome: bool) -> dict[str, int]:
        place = 1 if by_outcome else 0
        return {name: sum(n for key, n in self._crossed.items() if key[place] == name) for name in names}


class Message(msgspec.Struct):
    """One chat message of a prompt."""

    content: str


class Row(msgspec.Struct):
    """The columns of a training row that are counted; other columns may stand beside them."""

    id: str
    trajectory_id: str
    task_id: str | None
    prompt: list[Message]
    completion: str
    indices: list[int]
    gold: list[str]
    split: str | None = None
    prompt_style: str | None = None
    prompt_version: str | None = None


class RowStats:
    """Figures about training rows, added one at a time."""

    def __init__(self, count: Count = count_words) -> None:
        """count: number of tokens of a text; a template's own tokens are not in it."""
        self._count = count
        self._sizes: dict[str, list[int]] = defaultdict(list)
        self._longest = (0, "")
        self._gold: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._counters: dict[str, Counter[str]] = {
            name: Counter() for name in ("split", "prompt_style", "prompt_version")
        }
        self._runs: Counter[str] = Counter()
        self._tasks: set[str] = set()
        self._texts: dict[str, list[str]] = defaultdict(list)

    def add(self, row: Row) -> None:
        """Count one row."""
        prompt = "\n".join(message.content for message in row.prompt)
        prompt_size, reply_size = self._count(prompt), self._count(row.completion)
        self._sizes["prompt"].append(prompt_size)
        self._sizes["completion"].append(reply_size)
        self._sizes["row"].append(prompt_size + reply_size)
        self._longest = max(self._longest, (prompt_size + reply_size, row.id))
        self._sizes["steps"].append(len(row.indices))
        self._gold.update(row.gold)
        self._verdicts["with_mistake" if "incorrect" in row.gold else "clean"] += 1
        for name, counter in self._counters.items():
            counter[str(getattr(row, name))] += 1
        self._runs[row.trajectory_id] += 1
        self._tasks.add(str(row.task_id))
        self._texts[digest(f"{prompt}\x1e{row.completion}")].append(row.id)

    def result(self) -> dict[str, Any]:
        """All figures, as JSON values."""
        return {
            "rows": len(self._sizes["row"]),
            "trajectories": len(self._runs),
            "tasks": len(self._tasks),
            "rows_per_trajectory": spread(list(self._runs.values())),
            "tokens": {part: spread(self._sizes[part]) for part in ("prompt", "completion", "row")},
            "longest_row": {"id": self._longest[1], "tokens": self._longest[0]},
            "steps_per_row": spread(self._sizes["steps"]),
            "step_labels": dict(sorted(self._gold.items())),
            "mistakes": dict(sorted(self._verdicts.items())),
            **{name: dict(counter) for name, counter in self._counters.items()},
            "duplicates": duplicates(self._texts),
        }


def duplicates(texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Texts that occur under more than one id: number of groups, of surplus copies, and the first groups."""
    groups = [list(ids) for ids in texts.values() if len(ids) > 1]
    return {"texts": len(groups), "surplus": sum(len(ids) - 1 for ids in groups), "examples": groups[:5]}
