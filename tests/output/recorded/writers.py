"""Turns as the models of each family write them, after their chat templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.output.recorded import spelling


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
        quotes: markers in a string are told from real ones.
        mentions: calls that stand in the reasoning are only mentioned there.
        closed: a call has an end marker.
    """

    name: str
    block: spelling.Block
    turn: spelling.Turn
    think: tuple[str, str] | None = None
    markers: tuple[str, ...] = ()
    beside: bool = True
    parallel: bool = True
    typed: bool = False
    quotes: bool = True
    mentions: bool = False
    closed: bool = True


THINK = ("<think>", "</think>")
_COHERE_THINK = ("<|START_THINKING|>", "<|END_THINKING|>")
_R1 = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_CODER = "<tool_call>\n<function=NAME>\nPARAMETERS</function>\n</tool_call>"
_GLM = "<tool_call>NAME\nPARAMETERS</tool_call>"
_OPEN = ":opensource>"


def _family(name: str, block: spelling.Block, turn: spelling.Turn | None = None, **more: Any) -> Writer:
    return Writer(name, block, turn or spelling.framed_turn(more.get("think")), **more)


WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        _family(
            "llama3_json",
            lambda calls: "; ".join(spelling.json_objects(arguments="parameters")(calls)),
            markers=("<|python_tag|>",),
            beside=False,
        ),
        _family("pythonic", spelling.python_calls(), beside=False),
        _family("xlam", spelling.json_list("", ""), think=THINK, beside=False),
        _family(
            "deepseek_v3",
            spelling.headed_calls(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>", "\n", _R1
            ),
            think=THINK,
            markers=_R1,
        ),
        _family(
            "deepseek_v31",
            spelling.headed_calls("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>", "", _R1),
            think=THINK,
            markers=_R1,
        ),
        _family(
            "deepseek_v32",
            spelling.dsml("function_calls"),
            think=THINK,
            markers=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        ),
        _family(
            "deepseek_v4",
            spelling.dsml("tool_calls"),
            think=THINK,
            markers=("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        ),
        _family(
            "granite3", spelling.json_list("<|tool_call|>", ""), think=THINK, markers=("<|tool_call|>",), closed=False
        ),
        _family(
            "granite3_text", spelling.json_list("<tool_call>", ""), think=THINK, markers=("<tool_call>",), closed=False
        ),
        _family(
            "granite_20b_fc", spelling.json_each("<function_call> ", ""), markers=("<function_call>",), closed=False
        ),
        _family(
            "hermes",
            spelling.json_each("<tool_call>\n", "\n</tool_call>"),
            think=THINK,
            markers=("<tool_call>", "</tool_call>"),
        ),
        _family("phi4_mini", spelling.json_list("functools", ""), markers=("functools[",), closed=False),
        _family("firefunction", spelling.json_list(" functools", ""), markers=("functools[",), closed=False),
        _family(
            "nemotron_v2",
            spelling.json_list("<TOOLCALL>", "</TOOLCALL>"),
            think=THINK,
            markers=("<TOOLCALL>", "</TOOLCALL>"),
        ),
        _family(
            "qwen3_coder",
            spelling.tagged_calls(_CODER, "<parameter=KEY>\nVALUE\n</parameter>\n"),
            think=THINK,
            markers=("<tool_call>", "</tool_call>"),
            typed=True,
        ),
        _family(
            "seed_oss",
            spelling.tagged_calls(_CODER.replace("tool_call", "seed:tool_call"), "<parameter=KEY>VALUE</parameter>\n"),
            think=("<seed:think>", "</seed:think>"),
            markers=("<seed:tool_call>", "</seed:tool_call>"),
            typed=True,
        ),
        _family(
            "command_r7b",
            spelling.cohere,
            spelling.framed_turn(_COHERE_THINK, ("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ""),
            think=_COHERE_THINK,
            markers=("<|START_ACTION|>", "<|END_ACTION|>"),
        ),
        _family(
            "cohere2_moe",
            spelling.cohere,
            spelling.framed_turn(_COHERE_THINK, ("<|START_TEXT|>", "<|END_TEXT|>"), ""),
            think=_COHERE_THINK,
            markers=("<|START_ACTION|>", "<|END_ACTION|>"),
        ),
        _family(
            "command_r_plus",
            spelling.json_list("Action:\n```json\n", "\n```", spelling.json_objects("tool_name", "parameters")),
            beside=False,
        ),
        _family(
            "functionary_v31",
            spelling.headed_calls("<function=NAME>ARGUMENTS</function>"),
            markers=("<function=", "</function>"),
        ),
        _family(
            "functionary_v32",
            spelling.headed_calls("NAME\nARGUMENTS", ">>>"),
            spelling.functionary_v32,
            markers=(">>>",),
            closed=False,
        ),
        _family(
            "hunyuan_a13b",
            spelling.json_list("<tool_calls>", "</tool_calls>"),
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
            spelling.tagged_calls(
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
            spelling.json_list("<tool_calls>", "</tool_calls>", spelling.json_objects(id="call-0")),
            spelling.framed_turn(("", "\n[BEGIN FINAL RESPONSE]"), gap="\n"),
            think=("", "\n[BEGIN FINAL RESPONSE]"),
            markers=("<tool_calls>", "</tool_calls>", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
        ),
        _family(
            "gigachat3",
            spelling.json_each("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
            spelling.framed_turn(gap=""),
            markers=("<|message_sep|>", "<|role_sep|>"),
            parallel=False,
            closed=False,
        ),
        _family(
            "gigachat31",
            spelling.json_each("<|function_call|>", ""),
            spelling.framed_turn(gap=""),
            markers=("<|function_call|>",),
            parallel=False,
            closed=False,
        ),
        _family(
            "apertus",
            spelling.json_list(
                "<|tools_prefix|>", "<|tools_suffix|>", lambda calls: [spelling.text_of({n: a}) for n, a in calls]
            ),
            spelling.framed_turn(("<|inner_prefix|>", "<|inner_suffix|>"), gap=""),
            think=("<|inner_prefix|>", "<|inner_suffix|>"),
            markers=("<|tools_prefix|>", "<|tools_suffix|>"),
        ),
        _family(
            "internlm2",
            spelling.json_each("<|action_start|><|plugin|>\n", "<|action_end|>"),
            markers=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
            parallel=False,
        ),
        _family(
            "minimax_m1",
            lambda calls: "<tool_calls>\n" + "\n".join(spelling.json_objects()(calls)) + "\n</tool_calls>",
            think=THINK,
            markers=("<tool_calls>", "</tool_calls>"),
        ),
        _family(
            "minimax_m2",
            spelling.tagged_calls(
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
            spelling.minimax_m3,
            think=("<mm:think>", "</mm:think>"),
            markers=(f"{spelling.M3}<tool_call>", f"{spelling.M3}</tool_call>"),
            typed=True,
            quotes=False,
        ),
        _family(
            "solar_open",
            spelling.headed_calls(
                "<|tool_call:begin|>id00INDEX<|tool_call:name|>NAME<|tool_call:args|>ARGUMENTS<|tool_call:end|>",
                "",
                ("<|tool_calls|>", "<|calls|>"),
            ),
            spelling.solar_turn,
            think=("<|think|>", "<|end|>"),
            markers=("<|tool_calls|>", "<|calls|>", "<|tool_call:begin|>", "<|tool_call:end|>", "<|content|>"),
            beside=False,
        ),
        _family(
            "glm",
            spelling.tagged_calls(_GLM, "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"),
            think=THINK,
            markers=("<tool_call>", "</tool_call>"),
            typed=True,
        ),
        _family(
            "minicpm5",
            spelling.minicpm5,
            think=THINK,
            markers=('<function name="', "</function>"),
            typed=True,
        ),
        _family(
            "mistral",
            spelling.headed_calls("[TOOL_CALLS]NAME[ARGS]ARGUMENTS"),
            spelling.framed_turn(("[THINK]", "[/THINK]"), gap=""),
            think=("[THINK]", "[/THINK]"),
            markers=("[TOOL_CALLS]",),
            closed=False,
        ),
        _family(
            "mistral_call_id",
            spelling.headed_calls("[TOOL_CALLS]NAME[CALL_ID]a1B2c3D4INDEX[ARGS]ARGUMENTS"),
            spelling.framed_turn(gap=""),
            markers=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
            closed=False,
        ),
        _family(
            "mistral_array",
            spelling.json_list("[TOOL_CALLS]", "", spelling.json_objects(id="a1B2c3D4e")),
            spelling.framed_turn(gap=""),
            markers=("[TOOL_CALLS]",),
            closed=False,
        ),
        _family(
            "kimi_k2",
            spelling.headed_calls(
                "<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
                "",
                ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            ),
            think=THINK,
            markers=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ),
        _family(
            "kimi_k3",
            spelling.kimi_k3,
            spelling.kimi_k3_turn,
            think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            markers=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
            quotes=False,
        ),
        _family("muse", spelling.muse, spelling.muse_turn, markers=("<|message|>", "<|eom|>", "<|start|>"), typed=True),
        _family(
            "harmony",
            spelling.harmony,
            spelling.harmony_turn,
            markers=("<|channel|>", "<|message|>", "<|call|>", "<|start|>", "<|constrain|>"),
            quotes=False,
        ),
        _family(
            "lfm2",
            spelling.python_calls("<|tool_call_start|>", "<|tool_call_end|>"),
            think=THINK,
            mentions=True,
            markers=("<|tool_call_start|>", "<|tool_call_end|>"),
        ),
        _family(
            "gemma4",
            spelling.marked_calls('<|"|>', ("<|tool_call>", "<tool_call|>")),
            spelling.framed_turn(("<|channel>thought\n", "<channel|>"), gap=""),
            think=("<|channel>thought\n", "<channel|>"),
            markers=("<|tool_call>", "<tool_call|>"),
        ),
        _family(
            "functiongemma",
            spelling.marked_calls("<escape>", ("<start_function_call>", "<end_function_call>"), nests=False),
            markers=("<start_function_call>", "<end_function_call>"),
        ),
        _family(
            "longcat",
            spelling.tagged_calls(
                "<longcat_tool_call>NAME\nPARAMETERS</longcat_tool_call>",
                "<longcat_arg_key>KEY</longcat_arg_key>\n<longcat_arg_value>VALUE</longcat_arg_value>\n",
            ),
            think=("<longcat_think>", "</longcat_think>"),
            markers=("<longcat_tool_call>", "</longcat_tool_call>"),
            typed=True,
        ),
    )
}
