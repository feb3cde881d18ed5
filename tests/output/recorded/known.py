"""Answers as models of every tool format write them, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localai_shim.output.offered import OfferedTools
from localai_shim.types import FinishReason
from tests.output.families import FAMILIES, Call, Family, chatml_turn
from tests.output.families import NAMESPACE as NS


def function(name: str, required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


_TAGS = {"type": "array", "items": {"type": "string"}}
_FILTERS = {
    "type": "object",
    "properties": {"lang": {"type": "string"}, "years": {"type": "array", "items": {"type": "integer"}}},
}
TOOLS = OfferedTools(
    [
        function("get_weather", ["city"], city={"type": "string"}, days={"type": "integer"}),
        function("search", ["query"], query={"type": "string"}, filters=_FILTERS, tags=_TAGS),
        function("write_file", ["path"], path={"type": "string"}, content={"type": "string"}),
        function("ping"),
    ]
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer, and what it says."""

    name: str
    family: Family
    text: str
    content: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    """Those that are whole."""
    broken: Sequence[tuple[str, str]] = ()
    """Names, and arguments as they stand, of those that are not."""
    invalid: int = 0
    state: str | None = None
    tools: OfferedTools = TOOLS
    finish: FinishReason = "stop"


_THOUGHT = "The user wants the weather.\nLet me look it up."
_SAID = "I will look that up for you."
_WEATHER: Call = ("get_weather", {"city": "Paris", "days": 3})
_NOTE: Call = ("write_file", {"path": "notes.txt", "content": "one, two: three"})
_HARD: Call = (
    "search",
    {
        "query": 'Zażółć "gęślą" 🙂, \\d+ {x} [y]\nline two',
        "filters": {"lang": "日本語", "years": [1999, 2025]},
        "tags": ["a", "b, c"],
    },
)
_MALFORMED = {
    "json_tools": '<tool_call>\n{"name": "get_weather", "arguments": {"city": Paris}}\n</tool_call>',
    "cohere2_moe": '<|START_ACTION|>[{"tool_name": get_weather}]<|END_ACTION|>',
    "mistral": '[TOOL_CALLS]get_weather{"city": "Paris"}',
    "mistral_array": '[TOOL_CALLS] [{"function": "get_weather"}]',
    "kimi_k2": '<|tool_calls_section_begin|>get_weather {"city": "Paris"}<|tool_calls_section_end|>',
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>city: Paris<|call|>",
    "qwen3_coder": "<tool_call><function=get_weather>\n<parameter=days>\nsoon\n</parameter>\n</function></tool_call>",
    "gemma4": "<|tool_call>call:get_weather city=Paris<tool_call|>",
    "function_gemma": "<start_function_call>call:get_weather city<end_function_call>",
    "glm47": '<tool_call>{"city": "Paris"}</tool_call>',
    "laguna": "<tool_call></tool_call>",
    "longcat": "<longcat_tool_call>get_weather</longcat_tool_call>",
    "minicpm5": "<function name=></function>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n</minimax:tool_call>',
    "minimax_m3": f'{NS}<tool_call>{NS}<invoke name="get_weather">{NS}<city>Paris{NS}</invoke>{NS}</tool_call>',
    "muse_spark": "<atem:function_calls>\n<atem:invoke name=get_weather>\n</atem:function_calls>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
    "pythonic": '<|tool_call_start|>[get_weather "Paris"]<|tool_call_end|>',
}

# What is delivered of these: a name, and the arguments as they stand. Where it is not here, no name can be read.
_STANDS: dict[str, tuple[str, str]] = {
    "json_tools": ("get_weather", '{"city": Paris}'),
    "cohere2_moe": ("get_weather", "{}"),
    "mistral": ("get_weather", '{"city": "Paris"}'),
    "mistral_array": ("get_weather", "{}"),
    "kimi_k2": ("get_weather", '{"city": "Paris"}'),
    "harmony": ("get_weather", "city: Paris"),
    "qwen3_coder": ("get_weather", '{"days": "soon"}'),
    "gemma4": ("get_weather", "city=Paris"),
    "function_gemma": ("get_weather", "city"),
    "longcat": ("get_weather", "{}"),
    "minimax_m2": ("get_weather", "{}"),
    "minimax_m3": ("get_weather", f"{NS}<city>Paris{NS}</invoke>"),
    "muse_spark": ("get_weather", "{}"),
    "pythonic": ("get_weather", 'Paris"]'),
}


def _malformed(family: Family) -> dict[str, Any]:
    """What a malformed block says."""
    if family.name not in _STANDS:
        return {"invalid": 1}
    name, arguments = _STANDS[family.name]
    try:
        return {"calls": [(name, json.loads(arguments))]}
    except ValueError:
        return {"broken": [(name, arguments)]}


