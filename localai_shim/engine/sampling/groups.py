"""Rows whose tokens from some id on are one group: see `SamplingParams.group_from`."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import numpy.typing as npt

from ..row import Array, Row
from . import device, host

Ints = npt.NDArray[np.int64]


class Groups:
    """The groups of a batch's rows.

    Args:
        rows: of the batch.
        xp: numpy or mlx.core, of which the logits are.
    """

    def __init__(self, rows: Sequence[Row], xp: ModuleType) -> None:
        starts = [row.sampling.group_from for row in rows]
        self._rows = np.array([i for i, start in enumerate(starts) if start is not None], dtype=np.int64)
        self._starts = np.array([start for start in starts if start is not None], dtype=np.int64)
        self._xp = xp

    def __bool__(self) -> bool:
        return bool(len(self._rows))

    def apply(self, logits: Array, masked: Ints | None, *, of_masked: bool = False) -> Array:
        """Rule out the tokens before a row's group where these together are likelier than each one of the others.

        Args:
            logits: `[rows, vocabulary]`, as they are to be sampled from, which may be changed.
            masked: places in the batch of the rows that have a logits mask, ascending; None: no row has one.
            of_masked: the logits are of these rows, and not of all: the masked ones of all stay as they are.
        """
        none = np.zeros(0, np.int64)
        inside = np.isin(self._rows, none if masked is None else masked)
        rows, starts = (each[inside if of_masked else ~inside] for each in (self._rows, self._starts))
        if not len(rows):
            return logits
        at = np.searchsorted(masked, rows) if of_masked and masked is not None else rows
        if self._xp is np:
            host.prefer_group(logits, at, starts)
            return logits
        whole = np.full(len(logits), logits.shape[-1], dtype=np.int64)
        whole[at] = starts
        return device.prefer_group(logits, whole)
