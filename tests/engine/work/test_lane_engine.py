"""An engine's texts and its rows: what fails of the ones leaves the others alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.costs.chunks import Pace
from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.work import lane as lanes
from localai_shim.models.heads.pooling import Pooling, Reading
from localai_shim.types import GenerationRequest, Prompt, RowError
from tests.engine.everything import Everything, Texts, everything
from tests.engine.harness import GREEDY, Gate, Running, eventually
from tests.engine.work.passes import Head


class Encoder:
    """Embeds texts in pieces, and no two in one pass."""

    name, tasks, weight_bytes, fingerprint, context_length = "encoder", ("embed",), 0, "", None
    created, eos_token_ids, generation_defaults = 0, frozenset[int](), dict[str, Any]()
    tokenizer, settings = None, dict[Any, Any]()
    text = SimpleNamespace(media_kinds=())

    def __init__(self) -> None:
        self.begin_pass: Any = lambda: None
        self.heads = {"embed": Head(self.encode, self.begin)}

    def encode(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        self.begin_pass()
        if len(texts) > 1:
            raise ArithmeticError("two at once")
        return mx.array([[float(len(texts[0]))]])

    def begin(self, text: Sequence[int], skip: int = 0) -> Reading:
        def read(tokens: mx.array) -> mx.array:
            self.begin_pass()
            return mx.full((1, tokens.shape[1], 1), float(len(text)))

        return Reading(text, read, Pooling(["mean"], [len(text)]), lambda made: made)


def test_a_pass_that_fails_while_a_long_text_is_read_fails_nobody_and_the_engine_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "waiting", set())
    sizes = itertools.chain([500, 500], itertools.repeat(125))
    monkeypatch.setattr(Pace, "chunk", lambda pace, left=None: next(sizes))
    model = Encoder()
    engine: Engine[Any] = Engine(lambda: model)
    try:
        passes = itertools.count()
        gate = Gate(lambda: next(passes) == 0)
        model.begin_pass = gate
        long = Texts(engine, [[1] * 1000])
        gate.wait()
        others = Texts(engine, [[2] * 200] * 2)
        gate.open()
        assert long.finish() == [[1000.0]] and others.finish() == [[200.0]] * 2
        assert Texts(engine, [[4] * 9]).finish() == [[9.0]]
        assert eventually(lambda: engine.stats().waiting == 0)
    finally:
        engine.close()


@pytest.fixture
def engine() -> Iterator[Engine[Everything]]:
    made = everything(EngineOptions(prefix_cache_bytes=0))
    yield made
    made.close()


def test_a_step_that_fails_while_texts_wait_for_it_fails_rows_and_no_texts(
    engine: Engine[Everything], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Running(engine, GenerationRequest(Prompt([5, 6, 7]), GREEDY, 900, ignore_eos=True))
    row.read(3)
    waiting, raised = threading.Event(), threading.Event()
    wait, evaluate, thread = Batch.wait, mx.eval, engine._work.thread

    def noting(self: Any) -> None:
        waiting.set()
        wait(self)

    def failing(*arrays: Any) -> None:
        if threading.current_thread() is thread and waiting.is_set() and not raised.is_set():
            raised.set()
            raise RuntimeError("device lost")
        evaluate(*arrays)

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "wait", noting)
        patch.setattr(mx, "eval", failing)
        texts = Texts(engine, [[4] * 9])
        with pytest.raises(RowError, match="the model failed"):
            row.finish()
        assert texts.finish() == [[9.0, 4.0]]
    assert raised.is_set() and len(Running(engine, GenerationRequest(Prompt([5]), GREEDY, 3)).finish()[0]) <= 3


@pytest.mark.parametrize("attribute", ["stop", "constraint"])
def test_a_panic_in_a_row_s_own_checks_is_that_of_the_row(attribute: str, engine: Engine[Everything]) -> None:
    """Those of programs in Rust are no `Exception`."""

    class Panic(BaseException):
        pass

    class Check:
        idle, escape = False, None

        def mask(self, out: Any) -> bool:
            raise Panic("index out of bounds")

        def feed(self, token_id: int) -> bool:
            raise Panic("index out of bounds")

        def accept(self, token_id: int) -> bool:
            return False

        def forced(self) -> Sequence[int]:
            raise Panic("index out of bounds")

    good = GenerationRequest(Prompt([5, 6, 7]), GREEDY, 40, ignore_eos=True)
    [expected] = Running(engine, good).finish()
    running = Running(engine, good)
    running.read(2)
    with pytest.raises(RowError, match="index out of bounds"):
        Running(engine, GenerationRequest(Prompt([8, 9]), GREEDY, 40, **{attribute: Check()})).finish()
    assert running.finish() == [expected]


def test_a_panic_in_a_step_is_that_of_its_rows(engine: Engine[Everything], monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    row = Running(engine, GenerationRequest(Prompt([5, 6, 7]), GREEDY, 900, ignore_eos=True))
    row.read(2)

    def failing(*_: Any) -> None:
        raise Panic("index out of bounds")

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "_finish", failing)
        with pytest.raises(RowError, match="index out of bounds"):
            row.finish()
    assert Running(engine, GenerationRequest(Prompt([5]), GREEDY, 1)).finish()
    assert engine.stats().running == 0
