"""Structured outputs: `response_format`, and vLLM's `structured_outputs` and, older, `guided_json` and its like.

https://platform.openai.com/docs/guides/structured-outputs and https://docs.vllm.ai/en/latest/features/structured_outputs.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ...errors import BadRequest, listed
from ...grammar import GrammarError
from ...grammar.compile import caller_lark, choice, json_object, json_schema, regex
from ...grammar.relax import relaxed, strict_form
from ...grammar.schema_checks import check_size
from ...prompt.messages import encodable
from ..fields import Fields, as_strings

GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_KINDS = ("json", "regex", "choice", "grammar", "json_object")  # of `structured_outputs`
_REFUSED = {
    "whitespace_pattern": "JSON is written in one way only.",
    "structural_tag": "Pass strict tools, or a 'grammar'.",
}
_FORMATS = ("text", "json_object", "json_schema")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """Format that the content of an answer must have."""

    source: str
    """The grammar, in llguidance's terms."""
    param: str
    """The field that asked for it."""
    what: str
    """For errors: what is wrong if the grammar is."""
    refusal: tuple[str, str | None]
    """For errors: the param and the code if the grammar is wrong."""

    def refused(self, error: GrammarError) -> BadRequest:
        """The grammar cannot be used, for llguidance's reason."""
        return BadRequest(f"Invalid {self.what}: {error}", param=self.refusal[0], code=self.refusal[1])


def _made(make: Callable[[], str], param: str, what: str, refusal: tuple[str, str | None]) -> AnswerFormat:
    """A format whose grammar's source is still to be made."""
    format = AnswerFormat("", param, what, refusal)
    try:
        return replace(format, source=make())
    except GrammarError as error:
        raise format.refused(error) from error


def read_answer_format(
    fields: Fields, value: object, param: Literal["response_format", "text.format"] = "response_format"
) -> AnswerFormat | None:
    """The fields' grammar; None where the answer is free text.

    Args:
        value: of the field that OpenAI's API has for it.
        param: that field; chat.completions nests a schema in it, Responses does not.

    Raises:
        BadRequest: with the path of what is wrong; or two fields say what the answer has to be.
    """
    format = None if value is None else _format(Fields(value, param), flat=param == "text.format")
    guided = {name: (name.removeprefix("guided_"), value) for name in GUIDED if (value := fields.get(name)) is not None}
    guided |= _structured_outputs(fields)
    given = [*([param] if format is not None else []), *guided]
    if len(given) > 1:
        raise BadRequest(f"'{given[0]}' and '{given[1]}' cannot be combined: pass one of them.", param=given[1])
    if not guided:
        return format
    [(name, (kind, value))] = guided.items()
    return _made(partial(_guided, kind, name, value), name, f"'{name}'", (name, "invalid_value"))


def _structured_outputs(fields: Fields) -> dict[str, tuple[str, object]]:
    """Path -> (kind, value) of what vLLM's `structured_outputs` asks for, which is one thing."""
    path = "structured_outputs"
    if fields.get(path) is None:
        return {}
    with fields.inner(path) as inner:
        # JSON is written without choices of white space, and with the listed properties only, in any case.
        for name in ("disable_any_whitespace", "disable_additional_properties"):
            inner.boolean(name)
        inner.refuse(_REFUSED)
        inner.boolean("json_object")
        given = {inner.at(kind): (kind, found) for kind in _KINDS if (found := inner.get(kind)) is not None}
    if given.get(inner.at("json_object")) == ("json_object", False):  # as vLLM: it is there, and asks for nothing
        del given[inner.at("json_object")]
    if not given:
        raise BadRequest.invalid(path, f"Invalid '{path}': it must have one of {listed(_KINDS)}.")
    return given


def _format(fields: Fields, *, flat: bool) -> AnswerFormat | None:
    kind = fields.require("type")
    if kind not in _FORMATS:
        raise BadRequest.unknown_value(fields.at("type"), kind, _FORMATS)
    if kind == "json_schema":
        return _json_schema(fields, flat=flat)
    fields.finish()
    if kind == "text":
        return None
    return AnswerFormat(json_object(), fields.path, f"'{fields.path}'", (fields.path, None))


def _json_schema(format: Fields, *, flat: bool) -> AnswerFormat:
    fields = format
    if not flat:
        fields = Fields(format.require("json_schema"), format.at("json_schema"))
        format.finish()
    name, path = fields.text("name"), fields.at("schema")
    if not _NAME.fullmatch(name):
        why = f"string does not match pattern. Expected a string that matches the pattern '^{_NAME.pattern}$'"
        raise BadRequest.refused(fields.at("name"), why)
    strict = fields.boolean("strict")
    fields.string("description")
    schema = fields.mapping("schema")
    fields.finish()
    if schema is None and flat:
        raise BadRequest.missing(path)
    refusal = (path, "invalid_json_schema") if flat else (format.path, None)
    make = partial(_followed, {"type": "object"} if schema is None else schema, path, strict=strict is True)
    return _made(make, format.path, f"schema for response_format '{name}'", refusal)


def _guided(kind: str, name: str, value: object) -> str:
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
        return choice(as_strings(name, value, empty=False))
    if not isinstance(value, str):
        raise BadRequest.wrong_type(name, "a string", value)
    encodable(value, name)
    return regex(value) if kind == "regex" else caller_lark(value)


def _guided_schema(name: str, value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadRequest.invalid(name, f"Invalid '{name}': not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(name, "a JSON schema", value)
    return value


def _followed(schema: dict[str, object], path: str, *, strict: bool) -> str:
    """The grammar of a schema. Its objects have the listed properties only, unless the schema allows others.

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
        return json_schema(strict_form(schema))
    except GrammarError:
        raise
    except RecursionError:
        why = "it is nested too deeply"
    except (TypeError, ValueError) as error:
        why = f"it cannot be written as JSON: {error}"
    raise BadRequest.invalid(path, f"Invalid '{path}': {why}.")
