"""Drives models of mlx-vlm, ours and mlx-vlm's own, without an engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from localai_shim.engine.ports import Features, StepInput
from localai_shim.media import Media, ProcessedMedia, media_keys
from localai_shim.models.loading import load_model
from localai_shim.models.text import render
from localai_shim.models.vision.model import VisionModel
from localai_shim.types import Prompt
from tests import inside
from tests.vision import picture, tiny_vision, user

TOKENS = 6
WHOLE, CHUNK = 10**6, 16  # tokens per pass of prefill
QUESTION = "What is this? ä"
STATE = ("_rope_deltas", "_position_ids")
Step = tuple[int, np.ndarray]  # a token, and the log-probabilities of all that might have come


def load(kind: str, **options: Any) -> VisionModel:
    made = load_model(str(tiny_vision(kind)), options)  # type: ignore[arg-type]
    assert isinstance(made, VisionModel)
    return made


def poison(model: VisionModel, value: Any = "poison") -> None:
    for name in STATE:
        if hasattr(model._language, name):
            setattr(model._language, name, value)


def pictures(n: int) -> list[Media]:
    return [picture(60 + 10 * i, 80 - 20 * i, seed=i) for i in range(n)]


def prompt_of(model: VisionModel, items: Sequence[ProcessedMedia], text: str = QUESTION) -> Prompt:
    ids = model.text.apply_chat_template(user(text, *(item.kind for item in items)), {}, media=items)
    spans = model.text.spans(ids, items)
    return Prompt(ids, keys=media_keys(ids, spans), media=spans)


def prefilled(model: VisionModel, prompt: Prompt, features: Sequence[Features], most: int) -> list[Any]:
    """The cache of a prompt without its last token, run in passes of so many tokens."""
    cache, state = model.new_cache(), [model.row_state(prompt)]
    done, end = 0, len(prompt.tokens) - 1
    while done < end:
        k = min(end - done, max(most, model.first_pass(prompt) - done))
        media = [
            (span, rows)
            for span, rows in zip(prompt.media, features, strict=True)
            if span.start < done + k and span.stop > done
        ]
        model.prefill(StepInput(mx.array([prompt.tokens[done : done + k]]), cache, state=state, media=media))
        done += k
    return cache


def generate(
    model: VisionModel, prompt: Prompt, features: Sequence[Features], most: int, count: int = TOKENS
) -> list[Step]:
    """Greedy tokens; the prompt's last token is run like those that follow."""
    cache, state = prefilled(model, prompt, features, most), [model.row_state(prompt)]
    token, steps = prompt.tokens[-1], list[Step]()
    for _ in range(count):
        logits = model.forward(StepInput(mx.array([[token]]), cache, state=state)).logits[0, -1]
        token = int(mx.argmax(logits))
        steps.append((token, np.array(logits - mx.logsumexp(logits))))
    return steps


def prepared(kind: str, text: str, media: Sequence[Media]) -> dict[str, Any]:
    """What mlx-vlm's own processor makes of all of a prompt at once; its items are of one kind."""
    from mlx_vlm.models.base import to_mlx
    from mlx_vlm.utils import load_processor
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        processor = load_processor(tiny_vision(kind), add_detokenizer=False, trust_remote_code=False)
    if not media:
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return {"input_ids": mx.array([ids]), "mask": mx.ones((1, len(ids)), mx.int32), "pixel_values": None}
    given: dict[str, Any] = {
        "image": lambda: {"images": [Image.fromarray(item.data) for item in media]},
        "video": lambda: {"videos": [item.data.transpose(0, 3, 1, 2) for item in media], "fps": media[0].rate},
        "audio": lambda: {"audio": [item.data for item in media]},
    }[media[0].kind]()
    made: dict[str, Any] = to_mlx(dict(processor(text=[text], **given)))
    made["input_ids"] = mx.array(np.array(made["input_ids"])).reshape(1, -1)
    made["mask"] = mx.array(np.array(made.pop("attention_mask"))).reshape(1, -1)
    if isinstance(made.setdefault("pixel_values", None), list):
        made["pixel_values"] = [mx.array(each) for each in made["pixel_values"]]
    return made


def alone(model: VisionModel, inputs: dict[str, Any]) -> list[Step]:
    """The tokens of mlx-vlm by itself."""
    from mlx_vlm.generate import generate_step

    ids, pixels, mask = (inputs[name] for name in ("input_ids", "pixel_values", "mask"))
    rest = {name: value for name, value in inputs.items() if name not in ("input_ids", "pixel_values", "mask")}
    if model._whole_images and "image_token_index" in vars(inside.network(model).config):  # gemma3, as it is mended
        rest.setdefault("mm_token_type_ids", (ids == inside.network(model).config.image_token_index).astype(mx.int32))
    poison(model, None)
    steps = generate_step(ids, inside.network(model), pixels, mask, max_tokens=TOKENS, temperature=0.0, **rest)
    found = [(int(token), np.array(logprobs).reshape(-1)) for token, logprobs in steps]
    poison(model)
    return found[:TOKENS]


def rendered(model: VisionModel, kind: str, images: int) -> str:
    """What mlx-vlm's processor reads of the question."""
    if kind == "paligemma":  # adds what is around the text itself
        return "<image>" * images + QUESTION if images else f"<bos>{QUESTION}\n"
    return render(model.tokenizer, user(QUESTION, *["image"] * images), {}, None, True)


def compare(
    model: VisionModel,
    media: Sequence[Media],
    inputs: dict[str, Any],
    oracle: Callable[[VisionModel, dict[str, Any]], list[Step]] = alone,
) -> None:
    """Hold the question about some media against mlx-vlm by itself, which gets these inputs."""
    items = [model.text.process(item) for item in media]
    prompt = prompt_of(model, items)
    ids = inputs["input_ids"][0].tolist()
    assert [max(token, 0) for token in ids] == [0 if i < 0 else t for t, i in zip(prompt.tokens, ids, strict=True)]
    want = oracle(model, inputs)
    features = [model.embed(item) for item in items]
    for most in (WHOLE, CHUNK):
        steps = generate(model, prompt, features, most)
        assert [token for token, _ in steps] == [token for token, _ in want]
        for (_, got), (_, expected) in zip(steps, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=3e-5, atol=1e-4)
