"""Tools as chat templates get to see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim.grammar.tool import CustomFormat, Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_template_sees_a_function_as_it_was_sent() -> None:
    seen = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}
    tool = Tool("get_weather", SCHEMA, description="The weather.")
    assert tool.template() == {"type": "function", "function": seen}


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}], ids=str)
def test_a_template_may_rely_on_a_description_and_on_properties(parameters: Any) -> None:
    tool = Tool("f", parameters)
    empty = {"type": "object", "properties": {}}
    assert tool.template()["function"] == {"name": "f", "description": "", "parameters": empty}


@pytest.mark.parametrize(
    ("format", "words"),
    [
        (CustomFormat(), "plain text"),
        (CustomFormat("lark", 'start: "a"+'), 'this Lark grammar:\nstart: "a"+'),
        (CustomFormat("regex", "a+"), "this regular expression:\na+"),
    ],
    ids=str,
)
def test_a_template_sees_a_custom_tool_as_a_function_of_one_string_that_says_its_format(
    format: CustomFormat, words: str
) -> None:
    seen: Any = Tool("f", custom=format, description="Does.").template()
    assert (seen["type"], seen["function"]["name"], seen["function"]["description"]) == ("function", "f", "Does.")
    parameters = seen["function"]["parameters"]
    assert (parameters["type"], list(parameters["properties"]), parameters["required"]) == (
        "object",
        ["input"],
        ["input"],
    )
    assert parameters["properties"]["input"]["type"] == "string"
    assert parameters["properties"]["input"]["description"].endswith(words + ("." if words == "plain text" else ""))


@pytest.mark.parametrize("tool", [Tool("f", SCHEMA), Tool("f"), Tool("f", custom=CustomFormat("lark", "x"))], ids=str)
def test_what_a_template_sees_is_json(tool: Tool) -> None:
    assert json.loads(json.dumps(tool.template())) == tool.template()
