"""Rows of mlx-vlm's models say what `mlx_vlm.generate_step` says alone, whatever runs beside them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.cache_contents import KeyValues, States
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv.row import leaves
from localai_shim.engine.prefix import sharing
from localai_shim.media import Media, MediaSpan, media_keys
from localai_shim.models import caches
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.types import GenerationRequest, Prompt, RowError, SamplingParams
from tests import inside
from tests.engine.guessing import Oracle, Steady, preempting, speculate, steps_noted
from tests.engine.harness import GREEDY, Running, eventually, generate, leave_room_for
from tests.engine.traffic import ids_in_traffic
from tests.models.vision.seeing import WHOLE
from tests.models.vision.seeing import generate as one_row
from tests.samples import only
from tests.vision import FAMILIES, FIRST_ID, picture, tiny_vision, user

pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")  # of kimi_vl's processor
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11)
# Recurrent layers with positions of three numbers, and a first pass; rows for the first layers, and all of a prompt at
# once: each kind of model in some test.
mixed_families = pytest.mark.parametrize("kind", only(["gemma4_bidirectional"], FAMILIES))
families = pytest.mark.parametrize("kind", only(["qwen3_vl"], FAMILIES))


class Asked:
    """A prompt and the pictures in it."""

    def __init__(self, kind: str, prompt: Prompt, pictures: Sequence[Media] = ()) -> None:
        self.kind, self.prompt, self.pictures = kind, prompt, list(pictures)

    def request(self, count: int, sampling: SamplingParams = GREEDY) -> GenerationRequest:
        return GenerationRequest(self.prompt, sampling, count, ignore_eos=True)

    def again(self) -> Asked:
        """The same, of which the engine has said nothing yet."""
        prompt = self.prompt
        return Asked(self.kind, Prompt(prompt.tokens, keys=prompt.keys, media=prompt.media), self.pictures)

    def going_on(self, said: Sequence[int], next_turn: Asked) -> Asked:
        """The turn after an answer."""
        before, new = self.prompt, next_turn.prompt
        tokens = [*before.tokens, *said]
        spans = [*before.media, *(MediaSpan(span.media, span.places + len(tokens)) for span in new.media)]
        tokens += new.tokens
        prompt = Prompt(tokens, keys=media_keys(tokens, spans), media=spans)
        return Asked(self.kind, prompt, [*self.pictures, *next_turn.pictures])

    def alone(self, count: int) -> list[int]:
        """What mlx-vlm generates by itself, all of the prompt's pictures processed at once by its own processor."""
        from mlx_vlm.generate import generate_step

        model = oracle(self.kind)
        if self.kind == "gemma3":  # whose images that loop computes otherwise; transformers' logits hold the model
            features = [model.embed(span.media) for span in self.prompt.media]
            return [token for token, _ in one_row(model, self.prompt, features, WHOLE, count)]
        for name in ("_rope_deltas", "_position_ids"):
            if hasattr(model._language, name):
                setattr(model._language, name, None)
        ids, made = mx.array([self.prompt.tokens]), pixels(self.kind, self.pictures)
        if "mm_token_type_ids" in made:
            types = np.zeros(ids.shape, np.int32)
            for span in self.prompt.media:
                types[0, span.places] = 1
            made["mm_token_type_ids"] = mx.array(types)
        values, mask = made.pop("pixel_values", None), mx.ones_like(ids)
        steps = generate_step(ids, inside.network(model), values, mask, max_tokens=count, temperature=0.0, **made)
        return [int(token) for token, _ in steps][:count]


@functools.cache
def oracle(kind: str) -> VisionModel:
    model = load_model(str(tiny_vision(kind)), {})
    assert isinstance(model, VisionModel)
    return model


@functools.cache
def processor(kind: str) -> Any:
    from mlx_vlm.utils import load_processor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_processor(tiny_vision(kind), add_detokenizer=False, trust_remote_code=False)


def pixels(kind: str, pictures: Sequence[Media]) -> dict[str, Any]:
    """What the model reads of the pictures."""
    from mlx_vlm.models.base import to_mlx
    from PIL import Image

    if not pictures:
        return {}
    images = [Image.fromarray(picture.data) for picture in pictures]
    text = FAMILIES[kind].image * len(images) if kind != "paligemma" else "<image>"
    made: dict[str, Any] = to_mlx(dict(processor(kind)(images=images, text=[text])))
    if isinstance(made["pixel_values"], list):
        made["pixel_values"] = [mx.array(each) for each in made["pixel_values"]]
    return {name: value for name, value in made.items() if name not in ("input_ids", "attention_mask", "labels")}


