"""Fields of a config.json that decide what is made of a model, before upstream's code trips over them."""

from __future__ import annotations

from ...types import Json, ModelLoadError

_SIZES = (
    "hidden_size",
    "head_dim",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
"""Numbers, or lists of numbers by layer."""
_MAX_SIZE = (1 << 31) - 1  # as MLX counts
_PARTS = ("", "text_config", "vision_config", "audio_config")


def check_fields(config: Json) -> None:
    """Refuse fields of a type or a size that no model has.

    Raises:
        ModelLoadError: names the field.
    """
    kind = config.get("model_type") or config.get("speculators_model_type")
    if (not isinstance(kind, str) or not kind) and not config.get("model_file"):  # code of its own needs no name
        why = "has no 'model_type'" if not kind else f"has the 'model_type' {kind!r:.100}"
        raise ModelLoadError(f"config.json {why}: it does not say of which architecture the model is.")
    names = config.get("architectures")
    if names is not None and not (
        isinstance(names, str) or (isinstance(names, list) and all(isinstance(name, str) for name in names))
    ):
        raise ModelLoadError(f"config.json: 'architectures' is {names!r:.100}, not a list of names.")
    for part in _PARTS:
        fields = config.get(part) if part else config
        if not isinstance(fields, dict):
            if fields is not None and part != "audio_config" and part != "vision_config":
                raise ModelLoadError(f"config.json: '{part}' is {fields!r:.100}, not an object.")
            continue
        for name in _SIZES:
            value = fields.get(name)
            if value is not None and not all(map(_is_size, value if isinstance(value, list) else [value])):
                where = f"{part}.{name}" if part else name
                raise ModelLoadError(f"config.json: '{where}' is {value!r:.100}, not a whole number.")


def check_ends(fields: Json, name: str) -> None:
    """Refuse ends of sequence that are no ids.

    Args:
        fields: of a file.
        name: the file's.

    Raises:
        ModelLoadError: names the file.
    """
    for part in ("", "text_config"):
        inner = fields.get(part) if part else fields
        ends = inner.get("eos_token_id") if isinstance(inner, dict) else None
        if ends is not None and not all(map(_is_size, ends if isinstance(ends, list) else [ends])):
            where = f"{part}.eos_token_id" if part else "eos_token_id"
            raise ModelLoadError(f"{name}: '{where}' is {ends!r:.100}, not the id of a token, or a list of ids.")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SIZE
