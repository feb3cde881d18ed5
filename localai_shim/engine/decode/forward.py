"""A step of one token per row, whose graph may be built before the tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..kv import Buckets, Place
from ..ports import Model, PassOutput, StepInput
from ..row import Row, adapters_of


def forward(
    model: Model,
    cache: Buckets,
    places: Sequence[Place],
    rows: Sequence[Row],
    tokens: mx.array,
    *,
    hidden: bool = False,
) -> PassOutput[mx.array]:
    """Logits after one more token per row: `[rows]` -> `[rows, vocabulary]`, lazy.

    Args:
        model: runs them.
        cache: the rows' caches, which advance by a token.
        places: of all rows, in the order of the batch.
        rows: theirs.
        tokens: theirs.
        hidden: their hidden states are wanted, too: `[rows, width]`.
    """
    parts: list[mx.array] = []
    states: list[mx.array] = []
    start = 0
    for part in cache.advance(places):
        end = start + len(part.slots)
        source = list(range(start, end))
        sparse = part.width > len(part.slots)  # freed slots run, too, on some row's token
        if sparse:
            source = [start] * part.width
            for i, slot in enumerate(part.slots):
                source[slot] = start + i
        mine = tokens if source == list(range(len(places))) else tokens[mx.array(source)]
        mine_rows = [rows[i] for i in source]
        state, adapters = states_of(mine_rows), adapters_of(mine_rows)
        step = StepInput(mine[:, None], part.layers, state=state, adapters=adapters, hidden=hidden, starts=part.starts)
        made = model.forward(step)
        for out, array in ((parts, made.logits), (states, made.hidden)):
            if array is not None:
                out.append(array[:, -1][mx.array(part.slots)] if sparse else array[:, -1])
        start = end
    return PassOutput(joined(parts), joined(states) if states else None)


def joined(parts: Sequence[mx.array]) -> mx.array:
    """The results of buckets, one behind the other."""
    return parts[0] if len(parts) == 1 else mx.concatenate(list(parts))


def these(array: mx.array | None, indices: Sequence[int]) -> mx.array | None:
    """Some rows of an array, if there is one."""
    return None if array is None else array[mx.array(list(indices))]


def states_of(rows: Sequence[Row]) -> list[object | None] | None:
    """The model's state of each row; None: all are text."""
    states = [row.state for row in rows]
    return states if any(state is not None for state in states) else None


@dataclass(slots=True)
class StepGraph:
    """The graph of a step whose tokens are not known yet."""

    tokens: npt.NDArray[np.int32]
    """A view of its input, `[rows when it was built]`."""
    places: list[int]
    """Places where the tokens of the present rows go."""
    logits: mx.array
    """`[rows, vocabulary]`, not computed yet."""
    hidden: mx.array | None = None
    """`[rows, width]`, if they are wanted."""

    def run(self, tokens: npt.NDArray[np.int32]) -> PassOutput[mx.array]:
        """Its logits and hidden states with these tokens of the present rows."""
        self.tokens[self.places] = tokens
        return PassOutput(self.logits, self.hidden)

    def take(self, indices: Sequence[int]) -> StepGraph:
        """The same for these of the present rows; the others become padding."""
        logits, places = self.logits[mx.array(list(indices))], [self.places[i] for i in indices]
        return StepGraph(self.tokens, places, logits, these(self.hidden, indices))
