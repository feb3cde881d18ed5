"""Ways of writing calls and turns, of which `writers.py` makes those of each family."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.output.recorded.case import Call

Block = Callable[[Sequence[Call]], str]
"""(calls) -> them, as they stand in an answer."""

Turn = Callable[[str, str, str], str]
"""(reasoning, content, block of calls) -> a turn; each may be empty."""

M3 = "]<]minimax[>["
"""What MiniMax M3 writes before every tag."""


def text_of(value: Any) -> str:
    """JSON with characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else text_of(value)


def framed_turn(think: tuple[str, str] | None = None, around: tuple[str, str] = ("", ""), gap: str = "\n\n") -> Turn:
    """Reasoning, then content between its own markers, then calls."""

    def turn(reasoning: str, content: str, block: str) -> str:
        parts = []
        if reasoning:
            assert think is not None
            parts.append(f"{think[0]}{reasoning}{think[1]}")
        if content:
            parts.append(f"{around[0]}{content}{around[1]}")
        if block:
            parts.append(block)
        return gap.join(parts)

    return turn


def json_objects(
    name: str = "name", arguments: str = "arguments", **more: str
) -> Callable[[Sequence[Call]], list[str]]:
    return lambda calls: [text_of({name: n, arguments: a, **more}) for n, a in calls]


def json_list(start: str, end: str, objects: Callable[[Sequence[Call]], list[str]] | None = None) -> Block:
    objects = objects or json_objects()
    return lambda calls: f"{start}[{', '.join(objects(calls))}]{end}"


def json_each(start: str, end: str, between: str = "\n") -> Block:
    return lambda calls: between.join(f"{start}{one}{end}" for one in json_objects()(calls))


def headed_calls(layout: str, between: str = "", around: tuple[str, str] = ("", "")) -> Block:
    """A header with the name and the arguments as JSON."""

    def block(calls: Sequence[Call]) -> str:
        made = (
            layout.replace("NAME", n).replace("INDEX", str(i)).replace("ARGUMENTS", text_of(a))
            for i, (n, a) in enumerate(calls)
        )
        return around[0] + between.join(made) + around[1]

    return block


def tagged_calls(call: str, parameter: str, around: tuple[str, str] = ("", ""), between: str = "\n") -> Block:
    """Parameters one by one, in tags."""

    def block(calls: Sequence[Call]) -> str:
        made = (
            call.replace("NAME", n).replace(
                "PARAMETERS", "".join(parameter.replace("KEY", k).replace("VALUE", _plain(v)) for k, v in a.items())
            )
            for n, a in calls
        )
        return around[0] + between.join(made) + around[1]

    return block


def dsml(section: str) -> Block:
    def one(name: str, arguments: dict[str, Any]) -> str:
        lines = (
            f'<｜DSML｜parameter name="{k}" string="{text_of(isinstance(v, str))}">{_plain(v)}</｜DSML｜parameter>\n'
            for k, v in arguments.items()
        )
        return f'<｜DSML｜invoke name="{name}">\n{"".join(lines)}</｜DSML｜invoke>\n'

    return lambda calls: f"<｜DSML｜{section}>\n{''.join(one(*c) for c in calls)}</｜DSML｜{section}>"


