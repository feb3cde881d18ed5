"""Schemas and requests for structured outputs."""

from __future__ import annotations

from typing import Any

from tests.conftest import MESSAGES

CREATE: dict[str, Any] = {"model": "any", "messages": MESSAGES, "temperature": 1.2, "seed": 5, "max_tokens": 500}


def one_of(**properties: Any) -> dict[str, Any]:
    """An object that has all of these properties and no others, as OpenAI's strict mode wants it."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def integer(low: int = 0, high: int = 9) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def as_format(schema: Any, **more: Any) -> dict[str, Any]:
    """A `response_format`."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def asks(schema: Any = None, **more: Any) -> dict[str, Any]:
    """Arguments of `create`; of what vLLM adds in `extra_body`, too."""
    extra = {name: more.pop(name) for name in list(more) if name.startswith("guided_") or name in EXTRA}
    format = {} if schema is None else {"response_format": as_format(schema)}
    return {**CREATE, **format, **more, "extra_body": extra}


EXTRA = ("ignore_eos", "min_tokens", "min_p", "repetition_penalty", "top_k")
