"""Heads of saved models, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.mtp.head import MTPHead
from localai_shim.models.text import TextModel
from tests import heads

Tensors = dict[str, Any]


def loaded(folder: Path, draft: Path | None = None) -> tuple[TextModel, MTPHead | None]:
    """A model, and the head that drafts for it."""
    model = load_model(str(folder), {})
    assert isinstance(model, TextModel)
    head = load_draft_model(None if draft is None else str(draft), {}, model)
    assert head is None or isinstance(head, MTPHead)
    return model, head


def with_telling_norms(tensors: Tensors) -> Tensors:
    """Norms of queries and keys as trained ones are: 1.8 on average as factors."""
    return {
        name: array * 0 + 1.8 if name.endswith(("q_norm.weight", "k_norm.weight")) else array
        for name, array in tensors.items()
    }


def parts(kind: str) -> tuple[Tensors, Tensors, dict[str, Any]]:
    """A model's tensors, its head's, and the config."""
    weights, config = heads.trunk(kind)
    return weights, with_telling_norms(heads.head(kind, weights, config, agrees=False)), config


def logits(pair: tuple[TextModel, MTPHead | None], width: int = 64) -> np.ndarray[Any, Any]:
    """Logits of a model's head for some tokens and states."""
    _, head = pair
    assert head is not None
    mx.random.seed(3)
    made = head.forward(mx.array([[5, 9, 31]]), mx.random.normal((1, 3, width)), head.new_cache(), [2])
    return np.array(made.logits)
