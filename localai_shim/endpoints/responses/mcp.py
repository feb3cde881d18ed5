"""Responses with MCP servers: before the model begins, servers list their tools, and approved calls are made."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from ...types import GenerationRequest, Json
from ..hosted.items import MORE, UNSEEN
from ..hosted.kind import CalledTool, Outcome
from ..hosted.mcp import items as mcp
from ..hosted.mcp.entry import McpTool, ServerEntry
from ..hosted.mcp.results import media_fields, shown_error
from ..hosted.mcp.servers import Servers, call_tool, list_tools, too_long, unknown_tool
from ..hosted.running import Show
from .assembler import Form, OutputItem
from .hosted import Continuation, HostedAssembler, HostedItem, Hosting

_LIST = Form(mcp.LIST, "", "tools")
_REQUEST = Form(mcp.REQUEST, "", "arguments")
_Works = Sequence[GenerationRequest]


@dataclass(frozen=True, slots=True)
class Opening:
    """Work of a response before its first round.

    Attributes:
        servers: the client's.
        entries: servers of the request.
        known: tools that the conversation has of servers, by label, in the form that items have.
        approved: requests whose calls were approved, and are made now.
        host: makes, of the tools of all servers by label, what hosts them, and the first round behind the output so
            far, of: its items, and whether no calls may be made.
    """

    servers: Servers
    entries: Sequence[ServerEntry]
    known: Mapping[str, Sequence[Json]]
    approved: Sequence[Json]
    host: Callable[[Mapping[str, Sequence[Json]]], tuple[Hosting, Callable[[list[Json], bool], Continuation]]]


class ListItem(OutputItem):
    """An output item for the tools of a server."""

    __slots__ = ("error", "label", "tools")

    def __init__(self, index: int, label: str) -> None:
        super().__init__("function", index, label, _LIST)
        self.label = label
        self.tools: list[Json] = []
        self.error: str | None = None


class McpItem(HostedItem):
    """An output item for a call of a server's tool, or for the request to approve it."""

    __slots__ = ("approved", "is_unknown", "mcp_tool")

    def __init__(self, index: int, tool: McpTool, *, asks: bool, approved: str | None = None) -> None:
        super().__init__(index, tool, _REQUEST if asks else None)
        self.mcp_tool = tool
        self.approved = approved
        """ID of the request that was approved."""
        self.is_unknown = False
        """The server does not have the tool, or the request does not allow it."""

    @property
    def asks(self) -> bool:
        """It is a request."""
        return self.form is _REQUEST


