"""Vectors of every kind of checkpoint are sentence-transformers', from files through the client to the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from localai_shim import LocalOpenAI
from tests.embedding_models import CONFIGS, SLIDING_WINDOW, tiny_embedder
from tests.embedding_oracle import EMBEDDERS, TEXTS, recorded

Vectors = npt.NDArray[np.float64]


def unit(vectors: Any) -> Vectors:
    made = np.array(vectors)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def embedded(client: LocalOpenAI, texts: Any, **more: Any) -> Vectors:
    response = client.embeddings.create(model="m", input=texts, encoding_format="float", **more)
    return np.array([each.embedding for each in response.data])


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_those_of_sentence_transformers(name: str) -> None:
    expected = recorded()["embeddings"][name]
    with LocalOpenAI(model=tiny_embedder(**EMBEDDERS[name]), keep_alive=0) as client:
        together = embedded(client, TEXTS, extra_body={"truncate": True})
        alone = np.concatenate([embedded(client, text, extra_body={"truncate": True}) for text in TEXTS])
    np.testing.assert_allclose(together, unit(expected["vectors"]), atol=3e-6)
    np.testing.assert_allclose(alone, unit(expected["vectors"]), atol=3e-6)


@pytest.mark.parametrize("name", ["bert", "modernbert", "xlm-roberta", "qwen3", "gemma3_text"])
def test_token_ids_of_the_models_own_have_the_same_vectors(name: str) -> None:
    expected = recorded()["embeddings"][name]
    with LocalOpenAI(model=tiny_embedder(**EMBEDDERS[name]), keep_alive=0) as client:
        np.testing.assert_allclose(embedded(client, expected["tokens"]), unit(expected["vectors"]), atol=3e-6)


def test_what_the_recording_covers() -> None:
    lengths = {name: max(map(len, each["tokens"])) for name, each in recorded()["embeddings"].items()}
    assert lengths["gemma3_text"] > SLIDING_WINDOW // 2 + 1  # a token cannot see all others
    assert lengths["modernbert"] > CONFIGS["modernbert"]["local_attention"] // 2 + 1
    assert lengths["bert, sixteen tokens"] > 16
    assert recorded()["embeddings"].keys() == EMBEDDERS.keys()
