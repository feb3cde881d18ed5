"""LoRA adapters, any of them on any row of a batch."""

from .bank import Bank
from .folder import read_adapter

__all__ = ["Bank", "read_adapter"]
