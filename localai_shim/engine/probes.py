"""Trials that a model gives rows that share a pass, and prompts in pieces, the logits that it gives each row by itself.

A model's own code may misread a batch: gemma2's attention took the rows of a mask for key heads, afm7's takes the
longest row's length for every row's position. A machine's kernels may be wrong as well, for all rows but the first.
All of these answer, and wrongly. So each model is tried when it is loaded, on short rows of different and of equal
length, before any request depends on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..types import log
from . import kv
from .cache_contents import KeyValues, States
from .kv import Buckets, BuiltBuckets, RowCache
from .kv.row import is_shareable, leaves
from .kv.segments import build_row, take_snapshot, takes_padding, unstack
from .kv.shared import Prefix
from .kv.slots import SlotCache
from .ports import Model, StepInput, host
from .prefix.sharing import break_even

_async_eval: Callable[..., None] = mx.async_eval

_SHARED_TOKENS = 16
_NEVER = 2**30  # tokens
_ROWS = [[3 + 11 * i % 53 for i in range(23)], [7, 40, 25, 31], [5 + 7 * i % 53 for i in range(23)]]
_ROWS.append([*_ROWS[0][:_SHARED_TOKENS], 9, 44, 27])
"""Prompts of tokens that every vocabulary has. Rows of equal length get no mask and one position for all."""
_RAGGED, _EQUAL, _TWINS, _SHARING = (0, 1), (0, 2), (0, 0), (0, 3, 1)
"""Places in `_ROWS` of the rows that share a pass."""
_STEPS = [5, 29]
"""Tokens that all rows get afterwards: their logits differ only by what came before."""
_MORE_STEPS, _WRONG = [*_STEPS, 11, 47, 9, 33, 21, 52], 3
_PIECE_TOKENS = 9
# A model that misreads a mask or a position loses what came before, in part at least: this moved logits by 0.07 (afm7)
# to 1.0 (gemma2) of what another prefix does. Rounding moves them by 1e-6 of that in float32. In bfloat16 it may be as
# large as the error (0.01 to 0.2, and 0.6 where tokens change experts): it is measured, on two equal rows in one pass.
# A broken kernel spoils these two rows as well, so what they measure counts up to `MOST_TOLERANCE` only.
LOGIT_TOLERANCE = 0.05
ROUNDING_TOLERANCE = 4
MOST_TOLERANCE = 0.2
# States that lost a step's tokens moved logits by 0.02 to 0.1 (nemotron_h), rounding in float32 by 4e-5 at most.
SEVERAL_TOLERANCE = 1e-3
_FLOAT32_BITS = 0x1FFF  # those of a float32 that neither half precision has

Logits = npt.NDArray[np.float64]


class Agreement(NamedTuple):
    """Abilities of a model that were found to be right."""

    in_pieces: bool
    """A prompt in pieces gives the logits of the whole prompt in one pass."""
    together: bool
    """Rows that share a pass get the logits that each gets alone, whether their lengths differ or not."""


def agreement(model: Model) -> Agreement:
    """Try what a model does correctly: once per model, versions, options, and machine, and remembered on disk."""
    found = _tried(model.fingerprint, partial(_try, model))
    return Agreement(in_pieces=found % 2 == 1, together=found >= 2)


def takes_several(model: Model) -> int:
    """Try if rows get the logits of one token at a time in steps of several, which not all count or stay: the size of
    the vocabulary if they do, else 0. Tried once, as `agreement` is.
    """
    return _tried(f"{model.fingerprint}-several", partial(_try_several, model))


def runs_built(model: Model) -> bool:
    """True if a step gives the same logits where it was built before its tokens were known, and on a GPU one of several
    before it was known how many its rows hold: nothing of it is computed meanwhile. Tried once, as `agreement` is.
    """
    several = model.samples_on_device and bool(takes_several(model))
    decode = partial(_decode_several, model) if several else partial(_alone, model, _RAGGED)
    trial = partial(_try_built, decode, model)
    return bool(_tried(f"{model.fingerprint}-built{'-several' * several}", trial))


def ends_prompts(model: Model) -> bool:
    """True if the pass that ends a prompt gives the logits that its last token gives in a separate pass. Tried once,
    as `agreement` is.
    """
    return agreement(model).in_pieces and bool(_tried(f"{model.fingerprint}-ends", partial(_try_ends, model)))


def least_shared(model: Model) -> int | None:
    """Tokens of copies that rows save together when they hold their first tokens once, from which on steps take no
    longer with these than with copies. None: rows do not get the logits that each gets alone, as the model's attention
    does not read shared tokens. Tried and measured once, as `agreement` is.
    """
    found = _tried(f"{model.fingerprint}-least-shared", partial(_try_shares, model))
    return found - 1 if found else None


_known: dict[str, int] = {}
"""Results of trials, by file name."""


def _tried(name: str, trial: Callable[[], int]) -> int:
    """Result of a trial, which is run once: it is on disk for later processes with the same chip and system."""
    name = f"{name}-{hashlib.sha256(host().machine.identity().encode()).hexdigest()[:8]}"
    if name not in _known:
        found = _read(name)
        _known[name] = int(trial()) if found is None else found
        if found is None:
            _write(name, _known[name])
    return _known[name]


def _try_several(model: Model) -> int:
    if model.one_token or not kv.fits_slots(model.new_cache()):
        return 0
    alone = _alone(model, _RAGGED, _MORE_STEPS)
    allowed = _allowed(alone, _run(partial(_twins, model, _MORE_STEPS)), SEVERAL_TOLERANCE)
    agrees = _agrees(alone, allowed, _run(partial(_decode_several, model)), steps=len(_MORE_STEPS))
    return int(alone.shape[-1]) if agrees else 0


def _try_built(decode: Callable[..., Logits], model: Model) -> bool:
    """Code that asks the device which experts a token goes to, as dbrx's does, asks it for other tokens then."""
    alone = decode()
    twins = _run(partial(_twins, model, _MORE_STEPS[: alone.shape[1]]))
    return _agrees(
        alone, _allowed(alone, twins, SEVERAL_TOLERANCE), _run(partial(decode, built=True)), steps=alone.shape[1]
    )


