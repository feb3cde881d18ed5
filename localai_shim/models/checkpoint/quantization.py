"""Quantization as a checkpoint's config names it, and weights that were read as something else than they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...types import Json, ModelLoadError

if TYPE_CHECKING:
    from mlx import nn

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
    import mlx.core as mx
    from mlx import nn

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