# What stands of `{"city": "Paris"...` that is cut in "Paris", where it is not written as JSON.
_CUT = {
    "qwen3_coder": "<parameter=city>\nPar",
    "gemma4": '{city:<|"|>Par',
    "function_gemma": "{city:<escape>Par",
    "glm47": "<arg_key>city</arg_key><arg_value>Par",
    "laguna": "<arg_key>city</arg_key>\n<arg_value>Par",
    "longcat": "<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Par",
    "minicpm5": '<param name="city">Par',
    "minimax_m2": '<parameter name="city">Par',
    "minimax_m3": f"{NS}<city>Par",
    "muse_spark": '<atem:parameter name="city">Par',
    "kimi_k3": 'index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Par',
    "pythonic": '(city="Par',
}


def _common(family: Family) -> Iterator[Recorded]:
    """What every format can say."""

    def made(name: str, reasoning: str, content: str, block: str, **more: Any) -> Recorded:
        text = family.turn(family.markup, reasoning, content, block)
        return Recorded(f"{family.name}, {name}", family, text, content, reasoning, **more)

    markup, tools = family.markup, family.markup.tools
    assert tools is not None
    one = family.block([_WEATHER])
    whole = made("reasoning, content and a call", _THOUGHT, _SAID, one, calls=[_WEATHER])
    yield whole
    yield made("parallel calls", "", _SAID, family.block([_WEATHER, _NOTE]), calls=[_WEATHER, _NOTE])
    yield made("only a call", "", "", one, calls=[_WEATHER])
    yield made("no call", _THOUGHT, "It is 20 degrees, <b>sunny</b> & {warm}.\n\nBye [x]!", "")
    if family.nests:
        yield made("nested, escaped and foreign", "", _SAID, family.block([_HARD]), calls=[_HARD])
    if family.bare:
        yield made("no arguments", "", "", family.block([("ping", {})]), calls=[("ping", {})])
    stranger: Call = ("launch", {"target": "moon"})
    known = not tools.lenient
    yield made(
        "an unknown function", "", _SAID, family.block([stranger]), calls=[stranger] * known, invalid=int(not known)
    )
    unasked = made("no tools were offered", _THOUGHT, _SAID, one, invalid=1, tools=OfferedTools())
    # Without tools whitespace is content at once, whatever follows it.
    yield replace(unasked, content=_SAID + "\n\n" * (family.turn is chatml_turn))
    yield made("malformed", "", _SAID, _MALFORMED[family.name], **_malformed(family))
    if family.quoted:
        quoting: Call = ("write_file", {"path": "a.txt", "content": f'ends with "{tools.end}" \\'})
        yield made("an end marker in a string", "", "", family.block([quoting]), calls=[quoting])
    at = whole.text.index(one)
    for part in (one[: one.index("Paris") + 3], one[: one.index("weather") + 2], tools.start):
        if tools.name == "harmony" and "<|message|>" not in part:
            continue  # a header that was cut calls nobody
        named = part.endswith("Par")
        yield replace(
            whole,
            name=f"{family.name}, cut after {len(part)}",
            text=whole.text[:at] + part,
            calls=(),
            broken=[("get_weather", _CUT.get(family.name, '{"city": "Par'))] * named,
            invalid=int(not named),
            finish="length",
        )
    if markup.think is not None:
        opened = whole.text.removeprefix(markup.think[0])
        yield replace(whole, name=f"{family.name}, the prompt opened the reasoning", text=opened, state="reasoning")
        yield replace(
            whole,
            name=f"{family.name}, a call amid the reasoning",
            text=f"{markup.think[0]}Let me see.\n{one}\n{markup.think[1]}\n\nDone.",
            reasoning="Let me see.",
            content="Done.",
        )
    prose = f"I would write {tools.start} and then the name."
    if tools.openings and markup.think is not None:
        said = "I would write and then the name."
        yield Recorded(f"{family.name}, prose about a call", family, prose, said, invalid=1)
    elif tools.name != "harmony" and markup.think is not None:
        yield Recorded(f"{family.name}, prose that opens a call", family, prose, "I would write", invalid=1)


def _said(family: str, name: str, text: str, *calls: Call, **more: Any) -> Recorded:
    return Recorded(f"{family}, {name}", FAMILIES[family], text, calls=calls, **more)


