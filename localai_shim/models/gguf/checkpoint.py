"""A GGUF file as a checkpoint: its model, its tokenizer and its config. Nothing is written anywhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlx import nn

from ...types import Json, ModelLoadError
from .config import read_config, read_sampling
from .encoder_files import find_encoder
from .encoders.description import HAS_AUDIO
from .header import Header, read_header
from .tokenizer import end_tokens, read_tokenizer
from .vision import VisionFile, open_encoder
from .weights import read_arrays, read_model

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import ProcessorMixin

log = logging.getLogger("localai_shim")

SAMPLING = "generation"
"""Key of a file's config for what the generation_config.json of a folder says."""


def read_checkpoint(file: Path) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """A file's model, its tokenizer and its config.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    header = read_header(file)
    encoder, why = find_encoder(file)
    if encoder is not None:
        why = f"the vision encoder in '{encoder.name}' is not used, because text_only=True was passed"
    if why:
        log.info("'%s' is loaded as a text model: %s", file.name, why)
    config = {**read_config(header), **_general(header)}
    tokenizer = _wrapped(header)
    return read_model(header, config), tokenizer, config


def read_seeing_checkpoint(file: Path) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """The same with the vision encoder in another file, as mlx-vlm has it.

    Raises:
        ModelLoadError: one of the files cannot be read.
    """
    header = read_header(file)
    text, tokenizer = read_config(header), _wrapped(header)
    with _errors_of_encoder():
        encoder = _encoder(file)
        config = {**encoder.config(header, text), **_general(header), **encoder.token_ids(tokenizer)}
    arrays, packings = read_arrays(header, text)
    with _errors_of_encoder():
        model = encoder.read_model(config, arrays, packings)
    log.info("'%s' reads images with the vision encoder in '%s'", file.name, encoder.header.path.name)
    if encoder.header.get(HAS_AUDIO, False) and config.get("audio_config") is None:
        log.info("'%s' does not read audio: the audio encoder in the same file is skipped", file.name)
    return model, tokenizer, config


@contextlib.contextmanager
def _errors_of_encoder() -> Iterator[None]:
    """Say in errors how the language model can be loaded without the encoder."""
    try:
        yield
    except ModelLoadError as error:
        what = f"{str(error).removesuffix('.')}. Pass text_only=True to load the model without its vision encoder."
        raise ModelLoadError(what, missing=error.missing, transient=error.transient) from error


def read_processor(file: Path) -> ProcessorMixin:
    """The processor of a model's images, with its own tokenizer.

    Raises:
        ModelLoadError: one of the files cannot be read.
    """
    header, encoder = read_header(file), _encoder(file)
    return encoder.processor(read_tokenizer(header), encoder.config(header, read_config(header)))


def _general(header: Header) -> Json:
    return {"eos_token_id": end_tokens(header), SAMPLING: read_sampling(header)}


def _encoder(file: Path) -> VisionFile:
    encoder, why = find_encoder(file)
    if encoder is None:
        raise ModelLoadError(why or f"the vision encoder of '{file}' is gone", transient=True)
    return open_encoder(encoder)


def read_wrapped_tokenizer(file: Path) -> TokenizerWrapper:
    """A file's tokenizer and chat template alone.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    return _wrapped(read_header(file))


def _wrapped(header: Header) -> TokenizerWrapper:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    wrapped: TokenizerWrapper = TokenizerWrapper(read_tokenizer(header), eos_token_ids=end_tokens(header))
    return wrapped
