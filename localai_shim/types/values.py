"""Plain values that layers pass on: JSON, and weights of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Json = dict[str, Any]
"""An object of JSON."""


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """A copy of a JSON value with what `change` makes of its strings, other than keys, in their place."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    return [map_texts(item, change) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """An adapter's change of one layer: `x @ low.T @ high`, times the scale. Its arrays are NumPy's, contiguous."""

    low: npt.NDArray[np.generic]
    """`[rank, inputs]`; of experts `[experts, rank, inputs]`; of an embedding `[rank, tokens]`."""
    high: npt.NDArray[np.generic]
    """`[rank, outputs]`; of experts `[experts, rank, outputs]`."""
    scale: float
    half: bool
    """They are the bits of bfloat16, which NumPy does not have."""
    largest: tuple[float, float]
    """Magnitudes of the largest numbers in them."""
    source: str
    """The tensors, their types and shapes, for messages."""
    experts: tuple[int, ...] | None = None
    """Numbers of the experts that it changes, in the order of the arrays; None: all of them, or the layer has none."""


@dataclass(frozen=True, slots=True, eq=False)
class NewWeights:
    """Weights that a loaded model is to have from now on, some or all of them."""

    arrays: Mapping[str, tuple[npt.NDArray[np.generic], bool]]
    """NumPy's, by name, and if they are the bits of bfloat16."""
    folder: str | None
    """Folder of the files that have them; None: they are here."""
    digest: str
    """Tells them from others."""
