"""Starting `scoutv serve` for tests, and looking after the processes below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from scout.scorer.environment import die_with_parent

LIMIT_SECONDS = 600
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""For a model this small a second thread only waits."""


def descendants(pid: int) -> set[int]:
    """All processes below that one."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= {int(child)} | descendants(int(child))
    return found


def gone(pids: set[int], seconds: float = 20) -> bool:
    """Whether those processes end within that time (a zombie has ended)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not [pid for pid in pids if _runs(pid)]:
            return True
        time.sleep(0.2)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def serve(folder: Path, log: Path, until: str, variables: Mapping[str, str] = ONE_THREAD) -> subprocess.Popen[bytes]:
    """`scoutv serve` on a free port, as far as that line of its log."""
    words = [sys.executable, "-m", "scout", "serve", str(folder), "--port", "0"]
    with log.open("wb") as file:
        # Tests that are killed stop nothing; the kernel then does it for them.
        process = subprocess.Popen(words, stdout=file, stderr=file, env=variables, preexec_fn=die_with_parent)
    deadline = time.monotonic() + LIMIT_SECONDS
    while until not in log.read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return process


def address(log: Path) -> str:
    """The address that a served model says it is ready on."""
    found = re.search(r"ready on (\S+)", log.read_text())
    assert found, log.read_text()
    return found[1]
