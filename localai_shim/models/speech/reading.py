"""Reads Whisper's folders: in MLX's form, quantized or not, and in that of transformers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn

from ...options import Search
from ...types import Json, ModelLoadError
from ..checkpoint.completeness import check_weights
from ..checkpoint.files import MAX_LAYERS, read_json
from .listening import WINDOW_FRAMES

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

log = logging.getLogger("localai_shim")

_MLX_KEYS = ("n_mels", "n_audio_state", "n_text_state")
"""Keys of a config in MLX's form, which has no `model_type`, or one that converters wrote."""
_PATTERNS = ("model.safetensors", "model-*-of-*.safetensors", "weights*.safetensors", "*.safetensors")
"""Files of weights; the first pattern that a folder has counts: some have the same in float32, too."""
_ARCHIVE = "weights.npz"
_NOT_WEIGHTS = ("proj_out.weight", "alignment_heads", "decoder.mask")
"""Tensors of some folders that the model has otherwise: its output layer is the embedding."""
_POSITIONS = ("encoder.embed_positions.weight", "encoder.positional_embedding")
_MEANINGS = {"activation_function": "gelu", "scale_embedding": False}
"""Settings that transformers' config may have, and the values that are computed here."""
_TOKENIZER = "tokenizer.json"
_OF_OPENAI = {51_864: "openai/whisper-tiny.en", 51_865: "openai/whisper-tiny", 51_866: "openai/whisper-large-v3"}
"""By number of tokens, checkpoints whose tokenizer fits. Many folders in MLX's form have none."""


def is_whisper(config: Json) -> bool:
    """True if a config.json is that of a Whisper model."""
    return config.get("model_type") == "whisper" or all(key in config for key in _MLX_KEYS)


def check_whisper(folder: Path) -> None:
    """Refuse a folder without tokenizer, or whose weights are not all there.

    Raises:
        IncompleteError: names the files.
        ModelLoadError: it has no tokenizer; says which one it needs.
    """
    if tokenizer_file(folder) is None:
        raise _without_tokenizer(folder)
    if not (folder / _ARCHIVE).exists() or any(folder.glob("*.safetensors")):
        check_weights(folder, _pattern(folder))


def tokenizer_file(folder: Path) -> Path | None:
    """A folder's tokenizer, or else that of OpenAI's checkpoint with its vocabulary; None: neither is here."""
    from huggingface_hub import try_to_load_from_cache

    if (folder / _TOKENIZER).exists():
        return folder / _TOKENIZER
    repository = _repository(folder)
    found = None if repository is None else try_to_load_from_cache(repository, _TOKENIZER)
    return Path(found) if isinstance(found, str) else None


def fetch_tokenizer(folder: Path, search: Search) -> None:
    """Fetch the tokenizer of OpenAI's checkpoint for a folder that has none.

    Raises:
        ModelLoadError: it cannot be had; says what to do.
    """
    from huggingface_hub import hf_hub_download

    repository = _repository(folder)
    if tokenizer_file(folder) is not None or repository is None or search.offline:
        return
    log.info("'%s' has no %s: that of %s is used, which has the same vocabulary", folder.name, _TOKENIZER, repository)
    try:
        hf_hub_download(repository, _TOKENIZER)
    except Exception as error:
        raise _without_tokenizer(folder) from error


def _repository(folder: Path) -> str | None:
    config = read_json(folder / "config.json")
    return _OF_OPENAI.get(config.get("n_vocab") or config.get("vocab_size") or 0)


def _without_tokenizer(folder: Path) -> ModelLoadError:
    repository = _repository(folder)
    if repository is None:
        what = "Copy it from the checkpoint that it was made of"
        return ModelLoadError(f"its folder has no {_TOKENIZER}. {what}, such as openai/whisper-large-v3")
    return ModelLoadError(
        f"its folder has no {_TOKENIZER}, and that of {repository}, which has the same vocabulary, is not on this "
        f"machine. Run `hf download {repository} {_TOKENIZER}`",
        transient=True,
    )


def _pattern(folder: Path) -> str:
    return next((pattern for pattern in _PATTERNS if any(folder.glob(pattern))), _PATTERNS[-1])