_KIMI = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
PECULIAR = [
    _said(
        "json_tools",
        "arguments as a string",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "json_tools",
        "arguments before the name",
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "json_tools",
        "parameters, and a key of its own",
        '<tool_call>{"id": 17, "name": "get_weather", "parameters": {"city": "Paris"}, "why": null}</tool_call>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "json_tools",
        "an array of calls",
        '<tool_call>[{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "]}"}}]'
        "</tool_call>",
        ("ping", {}),
        ("get_weather", {"city": "]}"}),
    ),
    _said(
        "json_tools",
        "the end of the turn in place of an end marker",
        '<tool_call>\n{"name": "ping", "arguments": {}}\n',
        ("ping", {}),
    ),
    _said(
        "json_tools",
        "a second start marker in place of an end marker",
        '<tool_call>\n{"name": "ping", "arguments": {}}\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>',
        ("ping", {}),
        ("ping", {}),
    ),
    _said(
        "json_tools",
        "the last token ends the call",
        'Right.\n<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
        ("ping", {}),
        content="Right.",
        finish="length",
    ),
    _said(
        "json_tools",
        "a string that never ends, and a good call after it",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par}}\n</tool_call>\n'
        '<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
        ("ping", {}),
        broken=[("get_weather", '{"city": "Par}}\n')],
    ),
    _said("json_tools", "reasoning that never ends", "<think>\nHm", reasoning="Hm", finish="length"),
    _said("json_tools", "an end of reasoning that was not begun", "Hm.\n</think>\n\nYes.", content="Hm.Yes."),
    _said("json_tools", "content around calls", "A \n<tool_call>{}</tool_call> \nB", content="AB", invalid=1),
    _said(
        "qwen3_coder",
        "the last token ends the call",
        "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
        ("ping", {}),
        finish="length",
    ),
    _said(
        "qwen3_coder",
        "a start marker in an argument",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
        "first <tool_call> then\n</parameter>\n</function>\n</tool_call>",
        ("write_file", {"path": "a", "content": "first <tool_call> then"}),
    ),
    _said("mistral", "cut behind the arguments", "[TOOL_CALLS]ping[ARGS]{}", ("ping", {}), finish="length"),
    _said(
        "mistral",
        "spaces in the header",
        "[TOOL_CALLS]ping [ARGS] {}[TOOL_CALLS]ping[ARGS]{}",
        ("ping", {}),
        ("ping", {}),
    ),
    _said(
        "kimi_k2",
        "the second call is cut",
        "<|tool_calls_section_begin|>"
        + _KIMI.format("ping:0", "{}")
        + '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Par',
        ("ping", {}),
        broken=[("get_weather", '{"city": "Par')],
        finish="length",
    ),
    _said(
        "kimi_k2",
        "lines and no prefix",
        "<|tool_calls_section_begin|>\n<|tool_call_begin|>ping:0\n<|tool_call_argument_begin|> {}\n<|tool_call_end|>\n"
        "<|tool_calls_section_end|>",
        ("ping", {}),
    ),
    _said(
        "harmony",
        "the recipient in the role",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.ping<|channel|>commentary json"
        "<|message|>{}<|call|>",
        ("ping", {}),
        reasoning="Hm.",
    ),
    _said(
        "harmony",
        "the end of the turn in place of its marker",
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}',
        ("get_weather", {"city": "Paris"}),
    ),
    _said("harmony", "an answer without a header", "Hello.<|return|>", content="Hello."),
    _said(
        "cohere2_moe",
        "one call that is no array",
        '<|START_ACTION|>{"tool_name": "get_weather", "parameters": {"city": "Paris"}}<|END_ACTION|>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "gemma4",
        "a string with what else ends an argument",
        '<|tool_call>call:write_file{path:<|"|>a,b}<|"|>,content:<|"|>x:1,y{<|"|>}<tool_call|>',
        ("write_file", {"path": "a,b}", "content": "x:1,y{"}),
    ),
    _said(
        "gemma4",
        "two calls in one block",
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}call:ping{}<tool_call|>',
        _WEATHER,
        ("ping", {}),
    ),
    _said(
        "glm47",
        "a JSON object in place of tags",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "glm47",
        "prose about a call amid the reasoning",
        "<think>I could use <tool_call> here.</think>\nHello.",
        content="Hello.",
        reasoning="I could use",
        invalid=1,
    ),
    _said(
        "glm47",
        "an argument that is a number in text",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>75001</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>",
        ("get_weather", {"city": "75001", "days": 3}),
    ),
    _said(
        "minimax_m2",
        "a block per call",
        '<minimax:tool_call><invoke name="ping"></invoke></minimax:tool_call>\n'
        '<minimax:tool_call><invoke name="ping"></invoke></minimax:tool_call>',
        ("ping", {}),
        ("ping", {}),
    ),
    _said(
        "kimi_k3",
        "arguments as one object",
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>json type="object"<|sep|>'
        '{"city": "Paris"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>',
        ("get_weather", {"city": "Paris"}),
    ),
    _said(
        "pythonic",
        "Python's own literals",
        "<|tool_call_start|>[search(query='it''s', filters={'lang': None}, tags=['a', True])]<|tool_call_end|>",
        ("search", {"query": "its", "filters": {"lang": None}, "tags": ["a", True]}),
    ),
]

CORPUS = [answer for family in FAMILIES.values() for answer in _common(family)] + PECULIAR
