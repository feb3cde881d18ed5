"""Peculiar answers of families whose calls are JSON objects or lists between markers."""

from __future__ import annotations

from tests.output.recorded.case import Case

_CITY = {"city": "Marseille"}

_LISTS = [
    Case(
        "granite3",
        "the marker of 3.1",
        '<tool_call>[{"name": "plan_trip", "arguments": {"city": "Marseille"}}]',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "granite3",
        "arguments before the name",
        '<|tool_call|>[{"arguments": {"city": "Marseille"}, "name": "plan_trip"}, {"arguments": {}, "name": "ring"}]',
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "granite3",
        "lines and spaces",
        '<|tool_call|> [\n  {"name": "ring", "arguments": {}},\n  {"name": "ring", "arguments": {}}\n]\n',
        calls=(("ring", {}), ("ring", {})),
    ),
    Case(
        "granite3",
        "an answer between its markers",
        "<think>Two sentences will do.</think><response>Marseille is by the sea. Nice, too.</response>",
        reasoning="Two sentences will do.",
        content="Marseille is by the sea. Nice, too.",
    ),
    Case(
        "granite3",
        "a call that is not quoted, and a good one",
        '<|tool_call|>[{"name": "plan_trip", "arguments": {"city": Marseille}}]<|tool_call|>'
        '[{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "granite3",
        "a marker that no list follows",
        "<|tool_call|> Marseille is by the sea.",
        content="Marseille is by the sea.",
    ),
    Case(
        "granite3",
        "text behind the list",
        '<|tool_call|>[{"name": "ring", "arguments": {}}]\nI have rung.',
        calls=(("ring", {}),),
        content=None,
        kept=("I have rung.",),
    ),
    Case(
        "granite_20b_fc",
        "two on one line",
        '<function_call> {"name": "ring", "arguments": {}} <function_call> {"name": "plan_trip", "arguments": '
        '{"city": "Marseille"}}',
        calls=(("ring", {}), ("plan_trip", _CITY)),
    ),
    Case(
        "granite_20b_fc",
        "no space behind the marker",
        '<function_call>{"name": "ring", "arguments": {}}',
        calls=(("ring", {}),),
    ),
    Case(
        "granite_20b_fc",
        "arguments as a string",
        '<function_call> {"name": "plan_trip", "arguments": "{\\"city\\": \\"Marseille\\"}"}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "granite_20b_fc",
        "a call that is not quoted, and a good one",
        '<function_call> {"name": "plan_trip", "arguments": {"city": Marseille}}\n'
        '<function_call> {"name": "ring", "arguments": {}}',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "phi4_mini",
        "objects in the arguments",
        'functools[{"name": "store_note", "arguments": {"title": "a]", "meta": {"pages": [1, [2]], "lang": "}"}}}]',
        calls=(("store_note", {"title": "a]", "meta": {"pages": [1, [2]], "lang": "}"}}),),
    ),
    Case(
        "phi4_mini",
        "lines and spaces",
        'functools[\n  {\n    "name": "ring",\n    "arguments": {}\n  }\n]\n',
        calls=(("ring", {}),),
    ),
    Case(
        "phi4_mini",
        "the module of that name",
        "In Python, functools has partial and cache; functools.reduce folds.",
        content="In Python, functools has partial and cache; functools.reduce folds.",
    ),
    Case(
        "phi4_mini",
        "a call that is not quoted",
        'functools[{"name": "plan_trip", "arguments": {"city": Marseille}}]',
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "firefunction",
        "no space before the marker",
        'functools[{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "firefunction",
        "the module of that name",
        "Use functools here.",
        content="Use functools here.",
    ),
    Case(
        "nemotron_v2",
        "a line after the thought and one behind the call",
        'I ring.\n</think>\n\n<TOOLCALL>[{"name": "ring", "arguments": {}}]</TOOLCALL>\n',
        calls=(("ring", {}),),
        reasoning="I ring.",
        opened=True,
    ),
    Case(
        "nemotron_v2",
        "arguments as a string",
        '<TOOLCALL>[{"name": "plan_trip", "arguments": "{\\"city\\": \\"Marseille\\"}"}]</TOOLCALL>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "nemotron_v2",
        "the turn ends in place of the end marker",
        '<TOOLCALL>[{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "hunyuan_a13b",
        "a call within the answer",
        '<think>\nI ring.\n</think>\n<answer>\n<tool_calls>[{"name": "ring", "arguments": {}}]</tool_calls>\n</answer>',
        calls=(("ring", {}),),
        reasoning="I ring.",
    ),
    Case(
        "hunyuan_a13b",
        "a call in the thought does not count, one behind it does",
        '<think>\nMaybe <tool_calls>[{"name": "ring", "arguments": {}}]</tool_calls>?\n</think>\n'
        '<tool_calls>[{"name": "plan_trip", "arguments": {"city": "Marseille"}}]</tool_calls>',
        calls=(("plan_trip", _CITY),),
        reasoning='Maybe <tool_calls>[{"name": "ring", "arguments": {}}]</tool_calls>?',
    ),
    Case(
        "hunyuan_a13b",
        "an empty thought and an answer",
        "<think>\n\n</think>\n<answer>\nMarseille is by the sea.\n</answer>",
        content="Marseille is by the sea.",
    ),
    Case(
        "hunyuan_a13b",
        "an answer that is cut",
        "<think>\nShort.\n</think>\n<answer>\nMarseille is by",
        reasoning="Short.",
        content="Marseille is by",
        finish="length",
    ),
    Case(
        "apriel",
        "no id",
        '<tool_calls>[{"name": "ring", "arguments": {}}]</tool_calls>',
        calls=(("ring", {}),),
    ),
    Case(
        "apriel",
        "an answer with its end marker",
        "Short, then.\n[BEGIN FINAL RESPONSE]\nMarseille is by the sea.\n[END FINAL RESPONSE]",
        reasoning="Short, then.",
        content="Marseille is by the sea.",
        opened=True,
    ),
    Case(
        "apertus",
        "two calls of one function",
        '<|tools_prefix|>[{"plan_trip": {"city": "Marseille"}}, {"plan_trip": {"city": "Nice"}}]<|tools_suffix|>',
        calls=(("plan_trip", _CITY), ("plan_trip", {"city": "Nice"})),
    ),
    Case(
        "apertus",
        "the turn ends in place of the end marker",
        '<|tools_prefix|>[{"ring": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "apertus",
        "lines and spaces",
        '<|tools_prefix|> [ {\n "plan_trip" : {\n "city" : "Marseille" } } ] <|tools_suffix|>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "minimax_m1",
        "objects on one line",
        '<tool_calls>{"name": "ring", "arguments": {}} {"name": "ring", "arguments": {}}</tool_calls>',
        calls=(("ring", {}), ("ring", {})),
    ),
    Case(
        "minimax_m1",
        "a line that is not quoted, and a good one",
        '<tool_calls>\n{"name": "plan_trip", "arguments": {"city": Marseille}}\n{"name": "ring", "arguments": {}}\n'
        "</tool_calls>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "mistral_array",
        "no id and spaces",
        '[TOOL_CALLS] [ {"name": "ring", "arguments": {} } ]',
        calls=(("ring", {}),),
    ),
    Case(
        "mistral_array",
        "arguments before the name",
        '[TOOL_CALLS][{"arguments": {"city": "Marseille"}, "id": "a1B2c3D4e", "name": "plan_trip"}]',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "mistral_array",
        "a call that is not quoted",
        '[TOOL_CALLS][{"name": "plan_trip", "arguments": {"city": Marseille}}]',
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "mistral_array",
        "text behind the list",
        '[TOOL_CALLS][{"name": "ring", "arguments": {}}] I have rung.',
        calls=(("ring", {}),),
        content=None,
        kept=("I have rung.",),
    ),
]

