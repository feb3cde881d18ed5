"""Which requests an event loop prepares itself: short texts whose other fields were read before."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from localai_shim import AsyncLocalOpenAI
from localai_shim.client.call import Call
from tests import inside
from tests.conftest import MESSAGES
from tests.templates.models import make_model

pytestmark = pytest.mark.anyio
CREATE: dict[str, Any] = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 2}
TEXT = {"type": "input_text", "text": "Hello"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
LONG = "x " * 2_000
Create = Callable[..., Awaitable[Any]]
Ask = tuple[Callable[[AsyncLocalOpenAI], Create], dict[str, Any]]
CHAT: Ask = lambda client: client.chat.completions.create, CREATE
RESPONSES: Ask = (
    lambda client: client.responses.create,
    {"model": "m", "input": "Hello", "temperature": 0, "max_output_tokens": 16, "store": False},
)
COMPLETIONS: Ask = (
    lambda client: client.completions.create,
    {"model": "m", "prompt": "Hello", "temperature": 0, "max_tokens": 2},
)


@pytest.fixture
async def builtin() -> AsyncIterator[AsyncLocalOpenAI]:
    """A client of a model that takes tools."""
    async with AsyncLocalOpenAI() as client:
        yield client


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Says for each request since the last call whether it was prepared on another thread."""
    seen: list[bool] = []
    read, own = Call.read, threading.get_ident()

    def watched(self: Call, engine: Any) -> Any:
        seen.append(threading.get_ident() != own)
        return read(self, engine)

    def take() -> list[bool]:
        taken, seen[:] = list(seen), []
        return taken

    monkeypatch.setattr(Call, "read", watched)
    return take


@pytest.mark.parametrize(
    ("ask", "changes"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]}),
        (CHAT, {"messages": MESSAGES * 20}),
        (CHAT, {"messages": [{"role": "user", "content": [PICTURE]}]}),
        (CHAT, {"n": 2}),
        (CHAT, {"user": LONG * 2}),
        (CHAT, {"prediction": {"type": "content", "content": "Hello"}}),
        (RESPONSES, {"input": LONG}),
        (RESPONSES, {"input": [{"role": "user", "content": "Hello"}] * 20}),
        (RESPONSES, {"input": [{"role": "user", "content": [PICTURE]}]}),
        (RESPONSES, {"instructions": LONG * 2}),
        (RESPONSES, {"previous_response_id": "resp_1"}),
        (RESPONSES, {"conversation": "conv_1"}),
        (COMPLETIONS, {"prompt": LONG}),
        (COMPLETIONS, {"prompt": ["Hello", "Hello"]}),
        (COMPLETIONS, {"best_of": 2}),
    ],
)
async def test_what_may_take_long_is_prepared_elsewhere_each_time(
    async_client: AsyncLocalOpenAI, threads: Callable[[], list[bool]], ask: Ask, changes: dict[str, Any]
) -> None:
    for _ in range(2):
        with contextlib.suppress(openai.APIStatusError):  # long ones do not fit into the context
            await ask[0](async_client)(**{**ask[1], **changes})
    assert threads() == [True, True]


async def test_prompts_of_a_template_that_writes_much_are_made_elsewhere_each_time(
    threads: Callable[[], list[bool]],
) -> None:
    folder = make_model("{{ 'ab ' * 100000 }}{% for m in messages %}{{ m.content }}{% endfor %}")
    async with AsyncLocalOpenAI(folder, keep_alive=0) as client:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await client.chat.completions.create(**CREATE)
    shutil.rmtree(folder)
    assert threads() == [True, True]


@pytest.mark.parametrize(
    ("ask", "changes"),
    [
        (CHAT, {}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}),
        (CHAT, {"response_format": {"type": "json_object"}}),
        (RESPONSES, {}),
        (RESPONSES, {"input": [{"role": "user", "content": "Hello"}]}),
        (RESPONSES, {"input": [{"type": "message", "role": "user", "content": [TEXT]}]}),
        (RESPONSES, {"tools": [TOOL], "instructions": "Look.", "text": {"verbosity": "low"}}),
        (COMPLETIONS, {}),
    ],
)
async def test_a_short_text_is_prepared_on_the_loop_once_its_fields_are_known(
    builtin: AsyncLocalOpenAI, threads: Callable[[], list[bool]], ask: Ask, changes: dict[str, Any]
) -> None:
    answers, new = [], {"extra_body": {"speculation": "off", "priority": secrets.randbits(30)}}
    for number in range(3):
        own = {"user": secrets.token_hex(8)} | ({} if ask is COMPLETIONS else {"metadata": {"run": str(number)}})
        made = await ask[0](builtin)(**{**ask[1], **changes, **new, **own})
        answers.append(made.output_text if ask is RESPONSES else made.choices[0].to_json())
    assert threads() == [True, False, False]
    assert len(set(answers)) == 1


async def test_a_response_that_is_changed_by_its_caller_changes_no_other(builtin: AsyncLocalOpenAI) -> None:
    ask: dict[str, Any] = {**RESPONSES[1], "tools": [TOOL], "metadata": {"a": "b"}, "text": {"verbosity": "low"}}
    first = await builtin.responses.create(**ask)
    before = json.loads(first.to_json())
    tool: Any = first.tools[0]
    tool.parameters["properties"]["x"] = {"type": "string"}
    first.metadata["a"] = "changed"  # type: ignore[index]
    second = json.loads((await builtin.responses.create(**ask)).to_json())
    for name in ("tools", "metadata", "text", "tool_choice", "reasoning"):
        assert second[name] == before[name]


async def test_a_loop_stops_at_a_template_that_takes_long_and_a_thread_goes_on(
    builtin: AsyncLocalOpenAI, threads: Callable[[], list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await builtin.chat.completions.create(**CREATE)
    threads()
    slow = inside.tokenizer(inside.tokenizer(inside.runtime(builtin).served(inside.engine(builtin)).tokenizer))
    loops = "{% for i in range(99999) %}{% for j in range(10) %}{% endfor %}{% endfor %}"
    monkeypatch.setattr(slow, "chat_template", loops + slow.chat_template)
    made = await builtin.chat.completions.create(**CREATE)
    assert threads() == [False, True] and made.choices[0].finish_reason is not None


async def test_streams_that_are_opened_in_a_row_leave_the_loop_to_other_tasks(async_client: AsyncLocalOpenAI) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    await (await async_client.chat.completions.create(**CREATE, stream=True)).close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        streams = [await async_client.chat.completions.create(**CREATE, stream=True) for _ in range(8)]
        assert turns >= 6  # trio runs what is ready in any order
        tasks.cancel_scope.cancel()
    for stream in streams:
        await stream.close()


async def test_a_refusal_on_the_loop_is_the_sdks(async_client: AsyncLocalOpenAI) -> None:
    await async_client.chat.completions.create(**CREATE)
    for messages in ([{"role": "wizard", "content": "x"}], [{"role": "user", "content": "\ud800"}], []):
        with pytest.raises(openai.BadRequestError) as refusal:
            await async_client.chat.completions.create(**{**CREATE, "messages": messages})
        assert str(refusal.value.param).startswith("messages")
