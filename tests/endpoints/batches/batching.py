"""Making batches, waiting for them, and reading what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from localai_shim import LocalOpenAI
from tests.engine.harness import eventually

ENDED = ("completed", "failed", "cancelled", "expired")
CHAT: Any = "/v1/chat/completions"


def line(custom_id: str, url: Any = CHAT, **body: Any) -> str:
    """A line that asks for a chat completion, unless `body` says otherwise."""
    if url == CHAT:
        body = {"model": "m", "messages": [{"role": "user", "content": f"Say {custom_id}"}], "max_tokens": 4, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def upload(client: LocalOpenAI, lines: Iterable[str]) -> str:
    """The id of a file of these lines."""
    return client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch").id


def start(client: LocalOpenAI, lines: Iterable[str], endpoint: Any = CHAT, **more: Any) -> Any:
    """A batch of these lines."""
    return client.batches.create(
        input_file_id=upload(client, lines), endpoint=endpoint, completion_window="24h", **more
    )


def finished(client: LocalOpenAI, id: str) -> Any:
    """The batch, once it has ended."""
    assert eventually(lambda: client.batches.retrieve(id).status in ENDED)
    return client.batches.retrieve(id)


def read(client: LocalOpenAI, file_id: str | None) -> dict[str, Any]:
    """The lines of an output or error file, by custom_id."""
    lines = [] if file_id is None else client.files.content(file_id).text.splitlines()
    found = {each["custom_id"]: each for each in map(json.loads, lines)}
    assert len(found) == len(lines)
    return found
