"""Reader of Scout's own JSON lines."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scout import trajectory
from scout.formats.source import Source
from scout.trajectory import Trajectory

LOOKED_FOR = 'JSON lines with "schema_version" (a number), "id", "task" and "steps"'


def matches(source: Source) -> bool:
    """Whether the first record looks like a Trajectory of Scout."""
    found = source.members
    if not {"task", "steps"} <= found.keys():
        return False
    version = bytes(found.get("schema_version", msgspec.Raw(b"1"))).strip()
    return version.isdigit()


def read(source: Source) -> Iterator[Trajectory]:
    """The runs, strictly: unknown keys are errors. Raises InputError listing all problems."""
    return trajectory.read(source.path)
