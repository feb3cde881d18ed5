"""Connects the engine's ports: MLX's back end on this machine, and the cache classes of mlx-lm and mlx-vlm."""

from __future__ import annotations

from ..backends import machine, memory
from ..backends.forms import forms
from ..engine import ports
from ..engine.mirror.journal import mirrored
from ..models import caches


@mirrored
def connect() -> None:
    """Make engines of this process run on this machine, with the libraries' cache classes."""
    ports.connect(ports.Host(machine, memory.process, caches, forms))
