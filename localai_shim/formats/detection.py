"""Finding out which family a model is of: a table of signs of each call format, the most specific first.

Signs are looked for in the chat template's source, then in a prompt that it rendered, as some put their markers
together; then mlx-lm's word counts, which may stand in a checkpoint's config, and at last the vocabulary's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar, cast

from .description import CallFormat, Channels
from .table import FORMATS, PLAIN
from .thoughts import THOUGHTS, Thought

NONE = "none"
"""Instead of a format's name: such markup is text."""


_Row = TypeVar("_Row", CallFormat, Thought)


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
    Sign("qwen3_coder", ("<function=", "<tool_call>")),
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
    Sign("firefunction", ("functools[", "<|start_header_id|>")),
    Sign("phi4_mini", ("functools",)),
    Sign("phi4_mini", ("<|tool|>", "<|/tool|>")),
    Sign("mistral_call_id", ("[TOOL_CALLS]", "[CALL_ID]")),
    Sign("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    Sign("mistral_array", ("[TOOL_CALLS]",)),
    Sign("apriel", ("<tool_calls>", "[BEGIN FINAL RESPONSE]")),
    Sign("hunyuan_a13b", ("<tool_calls>", "<|extra_0|>")),
    Sign("minimax_m1", ("<tool_calls>",)),
    Sign("hermes", ("<tool_call>",)),
    Sign("hermes", ("xml_tools",)),
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
    words=r"(?:\s|assistant\b|analysis\b|commentary\b|final\b|code\b|json\b|to=\S+|<\|\w+\|>)*",
    begins=("to=functions.",),
    thought="<|channel|>analysis<|message|>",
    content="<|channel|>final<|message|>",
    preamble="<|channel|>commentary<|message|>",
    following="<|end|><|start|>assistant",
)
MUSE = Channels(
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
)
FUNCTIONARY = Channels(
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
)
CHANNELS = {"harmony": HARMONY, "muse": MUSE, "functionary_v32": FUNCTIONARY}
"""Channels of the families that have them."""


STRUCTURAL = {"command_r_plus": ("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")}
"""Markers that say nothing, of call formats whose models write no reasoning."""
UPSTREAM: Mapping[str, str] = {
    "json_tools": "hermes",
    "pythonic": "lfm2",
    "function_gemma": "functiongemma",
    "glm47": "glm",
    "laguna": "glm",
    "muse_spark": "muse",
    "atem": "muse",
    "cohere2_moe": "command_r7b",
}
"""Names of mlx-lm and mlx-vlm for a format, where they differ from ours."""


@dataclass(frozen=True)
class Evidence:
    """Signs of the format that a model writes.

    Attributes:
        template: the source of its chat templates; empty for a program.
        tokens: that were added to its vocabulary.
        parser: the tool parser that mlx-lm uses, or that the model's config names.
        think: what mlx-lm takes for the markers of reasoning.
        render: a prompt with a tool; "" where the template refuses that.
    """

    template: str = ""
    tokens: Collection[str] = ()
    parser: str | None = None
    think: tuple[str, str] | None = None
    render: Callable[[], str] = str

    @cached_property
    def prompt(self) -> str:
        """Rendering of a question and a tool by the model's template."""
        return self.render()

    @cached_property
    def vocabulary(self) -> str:
        """The added tokens, one a line."""
        return "\n".join(self.tokens)


@dataclass(frozen=True, slots=True)
class Detected:
    """Formats of a model's calls and reasoning, and why they are known.

    Attributes:
        tools: its call format; None: calls are not read.
        taught: it has learnt that one; otherwise it is asked to write it.
        channels: the messages of its answers.
        thought: how it writes its reasoning, but for channels.
        tools_why, thought_why: by what these were found.
    """

    tools: CallFormat | None
    taught: bool
    channels: Channels | None
    thought: Thought | None
    tools_why: str
    thought_why: str

    @property
    def reasoning(self) -> str:
        """The name of the reasoning format."""
        if self.thought is not None:
            return self.thought.name
        return "channels" if self.channels is not None and self.channels.thought else NONE

    @property
    def structural(self) -> tuple[str, ...]:
        """Markers that say nothing."""
        if self.thought is not None:
            return self.thought.structural
        return STRUCTURAL.get(self.tools.name, ()) if self.tools is not None else ()


