"""Ports: what this work asks of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ....types import Task
from ...ports import Encoder


class Performer(Protocol):
    """Does work of one kind in pieces, one request at a time."""

    def begin(self, request: Any, /) -> Iterator[Any]:
        """Pieces of the result, each computed when it is asked for; what is left of them can be dropped."""


class PerformingModel(Encoder, Protocol):
    """A model that speaks or writes down speech, one request at a time."""

    @property
    def performers(self) -> Mapping[Task, Performer]:
        """The part that does the work of each kind."""
