"""Public names of `scale/ray`: clients for replicas of a model in many processes."""

from ..scale.ray import AsyncRayOpenAI, PoolStats, RayOpenAI, ReplicaStats, async_http_client, http_client

__all__ = ["AsyncRayOpenAI", "PoolStats", "RayOpenAI", "ReplicaStats", "async_http_client", "http_client"]
