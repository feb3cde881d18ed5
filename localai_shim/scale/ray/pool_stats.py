"""Figures of several replicas, each and summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ...stats import DraftCounts, EngineStats, Percentiles

State = Literal["starting", "ready", "lost", "failed", "leaving"]


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """Statistics of one replica, as seen by a client."""

    name: str
    state: State
    """`starting`: it loads its model; `ready`; `lost`: it has died, and Ray restarts it; `failed`: its model could not
    be loaded, and it gets requests only if all others failed, too; `leaving`: it ends after its last request."""
    in_flight: int
    """Requests of this client that are running on the replica."""
    engine: EngineStats | None
    """None if the replica does not answer."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Snapshot of all replicas."""

    total: EngineStats
    """Sum of all replicas that answer; of percentiles and bytes per token, the maximum."""
    replicas: tuple[ReplicaStats, ...]


def summed(stats: Sequence[EngineStats]) -> EngineStats:
    """The sum of several engines' figures."""
    made = EngineStats(running=0, waiting=0, steps=0)
    for each in stats:
        sums: dict[str, Any] = {
            f.name: _plus(f.name, getattr(made, f.name), getattr(each, f.name)) for f in fields(made)
        }
        made = EngineStats(**sums)
    return made


def _plus(name: str, one: Any, other: Any) -> object:
    if "per_token" in name:
        return max(one, other)
    if isinstance(one, Percentiles):
        return Percentiles(*map(max, one, other))
    if isinstance(one, dict):
        return {name: one.get(name, DraftCounts()).plus(*other.get(name, (0, 0))) for name in {**one, **other}}
    if isinstance(one, tuple):
        return tuple(dict.fromkeys((*one, *other)))  # plans are never asked for
    if isinstance(one, str):
        return "; ".join(dict.fromkeys(filter(None, (*one.split("; "), other))))
    return other if one is None else one if other is None else one + other