def _try_ends(model: Model) -> bool:
    if not model.end_tokens:
        return False
    alone = _alone(model, _RAGGED, _STEPS[:1])
    allowed = _allowed(alone, _run(partial(_twins, model, _STEPS[:1])))
    return _agrees(alone, allowed, _run(lambda: np.concatenate([_ended(model, _ROWS[i]) for i in _RAGGED])))


def _try_shares(model: Model) -> int:
    """0: rows cannot share. Else 1 more than `least_shared`."""
    contents = kv.read_row(model.new_cache()) if kv.fits_slots(model.new_cache()) else []
    grow = [layer for layer in leaves(contents) if not isinstance(layer, States) and layer.fixed is None]
    if not grow or not all(is_shareable(layer) for layer in grow):
        return 0
    alone = _alone(model, _SHARING)
    allowed = _allowed(alone[[0, 2]], _run(partial(_twins, model, _STEPS)))
    shared = _run(partial(_decode_shared, model))
    if not _agrees(alone, np.broadcast_to(allowed, alone.shape[:2]), shared, steps=2):
        return 0
    layer = next(layer for layer in leaves(kv.copied(_prefilled(model, _ROWS[:1]))) if is_shareable(layer))
    assert isinstance(layer, KeyValues)
    try:
        least = break_even(layer, model.query_heads)
    except Exception as error:  # rows can share, whatever the machine says of the shapes that are measured
        log.warning("from how many tokens on sharing saves time could not be measured: %s", error)
        least = _NEVER
    return 1 + int(min(least, _NEVER))


def _decode_shared(model: Model) -> Logits:
    """The logits of `_decode` of rows of which two share tokens and a third one does not.

    Raises:
        ValueError: some of its layers leave out the first tokens of long rows.
    """
    first = _ROWS[_SHARING[0]][:_SHARED_TOKENS]
    whole = kv.copied(_prefilled(model, [first]))
    arrays = [array for layer in leaves(whole) for array in layer.growing]
    prefix = Prefix(None, np.array(first), arrays)
    rows = []
    for i in _SHARING[:2]:  # the rest of their prompts is prefilled behind what they share
        cache = build_row(whole, [arrays], take_snapshot(whole, len(first)), len(first), len(first), arrays)
        model.prefill(StepInput(mx.array([_ROWS[i][len(first) :]]), cache))
        rows.append(cache)
    rows.append(_prefilled(model, [_ROWS[_SHARING[2]]]))
    batch = SlotCache()
    slots = batch.join(rows, [prefix, prefix, None])
    steps = []
    for token in _STEPS:
        inputs = mx.array([[token]] * batch.width)
        logits = model.forward(StepInput(inputs, batch.advance(), starts=batch.starts)).logits[:, -1]
        steps.append(np.array(logits)[slots].astype(np.float64))
    if batch.looks_back:
        raise ValueError("layers that hold all tokens attend to the last ones only")
    return np.stack(steps, axis=1)


