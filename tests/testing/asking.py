"""Asking a scripted engine through a client."""

from __future__ import annotations

from typing import Any

from localai_shim import LocalOpenAI
from localai_shim.testing.model.engine import ScriptedEngine
from tests.conftest import MESSAGES, revalidate

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": WEATHER}]
FLAT_TOOLS: list[Any] = [{"type": "function", **WEATHER}]


def ask(client: Any, **more: Any) -> Any:
    """`chat.completions.create` with what it needs."""
    return client.chat.completions.create(model="any", messages=MESSAGES, **more)


def answer(*replies: Any, **more: Any) -> Any:
    """What a client gets of an engine with this script."""
    with ScriptedEngine(replies) as engine:
        made = ask(LocalOpenAI(engine=engine), **more)
    revalidate(made)
    return made


def contents(stream: Any) -> list[str]:
    """The pieces of content of a stream."""
    return [c.choices[0].delta.content for c in stream if c.choices and c.choices[0].delta.content]


def chat(client: Any, text: str = "Hi", **more: Any) -> Any:
    more.setdefault("messages", [{"role": "user", "content": text}])
    return client.chat.completions.create(**{"model": "gpt-4o", **more})


def said(client: Any, text: str = "Hi", **more: Any) -> Any:
    made = chat(client, text, **more)
    revalidate(made)
    return made.choices[0].message.content
