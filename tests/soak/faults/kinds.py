"""Requests of all kinds, as scripts that threads and event loops play."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.soak import scripts
from benchmarks.soak.checks import ask
from benchmarks.soak.requests import SCHEMA, TOOL
from benchmarks.soak.scripts import Call, Make, Pause, Script, Variation, play, play_async
from tests.endpoints.pictures import data_url, png

PICTURES = Path(tempfile.gettempdir()) / "pictures"
_ROUNDS = count()


def next_round() -> str:
    """Text that no request had before."""
    return str(next(_ROUNDS))


def _chat(**more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief. " * 12}, {"role": "user", "content": "One two three"}]
    return {"model": "m", "messages": messages, "max_tokens": 12, "temperature": 0, **more}


def _picture(variation: Variation) -> Script:
    """A picture that nobody has seen yet: one more row of the same colour."""
    return _seen(data_url(height=_height()), variation)


def _file(variation: Variation) -> Script:
    """One in a file of the folder that clients may read."""
    file = PICTURES / f"{next_round()}.png"
    file.write_bytes(png(height=_height()))
    return _seen(file.as_uri(), variation)


def _height() -> int:
    return 6 + int(next_round()) % 500


def _seen(url: str, variation: Variation) -> Script:
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What do you see?"}]
    return scripts.chat(_chat(messages=[{"role": "user", "content": parts}]))(variation)


_TOOLS = [{"type": "function", "function": TOOL}]
_FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
_RESPONSE: dict[str, Any] = {"model": "m", "input": "One two three", "temperature": 0, "max_output_tokens": 16}


def _streamed(make: Make) -> Make:
    return lambda variation: make(Variation(stream=True, extra=variation.extra))


def _grammar(variation: Variation) -> Script:
    """One whose grammar nobody has compiled yet."""
    properties: Any = SCHEMA["properties"]
    sizes = {**properties["sizes"], "maxItems": 100 + int(next_round())}
    schema = {**SCHEMA, "properties": {**properties, "sizes": sizes}}
    fields = _chat(response_format={**_FORMAT, "json_schema": {**_FORMAT["json_schema"], "schema": schema}}, n=3)
    return scripts.chat({**fields, "max_tokens": 40})(variation)


def _batch(variation: Variation) -> Script:
    """A batch of two requests: how it ended, and content or status of each."""
    url: Any = "/v1/chat/completions"
    bodies = [_chat(**variation.extra), _chat(max_tokens=5)]
    lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": body} for i, body in enumerate(bodies)]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = yield Call("files.create", {"file": ("in.jsonl", content), "purpose": "batch"})
    made = yield Call("batches.create", {"input_file_id": file.id, "endpoint": url, "completion_window": "24h"})
    while made.status not in scripts.ENDED:
        yield Pause()
        made = yield Call("batches.retrieve", {"batch_id": made.id})
    found: dict[str, Any] = {}
    for id in filter(None, (made.output_file_id, made.error_file_id)):
        text = (yield Call("files.content", {"file_id": id})).text
        found |= {each["custom_id"]: each["response"] for each in map(json.loads, text.splitlines())}
    return [made.status, *(_line(found.get(str(i))) for i in range(len(bodies)))]


def _line(response: Any) -> Any:
    if response is None or response["status_code"] != 200:
        return response and response["status_code"]
    return response["body"]["choices"][0]["message"]["content"]


KINDS: Mapping[str, tuple[str, Make]] = {
    "chat": ("text", scripts.chat(_chat())),
    "stream": ("text", _streamed(scripts.chat(_chat()))),
    "seeded": ("text", scripts.chat(_chat(temperature=0.9, seed=3, presence_penalty=0.5))),
    "stops": ("text", _streamed(scripts.chat(_chat(stop=["qq"], max_tokens=20)))),
    "schema": ("text", _grammar),
    "tools": ("text", _streamed(scripts.chat(_chat(tools=_TOOLS, tool_choice="required", max_tokens=60)))),
    "long": ("text", scripts.chat(_chat(max_tokens=320))),
    "completion": ("text", scripts.completion({"model": "m", "prompt": "one two", "max_tokens": 12, "temperature": 0})),
    "adapter": ("text", scripts.chat(_chat(model="a"))),
    "response": ("text", _streamed(scripts.response(_RESPONSE))),
    "chain": ("text", scripts.chain(_RESPONSE, ["One two", "Three four"])),
    "conversation": ("text", scripts.conversation(_RESPONSE, ["One two"])),
    "stored": ("text", scripts.stored_chat(_chat())),
    "background": ("text", scripts.background(_RESPONSE)),
    "batch": ("text", _batch),
    "file": ("vision", _file),
    "load": ("own", scripts.chat(_chat())),
    "download": ("hub", scripts.chat(_chat())),
    "picture": ("vision", _picture),
    "embeddings": ("embedder", scripts.embeddings({"model": "m", "input": ["one two three", "four"]})),
}


# -- playing one ------------------------------------------------------------------------------------------------------


def finish(client: Any, script: Script) -> Any:
    """Play a script to its end; streams are read."""

    def asked(call: Call) -> Any:
        answer = ask(client, call)
        return list(answer) if call.stream else answer

    return play(script, asked)


async def finish_async(client: Any, script: Script) -> Any:
    """Async form of `finish`."""

    async def asked(call: Call) -> Any:
        answer = await ask(client, call)
        return [each async for each in answer] if call.stream else answer

    return await play_async(script, asked)
