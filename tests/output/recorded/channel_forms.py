"""Peculiar answers of families that write messages, each with its recipient or channel."""

from __future__ import annotations

from tests.output.recorded.case import Case

_CITY = {"city": "Marseille"}

_START = "<|start|>assistant"
_HARMONY = [
    Case(
        "harmony",
        "the recipient comes first",
        ' to=functions.plan_trip<|channel|>commentary <|constrain|>json<|message|>{"city": "Marseille"}<|call|>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "harmony",
        "the recipient comes first, behind a thought",
        f"<|channel|>analysis<|message|>Ring it.<|end|>{_START} to=functions.ring<|channel|>commentary json"
        "<|message|>{}<|call|>",
        calls=(("ring", {}),),
        reasoning="Ring it.",
    ),
    Case(
        "harmony",
        "a call in the channel of thoughts",
        "<|channel|>analysis to=functions.ring <|constrain|>json<|message|>{}<|call|>",
        calls=(("ring", {}),),
    ),
    Case(
        "harmony",
        "the recipient comes first, and the channel is that of thoughts",
        " to=functions.ring<|channel|>analysis<|message|>{}",
        calls=(("ring", {}),),
    ),
    Case(
        "harmony",
        "a header with two channels, of which the last counts",
        f"<|channel|>commentary to=assistant<|channel|>analysis<|message|>Short.<|end|>{_START}"
        "<|channel|>final<|message|>Shall I?",
        reasoning="Short.",
        content="Shall I?",
    ),
    Case(
        "harmony",
        "no constraint and no space",
        "<|channel|>commentary to=functions.ring<|message|>{}<|call|>",
        calls=(("ring", {}),),
    ),
    Case(
        "harmony",
        "the turn ends in place of the call's end",
        '<|channel|>commentary to=functions.plan_trip <|constrain|>json<|message|>{"city": "Marseille"}',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "harmony",
        "a preamble, then a call",
        f"<|channel|>analysis<|message|>Ring it.<|end|>{_START}<|channel|>commentary<|message|>I ring.<|end|>{_START}"
        "<|channel|>commentary to=functions.ring <|constrain|>json<|message|>{}<|call|>",
        calls=(("ring", {}),),
        reasoning="Ring it.",
        content="I ring.",
    ),
    Case(
        "harmony",
        "arguments that are not quoted",
        "<|channel|>commentary to=functions.plan_trip <|constrain|>json<|message|>city: Marseille<|call|>",
        broken=(("plan_trip", "city: Marseille"),),
    ),
    Case("harmony", "no header", "Marseille is by the sea.", content="Marseille is by the sea."),
    Case(
        "harmony",
        "a mention of a call in a thought",
        "<|channel|>analysis<|message|>I could use to=functions.ring with {}.<|end|>"
        f"{_START}<|channel|>final<|message|>Shall I?",
        reasoning="I could use to=functions.ring with {}.",
        content="Shall I?",
    ),
    Case(
        "harmony",
        "an answer between tokens that end it",
        "<|channel|>final<|message|>Marseille is by the sea.<|return|>",
        content="Marseille is by the sea.",
    ),
    Case(
        "harmony",
        "cut in a thought",
        "<|channel|>analysis<|message|>They want",
        reasoning="They want",
        finish="length",
    ),
    Case("harmony", "cut in a header", "<|channel|>comm", finish="length"),
]

_BLOCK = '<atem:function_calls>\n<atem:invoke name="{}">\n{}</atem:invoke>\n</atem:function_calls>'
_RING = _BLOCK.format("ring", "")
_MUSE = [
    Case(
        "muse",
        "a call that is only mentioned to the user",
        f" to=user<|message|>Such a block rings:\n{_RING}\nNo more.",
        content=f"Such a block rings:\n{_RING}\nNo more.",
    ),
    Case(
        "muse",
        "a call that is only mentioned in a thought",
        f" to=self<|message|>I could write {_RING} here.<|eom|>{_START} to=user<|message|>Shall I?",
        reasoning=f"I could write {_RING} here.",
        content="Shall I?",
    ),
    Case(
        "muse",
        "a thought, an aside and two calls",
        f" to=self<|message|>Ring it twice.<|eom|>{_START} to=user<|message|>I ring.<|eom|>{_START} to=ring<|message|>"
        f"{_RING}<|eom|>{_START} to=ring<|message|>{_RING}<|eot|>",
        calls=(("ring", {}), ("ring", {})),
        reasoning="Ring it twice.",
        content="I ring.",
    ),
    Case(
        "muse",
        "values by the schema",
        " to=plan_trip<|message|>"
        + _BLOCK.format(
            "plan_trip",
            '<atem:parameter name="city">13001</atem:parameter>\n<atem:parameter name="nights">3</atem:parameter>\n',
        ),
        calls=(("plan_trip", {"city": "13001", "nights": 3}),),
    ),
    Case(
        "muse",
        "cut in an answer",
        " to=user<|message|>Marseille is by",
        content="Marseille is by",
        finish="length",
    ),
    Case("muse", "cut in a header", " to=us", finish="length"),
    Case(
        "muse",
        "reasoning that is cut",
        " to=self<|message|>They want",
        reasoning="They want",
        finish="length",
    ),
]

_TOOLS = "<|open|>tools<|sep|>{}<|close|>tools<|sep|><|close|>message<|sep|>"
_KIMI = [
    Case(
        "kimi_k3",
        "an empty answer before the calls",
        "They want to be rung.<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>"
        + _TOOLS.format('<|open|>call tool="ring" index="1"<|sep|><|close|>call<|sep|>'),
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "kimi_k3",
        "an answer begins in place of the thought's end",
        "<|open|>response<|sep|>Marseille is by the sea.<|close|>response<|sep|><|close|>message<|sep|>",
        content="Marseille is by the sea.",
        opened=True,
    ),
    Case(
        "kimi_k3",
        "the attribute decides, not the schema",
        _TOOLS.format(
            '<|open|>call tool="set_level" index="1"<|sep|><|open|>argument key="label" type="string"<|sep|>7'
            '<|close|>argument<|sep|><|open|>argument key="level" type="null"<|sep|>null<|close|>argument<|sep|>'
            "<|close|>call<|sep|>"
        ),
        calls=(("set_level", {"label": "7", "level": None}),),
    ),
    Case(
        "kimi_k3",
        "escaped names and keys",
        _TOOLS.format(
            '<|open|>call tool="ring" index="1"<|sep|><|open|>argument key="a&amp;&quot;b" type="string"<|sep|>&amp;'
            "<|close|>argument<|sep|><|close|>call<|sep|>"
        ),
        calls=(("ring", {'a&"b': "&amp;"}),),
    ),
    Case(
        "kimi_k3",
        "arguments as one object",
        _TOOLS.format(
            '<|open|>call tool="plan_trip" index="1"<|sep|><|open|>json type="object"<|sep|>{"city": "Marseille"}'
            "<|close|>json<|sep|><|close|>call<|sep|>"
        ),
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "kimi_k3",
        "words of the markup in an answer",
        "<|open|>response<|sep|>First the response, then message or tools.<|close|>response<|sep|>"
        "<|close|>message<|sep|>",
        content="First the response, then message or tools.",
    ),
]

CHANNEL_FORMS = [*_HARMONY, *_MUSE, *_KIMI]
