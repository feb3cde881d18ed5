"""The attention of a Whisper model's decoder to the sound, from which the times of words are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import mlx.core as mx
import numpy as np
from mlx import nn

from ...engine.cache_contents import RowCache
from ...engine.ports import Features, Forms
from ...media import ProcessedMedia
from ...speech import Attended
from ...types import AlignmentRequest, Json
from .passes import KEYS, decode, hear

Heads = Sequence[tuple[int, int]]
"""(layer, head) of those that follow the speech."""


class Hearing(Protocol):
    """A Whisper model, as far as its windows go."""

    def embed(self, media: ProcessedMedia) -> Features: ...

    def new_cache(self) -> RowCache: ...


def alignment_heads(generation: Json, layers: int, heads: int) -> Heads:
    """Heads that follow the speech: those that generation_config.json names, or all of the upper half of the layers.

    Args:
        generation: the folder's generation_config.json.
        layers: of the decoder.
        heads: of a layer.
    """
    given = generation.get("alignment_heads")
    if isinstance(given, list) and given and all(_is_head(each, layers, heads) for each in given):
        return [(layer, head) for layer, head in given]
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]


def _is_head(given: object, layers: int, heads: int) -> bool:
    if not isinstance(given, list) or len(given) != 2 or not all(isinstance(number, int) for number in given):
        return False
    layer, head = given
    return layer in range(layers) and head in range(heads)


class Aligner:
    """Runs the tokens of a window once more, and keeps what the heads that follow the speech attend to.

    Args:
        model: has the window's features.
        decoder: mlx-audio's, of the model.
        forms: the machine's.
        heads: whose attention is wanted.
    """

    def __init__(self, model: Hearing, decoder: nn.Module, forms: Forms, heads: Heads) -> None:
        self._model, self._decoder, self._forms, self._heads = model, decoder, forms, heads

    def begin(self, request: AlignmentRequest) -> Iterator[Attended]:
        """Run the encoder over the window, and the decoder over all tokens: one piece."""
        features = self._model.embed(request.media).rows
        layers, asked = cast(Sequence[Any], self._model.new_cache()), list[mx.array]()
        tokens = mx.array([[request.end, *request.tokens]])  # the first one stands for the window
        with self._forms.waited_for():
            hear(self._decoder, features[None], layers)
            x = decode(self._decoder, tokens, layers, self._forms, asked)
            text = slice(1 + request.before, -2)  # each place has the logits of the next token
            logits = self._decoder.token_embedding.as_linear(x)[0, text, : request.end].astype(mx.float32)
            said = mx.array(list(request.tokens[request.before + 1 : -1]))[:, None]
            likely = mx.take_along_axis(mx.softmax(logits, axis=-1, precise=True), said, axis=-1)[:, 0]
            weights = mx.stack(
                [_weights(asked[layer][0, head], layers[layer][1][KEYS][0, head, : request.places])
                 for layer, head in self._heads]
            )  # fmt: skip
            mx.eval(weights, likely)
        yield Attended(np.array(weights), np.array(likely))


def _weights(queries: mx.array, keys: mx.array) -> mx.array:
    """`[tokens, places]` of one head, float32."""
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.swapaxes(0, 1)
    return mx.softmax(scores.astype(mx.float32), axis=-1, precise=True)
