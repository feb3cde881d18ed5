"""Finds the head of a loaded model, and makes it ready to draft.

Hugging Face's files of Qwen's heads hold what is added to 1, and MLX's the factors of norms themselves. A head whose
norms are off by 1 computes, but its drafts are wrong.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn

from ...engine.ports import host
from ...types import Json, ModelLoadError
from ..checkpoint.files import read_json
from ..config.reading import query_heads
from ..gguf.detection import is_gguf
from ..misreading_layers import batch_attention
from .files import Form, HeadTensors, find_tensors, without_fp8
from .head import MTPHead
from .layers import ARRAY_MASKS, FAMILIES, QWEN, load, make_parts, renamed

if TYPE_CHECKING:
    from ..text import TextModel

MAX_DELTA_MEAN = 1.3  # of the norms of queries and keys: about 0.8 as what is added to 1, and 1.8 as factors
MAX_FACTOR_MEAN = 2.4  # of a model's norms of queries: above, 1 was added twice
_DECIDING = ("q_norm.weight", "k_norm.weight")


def as_factors(tensors: dict[str, mx.array], form: Form) -> tuple[dict[str, mx.array], bool]:
    """A head's tensors with norms as MLX multiplies by them, and whether 1 was added.

    Args:
        tensors: of a head.
        form: of the file. If it does not say, the norms of queries and keys decide: their means are apart. Those of
            `pre_fc_norm_*` are below 0.5 in both forms.
    """
    adds = form == "hf" or (form is None and _are_deltas(tensors))
    if not adds:
        return tensors, False
    return {name: array + 1 if _is_norm(name, array) else array for name, array in tensors.items()}, True


def mean_of(norm: mx.array) -> float:
    """Mean of a norm's factors."""
    mean = norm.astype(mx.float32).mean().item()
    assert isinstance(mean, float)
    return mean


def _are_deltas(tensors: dict[str, mx.array]) -> bool:
    means = [mean_of(array) for name, array in tensors.items() if name.endswith(_DECIDING)]
    return bool(means) and sum(means) / len(means) < MAX_DELTA_MEAN


def _is_norm(name: str, array: mx.array) -> bool:
    return array.ndim == 1 and "norm" in name.rpartition(".")[0].rpartition(".")[2]


log = logging.getLogger("localai_shim")

_DECLARED = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


def find_head(model: TextModel) -> MTPHead | None:
    """The head in a model's folder; None if there is none that can be used.

    A log line says if the config declares one that is not there, or if it cannot be used.
    """
    if not _is_declared(model.config) and _kind(model) is None:
        return None
    folder = model.folder
    if not (is_gguf(folder) or folder.is_dir()) or not model.gives_hidden:
        return None
    if _kind(model) is None:
        log.info("'%s' declares an MTP head. Heads of this architecture are not supported: none drafts", model.name)
        return None
    try:
        found = _found(folder, model)
        if found is not None:
            return _make(model, found)
    except Exception as error:
        log.warning("the MTP head of '%s' cannot be used, and none drafts: %s", model.name, error)
        return None
    if _is_declared(model.config):
        log.info(
            "the config of '%s' declares an MTP head, which its conversion has dropped: none drafts. If you want its "
            "drafts, pass `draft_model` the original checkpoint, or a folder or Hub ID with the head alone",
            model.name,
        )
    return None


def _found(path: Path, model: TextModel) -> HeadTensors | None:
    """The tensors of a head in a model's own files."""
    if not is_gguf(path):
        return find_tensors(path, _text(model.config)["num_hidden_layers"])
    from ..gguf.header import read_header
    from ..gguf.weights import read_head

    kind, tensors = _kind(model), read_head(read_header(path))
    return HeadTensors(renamed(kind, tensors), "mlx", path.name, {}) if kind and tensors else None


def head_in(folder: Path, model: TextModel) -> MTPHead | None:
    """The head for a model in another folder; None if the folder has none, or is of a model of another size.

    Raises:
        ModelLoadError: it has one for this model, which cannot be used.
    """
    kind = _kind(model)
    if not folder.is_dir():
        return None
    config, text = read_json(folder / "config.json"), _text(model.config)
    alone = not config or str(config.get("model_type", "")).endswith("_mtp")
    theirs = _text(config)
    if not alone and any(theirs.get(key) != text.get(key) for key in ("hidden_size", "num_hidden_layers")):
        return None
    found = None if kind is None else find_tensors(folder, text["num_hidden_layers"])
    if found is None and not alone:
        return None
    try:
        if found is None:
            what = "it has no tensors of a head" if kind else "heads of this model's architecture are not supported"
            raise ValueError(what)
        if not model.gives_hidden:
            raise ValueError("the model gives no hidden states")
        return _make(model, found)
    except Exception as error:
        raise ModelLoadError(f"draft_model: the MTP head in '{folder.name}' cannot draft: {error}") from error


def _make(model: TextModel, found: HeadTensors) -> MTPHead:
    """Make a head of its tensors.

    Raises:
        ValueError: it does not fit the model.
    """
    kind = _kind(model)
    assert kind is not None
    tensors, added, doubt = without_fp8(found.tensors), False, "Probably it belongs to other weights"
    if FAMILIES[kind] is QWEN:
        _check_trunk(model.decoder)
        tensors, added = as_factors(tensors, found.form)
        how = "1 was added to its norms" if added else "its norms were used as they are"
        doubt = f"Probably its norms are of the other form ({how}), or it belongs to other weights"
    parts = make_parts(kind, _text(model.config), tensors)
    load(parts)
    batch_attention(parts.module)
    host().forms().prepare(parts.module)
    head = MTPHead(
        model.name,
        parts.module,
        model.decoder,
        query_heads=query_heads(model.config),
        doubt=doubt,
        array_masks=kind in ARRAY_MASKS,
        before_norm=FAMILIES[kind].before_norm,
    )
    log.info("an MTP head drafts for '%s': %s (%.3g MB)", model.name, found.where, head.weight_bytes / 1e6)
    return head


def _check_trunk(decoder: nn.Module) -> None:
    """Refuse a model whose norms had 1 added twice: its answers are bad already, and no guess is right.

    Raises:
        ValueError: says so.
    """
    norm = next((each.q_norm for _, each in decoder.named_modules() if hasattr(each, "q_norm")), None)
    if norm is not None and mean_of(norm.weight) > MAX_FACTOR_MEAN:
        raise ValueError("the model's own norms are too large, as if 1 had been added to them twice")


def _text(config: Json) -> Json:
    """The part of a config that describes the text model."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _is_declared(config: Json) -> bool:
    text = _text(config)
    return any(isinstance(text.get(key), int) and text[key] > 0 for key in _DECLARED)


def _kind(model: TextModel) -> str | None:
    """The kind of a model whose heads are read."""
    kind = model.config.get("model_type")
    if isinstance(kind, str) and kind.removesuffix("_text") in FAMILIES:
        return kind.removesuffix("_text")
    return None
