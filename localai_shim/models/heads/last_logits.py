"""A model that is cut before its head: its hidden states, and the logits of a prompt's last token alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

from ...backends.machine import on_cuda
from .pooling import inner_modules

# A pass that gives logits runs the last layer for all of its tokens; without them only its keys and values are needed.
# With so many tokens for each layer as prompts run faster than they decode, that takes as long as the token's own pass
# which is saved. On two CPU cores both are even at 19 (12 layers of 768) to 25 (4 of 256); by published figures prompts
# are 9 to 30 times as fast on Apple's chips. On an H100 it is more than 100; not measured for this there.
END_TOKENS_PER_LAYER, END_TOKENS_PER_LAYER_CUDA = 8, 64
FREE_END_BYTES = 2**25  # of a layer's weights times tokens: so small a model's pass takes longer for other reasons


def end_tokens(layers: int, weight_bytes: int) -> int:
    """Most tokens of a pass that should end a prompt with its last token's logits."""
    per_layer = END_TOKENS_PER_LAYER_CUDA if on_cuda() else END_TOKENS_PER_LAYER
    return layers * max(per_layer, FREE_END_BYTES // max(1, weight_bytes))


class Split:
    """A model of mlx-lm or mlx-vlm once more, with all of its weights, cut where its head reads the hidden states.

    It gives these states, and its head can run on one position per row: that of a prompt's other positions would take
    memory for all of their logits, and longer than the token's own pass that this saves. The model itself is not
    changed.

    Args:
        model: what computes logits; something in it has to compute hidden states.
    """

    def __init__(self, model: nn.Module) -> None:
        path = inner_modules(model)
        self._decoder = made = _Decoder(path[-1][1])
        outer = [model, *(part for _, part in path[:-1])]
        for module, (name, _) in zip(reversed(outer), reversed(path), strict=True):
            module = copy.copy(module)
            setattr(module, name, made)
            made = module
        self._model: nn.Module = made

    def __call__(
        self, tokens: mx.array, last: Sequence[int] | None = None, **arguments: object
    ) -> tuple[object, mx.array]:
        """Run the model on these tokens `[rows, k]`; its output, and the hidden states of all tokens.

        Args:
            tokens: rows beyond those that `last` speaks of are padding.
            last: the place of each row's last token, of which there are logits, `[len(last), 1, vocabulary]`; None:
                there are logits of all tokens.
            arguments: as the model takes them.
        """
        self._decoder.last = last
        return self._model(tokens, **arguments), self._decoder.taken()


class _Decoder:
    """A decoder that keeps its hidden states, and gives those of one position per row if these are asked for.

    For all else it is the decoder itself.
    """

    def __init__(self, decoder: nn.Module) -> None:
        self._decoder = decoder
        self.last: Sequence[int] | None = None
        self._states: mx.array | None = None

    def __call__(self, *args: object, **arguments: object) -> mx.array:
        states: mx.array = self._decoder(*args, **arguments)
        self._states, last = states, self.last
        if last is None:
            return states
        if len(last) == 1:
            return states[:1, last[0] : last[0] + 1]
        return states[mx.arange(len(last)), mx.array(list(last))][:, None]

    def taken(self) -> mx.array:
        """The hidden states of the last pass, which are not kept."""
        states, self._states = self._states, None
        assert states is not None
        return states

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)
