"""Functions that requests offer, and calls of them as models write these."""

from __future__ import annotations

import json
from typing import Any

TEXT = {"type": "string"}
PARIS = {"city": "Paris", "days": 2}
SHELL: Any = {"type": "custom", "custom": {"name": "shell", "description": "Runs a command."}}


def function(name: str, strict: bool | None = None, **properties: Any) -> Any:
    """A function that needs all of its properties."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    made = {"name": name, "description": f"Does {name}.", "parameters": parameters}
    if strict is not None:
        made |= {"strict": strict, "parameters": {**parameters, "additionalProperties": False}}
    return {"type": "function", "function": made}


def call(name: str, arguments: Any) -> str:
    """A call as Hermes and Qwen write it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


WEATHER = function("get_weather", city=TEXT, days={"type": "integer"})
PING = function("ping")
TOOLS = [WEATHER, PING, function("write_file", path=TEXT, content=TEXT)]
CALL = call("get_weather", PARIS)
