"""Quantization as a checkpoint's config names it, for the whole model and by layer, and weights that were misread.

A converter may write a layer's name as the original checkpoint has it, which the model's code changes while it loads.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import mlx.core as mx
from mlx import nn

from ...types import Json, ModelLoadError

_NEEDED = ("group_size", "bits")
_ADVICE = (
    "Choose an MLX version of the model, or make one of its original weights: `mlx_lm.convert --hf-path MODEL "
    "--quantize`"
)


def check_quantization(config: Json) -> None:
    """Refuse settings of quantization that are none.

    Raises:
        ModelLoadError: names the field of config.json.
    """
    own = config.get("quantization")
    if own is not None:
        _check_own(own)
        return
    for name, part in (("", config), ("text_config.", config.get("text_config"))):
        given = part.get("quantization_config") if isinstance(part, dict) else None
        if not given:
            continue
        where = f"config.json: '{name}quantization_config'"
        if not isinstance(given, dict):
            raise ModelLoadError(f"{where} is {given!r:.100}, not an object.")
        if not isinstance(given.get("quant_method"), str):
            raise ModelLoadError(
                f"{where} has no 'quant_method', which says what was done to the weights. If they are MLX's, with "
                "'group_size' and 'bits', the field's name has to be 'quantization'."
            )


def _check_own(given: object) -> None:
    """Refuse settings that are not MLX's."""
    where = "config.json: 'quantization'"
    if not isinstance(given, dict):
        raise ModelLoadError(f"{where} is {given!r:.100}, not an object.")
    if missing := [name for name in _NEEDED if name not in given]:
        raise ModelLoadError(f"{where} lacks '{missing[0]}'.")
    for layer, settings in (("", given), *((key, value) for key, value in given.items() if isinstance(value, dict))):
        for name in _NEEDED:
            value = settings.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 16:
                raise ModelLoadError(f"{where}: '{name}' of {layer or 'all layers'} is {value!r:.100}.")


def quantization_error(config: Json, text: str, why: str) -> str | None:
    """The reason why no model could be made of weights, if they are quantized in another form; None if they are not.

    Args:
        config: of the checkpoint.
        text: of the error that upstream's code raised.
        why: the same for people.
    """
    if (method := _method(config)) is not None:
        return (
            f"its weights are quantized as '{method:.100}' (config.json: quantization_config), in a form that cannot "
            f"be read ({why}). {_ADVICE}."
        )
    if "not in model" in text and ".scales" in text and config.get("quantization") is None:
        return (
            f"its weights are quantized, but config.json has no 'quantization' with their group_size and bits ({why}). "
            "Copy config.json again from where the weights come from."
        )
    return None


def _method(config: Json) -> str | None:
    """The method by which others than MLX have quantized the weights; None if they have not."""
    for part in (config, config.get("text_config")):
        given = part.get("quantization_config") if isinstance(part, dict) else None
        if isinstance(given, dict) and config.get("quantization") is None:
            method = given.get("quant_method")
            return str(method) if method else None
    return None


def check_numbers(model: nn.Module, config: Json) -> None:
    """Refuse weights that are integers where a layer multiplies with them as they are.

    Upstream's loading checks names and shapes, and no types: bytes of float8 whose scales have another name would be
    taken for numbers.

    Raises:
        ModelLoadError: names the tensor.
    """
    plain = (nn.Linear, nn.Embedding, nn.RMSNorm, nn.LayerNorm, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    for path, layer in model.named_modules():
        if type(layer) not in plain:
            continue
        for name in ("weight", "bias"):
            array = layer.get(name)
            if array is not None and not mx.issubdtype(array.dtype, mx.floating):
                method = _method(config)
                how = "" if method is None else f" Its config names the quantization '{method:.100}'."
                raise ModelLoadError(
                    f"'{path}.{name}' holds integers of the type {array.dtype} where the model multiplies with "
                    f"numbers: its weights are quantized in a form that cannot be read.{how} {_ADVICE}."
                )


log = logging.getLogger("localai_shim")

_MAX_NAMED = 3
_OUTER = ("model", "language_model")
_PARTS = ("weight", "scales", "biases")


def _short(layer: str) -> str:
    """A layer's name without the parts that differ between forms of a checkpoint."""
    return ".".join(part for part in layer.split(".") if part not in _OUTER)


def with_layers_names(
    quantization: Json, layers: Mapping[str, str], raw: Mapping[str, mx.array], weights: Mapping[str, mx.array]
) -> Json:
    """Settings whose layers have the model's names; a log line names those of no layer.

    Args:
        quantization: of a config.
        layers: names by which upstream's code finds settings, and the layers that have them.
        raw: tensors by the checkpoint's names.
        weights: the same ones by the model's.
    """
    named = {id(array): name.rpartition(".")[0] for name, array in weights.items()}
    paths = set(layers.values())
    short = Counter(_short(path) for path in paths)
    only = {name: path for path in paths if short[name := _short(path)] == 1}
    made, lost = dict(quantization), []
    for layer, settings in quantization.items():
        if not isinstance(settings, dict | bool) or layer in layers:
            continue
        arrays = [raw[name] for part in _PARTS if (name := f"{layer}.{part}") in raw]
        places = {named.get(id(array)) for array in arrays} or {only.get(_short(layer))}
        place = places.pop() if len(places) == 1 else None
        if place is None:
            lost += [layer] if isinstance(settings, dict) else []
        elif place in layers:  # any other one is of a part that is skipped
            made.setdefault(place, settings)
    if lost:
        more = f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
        log.warning(
            "config.json: 'quantization' has settings for layers that the model does not have: %s%s",
            ", ".join(lost[:_MAX_NAMED]),
            more,
        )
    return made
