"""Peculiar answers of families that write a header with the name, and the arguments behind it as JSON."""

from __future__ import annotations

from tests.output.recorded.case import Case

_CITY = {"city": "Marseille"}
_V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
_V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
_K2 = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"

_DEEPSEEK = [
    Case(
        "deepseek_v3",
        "the block's opening marker is left away",
        _V3.format("ring", "{}") + "<｜tool▁calls▁end｜>",
        calls=(("ring", {}),),
    ),
    Case(
        "deepseek_v3",
        "the block's end is left away",
        "<｜tool▁calls▁begin｜>" + _V3.format("plan_trip", '{"city": "Marseille"}'),
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "deepseek_v3",
        "a thought that the prompt opened, and a call",
        "They want to be rung.\n</think>\n\n<｜tool▁calls▁begin｜>" + _V3.format("ring", "{}") + "<｜tool▁calls▁end｜>",
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "deepseek_v3",
        "arguments on several lines",
        "<｜tool▁calls▁begin｜>"
        + _V3.format("plan_trip", '{\n  "city": "Marseille",\n  "nights": 2\n}')
        + "<｜tool▁calls▁end｜>",
        calls=(("plan_trip", {"city": "Marseille", "nights": 2}),),
    ),
    Case(
        "deepseek_v3",
        "a fence in a string",
        "<｜tool▁calls▁begin｜>"
        + _V3.format("store_note", '{"title": "a\\n```\\nb", "body": "```json {} ```"}')
        + "<｜tool▁calls▁end｜>",
        calls=(("store_note", {"title": "a\n```\nb", "body": "```json {} ```"}),),
    ),
    Case(
        "deepseek_v3",
        "a call that is not quoted, and a good one",
        "<｜tool▁calls▁begin｜>"
        + _V3.format("plan_trip", '{"city": Marseille}')
        + "\n"
        + _V3.format("ring", "{}")
        + "<｜tool▁calls▁end｜>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "deepseek_v31",
        "a call that is not quoted, and a good one",
        "<｜tool▁calls▁begin｜>"
        + _V31.format("plan_trip", '{"city": Marseille}')
        + _V31.format("ring", "{}")
        + "<｜tool▁calls▁end｜>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "deepseek_v31",
        "the block's end is left away",
        "Gladly.<｜tool▁calls▁begin｜>" + _V31.format("ring", "{}"),
        calls=(("ring", {}),),
        content="Gladly.",
    ),
    Case(
        "deepseek_v31",
        "the prompt closed the reasoning",
        "Marseille is by the sea.",
        content="Marseille is by the sea.",
    ),
]

_MISTRAL = [
    Case(
        "mistral",
        "spaces in the header",
        '[TOOL_CALLS] plan_trip [ARGS] {"city": "Marseille"}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "mistral",
        "a call that is only mentioned in the reasoning",
        "[THINK]With [TOOL_CALLS]ring[ARGS]{} it would ring.[/THINK]Shall I?",
        reasoning="With [TOOL_CALLS]ring[ARGS]{} it would ring.",
        content="Shall I?",
    ),
    Case(
        "mistral",
        "a call that is not quoted, and a good one",
        '[TOOL_CALLS]plan_trip[ARGS]{"city": Marseille}[TOOL_CALLS]ring[ARGS]{}',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "mistral",
        "an answer that is cut behind whole arguments",
        "[TOOL_CALLS]ring[ARGS]{}",
        calls=(("ring", {}),),
        finish="length",
    ),
    Case(
        "mistral",
        "a list of objects, as older models write",
        '[TOOL_CALLS][{"name": "ring", "arguments": {}}]',
        calls=(("ring", {}),),
    ),
    Case(
        "mistral_call_id",
        "no id",
        '[TOOL_CALLS]plan_trip[ARGS]{"city": "Marseille"}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "mistral_call_id",
        "several calls with ids of their own",
        '[TOOL_CALLS]ring[CALL_ID]abc123DEF[ARGS]{}[TOOL_CALLS]plan_trip[CALL_ID]xyz789UVW[ARGS]{"city": "Marseille"}',
        calls=(("ring", {}), ("plan_trip", _CITY)),
    ),
    Case(
        "mistral_call_id",
        "a call that is not quoted",
        'Gladly.[TOOL_CALLS]plan_trip[CALL_ID]abc123DEF[ARGS]{"city": Marseille}',
        content="Gladly.",
        broken=(("plan_trip", "Marseille"),),
    ),
]

