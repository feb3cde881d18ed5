"""Servers of a client: objects with `list_tools` and `call_tool`, and URLs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Protocol, cast

from ....errors import BadRequest, listed
from ....prompt.messages import parsed_arguments
from ....threads import caller_loop
from ....threads.deadline import check
from ....threads.system import Lock
from ....types import Json, log
from ..kind import BadResultError, Outcome
from . import results
from .connections import Connections
from .entry import TYPE, McpTool, ServerEntry
from .running import run_here

_METHODS = ("list_tools", "call_tool")


class Server(Protocol):
    """A server as requests use it. Both methods wait, and raise what goes wrong."""

    def list_tools(self) -> list[Json]:
        """All tools, in the form that items have."""

    def call_tool(self, name: str, arguments: Json) -> object:
        """Result of a call."""


class Servers:
    """The servers of a client, by their labels.

    Args:
        given: objects and URLs.
        remote: requests may name the URLs of others.
    """

    def __init__(self, given: Mapping[str, object], *, remote: bool) -> None:
        self.given, self.remote = given, remote
        self._connections: list[Connections] = []  # one, once a URL is used
        self._lock = Lock()
        self._loops: tuple[caller_loop.Loop | None, ...] = (caller_loop.running(),)
        self._waits = False

    def of_request(self, *, waits: bool = True) -> Servers:
        """The servers for the request that is made in this context. Other threads may use them.

        Args:
            waits: the caller waits for the answer.
        """
        caller = caller_loop.caller()
        if caller is None:
            return self
        made = Servers(self.given, remote=self.remote)
        made._connections, made._lock = self._connections, self._lock
        made._loops, made._waits = (caller.loop, *self._loops), waits and caller.waits
        return made

    def __call__(self, entry: ServerEntry) -> Server:
        """The server of an entry that was checked."""
        found = self.given.get(entry.label)
        if found is None or isinstance(found, str):
            from .remote import UrlServer

            url = found or entry.url
            assert url is not None
            return UrlServer(self._connected(), url, entry.secrets, public=found is None)
        return _ObjectServer(cast("_Methods", found), self._find_loop())

    def _connected(self) -> Connections:
        """Connections of the client, which its requests share."""
        from .remote import connect

        with self._lock:
            if not self._connections:
                self._connections.append(Connections(connect))
            return self._connections[0]

    def close(self) -> None:
        """Close the connections to servers behind URLs."""
        for each in self._connections:
            each.close()

    def _find_loop(self) -> caller_loop.Loop | None:
        """The event loop that async servers belong to: the request's, or the one that made the client; None: neither
        runs any more.
        """
        if self._waits:
            return _Waiting()
        return next((loop for loop in self._loops if loop is not None and caller_loop.is_usable(loop)), None)


class _Waiting:
    """An event loop on which nothing can run, as its thread waits for the answer."""


class _Methods(Protocol):
    """Methods of the program's object, which may be async."""

    list_tools: Callable[..., object]
    call_tool: Callable[..., object]


class _ObjectServer:
    """A server that is an object of the program."""

    def __init__(self, server: _Methods, loop: caller_loop.Loop | None) -> None:
        self._server, self._loop = server, loop

    def list_tools(self) -> list[Json]:
        async def list_tools(**arguments: object) -> object:
            return self._ask("list_tools", **arguments)

        return _driven(results.all_tools(list_tools, self._server.list_tools))

    def call_tool(self, name: str, arguments: Json) -> object:
        return self._ask("call_tool", name, arguments)

    def _ask(self, method: str, *arguments: object, **options: object) -> object:
        call = partial(getattr(self._server, method), *arguments, **options)
        if inspect.iscoroutinefunction(getattr(self._server, method)):
            return self._wait_for(call)
        returned = call()
        return self._wait_for(lambda: returned) if inspect.isawaitable(returned) else returned

    def _wait_for(self, call: Callable[[], Awaitable[object]]) -> object:
        if isinstance(self._loop, _Waiting):
            raise BadResultError(
                "it is async, and its event loop waits for this answer: use AsyncLocalOpenAI, or call the client in "
                "asyncio.to_thread"
            )
        if self._loop is not None:
            return caller_loop.run_on(self._loop, call)
        return run_here(call)


