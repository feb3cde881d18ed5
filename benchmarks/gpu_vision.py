"""On a GPU: a model that sees, bare and behind a client: tower, prefill, steps, and first tokens with pictures."""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_tokenizer
from PIL import Image

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine import kv
from localai_shim.engine.ports import StepInput
from localai_shim.media import Media
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.types import Prompt

from . import gpu, models
from .figures import Figure, Section, print_figures, spread
from .streams import ask
from .vision import BareVision
from .vision_models import PATCH, SIZES, PicturePrompt, VisionSize, data_url, make_vision_model, picture
from .workload import Prompts

MEASURED = SIZES["3b"]  # other shapes are stated
TOWER_TARGET = 0.060  # seconds, of 5,476 patches on an H100
STEP_TARGET = 1.0  # times the text model's step
FIRST_TOKEN_TARGET = 1.25  # times tower, prefill and reading the file
TOGETHER, STEP_ROWS, TEXT_TOKENS = 8, (1, 16), 130
_STEPS, _KNOWN = 24, 3  # pictures of a size that come before those that count

_async_eval: Any = mx.async_eval


def measure(name: str, repeats: int, quick: bool) -> Section:
    """Bare figures come first: a model that is loaded here changes functions of mlx-vlm's modules.

    Args:
        name: one of `gpu.SIZES`, of the text model whose step is compared; "8b" goes with the 3B model that sees.
        repeats: runs of each kind.
        quick: fewer steps.
    """
    section, steps = Section(), _STEPS // 3 if quick else _STEPS
    size = MEASURED if name == "8b" else SIZES["small"]
    if name == "8b" and mx.default_device() != mx.Device(mx.gpu):
        print("There is no GPU here; --gpu-size runs another shape on the CPU.")
        return section
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        folder = Path(root) / "model"
        make_vision_model(folder, size)
        theirs = _bare(folder, size, steps, repeats)
        mx.clear_cache()
        ours = _adapter(section, folder, size, theirs, steps, repeats)
        mx.clear_cache()
        _text_steps(section, Path(root) / "text", name, ours, _tokens(size), steps, repeats)
        mx.clear_cache()
        _client(section, folder, size, repeats)
    print_figures(section.figures)
    return section


# -- the model -------------------------------------------------------------------------------------------------------