_OBJECTS = [
    Case(
        "hermes",
        "no newlines",
        '<tool_call>{"name": "plan_trip", "arguments": {"city": "Marseille"}}</tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "hermes",
        "parameters in place of arguments",
        '<tool_call>\n{"name": "plan_trip", "parameters": {"city": "Marseille"}}\n</tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "hermes",
        "arguments before the name",
        '<tool_call>\n{"arguments": {"city": "Marseille"}, "name": "plan_trip"}\n</tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "hermes",
        "arguments as a string",
        '<tool_call>\n{"name": "plan_trip", "arguments": "{\\"city\\": \\"Marseille\\"}"}\n</tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case("hermes", "no arguments at all", '<tool_call>\n{"name": "ring"}\n</tool_call>', calls=(("ring", {}),)),
    Case(
        "hermes",
        "a list in one block",
        '<tool_call>[{"name": "ring", "arguments": {}}, {"name": "plan_trip", "arguments": {"city": "Marseille"}}]'
        "</tool_call>",
        calls=(("ring", {}), ("plan_trip", _CITY)),
    ),
    Case(
        "hermes",
        "the turn ends in place of the end marker",
        '<tool_call>\n{"name": "ring", "arguments": {}}\n',
        calls=(("ring", {}),),
    ),
    Case(
        "hermes",
        "the next call begins in place of the end marker",
        '<tool_call>\n{"name": "ring", "arguments": {}}\n<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>',
        calls=(("ring", {}), ("ring", {})),
    ),
    Case(
        "hermes",
        "a call that is not quoted, and a good one",
        '<tool_call>\n{"name": "plan_trip", "arguments": {"city": Marseille}}\n</tool_call>\n'
        '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "hermes",
        "text around calls",
        'First.\n<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>\nSecond.',
        calls=(("ring", {}),),
        content=None,
        kept=("First.", "Second."),
    ),
    Case(
        "hermes",
        "the prompt closed the reasoning",
        '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>',
        calls=(("ring", {}),),
    ),
    Case(
        "hermes",
        "an end of reasoning that stands alone",
        '</think>\n\n<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>',
        calls=(("ring", {}),),
    ),
    Case(
        "hermes",
        "a marker in prose",
        "Such a model writes <tool_call> and then an object.",
        content=None,
        kept=("Such a model writes", "and then an object."),
    ),
    Case(
        "command_r7b",
        "one object in place of a list",
        '<|START_ACTION|>{"tool_call_id": "0", "tool_name": "ring", "parameters": {}}<|END_ACTION|>',
        calls=(("ring", {}),),
    ),
    Case(
        "command_r7b",
        "a name that is not quoted",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "plan_trip", "parameters": {"city": Marseille}}]'
        "<|END_ACTION|>",
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "command_r7b",
        "text without markers",
        "Marseille is by the sea.",
        content="Marseille is by the sea.",
    ),
    Case(
        "cohere2_moe",
        "an empty thought and a call",
        '<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "ring", "parameters": {}}\n]'
        "<|END_ACTION|>",
        calls=(("ring", {}),),
        opened=True,
    ),
    Case(
        "cohere2_moe",
        "the turn ends in place of the end marker",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "ring", "parameters": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "gigachat3",
        "no newline behind the header",
        '<|message_sep|>\n\nfunction call<|role_sep|>{"name": "ring", "arguments": {}}',
        calls=(("ring", {}),),
    ),
    Case(
        "gigachat31",
        "a newline behind the marker",
        'Gladly.<|function_call|>\n{"name": "plan_trip", "arguments": {"city": "Marseille"}}',
        calls=(("plan_trip", _CITY),),
        content="Gladly.",
    ),
    Case(
        "gigachat31",
        "a value that is not quoted",
        '<|function_call|>{"name": "plan_trip", "arguments": {"city": Marseille}}',
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "internlm2",
        "parameters in place of arguments",
        '<|action_start|><|plugin|>\n{"name": "plan_trip", "parameters": {"city": "Marseille"}}<|action_end|>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "internlm2",
        "a newline before the end marker",
        'Gladly.<|action_start|><|plugin|>{"name": "ring", "arguments": {}}\n<|action_end|>\n',
        calls=(("ring", {}),),
        content="Gladly.",
    ),
    Case(
        "internlm2",
        "the turn ends in place of the end marker",
        '<|action_start|><|plugin|>\n{"name": "ring", "arguments": {}}',
        calls=(("ring", {}),),
    ),
]

JSON_FORMS = [*_LISTS, *_OBJECTS]
