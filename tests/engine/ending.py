"""What a pass that ends a prompt is held against: the last token's own pass."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from localai_shim.engine.ports import StepInput
from localai_shim.models.text import TextModel
from tests.engine.harness import step_of


def hold_end(model: TextModel, prompt: Sequence[int]) -> None:
    """Hold the logits of a prompt that is run in one pass, and those of what follows."""
    whole, cut = model.new_cache(), model.new_cache()
    ended = model.prefill(StepInput(mx.array([list(prompt)]), whole, ends=True)).logits
    model.prefill(step_of(prompt[:-1], cut))
    alone = model.forward(step_of(prompt[-1:], cut)).logits[:, -1]
    assert ended is not None and ended.shape == alone.shape and ended.dtype == mx.float32
    assert mx.allclose(ended, alone, rtol=1e-3, atol=1e-3)
    following = (model.forward(step_of([7], cache)).logits for cache in (whole, cut))
    assert mx.allclose(*following, rtol=1e-3, atol=1e-3)
