"""A queue that is full says so at once, and its places come back whatever becomes of those who had them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import EngineClosedError, QueueFullError, RowError, SamplingParams, TooManyRowsError
from tests.conftest import MESSAGES, refused
from tests.engine.harness import Running, engine_for, eventually, generate, held, prefilling, request
from tests.threads import in_threads
from tests.tiny import tiny

MOST = 5
OPTIONS = EngineOptions(max_rows=2, max_queue=3)
ASK: dict[str, Any] = {"model": "any", "messages": MESSAGES, "max_tokens": 2}


@pytest.fixture
def engine() -> Iterator[Engine[TextModel]]:
    engine = engine_for("qwen3", OPTIONS)
    engine.wait()
    yield engine
    engine.close()


def short(i: int = 0) -> Any:
    return request([5 + i, 6, 7, 8], max_tokens=2)


def there(engine: Engine[TextModel]) -> int:
    stats = engine.stats()
    return stats.running + stats.waiting


def fill(engine: Engine[TextModel]) -> list[Running]:
    """Take all places, and see that there are no more and no fewer."""
    running = [Running(engine, short(i)) for i in range(MOST)]
    with pytest.raises(QueueFullError):
        Running(engine, short())
    return running


# -- the limit ---------------------------------------------------------------------------------------------------------


def test_max_rows_and_max_queue_are_how_many_there_may_be(engine: Engine[TextModel]) -> None:
    with held(engine):
        running = [Running(engine, short(i)) for i in range(MOST)]
        with pytest.raises(QueueFullError, match="Queue full: 5 of 5 slots in use"):
            Running(engine, short())
        assert there(engine) == MOST and engine.stats().refused == 1
    assert [len(run.finish()[0]) for run in running] == [2] * MOST
    assert generate(engine, short()) == [running[0].finish()[0]]
    assert engine.stats().refused == 1


def test_all_choices_of_a_request_are_queued_or_none(engine: Engine[TextModel]) -> None:
    with held(engine):
        first = Running(engine, [short()] * 3)
        with pytest.raises(QueueFullError):
            Running(engine, [short()] * 3)
        assert engine.stats().refused == 3, "rows, as everything else"
        second = Running(engine, [short()] * 2)
    assert first.finish()[:2] == second.finish()


def test_a_request_with_more_choices_than_places_is_refused_for_good(engine: Engine[TextModel]) -> None:
    """Waiting would not help it, so it is not told to try again."""
    with pytest.raises(TooManyRowsError, match=r"6 choices exceed .* 5 \(max_rows \+ max_queue\)"):
        Running(engine, [short()] * 6)
    assert there(engine) == 0 and engine.stats().refused == 0
    assert len(Running(engine, [short()] * 5).finish()) == 5


def test_a_queue_of_nothing_lets_as_many_in_as_run() -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=2, max_queue=0))
    try:
        with held(engine):
            running = [Running(engine, short(i)) for i in range(2)]
            with pytest.raises(QueueFullError):
                Running(engine, short())
        for run in running:
            run.finish()
    finally:
        engine.close()


def test_there_is_a_limit_while_the_model_is_loaded() -> None:
    go = threading.Event()

    def load() -> TextModel:
        go.wait(60)
        return load_model(str(tiny("qwen3")), LoadOptions())

    engine = Engine(load, OPTIONS)
    try:
        running = fill(engine)
        assert engine.stats().waiting == MOST and not engine.is_ready
        go.set()
        assert [len(run.finish()[0]) for run in running] == [2] * MOST
    finally:
        go.set()
        engine.close()


def test_of_many_threads_as_many_get_in_as_there_are_places(engine: Engine[TextModel]) -> None:
    accepted: list[Running] = []
    start = threading.Barrier(8)

    def ask(_: int) -> None:
        start.wait()
        for _ in range(10):
            with suppress(QueueFullError):
                accepted.append(Running(engine, short()))

    with held(engine):
        in_threads(ask, range(8))
        assert (len(accepted), engine.stats().refused) == (MOST, 80 - MOST)
    for run in accepted:
        run.finish()


# -- places come back --------------------------------------------------------------------------------------------------


def test_a_row_that_is_cancelled_frees_its_place(engine: Engine[TextModel]) -> None:
    endless = [Running(engine, request([5 + i, 6], max_tokens=900, ignore_eos=True)) for i in range(MOST)]
    assert eventually(lambda: engine.stats().running == 2)
    for i in (0, 3):  # one that runs and one that waits
        endless[i].cancel()
    assert eventually(lambda: there(engine) == MOST - 2)
    endless += [Running(engine, request([5, 6], max_tokens=900, ignore_eos=True)) for _ in range(2)]
    with pytest.raises(QueueFullError):
        Running(engine, short())
    for run in endless:
        run.cancel()


def fails_at_admission(engine: Engine[TextModel]) -> None:
    bad = request([8, 9], SamplingParams(seed="seven"))  # type: ignore[arg-type]
    with pytest.raises(RowError, match="admitted"):
        Running(engine, [bad, bad]).finish()


def fails_at_prefill(engine: Engine[TextModel]) -> None:
    def fail() -> None:
        raise RuntimeError("bad prompt")

    with prefilling(engine, fail), pytest.raises(RowError, match="bad prompt"):
        Running(engine, [short(), short()]).finish()


def fails_at_a_step(engine: Engine[TextModel]) -> None:
    forward = engine.model.forward

    def failing(*args: Any) -> None:
        raise RuntimeError("device lost")

    engine.model.forward = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(RowError, match="device lost"):
        Running(engine, [short(), short()]).finish()
    engine.model.forward = forward  # type: ignore[method-assign]


def is_cancelled_before_it_is_admitted(engine: Engine[TextModel]) -> None:
    with held(engine):
        Running(engine, short())
        for _ in range(2):
            Running(engine, [short(), short()]).cancel()


def is_cancelled_twice(engine: Engine[TextModel]) -> None:
    run = Running(engine, request([5, 6], max_tokens=900, ignore_eos=True))
    run.read(1)
    run.cancel()
    run.cancel()
    done = Running(engine, short())
    done.finish()
    done.cancel()


def is_refused(engine: Engine[TextModel]) -> None:
    with held(engine):
        running = fill(engine)
    for run in running:
        run.finish()


def has_nobody_to_take_it(engine: Engine[TextModel]) -> None:
    class Broken:
        waker = None

        def put(self, index: int, event: Any) -> None:
            raise OSError("consumer is gone")

    engine.submit([short(), short()], Broken())


FATES = [
    fails_at_admission,
    fails_at_prefill,
    fails_at_a_step,
    is_cancelled_before_it_is_admitted,
    is_cancelled_twice,
    is_refused,
    has_nobody_to_take_it,
]


@pytest.mark.parametrize("fate", FATES, ids=[fate.__name__ for fate in FATES])
def test_no_place_is_lost_when_a_request(engine: Engine[TextModel], fate: Any) -> None:
    for _ in range(2):
        fate(engine)
        assert eventually(lambda: there(engine) == 0)
    with held(engine):
        running = fill(engine)
    assert [len(run.finish()[0]) for run in running] == [2] * MOST


def test_a_closed_engine_has_nobody_waiting(engine: Engine[TextModel]) -> None:
    with held(engine):
        running = fill(engine)
        closing = threading.Thread(target=engine.close)
        closing.start()
        assert eventually(lambda: engine.is_closed)
    closing.join()
    for run in running[1:]:  # the first was being prefilled
        with pytest.raises(EngineClosedError):
            run.finish()
    assert there(engine) == 0


# -- towards clients ---------------------------------------------------------------------------------------------------


def is_rate_limited(error: openai.RateLimitError) -> None:
    assert (error.status_code, error.code, error.param, error.type) == (429, "rate_limit_exceeded", None, "requests")
    assert error.response.status_code == 429
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"} and "Retry later." in error.body["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_clients_are_told_in_the_sdk_s_terms(engine: Engine[TextModel], endpoint: str, stream: bool) -> None:
    with LocalOpenAI(engine=engine) as client:

        def ask() -> Any:
            if endpoint == "chat":
                return client.chat.completions.create(**ASK, stream=stream)
            return client.completions.create(model="any", prompt="Hello", max_tokens=2, stream=stream)

        with held(engine):
            running = fill(engine)
            with pytest.raises(openai.RateLimitError) as caught:
                ask()
            is_rate_limited(caught.value)
            assert client.stats().refused == 2
        for run in running:
            run.finish()
        answer = ask()
        assert list(answer) if stream else answer.usage.completion_tokens


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_asynchronous_clients_too(engine: Engine[TextModel], stream: bool) -> None:
    async with AsyncLocalOpenAI(engine=engine) as client:
        with held(engine):
            running = fill(engine)
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(**ASK, stream=stream)
            is_rate_limited(caught.value)
            assert client.stats().refused == 2
        for run in running:
            run.finish()
        answer = await client.chat.completions.create(**ASK)
        assert answer.usage is not None and answer.usage.completion_tokens


def test_more_choices_than_places_are_a_bad_request(engine: Engine[TextModel]) -> None:
    with LocalOpenAI(engine=engine) as client:
        with refused("n", "invalid_value", "9 choices exceed the queue capacity of 5"):
            client.chat.completions.create(**ASK, n=9)
        with refused("n", "invalid_value", "6 choices"):
            client.completions.create(model="m", prompt=["a", "b"], n=3, max_tokens=1)
        assert len(client.chat.completions.create(**ASK, n=5).choices) == 5
