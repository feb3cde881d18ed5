"""The families: how each writes calls. The facts stand in chat templates and model cards, and in upstream's parsers."""

from __future__ import annotations

from dataclasses import replace

from .description import CallFormat, JsonArguments, MarkedArguments, Parameters, PythonArguments

_OBJECT = '{"name": "NAME", "arguments": ARGUMENTS}'
_LLAMA_OBJECT = '{"name": "NAME", "parameters": ARGUMENTS}'
_BLOCK = ("\n", "\n")
_LIST = ("[", "]")
_MINIMAX = "]<]minimax[>["


def _glm(name: str, prefix: str = "") -> CallFormat:
    key, value = f"{prefix}arg_key", f"{prefix}arg_value"
    return CallFormat(
        name,
        "NAME\nARGUMENTS",
        Parameters(f"<{key}>KEY</{key}>\n<{value}>VALUE</{value}>\n"),
        start=f"<{prefix}tool_call>",
        end=f"</{prefix}tool_call>",
        between="\n",
        each=True,
        also=(_OBJECT,),
    )


def _invoke(name: str, block: str, prefix: str = "", *, thought: bool = True) -> CallFormat:
    return CallFormat(
        name,
        f'<{prefix}invoke name="NAME">\nARGUMENTS</{prefix}invoke>\n',
        Parameters(f'<{prefix}parameter name="KEY">VALUE</{prefix}parameter>\n'),
        start=f"<{block}>",
        end=f"</{block}>",
        inside=("\n", ""),
        thought=thought,
    )


_MISTRAL = CallFormat(
    "mistral",
    "NAME[ARGS]ARGUMENTS",
    start="[TOOL_CALLS]",
    each=True,
    thought=False,
    also=("NAME[CALL_ID]ID[ARGS]ARGUMENTS", _OBJECT),
)
_QWEN = CallFormat(
    "qwen3_coder",
    "<function=NAME>\nARGUMENTS</function>",
    Parameters("<parameter=KEY>\nVALUE\n</parameter>\n"),
    start="<tool_call>",
    end="</tool_call>",
    inside=_BLOCK,
    between="\n",
    each=True,
    heads=("<function=",),
)
_DEEPSEEK = CallFormat(
    "deepseek_v32",
    '<｜DSML｜invoke name="NAME">\nARGUMENTS</｜DSML｜invoke>\n',
    Parameters(
        '<｜DSML｜parameter name="KEY" string="TYPE">VALUE</｜DSML｜parameter>\n',
        text_type="true",
        other_type="false",
        also=('<｜DSML｜parameter name="KEY">VALUE</｜DSML｜parameter>\n',),
    ),
    start="<｜DSML｜function_calls>",
    end="</｜DSML｜function_calls>",
    inside=("\n", ""),
    openers=("<｜DSML｜tool_calls>",),
    closers=("</｜DSML｜tool_calls>",),
    heads=("<｜DSML｜invoke",),
)


