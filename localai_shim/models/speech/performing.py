"""Parts that models which speak and models which write down speech have in common."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mlx import nn

from ...engine.ports import TextHead
from ...engine.work.alone.ports import Performer
from ...options import LoadOptions
from ...types import Json, ModelLoadError, Task
from ..checkpoint.files import Checkpoint, read_json
from ..encoders import FixedModel
from ..text import TextTokenizer
from .families import Kind, check_packages, model_type
from .offline import offline

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

log = logging.getLogger("localai_shim")

_VOCABULARY = "tokenizer.json"
_SHOWN = 500  # characters of a message with the names of tensors
_MISSING = "Missing "  # begins MLX's message about tensors that a checkpoint lacks
_ADDED_LATER = frozenset({"mms"})
"""Families of which some tensors are in other files than the rest."""


class SpeechModel(FixedModel):
    """A model of mlx-audio, which runs one request at a time through its own `generate`.

    Args:
        checkpoint: its tokenizer may be one of bytes.
        task: the only one that it serves.
        settings: for endpoints.
        performer: does the work.
    """

    kind: ClassVar[Kind]
    what = "a model of speech"
    libraries = ("mlx", "mlx-audio")
    context_length: int | None = None

    def __init__(self, checkpoint: Checkpoint, task: Task, settings: object, performer: Performer) -> None:
        super().__init__(checkpoint)
        self.tasks: Sequence[Task] = (task,)
        self.heads: Mapping[Task, TextHead] = {}
        self.performers: Mapping[Task, Performer] = {task: performer}
        self.settings: Mapping[Task, object] = {task: settings}
        self.text = TextTokenizer(checkpoint.tokenizer, True)

    @classmethod
    def read(cls, path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config.

        Raises:
            ModelLoadError: a file or a package is missing; names it. Or it takes what it cannot be given.
        """
        if options.get("adapter_path") is not None:
            raise ModelLoadError(f"adapter_path: '{path.name}' is a model of speech, and takes no LoRA adapters.")
        config = read_json(path / "config.json")
        name = model_type(config) or ""
        with offline(path.name):
            model = _load(path, cls.kind, name)
            family = family_of(model)
            check_packages(family, path.name)
            tokenizer = _load_tokenizer(path)
        return model, tokenizer, config


def family_of(model: nn.Module) -> str:
    """The name of mlx-audio's folder that a model's class is in."""
    parts = type(model).__module__.split(".")
    return parts[parts.index("models") + 1]


def named_arguments(function: Callable[..., object]) -> frozenset[str]:
    """Names that a function takes by themselves, without those that `**kwargs` takes."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds)


def check_parts(model: nn.Module, name: str, parts: Mapping[str, Sequence[str]]) -> None:
    """Refuse a model that upstream loads without a part that it needs.

    Args:
        model: mlx-audio's.
        name: for the error.
        parts: files -> attributes of which one must not be None.

    Raises:
        ModelLoadError: names the files.
    """
    for files, attributes in parts.items():
        if all(getattr(model, attribute, None) is None for attribute in attributes):
            raise ModelLoadError(f"the model '{name}' has no {files}, or it cannot be read. Copy it from the original")


def _load(path: Path, kind: Kind, name: str) -> nn.Module:
    """A model by mlx-audio's own code. Tensors that it does not know are logged; those that it lacks are an error."""
    from mlx_audio.stt import utils as stt
    from mlx_audio.tts import utils as tts

    load: Callable[..., nn.Module] = {"tts": tts, "stt": stt}[kind].load_model
    how = {"lazy": True, "model_type": name, "model_name_parts": []}
    check_packages(name, path.name)
    try:
        model = load(path, strict=name not in _ADDED_LATER, **how)
    except ValueError as error:
        if str(error).startswith(_MISSING):
            raise ModelLoadError(f"it lacks tensors: {_short(error)}") from error
        if "parameters not in model" not in str(error):
            raise
        log.warning("'%s' has tensors that mlx-audio does not read: %s", path.name, _short(error))
        model = load(path, strict=False, **how)
    return model


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_SHOWN]


def _load_tokenizer(path: Path) -> TokenizerWrapper:
    """The tokenizer of a folder; one of bytes if it has none that transformers knows."""
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_lm.utils import load_tokenizer
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if (path / _VOCABULARY).is_file():
        return load_tokenizer(path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=made))
