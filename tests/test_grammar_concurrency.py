"""Guided and free rows at once: each guided one follows its grammar, and nobody notices the others."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest
from jsonschema import Draft202012Validator

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.engine import Engine
from localai_shim.grammar import compile as grammar
from localai_shim.models.text import TextModel
from localai_shim.types import RowError
from tests.engine.harness import Running, engine_for, eventually, request
from tests.heartbeat import stays_free
from tests.samples import only

ROWS = 16
ALONE = 8  # of them, greedy ones and seeded ones


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine[TextModel]]:
    engine = engine_for("qwen3", max_position_embeddings=100_000)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def client(engine: Engine[TextModel]) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


@pytest.fixture
async def tasks(engine: Engine[TextModel]) -> AsyncIterator[AsyncLocalOpenAI]:
    async with AsyncLocalOpenAI(engine=engine) as client:
        yield client


def schema(i: int) -> dict[str, Any]:
    """A schema that no other number has."""
    words = [f"{word}{i}" for word in ("red", "blue", "grün")]
    values: list[dict[str, Any]] = [
        {"enum": words},
        {"type": "integer", "minimum": i, "maximum": 10 * i + 9},
        {"type": "string", "minLength": i % 3, "maxLength": 3 + i // 2},
        {"type": "array", "items": {"enum": words}, "minItems": 1, "maxItems": 1 + i % 4},
        {"anyOf": [{"type": "boolean"}, {"const": i}]},
    ]
    properties = {f"p{k}": values[(i + k) % len(values)] for k in range(2 + i % 3)}
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def asks(i: int, **more: Any) -> dict[str, Any]:
    """Greedy for even numbers, seeded for odd ones."""
    messages = [{"role": "user", "content": f"Question {i}: " + "why " * (i % 7)}]
    drawn = {"temperature": 0} if i % 2 == 0 else {"temperature": 0.7 + 0.03 * i, "seed": i, "top_p": 1 - 0.01 * i}
    return {"model": "any", "messages": messages, "max_tokens": 40, **drawn, **more}


def guided(i: int) -> dict[str, Any]:
    format = {"type": "json_schema", "json_schema": {"name": f"schema-{i}", "schema": schema(i), "strict": True}}
    return asks(i, response_format=format, max_tokens=300, logprobs=True)


def free(i: int) -> dict[str, Any]:
    return asks(i, extra_body={"ignore_eos": True}, logprobs=True)


def tokens(choices: Any) -> list[bytes]:
    """The bytes of a choice's tokens; of a whole answer or of the choices of a stream's chunks."""
    logged = [choice.logprobs.content for choice in choices if choice.logprobs is not None]
    return [bytes(entry.bytes) for entry in itertools.chain.from_iterable(logged)]


def check(text: bytes, i: int) -> None:
    Draft202012Validator(schema(i)).validate(json.loads(text))


def whole(client: LocalOpenAI, create: dict[str, Any]) -> list[bytes]:
    return tokens(client.chat.completions.create(**create).choices)


async def streamed(client: AsyncLocalOpenAI, create: dict[str, Any]) -> list[bytes]:
    stream = await client.chat.completions.create(**create, stream=True)
    return tokens([chunk.choices[0] async for chunk in stream])


@pytest.fixture(scope="module")
def alone(client: LocalOpenAI) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """The tokens of the first guided and free requests when nothing else runs; all of them take seconds."""
    return [whole(client, guided(i)) for i in range(ALONE)], [whole(client, free(i)) for i in range(ALONE)]


Alone = tuple[list[list[bytes]], list[list[bytes]]]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only(["asyncio"], ["asyncio", "trio"]))
async def test_sixteen_schemas_and_sixteen_free_rows_say_what_they_say_alone(
    tasks: AsyncLocalOpenAI, alone: Alone
) -> None:
    said: dict[tuple[str, int], list[bytes]] = {}

    async def one(kind: str, i: int) -> None:
        said[kind, i] = await streamed(tasks, (guided if kind == "guided" else free)(i))

    async with anyio.create_task_group() as group:
        for i in range(ROWS):
            group.start_soon(one, "guided", i)
            group.start_soon(one, "free", i)
    for i in range(ROWS):
        check(b"".join(said["guided", i]), i)
    assert [said["guided", i] for i in range(ALONE)] == alone[0]
    assert [said["free", i] for i in range(ALONE)] == alone[1]


@pytest.mark.anyio
async def test_guided_rows_that_join_leave_and_are_cancelled_disturb_nobody(
    tasks: AsyncLocalOpenAI, alone: Alone, engine: Engine[TextModel]
) -> None:
    said: dict[tuple[str, int], list[bytes]] = {}

    async def stays(kind: str, i: int) -> None:
        said[kind, i] = await streamed(tasks, (guided if kind == "guided" else free)(i))

    async def leaves(i: int, after: int) -> None:
        stream = await tasks.chat.completions.create(**guided(i), stream=True)
        async with stream:
            for _ in range(after):
                await stream.__anext__()

    async def is_cancelled(i: int) -> None:
        with anyio.move_on_after(0.01 * i):
            await tasks.chat.completions.create(**guided(i), n=2)

    async with anyio.create_task_group() as group:
        for i in range(8):
            group.start_soon(stays, "free", i)
        for i in range(8):
            group.start_soon(leaves, i, 1 + i)
            group.start_soon(is_cancelled, 8 + i)
            await leaves(i, 2)
            group.start_soon(stays, "guided", i)
    assert said == {(kind, i): alone[n][i] for n, kind in enumerate(("guided", "free")) for i in range(8)}
    assert await anyio.to_thread.run_sync(eventually, lambda: not (engine.stats().running or engine.stats().waiting))


# -- what goes wrong --------------------------------------------------------------------------------------------------


def too_wide() -> str:
    """A grammar that compiles, and after two characters has more ways to go on than llguidance follows."""
    ways = "|".join(" ".join(way) for way in itertools.product("AB", repeat=11))
    return f'start: "x" "y" any\nany: {ways}\nA: "a"\nB: "b"'


class Fails:
    """A constraint that breaks at its third token, in one of the two places where it can."""

    idle, escape = False, None

    def __init__(self, where: str) -> None:
        self.where, self.taken = where, 0

    def mask(self, out: Any) -> bool:
        if self.where == "mask" and self.taken == 2:
            raise ValueError("no way on")
        out[:] = -1
        return True

    def accept(self, token_id: int) -> bool:
        self.taken += 1
        if self.where == "accept" and self.taken == 3:
            raise ValueError("no way on")
        return False


@pytest.mark.anyio
async def test_a_grammar_that_becomes_too_complex_fails_alone(tasks: AsyncLocalOpenAI, alone: Alone) -> None:
    said: dict[tuple[str, int], list[bytes]] = {}
    failures: list[bytes] = []

    async def one(kind: str, i: int) -> None:
        said[kind, i] = await streamed(tasks, (guided if kind == "guided" else free)(i))

    async def ask(seen: list[Any], stream: bool) -> None:
        create = asks(3, extra_body={"guided_grammar": too_wide()}, logprobs=True)
        made: Any = await tasks.chat.completions.create(**create, stream=stream)
        async for chunk in made:
            seen.extend(chunk.choices)

    async def fails(stream: bool) -> None:
        seen: list[Any] = []
        with pytest.raises(openai.BadRequestError, match="grammar of this request became too complex"):
            await ask(seen, stream)
        failures.append(b"".join(tokens(seen)))

    async with anyio.create_task_group() as group:
        for i in range(4):
            group.start_soon(one, "free", i)
            group.start_soon(one, "guided", i)
            group.start_soon(fails, i % 2 == 0)
    assert sorted(failures) == [b"", b"", b"x", b"x"]
    assert said == {(kind, i): alone[n][i] for n, kind in enumerate(("guided", "free")) for i in range(4)}


@pytest.mark.parametrize("where", ["mask", "accept"])
def test_a_guide_that_raises_ends_its_own_row_only(
    client: LocalOpenAI, engine: Engine[TextModel], alone: Alone, where: str
) -> None:
    streams = [client.chat.completions.create(**(guided, free)[k](i), stream=True) for k in (0, 1) for i in range(3)]
    begun = [[next(stream).choices[0], next(stream).choices[0]] for stream in streams]
    with pytest.raises(RowError, match="no way on"):
        Running(engine, request([5, 6], constraint=Fails(where))).finish()
    rest = [[chunk.choices[0] for chunk in stream] for stream in streams]
    said = [tokens([*first, *more]) for first, more in zip(begun, rest, strict=True)]
    assert said == [*alone[0][:3], *alone[1][:3]]


def test_schemas_that_are_refused_do_not_disturb_a_stream(client: LocalOpenAI, alone: Alone) -> None:
    broken: list[dict[str, Any]] = [
        {"not": {}},
        {"type": "strin"},
        {"$ref": "#"},
        {"type": "string", "pattern": "("},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
    ]
    streams = [client.chat.completions.create(**create, stream=True) for create in (guided(5), free(5))]
    begun = [[next(stream).choices[0]] for stream in streams]
    for one in broken:
        for choices, stream in zip(begun, streams, strict=True):
            choices.append(next(stream).choices[0])
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(**asks(0, extra_body={"guided_json": one}))
    for choices, stream in zip(begun, streams, strict=True):
        choices += [chunk.choices[0] for chunk in stream]
    assert [tokens(choices) for choices in begun] == [alone[0][5], alone[1][5]]


# -- compiling --------------------------------------------------------------------------------------------------------


def heavy(i: int, dates: int = 100) -> dict[str, Any]:
    """A schema that takes tens of milliseconds to compile, and next to none to read; each number's is another one."""
    properties = {f"date {i} {k}": {"type": "string", "format": "date-time"} for k in range(dates)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


class Compiles:
    """Counts the grammars that are compiled, and how many steps the engine makes meanwhile."""

    def __init__(self, engine: Engine[TextModel], monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []  # of the compiling threads' own time
        self.steps: list[int] = []
        plain = grammar.Grammar

        def watched(*args: Any) -> grammar.Grammar:
            steps, start = engine.stats().steps, time.thread_time()
            made = plain(*args)
            self.seconds.append(time.thread_time() - start)
            self.steps.append(engine.stats().steps - steps)
            return made

        monkeypatch.setattr(grammar, "Grammar", watched)


@pytest.fixture
def compiles(engine: Engine[TextModel], monkeypatch: pytest.MonkeyPatch) -> Compiles:
    return Compiles(engine, monkeypatch)


def test_equal_schemas_compile_once(client: LocalOpenAI, engine: Engine[TextModel], compiles: Compiles) -> None:
    def create(i: int, **more: Any) -> dict[str, Any]:
        return asks(i, extra_body={"guided_json": heavy(-1)}, max_tokens=4, n=2, **more)

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine) as tasks:
            await asyncio.gather(*(tasks.chat.completions.create(**create(i)) for i in range(12)))

    threads = [threading.Thread(target=client.chat.completions.create, kwargs=create(i)) for i in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(main())
    for thread in threads:
        thread.join()
    other_name = {"type": "json_schema", "json_schema": {"name": "another", "schema": heavy(-1), "strict": True}}
    client.chat.completions.create(**asks(0, response_format=other_name, max_tokens=4))
    assert len(compiles.seconds) == 1
    client.chat.completions.create(**asks(0, extra_body={"guided_json": heavy(-2)}, max_tokens=4))
    assert len(compiles.seconds) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_choice_among_thousands_compiles_while_a_stream_goes_on(
    tasks: AsyncLocalOpenAI, alone: Alone, compiles: Compiles
) -> None:
    options = [f"{(k * 7919) % 1_000_003:x} and {k}" for k in range(5_000)]
    stream = await tasks.chat.completions.create(**{**free(1), "max_tokens": 90_000}, stream=True)
    first = [(await stream.__anext__()).choices[0] for _ in range(20)]
    for field in ({"guided_choice": options}, {"structured_outputs": {"choice": options[::-1]}}):
        answer = await tasks.chat.completions.create(**asks(0, extra_body=field))
        assert answer.choices[0].message.content in options
    await stream.close()
    assert all(compiles.steps), "the engine made steps while each was compiled"
    assert tokens(first) == alone[1][1][: len(tokens(first))]


@pytest.mark.timed
def test_compiling_blocks_neither_the_event_loop_nor_the_engine(engine: Engine[TextModel], compiles: Compiles) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine) as tasks:

            async def compiled(i: int) -> None:
                schema = heavy(i, dates=200)
                await tasks.chat.completions.create(**asks(0, extra_body={"guided_json": schema}, max_tokens=2))

            await compiled(0)
            stream = await tasks.chat.completions.create(**{**free(1), "max_tokens": 90_000}, stream=True)
            await stream.__anext__()

            async def work(number: int) -> None:
                for i in (1, 5):
                    await asyncio.gather(*(compiled(8 * number + k) for k in range(i, i + 4)))

            assert await stays_free(work, compiles.seconds[0])
            assert engine.stats().running >= 1, "the stream ran all the time"
            await stream.close()

    asyncio.run(main())
    assert len(compiles.seconds) >= 9 and any(compiles.steps[1:])
