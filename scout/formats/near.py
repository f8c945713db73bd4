"""Near-duplicates of texts: shingles of words, MinHash signatures, and an index that finds what is similar.

The package `datasketch` is imported when the first signature is made, not with this module: it takes a second.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from scout.errors import ConfigError

Shingles = npt.NDArray[np.uint32]

PERMUTATIONS = 128
"""The standard error of an estimated similarity of 0.8 is then 0.035."""
BANDS = {0.7: (32, 4), 0.8: (25, 5)}
"""Threshold -> (bands, rows) of the index. A pair at the threshold is missed once in 6000 and once in 20000 times."""
_APOSTROPHES = str.maketrans("", "", "'’‘`´")
_WORD = re.compile(r"\w+")
_BATCH = 4096
"""Shingles hashed at once: PERMUTATIONS times as many numbers are in memory."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def normal(text: str) -> str:
    """The words of a text in lower case with one blank between: what is left after case, marks and layout."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)))


def shingles(words: Sequence[str], size: int) -> Shingles:
    """Hashes of every `size` words that stand side by side, sorted, each once; of all words when there are fewer.

    The same in every process and on every machine. Empty without words.
    """
    if not words:
        return np.empty(0, np.uint32)
    size = min(size, len(words))
    hashes = np.fromiter((zlib.crc32(word.encode("utf-8", "replace")) for word in words), np.uint64, len(words))
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(29)
    count = len(words) - size + 1
    total = np.zeros(count, np.uint64)
    for place in range(size):
        total = total * _FACTOR + hashes[place : place + count]
    total ^= total >> np.uint64(32)
    return np.unique(total.astype(np.uint32))


def jaccard(first: Shingles, second: Shingles) -> float:
    """Share of common shingles among all of both, in [0, 1]; 0 when both are empty."""
    both = len(np.intersect1d(first, second, assume_unique=True))
    union = len(first) + len(second) - both
    return both / union if union else 0.0


@cache
def available() -> bool:
    """Whether signatures can be made, that is, whether datasketch is installed."""
    return find_spec("datasketch") is not None


def _sketches() -> Any:
    try:
        import datasketch
    except ImportError as error:
        raise ConfigError("Finding near-duplicates needs the package datasketch. Install the extra `dev`.") from error
    return datasketch


def signature(found: Shingles) -> bytes:
    """The MinHash signature of shingles; empty when there are none. Raises ConfigError without datasketch."""
    if not len(found):
        return b""
    sketch = _sketches().MinHash(num_perm=PERMUTATIONS, scheme="affine32", hashfunc=int)
    for start in range(0, len(found), _BATCH):
        sketch.update_batch(found[start : start + _BATCH])
    return bytes(sketch.hashvalues.tobytes())


def estimate(first: bytes, second: bytes) -> float:
    """Estimated similarity of what two signatures are of, in [0, 1]."""
    return float(np.mean(np.frombuffer(first, np.uint32) == np.frombuffer(second, np.uint32)))


class Index:
    """Signatures by number, to be asked which of them are similar to a new one."""

    def __init__(self, threshold: float) -> None:
        """threshold: a key of BANDS."""
        self._lsh = _sketches().MinHashLSH(num_perm=PERMUTATIONS, params=BANDS[threshold])
        self._signatures: dict[int, bytes] = {}
        self.threshold = threshold

    def add(self, number: int, new: bytes) -> None:
        """Remember a signature; an empty one is similar to nothing."""
        if new:
            self._signatures[number] = new
            self._lsh.insert(number, _minhash(new))

    def candidates(self, new: bytes) -> list[int]:
        """Numbers of signatures that may be similar, in order; some are not (see `similar`)."""
        return sorted(self._lsh.query(_minhash(new))) if new else []

    def similar(self, new: bytes) -> Iterator[tuple[int, float]]:
        """(number, estimated similarity) of each signature that is similar from the threshold on, in order."""
        for number in self.candidates(new):
            share = estimate(new, self._signatures[number])
            if share >= self.threshold:
                yield number, share


def _minhash(kept: bytes) -> Any:
    return _sketches().MinHash(scheme="affine32", hashfunc=int, hashvalues=np.frombuffer(kept, np.uint32))
