"""Calls are written as the recorded models write them."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.formats.description import write_calls
from localai_shim.formats.table import FORMATS, PLAIN
from tests.formats.channels import CHANNELS
from tests.output.recorded import WRITERS
from tests.output.recorded.case import Call, Case
from tests.output.recorded.read import read
from tests.output.recorded.scenarios import NESTED, RING, SHORT, TRICKY

# Their blocks stand in messages with headers, which a block alone has not.
_WHOLE = [name for name in FORMATS if name not in CHANNELS]
# Our writer and the recorded one differ in what is free: ids, quotes and what stands before a marker.
_FREE = (
    "lfm2",
    "pythonic",
    "command_r7b",
    "command_r_plus",
    "firefunction",
    "apriel",
    "mistral_array",
    "mistral_call_id",
    "solar_open",
)


@pytest.mark.parametrize("family", _WHOLE)
@pytest.mark.parametrize("calls", [[SHORT], [RING], [SHORT, RING], [TRICKY]], ids=["one", "bare", "two", "odd"])
def test_calls_are_written_as_the_models_of_a_family_write_them(family: str, calls: list[Call]) -> None:
    if len(calls) > 1 and not WRITERS[family].parallel:
        return
    text = write_calls(FORMATS[family], calls)
    assert read(Case(family, "", text), [text]).whole_calls == calls
    if family not in _FREE:
        assert "".join(text.split()) == "".join(WRITERS[family].block(calls).split())


@pytest.mark.parametrize("family", _WHOLE)
def test_nested_values_are_written(family: str) -> None:
    text = write_calls(FORMATS[family], [NESTED])
    assert read(Case(family, "", text), [text]).whole_calls == [NESTED]


def test_a_model_without_a_format_of_its_own_writes_plain_objects() -> None:
    assert write_calls(PLAIN, [SHORT, RING]) == (
        '<tool_call>\n{"name": "plan_trip", "arguments": {"city": "Marseille", "nights": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>'
    )


@pytest.mark.parametrize(
    ("family", "value", "expected"),
    [
        ("hermes", {"a": "é"}, '{"a": "é"}'),
        (
            "qwen3_coder",
            {"a": "x\ny", "b": [1]},
            "<parameter=a>\nx\ny\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n",
        ),
        ("minicpm5", {"a": "<b>", "c": "d"}, '<param name="a"><![CDATA[<b>]]></param><param name="c">d</param>'),
        (
            "kimi_k3",
            {"a": None, "b": True},
            '<|open|>argument key="a" type="null"<|sep|>null<|close|>argument<|sep|>'
            '<|open|>argument key="b" type="boolean"<|sep|>true<|close|>argument<|sep|>',
        ),
        ("lfm2", {"a": True, "b": None, "c": "it's"}, 'a=True, b=None, c="it\'s"'),
        ("gemma4", {"a": "x", "b": [1, {"c": True}]}, 'a:<|"|>x<|"|>,b:[1,{c:true}]'),
    ],
)
def test_arguments_stand_in_a_call_as_its_format_has_them(family: str, value: dict[str, Any], expected: str) -> None:
    assert FORMATS[family].arguments.write(value) == expected