def _m3_element(tag: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = "".join(_m3_element(k, v) for k, v in value.items())
    elif isinstance(value, list):
        inner = "".join(_m3_element("item", v) for v in value)
    else:
        inner = _plain(value)
    return f"{M3}<{tag}>{inner}{M3}</{tag}>"


def minimax_m3(calls: Sequence[Call]) -> str:
    made = (
        f'{M3}<invoke name="{n}">{"".join(_m3_element(k, v) for k, v in a.items())}{M3}</invoke>\n' for n, a in calls
    )
    return f"{M3}<tool_call>\n{''.join(made)}{M3}</tool_call>"


def minicpm5(calls: Sequence[Call]) -> str:
    def value(v: Any) -> str:
        text = _plain(v)
        return f"<![CDATA[{text}]]>" if any(c in text for c in "<&\n") else text

    def one(name: str, arguments: dict[str, Any]) -> str:
        inner = "".join(f'<param name="{k}">{value(v)}</param>' for k, v in arguments.items())
        return f'<function name="{name}">{inner}</function>'

    return "\n".join(one(*call) for call in calls)


_XML_TYPES = ((bool, "boolean"), (str, "string"), ((int, float), "number"), (list, "array"), (dict, "object"))


def kimi_k3(calls: Sequence[Call]) -> str:
    def argument(key: str, value: Any) -> str:
        kind = next((name for types, name in _XML_TYPES if isinstance(value, types)), "null")
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{_plain(value)}<|close|>argument<|sep|>'

    made = (
        f'<|open|>call tool="{n}" index="{i}"<|sep|>{"".join(argument(k, v) for k, v in a.items())}<|close|>call<|sep|>'
        for i, (n, a) in enumerate(calls, 1)
    )
    return f"<|open|>tools<|sep|>{''.join(made)}<|close|>tools<|sep|>"


def kimi_k3_turn(reasoning: str, content: str, block: str) -> str:
    thought = f"<|open|>think<|sep|>{reasoning}<|close|>think<|sep|>" if reasoning else ""
    answer = f"<|open|>response<|sep|>{content}<|close|>response<|sep|>" if content else ""
    return f"{thought}{answer}{block}<|close|>message<|sep|>"


def python_calls(start: str = "", end: str = "") -> Block:
    def block(calls: Sequence[Call]) -> str:
        made = (f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls)
        return f"{start}[{', '.join(made)}]{end}"

    return block


def marked_calls(quote: str, call: tuple[str, str], *, nests: bool = True) -> Block:
    def value(v: Any) -> str:
        if isinstance(v, str):
            return f"{quote}{v}{quote}"
        if isinstance(v, dict | list) and not nests:
            return f"{quote}{text_of(v)}{quote}"
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ",".join(map(value, v)) + "]"
        return text_of(v)

    def arguments(given: Mapping[str, object]) -> str:
        return "{" + ",".join(f"{k}:{value(x)}" for k, x in given.items()) + "}"

    return lambda calls: "".join(f"{call[0]}call:{n}{arguments(a)}{call[1]}" for n, a in calls)


def cohere(calls: Sequence[Call]) -> str:
    made = [text_of({"tool_call_id": str(i), "tool_name": n, "parameters": a}) for i, (n, a) in enumerate(calls)]
    return "<|START_ACTION|>[\n    " + ",\n    ".join(made) + "\n]<|END_ACTION|>"


def harmony(calls: Sequence[Call]) -> str:
    made = (
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{text_of(a)}<|call|>" for n, a in calls
    )
    return "<|start|>assistant".join(made)


def harmony_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f"<|channel|>analysis<|message|>{reasoning}<|end|>"] if reasoning else []
    if content:
        channel, end = ("commentary", "<|end|>") if block else ("final", "")
        messages.append(f"<|channel|>{channel}<|message|>{content}{end}")
    return "<|start|>assistant".join([*messages, block] if block else messages)


def muse(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        lines = "".join(f'<atem:parameter name="{k}">{_plain(v)}</atem:parameter>\n' for k, v in arguments.items())
        block = f'<atem:function_calls>\n<atem:invoke name="{name}">\n{lines}</atem:invoke>\n</atem:function_calls>'
        return f" to={name}<|message|>{block}"

    return "<|eom|><|start|>assistant".join(one(*call) for call in calls)


def muse_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f" to=self<|message|>{reasoning}"] if reasoning else []
    messages += [f" to=user<|message|>{content}"] if content else []
    messages += [block] if block else []
    return "<|eom|><|start|>assistant".join(messages)


def solar_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f"<|think|>{reasoning}<|end|>"] if reasoning else []
    messages += [f"<|content|>{content}<|end|>"] if content else []
    messages += [block] if block else []
    return "<|begin|>assistant".join(messages)


def functionary_v32(reasoning: str, content: str, block: str) -> str:
    return ">>>".join([f"all\n{content}"] * bool(content) + [block] * bool(block))
