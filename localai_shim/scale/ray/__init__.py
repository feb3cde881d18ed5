"""The SDK's own clients for replicas of a model in many processes, on one machine or on several: Ray starts them."""

from __future__ import annotations

try:
    import ray as ray  # the library: this package is localai_shim.ray
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ImportError("localai_shim.ray needs Ray: pip install 'localai-shim[ray]'", name="ray") from None

from .client import AsyncRayOpenAI, RayOpenAI, async_http_client, http_client
from .pool import PoolStats, ReplicaStats

__all__ = ["AsyncRayOpenAI", "PoolStats", "RayOpenAI", "ReplicaStats", "async_http_client", "http_client"]
