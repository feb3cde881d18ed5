"""Structured outputs: `response_format`, and vLLM's `structured_outputs` and, older, `guided_json` and its like.

https://platform.openai.com/docs/guides/structured-outputs and https://docs.vllm.ai/en/latest/features/structured_outputs.html
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ...errors import BadRequest
from ...grammar import GrammarError
from ...grammar.compile import caller_lark, choice, json_object, json_schema, regex
from ...grammar.relax import relaxed
from ...grammar.schema import close_objects
from ...grammar.schema_cost import check_size
from ...prompt.messages import encodable
from ..fields import Fields, listed

GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_KINDS = ("json", "regex", "choice", "grammar", "json_object")  # of `structured_outputs`
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What the content of an answer has to be."""

    source: str
    """The grammar, in llguidance's terms."""
    param: str
    """The field that asked for it."""
    what: str
    """For errors: what is wrong if the grammar is."""

    def refused(self, error: GrammarError) -> BadRequest:
        """The grammar cannot be used, for llguidance's reason."""
        code = None if self.param == "response_format" else "invalid_value"
        return BadRequest(f"Invalid {self.what}: {error}", param=self.param, code=code)


def read_answer_format(fields: Fields) -> AnswerFormat | None:
    """The fields' grammar; None where the answer is free text.

    Raises:
        BadRequest: with the path of what is wrong; or two fields say what the answer has to be.
    """
    format = _response_format(fields.mapping("response_format"))
    guided = {name: (name.removeprefix("guided_"), value) for name in GUIDED if (value := fields.get(name)) is not None}
    guided |= _structured_outputs(fields.mapping("structured_outputs"))
    given = [*(["response_format"] if format is not None else []), *guided]
    if len(given) > 1:
        raise BadRequest(f"'{given[0]}' and '{given[1]}' cannot be combined: pass one of them.", param=given[1])
    if not guided:
        return format
    [(name, (kind, value))] = guided.items()
    try:
        return AnswerFormat(_guided(kind, name, value), name, f"'{name}'")
    except GrammarError as error:
        raise BadRequest(f"Invalid '{name}': {error}", param=name, code="invalid_value") from error


def _structured_outputs(value: dict[str, Any] | None) -> dict[str, tuple[str, Any]]:
    """Path -> (kind, value) of what vLLM's `structured_outputs` asks for, which is one thing."""
    if value is None:
        return {}
    path = "structured_outputs"
    inner = Fields({f"{path}.{key}": given for key, given in value.items()})
    # JSON is written without choices of white space, and with the listed properties only, in any case.
    for name in ("disable_any_whitespace", "disable_additional_properties"):
        inner.boolean(f"{path}.{name}")
    inner.refuse(
        {
            f"{path}.whitespace_pattern": "JSON is written in one way only.",
            f"{path}.structural_tag": "Pass strict tools, or a 'grammar'.",
        }
    )
    inner.boolean(f"{path}.json_object")
    given = {f"{path}.{kind}": (kind, found) for kind in _KINDS if (found := inner.get(f"{path}.{kind}")) is not None}
    inner.finish()
    if given.get(f"{path}.json_object") == ("json_object", False):  # as vLLM: it is there, and asks for nothing
        del given[f"{path}.json_object"]
    if not given:
        raise BadRequest(f"Invalid '{path}': it has to have one of {listed(_KINDS)}.", param=path, code="invalid_value")
    return given


