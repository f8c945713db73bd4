"""Tasks that must stay in one split, and the pairs of runs that say why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from data_prep.leaks import LISTED, pair
from data_prep.marks import Mark
from data_prep.near import NEAR_TASK, TaskTexts


class Groups:
    """Tasks joined through leak keys, equal runs, and texts that are equal or alike."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._parent: dict[str, str] = {}
        self._pairs: dict[str, list[dict[str, Any]]] = {
            "same_run": [],
            "same_leak_key": [],
            "same_task_text": [],
            "near_task_text": [],
        }
        self._found: dict[str, int] = dict.fromkeys(self._pairs, 0)
        texts = TaskTexts()
        first_of: dict[int, Mark] = {}
        owners: dict[tuple[str, str], Mark] = {}
        for mark in marks:
            self._root(mark.task)
            number = texts.add(mark.task, mark.pieces)
            if number is not None:
                self._join("same_task_text", first_of.setdefault(number, mark), mark)
            self._join("same_run", owners.setdefault(("run", mark.text), mark), mark)
            if mark.leak_key is not None:
                self._join("same_leak_key", owners.setdefault(("key", mark.leak_key), mark), mark)
        for one, two, share in texts.pairs():
            self._join("near_task_text", first_of[one], first_of[two], share)
        self.tasks: dict[str, set[str]] = defaultdict(set)
        """Keys of the tasks by the first of them."""
        for task in list(self._parent):
            self.tasks[self._root(task)].add(task)

    def _root(self, task: str) -> str:
        parent = self._parent
        while parent.setdefault(task, task) != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    def _join(self, why: str, first: Mark, second: Mark, similarity: float = 1.0) -> None:
        """Put the tasks of both into one group. Two files with one run are worth telling even if its task is one."""
        if first.task == second.task and (why != "same_run" or first.file == second.file):
            return
        self._found[why] += 1
        if len(self._pairs[why]) < LISTED:
            self._pairs[why].append(pair(first, second, similarity))
        one, two = sorted((self._root(first.task), self._root(second.task)))
        self._parent[two] = one

    def report(self) -> dict[str, Any]:
        """By reason how many pairs of runs joined two tasks, or stand in two files, and the first of them."""
        shown: dict[str, Any] = {why: {"found": self._found[why], "pairs": pairs} for why, pairs in self._pairs.items()}
        shown["near_task_text"]["threshold"] = NEAR_TASK
        return shown