def read_whisper(folder: Path) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """mlx-audio's model, whose weights are not computed yet, the tokenizer, and the config.

    Raises:
        ModelLoadError: the folder holds another model than its config says; names the field or the tensor.
    """
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    config = read_json(folder / "config.json")
    for key, value in _MEANINGS.items():
        if config.get(key, value) != value:
            raise ModelLoadError(f"config.json: {key} is {config[key]!r}, and only {value!r} is computed")
    dims = ModelDimensions.from_dict(config)
    _check_dims(dims)
    weights = _weights(folder)
    dtype = _dtype(weights)
    model = Model(dims, dtype)
    positions = next((weights.pop(name) for name in _POSITIONS if name in weights), None)
    weights = {f"model.{name}": array for name, array in weights.items()} if _is_transformers(weights) else weights
    weights = model.sanitize(weights)
    if isinstance(bits := config.get("quantization"), dict):
        how = {key: bits[key] for key in ("group_size", "bits", "mode") if key in bits}
        nn.quantize(model, **how, class_predicate=lambda path, layer: _is_packed(layer, path, weights))
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise ModelLoadError(f"its tensors are not those of a Whisper model of this config: {error}") from error
    if positions is not None:
        _set_positions(model, positions.astype(dtype))
    model.eval()
    return model, _tokenizer(folder), config


def _check_dims(dims: object) -> None:
    names = [name for name in vars(dims) if name.startswith("n_")]
    wrong = next((name for name in names if not isinstance(n := getattr(dims, name), int) or n < 1), None)
    if wrong is not None:
        raise ModelLoadError(f"config.json: {wrong} is {getattr(dims, wrong)!r}, and must be a positive number")
    layers = max(dims.n_audio_layer, dims.n_text_layer)  # type: ignore[attr-defined]
    if layers > MAX_LAYERS:
        raise ModelLoadError(f"config.json: {layers} layers are more than any model has ({MAX_LAYERS:,})")
    if dims.n_audio_ctx * 2 != WINDOW_FRAMES:  # type: ignore[attr-defined]
        raise ModelLoadError(
            f"config.json: the encoder makes {dims.n_audio_ctx} features of a window, "  # type: ignore[attr-defined]
            f"and {WINDOW_FRAMES // 2} are made of its {WINDOW_FRAMES} frames"
        )


def _weights(folder: Path) -> dict[str, mx.array]:
    """The tensors of a folder's files; names have no `model.` in front."""
    files = sorted(folder.glob(_pattern(folder))) or [folder / _ARCHIVE]
    found: dict[str, mx.array] = {}
    for file in files:
        loaded = mx.load(str(file))
        assert isinstance(loaded, dict)
        found.update(loaded)
    plain = {name.removeprefix("model."): array for name, array in found.items()}
    return {name: array for name, array in plain.items() if name not in _NOT_WEIGHTS}


def _is_transformers(weights: Mapping[str, mx.array]) -> bool:
    return any(".layers." in name for name in weights)


def _dtype(weights: Mapping[str, mx.array]) -> mx.Dtype:
    """The type that a checkpoint computes in: its norms are never packed."""
    known = next((array for name, array in weights.items() if name.endswith("_ln.weight") or "norm." in name), None)
    return mx.float32 if known is None else known.dtype


def _is_packed(layer: nn.Module, path: str, weights: Mapping[str, mx.array]) -> bool:
    return hasattr(layer, "to_quantized") and f"{path}.scales" in weights


def _set_positions(model: nn.Module, positions: mx.array) -> None:
    """Use the encoder's positions that a checkpoint has instead of computed ones."""
    known = model.encoder._positional_embedding
    if positions.shape != known.shape:
        raise ModelLoadError(f"'{_POSITIONS[0]}' has the shape {positions.shape}, and the model {known.shape}")
    model.encoder._positional_embedding = positions


def _tokenizer(folder: Path) -> TokenizerWrapper:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerFast

    file = tokenizer_file(folder)
    if file is None:
        raise _without_tokenizer(folder)
    try:
        made = PreTrainedTokenizerFast(tokenizer_file=str(file), eos_token="<|endoftext|>")
    except Exception as error:
        raise ModelLoadError(f"'{file.name}' cannot be read: {error}") from error
    made.clean_up_tokenization_spaces = False
    return TokenizerWrapper(made)
