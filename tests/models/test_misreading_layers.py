"""What is relied on of hand-written attention, and that it takes a batch's mask then."""

from __future__ import annotations

import contextlib
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import gemma2
from mlx_lm.models.cache import make_prompt_cache
from mlx_vlm.models import cache as mlx_vlm
from mlx_vlm.models import mistral3

from localai_shim.engine import kv
from localai_shim.engine.kv import step
from localai_shim.models.misreading_layers import batch_attention
from tests import vlm_architectures
from tests.architectures import make, randomise

HEADS = 2  # of keys: as many as the rows below
PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13]]


class Padded:
    """A cache of two rows, of which the second is shorter: what it does not have is hidden by a mask `[2, 1, 1, 6]`."""

    def __init__(self, rows: list[Any]) -> None:
        longest = max(row.offset for row in rows)
        padded = [
            [mx.pad(a, [(0, 0), (0, 0), (0, longest - a.shape[2]), (0, 0)]) for a in row.keys_and_values()]
            for row in rows
        ]
        self._arrays = [mx.concatenate(arrays, axis=0) for arrays in zip(*padded, strict=True)]
        self.offset = mx.array([row.offset for row in rows])
        self._mask = mx.concatenate(
            [mx.arange(longest) < self.offset[:, None], mx.ones((len(rows), 1), dtype=mx.bool_)], axis=1
        )[:, None, None, :]

    def update_and_fetch(self, *new: Any) -> list[Any]:
        return [mx.concatenate([old, one], axis=2) for old, one in zip(self._arrays, new, strict=True)]

    def make_mask(self, n: int, **_: Any) -> Any:
        return self._mask


def decode(model: Any, *, together: bool) -> Any:
    """Logits of both rows' next token."""
    rows = [make_prompt_cache(model) for _ in PROMPTS]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        model(mx.array([prompt]), cache=row)
    if together:
        return model(mx.array([[4], [4]]), cache=[Padded(list(layers)) for layers in zip(*rows, strict=True)])[:, 0]
    return mx.concatenate([model(mx.array([[4]]), cache=row)[:, 0] for row in rows])


def test_gemma2_takes_the_rows_of_a_mask_for_key_heads() -> None:
    """Its scores have five dimensions: `[rows, key heads, queries per key head, queries, keys]`."""
    model = make("gemma2")
    assert model.args.num_key_value_heads == HEADS == len(PROMPTS), "otherwise shapes do not fit, and it raises"
    assert not mx.allclose(decode(model, together=True), decode(model, together=False), atol=0.1)


def test_gemma2_reads_a_batch_s_mask_by_rows_then() -> None:
    model = make("gemma2")
    alone = decode(model, together=False)
    assert batch_attention(model) == len(model.layers)
    assert mx.allclose(decode(model, together=True), alone, atol=1e-4)
    assert mx.array_equal(decode(model, together=False), alone)


@pytest.mark.parametrize("heads", [1, 4], ids=["other numbers of rows and key heads", "one query per key head"])
def test_any_number_of_heads_will_do(heads: int) -> None:
    model = make("gemma2", num_key_value_heads=heads)
    alone = decode(model, together=False)
    assert batch_attention(model) == (len(model.layers) if heads < 4 else 0)
    assert mx.allclose(decode(model, together=True), alone, atol=1e-4)


def test_subclasses_of_upstream_s_attention_are_left_alone() -> None:
    class Own(gemma2.Attention):  # type: ignore[misc]
        pass

    model = make("gemma2")
    for layer in model.layers:
        layer.self_attn.__class__ = Own
    assert batch_attention(model) == 0
    assert batch_attention(make("llama")) == 0


# -- mlx-vlm's ---------------------------------------------------------------------------------------------------------


def decode_in_slots(model: Any, *, together: bool) -> Any:
    """Logits of both rows' next token, after their prompts ran alone."""
    rows = [mlx_vlm.make_prompt_cache(model) for _ in PROMPTS]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        model(mx.array([prompt]), cache=row, **positions(model, row, 1, len(prompt)))
    if together:
        batch, _ = kv.join(None, rows)
        layers = batch.advance()
        return model(mx.array([[4], [4]]), cache=layers, **positions(model, layers, 2, 1)).logits[:, 0]
    return mx.concatenate(
        [model(mx.array([[4]]), cache=row, **positions(model, row, 1, 1)).logits[:, 0] for row in rows]
    )


def positions(model: Any, layers: list[Any], rows: int, k: int) -> dict[str, Any]:
    if not hasattr(model, "get_rope_index"):
        return {}
    places = mx.array(layers[0].offset).reshape(-1, 1) + mx.arange(k)
    return {"position_ids": mx.broadcast_to(places, (3, rows, k))}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gemma2", {}),
        ("jina_vlm", {}),
        ("qwen3_vl_moe", {}),
        ("qwen3_omni_moe", {}),
        ("deepseek_vl_v2", {"topk_method": "noaux_tc"}),
    ],
)
def test_models_of_mlx_vlm_that_misread_a_batch_read_it_by_rows_then(
    name: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_masked_columns", lambda: 64)  # more than the rows have, as on GPUs
    model = vlm_architectures.make(name, **changes)
    alone = decode_in_slots(model, together=False)
    with contextlib.suppress(ValueError):  # or shapes do not fit, and it raises
        assert not mx.allclose(decode_in_slots(model, together=True), alone, atol=0.1)
    assert batch_attention(model)
    assert mx.allclose(decode_in_slots(model, together=True), alone, atol=1e-3)
    assert mx.allclose(decode_in_slots(model, together=False), alone, atol=1e-4)


def test_gemma3n_of_mlx_vlm_turns_queries_as_mlx_lm_s_does_then() -> None:
    """Where layers share keys it asks the cache for its place after the pass."""
    right, model = make("gemma3n"), vlm_architectures.make("gemma3n")
    prefix = "model.language_model."
    weights = tree_flatten(right.parameters())
    model.load_weights([(f"model.{name.removeprefix(prefix)}", array) for name, array in weights])
    prompt = mx.array([[5, 9, 11, 30, 42, 17, 8, 99, 100]])
    expected = right(prompt, cache=make_prompt_cache(right))
    assert not mx.allclose(model(prompt, cache=mlx_vlm.make_prompt_cache(model)).logits, expected, atol=0.1)
    batch_attention(model)
    assert mx.allclose(model(prompt, cache=mlx_vlm.make_prompt_cache(model)).logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["ministral3", "mistral4"])
def test_rows_of_mistral_scale_their_queries_by_their_own_positions_then(name: str) -> None:
    """One of the rows is longer than the context that the model was first trained with."""
    rope = {"rope_theta": 10000.0, "rope_type": "default", "llama_4_scaling_beta": 9.0}
    latent = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16, "v_head_dim": 16}
    config = mistral3.TextConfig(
        model_type=name,
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=32,
        num_attention_heads=2,
        rms_norm_eps=1e-6,
        vocab_size=64,
        head_dim=16,
        max_position_embeddings=64,
        rope_parameters={**rope, "original_max_position_embeddings": 4},
        **latent,
    )
    mx.random.seed(0)
    model = mistral3.LanguageModel(config)
    randomise(model)
    alone = decode_in_slots(model, together=False)
    assert not mx.allclose(decode_in_slots(model, together=True), alone, atol=0.01)
    assert batch_attention(model) == 1
    assert mx.allclose(decode_in_slots(model, together=True), alone, atol=1e-4)
