"""Rows with and without images side by side, in the engine's own slots: each generates what it generates alone."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.cache import ArraysCache, CacheList

from localai_shim.engine import kv
from localai_shim.engine.ports import StepInput
from localai_shim.media import MediaSpan, ProcessedMedia
from localai_shim.models.vision.model import VisionModel
from localai_shim.models.vision.positions import RowPositions, StepPositions, offset_of, row_positions
from localai_shim.types import Prompt
from tests.models.vision.seeing import CHUNK, TOKENS, WHOLE, generate, load, pictures, poison, prefilled, prompt_of
from tests.vision import FAMILIES, families

pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")
JOINS = {0: [0], 2: [1], 3: [2, 3]}
"""Step -> the rows that join before it."""


@pytest.mark.parametrize("kind", families())
def test_rows_that_join_one_after_another_generate_what_they_generate_alone(kind: str) -> None:
    model = load(kind)
    poison(model)
    items = [model.text.process(item) for item in pictures(3)]
    several = items if FAMILIES[kind].images > 1 else items[2:]
    shown = [items[:1], [], several, items[1:2]]
    texts = ["What is this?", "Hello there, plain text.", "Compare these", "x"]
    prompts = [prompt_of(model, each, text) for each, text in zip(shown, texts, strict=True)]
    features = [[model.embed(item) for item in each] for each in shown]
    alone = [generate(model, prompt, rows, WHOLE) for prompt, rows in zip(prompts, features, strict=True)]
    states = [model.row_state(prompt) for prompt in prompts]

    batch: kv.BatchCache | None = None
    slots: dict[int, int] = {}
    last = {row: prompt.tokens[-1] for row, prompt in enumerate(prompts)}
    got: list[list[int]] = [[] for _ in prompts]
    for step in range(TOKENS + max(JOINS)):
        for row in JOINS.get(step, []):
            cache = prefilled(model, prompts[row], features[row], CHUNK if row % 2 else WHOLE)
            batch, [slots[row]] = kv.join(batch, [cache])
        assert batch is not None
        at = {slot: row for row, slot in slots.items()}
        tokens = [last[at[slot]] if slot in at else 0 for slot in range(batch.width)]
        of_slots = [states[at[slot]] if slot in at else None for slot in range(batch.width)]
        logits = model.forward(StepInput(mx.array(tokens)[:, None], batch.advance(), state=of_slots)).logits[:, -1]
        for row, slot in slots.items():
            last[row] = int(mx.argmax(logits[slot]))
            got[row].append(last[row])
    assert [tokens[:TOKENS] for tokens in got] == [[token for token, _ in steps] for steps in alone]


@pytest.mark.parametrize("kind", ["qwen2_vl", "gemma3", "llava"])
def test_prompts_of_text_may_share_a_pass_padded_on_the_right(kind: str) -> None:
    model = load(kind)
    poison(model)
    prompts = [model.text.apply_chat_template([{"role": "user", "content": text}], {}) for text in ("A", "Bcdef")]
    longest = max(map(len, prompts))
    if kind == "gemma3":  # a ring cannot be trimmed once it is full
        prompts, longest = [prompt[:12] for prompt in prompts], 12
        prompts[0] = prompts[0][:9]
    cache = model.new_cache()
    padded = mx.array([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts])
    logits = model.forward(StepInput(padded, cache, counts=[len(prompt) for prompt in prompts])).logits
    for row, prompt in enumerate(prompts):
        alone = model.forward(StepInput(mx.array([prompt]), model.new_cache())).logits
        np.testing.assert_allclose(np.array(logits[row, : len(prompt)]), np.array(alone[0]), atol=1e-4)


def test_several_tokens_of_a_row_may_run_in_one_step() -> None:
    model = load("qwen2_vl")
    poison(model)
    items = [model.text.process(item) for item in pictures(1)]
    prompt, features = prompt_of(model, items), [model.embed(item) for item in items]
    steps = generate(model, prompt, features, WHOLE)
    cache, state = prefilled(model, prompt, features, WHOLE), [model.row_state(prompt)]
    tokens = [prompt.tokens[-1], *(token for token, _ in steps[:-1])]
    logits = model.forward(StepInput(mx.array([tokens]), cache, state=state)).logits[0]
    assert [int(mx.argmax(each)) for each in logits] == [token for token, _ in steps]


class At:
    """A layer whose rows are at these places."""

    def __init__(self, offset: int | mx.array) -> None:
        self.offset = offset


def positions(step: StepInput) -> np.ndarray:
    rows, k = step.tokens.shape
    made, _ = StepPositions().of(step, rows, k)
    return np.array(made)


def test_positions_are_places_and_what_a_row_s_images_add() -> None:
    row = RowPositions(np.arange(12, dtype=np.int32).reshape(3, 4), 5)
    tokens = mx.zeros((1, 3), mx.int32)
    np.testing.assert_array_equal(
        positions(StepInput(tokens, [object(), At(2)], state=[row]))[:, 0], [[2, 3, 9], [6, 7, 9], [10, 11, 9]]
    )
    rows = StepInput(mx.zeros((2, 2), mx.int32), [At(mx.array([7, 9]))], state=[row, None])
    np.testing.assert_array_equal(positions(rows), [[[12, 13], [9, 10]]] * 3)
    text = StepInput(mx.zeros((2, 2), mx.int32), [At(7)])
    np.testing.assert_array_equal(positions(text), [[[7, 8], [7, 8]]] * 3)


def test_the_place_of_a_pass_is_found_in_lists_of_caches() -> None:
    assert offset_of([ArraysCache(2), CacheList(ArraysCache(2), At(2))]) == 2
    offset = mx.array([7, 9])
    assert offset_of([CacheList(At(offset)), At(mx.array([0, 0]))]) is offset


def test_positions_of_media_without_grids_are_counted() -> None:
    seen: dict[str, mx.array] = {}

    class Language:
        def get_rope_index(self, ids: mx.array, **rest: mx.array) -> tuple[mx.array, None]:
            seen.update(rest)
            return mx.broadcast_to(mx.arange(ids.shape[1]), (3, *ids.shape)), None

    media = ProcessedMedia("image", 1, {}, "", [7])
    spans = [MediaSpan(media, np.array([1, 2])), MediaSpan(media, np.array([4]))]
    found = row_positions(cast(Any, Language()), [0, 7, 7, 0, 7], spans)
    np.testing.assert_array_equal(found.ids, [[0, 1, 2, 3, 4]] * 3)
    assert found.delta == 0
    assert seen.keys() == {"attention_mask"}


def test_what_rows_add_is_made_once_for_the_same_rows() -> None:
    made = StepPositions()
    states = [RowPositions(np.zeros((3, 1), np.int32), delta) for delta in (1, 2)]
    layers = [At(mx.array([3, 4]))]
    tokens = mx.zeros((2, 1), mx.int32)
    made.of(StepInput(tokens, layers, state=list(states)), 2, 1)
    first = made._deltas
    made.of(StepInput(tokens, layers, state=list(states)), 2, 1)
    assert made._deltas is first
    made.of(StepInput(tokens, layers, state=states[::-1]), 2, 1)
    assert made._deltas is not None and made._deltas.tolist() == [[2], [1]]


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if "qwen" in kind or "glm" in kind])
def test_a_model_that_counts_rows_and_columns_makes_the_positions_itself(kind: str) -> None:
    """What `get_rope_index` says is what mlx-vlm's own embedding of the prompt says."""
    model = load(kind)
    items = [model.text.process(item) for item in pictures(2)]
    prompt = prompt_of(model, items)
    state = model.row_state(prompt)
    assert isinstance(state, RowPositions)
    assert state.delta == int(state.ids.max()) + 1 - len(prompt.tokens) < 0
    grids = mx.array(np.concatenate([item.inputs["image_grid_thw"] for item in items]))
    ids = mx.array([prompt.tokens])
    made, delta = model._language.get_rope_index(ids, image_grid_thw=grids, attention_mask=mx.ones_like(ids))
    np.testing.assert_array_equal(np.array(made)[:, 0], state.ids)
    assert int(mx.array(delta).reshape(-1)[0]) == state.delta
    assert model.row_state(Prompt(prompt.tokens)) is None


def test_first_passes() -> None:
    def first(kind: str, images: int) -> tuple[int, Prompt]:
        model: VisionModel = load(kind)
        prompt = prompt_of(model, [model.text.process(item) for item in pictures(images)])
        return model.first_pass(prompt), prompt

    at, prompt = first("gemma4_bidirectional", 2)
    assert at == prompt.media[-1].stop
    assert first("gemma4_bidirectional", 0)[0] == 0
    assert first("gemma4", 2)[0] == 0
    at, prompt = first("paligemma", 1)
    assert at == len(prompt.tokens) - 1
