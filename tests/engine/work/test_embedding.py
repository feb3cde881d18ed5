"""Texts beside rows of an engine: a vector depends on its own text alone, and rows on nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work import lane as lanes
from localai_shim.models.loading import load_model
from localai_shim.types import EmbeddingRequest, EngineClosedError, Event, Failure, QueueFullError, RowError
from tests.embedding_models import tiny_embedder
from tests.engine.harness import Gate, Running, engine_for, eventually, request
from tests.engine.work.passes import Head
from tests.tiny import tiny

TEXTS = [[5 + (7 * i + j) % 50 for j in range(1 + (11 * i) % 37)] for i in range(24)]


DECODERS = ("qwen3", "gemma3_text", "qwen3_next")


@pytest.fixture(params=[*DECODERS, "bert"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine[Any]]:
    """A decoder of each kind, and an encoder."""
    with closing_engine(request.param) as engine:
        yield engine


@contextmanager
def closing_engine(kind: str, **options: Any) -> Iterator[Engine[Any]]:
    if kind == "bert":
        path = str(tiny_embedder("bert"))
        engine: Engine[Any] = Engine(lambda: load_model(path, {}), EngineOptions(**options))
    else:
        engine = engine_for(kind, EngineOptions(**options))
    try:
        engine.wait()
        yield engine
    finally:
        engine.close()


class Asked:
    """An embedding request in an engine."""

    def __init__(self, engine: Engine[Any], texts: Sequence[Sequence[int]], **more: Any) -> None:
        self.request, self.sink = EmbeddingRequest(texts, **more), SyncSink()
        self.ticket = engine.submit([self.request], self.sink)

    def vectors(self) -> npt.NDArray[np.float32]:
        index, event = self.sink.get(60)
        if isinstance(event, Failure):
            raise event.error
        assert index == 0 and event.finish_reason == "stop" and self.request.vectors is not None
        return self.request.vectors


def test_an_engine_is_among_those_that_have_rows_as_long_as_it_has_some() -> None:
    before = {*lanes.decoding}
    with closing_engine("qwen3") as engine:
        row = Running(engine, request([7, 40, 25, 31], max_tokens=400))
        row.read(2)
        assert len(lanes.decoding - before) == 1
        row.cancel()
        assert eventually(lambda: not engine.stats().running)
        Asked(engine, TEXTS).vectors()
        assert not lanes.decoding - before
        Running(engine, request([7, 40, 25, 31], max_tokens=400)).read(2)
    assert not lanes.decoding - before


def test_a_vector_depends_on_its_own_text_alone(engine: Engine[Any]) -> None:
    together = Asked(engine, TEXTS).vectors()
    alone = np.concatenate([Asked(engine, [text]).vectors() for text in TEXTS])
    assert together.dtype == np.float32 and together.shape == (len(TEXTS), engine.model.settings["embed"].dimensions)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.allclose(together, alone, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01
    assert engine.stats().embedded_texts == 2 * len(TEXTS)


def test_requests_at_once_get_their_own_vectors(engine: Engine[Any]) -> None:
    asked = [Asked(engine, TEXTS[i : i + 3]) for i in range(8)]
    for i, each in enumerate(asked):
        assert np.allclose(each.vectors(), Asked(engine, TEXTS[i : i + 3]).vectors(), atol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_gives_its_last_token_s_state(kind: str) -> None:
    model = mlx_lm.load(str(tiny(kind)))[0]
    with closing_engine(kind) as engine:
        vectors = Asked(engine, TEXTS[:6]).vectors()
    for text, vector in zip(TEXTS[:6], vectors, strict=True):
        state = np.array(model.model(mx.array([text]))[0, -1])
        assert np.allclose(vector, state / np.linalg.norm(state), atol=1e-5)


def test_rows_say_what_they_say_alone_and_get_tokens_between_two_passes() -> None:
    with closing_engine("qwen3", prefill_chunk=32) as engine:
        asking = request([7, 40, 25, 31], max_tokens=48)
        [expected] = Running(engine, asking).finish()
        passes: list[int] = []
        encode, row = engine.model.heads["embed"], Running(engine, request([7, 40, 25, 31], max_tokens=48))
        engine.model.heads["embed"] = Head(lambda *args: (passes.append(engine.stats().steps), encode(*args))[1])
        row.read(2)
        texts = Asked(engine, [[9] * 30] * 20)
        assert row.finish() == [expected]
        assert texts.vectors().shape == (20, 64)
        assert len(passes) == 20 and len({*passes}) == 20, "a step between two"


@pytest.mark.parametrize("kind", DECODERS)
def test_rows_get_tokens_between_the_pieces_of_a_long_text(kind: str) -> None:
    text = [5 + (7 * i) % 50 for i in range(300)]
    with closing_engine(kind) as engine:
        whole = Asked(engine, [text]).vectors()
    with closing_engine(kind, prefill_chunk=32) as engine:
        asking = request([7, 40, 25, 31], max_tokens=48)
        [expected] = Running(engine, asking).finish()
        pieces: list[tuple[int, int]] = []
        begin = engine.model.heads["embed"].begin

        def noting(*given: Any, **more: Any) -> Any:
            reading = begin(*given, **more)
            run = reading.run
            reading.run = lambda most: (pieces.append((engine.stats().steps, most)), run(most))[1]
            return reading

        engine.model.heads["embed"].begin = noting
        row = Running(engine, request([7, 40, 25, 31], max_tokens=48))
        row.read(2)
        asked = Asked(engine, [text, text[:20]])
        assert row.finish() == [expected]
        assert np.allclose(asked.vectors()[0], whole[0], atol=1e-5)
    assert len(pieces) == 10 and len({step for step, _ in pieces}) == 10 and max(most for _, most in pieces) == 32


def test_a_cancelled_request_leaves_and_the_next_one_is_served() -> None:
    with closing_engine("qwen3", prefill_chunk=32) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.heads["embed"]
        engine.model.heads["embed"] = Head(lambda *args: (gate(), encode(*args))[1])
        gone = Asked(engine, [[9] * 30] * 50)
        gate.wait()
        engine.cancel(gone.ticket)
        stays = Asked(engine, [[8] * 30])
        gate.open()
        assert stays.vectors().shape == (1, 64)
        assert eventually(lambda: engine.stats().waiting == 0)
        assert gone.request.vectors is None and engine.stats().embedded_texts <= 3
        with pytest.raises(TimeoutError):
            gone.sink.get(0)


@pytest.mark.parametrize("kind", ["qwen3", "bert"])
def test_what_is_in_flight_fails_when_the_engine_closes(kind: str) -> None:
    with closing_engine(kind, prefill_chunk=32) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.heads["embed"]
        engine.model.heads["embed"] = Head(lambda *args: (gate(), encode(*args))[1])
        asked = [Asked(engine, [[9] * 30] * 50) for _ in range(3)]
        gate.close(engine)
        for each in asked:
            with pytest.raises(EngineClosedError):
                each.vectors()
        with pytest.raises(EngineClosedError):
            Asked(engine, TEXTS)


def test_a_text_that_fails_leaves_rows_and_other_texts_alone() -> None:
    with closing_engine("qwen3") as engine:
        [expected] = Running(engine, request([7, 40, 25], max_tokens=24)).finish()
        encode = engine.model.heads["embed"]

        def encode_most(texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
            if any(13 in text for text in texts):
                raise ArithmeticError("thirteen")
            return encode(texts, skip)

        engine.model.heads["embed"] = Head(encode_most)
        row = Running(engine, request([7, 40, 25], max_tokens=24))
        asked = [Asked(engine, [[5, 6, 7], [6, 13, 8]]), Asked(engine, [[5, 6, 7]])]
        with pytest.raises(RowError, match=r"embedding text 1 failed.*thirteen"):
            asked[0].vectors()
        assert asked[1].vectors().shape == (1, 64)
        assert row.finish() == [expected]


def test_a_request_takes_one_place_in_the_queue() -> None:
    with closing_engine("bert", max_rows=1, max_queue=1) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.heads["embed"]
        engine.model.heads["embed"] = Head(lambda *args: (gate(), encode(*args))[1])
        asked = [Asked(engine, TEXTS), Asked(engine, TEXTS)]
        with pytest.raises(QueueFullError):
            Asked(engine, TEXTS)
        gate.open()
        assert [each.vectors().shape for each in asked] == [(len(TEXTS), 32)] * 2
        Asked(engine, TEXTS).vectors()


def test_an_encoder_generates_no_text() -> None:
    with closing_engine("bert") as engine, pytest.raises(RowError, match="generates no text"):
        Running(engine, request([5, 6, 7])).finish()


def test_a_consumer_that_is_gone_holds_nobody_up() -> None:
    class Gone(SyncSink):
        def put(self, index: int, event: Event) -> None:
            raise RuntimeError("nobody is here")

    with closing_engine("bert") as engine:
        engine.submit([EmbeddingRequest(TEXTS)], Gone())
        assert Asked(engine, TEXTS).vectors().shape == (len(TEXTS), 32)
        assert eventually(lambda: engine.stats().waiting == 0)
