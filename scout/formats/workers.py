"""Work on a stream of items on all cores, in order, with few of them in memory; and progress on stderr."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from scout.errors import InputError
from scout.formats.convert import cores

T = TypeVar("T")
R = TypeVar("R")

FEW = 64
"""So many items are worked on by one process: starting others takes as long."""
CHUNK = 8
PENDING = 2
"""Chunks a core that are in flight; with CHUNK it bounds the items in memory."""
PROGRESS_SECONDS = 5.0


def each(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """`function` of every item, in the order of the items.

    function: of a module, since it is sent to other processes. Raises what it raises, and InputError when a process
    died, as it does out of memory.
    """
    stream = iter(items)
    head = list(islice(stream, FEW))
    if len(head) < FEW or cores() < 2:
        yield from map(function, chain(head, stream))
        return
    with ProcessPoolExecutor(cores()) as pool:
        pending: deque[Future[list[R]]] = deque()
        stream = chain(head, stream)
        try:
            while chunk := list(islice(stream, CHUNK)):
                pending.append(pool.submit(_all, function, chunk))
                if len(pending) > PENDING * cores():
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "A process that read runs died, probably out of memory. Give fewer or smaller files."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _all(function: Callable[[T], R], chunk: list[T]) -> list[R]:
    return [function(item) for item in chunk]


def counted(items: Iterable[T], what: str) -> Iterator[T]:
    """The items; says on stderr every PROGRESS_SECONDS how many have passed. what: such as "runs read"."""
    spoken = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if time.monotonic() - spoken >= PROGRESS_SECONDS:
            spoken = time.monotonic()
            print(f"{number} {what}", file=sys.stderr)
