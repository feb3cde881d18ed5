"""Rows of very different lengths decode in buckets, and compute what each computes alone."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine import kv
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.kv import Buckets, buckets
from localai_shim.engine.kv.row import OneRow
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import SamplingParams
from tests import inside
from tests.engine.constraints import Only, Stepped
from tests.engine.counting import expected, tokens
from tests.engine.harness import GREEDY, Running, decode, engine_for, generate, request
from tests.engine.row_caches import CHANGES, KINDS, forward, load, prefilled
from tests.samples import only
from tests.tiny import VOCABULARY, tiny


@pytest.fixture(autouse=True)
def _weights_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where rows are long and weights small: a few tokens of padding are worth a forward pass."""
    monkeypatch.setattr(buckets, "FREE_PADDING_BYTES", 1)


def per_token(row: kv.RowCache) -> int:
    return buckets.size_of(row)[1]


# -- which bucket ------------------------------------------------------------------------------------------------------


def rows_of(*lengths: int) -> list[kv.RowCache]:
    model = load("qwen3")
    return [prefilled(model, KINDS["dense"][1], [7] * length, 512) for length in lengths]


def made(spare_tokens: int = 100) -> Buckets:
    """Buckets that put up with so many tokens of padding."""
    return Buckets(spare_tokens * per_token(rows_of(1)[0]))


def test_rows_share_a_bucket_as_long_as_they_have_little_padding() -> None:
    cache = made()
    assert [name for name, _ in cache.join(rows_of(10, 50, 60))] == [0, 0, 0]
    assert cache.join(rows_of(500)) == [(1, 0)]
    assert cache.join(rows_of(30, 480, 495)) == [(0, 3), (1, 1), (1, 2)]


def test_there_are_four_buckets_at_most_and_then_the_nearest_is_joined() -> None:
    cache = made()
    places = cache.join(rows_of(10, 200, 400, 600, 800, 790, 20, 310))
    assert [name for name, _ in places] == [0, 1, 2, 3, 3, 3, 0, 2]
    assert len(cache._buckets) == 4


def test_a_bucket_without_rows_is_gone_and_makes_place_for_another() -> None:
    cache = made()
    places = cache.join(rows_of(10, 200, 400, 600))
    cache.leave([places[1], places[2]])
    assert set(cache._buckets) == {0, 3}
    assert cache.join(rows_of(200, 800)) == [(4, 0), (5, 0)]
    cache.leave([(name, 0) for name in (0, 3, 4, 5)])
    assert not cache._buckets and cache.nbytes == 0


def test_heavy_weights_keep_all_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Buckets(10**9)
    assert {name for name, _ in cache.join(rows_of(10, 200, 800))} == {0}


def test_a_lone_long_row_that_joins_copies_nothing() -> None:
    cache = made()
    cache.join(rows_of(10, 20))
    [long] = rows_of(2048)
    mx.eval([layer.state for layer in long])
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    [place] = cache.join([long])
    assert mx.get_peak_memory() - before < sum(layer.nbytes for layer in long) / 100
    assert isinstance(cache._buckets[place[0]], OneRow)


# -- what they compute -------------------------------------------------------------------------------------------------


class World:
    """Buckets, and each of their rows a second time on a cache of its own."""

    def __init__(self, name: str, seed: int) -> None:
        kind, self.make, _ = KINDS[name]
        self.model = load(kind, **CHANGES.get(name, {}))
        self.random = random.Random(seed)
        self.buckets = Buckets(50 * per_token(prefilled(self.model, self.make, [7])) or 1)
        self.alone: dict[kv.Place, kv.RowCache] = {}
        self.most = self.moved = 0

    def join(self, *lengths: int) -> None:
        prompts = [[self.random.randrange(3, VOCABULARY) for _ in range(n)] for n in lengths]
        rows = [prefilled(self.model, self.make, p) for p in prompts]
        for place, prompt in zip(self.buckets.join(rows), prompts, strict=True):
            assert place not in self.alone
            self.alone[place] = prefilled(self.model, self.make, prompt)
        self.most = max(self.most, len(self.buckets._buckets))
        assert set(self.buckets._buckets) == {name for name, _ in self.alone}

    def leave(self, *places: kv.Place) -> None:
        self.buckets.leave(places)
        for place in places:
            del self.alone[place]
        assert set(self.buckets._buckets) == {name for name, _ in self.alone}

    def compact(self) -> None:
        if self.buckets.wants_compaction:
            moves = self.buckets.compact()
            self.moved += len(moves)
            self.alone = {moves.get(place, place): row for place, row in self.alone.items()}

    def step(self) -> None:
        """A token for every row; what the model says is what it says on the row's own cache."""
        places = sorted(self.alone)
        if not places:
            return
        said = {place: self.random.randrange(3, VOCABULARY) for place in places}
        at = iter(places)
        for part in self.buckets.advance(places):
            here = dict(zip(part.slots, at, strict=False))
            ids = [said[here[slot]] if slot in here else 3 for slot in range(part.width)]
            logits = forward(self.model, ids, part.layers)
            own = mx.concatenate([forward(self.model, [said[place]], self.alone[place]) for place in here.values()])
            off = mx.abs(logits[mx.array(list(here))] - own).max(axis=-1).tolist()
            assert max(off) < 2e-3, f"rows {dict(zip(here.values(), off, strict=True))}"

    def read(self, place: kv.Place) -> None:
        """What is left of a row is what its own cache holds."""
        for mine, own in zip(self.buckets.read(place), kv.read_row(self.alone[place]), strict=True):
            for a, b in zip(_arrays(mine), _arrays(own), strict=True):
                assert a.shape == b.shape
                if a.dtype != mx.uint32:
                    assert mx.allclose(a, b, atol=2e-3).item()


