"""What the installed SDK lets callers say and may tell them: its arguments, fields and events, by name.

`python -m tests.sdk_surface` records it in `sdk_surface.json`, once all of it is dealt with in `docs/parameters.md`.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import openai
from openai.types.chat import completion_create_params as chat_params
from openai.types.completion_create_params import CompletionCreateParamsBase
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses import ResponseStreamEvent
from openai.types.responses import response_create_params as response_params
from typing_extensions import is_typeddict

RECORDED = Path(__file__).parent / "sdk_surface.json"
Surface = dict[str, list[str]]

_RESOURCES = (
    "batches",
    "chat.completions",
    "chat.completions.messages",
    "completions",
    "conversations",
    "conversations.items",
    "embeddings",
    "files",
    "models",
    "responses",
    "responses.input_items",
    "responses.input_tokens",
)
_PARAMS = {
    "chat.completions": chat_params.CompletionCreateParamsBase,
    "completions": CompletionCreateParamsBase,
    "embeddings": EmbeddingCreateParams,
    "responses": response_params.ResponseCreateParamsBase,
}


def read_surface() -> Surface:
    """Name of a method, field or union -> the names that it has."""
    client = openai.OpenAI(api_key="sk-1")
    found: Surface = {"OpenAI": _arguments(openai.OpenAI.__init__), "OpenAI.copy": _arguments(client.copy)}
    for name in _RESOURCES:
        resource: Any = client
        for part in name.split("."):
            resource = getattr(resource, part)
        methods = {key: value for key, value in vars(type(resource)).items() if inspect.isfunction(value)}
        for method, function in methods.items():
            if not method.startswith("_"):
                found[f"{name}.{method}"] = _arguments(function)
    client.close()
    for name, params in _PARAMS.items():
        _read_fields(params, found)
        for field, annotation in get_type_hints(params).items():
            if field != "model":  # names of models are no news
                found[f"values of {name}.{field}"] = sorted(_literals(annotation))
    found["events of responses"] = sorted(get_args(each.model_fields["type"].annotation)[0] for each in _events())
    return {name: found[name] for name in sorted(found) if found[name]}


def news(installed: Surface, recorded: Surface) -> list[str]:
    """What the installed SDK has and the record has not, one line each."""
    found = []
    for name, members in installed.items():
        new = sorted(set(members) - set(recorded.get(name, [])))
        if new:
            found.append(f"{name}{'' if name in recorded else ' (new)'}: {', '.join(new)}")
    return found


def _arguments(function: Any) -> list[str]:
    return sorted(set(inspect.signature(function).parameters) - {"self"})


def _events() -> tuple[Any, ...]:
    members: tuple[Any, ...] = get_args(get_args(ResponseStreamEvent)[0])
    return members


def _read_fields(annotation: Any, found: Surface) -> None:
    """Names of the fields of all dictionaries that a request may hold."""
    if is_typeddict(annotation):
        name = f"{annotation.__module__.removeprefix('openai.types.')}.{annotation.__name__}"
        if name in found:
            return
        hints = get_type_hints(annotation)
        found[name] = sorted(hints)
        for inner in hints.values():
            _read_fields(inner, found)
    for inner in get_args(annotation):
        _read_fields(inner, found)


def _literals(annotation: Any) -> set[str]:
    """Strings that a field may be."""
    found = {each for each in get_args(annotation) if isinstance(each, str)}
    return found.union(*(_literals(each) for each in get_args(annotation) if not isinstance(each, str)))


def main() -> None:
    """Record what is installed."""
    lines = [f" {json.dumps(name)}: {json.dumps(members)}" for name, members in read_surface().items()]
    text = f'{{\n "version": {json.dumps(openai.__version__)},\n' + ",\n".join(lines) + "\n}\n"
    RECORDED.write_text(text)


if __name__ == "__main__":
    main()
