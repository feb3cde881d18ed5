"""Engines whose model has a head that drafts, and what the head guesses alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from localai_shim.engine.drafts.head import HeadDrafter
from localai_shim.engine.drafts.past import Found
from localai_shim.engine.drafts.ports import DraftHead
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import StepInput
from localai_shim.engine.row import Row
from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.text import TextModel
from tests import inside

DRAFTS = 4
SHARE = 0.01
"""Of what a model's layers add: a head that knows nothing of them is right in about half of its guesses."""


def engine_of(path: str, *, drafts: bool = True, **options: Any) -> Engine[TextModel]:
    made = EngineOptions(prefill_chunk=48)
    made.update(options)  # type: ignore[typeddict-item]
    load = partial(load_draft_model, None, {}) if drafts else None
    return Engine(lambda: load_model(path, {}), made, load_draft=load)  # type: ignore[arg-type, return-value]


def drafter(engine: Engine[Any]) -> HeadDrafter:
    engine.wait()
    speculation = inside.setup(engine).speculation
    assert speculation is not None and isinstance(speculation.costly, HeadDrafter)
    return speculation.costly


def counts(engine: Engine[Any]) -> tuple[int, int]:
    """(drafted, accepted)"""
    drafted, accepted = engine.stats().drafts.get("mtp", (0, 0))
    return drafted, accepted


def states_of(model: TextModel, row: Row) -> mx.array:
    """`[tokens - 1, width]`: the model's states of all tokens of a row but the last one, computed from the start."""
    tokens = [*row.prompt_tokens, *row.output_tokens][:-1]
    hidden = model.forward(StepInput(mx.array([tokens]), model.new_cache(), hidden=True)).hidden
    assert hidden is not None
    return hidden[0]


def guessed_alone(
    head: DraftHead, model: TextModel, row: Row, start: int, count: int, own: dict[int, mx.array] | None = None
) -> list[int]:
    """The head's greedy guesses after all of a row's tokens, with entries from the token `start` on.

    Args:
        own: states of tokens that the head reads instead of the model's; gets its own behind each guess.
    """
    own = {} if own is None else own
    tokens, known, cache = [*row.prompt_tokens, *row.output_tokens], states_of(model, row), head.new_cache()
    states = mx.stack([own.get(i, known[i]) for i in range(start, len(known))])
    out: list[int] = []
    inputs = mx.array([tokens[start + 1 :]]), states[None]
    while len(out) < count:
        logits, hidden = head.forward(*inputs, cache, [inputs[0].shape[1] - 1])
        out.append(int(np.argmax(np.array(logits)[0])))
        assert hidden is not None
        own[len(tokens) + len(out) - 2] = hidden[0]
        inputs = mx.array([out[-1:]]), hidden[:, None]
    return out


@contextmanager
def guesses_compared(engine: Engine[TextModel]) -> Iterator[list[tuple[Row, list[int], list[int]]]]:
    """Collect an engine's guesses, each with what the head guesses alone from the same first state on.

    Rows that had an unknown state replaced by another one are left out.
    """
    own, model = drafter(engine), engine.model
    head, draft = own._head, own.draft
    assert head is not None and own._past is not None
    seen: list[tuple[Row, list[int], list[int]]] = []
    starts: dict[Row, int] = {}
    inexact: list[list[int]] = []
    """Beginnings of rows, up to a token that was read with another one's state."""
    find, left_out = own._past.find, set[Row]()

    def finding(row: Row, ran: int) -> Found | None:
        found = find(row, ran)
        starts[row] = ran if found is None else found.start
        tokens = [*row.prompt_tokens, *row.output_tokens]
        if found is not None and any(tokens[: len(its)] == its and found.ran > len(its) - 2 for its in inexact):
            left_out.add(row)
        if found is not None and found.ran < ran:
            inexact.append(tokens[: found.ran + 2])
            left_out.add(row)
        return found

    def compared(rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        found = draft(rows, most)
        for row, its in zip(rows, found, strict=True):
            if row in starts and row not in left_out:
                seen.append((row, list(its), guessed_alone(head, model, row, starts[row], len(its))))
        return found

    own.draft, own._past.find = compared, finding  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        own.draft, own._past.find = draft, find  # type: ignore[method-assign]
