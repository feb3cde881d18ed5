"""Counter-based noise: what a seeded row samples depends on its seed and position, never on its neighbors.

The noise is Gumbel's, in two levels: each block of 128 tokens has its own, and so has each token in a block. The block
with the greatest log(mass) + noise is sampled, and in it the token with the greatest log(weight) + noise. That is an
exact sample, because a block's noise says nothing about its tokens', for which all blocks share theirs. A vocabulary of
152,000 takes 1,316 numbers. The host makes them while the model runs, GPUs make their own (`sampling/device.py`).

Two similar distributions sample the same token almost as often as is possible: drafts are right for this reason. (Of
4,000 tokens whose logits differ by 0.25: 0.919 of the time; with noise for each token 0.926, with noise for the 64
likeliest and one for the rest 0.873, with one uniform by inverse CDF 0.775. At most 0.939 are possible.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

BLOCK_TOKENS = 128
"""Token IDs of a block: those of block b are b * 128 and the 127 that follow."""

PORTION_NUMBERS = 2**15  # made together: 288 rows of 152,000 tokens take 4 ms in such portions, 14 in one

SHIFTS, FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Of the finalizer of SplitMix64."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64 (Steele, Lea and Flood, 2014)
_ATTEMPT = (_GOLDEN << 20) & _MASK  # of the numbers of a row's stream, each attempt has 2**20

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.uint64]


class Noise:
    """The noise of some rows for their next tokens.

    Args:
        keys: `[rows]`, from `stream_key`.
        positions: `[rows]` tokens that each row has sampled before.
        blocks: of the vocabulary.
    """

    def __init__(self, keys: Integers, positions: Integers, blocks: int) -> None:
        self.keys, self.positions, self.blocks = keys, positions, blocks
        self._first: Floats | None = None

    def first(self) -> Floats:
        """`[rows, 128 + blocks]`, from `factors`; made once."""
        if self._first is None:
            self._first = factors(self.keys, self.positions, self.blocks)
        return self._first

    def second(self, rows: npt.NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Independent noise, for rows whose first token top_p rejects."""
        return factors(self.keys[rows], self.positions[rows], self.blocks, attempt=1)

    def take(self, which: slice) -> Noise:
        """The noise of these rows only."""
        out = Noise(self.keys[which], self.positions[which], self.blocks)
        out._first = None if self._first is None else self._first[which]
        return out


def stream_key(seed: int) -> int:
    """A 64-bit key for one row; rows with equal seeds share their noise."""
    return int(_mix(_mix(np.array([(seed + _GOLDEN) & _MASK], dtype=np.uint64)))[0])


def factors(keys: Integers, positions: Integers, blocks: int, attempt: int = 0) -> Floats:
    """exp(Gumbel noise): the greatest product with the weights is the greatest sum of log(weights) and noise.

    Args:
        keys, positions: see `Noise`.
        blocks: of the vocabulary.
        attempt: 0 or 1, of this position.

    Returns:
        `[rows, 128 + blocks]`: of the tokens in a block, and of the blocks; from 0.02 to 2**33. A block's does not
        depend on the number of blocks: models with more tokens or fewer share them.
    """
    count = BLOCK_TOKENS + blocks
    start, steps = starts(keys, positions, attempt)[:, None], steps_of(count)
    out = np.empty((len(keys), count), dtype=np.float32)
    portion = max(1, PORTION_NUMBERS // count)
    for rows in (slice(at, at + portion) for at in range(0, len(keys), portion)):
        halves = _mix(start[rows] + steps).view(np.uint32)[:, :count]  # of 32 bits, the lower one first
        uniforms = halves + 0.5
        uniforms *= 2.0**-32
        np.log(uniforms, out=uniforms)
        np.divide(-1.0, uniforms, out=uniforms)
        out[rows] = uniforms
    return out


def starts(keys: Integers, positions: Integers, attempt: int) -> Integers:
    """Starts of an attempt's numbers in the rows' streams, `[rows]`; see `factors`."""
    return keys + (positions * np.uint64(2) + np.uint64(attempt)) * np.uint64(_ATTEMPT)


@lru_cache(maxsize=32)
def steps_of(count: int) -> Integers:
    """Offsets from a start to the numbers of 64 bits of which this many numbers of 32 bits are made."""
    return np.arange(1, count // 2 + 2, dtype=np.uint64) * np.uint64(_GOLDEN)


def _mix(z: Integers) -> Integers:
    """The finalizer of SplitMix64: a bijection of 64-bit integers that avalanches. Arrays wrap around silently."""
    z = z ^ (z >> np.uint64(SHIFTS[0]))
    z *= np.uint64(FACTORS[0])
    z ^= z >> np.uint64(SHIFTS[1])
    z *= np.uint64(FACTORS[1])
    z ^= z >> np.uint64(SHIFTS[2])
    return z
