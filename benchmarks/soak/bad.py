"""Requests that have to be refused, each with the status that says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import scripts
from .requests import MODEL
from .scripts import Make


@dataclass(frozen=True, slots=True)
class Bad:
    """A request, whom it is sent to, and its status."""

    client: str
    make: Make
    status: int


HELLO = [{"role": "user", "content": "Hello"}]


def _chat(client: str = "text", status: int = 400, **fields: Any) -> Bad:
    given = {"model": MODEL, "messages": HELLO, "max_tokens": 4, **fields}
    return Bad(client, scripts.refused("chat.completions.create", given), status)


def _call(path: str, status: int, client: str = "text", **fields: Any) -> Bad:
    return Bad(client, scripts.refused(path, fields), status)


def _picture(url: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


NOTHING = {"name": "none", "strict": True, "schema": {"type": "integer", "minimum": 3, "maximum": 2}}
BAD = [
    _chat(temperature=5),
    _chat(messages=[]),
    _chat(n=0),
    _chat(max_tokens="many"),
    _chat(messages=[{"role": "user", "content": "word " * 20_000}]),
    _chat(extra_body={"no_such_field": 1}),
    _chat(extra_body={"adapter": "none"}, status=404),
    _chat(tool_choice="required"),
    _chat(response_format={"type": "json_schema", "json_schema": NOTHING}),
    _chat(messages=_picture(scripts.data_url(b"x"))),
    _chat("vision", messages=_picture(scripts.data_url(b"no picture"))),
    _chat("vision", messages=_picture("https://localhost/picture.png")),
    _chat("vision", messages=_picture("file:///etc/hostname")),
    _call("responses.create", 404, model=MODEL, input="Hello", previous_response_id="resp_none"),
    _call("responses.create", 404, model=MODEL, input="Hello", conversation="conv_none"),
    _call("responses.retrieve", 404, response_id="resp_none"),
    _call("chat.completions.retrieve", 404, completion_id="chatcmpl-none"),
    _call("conversations.retrieve", 404, conversation_id="conv_none"),
    _call("files.content", 404, file_id="file-none"),
    _call("completions.create", 400, model=MODEL, prompt=[]),
    _call("completions.create", 400, model=MODEL, prompt="a", logprobs=50),
    _call("embeddings.create", 400, "embedder", model=MODEL, input=[]),
    _call("rerank", 400, "judge", query="a", documents=[]),
    _call("embeddings.create", 400, "judge", model=MODEL, input="a"),
]
