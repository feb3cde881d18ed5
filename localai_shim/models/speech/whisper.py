"""Whisper: windows of thirty seconds are rows of the decode batch.

The encoder runs once for a window, as a vision encoder does for an image. The first pass of a row makes the keys and
values of its cross-attention, which the row's cache keeps and no step changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
from mlx import nn

from ...backends.machine import has_gpu
from ...engine.cache_contents import RowCache
from ...engine.ports import Features, PassOutput, StepInput, TextHead, host
from ...engine.work.alone.ports import Performer
from ...media import ProcessedMedia
from ...options import LoadOptions
from ...types import Json, ModelLoadError, Prompt, Task
from ..checkpoint.files import Checkpoint, read_json
from ..encoders import FixedModel
from .alignment import Aligner, alignment_heads
from .reading import read_whisper
from .settings import transcribing
from .text import WhisperText

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

PLACEHOLDERS = 1
"""Tokens of a prompt that the decoder does not see."""


class WhisperModel(FixedModel):
    """A Whisper model, made on the engine thread.

    Attributes: as those of `TextModel`; `text` may be used from any thread.
    """

    tasks: Sequence[Task] = ("transcribe", "align")
    libraries = ("mlx", "mlx-audio", "mlx-lm", "transformers")
    heads: Mapping[Task, TextHead] = {}
    request_defaults: Mapping[str, object] = {}
    one_token = True
    gives_hidden = False
    end_tokens = 0

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        _, model, tokenizer, config, path, _, _ = checkpoint
        dims = model.dims
        self._model, self.config, self.folder, self._forms = model, config, path, host().forms()
        self._dtype = model.decoder.ln.weight.dtype  # the machine may have widened the weights
        self._positions = model.encoder._positional_embedding.astype(self._dtype)
        self.samples_on_device, self.query_heads = has_gpu(), dims.n_text_head
        known = tokenizer._tokenizer.get_vocab()
        settings = transcribing(
            known,
            lambda text: list(tokenizer._tokenizer.encode(text, add_special_tokens=False)),
            dims.n_vocab,
            dims.n_text_ctx,
            read_json(path / "generation_config.json"),
        )
        self.settings: Mapping[Task, object] = {"transcribe": settings}
        heads = alignment_heads(read_json(path / "generation_config.json"), dims.n_text_layer, dims.n_text_head)
        self.performers: Mapping[Task, Performer] = {"align": Aligner(self, model.decoder, self._forms, heads)}
        self.eos_token_ids = frozenset({settings.end})
        self.context_length: int | None = dims.n_text_ctx + PLACEHOLDERS
        self.text = WhisperText(tokenizer, settings, dims.n_mels)

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        """A checkpoint's model, whose weights are not read yet, its tokenizer and its config."""
        for option in ("adapter_path", "kv_bits"):
            if options.get(option) is not None:
                raise ModelLoadError(f"{option}: '{path.name}' transcribes speech, and does not take this option.")
        return read_whisper(path)

    def new_cache(self) -> RowCache:
        """An empty cache for one row: keys and values of its tokens, and of its window, for each layer."""
        from mlx_lm.models.cache import CacheList, KVCache

        from ..attention.constant_arrays import ConstantArrays

        return [CacheList(KVCache(), ConstantArrays(2)) for _ in self._model.decoder.blocks]

    def embed(self, media: ProcessedMedia) -> Features:
        """Run the encoder over one window, and wait for it."""
        from .passes import encode

        mel = mx.array(media.inputs["mel"]).astype(self._dtype)
        with self._forms.waited_for():
            rows = encode(self._model.encoder, self._positions, mel[None], self._forms)[0]
        mx.eval(rows)
        return Features(rows)

    def row_state(self, prompt: Prompt) -> object | None:
        """Nothing.

        Raises:
            ValueError: the prompt does not begin with the placeholder of a window.
        """
        places = [span.places.tolist() for span in prompt.media]
        if places != [[0]]:
            raise ValueError("the first token of a prompt must be the placeholder of its window")
        return None

    def first_pass(self, prompt: Prompt) -> int:
        return 0

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        """Run tokens into the layers, and wait for it unless told not to."""
        with self._forms.waited_for():
            self._states(step)
        (mx.eval if wait else mx.async_eval)([layer.state for layer in step.layers])
        return PassOutput(None)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        """Logits after each token, `[rows, k, vocabulary]`, lazy. Those after a placeholder mean nothing."""
        with self._forms.waited_for(step.tokens.shape[1] > 1 and not self.samples_on_device):
            logits = self._model.decoder.token_embedding.as_linear(self._states(step))
        return PassOutput(logits.astype(mx.float32))

    def _states(self, step: StepInput) -> mx.array:
        from .passes import decode, hear

        decoder, layers = self._model.decoder, cast(Sequence[Any], step.layers)
        if layers[0][1][0] is None:  # trials have no window
            dims = self._model.dims
            features = mx.zeros((dims.n_audio_ctx, dims.n_audio_state), self._dtype)
            for _, its in step.media:
                features = its.rows
            hear(decoder, mx.broadcast_to(features, (len(step.tokens), *features.shape)), layers)
        return decode(decoder, step.tokens, layers, self._forms)
