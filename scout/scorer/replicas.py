"""Several vLLM engines side by side, one a core.

With a small model on CPU a reply costs Python time in vLLM, not arithmetic, and Python keeps one core busy: two engines
on two cores are nearly twice as fast as one engine with two threads.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from itertools import chain
from typing import BinaryIO, cast

import msgspec

from scout.errors import ServerError
from scout.scorer import environment, worker
from scout.scorer.engine import Engine, Generation, Request, Stop, never
from scout.scorer.folder import Folder

SMALL_BYTES = 64_000_000
"""Weights up to this size are small: a step of the model takes less time than what vLLM does around it."""
MOST = 4
"""Engines at most; each takes about 2 GB of memory."""


def open_engine(folder: Folder) -> Engine:
    """vLLM in this process, or on CPU for a small model one engine a core. Raises ServerError when vLLM cannot load."""
    cores = environment.cores()[:MOST]
    weights = sum(file.stat().st_size for file in folder.path.glob("*.safetensors"))
    if len(cores) > 1 and weights <= SMALL_BYTES and not environment.has_gpu():
        return Replicas(folder, cores)
    from scout.scorer.vllm_engine import VllmEngine

    return VllmEngine(folder)


class Replicas:
    """Engines in processes of their own; a batch is dealt out to them. They end with this object or this process."""

    def __init__(self, folder: Folder, cores: Sequence[int]) -> None:
        """Call it from the main thread: the kernel ends a child when the thread that started it ends."""
        self._workers = [_start(folder, core) for core in cores]
        weakref.finalize(self, _end, self._workers)
        for process in self._workers:
            _answer(process)

    def generate(self, requests: Sequence[Request], stop: Stop = never) -> list[Generation]:
        """Samples all requests, to the end. Neighbours, which share a prompt, go to the same engine."""
        share = -(-len(requests) // len(self._workers))
        parts = [requests[begin : begin + share] for begin in range(0, len(requests), share or 1)]
        asked = self._workers[: len(parts)]
        for process, part in zip(asked, parts, strict=True):
            with contextlib.suppress(BrokenPipeError):  # the missing answer tells
                worker.send(cast(BinaryIO, process.stdin), part)
        return list(chain.from_iterable([_answer(process) for process in asked]))


def _start(folder: Folder, core: int) -> subprocess.Popen[bytes]:
    own = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": str(core)}
    return subprocess.Popen(
        [sys.executable, "-m", worker.__name__, str(folder.path)],
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=environment.die_with_parent,
    )


def _answer(process: subprocess.Popen[bytes]) -> list[Generation]:
    content = worker.receive(cast(BinaryIO, process.stdout))
    if content is None:
        raise ServerError(f"A vLLM process ended (exit code {process.wait()}); its last words stand above.")
    answer = msgspec.msgpack.decode(content, type=worker.Answer)
    if answer.error is not None:
        raise ServerError(answer.error)
    return answer.generations


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in workers:
        process.kill()
        process.wait()
