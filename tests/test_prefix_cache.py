"""Agent loops and conversations through the client: each turn prefills its new tokens, and the usage says so."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.engine import EngineOptions
from tests import inside
from tests.agent_loop import KINDS, THINKING, client_of
from tests.conftest import refused
from tests.endpoints.functions import TEXT, function
from tests.engine.harness import engine_for
from tests.samples import exhaustive, only

SYSTEM = "You are an agent that looks up facts. " + "one two three four five six seven eight nine ten " * 8
TOOL = function("look_up", what=TEXT)


class Loop:
    """An agent loop: what it has said so far, and what each turn cost."""

    def __init__(self, client: LocalOpenAI) -> None:
        self.client = client
        self.messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "What is the capital of France?"},
        ]
        self.prompts: list[int] = []
        self.cached: list[int] = []
        self.said: list[str] = []

    def turn(self) -> None:
        """Ask the model, which is random, and go on as if it had called the tool."""
        made = self.client.chat.completions.create(
            model="m", messages=self.messages, tools=[TOOL], temperature=0, max_tokens=12
        )
        usage, message = made.usage, made.choices[0].message
        assert usage is not None and usage.prompt_tokens_details is not None
        self.prompts.append(usage.prompt_tokens)
        self.cached.append(usage.prompt_tokens_details.cached_tokens or 0)
        self.said.append(message.model_dump_json(exclude={"tool_calls": {"__all__": {"id"}}}))
        call_id, number = f"call_{len(self.said)}", len(self.said)
        self.messages += [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": f"I should look up number {number}.",
                "tool_calls": [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {"name": "look_up", "arguments": json.dumps({"what": f"{number}"})},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": call_id, "content": f"Fact {number}: the quick brown fox jumps."},
        ]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((kind, turns), marks=[exhaustive] * (turns > 4 or kind == "qwen3"), id=f"{kind}, {turns} turns")
        for kind in KINDS
        for turns in (4, 10)
    ],
)
def loops(request: pytest.FixtureRequest) -> tuple[Loop, Loop, int]:
    """Some turns, a question of the user and two more; the same without a prefix cache; tokens really prefilled."""
    kind, turns = request.param
    done = []
    for options in (EngineOptions(prefix_cache_bytes=0), None):
        with client_of(kind, options) as client:
            prefilled = [0]
            model = inside.engine(client).model
            prefill = model.prefill

            def counted(step: Any, *, prefill: Any = prefill, total: list[int] = prefilled, **more: Any) -> Any:
                total[0] += step.tokens.size - step.ends
                return prefill(step, **more)

            model.prefill = counted
            loop = Loop(client)
            for _ in range(turns):
                loop.turn()
            loop.messages.append({"role": "user", "content": "And what is the capital of Spain?"})
            loop.turn()
            loop.turn()
            done.append((loop, prefilled[0]))
    (cold, _), (warm, prefilled_warm) = done
    return cold, warm, prefilled_warm


def test_a_loop_says_what_it_says_without_a_cache(loops: tuple[Loop, Loop, int]) -> None:
    cold, warm, _ = loops
    assert warm.said == cold.said and warm.prompts == cold.prompts
    assert not any(cold.cached)


def test_each_turn_prefills_its_new_tokens(loops: tuple[Loop, Loop, int]) -> None:
    _, warm, prefilled = loops
    assert warm.cached[0] == 0
    last = len(warm.prompts) - 1
    for turn in [*range(1, last - 1), last]:
        new = warm.prompts[turn] - warm.prompts[turn - 1]
        assert warm.prompts[turn] - warm.cached[turn] <= new + 16
    assert prefilled == sum(warm.prompts) - sum(warm.cached) - len(warm.prompts), "and the last tokens"


def test_a_template_that_rewrites_earlier_turns_keeps_what_is_before_them(loops: tuple[Loop, Loop, int]) -> None:
    _, warm, _ = loops
    grown = [after - before for before, after in itertools.pairwise(warm.prompts)]
    assert grown[-2] < grown[-3], "a turn and a question, and the thoughts were dropped"
    assert warm.cached[-2] >= warm.prompts[0] - 16


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_conversations_share_their_system_prompt_and_tools(kind: str) -> None:
    with client_of(kind) as client:
        ask: dict[str, Any] = {"model": "m", "tools": [TOOL], "max_tokens": 3, "temperature": 0}
        system = {"role": "system", "content": SYSTEM}
        usages = []
        for question in ("What is the capital of France?", "How are you today?", "Привет, мир!"):
            made = client.chat.completions.create(messages=[system, {"role": "user", "content": question}], **ask)
            assert made.usage is not None and made.usage.prompt_tokens_details is not None
            usages.append((made.usage.prompt_tokens, made.usage.prompt_tokens_details.cached_tokens or 0))
        assert usages[0][1] == 0
        assert all(total - cached <= 40 for total, cached in usages[1:])


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_eight_requests_at_once_prefill_what_they_share_once(kind: str) -> None:
    questions = [f"What is {i} and {i * i}?" for i in range(8)]

    def ask(question: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        return {"model": "m", "messages": messages, "tools": [TOOL], "max_tokens": 8, "temperature": 0}

    with client_of(kind, EngineOptions(prefix_cache_bytes=0)) as client:
        alone = [client.chat.completions.create(**ask(q)).choices for q in questions]

    async def together(client: AsyncLocalOpenAI) -> list[Any]:
        made: list[Any] = [None] * len(questions)

        async def one(i: int) -> None:
            made[i] = await client.chat.completions.create(**ask(questions[i]))

        async with anyio.create_task_group() as group:
            for i in range(len(questions)):
                group.start_soon(one, i)
        return made

    engine = engine_for(kind, None, template=THINKING, max_position_embeddings=16384)
    try:
        made = anyio.run(together, AsyncLocalOpenAI(engine=engine))
    finally:
        engine.close()
    assert [m.choices for m in made] == alone
    cached = sorted(m.usage.prompt_tokens_details.cached_tokens for m in made)
    assert cached[0] == 0 and cached[1] >= made[0].usage.prompt_tokens - 40


# -- usage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense() -> Iterator[LocalOpenAI]:
    with client_of("qwen3") as client:
        yield client


def test_a_stream_says_what_was_reused(dense: LocalOpenAI) -> None:
    cached = []
    for _ in range(2):
        chunks = list(
            dense.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "Streams " * 10}],
                max_tokens=3,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        usage = chunks[-1].usage
        assert usage is not None and usage.prompt_tokens_details is not None
        cached.append((usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens))
    assert cached == [(cached[0][0], 0), (cached[0][0], cached[0][0] - 1)]


@pytest.mark.parametrize("stream", [False, True])
def test_completions_sum_it_over_their_prompts(dense: LocalOpenAI, stream: bool) -> None:
    word = "once" if stream else "twice"
    known, new = f"{word} upon a time there was a fox " * 3, f"{word[::-1]} quite another text " * 3

    def usage(prompt: Any) -> tuple[int, int | None]:
        ask: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": 2, "n": 2}
        if stream:
            made = list(dense.completions.create(**ask, stream=True, stream_options={"include_usage": True}))[-1].usage
        else:
            made = dense.completions.create(**ask).usage
        assert made is not None and made.prompt_tokens_details is not None
        return made.prompt_tokens, made.prompt_tokens_details.cached_tokens

    length, cached = usage(known)
    assert cached == 0
    assert usage([known, new])[1] == length - 1


def test_a_salt_keeps_requests_apart(dense: LocalOpenAI) -> None:
    def cached(**more: Any) -> int | None:
        made = dense.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Salted " * 10}], max_tokens=2, extra_body=more
        )
        assert made.usage is not None and made.usage.prompt_tokens_details is not None
        return made.usage.prompt_tokens_details.cached_tokens

    assert [cached(cache_salt=salt) == 0 for salt in ("a", "b", "a", "b")] == [True, True, False, False]
    assert cached() == 0


@pytest.mark.parametrize(
    ("salt", "code", "fragment"),
    [("", "string_below_min_length", "empty string"), (7, "invalid_type", "a string")],
)
def test_a_salt_is_a_string_with_something_in_it(dense: LocalOpenAI, salt: Any, code: str, fragment: str) -> None:
    with refused("cache_salt", code, fragment):
        dense.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], extra_body={"cache_salt": salt}
        )
    with refused("cache_salt", code, fragment):
        dense.completions.create(model="m", prompt="Hi", extra_body={"cache_salt": salt})