def _try(model: Model) -> int:
    """1 for `Agreement.in_pieces`, and 2 for `together`."""
    alone = _alone(model, range(3))
    batches = kv.can_batch(model.new_cache())
    twins = _run(partial(_twins, model, _STEPS)) if batches else None
    allowed = _allowed(alone, twins)
    first, second = _ROWS[0][:_PIECE_TOKENS], _ROWS[0][_PIECE_TOKENS:]
    in_pieces = _agrees(alone, allowed, _run(lambda: _decode(model, [_prefilled(model, [first, second])])))
    together = twins is not None and _agrees(twins[:1], allowed, twins[1:])
    for rows in (_RAGGED, _EQUAL):
        together = together and _agrees(alone[[*rows]], allowed, _run(partial(_decode_together, model, rows)))
    return in_pieces + 2 * together


def _twins(model: Model, steps: Sequence[int]) -> Logits:
    """The logits of two equal rows that share a pass."""
    return _decode(model, [_prefilled(model, [_ROWS[i]]) for i in _TWINS], steps)


def _allowed(alone: Logits, twins: Logits | None, tolerance: float = LOGIT_TOLERANCE) -> Logits:
    """`[steps]`: how far off rounding may be.

    Args:
        alone: the logits of two rows by themselves.
        twins: those of the first row, twice in one pass; None: the model cannot run two rows.
        tolerance: in shares of the distance between the two rows, for float32.
    """
    distance = _distance(alone[0], alone[1])
    rounding = np.zeros_like(distance) if twins is None else _distance(twins, alone[:1]).max(axis=0)
    bits = alone.astype(np.float32).view(np.uint32)
    if not (bits & _FLOAT32_BITS).any():
        tolerance = LOGIT_TOLERANCE
    allowed: Logits = np.minimum(tolerance * distance + ROUNDING_TOLERANCE * rounding, MOST_TOLERANCE * distance)
    return allowed


def _prefilled(model: Model, pieces: Sequence[Sequence[int]]) -> RowCache:
    cache = model.new_cache()
    for piece in pieces:
        model.prefill(StepInput(mx.array([piece]), cache))
    return cache


def _ended(model: Model, row: Sequence[int]) -> Logits:
    """`[1, 1, vocabulary]`: the logits of the pass that ends a prompt with the first step's token."""
    logits = model.prefill(StepInput(mx.array([[*row, _STEPS[0]]]), model.new_cache(), ends=True)).logits
    return np.array(logits).astype(np.float64)[:, None]


def _side_by_side(model: Model, which: Sequence[int]) -> list[RowCache]:
    """These rows, in one pass where the scheduler might run them so."""
    rows = [_ROWS[i] for i in which]
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    if takes_padding(model.new_cache()) <= longest:
        return [_prefilled(model, [row]) for row in rows]
    cache = model.new_cache()
    padded = mx.array([[*row, *[0] * (longest - len(row))] for row in rows])
    model.prefill(StepInput(padded, cache, counts=lengths))
    return unstack(cache, lengths)


def _decode_together(model: Model, which: Sequence[int]) -> Logits:
    """The logits of `_decode` of these rows in one batch."""
    return _decode(model, _side_by_side(model, which))


def _alone(model: Model, which: Sequence[int], tokens: Sequence[int] = _STEPS, *, built: bool = False) -> Logits:
    """The logits of `_decode` of each of these rows by itself."""
    return np.concatenate([_decode(model, [_prefilled(model, [_ROWS[i]])], tokens, built=built) for i in which])


def _decode(model: Model, rows: Sequence[RowCache], tokens: Sequence[int] = _STEPS, *, built: bool = False) -> Logits:
    """`[rows, steps, vocabulary]`: the logits of each row after the same tokens.

    Args:
        built: each step's graph is built before it is given its tokens.
    """
    batch, slots = kv.join(None, rows)
    steps = []
    for token in tokens:
        layers = batch.advance()
        inputs = mx.array([[_WRONG if built else token]] * batch.width)
        view = np.array(inputs, copy=False)
        logits = model.forward(StepInput(inputs, layers, starts=kv.starts_of(batch))).logits[:, -1]
        view[...] = token
        steps.append(np.array(logits)[slots].astype(np.float64))
    return np.stack(steps, axis=1)


