"""Checked numbers of a GGUF file's metadata."""

from __future__ import annotations

import math

from ...types import ModelLoadError
from .header import Header

MAX_NUMBER = (1 << 31) - 1  # as MLX counts


class Metadata:
    """Metadata of one part of a model, with errors that name the key.

    Args:
        header: of the file.
        prefix: of the part's keys, without the dot.
    """

    def __init__(self, header: Header, prefix: str) -> None:
        self.header, self.prefix = header, prefix

    def number(self, key: str, default: int = 0) -> int:
        """A number above 0; the default may be what is missing."""
        value = self.header.get(f"{self.prefix}.{key}", default)
        if not value:
            raise self.error(f"the metadata lacks '{self.prefix}.{key}', or it is 0")
        if not 0 < value <= MAX_NUMBER:
            raise self.error(f"the metadata's '{self.prefix}.{key}' is {value}")
        return value

    def count(self, key: str) -> int:
        """A number that may be 0, and is if it is missing."""
        value = self.header.get(f"{self.prefix}.{key}", 0)
        return self.number(key) if value else 0

    def real(self, key: str, default: float) -> float:
        value = self.header.get(f"{self.prefix}.{key}", default)
        if not 0 < value < math.inf:
            raise self.error(f"the metadata's '{self.prefix}.{key}' is {value}")
        return value

    def per_layer(self, key: str, layers: int) -> list[int]:
        """Numbers of all layers, where the file has a list or one number."""
        if not isinstance(self.header.metadata.get(f"{self.prefix}.{key}"), list):
            return [self.number(key)] * layers
        values = self.header.list_of(f"{self.prefix}.{key}", int)
        if len(values) != layers or not all(0 < value <= MAX_NUMBER for value in values):
            raise self.error(f"the metadata's '{self.prefix}.{key}' is not a number for each of {layers} layers")
        return values

    def error(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"'{self.header.path}': {what}.")
