"""Formats of calls with tiny models that write them, and what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from localai_shim import AsyncLocalOpenAI
from tests.endpoints.scripting import arguments, ask, invalid, marked_model, token_id

EOS = "<|im_end|>"
PROMPT = """
{%- for tool in tools or [] %}{{ tool.function | tojson }} {% endfor -%}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% endif -%}"""
"""A short prompt: these models understand nothing anyway."""


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


FLAT: dict[str, Any] = {
    "forecast": closed(
        unit={"enum": ["celsius", "fahrenheit"]},
        days={"type": "integer", "minimum": 1, "maximum": 14},
        city={"type": "string", "minLength": 1, "maxLength": 8},
    ),
    "move": closed(
        x={"type": "integer", "minimum": -50, "maximum": 50},
        fast={"type": "boolean"},
        level={"enum": [1, 2, 3]},
    ),
    "note": closed(text={"type": ["string", "null"], "maxLength": 8}, kind={"const": "memo"}),
    "ping": closed(),
}
GUEST = closed(name={"type": "string", "maxLength": 6}, age={"type": "integer", "minimum": 0, "maximum": 99})
NESTED: dict[str, Any] = {
    **FLAT,
    "book": {
        **closed(
            host={"$ref": "#/$defs/guest"},
            guests={"type": "array", "items": {"$ref": "#/$defs/guest"}, "maxItems": 2},
            room=closed(floor={"enum": [1, 2]}, view={"anyOf": [{"const": "sea"}, {"type": "null"}]}),
        ),
        "$defs": {"guest": GUEST},
    },
}


@dataclass(frozen=True)
class Format:
    """How a family of models writes calls.

    Attributes:
        markers: their special tokens, the one that begins a call first.
        hint: what of their templates tells the format.
        schemas: of the arguments that it can write.
    """

    name: str
    markers: Sequence[str]
    hint: str
    schemas: dict[str, Any] = field(default_factory=lambda: NESTED)

    @property
    def folder(self) -> Path:
        return marked_model(f"{{#- tool_calls {self.hint} -#}}{PROMPT}", *self.markers)

    def tools(self, *, strict: bool, only: Sequence[str] = ()) -> list[Any]:
        return [
            {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}
            for name, schema in self.schemas.items()
            if not only or name in only
        ]

    @property
    def ends(self) -> dict[str, int]:
        """A bias that ends an answer where it may end."""
        return {token_id(self.folder, EOS): 100}

    @property
    def begins(self) -> dict[str, Any]:
        """Makes a model begin with a call if it may, and end where it may after that."""
        return {
            "logit_bias": {token_id(self.folder, self.markers[0]): 90, **self.ends},
            "extra_body": {"min_tokens": 1},
        }


FORMATS = [
    Format(
        "json_tools", ("<tool_call>", "</tool_call>"), '<tool_call>{"name": , "arguments": }</tool_call> tool_call.name'
    ),
    Format("qwen3_coder", ("<tool_call>", "</tool_call>"), "<tool_call>\n<function=name>\n<parameter=key>"),
    Format("mistral", ("[TOOL_CALLS]", "[ARGS]"), "[TOOL_CALLS]name[ARGS]"),
    Format("gemma4", ("<|tool_call>", "<tool_call|>", '<|"|>'), "<|tool_call>call:name<tool_call|>"),
    Format(
        "function_gemma",
        ("<start_function_call>", "<end_function_call>", "<escape>"),
        "<start_function_call>call:name<end_function_call>",
        FLAT,
    ),
]
EVERY = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
HERMES, GEMMA = FORMATS[0], FORMATS[3]
GLM = Format("glm47", ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"), "<arg_key>")
LLAMA = Format("llama3_json", ("<|eom_id|>",), '{"name": , "parameters": } <|start_header_id|>')
PLAIN = Format("none", ("<|other|>",), "")
SAMPLE: dict[str, Any] = {"temperature": 1, "seed": 11, "max_tokens": 500}


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


def allowing(mode: str, *names: str) -> Any:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


async def together(client: AsyncLocalOpenAI, requests: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers to requests that are made at once."""
    made: list[Any] = [None] * len(requests)

    async def one(i: int) -> None:
        made[i] = await ask(client, **{**SAMPLE, **requests[i]})

    async with anyio.create_task_group() as group:
        for i in range(len(requests)):
            group.start_soon(one, i)
    return made


def run(folder: Path, requests: Sequence[dict[str, Any]]) -> list[Any]:
    async def main() -> list[Any]:
        async with AsyncLocalOpenAI(folder) as client:
            return await together(client, requests)

    return anyio.run(main)


def check_calls(choice: Any, schemas: dict[str, Any], *, single: bool = False) -> None:
    """The choice is calls and nothing else, which name these functions and follow their schemas."""
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.content is None and not invalid(choice.message)
    made = arguments(choice.message)
    assert len(made) == 1 if single else made
    for name, given in made:
        jsonschema.validate(given, schemas[name])


def custom(name: str, syntax: str, definition: str) -> Any:
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": format}}