def _driven(coroutine: Coroutine[object, object, list[Json]]) -> list[Json]:
    """Result of a coroutine that waits for no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("list[Json]", done.value)
    raise AssertionError("it waits")


# -- checks ---------------------------------------------------------------------------------------------------------


def read_servers(given: object, *, remote: bool) -> Servers:
    """A client's servers, by their labels.

    Raises:
        ValueError: something is no server.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"`hosted_tools`: 'mcp' must be a mapping of server labels to servers, not {given!r}")
    for label, server in given.items():
        if isinstance(server, str):
            if not server.startswith(("http://", "https://")):
                raise ValueError(f"`hosted_tools`: the URL of the MCP server {label!r} must be http:// or https://")
        elif not all(callable(getattr(server, name, None)) for name in _METHODS):
            raise ValueError(
                f"`hosted_tools`: the MCP server {label!r} must be a URL, or an object with the methods "
                f"{listed(_METHODS)}, not {server!r}"
            )
    return Servers(dict(given), remote=remote)


def find_servers(hooks: Mapping[str, object]) -> Servers:
    """The servers among a client's hooks; it may have none."""
    found = hooks.get(TYPE)
    return found if isinstance(found, Servers) else Servers({}, remote=False)


def check_servers(entries: Iterable[ServerEntry], hooks: Mapping[str, object], *, special: bool) -> None:
    """Refuse entries whose servers the client does not have.

    Args:
        hooks: the client's.
        special: texts of the request may spell special tokens.

    Raises:
        BadRequest: with the path of the entry, and what to pass.
    """
    known = find_servers(hooks)
    for entry in entries:
        if special:
            raise BadRequest.invalid(
                "allow_special_tokens",
                "'allow_special_tokens' cannot be combined with tools of type 'mcp': their results could spell special "
                "tokens. Leave it out.",
            )
        found = known.given.get(entry.label)
        if found is not None and not isinstance(found, str):
            continue
        if found is None and entry.url is None:
            raise BadRequest.unsupported_value(
                f"{entry.path}.server_label",
                f"This client has no MCP server '{entry.label}': pass `hosted_tools={{'mcp': {{'{entry.label}': "
                "server}}` to LocalOpenAI. See docs/mcp.md.",
            )
        if found is None and not known.remote:
            raise BadRequest.unsupported_value(
                f"{entry.path}.server_url",
                "URLs are used only if the client has allow_remote_images=True, which allows all public URLs of "
                f"requests. Or name this server: pass `hosted_tools={{'mcp': {{'{entry.label}': url}}}}` to "
                "LocalOpenAI. See docs/mcp.md.",
            )
        from .remote import check_package

        check_package(entry.path)


# -- use ------------------------------------------------------------------------------------------------------------


def list_tools(servers: Servers, entry: ServerEntry) -> tuple[list[Json], str | None]:
    """Tools of a server that a request may use, in the form that items have, and the error if there is one."""
    try:
        found = servers(entry).list_tools()
        check()
        return [each for each in found if entry.allowed.matches(each)], None
    except (Exception, asyncio.CancelledError) as error:
        check()
        message = _clean(results.error_of(error), entry)["message"]
        log.warning("the MCP server '%s' could not list its tools: %s", entry.label, message)
        return [], str(message)


def call_tool(servers: Servers, tool: McpTool, arguments: str | None) -> Outcome:
    """Outcome of a call.

    Args:
        arguments: as the model wrote them; None: they cannot be read.
    """
    read = None if arguments is None else parsed_arguments(arguments or "{}")
    if not isinstance(read, dict):
        return _refused("the arguments are not a JSON object")
    try:
        outcome = results.read_result(servers(tool.server).call_tool(tool.own_name, read))
    except (Exception, asyncio.CancelledError) as error:
        check()
        found = _clean(results.error_of(error), tool.server)
        log.warning("the tool '%s' of the MCP server '%s' failed: %s", tool.own_name, tool.server.label, found)
        return results.failure(found)
    check()
    return outcome


def unknown_tool(tool: McpTool) -> Outcome:
    """Outcome of a call of a tool that the server does not have, or that the request does not allow."""
    return _refused(f"there is no tool '{tool.own_name}'")


def too_long(tool: McpTool) -> Outcome:
    """Outcome of a call whose result does not fit the model's context."""
    why = f"Error: the result of {tool.own_name} is too long for the context. Ask for less."
    return results.failure({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": why}]})


def _refused(why: str) -> Outcome:
    return results.failure({"type": "mcp_protocol_error", "code": results.INVALID_PARAMS, "message": why})


def _clean(error: Json, entry: ServerEntry) -> Json:
    """An error without the secrets of its entry, which messages of HTTP clients may quote."""
    message = str(error.get("message"))
    for secret in (entry.url, *entry.secrets.values(), entry.secrets.get("Authorization", "").removeprefix("Bearer ")):
        if secret:
            message = message.replace(secret, "<redacted>")
    return {**error, "message": message} if "message" in error else error
