"""Peculiar answers of families whose calls are JSON without any marker."""

from __future__ import annotations

from tests.output.recorded.case import Case

_CITY = {"city": "Marseille"}

BARE_FORMS = [
    Case(
        "llama3_json",
        "arguments, as other models say",
        '{"name": "plan_trip", "arguments": {"city": "Marseille"}}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "llama3_json",
        "a type before the name",
        '{"type": "function", "name": "plan_trip", "parameters": {"city": "Marseille"}}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "llama3_json",
        "the function within its own object",
        '{"type": "function", "function": {"name": "plan_trip", "parameters": {"city": "Marseille"}}}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "llama3_json",
        "arguments before the name",
        '{"parameters": {"city": "Marseille", "nights": 2}, "name": "plan_trip"}',
        calls=(("plan_trip", {"city": "Marseille", "nights": 2}),),
    ),
    Case(
        "llama3_json",
        "a tag before the object",
        '<|python_tag|>{"name": "ring", "parameters": {}}',
        calls=(("ring", {}),),
    ),
    Case(
        "llama3_json",
        "a tag before several objects",
        '<|python_tag|>{"name": "ring", "parameters": {}}; {"name": "plan_trip", "parameters": {"city": "Marseille"}}',
        calls=(("ring", {}), ("plan_trip", _CITY)),
    ),
    Case(
        "llama3_json",
        "the markers of Llama 4 around the object",
        '<|python_start|>{"name": "ring", "parameters": {}}<|python_end|>',
        calls=(("ring", {}),),
    ),
    Case(
        "llama3_json",
        "lines and spaces in the object",
        '\n{\n  "name" : "plan_trip",\n  "parameters" : {\n    "city" : "Marseille"\n  }\n}\n',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "llama3_json",
        "parameters that are null",
        '{"name": "ring", "parameters": null}',
        calls=(("ring", {}),),
    ),
    Case(
        "llama3_json",
        "an answer that is JSON",
        '{"name": "Marseille", "parameters": {"population": 870000}}',
        content='{"name": "Marseille", "parameters": {"population": 870000}}',
    ),
    Case(
        "llama3_json",
        "an answer that is a list",
        '[{"city": "Marseille"}, {"city": "Nice"}]',
        content='[{"city": "Marseille"}, {"city": "Nice"}]',
    ),
    Case(
        "llama3_json",
        "a quoted example",
        'To ring, a model writes:\n```json\n{"name": "ring", "parameters": {}}\n```\nThat is all.',
        content='To ring, a model writes:\n```json\n{"name": "ring", "parameters": {}}\n```\nThat is all.',
    ),
    Case(
        "llama3_json",
        "a value that is not quoted",
        '{"name": "plan_trip", "parameters": {"city": Marseille}}',
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "xlam",
        "a fence around the list",
        '```json\n[{"name": "plan_trip", "arguments": {"city": "Marseille"}}]\n```',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "xlam",
        "Mistral's marker before the list",
        '[TOOL_CALLS][{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "xlam",
        "Hermes's markers around the list, behind text",
        'I will ring. <tool_call>[{"name": "ring", "arguments": {}}]</tool_call>',
        calls=(("ring", {}),),
        content="I will ring.",
    ),
    Case(
        "xlam",
        "behind the end of a thought",
        'They said ring.</think>[{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
        reasoning="They said ring.",
        opened=True,
    ),
    Case(
        "xlam",
        "an answer that is a list",
        '[{"name": "Marseille", "arguments": {"sea": true}}, 3]',
        content='[{"name": "Marseille", "arguments": {"sea": true}}, 3]',
    ),
    Case("xlam", "a list of nothing", "[]", content="[]"),
    Case(
        "xlam",
        "a link",
        "[Marseille](https://example.org) is by the sea.",
        content="[Marseille](https://example.org) is by the sea.",
    ),
    Case(
        "command_r_plus",
        "a plan before the action",
        'Plan: I will ring.\nAction:\n```json\n[{"tool_name": "ring", "parameters": {}}]\n```',
        calls=(("ring", {}),),
        content="Plan: I will ring.",
    ),
    Case(
        "command_r_plus",
        "no newline behind the word",
        'Action:```json\n[\n    {\n        "tool_name": "plan_trip",\n        "parameters": {\n            '
        '"city": "Marseille"\n        }\n    }\n]```',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "command_r_plus",
        "a turn that begins with its token",
        "<|CHATBOT_TOKEN|>Marseille is by the sea.<|END_OF_TURN_TOKEN|>",
        content="Marseille is by the sea.",
    ),
    Case(
        "command_r_plus",
        "a fence that is none of a call",
        'It answers:\n```json\n[{"city": "Marseille"}]\n```',
        content='It answers:\n```json\n[{"city": "Marseille"}]\n```',
    ),
]