def detect(evidence: Evidence, tool_format: str | None = None, reasoning_format: str | None = None) -> Detected:
    """Find out how a model writes calls and reasoning.

    Args:
        tool_format: name of its call format, one of `FORMATS` or `UPSTREAM`, or "none"; None: by the evidence.
        reasoning_format: likewise, that of one of `THOUGHTS` or "none".
    """
    if tool_format is None:
        tools, tools_why = _tools(evidence)
    else:
        tools, tools_why = named_format(tool_format), "as `tool_format` says"
    channels = None if tools is None else CHANNELS.get(tools.name)
    if reasoning_format is not None:
        thought, thought_why = named_thought(reasoning_format), "as `reasoning_format` says"
        if channels is not None:
            channels = replace(channels, thinks=r"(?!)", thought="")
    elif channels is not None:
        thought, thought_why = None, "its messages have headers"
    else:
        thought, thought_why = _thought(evidence)
    taught = tools is not None or tool_format is not None
    if not taught and (evidence.template or evidence.prompt):
        tools = PLAIN
    if tools is not None and tools.name == "hunyuan3":
        tools = _with_suffix(tools, _suffix(evidence))
    if thought is not None and thought.name == "hunyuan3":
        thought = _with_suffix(thought, _suffix(evidence))
    return Detected(tools, taught, channels, thought, tools_why, thought_why)


def _tools(evidence: Evidence) -> tuple[CallFormat | None, str]:
    for field, where in (("template", "chat template"), ("prompt", "prompt with a tool")):
        if (sign := _sign_in(getattr(evidence, field))) is not None:
            return FORMATS[sign.name], f"its {where} has {' and '.join(sign.all)}"
    name = UPSTREAM.get(evidence.parser or "", evidence.parser)
    if name in FORMATS:
        return FORMATS[name], f"mlx-lm, or its config, names the parser {evidence.parser}"
    if "tools" in evidence.template and (sign := _sign_in(evidence.vocabulary)) is not None:
        return FORMATS[sign.name], f"its vocabulary has {' and '.join(sign.all)}"
    return None, "neither its chat template nor its vocabulary has a sign of any: it is asked to write this one"


def _sign_in(text: str) -> Sign | None:
    return next((sign for sign in CALL_SIGNS if sign.fits(text)), None)


def _thought(evidence: Evidence) -> tuple[Thought | None, str]:
    for thought in THOUGHTS:
        for signs in [thought.signs] if thought.signs else [(thought.end,), (thought.start,)]:
            if all(sign in evidence.template for sign in signs):
                return thought, f"its chat template has {' and '.join(signs)}"
    for thought in THOUGHTS:
        tokens = thought.tokens or (() if thought.signs else (thought.start, thought.end))
        if tokens and all(token in evidence.tokens for token in tokens):
            return thought, f"its vocabulary has {' and '.join(tokens)}"
    if not evidence.template:  # a program has no source
        for thought in THOUGHTS:
            if not thought.signs and thought.end in evidence.prompt:
                return thought, f"its prompt with a tool has {thought.end}"
    if evidence.think is not None:
        start, end = evidence.think
        return Thought("think", start, end), f"its tokenizer names {start} and {end}"
    return None, "neither its chat template nor its vocabulary has markers of reasoning"


# -- names -----------------------------------------------------------------------------------------------------------


def named_format(name: str) -> CallFormat | None:
    """The call format of this name; None for "none".

    Raises:
        ValueError: there is none; says which there are.
    """
    return _named("tool_format", FORMATS, name if name in FORMATS else UPSTREAM.get(name, name))


def named_thought(name: str) -> Thought | None:
    """The reasoning format of this name; None for "none".

    Raises:
        ValueError: there is none; says which there are.
    """
    return _named("reasoning_format", {thought.name: thought for thought in reversed(THOUGHTS)}, name)


def _named(option: str, table: Mapping[str, _Row], name: str) -> _Row | None:
    if name == NONE:
        return None
    if name not in table:
        raise ValueError(f"`{option}` must be one of {', '.join(map(repr, [*sorted(table), NONE]))}, not {name!r}")
    return table[name]


# -- Hunyuan 3, whose markers end with a suffix that each checkpoint chooses -----------------------------------------

_SUFFIX = ":opensource"  # in the tables


def _suffix(evidence: Evidence) -> str:
    """The suffix of a model's markers."""
    for text in (evidence.prompt, evidence.vocabulary):
        if found := re.findall(r"</?(?:think|tool_sep|tool_call)((?::[\w.-]+)?)>", text):
            return str(max(found, key=len))
    return _SUFFIX


@lru_cache(maxsize=256)
def _with_suffix(row: _Row, suffix: str) -> _Row:
    """A row of a table whose markers have another suffix."""
    return cast(_Row, _replaced(row, suffix))


def _replaced(value: object, suffix: str) -> object:
    if isinstance(value, str):
        return value.replace(_SUFFIX, suffix)
    if isinstance(value, tuple):
        return tuple(_replaced(item, suffix) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _replaced(getattr(value, field.name), suffix) for field in fields(value)})
    return value