_ROWS = (
    # -- Objects and lists of them ------------------------------------------------------------------------------------
    CallFormat(
        "hermes",
        _OBJECT,
        start="<tool_call>",
        end="</tool_call>",
        inside=_BLOCK,
        between="\n",
        each=True,
        thought=False,
    ),
    CallFormat(
        "llama3_json",
        _LLAMA_OBJECT,
        between="; ",
        openers=("<|python_tag|>", "<|python_start|>"),
        closers=("<|python_end|>", "<|eom_id|>"),
    ),
    CallFormat(
        "xlam",
        _OBJECT,
        inside=_LIST,
        between=", ",
        openers=("```json", "[TOOL_CALLS]", "<tool_call>"),
        closers=("```", "</tool_call>"),
    ),
    CallFormat("granite3", _OBJECT, start="<|tool_call|>", inside=_LIST, between=", ", openers=("<tool_call>",)),
    CallFormat("granite3_text", _OBJECT, start="<tool_call>", inside=_LIST, between=", ", openers=("<|tool_call|>",)),
    CallFormat("granite_20b_fc", _OBJECT, start="<function_call>", inside=(" ", ""), between="\n", each=True),
    CallFormat("phi4_mini", _OBJECT, start="functools", inside=_LIST, between=", "),
    CallFormat("firefunction", _OBJECT, start="functools", inside=_LIST, between=", "),
    CallFormat("nemotron_v2", _OBJECT, start="<TOOLCALL>", end="</TOOLCALL>", inside=_LIST, between=", "),
    CallFormat(
        "hunyuan_a13b", _OBJECT, start="<tool_calls>", end="</tool_calls>", inside=_LIST, between=", ", thought=False
    ),
    CallFormat("apriel", _OBJECT, start="<tool_calls>", end="</tool_calls>", inside=_LIST, between=", "),
    CallFormat("minimax_m1", _OBJECT, start="<tool_calls>", end="</tool_calls>", inside=_BLOCK, between="\n"),
    CallFormat(
        "command_r7b",
        '    {"tool_call_id": "INDEX", "tool_name": "NAME", "parameters": ARGUMENTS}',
        start="<|START_ACTION|>",
        end="<|END_ACTION|>",
        inside=("[\n", "\n]"),
        between=",\n",
    ),
    CallFormat(
        "command_r_plus",
        '    {\n        "tool_name": "NAME",\n        "parameters": ARGUMENTS\n    }',
        start="Action:",
        inside=(" ```json\n[\n", "\n]```"),
        closers=("```",),
        between=",\n",
    ),
    CallFormat(
        "gigachat3",
        _OBJECT,
        start="<|message_sep|>\n\nfunction call<|role_sep|>",
        inside=("\n", ""),
        each=True,
        openers=("function call<|role_sep|>", "<|function_call|>"),
    ),
    CallFormat("gigachat31", _OBJECT, start="<|function_call|>", each=True, openers=("function call<|role_sep|>",)),
    CallFormat(
        "apertus",
        '{"NAME": ARGUMENTS}',
        start="<|tools_prefix|>",
        end="<|tools_suffix|>",
        inside=_LIST,
        between=", ",
    ),
    CallFormat(
        "internlm2", _OBJECT, start="<|action_start|><|plugin|>", end="<|action_end|>", inside=("\n", ""), each=True
    ),
    CallFormat(
        "mistral_array", _OBJECT, start="[TOOL_CALLS]", inside=_LIST, between=", ", also=("NAME[ARGS]ARGUMENTS",)
    ),
    # -- A header and JSON --------------------------------------------------------------------------------------------
    _MISTRAL,
    replace(
        _MISTRAL, name="mistral_call_id", call="NAME[CALL_ID]ID[ARGS]ARGUMENTS", also=("NAME[ARGS]ARGUMENTS", _OBJECT)
    ),
    CallFormat(
        "deepseek_v3",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>",
        start="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        between="\n",
        heads=("<｜tool▁call▁begin｜>",),
        also=("function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```",),
    ),
    CallFormat(
        "deepseek_v31",
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>",
        start="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        heads=("<｜tool▁call▁begin｜>",),
    ),
    CallFormat(
        "kimi_k2",
        "<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
        start="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
        heads=("<|tool_call_begin|>",),
        also=("<|tool_call_begin|>NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",),
    ),
    CallFormat(
        "functionary_v31", "<function=NAME>ARGUMENTS</function>", heads=("<function=",), closers=("<|eom_id|>",)
    ),
    CallFormat(
        "solar_open",
        "<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>ARGUMENTS<|tool_call:end|>",
        start="<|tool_calls|>",
        end="<|calls|>",
        heads=("<|tool_call:begin|>",),
    ),
    # -- Parameters one by one ----------------------------------------------------------------------------------------
    _QWEN,
    replace(
        _QWEN,
        name="seed_oss",
        arguments=Parameters("<parameter=KEY>VALUE</parameter>\n"),
        start="<seed:tool_call>",
        end="</seed:tool_call>",
    ),
    _glm("glm"),
    _glm("longcat", prefix="longcat_"),
    CallFormat(
        "hunyuan3",
        "<tool_call:opensource>NAME<tool_sep:opensource>\nARGUMENTS</tool_call:opensource>\n",
        Parameters(
            "<arg_key:opensource>KEY</arg_key:opensource>\n<arg_value:opensource>VALUE</arg_value:opensource>\n"
        ),
        start="<tool_calls:opensource>",
        end="</tool_calls:opensource>",
        inside=("\n", ""),
        heads=("<tool_call:opensource>",),
    ),
    _DEEPSEEK,
    replace(
        _DEEPSEEK,
        name="deepseek_v4",
        start="<｜DSML｜tool_calls>",
        end="</｜DSML｜tool_calls>",
        openers=("<｜DSML｜toolcalls>", "<｜DSML｜tool>", "<｜DSML｜function_calls>"),
        closers=("</｜DSML｜function_calls>",),
    ),
    CallFormat(
        "minicpm5",
        '<function name="NAME">ARGUMENTS</function>',
        Parameters('<param name="KEY">VALUE</param>', cdata=True),
        between="\n",
        heads=("<function name=",),
    ),
    _invoke("minimax_m2", "minimax:tool_call"),
    CallFormat(
        "minimax_m3",
        f'{_MINIMAX}<invoke name="NAME">ARGUMENTS{_MINIMAX}</invoke>\n',
        Parameters(f"{_MINIMAX}<KEY>VALUE{_MINIMAX}</KEY>", element=_MINIMAX),
        start=f"{_MINIMAX}<tool_call>",
        end=f"{_MINIMAX}</tool_call>",
        inside=("\n", ""),
        heads=(f"{_MINIMAX}<invoke",),
    ),
    CallFormat(
        "kimi_k3",
        '<|open|>call tool="NAME" index="INDEX"<|sep|>ARGUMENTS<|close|>call<|sep|>',
        Parameters(
            '<|open|>argument key="KEY" type="TYPE"<|sep|>VALUE<|close|>argument<|sep|>',
            text_type="string",
            escaped=True,
            whole='<|open|>json type="object"<|sep|>VALUE<|close|>json<|sep|>',
        ),
        start="<|open|>tools<|sep|>",
        end="<|close|>tools<|sep|>",
        heads=("<|open|>call",),
        first_index=1,
    ),
    _invoke("muse", "atem:function_calls", "atem:", thought=False),
    # -- Python, and Gemma's marks ------------------------------------------------------------------------------------
    CallFormat(
        "lfm2",
        "NAME(ARGUMENTS)",
        PythonArguments(),
        start="<|tool_call_start|>",
        end="<|tool_call_end|>",
        inside=_LIST,
        between=", ",
        thought=False,
    ),
    CallFormat(
        "pythonic",
        "NAME(ARGUMENTS)",
        PythonArguments(),
        inside=_LIST,
        between=", ",
        openers=("<|python_tag|>", "<|python_start|>"),
        closers=("<|python_end|>", "<|eom_id|>"),
    ),
    CallFormat(
        "gemma4",
        "call:NAME{ARGUMENTS}",
        MarkedArguments('<|"|>'),
        start="<|tool_call>",
        end="<tool_call|>",
        each=True,
        also=(":NAME{ARGUMENTS}",),
    ),
    CallFormat(
        "functiongemma",
        "call:NAME{ARGUMENTS}",
        MarkedArguments("<escape>", nests=False),
        start="<start_function_call>",
        end="<end_function_call>",
        each=True,
        names=r"\w+",
    ),
    # -- Recipients: `Channels` finds the name ------------------------------------------------------------------------
    CallFormat(
        "harmony",
        "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>",
        JsonArguments(),
        also=("NAME<|message|>ARGUMENTS",),
    ),
    CallFormat("functionary_v32", "NAME\nARGUMENTS", between=">>>"),
)

FORMATS = {row.name: row for row in _ROWS}
"""Call formats by name."""
PLAIN = FORMATS["hermes"]
"""Format that a model is asked to write whose template shows no tools."""
