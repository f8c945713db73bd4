"""Readers of recorded runs: `load(path)` yields Trajectories, `detect(path)` names the format."""

from __future__ import annotations

from scout.formats.detect import READERS, detect, load

__all__ = ["READERS", "detect", "load"]