def ask(kind: str, text: str, *pictures: Media) -> Asked:
    """A turn; of the pictures as many as the model can take."""
    known = oracle(kind).text
    pictures = pictures[: FAMILIES[kind].images]
    items = [known.process(item) for item in pictures]
    ids = known.apply_chat_template(user(text, *(item.kind for item in items)), {}, media=items)
    spans = known.spans(ids, items)
    return Asked(kind, Prompt(ids, keys=media_keys(ids, spans), media=spans), pictures)


def shown(i: int) -> Media:
    return picture(56 + 14 * (i % 3), 84 - 14 * (i % 4), seed=i)


def mixed(kind: str) -> list[Asked]:
    """Eight: text, one picture, three."""
    text = [ask(kind, "Say it. " * (1 + 3 * i)) for i in range(3)]
    one = [ask(kind, "What is this? " * (1 + i), shown(i)) for i in range(3)]
    three = [ask(kind, "Compare. " * (2 + i), shown(5 + i), shown(1), shown(3)) for i in range(2)]
    return [text[0], one[0], three[0], text[1], one[1], one[2], three[1], text[2]]


@contextmanager
def engine_of(kind: str, options: EngineOptions | None = None, *, on_device: bool = False) -> Iterator[Engine[Any]]:
    """`on_device`: tokens are sampled where the logits are, as on a GPU."""
    path = str(tiny_vision(kind))

    def load() -> Any:
        model: Any = load_model(path, {})
        model.samples_on_device |= on_device
        return model

    engine = Engine(load, options)
    try:
        yield engine
    finally:
        engine.close()


@mixed_families
@pytest.mark.parametrize(
    "options", [{"prefill_chunk": 16, "prefix_cache_bytes": 0}, {"max_stall": 0.005}], ids=["pieces", "cached"]
)
def test_eight_that_join_cancel_and_finish_at_different_times(kind: str, options: Any) -> None:
    prompts = mixed(kind)
    counts = [5 + 4 * (i % 3) for i in range(len(prompts))]
    want = [asked.alone(count) for asked, count in zip(prompts, counts, strict=True)]
    with engine_of(kind, EngineOptions(**options)) as engine:
        for turn in range(1 if "prefix_cache_bytes" in options else 2):
            made = [asked.again().request(count) for asked, count in zip(prompts, counts, strict=True)]
            assert ids_in_traffic(engine, made, lambda i: prompts[-i].again().request(30)) == want, turn
        stats = engine.stats()
        if "prefix_cache_bytes" not in options:
            pictures = {span.media.digest for asked in prompts for span in asked.prompt.media}
            assert stats.tower_runs == len(pictures)


@families
@pytest.mark.parametrize("prefix_cache", [0, 2**30])
def test_three_turns(kind: str, prefix_cache: int) -> None:
    with engine_of(kind, EngineOptions(prefix_cache_bytes=prefix_cache)) as engine:
        asked = ask(kind, "What is this? " * 2, shown(1))
        for turn in range(3):
            beside = Running(engine, ask(kind, "Count. " * (3 + turn)).request(20))
            [said] = generate(engine, asked.request(6))
            assert said == asked.alone(6), turn
            beside.finish()
            pictures = [shown(2)] if not turn and FAMILIES[kind].images > 1 else []
            said = [token for token in said if token < FIRST_ID]  # mlx-vlm takes any placeholder for one of a picture
            asked = asked.going_on(said, ask(kind, "And now? " * (1 + turn), *pictures))
        assert engine.stats().tower_runs == min(2, FAMILIES[kind].images)


@pytest.mark.parametrize("kind", only(["qwen2_vl"], FAMILIES))
def test_drafts_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = mixed(kind)
    want = [asked.alone(16) for asked in prompts]
    known = {(*asked.prompt.tokens, 0): said for asked, said in zip(prompts, want, strict=True)}
    speculate(monkeypatch, Oracle(0.7, known))
    with engine_of(kind, EngineOptions(speculation="auto", prefix_cache_bytes=0)) as engine:
        going = [Running(engine, asked.again().request(16)) for asked in prompts]
        assert [run.finish()[0] for run in going] == want


