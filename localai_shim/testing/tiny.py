"""Clients of the checkpoint that ships with the package, on the real engine, whose answers are the same each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..client import AsyncLocalOpenAI, LocalOpenAI
from ..sdk import with_body_field

TINY_SEED = 0
"""Of requests that bring none."""


class TinyOpenAI(LocalOpenAI):
    """A `LocalOpenAI` whose requests have a seed."""

    if not TYPE_CHECKING:

        def _call(self, cast_to, options, stream, stream_cls):
            return super()._call(cast_to, with_body_field(options, "seed", TINY_SEED), stream, stream_cls)


class AsyncTinyOpenAI(AsyncLocalOpenAI):
    """As `TinyOpenAI`, async."""

    if not TYPE_CHECKING:

        def _call(self, cast_to, options, stream, stream_cls):
            return super()._call(cast_to, with_body_field(options, "seed", TINY_SEED), stream, stream_cls)