def _response_format(value: dict[str, Any] | None) -> AnswerFormat | None:
    if value is None:
        return None
    kind = value.get("type")
    if kind is None:
        raise BadRequest.missing("response_format.type")
    known: dict[Any, tuple[str, ...]] = {"text": (), "json_object": (), "json_schema": ("json_schema",)}
    if not isinstance(kind, str) or kind not in known:
        raise BadRequest(
            f"Invalid value: {kind!r}. Supported values are: 'text', 'json_object', and 'json_schema'.",
            param="response_format.type",
            code="invalid_value",
        )
    _only(value, ("type", *known[kind]), "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return AnswerFormat(json_object(), "response_format", "'response_format'")
    return _json_schema(value.get("json_schema"))


def _json_schema(value: Any) -> AnswerFormat:
    path = "response_format.json_schema"
    if value is None:
        raise BadRequest.missing(path)
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(path, "an object", value)
    name, schema, strict = value.get("name"), value.get("schema"), value.get("strict")
    if name is None:
        raise BadRequest.missing(f"{path}.name")
    if not isinstance(name, str):
        raise BadRequest.wrong_type(f"{path}.name", "a string", name)
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]{1,64}$'.",
            param=f"{path}.name",
            code="invalid_value",
        )
    if strict is not None and not isinstance(strict, bool):
        raise BadRequest.wrong_type(f"{path}.strict", "a boolean", strict)
    description = value.get("description")
    if description is not None and not isinstance(description, str):
        raise BadRequest.wrong_type(f"{path}.description", "a string", description)
    _only(value, ("name", "schema", "strict", "description"), path)
    if schema is None:
        schema = {"type": "object"}
    if not isinstance(schema, dict):
        raise BadRequest.wrong_type(f"{path}.schema", "an object", schema)
    what = f"schema for response_format '{name}'"
    try:
        source = _followed(schema, f"{path}.schema", strict=strict is True)
    except GrammarError as error:
        raise BadRequest(f"Invalid {what}: {error}", param="response_format") from error
    return AnswerFormat(source, "response_format", what)


def _guided(kind: str, name: str, value: Any) -> str:
    """The grammar of one thing that is asked for.

    Args:
        kind: of `_KINDS`.
        name: the field that asks for it.
        value: its value.
    """
    if kind == "json":
        return _followed(_guided_schema(name, value), name, strict=True)
    if kind == "json_object":
        return json_object()
    if kind == "choice":
        if not isinstance(value, list | tuple):
            raise BadRequest.wrong_type(name, "an array of strings", value)
        for i, option in enumerate(value):
            if not isinstance(option, str):
                raise BadRequest.wrong_type(f"{name}[{i}]", "a string", option)
        if not value:
            raise BadRequest(f"Invalid '{name}': empty array.", param=name, code="empty_array")
        return choice([encodable(option, f"{name}[{i}]") for i, option in enumerate(value)])
    if not isinstance(value, str):
        raise BadRequest.wrong_type(name, "a string", value)
    encodable(value, name)
    return regex(value) if kind == "regex" else caller_lark(value)


def _guided_schema(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _parsed(name, value)
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(name, "a JSON schema", value)
    return value


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadRequest(f"Invalid '{name}': not JSON: {error}", param=name, code="invalid_value") from None


def _followed(schema: dict[str, Any], path: str, *, strict: bool) -> str:
    """The grammar of a schema whose objects have no other properties than those listed, unless it says so.

    OpenAI's strict mode demands that a schema says this, and vLLM's back ends read schemas so: a model that may add
    properties does not know when to stop.

    Args:
        strict: all of the schema has to be followed; otherwise as much of it as can be.
    """
    try:
        check_size(schema)
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
        if not strict:
            return json_schema(relaxed(schema), lenient=True)
        return json_schema(close_objects(schema))
    except GrammarError:
        raise
    except RecursionError:
        why = "it is nested too deeply"
    except (TypeError, ValueError) as error:
        why = f"it cannot be written as JSON: {error}"
    raise BadRequest(f"Invalid '{path}': {why}.", param=path, code="invalid_value")


def _only(value: dict[str, Any], known: tuple[str, ...], path: str) -> None:
    for key, given in value.items():
        if key not in known and given is not None:
            raise BadRequest(f"Unknown parameter: '{path}.{key}'.", param=f"{path}.{key}", code="unknown_parameter")
