"""What the engine needs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .kv import RowCache


class Model(Protocol):
    """What the batch needs of a model; every call runs on the engine thread."""

    context_length: int | None
    """Most tokens of prompt and output together; None when the model does not say."""
    eos_token_ids: frozenset[int]
    samples_on_device: bool
    weight_bytes: int
    one_row: bool
    """Rows are never to share a pass, whatever a trial with short ones says."""
    fingerprint: str
    """Changes with whatever the contents of a row's cache depend on."""

    def new_cache(self) -> RowCache: ...

    def prefill(self, tokens: Sequence[int], cache: RowCache, *, wait: bool = True) -> None:
        """Run prompt tokens into a row's cache, and wait for it unless told not to."""
        ...

    def prefill_batch(self, prompts: Sequence[Sequence[int]], cache: RowCache, *, wait: bool = True) -> None:
        """Run tokens of several rows that are equally many into a cache of all of them."""
        ...

    def prompt_logits(self, prompts: Sequence[Sequence[int]], cache: RowCache) -> Any:
        """As `prefill_batch`, and all logits: `[rows, tokens, vocabulary]` float32. Lazy."""
        ...

    def forward(self, tokens: Any, cache: RowCache) -> Any:
        """One token per row in, `[rows]`; logits of the next, `[rows, vocabulary]` float32, out. Lazy."""
        ...
