"""Rounds of responses that call hosted tools: what hosts them, and what each round is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...types import Json
from ..answer.tools import ToolPlan
from ..hosted.hooks import Call
from ..hosted.kind import CalledTool, HostedTool, Options
from ..hosted.mcp.items import approved_calls, has_answers, known_tools
from ..hosted.mcp.servers import find_servers
from ..request_fields import Generation
from .context import Context
from .hosted import Continuation, Hosting
from .mcp import Opening

MakeRound = Callable[[Generation, ToolPlan, list[Json]], Continuation]
"""Makes a round of: its settings, its tools, and the output before it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """All that the rounds of a response have in common.

    Attributes:
        tools: those of the first round.
        context: the items that the response continues.
        hooks: the client's.
        include: of the request.
        most: calls of hosted tools that the response may make; None: any number.
        generation: settings of all rounds together.
        make: makes a round.
        fits: finds out if the context has room for an output, and for an answer behind it, with these tools.
    """

    tools: ToolPlan
    context: Context
    hooks: Mapping[str, Call]
    include: Collection[str]
    most: int | None
    generation: Generation
    make: MakeRound
    fits: Callable[[ToolPlan, list[Json]], bool]

    def hosting(self) -> Hosting:
        """Tools, hooks, and limits with which the response calls hosted tools."""
        tools, items = self.tools.hosted, self.context.items
        options = {name: _options(tool, items) for name, tool in tools.items()}
        return Hosting(tools, self.hooks, options, self.include, self.most, self._continue, self._fits)

    def _fits(self, output: list[Json]) -> bool:
        """See `Hosting.fits`."""
        return self.fits(self.tools, output)

    def _continue(self, output: list[Json], spent: bool, generated: int) -> Continuation | None:
        """The round behind the output so far; see `Hosting.go_on`."""
        limits = self.generation.limits
        if limits.max_tokens is not None:
            left = limits.max_tokens - generated
            if left <= 0:
                return None
            limits = replace(limits, max_tokens=left, min_tokens=min(limits.min_tokens, left))
        assert self.tools.later is not None
        return self.make(replace(self.generation, limits=limits), self.tools.later(spent), output)

    # -- MCP servers --------------------------------------------------------------------------------------------

    def opening(self, *, waits: bool) -> Opening:
        """Work before the first round: servers that list their tools, and calls that were approved.

        Args:
            waits: the caller waits for the response.
        """
        entries, items = self.tools.servers, self.context.items
        known = {entry.label: tools for entry in entries if (tools := known_tools(entry, items)) is not None}
        approved = approved_calls(items, {}, [entry.label for entry in entries])
        return Opening(find_servers(self.hooks).of_request(waits=waits), entries, known, approved, self._open)

    def _open(self, found: Mapping[str, Sequence[Json]]) -> tuple[Hosting, Callable[[list[Json], bool], Continuation]]:
        """Make the hosting of the servers' tools, and the first round; see `Opening.host`."""
        rounds = replace(self, tools=listed(self.tools, found, self.most))
        return rounds.hosting(), rounds._first

    def _first(self, output: list[Json], spent: bool) -> Continuation:
        """The first round. Behind an answer to a request for an approval no further call has to be made."""
        tools = self.tools
        if tools.later is not None and (spent or has_answers(self.context.given)):
            tools = tools.later(spent)
        return self.make(self.generation, tools, output)


def listed(tools: ToolPlan, found: Mapping[str, Sequence[Json]], most: int | None) -> ToolPlan:
    """The plan with the tools of MCP servers, by label."""
    assert tools.with_servers is not None
    made = tools.with_servers(found)
    return made.later(True) if most == 0 and made.later is not None else made


def _options(tool: CalledTool, items: Sequence[Json]) -> Options:
    return tool.hosted.options_in(tool.options, items) if isinstance(tool, HostedTool) else {}
