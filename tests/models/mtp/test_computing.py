"""Heads compute what the code of their authors computes: which states they read, and in which order they are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.ports import StepInput
from tests import heads
from tests.mtp import loaded, parts

EMBEDDINGS = ("embed_tokens", "embeddings")
TOKENS = [5, 9, 31, 40, 3, 77, 12]


def norm(states: mx.array, weight: mx.array, eps: float = 1e-6) -> mx.array:
    return states * mx.rsqrt(states.square().mean(-1, keepdims=True) + eps) * weight


def test_head_of_mimo_reads_states_before_the_models_last_norm_and_joins_them_before_the_embeddings(
    tmp_path: Path,
) -> None:
    """Oracle: the steps of vLLM's `MiMoMultiTokenPredictorLayer`, written down, with the model's own layers."""
    weights, its, config = parts("mimo")
    weights["model.norm.weight"] = 0.2 + 3 * mx.random.uniform(shape=(64,), key=mx.random.key(1))
    folder = heads.save(tmp_path / "model", {**weights, **heads.named("mimo", its, config)}, config)
    model, head = loaded(folder)
    assert head is not None
    decoder, tokens = model.decoder.model, mx.array([TOKENS])
    states = decoder.embed_tokens(tokens[:, :-1])
    for layer in decoder.layers:
        states = layer(states, "causal")
    block = head._module.layers[0]

    def following(states: mx.array, tokens: mx.array) -> tuple[mx.array, mx.array]:
        embedded = norm(decoder.embed_tokens(tokens), its["token_layernorm.weight"])
        joined = mx.concatenate([norm(states, its["hidden_layernorm.weight"]), embedded], axis=-1)
        made = norm(block(joined @ its["input_proj.weight"].T, "causal"), its["final_layernorm.weight"])
        return made @ weights["lm_head.weight"].T, made

    expected, expected_states = following(states, tokens[:, 1:])
    hidden = model.forward(StepInput(tokens[:, :-1], model.new_cache(), hidden=True)).hidden
    assert hidden is not None
    cache = head.new_cache()
    made = head.forward(tokens[:, 1:], hidden, cache, [len(TOKENS) - 2])
    np.testing.assert_allclose(np.array(made.logits), np.array(expected)[:, -1], atol=1e-3)
    # The next draft reads the head's own state, as it comes out of its last norm.
    all_states = mx.concatenate([states, expected_states[:, -1:]], axis=1)
    expected, _ = following(all_states, mx.array([[*TOKENS[1:], 8]]))
    assert made.hidden is not None
    again = head.forward(mx.array([[8]]), made.hidden[:, None], cache, [0])
    np.testing.assert_allclose(np.array(again.logits), np.array(expected)[:, -1], atol=1e-3)


@pytest.mark.parametrize("kind", ["glm_moe_dsa", "nemotron_h"])
def test_head_says_what_mlx_vlms_drafter_says_of_an_original_checkpoint(kind: str, tmp_path: Path) -> None:
    """Oracle: mlx-vlm's own reader and drafter, beyond the tokens that GLM-5's indexer chooses."""
    from mlx_vlm.speculative.drafters import load_drafter

    weights, its, config = parts(kind)
    named = with_single_experts(heads.named(kind, its, config))
    folder = heads.save(tmp_path / "model", {**weights, **named}, config, "pt")
    model, head = loaded(folder)
    assert head is not None
    theirs: Any = load_drafter(str(folder))
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    theirs._input_embed = next(part for name, part in model.decoder.named_modules() if name.endswith(EMBEDDINGS))
    theirs._lm_head_fn, theirs._cache = model.decoder.lm_head, theirs.make_cache()
    tokens = mx.array([[3 + 7 * i % 390 for i in range(3 * config["index_topk"])]])
    states = mx.random.normal((*tokens.shape, 64), key=mx.random.key(3))
    hidden = theirs._forward_tokens(tokens, states, mx.int32)
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    made = head.forward(tokens, states, head.new_cache(), [tokens.shape[1] - 1])
    np.testing.assert_allclose(np.array(made.logits), np.array(theirs._lm_head_fn(hidden))[:, -1], atol=1e-3)
    assert made.hidden is not None
    np.testing.assert_allclose(np.array(made.hidden), np.array(hidden)[:, -1], atol=1e-3)


def with_single_experts(tensors: dict[str, Any]) -> dict[str, Any]:
    """A head's tensors with each expert's apart, as original checkpoints have them."""
    made: dict[str, Any] = {}
    for name, array in tensors.items():
        for expert in range(array.shape[0]) if "switch_mlp" in name else ():
            single = name.replace("switch_mlp", f"experts.{expert}")
            made[single.replace("fc1", "up_proj").replace("fc2", "down_proj")] = array[expert]
        if "switch_mlp" not in name:
            made[name] = array
    return made