def _arrays(layer: Any) -> list[Any]:
    return [array for leaf in buckets.leaves([layer]) for array in leaf.arrays if array is not None]


@pytest.mark.parametrize(
    "name",
    only(["sliding window", "quantised"], ["dense", "sliding window", "recurrent and dense", "quantised", "unknown"]),
)
def test_each_row_computes_what_it_computes_alone_whoever_joins_and_leaves(name: str) -> None:
    w = World(name, 3)
    w.join(5, 60, 150, 151)
    for _ in range(26):
        if w.random.random() < 0.2 and len(w.alone) < 7:
            w.join(*(w.random.choice([1, 8, 40, 90, 170, 260]) for _ in range(w.random.randint(1, 3))))
        if w.random.random() < 0.3 and w.alone:
            place = w.random.choice(sorted(w.alone))
            if name != "unknown":
                w.read(place)
            w.leave(place)
        w.compact()
        w.step()
    assert w.most <= 4 and w.moved
    if name != "unknown":  # whose lengths are not known
        assert w.most > 1


# -- in the batch ------------------------------------------------------------------------------------------------------

SAMPLED = SamplingParams(temperature=1.1, top_p=0.9, seed=5, top_logprobs=2)
LENGTHS = [3, 12, 45, 90, 91, 180, 300, 301, 420, 640]


@pytest.fixture
def model() -> TextModel:
    model = load_model(str(tiny("qwen3")), LoadOptions())
    model.weight_bytes = 1
    return model


@pytest.mark.parametrize("kind", only(["gemma3_text"], ["qwen3", "gemma3_text", "qwen3_next"]))
def test_rows_of_an_engine_say_what_each_says_alone(kind: str) -> None:
    engine = engine_for(kind, EngineOptions(max_rows=7, prefill_chunk=128))
    try:
        engine.model.weight_bytes = 1
        inside.rows(engine).batch._cache._spare = 1  # type: ignore[union-attr]
        running = [
            (n, Running(engine, request(tokens(n, n), max_tokens=6 + i))) for i, n in enumerate(LENGTHS + LENGTHS[::2])
        ]
        for i in (4, 9, 12):
            running[i][1].read(2)
            running[i][1].cancel()
        for i, (n, run) in enumerate(running):
            if i not in (4, 9, 12):
                assert run.finish() == [expected(kind, tokens(n, n), 6 + i)]
    finally:
        engine.close()


@pytest.mark.parametrize("sampling", only([SAMPLED], [GREEDY, SAMPLED]), ids=["greedy", "sampled"])
def test_what_a_row_draws_does_not_depend_on_its_bucket(model: TextModel, sampling: SamplingParams) -> None:
    requests = [request(tokens(n, n), sampling, 11, ignore_eos=True) for n in LENGTHS]
    each = []
    for one in requests:
        stepped = Stepped(model)
        [row] = stepped.join(one)
        while len(stepped.batch):
            decode(stepped.batch)
        each.append(stepped.events[row])
    together = Stepped(model)
    rows = together.join(*requests[:5])
    for _ in range(7):
        decode(together.batch)
    rows += together.join(*requests[5:])
    assert len(together.batch._cache._buckets) > 2
    while len(together.batch):
        decode(together.batch)
    for row, alone in zip(rows, each, strict=True):
        assert together.tokens(row) == [event.id for event in alone]  # type: ignore[union-attr]
        for event, own in zip(together.events[row], alone, strict=True):
            assert event.logprob == pytest.approx(own.logprob, abs=1e-3)  # type: ignore[union-attr]
            assert [i for i, _ in event.top] == [i for i, _ in own.top]  # type: ignore[union-attr]


def test_guided_rows_in_different_buckets_say_what_they_say_alone(model: TextModel) -> None:
    allowed = [sorted(random.Random(i).sample(range(3, VOCABULARY), 9)) for i in range(len(LENGTHS))]

    def run(which: list[int]) -> list[list[int]]:
        stepped, constraints = Stepped(model), [Only(allowed[i]) for i in which]
        rows = stepped.join(
            *[
                request(tokens(LENGTHS[i], i), GREEDY, 5 + i, constraint=constraint if i % 2 else None, ignore_eos=True)
                for i, constraint in zip(which, constraints, strict=True)
            ]
        )
        while len(stepped.batch):
            decode(stepped.batch)
        return [stepped.tokens(row) for row in rows]

    together = run(list(range(len(LENGTHS))))
    assert together == [run([i])[0] for i in range(len(LENGTHS))]
    assert all(set(said) <= set(allowed[i]) for i, said in enumerate(together) if i % 2)


def test_rows_that_leave_their_bucket_in_mid_stream_disturb_nobody(model: TextModel) -> None:
    requests = [request(tokens(n, n), GREEDY, 18, ignore_eos=True) for n in LENGTHS]
    stepped = Stepped(model)
    rows = stepped.join(*requests)
    for i in (0, 9, 5, 6):  # whole buckets and parts of them
        for _ in range(3):
            decode(stepped.batch)
        stepped.batch.drop([rows[i]])
    while len(stepped.batch):
        decode(stepped.batch)
    for i, (n, row) in enumerate(zip(LENGTHS, rows, strict=True)):
        if i not in (0, 9, 5, 6):
            assert stepped.tokens(row) == list(expected_beyond_the_end(n))


def expected_beyond_the_end(n: int) -> list[int]:
    engine = engine_for("qwen3")
    try:
        return generate(engine, request(tokens(n, n), GREEDY, 18, ignore_eos=True))[0]
    finally:
        engine.close()
