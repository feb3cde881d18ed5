"""Every endpoint that answers with text: asking the same, with fields of extra_body."""

from __future__ import annotations

from typing import Any

from localai_shim import LocalOpenAI
from tests.conftest import MESSAGES, Oracle

PROMPT = "The quick brown"
ENDPOINTS = ("chat", "completions", "responses")
PATHS = ("/chat/completions", "/completions", "/responses")


def ask(client: LocalOpenAI, endpoint: str, max_tokens: int = 12, stream: bool = False, **extra: Any) -> Any:
    """A greedy answer of the tiny model."""
    common: dict[str, Any] = {"model": "m", "temperature": extra.pop("temperature", 0), "stream": stream}
    if endpoint == "chat":
        return client.chat.completions.create(**common, messages=MESSAGES, max_tokens=max_tokens, extra_body=extra)
    if endpoint == "completions":
        return client.completions.create(**common, prompt=PROMPT, max_tokens=max_tokens, extra_body=extra)
    return client.responses.create(**common, input=MESSAGES, max_output_tokens=max_tokens, extra_body=extra)


def text_of(made: Any, index: int = 0) -> str:
    if made.object == "response":
        return str(made.output_text)
    choice = made.choices[index]
    return str(choice.text if made.object == "text_completion" else choice.message.content)


def streamed(client: LocalOpenAI, endpoint: str, **extra: Any) -> str:
    """What a stream says."""
    return "".join(map(piece_of, ask(client, endpoint, stream=True, **extra)))


def piece_of(chunk: Any, index: int = 0) -> str:
    """What a chunk or an event adds to the text of one choice."""
    if hasattr(chunk, "type"):
        return str(chunk.delta) if chunk.type == "response.output_text.delta" else ""
    mine = [choice for choice in chunk.choices if choice.index == index]
    return "".join((c.text if chunk.object == "text_completion" else c.delta.content or "") for c in mine)


def ids_of(oracle: Oracle, endpoint: str) -> list[int]:
    return oracle.tokenizer.encode(PROMPT) if endpoint == "completions" else oracle.prompt()


def said(client: LocalOpenAI, **extra: Any) -> list[int]:
    """The token ids of a chat answer."""
    made = ask(client, "chat", return_token_ids=True, **extra)
    return list(made.choices[0].token_ids)
