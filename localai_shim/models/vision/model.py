"""Models of mlx-vlm: images, videos and audio with text.

The tower runs for one item, whose features are those that it has in any prompt; a chunk's embeddings are those of its
tokens with these rows in their places, and live as long as the pass. Positions are made once, when a row's prefill
begins, and handed over in each pass: nothing of a request is kept on the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...engine.cache_contents import RowCache
from ...engine.ports import Features, PassOutput, StepInput
from ...media import ProcessedMedia
from ...options import LoadOptions
from ...types import Json, Prompt
from ..attention.prompt_rings import PromptRing
from ..checkpoint.files import Checkpoint
from ..config.reading import load_vision_model
from ..gguf.checkpoint import read_seeing_checkpoint
from ..gguf.detection import is_gguf
from ..text import TextModel
from .families import NEGATIVE_IDS, NUMBERS_LAST, ONE_NUMBER, UNSCALED, load_processor, template_beside
from .pixels import Levels
from .positions import StepPositions, offset_of, row_positions
from .processor import MediaProcessor, VisionTokenizer

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_vlm.models.base import InputEmbeddingsFeatures

# What some models keep of the request that they were last called for: nothing here reads it.
_REQUEST_STATE = ("_rope_deltas", "_position_ids")
# The kinds of tokens in what Gemma reads: features that see each other as one image's do, and those that do not.
_TOKEN_TYPES = {"image": 1, "video": 2, "audio": 3}
# Parts of a model that make a checkpoint's tensors their own, each with the name of its config.
_PARTS = {"VisionModel": "vision_config", "LanguageModel": "text_config", "AudioModel": "audio_config"}
_LANGUAGE = "language_model."


@dataclass(frozen=True, slots=True, eq=False)
class WholePrompt:
    """The state of a row whose prompt is attended to in both directions, all of it."""

    length: int
    last: int
    """Its last token."""


class VisionModel(TextModel):
    """An mlx-vlm model, its tokenizer and its processor. Made on the engine thread; `text` may be used from any.

    With `text_only`, or where the checkpoint has nothing to see or to hear with, it is the language model alone.
    """

    libraries = ("mlx", "mlx-lm", "mlx-vlm", "transformers")
    text: VisionTokenizer  # or TextTokenizer, without a processor

    def __init__(self, checkpoint: Checkpoint) -> None:
        _, model, tokenizer, config, path, options, _ = checkpoint
        self._path = path
        self._decoder = self._language = getattr(model, "language_model", model)
        module = type(self._language).__module__  # before it is given another class
        super().__init__(checkpoint)
        family = config.get("model_type")
        self._negative, self._unscaled = family in NEGATIVE_IDS, family in UNSCALED
        sees = (self._language is not model or self._negative) and not options.get("text_only")
        processor = load_processor(model, path, options) if sees else None
        if processor is not None:
            embedded = self.text.embedded
            self.text = VisionTokenizer(tokenizer, self.text.cuts_anywhere, processor, model.config.model_type)
            places = [tokenizer.convert_tokens_to_ids(place.text) for place in processor.placeholders.values()]
            if embedded is not None and all(isinstance(i, int) and i < embedded for i in places):
                self.text.embedded = embedded  # of others the media are the embeddings
        self._processor: MediaProcessor | None = processor
        self._positions: StepPositions | None = None
        if hasattr(self._language, "get_rope_index"):
            self._positions = StepPositions(last=module in NUMBERS_LAST, one=module in ONE_NUMBER)
        self._whole_images = not _chunks(model, {"mm_token_type_ids": mx.array([[1]])})
        # In both directions, if it is not "vision" alone.
        whole = getattr(getattr(self._language, "config", None), "use_bidirectional_attention", None) is True
        self._whole_prompts = whole or not _chunks(model, {})
        self.one_token = self._whole_images or self._whole_prompts  # it makes masks of its own
        self._fills_media = not self.one_token  # padding is seen by nothing
        if self._whole_prompts or any(isinstance(layer, PromptRing) for layer in self._plain_cache()):
            self.end_tokens = 0
        if self._whole_prompts:  # their prompts run in several passes, on tokens that are run again
            self.gives_hidden = False

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]:
        import mlx_vlm.utils
        from mlx_lm.utils import load_tokenizer

        trusted, adapter_path = options.get("trust_remote_code", False), options.get("adapter_path")
        tokenizer: TokenizerWrapper | None = None
        if is_gguf(path):
            model, tokenizer, config = read_seeing_checkpoint(path)
        else:
            model, config = load_vision_model(path, trust_remote_code=trusted)
        if adapter_path is not None:
            model = mlx_vlm.utils.apply_lora_layers(model, os.fspath(adapter_path))
            model.eval()
        if tokenizer is not None:
            return model, tokenizer, config
        ends = config.get("eos_token_id") or (config.get("text_config") or {}).get("eos_token_id")
        how = {"trust_remote_code": trusted, **template_beside(path, model.config.model_type)}
        tokenizer = load_tokenizer(path, how, eos_token_ids=ends)
        return (model.language_model if options.get("text_only") else model), tokenizer, config

    def _sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        from mlx_vlm.utils import get_model_and_args, sanitize_weights

        weights = super()._sanitize(weights)
        classes, _ = get_model_and_args(self.config, self._path)
        for part, name in _PARTS.items():
            config = getattr(self._model.config, name, None)
            if config is not None and hasattr(classes, part):
                weights = sanitize_weights(getattr(classes, part), weights, config)
        mx.eval(mx.random.state)  # the parts that were made for it have drawn weights
        own = {name.removeprefix(_LANGUAGE): each for name, each in weights.items() if name.startswith(_LANGUAGE)}
        return own if own and self._language is self._model else weights

    def _plain_cache(self) -> RowCache:
        from mlx_vlm.models.cache import make_prompt_cache

        return list(make_prompt_cache(self._language))

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        prompt = step.state[0] if step.state else None
        if not isinstance(prompt, WholePrompt):
            made = super().prefill(step, wait=wait)
            for layer in step.layers:
                if isinstance(layer, PromptRing):
                    layer.prompts = [None]  # it was no answer's token, even if it was one
            return made
        start, k = int(step.layers[0].offset), step.tokens.shape[1]
        with self._adapted(step):
            if start + k == prompt.length - 1:
                # Attention sees all of the prompt, its last token too, which will run again with the batch.
                last = mx.array([[prompt.last]], step.tokens.dtype)
                self._run(step, mx.concatenate([step.tokens, last], axis=1))
                for layer in step.layers:
                    layer.trim(1)
            elif start < prompt.length < start + k:  # what it generated before is run again behind it
                at = prompt.length - start
                self._run(step, step.tokens[:, :at])
                self._run(step, step.tokens[:, at:])
            else:
                self._run(step, step.tokens)
        (mx.eval if wait else mx.async_eval)([layer.state for layer in step.layers])
        return PassOutput(None)

    def _run(self, step: StepInput, tokens: mx.array) -> PassOutput[mx.array]:
        rows, k = tokens.shape
        arguments = self._merged(step, tokens) if step.media else {}
        if self._negative and not step.media:
            arguments["inputs_embeds"] = self._language.model.embed_tokens(tokens)
        starts = step.starts
        if self._positions is not None:
            arguments["position_ids"], starts = self._positions.of(step, rows, k)
        if self._whole_prompts and (k == 1 or not _within(step, k)):
            # Its own code makes none.
            arguments["mask"] = step.layers[0].make_mask(k, return_array=k > 1, window_size=None)
        with self._forms.turned_from(starts):
            return self._call(step, self._language, tokens, **arguments)

    def _merged(self, step: StepInput, tokens: mx.array) -> dict[str, object]:
        """A chunk's embeddings with the features in it, and what else its model reads of it."""
        start, k = int(offset_of(step.layers)), tokens.shape[1]
        made = self._embeddings(tokens)
        embeddings, deep = made.inputs_embeds, list[list[object]]()
        if self._unscaled:
            embeddings = embeddings * embeddings.shape[-1] ** 0.5
        types, seen = np.zeros((1, k), np.int32), np.zeros((1, k), bool)
        for span, features in step.media:
            first, stop = np.searchsorted(span.places, (start, start + k)).tolist()
            if first == stop:
                continue
            places = span.places[first:stop] - start
            rows = features.rows[first:stop].astype(embeddings.dtype)
            embeddings[:, mx.array(places)] = rows
            types[:, places], seen[:, places] = _TOKEN_TYPES[span.media.kind], True
            deep.append([layer[first:stop] for layer in features.deep])
        arguments: dict[str, object] = {"inputs_embeds": embeddings}
        if made.per_layer_inputs is not None:
            arguments["per_layer_inputs"] = made.per_layer_inputs
        if self._whole_images and not start:
            arguments["mm_token_type_ids"] = mx.array(types)
        if any(deep):
            arguments["visual_pos_masks"] = mx.array(seen)
            arguments["deepstack_visual_embeds"] = [mx.concatenate([*layer]) for layer in zip(*deep, strict=True)]
        return arguments

    def embed(self, media: ProcessedMedia) -> Features:
        if self._processor is None:
            return super().embed(media)
        tokens, places = np.array(media.tokens, np.int32), self._processor.places(media)
        if self._negative:
            tokens[places] = -1
        inputs = {name: on_device(array) for name, array in media.inputs.items()}
        with self._forms.waited_for():
            made = self._embeddings(mx.array(tokens)[None], inputs.pop("pixel_values", None), **inputs)
        deep = made.deepstack_visual_embeds
        deep = getattr(deep, "embeddings", deep)  # of cohere_compass, with the places of a whole prompt
        rows = made.inputs_embeds[0, mx.array(places)]
        features = Features(rows, () if deep is None else tuple(layer[...] for layer in deep))
        mx.eval(features.rows, *features.deep)
        return features

    def _embeddings(self, ids: mx.array, pixels: mx.array | None = None, **inputs: mx.array) -> InputEmbeddingsFeatures:
        """mlx-vlm's features of tokens; the state that the model would keep of them is restored."""
        before = {name: getattr(self._language, name) for name in _REQUEST_STATE if hasattr(self._language, name)}
        try:
            return self._model.get_input_embeddings(ids, pixels, mask=mx.ones_like(ids), **inputs)
        finally:
            for name, value in before.items():
                setattr(self._language, name, value)

    def row_state(self, prompt: Prompt) -> object | None:
        if self._whole_prompts:
            return WholePrompt(len(prompt.tokens), prompt.tokens[-1])
        if self._positions is None or not prompt.media:
            return None
        return row_positions(self._language, prompt.tokens, prompt.media)

    def first_pass(self, prompt: Prompt) -> int:
        if self._whole_prompts:
            return len(prompt.tokens) - 1
        ends = (span.stop for span in prompt.media if span.media.kind != "audio")
        return max(ends, default=0) if self._whole_images else 0


def on_device(array: npt.NDArray[np.generic]) -> mx.array:
    """The numbers that a tower reads, made of `Levels` or as they are."""
    if not isinstance(array, Levels):
        return mx.array(array)
    places = mx.array(np.asarray(array)).astype(mx.uint32) + 256 * mx.arange(3, dtype=mx.uint32)[:, None]
    floats = mx.array(array.table.reshape(-1))[places]
    return mx.repeat(floats[:, :, None], array.frames, axis=2).reshape(len(array), -1)


def _within(step: StepInput, k: int) -> bool:
    """True if a pass is of a whole prompt's own tokens."""
    prompt = step.state[0] if step.state else None
    offset = step.layers[0].offset  # an array for rows of a batch, which are behind their prompts
    return isinstance(prompt, WholePrompt) and isinstance(offset, int) and offset + k <= prompt.length


def _chunks(model: nn.Module, arguments: Mapping[str, object]) -> bool:
    """True if mlx-vlm would run a prompt with these arguments in pieces."""
    from mlx_vlm.generate.common import _chunked_prefill_enabled

    return bool(_chunked_prefill_enabled(model, prefill_kwargs=arguments))