def _decode_several(model: Model, *, built: bool = False) -> Logits:
    """Run the steps of `_decode` with several tokens. The first row takes two tokens at a time and a wrong one, which
    is taken back; the other takes one, and padding with it.

    Args:
        built: all steps but the first are built while the one before runs, where caches can do that.
    """
    cache = Buckets(model.weight_bytes, most_tokens=len(_MORE_STEPS) + 1, builds_ahead=built)
    places = cache.join([_prefilled(model, [_ROWS[i]]) for i in _RAGGED])
    out: list[list[Logits]] = [[] for _ in _RAGGED]
    replay: list[list[int]] = [[] for _ in _RAGGED]
    ahead: tuple[BuiltBuckets, npt.NDArray[np.int32], mx.array] | None = None
    while len(out[1]) < len(_MORE_STEPS):
        right = [replay[i] + _MORE_STEPS[len(its) : len(its) + 2 - i] for i, its in enumerate(out)]
        blocks = [[*right[0], _WRONG], right[1]]
        counts = {place: len(block) for place, block in zip(places, blocks, strict=True)}
        begun = None if ahead is None else cache.begin_built(ahead[0], counts)
        if begun is None:  # nothing was built, or it was for more tokens
            ahead = None
        [step] = begun or cache.advance_several(counts)
        padded = np.array([block + [0] * (step.tokens - len(block)) for block in blocks], np.int32)
        if ahead is None:
            inputs = StepInput(mx.array(padded), step.layers, list(counts.values()), starts=step.starts)
            lazy = model.forward(inputs).logits
        else:
            ahead[1][...], lazy = padded, ahead[2]
        ahead = None
        _async_eval(lazy)
        with cache.build({places[0][0]: step}) if built else contextlib.nullcontext() as made:
            if made is not None:
                tokens = mx.array(np.full_like(padded, _WRONG))
                next_step, whole = made.steps[0], [step.tokens] * len(blocks)
                following = model.forward(StepInput(tokens, next_step.layers, whole, starts=next_step.starts)).logits
                ahead = made, np.array(tokens, copy=False), following
        logits = np.array(lazy).astype(np.float64)
        stayed = cache.settle({place: len(its) for place, its in zip(places, right, strict=True)})
        for i, place in enumerate(places):
            out[i] += list(logits[i, len(replay[i]) : len(right[i])])
            replay[i] = right[i][stayed[place] :]
    return np.array(out)


def _run(trial: Callable[[], Logits]) -> Logits | None:
    """Run a trial; returns None if the model raises."""
    try:
        return trial()
    except Exception as error:
        log.debug("this model cannot run rows in another way", exc_info=error)
        return None


def _agrees(expected: Logits, allowed: Logits, logits: Logits | None, *, steps: int = 1) -> bool:
    """True if rows that ran in another way get the logits that were expected of the first ones.

    Rounding may send a token to another expert, and be far off at one step; a batch that is misread is off at each,
    so that it is enough if this number of steps is right for each row.
    """
    if logits is None:
        return False
    expected = expected[: len(logits)]
    off = _distance(logits, expected)
    log.debug("off by %s, allowed are %s", off.tolist(), allowed.tolist())
    right = (off <= allowed) & (np.isfinite(logits) == np.isfinite(expected)).all(axis=-1)
    return bool((right.sum(axis=1) >= steps).all())


def _distance(a: Logits, b: Logits) -> Logits:
    both = np.isfinite(a) & np.isfinite(b)  # some models ban tokens by an infinite logit
    distance: Logits = np.linalg.norm(np.where(both, a, 0) - np.where(both, b, 0), axis=-1)
    return distance


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "localai_shim" / "agreement"


def _read(name: str) -> int | None:
    """The stored result of a trial; None if there is none."""
    try:
        number, end = (_folder() / name).read_text(encoding="ascii").split()
        return int(number) if end == "tried" else None
    except (OSError, ValueError):
        return None


def _write(name: str, found: int) -> None:
    """Best effort: where the folder cannot be written to, the next process tries again."""
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.{secrets.token_hex(4)}"
        part.write_text(f"{found} tried", encoding="ascii")
        part.replace(folder / name)
