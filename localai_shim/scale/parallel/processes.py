"""Fills the port `Group`, with processes that are started on this machine, or those that `mlx.launch` has started."""

from __future__ import annotations

from collections.abc import Callable

from . import group, launched
from .leader import Leader


def join(size: int) -> None:
    """Join the group that `mlx.launch` has started, if it has."""
    if launched.rank() is not None:
        launched.join(size)


def lead(size: int, on_lost: Callable[[], None]) -> Leader:
    """Have the other processes follow this one."""
    return (group.start if launched.rank() is None else launched.lead)(size, on_lost)
