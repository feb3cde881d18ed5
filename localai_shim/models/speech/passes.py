"""Passes of Whisper's encoder and decoder over mlx-audio's layers: attention through rows' caches, and this machine's
forms of attention and GELU.

The first token of a row is the placeholder of its window. It never reaches the decoder: its place in the caches holds
zeros that attention leaves out, and the decoder's positions begin behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from ...engine.ports import Forms

KEYS, VALUES = 0, 1
"""Places of the cross-attention's arrays in a layer's `ArraysCache`."""


def encode(encoder: nn.Module, positions: mx.array, mel: mx.array, forms: Forms) -> mx.array:
    """Features of windows: `[rows, 3000, mels]` -> `[rows, 1500, width]`."""
    gelu = forms.exact_gelu
    x = gelu(encoder.conv2(gelu(encoder.conv1(mel)))) + positions
    for block in encoder.blocks:
        normed = block.attn_ln(x)
        keys, values = keys_and_values(block.attn, normed)
        queries = _heads(block.attn.query(normed), block.attn.n_head)
        x = x + block.attn.out(_joined(forms.attend(queries, keys, values, None)))
        x = x + block.mlp2(gelu(block.mlp1(block.mlp_ln(x))))
    features: mx.array = encoder.ln_post(x)
    return features


def keys_and_values(attention: nn.Module, x: mx.array) -> tuple[mx.array, mx.array]:
    """`[rows, heads, tokens, dim]` each."""
    return _heads(attention.key(x), attention.n_head), _heads(attention.value(x), attention.n_head)


def hear(decoder: nn.Module, features: mx.array, layers: Sequence[Any]) -> None:
    """Store the keys and values of a window's features, `[1, 1500, width]`, in a row's cache."""
    for block, layer in zip(decoder.blocks, layers, strict=True):
        keys, values = keys_and_values(block.cross_attn, features)
        layer[1][KEYS], layer[1][VALUES] = mx.contiguous(keys), mx.contiguous(values)


def decode(
    decoder: nn.Module, tokens: mx.array, layers: Sequence[Any], forms: Forms, asked: list[mx.array] | None = None
) -> mx.array:
    """States of tokens, `[rows, k, width]`, behind the last norm.

    Args:
        decoder: mlx-audio's `TextDecoder`.
        tokens: `[rows, k]`. Zeros are returned for a placeholder, which is the first one of rows without any others.
        layers: the rows' caches.
        forms: the machine's.
        asked: gets the queries of each layer to the window, `[rows, heads, tokens, dim]`.
    """
    offset = layers[0][0].offset
    begins = isinstance(offset, int) and offset == 0
    if begins:
        tokens = tokens[:, 1:]
    rows, k = tokens.shape
    width = decoder.positional_embedding.shape[1]
    if not k:
        for block, layer in zip(decoder.blocks, layers, strict=True):
            nothing = mx.zeros((rows, block.attn.n_head, 1, width // block.attn.n_head), _dtype(decoder))
            layer[0].update_and_fetch(nothing, nothing)
        return mx.zeros((rows, 1, width), _dtype(decoder))
    x = decoder.token_embedding(tokens) + _positions(decoder.positional_embedding, 0 if begins else offset - 1, k)
    mask = None if begins else layers[0][0].make_mask(k, return_array=False, window_size=None)
    gelu = forms.exact_gelu
    for block, layer in zip(decoder.blocks, layers, strict=True):
        x = x + _attend(block.attn, block.attn_ln(x), layer, mask, forms, begins=begins)
        queries = _heads(block.cross_attn.query(block.cross_attn_ln(x)), block.cross_attn.n_head)
        if asked is not None:
            asked.append(queries)
        x = x + block.cross_attn.out(_joined(forms.attend(queries, layer[1][KEYS], layer[1][VALUES], None)))
        x = x + block.mlp2(gelu(block.mlp1(block.mlp_ln(x))))
    x = decoder.ln(x)
    return mx.concatenate([mx.zeros_like(x[:, :1]), x], axis=1) if begins else x


def _attend(attention: nn.Module, x: mx.array, layer: Any, mask: Any, forms: Forms, *, begins: bool) -> mx.array:
    """Self-attention to the tokens behind the placeholder."""
    queries = _heads(attention.query(x), attention.n_head)
    keys, values = keys_and_values(attention, x)
    if begins:  # with its place in front
        front = mx.zeros_like(keys[:, :, :1])
        keys, values = (mx.concatenate([front, array], axis=2) for array in (keys, values))
    keys, values = layer[0].update_and_fetch(keys, values)
    keys, values = keys[:, :, 1:], values[:, :, 1:]
    k = queries.shape[2]
    if k > 1:
        mask = "causal"
    elif mask is None or begins:
        mask = None
    else:
        mask = mask[..., 1:]
    if mask is None:
        made = forms.attend(queries, keys, values, None)
    else:
        made = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=queries.shape[-1] ** -0.5, mask=mask)
    out: mx.array = attention.out(_joined(made))
    return out


def _positions(table: mx.array, first: int | mx.array, k: int) -> mx.array:
    """`[rows or 1, k, width]`; free slots and padding get some position."""
    if isinstance(first, int):
        return table[mx.minimum(mx.arange(first, first + k), len(table) - 1)][None]
    return table[mx.clip(first[:, None] + mx.arange(k), 0, len(table) - 1)]


def _heads(x: mx.array, heads: int) -> mx.array:
    rows, tokens, width = x.shape
    return x.reshape(rows, tokens, heads, width // heads).swapaxes(1, 2)


def _joined(x: mx.array) -> mx.array:
    rows, heads, tokens, dim = x.shape
    return x.swapaxes(1, 2).reshape(rows, tokens, heads * dim)


def _dtype(decoder: nn.Module) -> mx.Dtype:
    dtype: mx.Dtype = decoder.ln.weight.dtype
    return dtype
