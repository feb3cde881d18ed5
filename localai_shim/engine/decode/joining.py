"""Prefilled rows join the batch; one that cannot fails alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import mlx.core as mx

from ...types import Failure
from ..kv import RowCache
from ..kv.buckets import size_of
from ..prompts.prefill import PrefillJob
from ..row import Emit, Row, row_error
from .batch import Batch

Joining = tuple[Row, RowCache, mx.array | None]
"""A row, its cache, and the logits of its next token where it has them."""


def join(batch: Batch, jobs: Sequence[PrefillJob], emit: Emit) -> None:
    """Add the rows of jobs to the batch. Those with logits come first, to a batch without rows: the others' joining
    samples them.
    """
    inserting = {row for job in jobs for row in job.rows if job.batch_inserts}
    every = [(row, job.cache, job.logits) for job in jobs for row in job.rows if job.cache is not None]
    for ended in (True, False):
        some: list[Joining] = [each for each in every if (each[2] is not None) is ended]
        while some:
            some = _join(batch, some, inserting, emit)


def _join(batch: Batch, joining: Sequence[Joining], inserting: Collection[Row], emit: Emit) -> list[Joining]:
    """Add rows together; returns those that may join without the ones that cannot, which have failed."""
    pairs = [(row, cache) for row, cache, _ in joining]
    logits = [each for *_, each in joining if each is not None]
    try:
        batch.join(pairs, [row for row, _ in pairs if row in inserting], logits)
    except BaseException as error:
        bad = {row: found for row, cache in pairs if (found := _unfit(row, cache)) is not None}
        bad = bad or dict.fromkeys((row for row, _ in pairs), error)
        for row, found in bad.items():
            emit(row, Failure(row_error("joining the batch failed", found)))
        return [each for each in joining if each[0] not in bad]
    return []


def _unfit(row: Row, cache: RowCache) -> BaseException | None:
    """Why a row cannot join; None: there is no reason that is its own."""
    try:
        _ = row.last_token, size_of(cache)
    except BaseException as error:
        return error
    return None