def _bare(folder: Path, size: VisionSize, steps: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each part of mlx-vlm's model as it is."""
    bare, tokens = BareVision(folder), _tokens(size)

    def step(rows: int) -> float:
        times = bare.decode([tokens] * rows, steps).streams[0].times
        return (times[-1] - times[0]) / (len(times) - 1)

    return {
        "tower": _seconds(partial(bare.tower_seconds, size.side), repeats),
        "prefill": _seconds(lambda _: _timed(partial(bare.prefill, tokens)), repeats),
        **{_step(rows): _seconds(partial(lambda rows, _: step(rows), rows), repeats) for rows in STEP_ROWS},
    }


def _adapter(
    section: Section, folder: Path, size: VisionSize, theirs: dict[str, list[float]], steps: int, repeats: int
) -> dict[str, list[float]]:
    """Our adapter's model beside the bare one; returns the seconds of each part."""
    model = load_model(str(folder), {})
    assert isinstance(model, VisionModel)
    ours = {
        "tower": _seconds(partial(_tower_seconds, model, size.side), repeats),
        "prefill": _seconds(partial(_prefill_seconds, model, size.side), repeats),
        **{_step(rows): _step_seconds(model, rows, _tokens(size), steps, repeats) for rows in STEP_ROWS},
    }
    targets = {"tower": TOWER_TARGET} if size is MEASURED else {}
    for part, seconds in ours.items():
        section.figures.append(_milliseconds(f"{part}, bare", theirs[part]))
        section.figures.append(_milliseconds(part, seconds, targets.get(part)))
    section.raw |= {"bare": theirs, "ours": ours}
    return ours


def _tower_seconds(model: VisionModel, side: int, seed: int) -> float:
    item = model.text.process(_media(side, seed))
    return _timed(lambda: model.embed(item))


def _media(side: int, seed: int) -> Media:
    return Media("image", np.asarray(picture(side, seed)), "messages[0]")


def _prefill_seconds(model: VisionModel, side: int, seed: int) -> float:
    """Seconds of a prompt with a picture, whose features are there."""
    item = model.text.process(_media(side, seed))
    content = [{"type": "image"}, {"type": "text", "text": "word " * TEXT_TOKENS}]
    ids = model.text.apply_chat_template([{"role": "user", "content": content}], {}, media=[item])
    spans, features = model.text.spans(ids, [item]), model.embed(item)
    state = [model.row_state(Prompt(ids, media=spans))]
    step = StepInput(mx.array([ids[:-1]]), model.new_cache(), state=state, media=[(spans[0], features)])
    return _timed(lambda: model.prefill(step).logits)


def _step_seconds(model: Any, rows: int, tokens: int, steps: int, repeats: int) -> list[float]:
    """Seconds of a greedy step of rows of different lengths, each launched before the one before it is waited for."""
    caches = []
    for row in range(rows):
        caches.append(model.new_cache())
        model.prefill(StepInput(mx.zeros((1, tokens - row), mx.int32), caches[-1]))
    batch = kv.join(None, caches)[0] if rows > 1 else None

    def run(_: int) -> float:
        last = mx.zeros((rows,), mx.int32)
        start = time.perf_counter()
        for _ in range(steps):
            layers = caches[0] if batch is None else batch.advance()
            following = mx.argmax(model.forward(StepInput(last[:, None], layers)).logits[: len(last), -1], axis=-1)
            _async_eval(following)
            mx.eval(last)
            last = following
        mx.eval(last)
        return (time.perf_counter() - start) / steps

    return _seconds(run, repeats)


def _text_steps(
    section: Section, folder: Path, name: str, ours: dict[str, list[float]], tokens: int, steps: int, repeats: int
) -> None:
    """The same steps of a text model: what the language model of one that sees should take, too."""
    size = gpu.SIZES[name]
    quiet, end = models.make_tokenizer(folder, size.vocabulary)
    config = {**models.qwen3_config(size, size.vocabulary), "eos_token_id": end}
    made = models.new_model(config)
    dtype = mx.bfloat16 if mx.is_available(mx.gpu) else mx.float32
    models.randomise(made, size.vocabulary, quiet, dtype)
    model = gpu.adapted(folder, made, load_tokenizer(folder), config, None)
    for rows in STEP_ROWS:
        theirs = _step_seconds(model, rows, tokens, steps, repeats)
        target = STEP_TARGET if rows == 1 and name == "8b" else None
        values = [each / median(theirs) for each in ours[_step(rows)]]
        figure = Figure(f"gpu, vision: {_step(rows)} / {name} text model's", values, target, at_least=False)
        figure.note = f"the text model's: {spread(theirs, 1e3, 1)} ms"
        section.figures.append(figure)
        section.raw[f"text model, {_step(rows)}"] = theirs


# -- the client ------------------------------------------------------------------------------------------------------


def _client(section: Section, folder: Path, size: VisionSize, repeats: int) -> None:
    """First tokens: one picture alone and again, eight at once, and text with and without pictures beside it."""
    prompts = Prompts(load_tokenizer(folder), TEXT_TOKENS, seed=5)
    seeds = iter(range(1_000, 1_000_000))

    def asked() -> PicturePrompt:
        (prompt,) = prompts.take(1)
        return PicturePrompt(prompt.text, prompt.tokens, data_url(picture(size.side, next(seeds))))

    client = AsyncLocalOpenAI(model=folder, keep_alive=0)
    try:
        taken = asyncio.run(_first_tokens(client, asked, prompts, repeats))
    finally:
        asyncio.run(client.close())
    limit = section.raw["ours"]
    whole = median(limit["tower"]) + median(limit["prefill"]) + median(_reading_seconds(size.side, repeats))
    name = "gpu, vision: first token of a picture / (tower + prefill + reading the file)"
    values = [seconds / whole for seconds in taken["a picture"]]
    section.figures.append(Figure(name, values, FIRST_TOKEN_TARGET if size is MEASURED else None, at_least=False))
    for what, seconds in taken.items():
        section.figures.append(_milliseconds(f"first token, {what}", seconds))
    section.raw["first tokens"] = taken


async def _first_tokens(
    client: AsyncLocalOpenAI, asked: Callable[[], PicturePrompt], prompts: Prompts, repeats: int
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}

    async def timed(what: str, messages: Any) -> None:
        taken.setdefault(what, []).append((await ask(client, messages, 2)).first_token)

    for _ in range(_KNOWN):
        await ask(client, asked().messages, 2)
    for _ in range(repeats):
        one = asked()
        await timed("a picture", one.messages)
        await timed("the same again", one.messages)
        await timed("text alone", prompts.take(1)[0].messages)
        several = [asked().messages for _ in range(TOGETHER)]
        start = time.perf_counter()
        answers = asyncio.gather(*(ask(client, messages, 2) for messages in several))
        await timed(f"text beside {TOGETHER} pictures", prompts.take(1)[0].messages)
        await answers
        taken.setdefault(f"{TOGETHER} pictures at once, for each", []).append((time.perf_counter() - start) / TOGETHER)
    return taken


def _reading_seconds(side: int, repeats: int) -> list[float]:
    """Seconds that decoding the file of a picture takes."""
    out = io.BytesIO()
    picture(side, 7).save(out, format="PNG")
    return _seconds(
        lambda _: _timed(lambda: np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB"))), repeats
    )


# -- figures ---------------------------------------------------------------------------------------------------------


def _tokens(size: VisionSize) -> int:
    """Of a prompt with a picture."""
    return round(size.side / (2 * PATCH)) ** 2 + TEXT_TOKENS


def _step(rows: int) -> str:
    return f"step of {rows} {'row' if rows == 1 else 'rows'}"


def _milliseconds(what: str, seconds: Sequence[float], target: float | None = None) -> Figure:
    name = f"gpu, vision: {what}"
    return Figure(name, list(seconds), target, at_least=False, unit=" ms", scale=1e3, digits=1)


def _seconds(run: Callable[[int], float], repeats: int) -> list[float]:
    """Those of some runs, which are told their number; one comes before them."""
    return [run(number) for number in range(repeats + 1)][1:]


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
