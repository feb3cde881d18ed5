"""Markers that a model writes around its answer, of reasoning and of tool calls: a table, and how they are detected.

Signs of a family are searched for in the chat template's source, then in a prompt that it rendered, as some templates
put their markers together. After these come mlx-lm's choice, which a checkpoint's config may contain, and last the
vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

from .description import CallFormat, Channels
from .table import FORMATS, PLAIN, hunyuan3


@dataclass(frozen=True, slots=True)
class Thought:
    """Format in which a family of models writes its reasoning.

    Attributes:
        name: what users call it.
        start, end: around a block.
        openers: other texts that open one.
        opened: ends of prompts after which an answer begins with reasoning, besides `start`.
        closed: texts that begin the answer proper, besides `end`: none follows where a prompt ends with one.
        structural: what the model writes around its answer, which says nothing.
        signs: what a template of this family has; `start` or `end` where nothing else is needed.
        tokens: by these tokens the family is known, too; by `start` and `end` where there are no signs either.
    """

    name: str
    start: str
    end: str
    openers: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    structural: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()


THOUGHTS = (
    Thought("seed_oss", "<seed:think>", "</seed:think>"),
    Thought("minimax_m3", "<mm:think>", "</mm:think>"),
    Thought("longcat", "<longcat_think>", "</longcat_think>"),
    Thought("hunyuan3", "<think:opensource>", "</think:opensource>", signs=("<think", "<tool_sep", "<arg_key")),
    Thought("mistral", "[THINK]", "[/THINK]"),
    Thought(
        "cohere",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        closed=("<|START_RESPONSE|>", "<|START_TEXT|>"),
        structural=(
            *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
            *("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ),
    ),
    Thought("apertus", "<|inner_prefix|>", "<|inner_suffix|>"),
    Thought("gemma4", "<|channel>thought", "<channel|>", openers=("<|channel>",), tokens=("<|channel>", "<channel|>")),
    Thought(
        "kimi_k3",
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        closed=("<|open|>response<|sep|>",),
        structural=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        signs=("<|open|>", "<|sep|>"),
        tokens=("<|open|>", "<|close|>", "<|sep|>"),
    ),
    Thought(
        "solar_open",
        "<|think|>",
        "<|end|>",
        closed=("<|think|><|end|><|begin|>assistant",),
        structural=("<|begin|>assistant<|content|>", "<|begin|>assistant", "<|content|>"),
        signs=("<|think|>", "<|end|>", "<|content|>"),
        tokens=("<|think|>", "<|end|>", "<|content|>"),
    ),
    Thought(
        "apriel",
        "Here are my reasoning steps:\n",
        "[BEGIN FINAL RESPONSE]",
        opened=("<|assistant|>", "<|begin_assistant|>"),
        structural=("[END FINAL RESPONSE]",),
    ),
    Thought(
        "granite",
        "<think>",
        "</think>",
        structural=("<response>", "</response>"),
        signs=("<think></think>", "<response></response>"),
    ),
    Thought(
        "hunyuan_a13b",
        "<think>",
        "</think>",
        structural=("<answer>", "</answer>"),
        signs=("</think>", "<|extra_0|>"),
    ),
    Thought("think_start", "<|think:start|>", "<|think:end|>"),
    Thought("think", "<think>", "</think>"),
    Thought("think", "<think>", "</think>", signs=("<tool_calls>", "<beginning_of_sentence>")),  # MiniMax-M1
)
"""Markers of reasoning, in the order in which they are looked for."""


NORMAL = "normal"
REASONING = "reasoning"
TOOL = "tool"
HEADER = "header"
"""States of an answer; text in a header belongs to the markup."""
PROSE = (NORMAL, REASONING)
"""States whose text is shown: hidden tokens are not part of it."""


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers that a model uses.

    Attributes:
        thought: how it writes its reasoning, if not in channels.
        tools: how it writes tool calls.
        channels: the messages that its answers are made of, such as gpt-oss's
            (https://cookbook.openai.com/articles/openai-harmony).
        structural: markers that say nothing and are dropped.
        taught: the model has learnt to write calls in this way; otherwise it is asked to where tools are offered, and
            text that looks like a call is text elsewhere.
    """

    thought: Thought | None = None
    tools: CallFormat | None = None
    channels: Channels | None = None
    structural: tuple[str, ...] = ()
    taught: bool = True

    @property
    def thinks(self) -> bool:
        """The model has a way to write reasoning."""
        return self.thought is not None or (self.channels is not None and bool(self.channels.thought))

    @property
    def think_end(self) -> str | None:
        """Marker that closes a block of reasoning."""
        if self.thought is not None:
            return self.thought.end
        return self.channels.ends[0] if self.channels is not None and self.thinks else None

    def of_request(self, *, offered: bool) -> Markup:
        """The markup that an answer may have.

        Args:
            offered: the model was shown tools.
        """
        return self if offered or self.taught else _without_calls(self)

    @property
    def plain(self) -> bool:
        """There is nothing to look for."""
        return not (self.thought or self.channels or self.tools or self.structural)

    def state_after(self, prompt_end: str) -> str:
        """The state in which an answer begins, by the end of its prompt.

        Templates open a block, or open and close it, as the last thing that they write. An answer that continues a
        message with a header is in the state of that header.
        """
        end, thought = prompt_end.rstrip(), self.thought
        if thought is not None and end.endswith(tuple(text.rstrip() for text in (thought.start, *thought.opened))):
            return REASONING
        return NORMAL if self.channels is None else _state_in(self.channels, prompt_end)

    def closed_by(self, prompt_end: str) -> bool:
        """The prompt ends with a block that is closed already: this answer has no reasoning."""
        thought = self.thought
        return thought is not None and prompt_end.rstrip().endswith((thought.end, *thought.closed))


