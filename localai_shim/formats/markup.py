"""Markers that a model writes around its answer, of reasoning and of tool calls; and a table of those of reasoning."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from .description import CallFormat, Channels


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
