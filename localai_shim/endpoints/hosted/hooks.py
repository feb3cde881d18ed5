"""The caller's functions that serve hosted tools: checking them, and calling them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ...errors import BadRequest, listed
from ...threads.deadline import check
from ...types import log
from .kind import BadResultError, CalledTool, HostedTool, Options, Outcome
from .table import BY_NAME

Hook = Callable[..., Any]
LOOK_SECONDS = 0.05  # after which an async hook is canceled whose caller has left


def read_hooks(hooks: Mapping[str, object] | None) -> dict[str, Hook]:
    """A client's `hosted_tools`, without its MCP servers.

    Raises:
        ValueError: there is no such kind, or a hook cannot be called.
    """
    if hooks is not None and not isinstance(hooks, Mapping):
        raise ValueError(f"`hosted_tools` must be a mapping of names to functions, not {hooks!r}")
    made: dict[str, Hook] = {}
    for name, hook in (hooks or {}).items():
        if name not in BY_NAME:
            raise ValueError(f"`hosted_tools` has no kind {name!r}: pass functions for {listed((*BY_NAME, 'mcp'))}")
        if not callable(hook):
            raise ValueError(f"`hosted_tools`: {name!r} must be a function, not {hook!r}")
        made[name] = hook
    return made


def check_hooks(tools: Iterable[CalledTool], hooks: Mapping[str, Hook], *, special: bool) -> None:
    """Refuse hosted tools of a request that the client's hooks cannot serve.

    Args:
        special: texts of the request may spell special tokens.

    Raises:
        BadRequest: there is no hook, or it takes an option not that the request has.
    """
    for tool in tools:
        if not isinstance(tool, HostedTool):
            continue
        name = tool.name
        if special:
            raise BadRequest.invalid(
                "allow_special_tokens",
                f"'allow_special_tokens' cannot be combined with tools of type '{tool.type}': their results could "
                "spell special tokens. Leave it out.",
            )
        if name not in hooks:
            raise BadRequest.unsupported_value(
                f"{tool.path}.type",
                f"Tools of type '{tool.type}' are hosted by OpenAI and are not available locally, unless the client "
                f"has a function that does their work: pass `hosted_tools={{'{name}': function}}` to LocalOpenAI. "
                "See docs/hosted-tools.md.",
            )
        refused = [option for option in tool.options if option not in _accepted(tool, hooks[name])]
        if refused:
            raise BadRequest.unsupported_value(
                f"{tool.path}.{tool.hosted.path_of(refused[0])}",
                f"The function that `hosted_tools` has for '{name}' does not take '{refused[0]}'. Add an argument of "
                "this name, or **options, to it.",
            )


def _accepted(tool: HostedTool, hook: Hook) -> set[str]:
    """Options that a hook takes, or does without."""
    takes = _parameters(hook)
    return {
        name for name in tool.options if takes is None or name in takes or name in (*tool.hosted.hints, "container")
    }


def _parameters(hook: Hook) -> set[str] | None:
    """Names of the arguments that a hook takes; None: any, or they are unknown."""
    try:
        found = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in found):
        return None
    return {parameter.name for parameter in found if parameter.kind is not parameter.POSITIONAL_ONLY}


def run(tool: HostedTool, hook: Hook, argument: str | None, options: Options) -> Outcome:
    """Call a hook for a call of the model. May wait.

    Args:
        argument: of the call; None: the model has written none that can be read.
        options: of the response.

    Returns:
        Its outcome. A hook that raises has one, too, which tells the model what happened.

    Raises:
        Overdue: the caller of the request has left. An async hook was canceled.
    """
    kind, takes = tool.hosted, _parameters(hook)
    if argument is None:
        return Outcome(f"Error: the argument '{kind.argument}' is missing.", failed=True)
    given = {name: value for name, value in options.items() if takes is None or name in takes or name == "container"}
    try:
        container = [given.pop("container")] if "container" in given else []
        returned = hook(argument, *container, **given)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        outcome = kind.outcome(returned)
    except BadResultError as error:
        log.warning("the function that `hosted_tools` has for '%s': %s", tool.name, error)
        outcome = Outcome(f"Error: {tool.name} returned no result that can be read.", failed=True)
    except (Exception, asyncio.CancelledError) as error:
        log.warning("the function that `hosted_tools` has for '%s' raised", tool.name, exc_info=True)
        outcome = Outcome(_told(error), failed=True)
    check()
    return outcome


def _told(error: BaseException) -> str:
    """An exception as the model reads it."""
    return f"Error: {type(error).__name__}: {error}".encode(errors="replace").decode()


async def _awaited(returned: Awaitable[Any]) -> Any:
    """Result of an async hook, which is canceled when the caller of its request leaves."""
    task = asyncio.ensure_future(returned)
    while not task.done():
        check()
        await asyncio.wait([task], timeout=LOOK_SECONDS)
    return task.result()
