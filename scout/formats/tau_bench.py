"""Reader of tau-bench results: an array of `{task_id, reward, info, traj, trial}`, read as chat messages.

The run is named after task and trial, since a task is tried several times. Nothing of `info` is kept: `info.task` holds
the reference solution and the simulated user's secret instruction, which no verifier may see. The user's control token
`###STOP###` stays in the text, as the agent saw it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scout.errors import Problem
from scout.formats import chat
from scout.formats.source import Record, Source, build_all, decode
from scout.trajectory import Trajectory

LOOKED_FOR = 'an array or JSON lines of {"task_id", "reward", "info", "traj", "trial"}'
_KEYS = ("task_id", "reward", "info", "traj", "trial")


class _Run(msgspec.Struct):
    task_id: int | str
    reward: float | None
    traj: msgspec.Raw
    trial: int | str


def matches(source: Source) -> bool:
    """Whether the first record has all five keys of a tau-bench result."""
    return source.members.keys() >= set(_KEYS)


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        found = decode(record.raw, _Run, record.where, problems)
        if found is None:
            return
        run = chat.build_run(record, source.stem, problems, unnamed=("info",))
        if run is None:
            return
        left_out = [*run.meta["left_out"], "info: reference solution and the simulated user's instruction"]
        meta = {**run.meta, "format": "tau_bench", "left_out": left_out}
        yield msgspec.structs.replace(run, id=f"{source.stem}:{found.task_id}:{found.trial}", meta=meta)

    return build_all(source, build)
