"""A GGUF file as a checkpoint: its model, its tokenizer and its config. Nothing is written anywhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ...types import Json
from .config import read_config, read_sampling
from .header import Header, read_header
from .tokenizer import end_tokens, read_tokenizer
from .weights import read_model

if TYPE_CHECKING:
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

log = logging.getLogger("localai_shim")

_ENCODERS = "mmproj*.gguf"
SAMPLING = "generation"
"""Key of a file's config for what the generation_config.json of a folder says."""


def read_checkpoint(file: Path) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """A file's model, its tokenizer and its config.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    header = read_header(file)
    _log_encoder(file)
    config = {**read_config(header), "eos_token_id": end_tokens(header), SAMPLING: read_sampling(header)}
    tokenizer = _wrapped(header)
    return read_model(header, config), tokenizer, config


def read_wrapped_tokenizer(file: Path) -> TokenizerWrapper:
    """A file's tokenizer and chat template alone.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    return _wrapped(read_header(file))


def _log_encoder(file: Path) -> None:
    """Log that a model's vision encoder, which is a file in the same folder, is not used."""
    if (encoder := next(file.parent.glob(_ENCODERS), None)) is not None:
        log.info(
            "'%s' is loaded as a text model: the vision encoder in '%s' is not used. For images, use an MLX folder",
            file.name,
            encoder.name,
        )


def _wrapped(header: Header) -> TokenizerWrapper:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    wrapped: TokenizerWrapper = TokenizerWrapper(read_tokenizer(header), eos_token_ids=end_tokens(header))
    return wrapped
