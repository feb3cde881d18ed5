"""Finding out which family a chat template is of: a table of signs, the most specific first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .description import CallFormat, Channels
from .table import FORMATS


@dataclass(frozen=True, slots=True)
class Sign:
    """Texts of a template by which a family is known.

    Attributes:
        name: of the family.
        all: each of them occurs.
        none: none of these does.
    """

    name: str
    all: tuple[str, ...]
    none: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        """The template may be of this family."""
        return all(sign in text for sign in self.all) and not any(sign in text for sign in self.none)


CALL_SIGNS = (
    Sign("harmony", ("<|channel|>", "<|message|>", "<|start|>")),
    Sign("muse", ("atem:function_calls",)),
    Sign("kimi_k3", ("<|open|>", "<|sep|>")),
    Sign("kimi_k2", ("<|tool_calls_section_begin|>",)),
    Sign("deepseek_v32", ("｜DSML｜", "function_calls")),
    Sign("deepseek_v4", ("｜DSML｜",)),
    Sign("deepseek_v31", ("<｜tool▁call▁begin｜>",), ("```json",)),
    Sign("deepseek_v3", ("<｜tool▁call▁begin｜>",)),
    Sign("minimax_m3", ("]<]minimax[>[",)),
    Sign("minimax_m2", ("<minimax:tool_call>",)),
    Sign("gemma4", ("<|tool_call>",)),
    Sign("functiongemma", ("<start_function_call>",)),
    Sign("seed_oss", ("seed:tool_call",)),
    Sign("longcat", ("<longcat_tool_call>",)),
    Sign("hunyuan3", ("<tool_sep", "<arg_key")),
    Sign("glm", ("<arg_key>",)),
    Sign("minicpm5", ('<param name="',)),
    Sign("qwen3_coder", ("<function=", "<parameter=")),
    Sign("functionary_v31", ("<function=",)),
    Sign("functionary_v32", (">>>all", "<|start_header_id|>")),
    Sign("nemotron_v2", ("<TOOLCALL>",)),
    Sign("lfm2", ("<|tool_call_start|>",)),
    Sign("lfm2", ("<|tool_list_start|>",)),
    Sign("lfm2", ("List of tools: [",)),
    Sign("apertus", ("<|tools_prefix|>",)),
    Sign("solar_open", ("<|tool_call:begin|>",)),
    Sign("internlm2", ("<|plugin|>", "<|action_start|>")),
    Sign("granite_20b_fc", ("<function_call>",)),
    Sign("granite3", ("<|tool_call|>",), ("<|tool|>",)),
    Sign("gigachat31", ("<|function_call|>",)),
    Sign("gigachat3", ("function call", "<|role_sep|>")),
    Sign("command_r7b", ("<|START_ACTION|>",)),
    Sign("command_r_plus", ("Action:", "```json", "<|CHATBOT_TOKEN|>")),
    Sign("phi4_mini", ("functools[", "<|tool|>")),
    Sign("firefunction", ("functools[",)),
    Sign("mistral_call_id", ("[TOOL_CALLS]", "[CALL_ID]")),
    Sign("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    Sign("mistral_array", ("[TOOL_CALLS]",)),
    Sign("apriel", ("<tool_calls>", "[BEGIN FINAL RESPONSE]")),
    Sign("hunyuan_a13b", ("<tool_calls>", "<|extra_0|>")),
    Sign("minimax_m1", ("<tool_calls>",)),
    Sign("hermes", ("<tool_call>",)),
    Sign("pythonic", ("[func_name1(",)),
    Sign("pythonic", ("<|header_start|>", "[func_name")),
    Sign("llama3_json", ("<|header_start|>", '"parameters"')),
    Sign("llama3_json", ('"parameters"', "<|start_header_id|>")),
    Sign("xlam", ('"name"', '"arguments"', "tool_calls", "[{")),
)
"""Signs of call formats, in the order in which they are looked for."""

HARMONY = Channels(
    opens=("<|channel|>", "<|start|>"),
    closes="<|message|>",
    ends=("<|end|>", "<|return|>", "<|call|>"),
    thinks="analysis",
    calls=r"to=(?!assistant\b|user\b)(?:functions\.)?([^\s<|]+)",
    begins=("to=functions.",),
    thought="<|channel|>analysis<|message|>",
    content="<|channel|>final<|message|>",
    following="<|end|><|start|>assistant",
)
MUSE = Channels(
    opens=("<|start|>",),
    closes="<|message|>",
    ends=("<|eom|>", "<|eot|>"),
    thinks=r"to=self",
    calls=r"to=(?!self\b|user\b|commentary\b)(\S+)",
    initial=True,
    thought=" to=self<|message|>",
    content=" to=user<|message|>",
    following="<|eom|><|start|>assistant",
    named=False,
)
FUNCTIONARY = Channels(
    opens=(">>>",),
    closes="\n",
    ends=(),
    thinks=r"(?!)",
    calls=r"^(?!all\b)(\S+)",
    headers=r"[\w.-]+\s*",
    initial=True,
    content="all\n",
)
CHANNELS = {"harmony": HARMONY, "muse": MUSE, "functionary_v32": FUNCTIONARY}
"""Channels of the families that have them."""


@dataclass(frozen=True, slots=True)
class Thought:
    """Markers of a family's reasoning.

    Attributes:
        start, end: around a block.
        openers: other texts that open one.
        opened: ends of prompts after which an answer begins with reasoning.
    """

    start: str
    end: str
    openers: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()


THOUGHTS = (
    Thought("<seed:think>", "</seed:think>"),
    Thought("<mm:think>", "</mm:think>"),
    Thought("<longcat_think>", "</longcat_think>"),
    Thought("<think:opensource>", "</think:opensource>"),
    Thought("[THINK]", "[/THINK]"),
    Thought("<|START_THINKING|>", "<|END_THINKING|>"),
    Thought("<|inner_prefix|>", "<|inner_suffix|>"),
    Thought("<|channel>thought", "<channel|>", openers=("<|channel>",)),
    Thought("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    Thought("<|think|>", "<|end|>"),
    Thought("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
    Thought("<think>", "</think>"),
)
"""Markers of reasoning, in the order in which they are looked for."""

STRUCTURAL = (
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|open|>response<|sep|>",
    "<|close|>response<|sep|>", "<|close|>message<|sep|>", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "<|CHATBOT_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>", "<|content|>", "<|begin|>assistant", "<answer>", "</answer>", "<response>", "</response>",
)  # fmt: skip
"""Markers that say nothing, where a template or a vocabulary has them."""


def call_format(text: str, vocabulary: Collection[str] = ()) -> CallFormat | None:
    """The call format of a template; None where it shows no sign of any.

    Args:
        text: the template, and a prompt rendered with tools, which may have what the template puts together.
        vocabulary: the tokenizer's tokens.
    """
    return next((FORMATS[sign.name] for sign in CALL_SIGNS if sign.fits(text)), None)
