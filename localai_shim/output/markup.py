"""What a model writes around its answer: markers of reasoning and of tool calls. Data only; `adapters/` fills it in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

NORMAL = "normal"
REASONING = "reasoning"
TOOL = "tool"
HEADER = "header"
"""States of an answer, by mlx-lm's names; text in any other state belongs to the markup."""

Edges = tuple[tuple[str, str], ...]
"""(marker, next state) pairs."""

Style = Literal["json", "header", "closed", "whole"]
ParseCalls = Callable[[str, Sequence[Mapping[str, object]] | None], object]


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One way of writing tool calls.

    Attributes:
        name: of the parser's module in mlx-lm or mlx-vlm.
        start, end: markers around a call; `end` is empty where the call ends with the turn.
        parse: upstream's parser: (what is between the markers, tools) -> a call or a list of calls, each a dict with
            `name` and `arguments`. Raises what it likes.
        style: how arguments can be read before the call is complete: `json`, an object with the name and the
            arguments; `header`, the name and then the arguments' JSON; `closed`, by closing what is there and parsing
            it; `whole`, not at all.
        header: for `header`: what comes before the arguments; its group `name` is the function's.
        boundary: for `closed`: what ends an argument, after which `suffix` closes the call.
        quote: what stands on both sides of a string, in which a boundary is text.
        openings: what a call can begin with; nothing: anything.
        untyped: upstream's parser, given no tools, gives arguments as the text that was written.
        lenient: upstream's parser finds a call in any text; only functions that were offered are taken for calls.
    """

    name: str
    start: str
    end: str
    parse: ParseCalls
    style: Style = "whole"
    header: re.Pattern[str] | None = None
    boundary: str = ""
    suffix: str = ""
    quote: str = ""
    openings: tuple[str, ...] = ()
    untyped: bool = False
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers that a model uses.

    Attributes:
        think: what opens and closes a block of reasoning.
        tools: how it writes tool calls.
        harmony: it writes gpt-oss's channels (https://cookbook.openai.com/articles/openai-harmony).
        structural: markers that say nothing and are dropped.
        transitions: (state, its edges), on top of the above.
        initial: the state that an answer begins in.
    """

    think: tuple[str, str] | None = None
    tools: ToolFormat | None = None
    harmony: bool = False
    structural: tuple[str, ...] = ()
    transitions: tuple[tuple[str, Edges], ...] = ()
    initial: str = NORMAL

    @property
    def thinks(self) -> bool:
        """The model has a way to write reasoning."""
        routed = any(target == REASONING for _, edges in self.transitions for _, target in edges)
        return self.think is not None or self.harmony or routed

    @property
    def think_end(self) -> str | None:
        """What closes a block of reasoning."""
        if self.harmony:
            return "<|end|>"
        if self.think is not None:
            return self.think[1]
        return next((edges[0][0] for state, edges in self.transitions if state == REASONING and edges), None)

    @property
    def plain(self) -> bool:
        """There is nothing to look for."""
        return not (self.think or self.harmony or self.tools or self.structural or self.transitions)

    def state_after(self, prompt_end: str) -> str:
        """The state in which an answer begins, by the end of its prompt.

        Templates open a block, or open and close it, as the last thing that they write.
        """
        if self.think is not None and prompt_end.rstrip().endswith(self.think[0]):
            return REASONING
        return self.initial

    def closed_by(self, prompt_end: str) -> bool:
        """The prompt ends with a block that is closed already: this answer has no reasoning."""
        return self.think is not None and prompt_end.rstrip().endswith(self.think[1])
