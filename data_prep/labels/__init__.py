"""Sources of step labels, one file each: `names(run)`, `step(run, position)` and `read(path)` -> what is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from data_prep.labels import agenterrorbench, agentprocessbench, agentrx, plain, tracertraj, trail, who_and_when

SOURCES: Mapping[str, ModuleType] = {
    "plain": plain,
    "agenterrorbench": agenterrorbench,
    "agentprocessbench": agentprocessbench,
    "agentrx": agentrx,
    "tracertraj": tracertraj,
    "trail": trail,
    "who_and_when": who_and_when,
}
"""Name -> module. A new source is one file and one entry."""
