"""What the engine asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from ..adapters.pooling import Reading
from ..adapters.step_input import Features, StepInput
from ..media import MediaKind, MediaSpan, ProcessedMedia
from ..types import LoadedModel, Prompt
from .kv import RowCache

__all__ = ["Encoder", "Features", "MediaKind", "MediaSpan", "Model", "ProcessedMedia", "Reading", "StepInput"]


class Encoder(LoadedModel, Protocol):
    """A model that the engine runs, to generate, embed or rank. Methods that compute run on the engine thread only."""

    context_length: int | None
    """The engine lowers it where memory holds less."""

    @property
    def weight_bytes(self) -> int: ...

    def encode(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        """A vector of length 1 of each text, which does not depend on the others: `[texts, dimensions]` float32. Lazy.

        Args:
            texts: token ids.
            skip: tokens at the beginning of each that are a prompt's.
        """
        ...

    def begin(self, text: Sequence[int], skip: int = 0, *, ranks: bool = False) -> Reading | None:
        """A text that is read in pieces; None where all of it has to be seen at once.

        Args:
            text: token ids.
            skip: see `encode`.
            ranks: it is a pair to be scored.
        """
        ...

    def score(self, pairs: Sequence[Sequence[int]]) -> mx.array:
        """The relevance of each document to its query, from 0 to 1: `[pairs, 1]` float32. Lazy."""
        ...


class Model(Encoder, Protocol):
    """A model that generates text. It may read images, videos and sounds as well."""

    samples_on_device: bool
    """Tokens are sampled where the logits are. False: by NumPy, which is faster on a CPU."""
    one_row: bool
    """Rows never share a pass, whatever a trial with short ones says."""
    one_token: bool
    """Rows that decode take one token per step, whatever a trial with text says."""

    @property
    def end_tokens(self) -> int:
        """Most tokens of a pass that should end a prompt with its last token's logits: longer ones take more time so
        than they save. 0: it cannot give these.
        """
        ...

    def new_cache(self) -> RowCache:
        """An empty cache for one row: an object per layer."""
        ...

    def prefill(self, step: StepInput, *, wait: bool = True) -> mx.array | None:
        """Run tokens into the layers, and wait for it unless told not to.

        Returns:
            The logits after each row's last token that counts, `[rows, vocabulary]` float32, where `step.ends`.
        """
        ...

    def forward(self, step: StepInput) -> mx.array:
        """Logits after each token: `[rows, k, vocabulary]` float32.

        Lazy for one token of each row, or where `samples_on_device`: such a step is built ahead. Else some of it may be
        computed already.
        """
        ...

    # -- what only models with media have -----------------------------------------------------------------------

    def embed(self, media: ProcessedMedia) -> Features:
        """Run the tower over one item, and wait for it."""
        ...

    def row_state(self, prompt: Prompt) -> object | None:
        """What prefill and decode of a prompt need beside its tokens and features, such as positions; None: nothing, as
        for text in all models but those that see all of a prompt at once.

        Runs no tower, and nothing of it stands on the model. All rows of the prompt share it, and a row that was
        preempted prefills its output tokens with it, too.
        """
        ...

    def first_pass(self, prompt: Prompt) -> int:
        """So many tokens at a prompt's beginning have to run in one pass; 0: it may be run in any pieces.

        What a token leaves may then depend on later ones of its own item; or, where these are all but the last one,
        which runs with the decode batch, on the whole prompt.
        """
        ...
