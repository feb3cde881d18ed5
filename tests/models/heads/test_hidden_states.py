"""A pass returns the hidden states that its head makes the logits of, if they are wanted, and the same logits."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.models.text import TextModel
from tests import architectures, vlm_architectures
from tests.engine.counting import tokens
from tests.machine_forms import FillingForms
from tests.models.vision.seeing import load as load_vision
from tests.models.vision.seeing import pictures, prompt_of

KINDS = ["deepseek_v3", "gemma2", "llama", "nemotron_h", "qwen3_5", "qwen3_moe", "qwen3_next"]
"""Plain, with a soft cap of logits, with experts, hybrid."""
HEADS = ("lm_head", "output", "embed_out")


def from_states(model: TextModel, hidden: mx.array) -> np.ndarray:
    """Logits that the model's own head makes, which may be its embeddings."""
    inner: Any = model._decoder or model._model
    modules = dict(inner.named_modules())
    heads: list[Any] = [module for name, module in modules.items() if name.rpartition(".")[2] in HEADS]
    heads += [module.as_linear for module in modules.values() if isinstance(module, nn.Embedding)]
    logits = heads[0](hidden).astype(mx.float32)
    cap = getattr(inner, "final_logit_softcapping", None)
    return np.array(logits if cap is None else mx.tanh(logits / cap) * cap)


def hold(model: TextModel, plain: PassOutput[mx.array], made: PassOutput[mx.array]) -> None:
    assert plain.hidden is None and mx.array_equal(plain.logits, made.logits)
    assert made.hidden is not None and made.hidden.shape[:2] == made.logits.shape[:2]
    np.testing.assert_allclose(from_states(model, made.hidden), np.array(made.logits), rtol=1e-4, atol=1e-4)


def both(model: TextModel, ids: mx.array, **more: Any) -> None:
    plain, made = (model.forward(StepInput(ids, model.new_cache(), hidden=wants, **more)) for wants in (False, True))
    hold(model, plain, made)


@pytest.mark.parametrize("name", KINDS)
def test_the_head_makes_the_logits_of_the_states(name: str) -> None:
    model = architectures.text_model(name)
    assert model.gives_hidden
    both(model, mx.array([tokens(9)]))
    padded = mx.array([tokens(9), [*tokens(4, 2), *[0] * 5]])
    both(model, padded, counts=[9, 4])


def test_models_of_mlx_vlm_give_the_states_that_their_head_reads() -> None:
    both(vlm_architectures.text_model("qwen3_vl_moe"), mx.array([tokens(9)]))


@pytest.mark.parametrize("fills", [False, True], ids=["as it is", "filled as on CUDA"])
@pytest.mark.parametrize("name", ["llama", "qwen3_next"])
def test_a_prefill_returns_the_states_of_all_its_tokens_and_of_no_padding(name: str, fills: bool) -> None:
    model = architectures.text_model(name)
    expected = model.forward(StepInput(mx.array([tokens(21)]), model.new_cache(), hidden=True)).hidden
    assert expected is not None
    if fills:
        model._forms = FillingForms()
    plain, cache = model.new_cache(), model.new_cache()
    first = model.prefill(StepInput(mx.array([tokens(21)[:9]]), cache, hidden=True))
    last = model.prefill(StepInput(mx.array([tokens(21)[9:]]), cache, hidden=True, ends=True))
    assert first.logits is None and first.hidden is not None and last.hidden is not None
    np.testing.assert_allclose(mx.concatenate([first.hidden, last.hidden], axis=1), expected, rtol=1e-3, atol=1e-3)
    model.prefill(StepInput(mx.array([tokens(21)[:9]]), plain))
    alone = model.prefill(StepInput(mx.array([tokens(21)[9:]]), plain, ends=True))
    assert alone.hidden is None and last.logits is not None and alone.logits is not None
    assert mx.array_equal(last.logits, alone.logits)


def test_a_chunk_with_an_image_has_states_too() -> None:
    model = load_vision("qwen2_5_vl")
    items = [model.text.process(picture) for picture in pictures(1)]
    prompt = prompt_of(model, items)
    features = [model.embed(item) for item in items]
    media = list(zip(prompt.media, features, strict=True))
    step = StepInput(
        mx.array([prompt.tokens]),
        model.new_cache(),
        state=[model.row_state(prompt)],
        media=media,
        ends=True,
        hidden=True,
    )
    made = model.prefill(step)
    assert made.hidden is not None and made.logits is not None and made.hidden.shape[1] == len(prompt.tokens)
    np.testing.assert_allclose(from_states(model, made.hidden[:, -1]), np.array(made.logits), rtol=1e-4, atol=1e-4)


def test_a_model_whose_states_cannot_be_had_says_so_and_returns_none() -> None:
    model = architectures.text_model("gpt_neox")
    assert not model.gives_hidden
    made, plain = (
        model.forward(StepInput(mx.array([tokens(9)]), model.new_cache(), hidden=wants)) for wants in (True, False)
    )
    assert made.hidden is None and mx.array_equal(made.logits, plain.logits)


def test_no_states_are_kept_after_a_pass() -> None:
    model = architectures.text_model("llama")
    both(model, mx.array([tokens(9)]))
    assert model._split is not None and model._split._decoder._states is None
