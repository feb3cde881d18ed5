"""Preparing a model for its machine: nothing of it is left in anybody else's models, classes or modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.backends import forms as chosen
from localai_shim.backends.forms import forms
from localai_shim.backends.machine import on_x86_cpu
from tests.embedding_models import tiny_embedder
from tests.tiny import tiny
from tests.vision import tiny_vision

UPSTREAM = ("mlx", "mlx_lm", "mlx_vlm", "transformers", "jinja2")
TOKENS = mx.array([[5, 6, 7, 8] * 60])
"""More than the x86 forms leave to MLX."""
PICTURE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def text_logits() -> Callable[[], Any]:
    model, _ = mlx_lm.load(str(tiny("qwen3")))
    return lambda: model(TOKENS)


def vision_rows() -> Callable[[], Any]:
    import mlx_vlm.utils

    model = mlx_vlm.utils.load_model(tiny_vision("qwen2_5_vl"))
    mx.random.seed(1)
    patches, grid = mx.random.normal((256, 1176)), mx.array([[1, 16, 16]])
    patches = patches[
        :, : model.vision_tower.patch_embed.proj.weight.size // len(model.vision_tower.patch_embed.proj.weight)
    ]
    return lambda: mx.concatenate(
        [model.vision_tower(patches, grid).reshape(-1), model.language_model(TOKENS).logits.reshape(-1)]
    )


def encoder_vectors() -> Callable[[], Any]:
    from mlx_vlm.embedding_loader import load_embedding_model

    model = load_embedding_model(tiny_embedder("bert"))
    tokens = TOKENS[:, :100]
    return lambda: model(tokens, attention_mask=mx.ones_like(tokens)).text_embeds


def ask_text(client: LocalOpenAI) -> None:
    client.chat.completions.create(model="x", messages=[{"role": "user", "content": "hi " * 100}], max_tokens=4)


def ask_about_a_picture(client: LocalOpenAI) -> None:
    parts: Any = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    client.chat.completions.create(model="x", messages=[{"role": "user", "content": parts}], max_tokens=4)


def embed(client: LocalOpenAI) -> None:
    client.embeddings.create(model="x", input="hi " * 60)


KINDS = {
    "text": (lambda: tiny("qwen3"), text_logits, ask_text),
    "vision": (lambda: tiny_vision("qwen2_5_vl"), vision_rows, ask_about_a_picture),
    "embedder": (lambda: tiny_embedder("bert"), encoder_vectors, embed),
}


def names_of_upstream() -> dict[tuple[str, ...], object]:
    """The object behind each name of upstream's modules and classes."""
    found = dict[tuple[str, ...], object]()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in UPSTREAM and module is not None:
            for key, value in list(vars(module).items()):
                found[name, key] = value
                if isinstance(value, type) and value.__module__ == name:
                    found |= {(name, key, each): its for each, its in vars(value).items()}
    return found


def changed(before: dict[tuple[str, ...], object]) -> Iterator[tuple[str, ...]]:
    after = names_of_upstream()
    return (name for name, value in before.items() if not name[-1].startswith("_abc") and after.get(name) is not value)


@pytest.mark.parametrize("kind", KINDS)
def test_somebody_else_s_model_computes_the_same_bits_beside_and_after_a_client(kind: str) -> None:
    folder, load, ask = KINDS[kind]
    theirs, path = load(), folder()
    bits, names = np.array(theirs()), names_of_upstream()
    client = LocalOpenAI(model=path, keep_alive=0)
    try:
        ask(client)
        assert np.array_equal(np.array(theirs()), bits), "beside it"
    finally:
        client.close()
    assert list(changed(names)) == []
    assert np.array_equal(np.array(theirs()), bits), "after it"
    assert np.array_equal(np.array(load()()), bits), "loaded after it"


@pytest.mark.skipif(not on_x86_cpu(), reason="the forms for x86")
def test_what_was_applied_is_counted_by_layers() -> None:
    model, _ = mlx_lm.load(str(tiny("qwen3")))
    assert forms().prepare(model) == {
        "attention and activations without MLX's exp": 2 * len(model.layers),
        "rotary embeddings with shared cosines": len(model.layers),
    }
    assert forms().prepare(model) == {}, "once"


@pytest.mark.parametrize(("cuda", "gpu"), [(True, True), (False, True)])
def test_each_machine_has_its_own_forms(cuda: bool, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "on_cuda", lambda: cuda)
    monkeypatch.setattr(chosen, "has_gpu", lambda: gpu)
    model, _ = mlx_lm.load(str(tiny("qwen3")))
    assert forms().prepare(model) == ({"attention": len(model.layers)} if cuda else {})
