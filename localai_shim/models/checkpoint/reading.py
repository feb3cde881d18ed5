"""Checks of a config.json before upstream's code reads it, and errors of that code with the names of files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ...backends.machine import is_out_of_memory
from ...types import Json, ModelLoadError
from .quantization import quantization_error

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
    if (not isinstance(kind, str) or not kind) and not config.get("model_file"):  # its own code names it
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


MAX_SHOWN = 500  # characters of what upstream says: some of it lists all tensors
_CONFIG = re.compile(r"transformers\.(models\..*\.configuration_\w+|configuration_utils)")
_TOKENIZER = "mlx_lm.tokenizer_utils"


@contextlib.contextmanager
def naming_files(config: Json) -> Iterator[None]:
    """Say which files upstream's code could not read, if it raises its own error.

    Raises:
        ModelLoadError: names the files, and the quantization if that is the reason.
    """
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, OSError | ImportError):
            raise
        modules = _modules(error)
        if any(_CONFIG.fullmatch(name) for name in modules):
            what = (
                f"config.json has values that transformers refuses ({shown(error)}). Copy config.json again from where "
                "the weights come from, or correct it."
            )
        elif _TOKENIZER in modules:
            what = f"its tokenizer (tokenizer.json, tokenizer_config.json) cannot be read ({shown(error)})."
        else:
            what = quantization_error(config, str(error), shown(error)) or (
                f"config.json and the weights make no model ({shown(error)})."
            )
        raise ModelLoadError(what) from error


def shown(error: Exception) -> str:
    """An error's type and text, which may be as long as a list of all tensors."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + ' ...'}"


def _modules(error: Exception) -> set[str]:
    """Names of the modules whose code an error went through."""
    found, trace = set(), error.__traceback__
    while trace is not None:
        found.add(str(trace.tb_frame.f_globals.get("__name__")))
        trace = trace.tb_next
    return found
