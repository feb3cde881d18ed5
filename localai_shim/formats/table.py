"""The families: how each writes calls, and how it is detected. From chat templates, model cards, and parsers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from .description import CallFormat, Channels
from .syntaxes.keyed import MarkedArguments, PythonArguments
from .syntaxes.tagged import Parameters

_OBJECT = '{"name": "NAME", "arguments": ARGUMENTS}'
_BLOCK = ("\n", "\n")
_LIST = ("[", "]")
_MINIMAX = "]<]minimax[>["
_listed = partial(CallFormat, call=_OBJECT, inside=_LIST, between=", ")


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


@lru_cache(maxsize=256)
def hunyuan3(suffix: str = ":opensource") -> CallFormat:
    """Format of Hunyuan 3, whose markers end with a suffix that each checkpoint chooses."""
    return CallFormat(
        "hunyuan3",
        f"<tool_call{suffix}>NAME<tool_sep{suffix}>\nARGUMENTS</tool_call{suffix}>\n",
        Parameters(f"<arg_key{suffix}>KEY</arg_key{suffix}>\n<arg_value{suffix}>VALUE</arg_value{suffix}>\n"),
        start=f"<tool_calls{suffix}>",
        end=f"</tool_calls{suffix}>",
        inside=("\n", ""),
        heads=(f"<tool_call{suffix}>",),
        signs=(("<tool_sep", "<arg_key"),),
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


# In the order in which their signs are looked for, the most specific first.
_ROWS = (
    CallFormat(
        "harmony",
        "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>",
        also=("NAME<|message|>ARGUMENTS",),
        signs=(("<|channel|>", "<|message|>", "<|start|>"),),
        channels=Channels(
            opens=("<|channel|>", "<|start|>"),
            closes="<|message|>",
            ends=("<|end|>", "<|return|>", "<|call|>"),
            thinks="analysis",
            calls=r"to=(?!assistant\b|user\b)(?:functions\.)?([^\s<|]+)",
            words=r"(?:\s|assistant\b|analysis\b|commentary\b|final\b|code\b|json\b|to=\S+|<\|\w+\|>)*",
            begins=("to=functions.",),
            thought="<|channel|>analysis<|message|>",
            content="<|channel|>final<|message|>",
            preamble="<|channel|>commentary<|message|>",
            following="<|end|><|start|>assistant",
        ),
    ),
    replace(
        _invoke("muse", "atem:function_calls", "atem:", thought=False),
        signs=(("atem:function_calls",),),
        parsers=("muse_spark", "atem"),
        channels=Channels(
            opens=("<|start|>",),
            closes="<|message|>",
            ends=("<|eom|>", "<|eot|>"),
            thinks=r"to=self",
            calls=r"to=(?!self\b|user\b|commentary\b)(\S+)",
            words=r"(?:\s|assistant\b|to=\S+)*",
            initial=True,
            thought=" to=self<|message|>",
            content=" to=user<|message|>",
            preamble=" to=user<|message|>",
            call=" to=NAME<|message|>",
            following="<|eom|><|start|>assistant",
            named=False,
        ),
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
        signs=(("<|open|>", "<|sep|>"),),
    ),
    CallFormat(
        "kimi_k2",
        "<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
        start="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
        heads=("<|tool_call_begin|>",),
        also=("<|tool_call_begin|>NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",),
    ),
    replace(_DEEPSEEK, signs=(("｜DSML｜", "function_calls"),)),
    replace(
        _DEEPSEEK,
        name="deepseek_v4",
        start="<｜DSML｜tool_calls>",
        end="</｜DSML｜tool_calls>",
        openers=("<｜DSML｜toolcalls>", "<｜DSML｜tool>", "<｜DSML｜function_calls>"),
        closers=("</｜DSML｜function_calls>",),
        signs=(("｜DSML｜",),),
    ),
    CallFormat(
        "deepseek_v31",
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>",
        start="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        heads=("<｜tool▁call▁begin｜>",),
        signs=(("<｜tool▁call▁begin｜>",),),
        unlike=("```json",),
    ),
    CallFormat(
        "deepseek_v3",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>",
        start="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
        between="\n",
        heads=("<｜tool▁call▁begin｜>",),
        also=("function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```",),
        signs=(("<｜tool▁call▁begin｜>",),),
    ),
    CallFormat(
        "minimax_m3",
        f'{_MINIMAX}<invoke name="NAME">ARGUMENTS{_MINIMAX}</invoke>\n',
        Parameters(f"{_MINIMAX}<KEY>VALUE{_MINIMAX}</KEY>", element=_MINIMAX),
        start=f"{_MINIMAX}<tool_call>",
        end=f"{_MINIMAX}</tool_call>",
        inside=("\n", ""),
        heads=(f"{_MINIMAX}<invoke",),
        signs=(("]<]minimax[>[",),),
    ),
    replace(_invoke("minimax_m2", "minimax:tool_call")),
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
        parsers=("function_gemma",),
    ),
    replace(
        _QWEN,
        name="seed_oss",
        arguments=Parameters("<parameter=KEY>VALUE</parameter>\n"),
        start="<seed:tool_call>",
        end="</seed:tool_call>",
        signs=(("seed:tool_call",),),
    ),
    replace(_glm("longcat", prefix="longcat_")),
    hunyuan3(),
    replace(_glm("glm"), signs=(("<arg_key>",),), parsers=("glm47", "laguna")),
    CallFormat(
        "minicpm5",
        '<function name="NAME">ARGUMENTS</function>',
        Parameters('<param name="KEY">VALUE</param>', cdata=True),
        between="\n",
        heads=("<function name=",),
        signs=(('<param name="',),),
    ),
    replace(_QWEN, signs=(("<function=", "<parameter="), ("<function=", "<tool_call>"))),
    CallFormat(
        "functionary_v31",
        "<function=NAME>ARGUMENTS</function>",
        heads=("<function=",),
        closers=("<|eom_id|>",),
        signs=(("<function=",),),
    ),
    CallFormat(
        "functionary_v32",
        "NAME\nARGUMENTS",
        between=">>>",
        signs=((">>>all", "<|start_header_id|>"),),
        channels=Channels(
            opens=(">>>",),
            closes="\n",
            ends=(),
            thinks=r"(?!)",
            calls=r"^(?!all\b)(\S+)",
            headers=r"[\w.-]+\s*",
            words=r"\s*(?:all\b)?\s*",
            initial=True,
            content="all\n",
            preamble="all\n",
            following=">>>",
        ),
    ),
    _listed("nemotron_v2", start="<TOOLCALL>", end="</TOOLCALL>"),
    CallFormat(
        "lfm2",
        "NAME(ARGUMENTS)",
        PythonArguments(),
        start="<|tool_call_start|>",
        end="<|tool_call_end|>",
        inside=_LIST,
        between=", ",
        thought=False,
        signs=(("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: [",)),
        parsers=("pythonic",),
    ),
    CallFormat(
        "apertus", '{"NAME": ARGUMENTS}', start="<|tools_prefix|>", end="<|tools_suffix|>", inside=_LIST, between=", "
    ),
    CallFormat(
        "solar_open",
        "<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>ARGUMENTS<|tool_call:end|>",
        start="<|tool_calls|>",
        end="<|calls|>",
        heads=("<|tool_call:begin|>",),
        signs=(("<|tool_call:begin|>",),),
    ),
    CallFormat(
        "internlm2",
        _OBJECT,
        start="<|action_start|><|plugin|>",
        end="<|action_end|>",
        inside=("\n", ""),
        each=True,
        signs=(("<|plugin|>", "<|action_start|>"),),
    ),
    CallFormat("granite_20b_fc", _OBJECT, start="<function_call>", inside=(" ", ""), between="\n", each=True),
    _listed("granite3", start="<|tool_call|>", openers=("<tool_call>",), unlike=("<|tool|>",)),
    _listed("granite3_text", start="<tool_call>", openers=("<|tool_call|>",), signs=()),
    CallFormat("gigachat31", _OBJECT, start="<|function_call|>", each=True, openers=("function call<|role_sep|>",)),
    CallFormat(
        "gigachat3",
        _OBJECT,
        start="<|message_sep|>\n\nfunction call<|role_sep|>",
        inside=("\n", ""),
        each=True,
        openers=("function call<|role_sep|>", "<|function_call|>"),
        signs=(("function call", "<|role_sep|>"),),
    ),
    CallFormat(
        "command_r7b",
        '    {"tool_call_id": "INDEX", "tool_name": "NAME", "parameters": ARGUMENTS}',
        start="<|START_ACTION|>",
        end="<|END_ACTION|>",
        inside=("[\n", "\n]"),
        between=",\n",
        parsers=("cohere2_moe",),
    ),
    CallFormat(
        "command_r_plus",
        '    {\n        "tool_name": "NAME",\n        "parameters": ARGUMENTS\n    }',
        start="Action:",
        inside=(" ```json\n[\n", "\n]```"),
        closers=("```",),
        between=",\n",
        signs=(("Action:", "```json", "<|CHATBOT_TOKEN|>"),),
        structural=("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    ),
    _listed("firefunction", start="functools", signs=(("functools[", "<|start_header_id|>"),)),
    _listed("phi4_mini", start="functools", signs=(("functools",), ("<|tool|>", "<|/tool|>"))),
    replace(
        _MISTRAL,
        name="mistral_call_id",
        call="NAME[CALL_ID]ID[ARGS]ARGUMENTS",
        also=("NAME[ARGS]ARGUMENTS", _OBJECT),
        signs=(("[TOOL_CALLS]", "[CALL_ID]"),),
    ),
    replace(_MISTRAL, signs=(("[TOOL_CALLS]", "[ARGS]"),)),
    _listed("mistral_array", start="[TOOL_CALLS]", also=("NAME[ARGS]ARGUMENTS",)),
    _listed("apriel", start="<tool_calls>", end="</tool_calls>", signs=(("<tool_calls>", "[BEGIN FINAL RESPONSE]"),)),
    _listed(
        "hunyuan_a13b",
        start="<tool_calls>",
        end="</tool_calls>",
        thought=False,
        signs=(("<tool_calls>", "<|extra_0|>"),),
    ),
    CallFormat("minimax_m1", _OBJECT, start="<tool_calls>", end="</tool_calls>", inside=_BLOCK, between="\n"),
    CallFormat(
        "hermes",
        _OBJECT,
        start="<tool_call>",
        end="</tool_call>",
        inside=_BLOCK,
        between="\n",
        each=True,
        thought=False,
        signs=(("<tool_call>",), ("xml_tools",)),
        parsers=("json_tools",),
    ),
    CallFormat(
        "pythonic",
        "NAME(ARGUMENTS)",
        PythonArguments(),
        inside=_LIST,
        between=", ",
        openers=("<|python_tag|>", "<|python_start|>"),
        closers=("<|python_end|>", "<|eom_id|>"),
        signs=(("[func_name1(",), ("<|header_start|>", "[func_name")),
    ),
    CallFormat(
        "llama3_json",
        '{"name": "NAME", "parameters": ARGUMENTS}',
        between="; ",
        openers=("<|python_tag|>", "<|python_start|>"),
        closers=("<|python_end|>", "<|eom_id|>"),
        signs=(("<|header_start|>", '"parameters"'), ('"parameters"', "<|start_header_id|>")),
    ),
    _listed(
        "xlam",
        openers=("```json", "[TOOL_CALLS]", "<tool_call>"),
        closers=("```", "</tool_call>"),
        signs=(('"name"', '"arguments"', "tool_calls", "[{"),),
    ),
)

FORMATS = {row.name: row for row in _ROWS}
"""Call formats by name."""
PLAIN = FORMATS["hermes"]
"""Format that a model is asked to write whose template shows no tools."""
