"""Peculiar answers of families that write Python calls, and of Gemma's with literals of their own."""

from __future__ import annotations

from tests.output.recorded.case import Case

_CITY = {"city": "Marseille"}

_LITERALS = (
    "store_note(title='it''s', tags=[\"a\", 'b'], meta={'draft': True, \"parent\": None, 'pages': [1, -2]})",
    ("store_note", {"title": "its", "tags": ["a", "b"], "meta": {"draft": True, "parent": None, "pages": [1, -2]}}),
)

_PYTHONIC = [
    case
    for family, start, end in (("pythonic", "", ""), ("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"))
    for case in (
        Case(family, "literals of all kinds", f"{start}[{_LITERALS[0]}]{end}", calls=(_LITERALS[1],)),
        Case(
            family,
            "literals of JSON",
            f'{start}[store_note(meta={{"draft": true, "parent": null}}), plan_trip(insured=false)]{end}',
            calls=(("store_note", {"meta": {"draft": True, "parent": None}}), ("plan_trip", {"insured": False})),
        ),
        Case(
            family,
            "escapes",
            f"{start}[store_note(title='a\\n\\'b\\'\\t\\u00e9', body=\"c\\\\d\\\"e\")]{end}",
            calls=(("store_note", {"title": "a\n'b'\té", "body": 'c\\d"e'}),),
        ),
        Case(
            family,
            "brackets and commas in strings",
            f"{start}[store_note(title='a), b(c=[1]', body=']'), ring()]{end}",
            calls=(("store_note", {"title": "a), b(c=[1]", "body": "]"}), ("ring", {})),
        ),
        Case(
            family,
            "lines and spaces",
            f"{start}[\n  plan_trip(\n    city = 'Marseille',\n    nights = 3,\n  ),\n  ring( ),\n]{end}",
            calls=(("plan_trip", {"city": "Marseille", "nights": 3}), ("ring", {})),
        ),
        Case(
            family,
            "signs and exponents",
            f"{start}[plan_trip(nights=-1, budget=1.5e3)]{end}",
            calls=(("plan_trip", {"nights": -1, "budget": 1500.0}),),
        ),
        Case(
            family,
            "cut behind a whole call",
            f"{start}[ring(), plan_trip(city='Mars",
            calls=(("ring", {}),),
            broken=(("plan_trip", "Mars"),),
            finish="length",
        ),
        Case(
            family,
            "a link",
            "Read [this](https://example.org/a) and [ring](https://example.org/b).",
            content="Read [this](https://example.org/a) and [ring](https://example.org/b).",
        ),
    )
]

_BARE = [
    Case("pythonic", "a tag before the list", "<|python_tag|>[ring()]", calls=(("ring", {}),)),
    Case(
        "pythonic",
        "the markers of Llama 4",
        "<|python_start|>[plan_trip(city='Marseille')]<|python_end|>",
        calls=(("plan_trip", _CITY),),
    ),
    Case("pythonic", "an answer that is a list", "[1, 2, 3]", content="[1, 2, 3]"),
    Case("pythonic", "an empty list", "[]", content="[]"),
    Case(
        "pythonic",
        "a quoted example",
        "A model would write `[ring()]` here.",
        content="A model would write `[ring()]` here.",
    ),
    Case(
        "pythonic",
        "one that was offered beside one that was not",
        "[ring(), launch_rocket(target='moon')]",
        content=None,
        calls=(("ring", {}),),
        kept=("moon",),
    ),
    Case(
        "lfm2",
        "text on both sides",
        "Gladly. <|tool_call_start|>[ring()]<|tool_call_end|> It rings.",
        calls=(("ring", {}),),
        content=None,
        kept=("Gladly.", "It rings."),
    ),
    Case(
        "lfm2",
        "the turn ends in place of the end marker",
        "<|tool_call_start|>[ring()]",
        calls=(("ring", {}),),
    ),
    Case(
        "lfm2",
        "a call that cannot be read, and a good one",
        "<|tool_call_start|>[plan_trip(city={'Marseille': )]<|tool_call_end|><|tool_call_start|>[ring()]"
        "<|tool_call_end|>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
]

_GEMMA = [
    Case(
        "gemma4",
        "what else ends a value stands in a string",
        '<|tool_call>call:store_note{title:<|"|>a,b}<|"|>,body:<|"|>x:1,y{]<|"|>}<tool_call|>',
        calls=(("store_note", {"title": "a,b}", "body": "x:1,y{]"}),),
    ),
    Case(
        "gemma4",
        "plain quotes and backslashes in a string",
        '<|tool_call>call:store_note{title:<|"|>"a" \\n \'b\'<|"|>}<tool_call|>',
        calls=(("store_note", {"title": "\"a\" \\n 'b'"}),),
    ),
    Case(
        "gemma4",
        "a name with a dot",
        "<|tool_call>call:clock.ring{loud:true}<tool_call|>",
        calls=(("clock.ring", {"loud": True}),),
    ),
    Case(
        "gemma4",
        "two calls in one block",
        '<|tool_call>call:plan_trip{city:<|"|>Marseille<|"|>}call:ring{}<tool_call|>',
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "gemma4",
        "the turn ends in place of the end marker",
        '<|tool_call>call:plan_trip{city:<|"|>Marseille<|"|>}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "gemma4",
        "an empty thought, an answer and a call",
        "<|channel>thought\n<channel|>It rings.<|tool_call>call:ring{}<tool_call|>",
        calls=(("ring", {}),),
        content="It rings.",
    ),
    Case(
        "gemma4",
        "a call that cannot be read, and a good one",
        "<|tool_call>call:plan_trip with Marseille<tool_call|><|tool_call>call:ring{}<tool_call|>",
        calls=(("ring", {}),),
        broken=(("plan_trip", "Marseille"),),
    ),
    Case(
        "functiongemma",
        "text before the call",
        "Gladly.<start_function_call>call:plan_trip{city:<escape>Marseille<escape>}<end_function_call>",
        calls=(("plan_trip", _CITY),),
        content="Gladly.",
    ),
    Case(
        "functiongemma",
        "what else ends a value stands in a string",
        "<start_function_call>call:store_note{title:<escape>a,b}<escape>,body:<escape>{c:d}<escape>}<end_function_call>",
        calls=(("store_note", {"title": "a,b}", "body": "{c:d}"}),),
    ),
    Case(
        "functiongemma",
        "the answer to a call begins in place of the end",
        "<start_function_call>call:ring{}<end_function_call><start_function_response>",
        calls=(("ring", {}),),
        content=None,
    ),
    Case(
        "functiongemma",
        "text where the schema says text",
        "<start_function_call>call:plan_trip{city:<escape>13001<escape>,nights:3}<end_function_call>",
        calls=(("plan_trip", {"city": "13001", "nights": 3}),),
    ),
]

PYTHON_FORMS = [*_PYTHONIC, *_BARE, *_GEMMA]
