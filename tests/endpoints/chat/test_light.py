"""Which requests an event loop prepares itself: short texts whose other fields were read before."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from localai_shim import AsyncLocalOpenAI
from localai_shim.call import Call
from tests.conftest import MESSAGES

pytestmark = pytest.mark.anyio
CREATE: dict[str, Any] = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 2}
OBJECT = {"type": "json_object"}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Says for each request since the last call whether it was prepared on another thread."""
    seen: list[bool] = []
    prepare, own = Call.prepare, threading.get_ident()

    def watched(self: Call, engine: Any) -> Any:
        seen.append(threading.get_ident() != own)
        return prepare(self, engine)

    def take() -> list[bool]:
        taken, seen[:] = list(seen), []
        return taken

    monkeypatch.setattr(Call, "prepare", watched)
    return take


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [{"role": "user", "content": "x " * 2_000}]},
        {"messages": MESSAGES * 20},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
        {"response_format": OBJECT},
        {"n": 2},
    ],
)
async def test_what_may_take_long_is_prepared_elsewhere_each_time(
    async_client: AsyncLocalOpenAI, threads: Callable[[], list[bool]], changes: dict[str, Any]
) -> None:
    for _ in range(2):
        with contextlib.suppress(openai.BadRequestError):  # the long one does not fit into the context
            await async_client.chat.completions.create(**{**CREATE, **changes})
    assert threads() == [True, True]


async def test_a_short_text_is_prepared_on_the_loop_once_its_fields_are_known(
    async_client: AsyncLocalOpenAI, threads: Callable[[], list[bool]]
) -> None:
    answers, nobody = [], secrets.token_hex(8)
    for _ in range(3):
        made = await async_client.chat.completions.create(**CREATE, user=nobody)
        answers.append(made.choices[0].message.content)
    assert threads() == [True, False, False]
    assert len(set(answers)) == 1


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
