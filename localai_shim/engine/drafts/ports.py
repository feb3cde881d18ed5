"""Port of heads that draft: what their drafter asks of one. `models/` fills it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from ..cache_contents import RowCache
from ..ports import Model, PassOutput

if TYPE_CHECKING:
    import mlx.core as mx


@runtime_checkable
class DraftHead(Protocol):
    """A head that was trained with a model to guess the token after the next one (multi-token prediction, MTP).

    It reads tokens, each with the model's hidden state of the token before it. Embeddings and the output layer are
    mostly the model's. Methods run on the engine thread only.
    """

    name: str
    width: int
    """Numbers in a hidden state."""
    query_heads: int
    weight_bytes: int
    """Bytes of the weights that only the head has."""
    read_bytes: int
    """Bytes of weights that a pass reads, the model's output layer included."""
    doubt: str
    """The probable reason if its guesses are wrong, for a log line."""

    def new_cache(self) -> RowCache:
        """An empty cache for one row: an object per layer."""

    def forward(
        self,
        tokens: mx.array,
        hidden: mx.array,
        layers: RowCache,
        ends: Sequence[int],
        starts: int | mx.array | None = None,
    ) -> PassOutput[mx.array]:
        """Run tokens into the layers. Lazy.

        Args:
            tokens: `[rows, k]` int32.
            hidden: `[rows, k, width]`, the states of the tokens before them.
            layers: the rows' caches.
            ends: the place of each row's last token.
            starts: see `StepInput.starts`.

        Returns:
            After each row's last token the logits, `[rows, vocabulary]` float32, and the state that comes with the
            guessed token, `[rows, width]`.
        """


Drafting: TypeAlias = Model | DraftHead
"""Drafts for a model."""
