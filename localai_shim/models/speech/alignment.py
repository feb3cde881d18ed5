"""The attention of a Whisper model's decoder to the sound, from which the times of words are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from ...speech import Attended
from ...types import AlignmentRequest, Json
from .passes import attend, heads_of, joined, keys_and_values, positions

if TYPE_CHECKING:
    from .whisper import WhisperModel

Heads = Sequence[tuple[int, int]]
"""(layer, head) of those that follow the speech."""


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
    return 0 <= given[0] < layers and 0 <= given[1] < heads


class Aligner:
    """Runs the tokens of a window once more, and keeps what its alignment heads attend to."""

    def __init__(self, model: WhisperModel, heads: Heads) -> None:
        self._model, self._heads = model, heads

    def begin(self, request: AlignmentRequest) -> Iterator[Attended]:
        """Run a request in one piece: the encoder over its window, and one pass of the decoder."""
        decoder, forms = self._model.decoder, self._model.forms
        features = self._model.embed(request.media).rows[None]
        wanted: dict[int, list[int]] = {}
        for layer, head in self._heads:
            wanted.setdefault(layer, []).append(head)
        tokens = mx.array([list(request.tokens)])
        x = decoder.token_embedding(tokens) + positions(decoder.positional_embedding, 0, tokens.shape[1])
        seen: list[mx.array] = []
        gelu = forms.exact_gelu
        with forms.waited_for():
            for place, block in enumerate(decoder.blocks):
                x = x + attend(block.attn, block.attn_ln(x))
                queries = heads_of(block.cross_attn.query(block.cross_attn_ln(x)), block.cross_attn.n_head)
                keys, values = keys_and_values(block.cross_attn, features)
                if place in wanted:
                    seen += _weights(queries, keys, wanted[place], request.places)
                x = x + block.cross_attn.out(joined(forms.attend(queries, keys, values, None)))
                x = x + block.mlp2(gelu(block.mlp1(block.mlp_ln(x))))
            text = slice(request.before, -2)  # each place has the logits of the next token
            logits = decoder.token_embedding.as_linear(decoder.ln(x))[0, text, : request.end].astype(mx.float32)
            chosen = mx.array(list(request.tokens[request.before + 1 : -1]))[:, None]
            likely = mx.take_along_axis(mx.softmax(logits, axis=-1, precise=True), chosen, axis=-1)[:, 0]
            weights = mx.stack(seen)
            mx.eval(weights, likely)
        yield Attended(np.array(weights), np.array(likely))


def _weights(queries: mx.array, keys: mx.array, heads: Sequence[int], places: int) -> list[mx.array]:
    """`[tokens, places]` of each head, float32."""
    its = mx.array(list(heads))
    scores = (queries[0, its] * queries.shape[-1] ** -0.5) @ keys[0, its, :places].swapaxes(1, 2)
    return list(mx.softmax(scores.astype(mx.float32), axis=-1, precise=True))


def performers(aligner: Aligner) -> Mapping[str, Aligner]:
    """The kinds of work that run alone."""
    return {"align": aligner}
