"""Detection of a model's family, by the signs in the tables of call formats and of reasoning.

Signs are searched for in the chat template's source, then in a prompt that it rendered, as some templates put their
markers together. After these come mlx-lm's choice, which a checkpoint's config may contain, and last the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from .description import CallFormat
from .markup import THOUGHTS, Markup, Thought
from .table import FORMATS, PLAIN, hunyuan3

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
