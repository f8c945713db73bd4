"""TracerTraj: as Who&When, but a program injected the fault or found it by replay, so no person's labels."""

from __future__ import annotations

from pathlib import Path

from data_prep.labels import who_and_when
from data_prep.labels.join import Given
from data_prep.labels.who_and_when import names, step

__all__ = ["names", "read", "step"]


def read(path: str | Path) -> list[Given]:
    """The labels of the program."""
    return who_and_when.given(path, origin="injected", annotator="AgenTracer")
