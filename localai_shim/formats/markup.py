"""Markers that a model writes around its answer, of reasoning and of tool calls. Data only; `models/` fills it in."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from .description import CallFormat, Channels

NORMAL = "normal"
REASONING = "reasoning"
TOOL = "tool"
HEADER = "header"
"""States of an answer; text in a header belongs to the markup."""
PROSE = (NORMAL, REASONING)
"""States whose text is somebody's: hidden tokens are none of it."""


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers that a model uses.

    Attributes:
        think: what opens and closes a block of reasoning.
        tools: how it writes tool calls.
        channels: the messages that its answers are made of, such as gpt-oss's
            (https://cookbook.openai.com/articles/openai-harmony).
        structural: markers that say nothing and are dropped.
        openers: other texts that open a block of reasoning.
        opened: ends of prompts after which an answer begins with reasoning, besides the marker that opens it.
        closed: texts that begin the answer proper, besides the marker that closes a block of reasoning: a prompt that
            ends with one has done with it.
        taught: the model has learnt to write calls in this way; otherwise it is asked to where tools are offered, and
            text that looks like a call is text elsewhere.
    """

    think: tuple[str, str] | None = None
    tools: CallFormat | None = None
    channels: Channels | None = None
    structural: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    taught: bool = True

    @property
    def thinks(self) -> bool:
        """The model has a way to write reasoning."""
        return self.think is not None or (self.channels is not None and bool(self.channels.thought))

    @property
    def think_end(self) -> str | None:
        """Marker that closes a block of reasoning."""
        if self.think is not None:
            return self.think[1]
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
        return not (self.think or self.channels or self.tools or self.structural)

    def state_after(self, prompt_end: str) -> str:
        """The state in which an answer begins, by the end of its prompt.

        Templates open a block, or open and close it, as the last thing that they write. An answer that goes on with a
        message that has a header is in what that says.
        """
        end = prompt_end.rstrip()
        if self.think is not None and end.endswith(tuple(text.rstrip() for text in (self.think[0], *self.opened))):
            return REASONING
        return NORMAL if self.channels is None else _state_in(self.channels, prompt_end)

    def closed_by(self, prompt_end: str) -> bool:
        """The prompt ends with a block that is closed already: this answer has no reasoning."""
        return self.think is not None and prompt_end.rstrip().endswith((self.think[1], *self.closed))


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
