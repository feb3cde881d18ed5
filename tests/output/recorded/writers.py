"""Turns as the models of each family write them, after their chat templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Writer:
    """How the models of a family write.

    Attributes:
        name: of the family.
        block: calls.
        turn: all together.
        think: what opens and closes reasoning; the model does not write an opening that is empty.
        markers: what stands around calls, and never in content.
        beside: text and calls may stand in one turn.
        parallel: several calls may.
        typed: values are text that the schema types.
        nests: arguments may hold objects and arrays.
        quotes: markers in a string are told from real ones.
        mentions: calls that stand in the reasoning are only mentioned there.
        closed: a call has an end marker.
    """

    name: str
    block: Block
    turn: Turn
    think: tuple[str, str] | None = None
    markers: tuple[str, ...] = ()
    beside: bool = True
    parallel: bool = True
    typed: bool = False
    nests: bool = True
    quotes: bool = True
    mentions: bool = False
    closed: bool = True


def _turn(think: tuple[str, str] | None = None, around: tuple[str, str] = ("", ""), gap: str = "\n\n") -> Turn:
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


def _objects(name: str = "name", arguments: str = "arguments", **more: str) -> Callable[[Sequence[Call]], list[str]]:
    return lambda calls: [text_of({name: n, arguments: a, **more}) for n, a in calls]


def _list(start: str, end: str, objects: Callable[[Sequence[Call]], list[str]] | None = None) -> Block:
    objects = objects or _objects()
    return lambda calls: f"{start}[{', '.join(objects(calls))}]{end}"


def _each(start: str, end: str, between: str = "\n") -> Block:
    return lambda calls: between.join(f"{start}{one}{end}" for one in _objects()(calls))


def _headed(layout: str, between: str = "", around: tuple[str, str] = ("", "")) -> Block:
    """A header with the name and the arguments as JSON."""

    def block(calls: Sequence[Call]) -> str:
        made = (
            layout.replace("NAME", n).replace("INDEX", str(i)).replace("ARGUMENTS", text_of(a))
            for i, (n, a) in enumerate(calls)
        )
        return around[0] + between.join(made) + around[1]

    return block


def _tagged(call: str, parameter: str, around: tuple[str, str] = ("", ""), between: str = "\n") -> Block:
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


def _dsml(section: str) -> Block:
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


def _minimax_m3(calls: Sequence[Call]) -> str:
    made = (
        f'{M3}<invoke name="{n}">{"".join(_m3_element(k, v) for k, v in a.items())}{M3}</invoke>\n' for n, a in calls
    )
    return f"{M3}<tool_call>\n{''.join(made)}{M3}</tool_call>"


def _minicpm5(calls: Sequence[Call]) -> str:
    def value(v: Any) -> str:
        text = _plain(v)
        return f"<![CDATA[{text}]]>" if any(c in text for c in "<&\n") else text

    def one(name: str, arguments: dict[str, Any]) -> str:
        inner = "".join(f'<param name="{k}">{value(v)}</param>' for k, v in arguments.items())
        return f'<function name="{name}">{inner}</function>'

    return "\n".join(one(*call) for call in calls)


_XML_TYPES = ((bool, "boolean"), (str, "string"), ((int, float), "number"), (list, "array"), (dict, "object"))


def _kimi_k3(calls: Sequence[Call]) -> str:
    def argument(key: str, value: Any) -> str:
        kind = next((name for types, name in _XML_TYPES if isinstance(value, types)), "null")
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{_plain(value)}<|close|>argument<|sep|>'

    made = (
        f'<|open|>call tool="{n}" index="{i}"<|sep|>{"".join(argument(k, v) for k, v in a.items())}<|close|>call<|sep|>'
        for i, (n, a) in enumerate(calls, 1)
    )
    return f"<|open|>tools<|sep|>{''.join(made)}<|close|>tools<|sep|>"


def _kimi_k3_turn(reasoning: str, content: str, block: str) -> str:
    thought = f"<|open|>think<|sep|>{reasoning}<|close|>think<|sep|>" if reasoning else ""
    answer = f"<|open|>response<|sep|>{content}<|close|>response<|sep|>" if content else ""
    return f"{thought}{answer}{block}<|close|>message<|sep|>"


def _python(start: str = "", end: str = "") -> Block:
    def block(calls: Sequence[Call]) -> str:
        made = (f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls)
        return f"{start}[{', '.join(made)}]{end}"

    return block


def _marked(quote: str, call: tuple[str, str]) -> Block:
    def value(v: Any) -> str:
        if isinstance(v, str):
            return f"{quote}{v}{quote}"
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ",".join(map(value, v)) + "]"
        return text_of(v)

    return lambda calls: "".join(f"{call[0]}call:{n}{value(a)}{call[1]}" for n, a in calls)


def _cohere(calls: Sequence[Call]) -> str:
    made = [text_of({"tool_call_id": str(i), "tool_name": n, "parameters": a}) for i, (n, a) in enumerate(calls)]
    return "<|START_ACTION|>[\n    " + ",\n    ".join(made) + "\n]<|END_ACTION|>"


def _harmony(calls: Sequence[Call]) -> str:
    made = (
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{text_of(a)}<|call|>" for n, a in calls
    )
    return "<|start|>assistant".join(made)


def _harmony_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f"<|channel|>analysis<|message|>{reasoning}<|end|>"] if reasoning else []
    if content:
        channel, end = ("commentary", "<|end|>") if block else ("final", "")
        messages.append(f"<|channel|>{channel}<|message|>{content}{end}")
    return "<|start|>assistant".join([*messages, block] if block else messages)


def _muse(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        lines = "".join(f'<atem:parameter name="{k}">{_plain(v)}</atem:parameter>\n' for k, v in arguments.items())
        block = f'<atem:function_calls>\n<atem:invoke name="{name}">\n{lines}</atem:invoke>\n</atem:function_calls>'
        return f" to={name}<|message|>{block}"

    return "<|eom|><|start|>assistant".join(one(*call) for call in calls)


def _muse_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f" to=self<|message|>{reasoning}"] if reasoning else []
    messages += [f" to=user<|message|>{content}"] if content else []
    messages += [block] if block else []
    return "<|eom|><|start|>assistant".join(messages)


def _solar_turn(reasoning: str, content: str, block: str) -> str:
    messages = [f"<|think|>{reasoning}<|end|>"] if reasoning else []
    messages += [f"<|content|>{content}<|end|>"] if content else []
    messages += [block] if block else []
    return "<|begin|>assistant".join(messages)


def _functionary_v32(reasoning: str, content: str, block: str) -> str:
    return ">>>".join([f"all\n{content}"] * bool(content) + [block] * bool(block))


THINK = ("<think>", "</think>")
_COHERE_THINK = ("<|START_THINKING|>", "<|END_THINKING|>")
_R1 = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_CODER = "<tool_call>\n<function=NAME>\nPARAMETERS</function>\n</tool_call>"
_GLM = "<tool_call>NAME\nPARAMETERS</tool_call>"
_OPEN = ":opensource>"


def _family(name: str, block: Block, turn: Turn | None = None, **more: Any) -> Writer:
    return Writer(name, block, turn or _turn(more.get("think")), **more)


WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        _family(
            "llama3_json",
            lambda calls: "; ".join(_objects(arguments="parameters")(calls)),
            markers=("<|python_tag|>",),
            beside=False,
        ),
        _family("pythonic", _python(), beside=False),
        _family("xlam", _list("", ""), think=THINK, beside=False),
        _family(
            "deepseek_v3",
            _headed(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>", "\n", _R1
            ),
            think=THINK,
            markers=_R1,
        ),
        _family(
            "deepseek_v31",
            _headed("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>", "", _R1),
            think=THINK,
            markers=_R1,
        ),
        _family(
            "deepseek_v32",
            _dsml("function_calls"),
            think=THINK,
            markers=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        ),
        _family(
            "deepseek_v4", _dsml("tool_calls"), think=THINK, markers=("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")
        ),
        _family("granite3", _list("<|tool_call|>", ""), think=THINK, markers=("<|tool_call|>",), closed=False),
        _family("granite_20b_fc", _each("<function_call> ", ""), markers=("<function_call>",), closed=False),
        _family(
            "hermes", _each("<tool_call>\n", "\n</tool_call>"), think=THINK, markers=("<tool_call>", "</tool_call>")
        ),
        _family("phi4_mini", _list("functools", ""), markers=("functools[",), closed=False),
        _family("firefunction", _list(" functools", ""), markers=("functools[",), closed=False),
        _family("nemotron_v2", _list("<TOOLCALL>", "</TOOLCALL>"), think=THINK, markers=("<TOOLCALL>", "</TOOLCALL>")),
        _family(
            "qwen3_coder",
            _tagged(_CODER, "<parameter=KEY>\nVALUE\n</parameter>\n"),
            think=THINK,
            markers=("<tool_call>", "</tool_call>"),
            typed=True,
        ),
        _family(
            "seed_oss",
            _tagged(_CODER.replace("tool_call", "seed:tool_call"), "<parameter=KEY>VALUE</parameter>\n"),
            think=("<seed:think>", "</seed:think>"),
            markers=("<seed:tool_call>", "</seed:tool_call>"),
            typed=True,
        ),
        _family(
            "command_r7b",
            _cohere,
            _turn(_COHERE_THINK, ("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ""),
            think=_COHERE_THINK,
            markers=("<|START_ACTION|>", "<|END_ACTION|>"),
        ),
        _family(
            "cohere2_moe",
            _cohere,
            _turn(_COHERE_THINK, ("<|START_TEXT|>", "<|END_TEXT|>"), ""),
            think=_COHERE_THINK,
            markers=("<|START_ACTION|>", "<|END_ACTION|>"),
        ),
        _family(
            "command_r_plus",
            _list("Action:\n```json\n", "\n```", _objects("tool_name", "parameters")),
            beside=False,
        ),
        _family(
            "functionary_v31",
            _headed("<function=NAME>ARGUMENTS</function>"),
            markers=("<function=", "</function>"),
        ),
        _family("functionary_v32", _headed("NAME\nARGUMENTS", ">>>"), _functionary_v32, markers=(">>>",), closed=False),
        _family(
            "hunyuan_a13b",
            _list("<tool_calls>", "</tool_calls>"),
            lambda reasoning, content, block: (
                (f"<think>\n{reasoning}\n</think>\n" if reasoning else "")
                + (f"<answer>\n{content}\n{block}\n</answer>" if reasoning and content else content + block)
            ),
            think=THINK,
            markers=("<tool_calls>", "</tool_calls>", "<answer>", "</answer>"),
            mentions=True,
        ),
        _family(
            "hunyuan3",
            _tagged(
                f"<tool_call{_OPEN}NAME<tool_sep{_OPEN}\nPARAMETERS</tool_call{_OPEN}\n",
                f"<arg_key{_OPEN}KEY</arg_key{_OPEN}\n<arg_value{_OPEN}VALUE</arg_value{_OPEN}\n",
                (f"<tool_calls{_OPEN}\n", f"</tool_calls{_OPEN}"),
                "",
            ),
            think=(f"<think{_OPEN}", f"</think{_OPEN}"),
            markers=(f"<tool_calls{_OPEN}", f"</tool_calls{_OPEN}"),
            typed=True,
        ),
        _family(
            "apriel",
            _list("<tool_calls>", "</tool_calls>", _objects(id="call-0")),
            _turn(("", "\n[BEGIN FINAL RESPONSE]"), gap="\n"),
            think=("", "\n[BEGIN FINAL RESPONSE]"),
            markers=("<tool_calls>", "</tool_calls>", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
        ),
        _family(
            "gigachat3",
            _each("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
            _turn(gap=""),
            markers=("<|message_sep|>", "<|role_sep|>"),
            parallel=False,
            closed=False,
        ),
        _family(
            "gigachat31",
            _each("<|function_call|>", ""),
            _turn(gap=""),
            markers=("<|function_call|>",),
            parallel=False,
            closed=False,
        ),
        _family(
            "apertus",
            _list("<|tools_prefix|>", "<|tools_suffix|>", lambda calls: [text_of({n: a}) for n, a in calls]),
            _turn(("<|inner_prefix|>", "<|inner_suffix|>"), gap=""),
            think=("<|inner_prefix|>", "<|inner_suffix|>"),
            markers=("<|tools_prefix|>", "<|tools_suffix|>"),
        ),
        _family(
            "internlm2",
            _each("<|action_start|><|plugin|>\n", "<|action_end|>"),
            markers=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
            parallel=False,
        ),
        _family(
            "minimax_m1",
            lambda calls: "<tool_calls>\n" + "\n".join(_objects()(calls)) + "\n</tool_calls>",
            think=THINK,
            markers=("<tool_calls>", "</tool_calls>"),
        ),
        _family(
            "minimax_m2",
            _tagged(
                '<invoke name="NAME">\nPARAMETERS</invoke>\n',
                '<parameter name="KEY">VALUE</parameter>\n',
                ("<minimax:tool_call>\n", "</minimax:tool_call>"),
                "",
            ),
            think=THINK,
            markers=("<minimax:tool_call>", "</minimax:tool_call>"),
            typed=True,
        ),
        _family(
            "minimax_m3",
            _minimax_m3,
            think=("<mm:think>", "</mm:think>"),
            markers=(f"{M3}<tool_call>", f"{M3}</tool_call>"),
            typed=True,
            quotes=False,
        ),
        _family(
            "solar_open",
            _headed(
                "<|tool_call:begin|>id00INDEX<|tool_call:name|>NAME<|tool_call:args|>ARGUMENTS<|tool_call:end|>",
                "",
                ("<|tool_calls|>", "<|calls|>"),
            ),
            _solar_turn,
            think=("<|think|>", "<|end|>"),
            markers=("<|tool_calls|>", "<|calls|>", "<|tool_call:begin|>", "<|tool_call:end|>", "<|content|>"),
            beside=False,
        ),
        _family(
            "glm",
            _tagged(_GLM, "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"),
            think=THINK,
            markers=("<tool_call>", "</tool_call>"),
            typed=True,
        ),
        _family(
            "minicpm5",
            _minicpm5,
            think=THINK,
            markers=('<function name="', "</function>"),
            typed=True,
        ),
        _family(
            "mistral",
            _headed("[TOOL_CALLS]NAME[ARGS]ARGUMENTS"),
            _turn(("[THINK]", "[/THINK]"), gap=""),
            think=("[THINK]", "[/THINK]"),
            markers=("[TOOL_CALLS]",),
            closed=False,
        ),
        _family(
            "mistral_call_id",
            _headed("[TOOL_CALLS]NAME[CALL_ID]a1B2c3D4INDEX[ARGS]ARGUMENTS"),
            _turn(gap=""),
            markers=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
            closed=False,
        ),
        _family(
            "mistral_array",
            _list("[TOOL_CALLS]", "", _objects(id="a1B2c3D4e")),
            _turn(gap=""),
            markers=("[TOOL_CALLS]",),
            closed=False,
        ),
        _family(
            "kimi_k2",
            _headed(
                "<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
                "",
                ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            ),
            think=THINK,
            markers=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ),
        _family(
            "kimi_k3",
            _kimi_k3,
            _kimi_k3_turn,
            think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            markers=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
            quotes=False,
        ),
        _family("muse", _muse, _muse_turn, markers=("<|message|>", "<|eom|>", "<|start|>"), typed=True),
        _family(
            "harmony",
            _harmony,
            _harmony_turn,
            markers=("<|channel|>", "<|message|>", "<|call|>", "<|start|>", "<|constrain|>"),
            quotes=False,
        ),
        _family(
            "lfm2",
            _python("<|tool_call_start|>", "<|tool_call_end|>"),
            think=THINK,
            mentions=True,
            markers=("<|tool_call_start|>", "<|tool_call_end|>"),
        ),
        _family(
            "gemma4",
            _marked('<|"|>', ("<|tool_call>", "<tool_call|>")),
            _turn(("<|channel>thought\n", "<channel|>"), gap=""),
            think=("<|channel>thought\n", "<channel|>"),
            markers=("<|tool_call>", "<tool_call|>"),
        ),
        _family(
            "functiongemma",
            _marked("<escape>", ("<start_function_call>", "<end_function_call>")),
            markers=("<start_function_call>", "<end_function_call>"),
            nests=False,
        ),
        _family(
            "longcat",
            _tagged(
                "<longcat_tool_call>NAME\nPARAMETERS</longcat_tool_call>",
                "<longcat_arg_key>KEY</longcat_arg_key>\n<longcat_arg_value>VALUE</longcat_arg_value>\n",
            ),
            think=("<longcat_think>", "</longcat_think>"),
            markers=("<longcat_tool_call>", "</longcat_tool_call>"),
            typed=True,
        ),
    )
}
