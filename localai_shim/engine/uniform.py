"""Counter-based uniforms: what a seeded row samples depends on its seed and position, never on its neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64 (Steele, Lea and Flood, 2014)


def _mix(z: int) -> int:
    """The finaliser of SplitMix64: a bijection of 64-bit integers that avalanches."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def stream_key(seed: int) -> int:
    """A 64-bit key for one row; rows with equal seeds share their uniforms."""
    return _mix(_mix((seed + _GOLDEN) & _MASK))


def uniforms(keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per row.

    Args:
        keys: `[rows]`, from `stream_key`.
        positions: `[rows]`, how many tokens each row has sampled before.
    """
    with np.errstate(over="ignore"):
        return _uniform(keys + (positions + np.uint64(1)) * np.uint64(_GOLDEN))


def again(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Another uniform for each of `uniforms`, whose candidate was rejected."""
    with np.errstate(over="ignore"):
        return _uniform((u * 2.0**53).astype(np.uint64) + np.uint64(_GOLDEN))


def _uniform(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """`_mix` of an array, as numbers in [0, 1)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    out: npt.NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return out