@families
def test_drafts_change_nothing_where_steps_are_built_ahead(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = mixed(kind)
    want = [asked.alone(30) for asked in prompts]
    known = {(*asked.prompt.tokens, 0): said for asked, said in zip(prompts, want, strict=True)}
    speculate(monkeypatch, Steady(0.8, known))
    options = EngineOptions(speculation="auto", prefix_cache_bytes=0)
    with engine_of(kind, options, on_device=True) as engine, steps_noted(monkeypatch) as built:
        going = [Running(engine, asked.again().request(30)) for asked in prompts]
        assert [run.finish()[0] for run in going] == want
        model: Any = engine.model
        ahead = not model.one_token and not any(isinstance(layer, States) for layer in _contents(model))
        assert any(built) is ahead


def _contents(model: VisionModel) -> list[KeyValues | States]:
    return leaves([contents for contents in map(caches.read, model.new_cache()) if contents is not None])


@pytest.mark.parametrize("share", only([0.5], [0.0, 0.5, 0.9, 1.0]))
@families
def test_drafts_change_nothing_while_rows_join_leave_and_are_preempted(
    kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = mixed(kind)
    want = [asked.alone(16) for asked in prompts]
    known = {(*asked.prompt.tokens, 0): said for asked, said in zip(prompts, want, strict=True)}
    speculate(monkeypatch, Oracle(share, known))
    with engine_of(kind, EngineOptions(speculation="auto", prefix_cache_bytes=0)) as engine:
        with preempting(engine) as drafted:
            made = [asked.again().request(16) for asked in prompts]
            assert ids_in_traffic(engine, made, lambda i: prompts[i - 1].again().request(200, SAMPLED)) == want
        ran = sum(counts.drafted for counts in engine.stats().drafts.values())
        assert drafted and (ran > 0) is not engine.model.one_token, "these take a token at a time"


@families
def test_choices_and_seeds(kind: str) -> None:
    asked, other = ask(kind, "What is this?", shown(1)), ask(kind, "Compare these.", shown(2), shown(3))
    with engine_of(kind, EngineOptions(prefix_cache_bytes=0)) as engine:
        both = Running(engine, [asked.request(8), asked.request(5), asked.request(8, SAMPLED)])
        beside = Running(engine, other.request(12))
        greedy, shorter, sampled = both.finish()
        assert greedy == asked.alone(8) and shorter == greedy[:5] and beside.finish() == [other.alone(12)]
        assert generate(engine, asked.again().request(8, SAMPLED)) == [sampled], "the same alone"


@families
def test_rows_that_share_a_picture_say_what_each_says_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Families whose pictures need all of a prompt in one pass hold copies."""
    monkeypatch.setattr(sharing, "MIN_SHARED_TOKENS", 8)
    monkeypatch.setattr(sharing, "MOST_SAVED_TOKENS", 0)
    asked = [ask(kind, "Look closely. " * 6 + end, shown(1)) for end in ("What is it?", "Which color?", "How many?")]
    with engine_of(kind) as engine:
        running = [Running(engine, each.request(30)) for each in asked]
        shares = not engine.model.first_pass(asked[0].prompt)
        assert not shares or eventually(lambda: engine.stats().shared_bytes > 0)
        assert [run.finish()[0] for run in running] == [each.alone(30) for each in asked]


@families
def test_rows_that_are_preempted_go_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [ask(kind, "What is this? " * 2, shown(i)) for i in range(3)]
    with engine_of(kind, EngineOptions(prefix_cache_bytes=0, speculation="off")) as engine:  # a token per row and step
        leave_room_for(engine, [asked.prompt for asked in prompts], monkeypatch)
        assert generate(engine, *[asked.request(30) for asked in prompts]) == [asked.alone(30) for asked in prompts]
        assert engine.stats().preempted > 0


@families
def test_a_picture_that_fails_fails_its_own_rows(kind: str) -> None:
    good, bad = [ask(kind, "What is this?", shown(1)), ask(kind, "Say it.")], ask(kind, "What is this?", shown(2))
    with engine_of(kind) as engine:
        embed = engine.model.embed

        def refuse(media: Any) -> Any:
            if media.digest == bad.prompt.media[0].media.digest:
                raise MemoryError("too large")
            return embed(media)

        engine.model.embed = refuse
        running = [Running(engine, asked.request(15)) for asked in good]
        with pytest.raises(RowError, match="too large"):
            generate(engine, bad.request(4))
        assert [run.finish()[0] for run in running] == [asked.alone(15) for asked in good]
        engine.model.embed = embed
        assert generate(engine, bad.again().request(4)) == [bad.alone(4)]
