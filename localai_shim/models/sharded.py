"""Text models of mlx-lm whose weights are spread over a group of processes: each has some heads of every layer."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn

from ..engine.mirror.journal import Mirrored, mirrored
from ..engine.ports import PassOutput, StepInput
from ..options import LoadOptions
from ..types import Json, ModelLoadError
from .checkpoint.files import Checkpoint
from .text import TextModel

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_HEADS = ("num_attention_heads", "num_key_value_heads")


class ShardedModel(TextModel, Mirrored):
    """One process's part of a model. All run the same passes, on the tokens of the one with the engine."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self._group = mx.distributed.init(strict=True)
        self._before: mx.array | None = None
        """Logits of the last pass, where that may not have been launched: the next one comes behind it."""
        self.encode = self.score = None
        self.heads, self.settings, self.tasks = {}, {}, ("generate",)

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, of whose weights only this process's part will be read."""
        model, tokenizer, config = TextModel.read(path, options)
        group = mx.distributed.init(strict=True)
        try:
            model.shard(group)
        except (ValueError, AssertionError) as error:
            what = f"its layers cannot be cut into {group.size()} equal parts (tensor_parallel): {error}"
            raise ValueError(what) from error
        return model, tokenizer, config

    @mirrored
    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        made = super().prefill(step, wait=wait)
        self._before = None  # it is on its way, and what came before it
        return made

    @mirrored
    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        made = super().forward(step)
        self._before = made.logits
        return made

    def _run(self, step: StepInput, tokens: mx.array) -> PassOutput[mx.array]:
        if self._group.rank():
            tokens = mx.zeros_like(tokens)
        if self._before is not None:  # collective operations are in the same order everywhere
            tokens = mx.depends([tokens], [self._before])[0]
        return super()._run(step, mx.distributed.all_sum(tokens, group=self._group))


def evaluate_each(arrays: Sequence[mx.array]) -> None:
    """Evaluate arrays one after another: of what a part is cut from, no more than one is there at a time."""
    for array in arrays:
        mx.eval(array)


def check_shards(config: Json, name: str, size: int, *, text_only: bool = False) -> None:
    """Refuse a model that cannot be spread over this number of processes, before any of it is loaded.

    Raises:
        ModelLoadError: says which can.
    """
    kind = config.get("model_type")
    if not _can_shard(kind):
        raise ModelLoadError(
            f"tensor_parallel: models of kind '{kind}' such as '{name}' run in one process only; these can be spread "
            f"over several: {', '.join(shardable())}."
        )
    if not text_only and (config.get("vision_config") or config.get("audio_config")):
        raise ModelLoadError(
            f"tensor_parallel: only the language model of '{name}' can be spread: pass text_only=True as well."
        )
    inner: Json = config.get("text_config") or config
    for field in _HEADS:
        heads = inner.get(field)
        if isinstance(heads, int) and heads % size:
            raise ModelLoadError(
                f"tensor_parallel={size}: '{name}' has {heads} {field}, which {size} processes cannot share evenly."
            )


def shardable() -> list[str]:
    """Kinds of models that mlx-lm can spread."""
    folder = importlib.util.find_spec("mlx_lm.models")
    assert folder is not None and folder.submodule_search_locations is not None
    files = (file for place in folder.submodule_search_locations for file in sorted(Path(place).glob("*.py")))
    return [file.stem for file in files if "    def shard(self" in file.read_text(encoding="utf-8")]


def _can_shard(kind: object) -> bool:
    from mlx_lm.utils import MODEL_REMAPPING

    if not isinstance(kind, str):
        return False
    try:
        module = importlib.import_module(f"mlx_lm.models.{MODEL_REMAPPING.get(kind, kind)}")
    except ImportError:
        return False
    return hasattr(module.Model, "shard")
