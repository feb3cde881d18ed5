"""Changing the rate of sound by a windowed sinc: frequencies that the new rate cannot hold are left out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

ZEROS = 32  # crossings of the filter's sinc on each side
BETA = 9.0  # of the Kaiser window: what lies above half the lower rate is damped by about 90 dB
ROLLOFF = 0.945  # of half the lower rate, where the filter begins to cut
BLOCK = 24_000  # samples that are filtered at a time
MAX_FACTOR = 2048  # both numbers of a ratio of rates are at most this; others get the nearest such ratio


def resampled(samples: Samples, rate: float, wanted: float) -> Samples:
    """A whole sound at another rate.

    Args:
        samples: `[samples]`, one channel.
        rate: samples per second.
        wanted: samples per second of the result.
    """
    ratio = max(Fraction(wanted / rate).limit_denominator(MAX_FACTOR), Fraction(1, MAX_FACTOR))
    if ratio == 1:
        return np.ascontiguousarray(samples, np.float32)
    resampler = Resampler(ratio.denominator, ratio.numerator)
    return np.concatenate([resampler.add(samples.astype(np.float32, copy=False)), resampler.end()])


class Resampler:
    """Resamples sound that comes in pieces: the result is the same, up to rounding, wherever they end.

    Args:
        rate: samples per second of what comes.
        wanted: samples per second of the result.
    """

    def __init__(self, rate: int, wanted: int) -> None:
        divisor = math.gcd(rate, wanted)
        self._up, self._down = wanted // divisor, rate // divisor
        lower = min(1.0, wanted / rate)
        self._half = half = math.ceil(ZEROS / lower)
        cutoff = ROLLOFF * lower
        places = np.arange(1 - half, half + 1) - np.arange(self._up)[:, None] / self._up
        window = np.i0(BETA * np.sqrt(np.maximum(0, 1 - (places / half) ** 2))) / np.i0(BETA)
        taps = np.sinc(cutoff * places) * window
        self._taps = (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
        """A filter for each place between two samples."""
        self._kept: Samples = np.zeros(half, np.float32)
        self._first = -half
        """Place of the first sample that is kept."""
        self._given = self._next = 0
        """Samples that came, and that were made."""

    def add(self, samples: Samples) -> Samples:
        """Take the next samples; returns those of the result that depend on no later ones."""
        return self._add(samples, len(samples))

    def end(self) -> Samples:
        """The last samples of the result."""
        made = self._add(np.zeros(self._half + 1, np.float32), 0)
        surplus = self._next - math.ceil(self._given * self._up / self._down)
        return made[: len(made) - max(0, surplus)]

    def _add(self, samples: Samples, given: int) -> Samples:
        self._given += given
        made = [self._filter(samples[at : at + BLOCK]) for at in range(0, len(samples), BLOCK)]
        return np.concatenate(made) if made else np.zeros(0, np.float32)

    def _filter(self, samples: Samples) -> Samples:
        kept = np.concatenate([self._kept, samples])
        end = self._first + len(kept) - self._half  # of the places that have all samples around them
        made: Samples = np.zeros(max(0, math.ceil(end * self._up / self._down) - self._next), np.float32)
        if len(made):
            windows = np.lib.stride_tricks.sliding_window_view(kept, 2 * self._half)
            for number in range(self._next, self._next + min(self._up, len(made))):
                place, phase = divmod(number * self._down, self._up)
                first = place - self._half + 1 - self._first
                count = len(range(number, self._next + len(made), self._up))
                chosen = windows[first : first + (count - 1) * self._down + 1 : self._down]
                made[number - self._next :: self._up] = chosen @ self._taps[phase]
        self._next += len(made)
        surplus = max(0, self._next * self._down // self._up - self._half + 1 - self._first)
        self._kept, self._first = kept[surplus:], self._first + surplus
        return made