_KIMI = [
    Case(
        "kimi_k2",
        "the section's marker is left away",
        "Gladly." + _K2.format("ring:0", "{}"),
        calls=(("ring", {}),),
        content="Gladly.",
    ),
    Case(
        "kimi_k2",
        "a call amid a thought that is not closed",
        "<think>They want to be rung."
        + "<|tool_calls_section_begin|>"
        + _K2.format("ring:0", "{}")
        + "<|tool_calls_section_end|>",
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
    ),
    Case(
        "kimi_k2",
        "a call amid a thought, without the section's marker",
        "They want to be rung. " + _K2.format("ring:0", "{}"),
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "kimi_k2",
        "lines, and no word before the name",
        "<|tool_calls_section_begin|>\n<|tool_call_begin|>ring:0\n<|tool_call_argument_begin|> {}\n<|tool_call_end|>\n"
        "<|tool_calls_section_end|>",
        calls=(("ring", {}),),
    ),
    Case(
        "kimi_k2",
        "a call that is not quoted, and a good one",
        "<|tool_calls_section_begin|>"
        + _K2.format("plan_trip:0", '{"city": Marseille}')
        + _K2.format("ring:1", "{}")
        + "<|tool_calls_section_end|>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "kimi_k2",
        "a call without a number, and a good one",
        '<|tool_calls_section_begin|><|tool_call_begin|>plan_trip<|tool_call_argument_begin|>{"city": "Marseille"}'
        "<|tool_call_end|>" + _K2.format("ring:1", "{}") + "<|tool_calls_section_end|>",
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "kimi_k2",
        "a call that ends behind its number",
        "<|tool_calls_section_begin|>"
        + _K2.format("plan_trip:0", '{"city": "Marseille"}')
        + "<|tool_call_begin|>functions.ring:1<|tool_calls_section_end|>",
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "kimi_k2",
        "the next call or the end of the turn in place of a call's end",
        "<|tool_call_begin|>functions.ring:0<|tool_call_argument_begin|>{}"
        '<|tool_call_begin|>functions.plan_trip:1<|tool_call_argument_begin|>{"city": "Marseille"}',
        calls=(("ring", {}), ("plan_trip", _CITY)),
    ),
    Case(
        "kimi_k2",
        "the second call is cut",
        "<|tool_calls_section_begin|>"
        + _K2.format("ring:0", "{}")
        + '<|tool_call_begin|>functions.plan_trip:1<|tool_call_argument_begin|>{"city": "Mars',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Mars"),),
        finish="length",
    ),
    Case(
        "kimi_k2",
        "text behind the section",
        "<|tool_calls_section_begin|>" + _K2.format("ring:0", "{}") + "<|tool_calls_section_end|>Ringing now.",
        calls=(("ring", {}),),
        content="Ringing now.",
    ),
]

_OTHERS = [
    Case(
        "functionary_v31",
        "text before two calls",
        'Gladly.<function=ring>{}</function><function=plan_trip>{"city": "Marseille"}</function>',
        calls=(("ring", {}), ("plan_trip", _CITY)),
        content="Gladly.",
    ),
    Case(
        "functionary_v31",
        "a newline between two calls",
        "<function=ring>{}</function>\n<function=ring>{}</function>",
        calls=(("ring", {}), ("ring", {})),
    ),
    Case(
        "functionary_v31",
        "a call that is not quoted, and a good one",
        '<function=plan_trip>{"city": Marseille}</function><function=ring>{}</function>',
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "functionary_v31",
        "the turn ends in place of the end marker",
        '<function=plan_trip>{"city": "Marseille"}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "functionary_v32",
        "text, and two calls behind it",
        'all\nGladly.\n>>>ring\n{}>>>plan_trip\n{"city": "Marseille"}',
        calls=(("ring", {}), ("plan_trip", _CITY)),
        content="Gladly.",
    ),
    Case(
        "functionary_v32",
        "arrows in an answer",
        "all\nIn Python's prompt:\n>>> 1 + 1\n2",
        content="In Python's prompt:\n>>> 1 + 1\n2",
    ),
    Case(
        "functionary_v32",
        "a call that is not quoted",
        'plan_trip\n{"city": Marseille}',
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "solar_open",
        "an id of letters and digits",
        "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>ring<|tool_call:args|>{}<|tool_call:end|>"
        "<|calls|>",
        calls=(("ring", {}),),
    ),
    Case(
        "solar_open",
        "a call that is not quoted, and a good one",
        "<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>plan_trip<|tool_call:args|>"
        '{"city": Marseille}<|tool_call:end|><|tool_call:begin|>b<|tool_call:name|>ring<|tool_call:args|>{}'
        "<|tool_call:end|><|calls|>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "solar_open",
        "the turn ends in place of the block's end",
        "<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>ring<|tool_call:args|>{}<|tool_call:end|>",
        calls=(("ring", {}),),
    ),
]

HEADER_FORMS = [*_DEEPSEEK, *_MISTRAL, *_KIMI, *_OTHERS]
