"""Files of a checkpoint's folder, and what is read of them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...options import LoadOptions
from ...types import VERSION, Json, ModelLoadError

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
    "model_max_length",
)
version = cache(importlib.metadata.version)  # which parses a file
_UNLIMITED = 10**9  # transformers' stand-in for "not said" is far above this
_READ_WHOLE = (".json", ".jinja", ".txt", ".model", ".py", ".tiktoken")
_LAYERS = re.compile(r"(num_.*layers|n_?layers?|num_blocks|depth)$")
MAX_LAYERS = 10_000  # of a model: mlx-lm makes an object of each before it looks at the weights
MAX_TEXT_BYTES = 1 << 28  # of a file that is read whole: eight times the largest tokenizer


class Checkpoint(NamedTuple):
    """Contents of a checkpoint that was read, for the model that it becomes; `name` is that of `response.model`."""

    name: str
    model: nn.Module
    tokenizer: TokenizerWrapper
    config: Json
    path: Path
    options: LoadOptions
    contents: str = ""
    """See `checkpoint.contents`."""


def read_json(path: Path) -> Json:
    """A file's object; empty where there is none."""
    try:
        _check_file(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, ModelLoadError):
        return {}
    return content if isinstance(content, dict) else {}


def check_files(folder: Path) -> None:
    """Refuse a folder with a file that cannot be read to its end.

    Raises:
        ModelLoadError: names the file: it is a pipe or a device, or longer than any of its kind.
    """
    for path in sorted(folder.rglob("*")):
        try:
            _check_file(path)
        except OSError:  # a link that leads nowhere, which whoever needs the file says
            continue


def check_layers(config: Json, where: Path) -> None:
    """Refuse a config with more layers than memory has room for.

    Raises:
        ModelLoadError: names the file and the field.
    """
    for key, value in config.items():
        if isinstance(value, dict):
            check_layers(value, where)
        elif isinstance(value, int) and value > MAX_LAYERS and _LAYERS.search(key):
            raise ModelLoadError(f"'{where}': {key} is {value}, and no model has more than {MAX_LAYERS:,}.")


def _check_file(path: Path) -> None:
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise ModelLoadError(f"'{path}' is not a regular file.")
    if path.suffix in _READ_WHOLE and status.st_size > MAX_TEXT_BYTES:
        raise ModelLoadError(
            f"'{path}' is damaged: it has {status.st_size:,} bytes, and no file of its kind has more than "
            f"{MAX_TEXT_BYTES:,}."
        )


def context_length(config: Json, tokenizer: TokenizerWrapper | None) -> int | None:
    """Most tokens of a row, as its config or its tokenizer says; None where they do not."""
    for part in (config, config.get("text_config") or {}):
        for key in _CONTEXT_KEYS:
            value = part.get(key)
            if isinstance(value, int) and 0 < value < _UNLIMITED:
                return value
    value = getattr(tokenizer, "model_max_length", None)
    return int(value) if isinstance(value, int | float) and 0 < value < _UNLIMITED else None


def fingerprint(
    config: Json, contents: str, options: LoadOptions, parameters: Sequence[mx.array], libraries: Sequence[str]
) -> str:
    """A short hash of the checkpoint, its options, the back end and the libraries' versions."""
    import mlx.core as mx

    kinds = [*sorted({str(array.dtype) for array in parameters}), str(mx.default_device())]
    versions = [version(name) for name in libraries] + [VERSION]
    how = {name: options.get(name) for name in LoadOptions.__annotations__}
    what = json.dumps([config, contents, how, versions, kinds], sort_keys=True, default=str)
    return "fp_" + hashlib.sha256(what.encode()).hexdigest()[:10]
