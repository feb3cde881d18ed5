"""Counter-based uniforms: what a seeded row samples depends on its seed and position, never on its neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64 (Steele, Lea and Flood, 2014)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64-bit integers that avalanches. Arrays wrap around silently."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_key(seed: int) -> int:
    """A 64-bit key for one row; rows with equal seeds share their uniforms."""
    return int(_mix(_mix(np.array([(seed + _GOLDEN) & _MASK], dtype=np.uint64)))[0])


def uniforms(keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per row.

    Args:
        keys: `[rows]`, from `stream_key`.
        positions: `[rows]`, how many tokens each row has sampled before.
    """
    return _uniform(keys + (positions + np.uint64(1)) * np.uint64(_GOLDEN))


def again(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Another uniform for each of `uniforms`, whose candidate was rejected."""
    return _uniform((u * 2.0**53).astype(np.uint64) + np.uint64(_GOLDEN))


def _uniform(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Mixed numbers, in [0, 1)."""
    out: npt.NDArray[np.float64] = (_mix(z) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return out