class McpAssembler(HostedAssembler):
    """A response that may call tools of MCP servers. `open` must be called before it begins.

    Beyond OpenAI's fields, items of calls have `more_calls`, as those of other hosted tools, and `images`.
    """

    listed: Callable[[str], tuple[list[Json], str | None]] | None = None
    """Gives the recorded tools of a server by its label, and the error if there is one; None: servers are asked."""
    _servers: Servers
    _listing: ListItem | None = None

    def open(self, opening: Opening, *, streams: bool) -> None:
        """Take the work before the first round.

        Args:
            streams: the events are wanted.
        """
        self._servers, self._streams = opening.servers, streams
        self._steps = self._opened(opening)

    def _opened(self, opening: Opening) -> Generator[None, None, _Works]:
        """Works of the first round. Yields when there are events to show, before it waits."""
        found: dict[str, Sequence[Json]] = dict(opening.known)
        for entry in opening.entries:
            if entry.label not in found:
                self._listing = item = ListItem(len(self._items), entry.label)
                self._items.append(item)
                self._emit("response.output_item.added", item=self._made(item), output_index=item.index)
                self._emit(f"response.{mcp.LIST}.in_progress", **item.at)
                yield
                found_list = list_tools(opening.servers, entry) if self.listed is None else self.listed(entry.label)
                item.tools, item.error = found_list
                found[entry.label] = item.tools
                self._end_list(item)
                yield
        self.hosting, begin = opening.host(found)
        tools = {
            (tool.server.label, tool.own_name): tool
            for tool in self.hosting.tools.values()
            if isinstance(tool, McpTool)
        }
        entries = {entry.label: entry for entry in opening.entries}
        for request in opening.approved:
            tool = tools.get((request["server_label"], request["name"]))
            self._add_approved(request, tool, entries[request["server_label"]])
        if self._asked:
            yield from self._called()
        self._asked = ()
        most = self.hosting.most
        made = begin([self._made(item) for item in self._items], most is not None and self._calls >= most)
        self._begin_round(made)
        return made.works

    def _end_list(self, item: ListItem) -> None:
        self._listing = None
        item.status = "completed" if item.error is None else "failed"
        self._emit(f"response.{mcp.LIST}.{item.status}", **item.at)
        self._emit("response.output_item.done", item=self._made(item), output_index=item.index)

    def _add_approved(self, request: Json, tool: McpTool | None, entry: ServerEntry) -> None:
        """Begin the item of a call that was approved.

        Args:
            tool: that is called; None: the server has none of this name, or the request does not allow it.
        """
        called = tool or entry.tool({"name": request["name"], "input_schema": {}})
        item = McpItem(len(self._items), called, asks=False, approved=request["id"])
        item.is_unknown = tool is None
        self._items.append(item)
        self._calls += 1
        self._asked = (*self._asked, item)
        self._show(item)
        item.argument = called.hosted.read_argument(request["arguments"])
        self._add(item, request["arguments"])
        self._close_argument(item)

    # -- items --------------------------------------------------------------------------------------------------

    def _new_call(self, index: int, tool: CalledTool) -> HostedItem:
        if not isinstance(tool, McpTool):
            return super()._new_call(index, tool)
        return McpItem(index, tool, asks=tool.needs_approval)

    def _call(self, item: HostedItem, show: Show) -> Outcome:
        if not isinstance(item, McpItem):
            return super()._call(item, show)
        if item.is_unknown:
            return unknown_tool(item.mcp_tool)
        return call_tool(self._servers, item.mcp_tool, item.argument)

    def _too_long(self, item: HostedItem) -> Outcome:
        return too_long(item.mcp_tool) if isinstance(item, McpItem) else super()._too_long(item)

    def _is_own(self, item: OutputItem) -> bool:
        """The response ends with the item: a call of one of the caller's own functions, or a request."""
        if isinstance(item, McpItem):
            return item.asks
        return not isinstance(item, ListItem) and super()._is_own(item)

    def _close_argument(self, item: HostedItem) -> None:
        if not (isinstance(item, McpItem) and item.asks):
            super()._close_argument(item)
            return
        if item.argument is None:  # which cannot be approved: it is a call, and fails
            call = McpItem(item.index, item.mcp_tool, asks=False)
            self._items[item.index] = call
            self._asked = tuple(call if each is item else each for each in self._asked)
            self._last_call = call if self._last_call is item else self._last_call
            super()._close_argument(call)
            return
        item.text, item.status, item.outcome, item.is_shown = [item.argument], "completed", Outcome(""), True
        for what in ("added", "done"):
            self._emit(f"response.output_item.{what}", item=self._made(item), output_index=item.index)

    def _give_up(self) -> None:
        if self._listing is not None:
            self._listing.error = "the response ended before the server answered"
            self._end_list(self._listing)
        super()._give_up()

    def _made(self, item: OutputItem, *, empty: bool = False) -> dict[str, object]:
        if isinstance(item, ListItem):
            made: dict[str, object] = {"id": item.id, "type": mcp.LIST, "server_label": item.label, "tools": item.tools}
            return made if item.error is None else {**made, "error": item.error}
        if not isinstance(item, McpItem):
            return super()._made(item, empty=empty)
        tool = item.mcp_tool
        called = {"server_label": tool.server.label, "name": tool.own_name, "arguments": "".join(item.text)}
        if item.asks:
            return {"id": item.id, "type": mcp.REQUEST, **called}
        made = {"id": item.id, "type": mcp.CALL, "status": item.status, **called, "output": None, "error": None}
        if item.outcome is not None:
            failed, outcome = item.outcome.failed, item.outcome
            made |= {"error": shown_error(outcome.found[0])} if failed else {"output": outcome.output}
            if not failed:
                made |= media_fields(outcome.found)
            made |= outcome.item or {}
        if item.unseen:
            made[UNSEEN] = True
        if item.approved is not None:
            made["approval_request_id"] = item.approved
        return {**made, MORE: True} if item.has_next else made
