"""Figures about a set of runs or training rows: sizes, balance, positions of first mistakes, duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from scout.formats import near
from scout.formats.stats import duplicates, histogram, spread
from scout.formats.stats_measure import RowFigures, RunFigures

_DECILES = 10
LAST_STEP_LIMIT = 0.5
"""A larger share of first mistakes on the last step is worth a warning: a model can learn "last step" instead."""
NEAR_RUN = 0.8
"""Share of common 8-word runs, as MinHash estimates it, from which two runs count as near-duplicates."""
LISTED = 20


class _Tokens:
    """Sizes of parts by tokenizer."""

    def __init__(self) -> None:
        self._sizes: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))

    def add(self, tokens: dict[str, dict[str, int]]) -> None:
        for name, sizes in tokens.items():
            for part, size in sizes.items():
                self._sizes[name][part].append(size)

    def result(self) -> dict[str, Any]:
        return {
            name: {part: {**spread(sizes), "histogram": histogram(sizes)} for part, sizes in parts.items()}
            for name, parts in self._sizes.items()
        }


class _Near:
    """Runs whose steps are nearly those of an earlier run; copies to the letter are not among them."""

    def __init__(self) -> None:
        self._index: near.Index | None = None
        self._kept: list[RunFigures] = []
        self._pairs: list[dict[str, Any]] = []
        self._found = 0

    def add(self, run: RunFigures) -> None:
        if not near.available():
            return
        if self._index is None:
            self._index = near.Index(NEAR_RUN)
        number, share = max(self._index.similar(run.signature), key=lambda found: found[1], default=(0, 0.0))
        if not share:
            self._index.add(len(self._kept), run.signature)
            self._kept.append(run)
            return
        self._found += 1
        if len(self._pairs) < LISTED:
            other = self._kept[number]
            self._pairs.append({
                "first": other.id, "first_file": other.file, "second": run.id, "second_file": run.file,
                "similarity": round(share, 3),
            })  # fmt: skip

    def result(self) -> dict[str, Any] | None:
        """None when it was not looked for, since datasketch is missing."""
        if not near.available():
            return None
        return {"threshold": NEAR_RUN, "runs": self._found, "pairs": self._pairs}


class RunStats:
    """Figures about runs, added one at a time."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._tokens = _Tokens()
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
        self._near = _Near()
        self._warned = 0

    def add(self, run: RunFigures) -> None:
        """Count one run."""
        self._steps.append(run.steps)
        self._tokens.add(run.tokens)
        self._tasks[run.task].append(run.passed)
        same = self._texts[run.text]
        if not same:
            self._near.add(run)
        same.append(run.id)
        self._warned += run.warned
        passed = {True: "passed", False: "failed", None: "unknown"}[run.passed]
        mistake = {True: "with_mistake", False: "clean", None: "not_known"}[run.mistake]
        self._crossed[mistake, passed] += 1
        if run.labels is not None:
            self._add_labels(run)

    def _add_labels(self, run: RunFigures) -> None:
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
            self._deciles[min(_DECILES - 1, (first - 1) * _DECILES // run.steps)] += 1
            self._last += first == run.steps

    def result(self) -> dict[str, Any]:
        """All figures, as JSON values."""
        first_mistakes = self._positions.total()
        share = round(self._last / first_mistakes, 4) if first_mistakes else None
        mixed = {task for task, outcomes in self._tasks.items() if {True, False} <= set(outcomes)}
        sizes = Counter(len(outcomes) for outcomes in self._tasks.values())
        mixed_sizes = Counter(len(self._tasks[task]) for task in mixed)
        return {
            "runs": len(self._steps),
            "tasks": len(self._tasks),
            "tasks_with_mixed_outcomes": len(mixed),
            "candidates_per_task": spread([len(outcomes) for outcomes in self._tasks.values()]),
            "runs_per_task": {str(n): {"tasks": sizes[n], "mixed": mixed_sizes[n]} for n in sorted(sizes)},
            "steps": spread(self._steps),
            "tokens": self._tokens.result(),
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
            "near_duplicates": self._near.result(),
            "runs_with_warnings": self._warned,
        }

    def _table(self, names: Iterable[str], *, by_outcome: bool) -> dict[str, int]:
        place = 1 if by_outcome else 0
        return {name: sum(n for key, n in self._crossed.items() if key[place] == name) for name in names}


class RowStats:
    """Figures about training rows, added one at a time. A template's own tokens are not in the sizes."""

    def __init__(self) -> None:
        self._tokens = _Tokens()
        self._steps: list[int] = []
        self._longest: dict[str, tuple[int, str]] = {}
        self._gold: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._counters: dict[str, Counter[str]] = {
            name: Counter() for name in ("split", "prompt_style", "prompt_version")
        }
        self._runs: Counter[str] = Counter()
        self._tasks: set[str] = set()
        self._no_task: set[str] = set()
        self._texts: dict[str, list[str]] = defaultdict(list)

    def add(self, figures: RowFigures) -> None:
        """Count one row."""
        row = figures.row
        self._tokens.add(figures.tokens)
        for name, sizes in figures.tokens.items():
            self._longest[name] = max(self._longest.get(name, (0, "")), (sizes["row"], row.id))
        self._steps.append(len(row.indices))
        self._gold.update(row.gold)
        self._verdicts["with_mistake" if "incorrect" in row.gold else "clean"] += 1
        for name, counter in self._counters.items():
            counter[str(getattr(row, name))] += 1
        self._runs[row.trajectory_id] += 1
        if row.task_id is None:
            self._no_task.add(row.trajectory_id)
        else:
            self._tasks.add(row.task_id)
        self._texts[figures.text].append(row.id)

    def result(self) -> dict[str, Any]:
        """All figures, as JSON values."""
        return {
            "rows": len(self._steps),
            "trajectories": len(self._runs),
            "tasks": len(self._tasks),
            "trajectories_without_task_id": len(self._no_task),
            "rows_per_trajectory": spread(list(self._runs.values())),
            "tokens": self._tokens.result(),
            "longest_row": {name: {"id": row, "tokens": size} for name, (size, row) in self._longest.items()},
            "steps_per_row": spread(self._steps),
            "step_labels": dict(sorted(self._gold.items())),
            "mistakes": dict(sorted(self._verdicts.items())),
            **{name: dict(counter) for name, counter in self._counters.items()},
            "duplicates": duplicates(self._texts),
        }
