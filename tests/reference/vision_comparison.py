"""Prompts with images: logits of transformers next to those of the same folder loaded here."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
import torch
import transformers

from localai_shim.engine.ports import StepInput
from localai_shim.media import MediaSpan, ProcessedMedia, media_keys
from localai_shim.models.vision import model as vision_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.models.vision.processor import MediaProcessor, Placeholder
from localai_shim.types import Prompt
from tests.reference import comparison
from tests.reference.comparison import load, randomize
from tests.reference.pictures import END, IMAGE, START, Picture
from tests.reference.repairs import repair
from tests.reference.vision_case import VisionCase

repair()

_BEFORE, _BETWEEN, _AFTER = [5, 9, 33, 70, 21], [44, 12, 61], [80, 17, 92, 3, 54, 11, 29, 66]


def build(case: VisionCase) -> Any:
    """A model of transformers with random weights, in float32."""
    torch.manual_seed(0)
    config = case.config()
    if case.model_class is not None:
        make = getattr(transformers, case.model_class)._from_config
    elif type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        make = transformers.AutoModelForImageTextToText.from_config
    else:
        make = transformers.AutoModelForCausalLM.from_config
    model = make(config, attn_implementation="eager", dtype=torch.float32)
    randomize(model, case.encoder_spread)
    return model.float().eval()


def save(model: Any, folder: Path, case: VisionCase) -> Path:
    """The folder of a checkpoint, with a tokenizer."""
    comparison.save(model, folder)
    if case.saved_as is not None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": case.saved_as}))
    if case.published is not None:
        path = folder / "config.json"
        path.write_text(json.dumps(case.published(json.loads(path.read_text()))))
    if case.renamed:
        _rename(folder, case.renamed, case.added)
    if case.inside is not None:
        _wrap(folder, *case.inside)
    return folder


def _rename(folder: Path, names: Mapping[str, str], added: Mapping[str, tuple[int, ...]]) -> None:
    file, made = str(folder / "model.safetensors"), {name: mx.zeros(shape) for name, shape in added.items()}
    loaded: Any = mx.load(file)
    for name, array in loaded.items():
        for old, new in names.items():
            name = re.sub(old, new, name)
        made[name] = array
    mx.save_safetensors(file, made, metadata={"format": "pt"})


def _wrap(folder: Path, kind: str, part: str) -> None:
    config, file = json.loads((folder / "config.json").read_text()), str(folder / "model.safetensors")
    whole = transformers.CONFIG_MAPPING[kind](**{f"{part}_config": config}, enable_audio_output=False)
    whole.save_pretrained(folder)
    loaded: Any = mx.load(file)
    mx.save_safetensors(file, {f"{part}.{name}": array for name, array in loaded.items()}, metadata={"format": "pt"})


def prompt_of(pictures: list[Picture]) -> list[int]:
    """Tokens of a prompt with all pictures, text around them."""
    tokens = list(_BEFORE)
    for picture in pictures:
        tokens += [*picture.tokens, *_BETWEEN]
    return tokens + _AFTER


def expected_logits(model: Any, case: VisionCase, pictures: list[Picture]) -> np.ndarray:
    """Logits of transformers for each token of the prompt."""
    tokens = prompt_of(pictures)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([tokens])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    for name in pictures[0].theirs if pictures else ():
        parts = [torch.tensor(picture.theirs[name]) for picture in pictures]
        axis = case.join_axis if isinstance(case.join_axis, int) else case.join_axis.get(name, 0)
        inputs[name] = torch.cat(parts, dim=axis)
    seen = torch.tensor([[int(token == IMAGE) for token in tokens]])
    taken = inspect.signature(model.forward).parameters
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in taken:
            inputs[name] = seen if case.kind != "paligemma" else torch.zeros_like(seen)  # all is its prefix
    if "moe_mm_token_type_ids" in taken:
        inputs["moe_mm_token_type_ids"] = torch.tensor([[int(token in (START, IMAGE, END)) for token in tokens]])
    with torch.no_grad():
        logits: np.ndarray = model(**inputs, use_cache=False).logits[0].float().numpy()
    return logits


@contextmanager
def _without_processor() -> Iterator[None]:
    """Load models whose pictures are made here: a processor that only says where their features go."""

    def processor(model: Any, path: Path, options: Any) -> MediaProcessor:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        since = getattr(getattr(model, "embed_vision", None), "vocab_offset", None)
        return MediaProcessor(tokenizer, {"image": Placeholder("<image>", (IMAGE,), since)})

    with mock.patch.object(vision_model, "load_processor", processor):
        yield


def load_seeing(folder: Path) -> VisionModel:
    """The folder as a client would load it, without its processor."""
    with _without_processor():
        model = load(folder)
    assert isinstance(model, VisionModel)
    return model


class Seeing:
    """A prompt with pictures, as a model gets it."""

    def __init__(self, model: VisionModel, pictures: list[Picture]) -> None:
        self._model, self.tokens = model, prompt_of(pictures)
        spans, start = list[MediaSpan](), len(_BEFORE)
        for number, picture in enumerate(pictures):
            item = ProcessedMedia("image", number + 1, picture.ours, "", picture.tokens)
            assert model._processor is not None
            spans.append(MediaSpan(item, start + model._processor.places(item)))
            start += len(picture.tokens) + len(_BETWEEN)
        self.prompt = Prompt(self.tokens, keys=media_keys(self.tokens, spans), media=spans)
        self._features = [model.embed(span.media) for span in spans]

    def logits(self, most: int) -> np.ndarray:
        """Logits for each token, of passes of at most so many tokens, or as many as the model needs in the first."""
        model, cache = self._model, self._model.new_cache()
        state, parts, done = [model.row_state(self.prompt)], [], 0
        while done < len(self.tokens):
            count = min(len(self.tokens) - done, max(most, model.first_pass(self.prompt) - done))
            media = [
                (span, rows)
                for span, rows in zip(self.prompt.media, self._features, strict=True)
                if span.start < done + count and span.stop > done
            ]
            tokens = mx.array([self.tokens[done : done + count]])
            step = StepInput(tokens, cache, state=state, media=media)
            parts.append(np.array(model.forward(step).logits[0].astype(mx.float32)))
            done += count
        return np.concatenate(parts)