@lru_cache(maxsize=64)
def _without_calls(markup: Markup) -> Markup:
    return replace(markup, tools=None)


def _state_in(channels: Channels, prompt_end: str) -> str:
    """The state in which an answer of messages with headers begins."""
    opener = max(channels.opens, key=prompt_end.rfind, default="")
    _, opened, message = prompt_end.rpartition(opener) if opener else ("", "", "")
    header, closed, body = message.partition(channels.closes)
    if opened and closed and not any(end in body for end in channels.ends):
        return REASONING if re.search(channels.thinks, header) else NORMAL
    return HEADER if channels.initial else NORMAL


# -- detection --------------------------------------------------------------------------------------------------------

NONE = "none"
"""Instead of a format's name: such markup is text."""


_Row = TypeVar("_Row", CallFormat, Thought)


UPSTREAM: Mapping[str, str] = {parser: row.name for row in FORMATS.values() for parser in row.parsers}
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
class Detected(Markup):
    """The markers that a model writes, and why they are known.

    Attributes:
        tools_why, thought_why: by what its formats of calls and of reasoning were found.
    """

    tools_why: str = ""
    thought_why: str = ""

    @property
    def reasoning(self) -> str:
        """The name of the reasoning format."""
        if self.thought is not None:
            return self.thought.name
        return "channels" if self.thinks else NONE


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
    channels = None if tools is None else tools.channels
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
        tools = hunyuan3(_suffix(evidence))
    if thought is not None and thought.name == "hunyuan3":
        suffix = _suffix(evidence)
        thought = replace(thought, start=f"<think{suffix}>", end=f"</think{suffix}>")
    structural = thought.structural if thought is not None else () if tools is None else tools.structural
    return Detected(thought, tools, channels, structural, taught, tools_why, thought_why)


def _tools(evidence: Evidence) -> tuple[CallFormat | None, str]:
    for field, where in (("template", "chat template"), ("prompt", "prompt with a tool")):
        if (found := _sign_in(getattr(evidence, field))) is not None:
            return found[0], f"its {where} has {found[1]}"
    name = UPSTREAM.get(evidence.parser or "", evidence.parser)
    if name in FORMATS:
        return FORMATS[name], f"mlx-lm, or its config, names the parser {evidence.parser}"
    if "tools" in evidence.template and (found := _sign_in(evidence.vocabulary)) is not None:
        return found[0], f"its vocabulary has {found[1]}"
    return None, "neither its chat template nor its vocabulary has a sign of any: it is asked to write this one"


def _sign_in(text: str) -> tuple[CallFormat, str] | None:
    """The first format of which a text has a sign, and the sign."""
    found = ((row, row.sign_in(text)) for row in FORMATS.values())
    return next(((row, " and ".join(signs)) for row, signs in found if signs), None)


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


def _suffix(evidence: Evidence) -> str:
    """The suffix of the markers of a Hunyuan 3 model."""
    for text in (evidence.prompt, evidence.vocabulary):
        if found := re.findall(r"</?(?:think|tool_sep|tool_call)((?::[\w.-]+)?)>", text):
            return str(max(found, key=len))
    return ":opensource"
