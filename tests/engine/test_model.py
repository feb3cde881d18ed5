"""What `Model` and `StepInput` promise, of the adapter for text: rows of k tokens, whatever k is."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.ports import Model, StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import LoadedModel
from tests.engine.counting import KINDS
from tests.engine.harness import step_of
from tests.samples import only
from tests.tiny import VOCABULARY, tiny

TOKENS = [5, 6, 7, 8, 9, 10]


def load(kind: str = "qwen3") -> TextModel:
    return load_model(str(tiny(kind)), LoadOptions())


def test_a_text_model_has_all_that_the_engine_and_clients_ask_for() -> None:
    model: Model = load()
    wanted = {name for protocol in (Model, LoadedModel) for name in vars(protocol) if name[0] != "_"}
    wanted |= set(Model.__annotations__)
    assert len(wanted) > 10 and {name for name in wanted if not hasattr(model, name)} == set()


def test_a_step_does_not_change() -> None:
    step = step_of(TOKENS, [])
    assert not hasattr(step, "__dict__")
    with pytest.raises(FrozenInstanceError):
        step.counts = [3]  # type: ignore[misc]


@pytest.mark.parametrize("kind", only(["qwen3", "qwen3_next"], KINDS))
def test_logits_of_k_tokens_are_those_of_one_after_the_other(kind: str) -> None:
    model = load(kind)
    together = model.forward(step_of(TOKENS, model.new_cache())).logits
    assert together.shape == (1, len(TOKENS), VOCABULARY) and together.dtype == mx.float32
    layers = model.new_cache()
    for i, token in enumerate(TOKENS):
        assert mx.allclose(model.forward(step_of([token], layers)).logits[:, 0], together[:, i], atol=1e-4)


def test_rows_that_are_padded_get_the_logits_that_they_get_alone() -> None:
    model = load()
    padded = mx.array([TOKENS, [*TOKENS[1:4], 0, 0, 0]])
    logits = model.forward(StepInput(padded, model.new_cache(), counts=[6, 3])).logits
    alone = model.forward(step_of(TOKENS[1:4], model.new_cache())).logits
    assert mx.allclose(logits[1, :3], alone[0], atol=1e-4)


@pytest.mark.parametrize("more", [{"media": [(None, None)]}, {"state": [object()]}], ids=["media", "state"])
def test_a_text_model_refuses_what_it_would_ignore(more: dict[str, Any]) -> None:
    model = load()
    for run in (model.forward, model.prefill):
        with pytest.raises(ValueError, match="a text model"):
            run(StepInput(mx.array([[5]]), model.new_cache(), **more))
