"""Rope, scatter, and operations over the vocabulary, compared with NumPy's."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from .shape import ROWS, SLOTS, Case, Check, Floats, Shape, checked, draw, floats, on_device

POSITIONS = (3, 37, 1_037)  # of rows that rotate, or of all of them
TOP = 20


def check_rope(shape: Shape) -> list[Check]:
    """Test rope with one offset for all rows and with an offset for each."""
    return checked(_rope_cases(shape))


def check_vocabulary(shape: Shape) -> list[Check]:
    """Test scatter into slots, and operations that sample from the vocabulary."""
    return checked([*_scatter_cases(shape), *_sampling_cases(shape)])


# -- rope ------------------------------------------------------------------------------------------------------------


def _rope_cases(shape: Shape) -> Iterator[Case]:
    dims = shape.head_dim if shape.rope_dims is None else shape.rope_dims
    if not dims:
        return
    _, heads = shape.tested_heads
    drawn = draw(np.random.default_rng(4), len(POSITIONS), 3, heads, shape.head_dim)
    for tokens in (1, 3):
        x = drawn[:, :tokens].swapaxes(1, 2)
        for offset in (POSITIONS[-1], POSITIONS):
            given = offset if isinstance(offset, int) else mx.array(offset, mx.int32)
            for base, freqs in ((10_000.0, None), (None, mx.array(_frequencies(dims), mx.float32))):
                which = "one offset" if isinstance(offset, int) else "an offset per row"
                yield Case(
                    "rope",
                    f"{which}, {tokens} token{'s' * (tokens > 1)}{', with freqs' if base is None else ''}",
                    shape.allowed,
                    lambda x=x, given=given, base=base, freqs=freqs: mx.fast.rope(  # type: ignore[misc]
                        on_device(x, shape),
                        dims,
                        traditional=shape.traditional,
                        base=base,
                        scale=1.0,
                        offset=given,
                        freqs=freqs,
                    ),
                    _rotated(floats(x), np.broadcast_to(offset, len(POSITIONS)), dims, shape.traditional),
                )


def _frequencies(dims: int) -> npt.NDArray[np.float64]:
    """Positions per radian of each pair."""
    return np.power(10_000.0, np.arange(0, dims, 2) / dims)


def _rotated(x: Floats, offsets: npt.NDArray[np.int64], dims: int, traditional: bool) -> npt.NDArray[np.float64]:
    """`[rows, heads, tokens, head_dim]`, whose first `dims` numbers are rotated."""
    positions = offsets[:, None] + np.arange(x.shape[2])
    angles = (positions[..., None] / _frequencies(dims))[:, None]
    first, second = (
        (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(dims // 2), slice(dims // 2, dims))
    )
    out = x.astype(np.float64)
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return out


# -- scatter and sampling --------------------------------------------------------------------------------------------


def _scatter_cases(shape: Shape) -> Iterator[Case]:
    """Writing tokens into slots, as steps do."""
    rng = np.random.default_rng(5)
    kv_heads, _ = shape.tested_heads
    places = 512
    before = draw(rng, SLOTS * kv_heads * places, shape.head_dim)
    for tokens in (1, 3):
        runs = np.arange(SLOTS * kv_heads)[:, None] * places
        lengths = np.repeat([7, 300, places - tokens], kv_heads)[:, None]
        index = (runs + lengths + np.arange(tokens)).reshape(-1, 1).astype(np.uint32)
        new = draw(rng, len(index), shape.head_dim)
        after = before.copy()
        after[index[:, 0]] = new
        yield Case(
            "scatter",
            f"{tokens} token{'s' * (tokens > 1)} into {SLOTS} slots",
            0.0,
            lambda index=index, new=new: mx.put_along_axis(  # type: ignore[misc]
                on_device(before, shape), mx.array(index), on_device(new, shape), axis=0
            ),
            floats(after),
        )


def _sampling_cases(shape: Shape) -> Iterator[Case]:
    """Operations over the vocabulary, in float32 as logits are."""
    rng, n = np.random.default_rng(6), shape.vocabulary
    host = np.stack([rng.permutation(n) for _ in range(ROWS)]).astype(np.float32) / n  # no two of a row are equal
    ordered, numbers, top = np.sort(host, axis=-1), mx.array(host), min(TOP, n)
    case = f"{n:,} tokens"

    def partitioned() -> mx.array:
        places = mx.argpartition(-numbers, top - 1, axis=-1)[:, :top]
        return mx.sort(mx.take_along_axis(numbers, places, axis=-1), axis=-1)

    def limited() -> mx.array:
        return numbers.at[mx.array([0, 1]), mx.array([n // 3, n - 1])].minimum(mx.array([-1.0, -2.0]))

    banned = host.copy()
    banned[[0, 1], [n // 3, n - 1]] = [-1.0, -2.0]
    yield Case("scatter", case, 0.0, limited, banned)
    yield Case("sort", case, 0.0, lambda: mx.sort(numbers, axis=-1), ordered)
    yield Case("argsort", case, 0.0, lambda: mx.argsort(numbers, axis=-1), np.argsort(host, axis=-1))
    yield Case("argpartition", case, 0.0, partitioned, ordered[:, -top:])
    yield Case("argmax", case, 0.0, lambda: mx.argmax(numbers, axis=-1, keepdims=True), host.argmax(-1)[:, None])
    # One after another, float32 numbers add up with an error like this; in blocks with less.
    rounding = float(np.finfo(np.float32).eps) * max(n, 64) ** 0.5 * 4
    sums = np.cumsum(host.astype(np.float64), axis=-1)
    yield Case("cumsum", case, rounding, lambda: mx.cumsum(numbers, axis=-1), sums)
