"""Runs the pieces of requests that run alone."""

from __future__ import annotations

import secrets
from typing import cast

import mlx.core as mx

from ....types import Token
from ...pieces import Perform
from ..lane import Parts
from .jobs import Alone
from .ports import PerformingModel

_PIECE, _DONE = Token(0), Token(0, finish_reason="stop")


class AloneRunner:
    """Runs the pieces of the requests.

    Args:
        lane: those of the engine.
        parts: what it runs on.
    """

    pieces = (Perform,)

    def __init__(self, lane: Alone, parts: Parts) -> None:
        self._lane, self._share, self._emit = lane, parts.share, parts.emit
        self._costs, self._performers = parts.setup.costs, cast(PerformingModel, parts.model).performers

    def run(self, piece: Perform) -> None:
        """Compute a piece, and emit it. An exception fails its request."""
        job = self._lane.take(piece)
        request, watch = job.request, self._costs.start()
        try:
            try:
                if job.pieces is None:
                    request.timings.begin()
                    mx.random.seed(secrets.randbits(32) if request.seed is None else request.seed)
                    job.pieces = iter(self._performers[request.task].begin(request))
                made = next(job.pieces, None)
            except BaseException as error:
                self._lane.failed(job, error)
                return
            if made is None:
                self._lane.finish(job)
                self._emit(job, _DONE)
                return
            request.pieces.append(made)
            request.timings.sample()
            job.made += 1
            self._emit(job, _PIECE)
        finally:
            self._share.note_pass(watch.seconds, beside=piece.beside)
