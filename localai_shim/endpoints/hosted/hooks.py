"""The caller's functions that serve hosted tools: checking them, and calling them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from ...errors import BadRequest, listed
from ...threads.deadline import check
from ...types import log
from .kind import BadResultError, CalledTool, HostedTool, Options, Outcome
from .running import LOOK_SECONDS, Show
from .table import BY_NAME

if TYPE_CHECKING:
    from ..served import ServedModel

T = TypeVar("T")
Call = Callable[..., object]
"""The function or method of a hook."""


@runtime_checkable
class BuiltIn(Protocol):
    """A hook that comes with the client."""

    def check(self, options: Options, path: str) -> None:
        """Refuse options of a tool at a path of the request. Raises RequestError."""

    def for_model(self, reader: ServedModel) -> Call:
        """The hook for a model that reads its results."""


def hooks_for(model: ServedModel) -> dict[str, Call]:
    """The client's hooks, as a model needs them."""
    return {name: hook.for_model(model) if isinstance(hook, BuiltIn) else hook for name, hook in model.hooks.items()}


def read_hooks(hooks: Mapping[str, object] | None) -> dict[str, Call]:
    """A client's `hosted_tools` without its MCP servers: functions, and the methods of objects that their kinds name.

    Raises:
        ValueError: there is no such kind, or a hook cannot be called.
    """
    if hooks is not None and not isinstance(hooks, Mapping):
        raise ValueError(f"`hosted_tools` must be a mapping of names to functions, not {hooks!r}")
    return {name: _read_hook(name, hook) for name, hook in (hooks or {}).items()}


def _read_hook(name: str, hook: object) -> Call:
    if name not in BY_NAME:
        raise ValueError(f"`hosted_tools` has no kind {name!r}: pass functions for {listed((*BY_NAME, 'mcp'))}")
    method = BY_NAME[name].method
    found: object = getattr(hook, method, None)
    if isinstance(hook, type) and found is not None:
        raise ValueError(f"`hosted_tools`: {name!r} must be an object of {hook!r}, not the class: create one")
    if callable(found):
        return found
    if not callable(hook):
        raise ValueError(
            f"`hosted_tools`: {name!r} must be a function, or an object with a method '{method}', not {hook!r}"
        )
    return hook


def check_hooks(tools: Iterable[CalledTool], hooks: Mapping[str, Call], *, special: bool) -> None:
    """Refuse hosted tools of a request that the client's hooks cannot serve.

    Args:
        special: texts of the request may spell special tokens.

    Raises:
        BadRequest: there is no hook, or it takes an option not that the request has.
    """
    for tool in tools:
        if not isinstance(tool, HostedTool):
            continue
        name, is_entry = tool.name, tool.path.endswith("]")
        what = f"Tools of type '{tool.type}'" if is_entry else f"Searches with '{tool.path}'"
        if special:
            raise BadRequest.invalid(
                "allow_special_tokens",
                f"'allow_special_tokens' cannot be combined with tools of type '{tool.type}': their results could "
                "spell special tokens. Leave it out.",
            )
        if name not in hooks:
            raise BadRequest.unsupported_value(
                f"{tool.path}.type" if is_entry else tool.path,
                f"{what} are hosted by OpenAI and are not available locally, unless the client "
                f"has a function that does their work: pass `hosted_tools={{'{name}': function}}` to LocalOpenAI. "
                "See docs/hosted-tools.md.",
            )
        hook = hooks[name]
        if isinstance(hook, BuiltIn):
            hook.check(tool.options, tool.path)
            continue
        refused = [option for option in tool.options if option not in _accepted(tool, hooks[name])]
        if refused:
            raise BadRequest.unsupported_value(
                f"{tool.path}.{tool.hosted.path_of(refused[0])}",
                f"The function that `hosted_tools` has for '{name}' does not take '{refused[0]}'. Add an argument of "
                "this name, or **options, to it.",
            )


def _accepted(tool: HostedTool, hook: Call) -> set[str]:
    """Options that a hook takes, or does without."""
    takes = _parameters(hook)
    return {
        name for name in tool.options if takes is None or name in takes or name in (*tool.hosted.hints, "container")
    }


def _parameters(hook: Call) -> set[str] | None:
    """Names of the arguments that a hook takes; None: any, or they are unknown."""
    try:
        found = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in found):
        return None
    return {parameter.name for parameter in found if parameter.kind is not parameter.POSITIONAL_ONLY}


def run(
    tool: HostedTool, hook: Call, argument: str | None, options: Options, show: Show = lambda fields: None
) -> Outcome:
    """Call a hook for a call of the model. May wait.

    Args:
        argument: of the call; None: the model has written none that can be read.
        options: of the response.
        show: takes unfinished results as they come, if the hook returns an iterator of them and its kind streams.

    Returns:
        Its outcome. A hook that raises has one, too, which tells the model what happened.

    Raises:
        Overdue: the caller of the request has left. An async hook was canceled.
    """
    kind, takes = tool.hosted, _parameters(hook)
    if argument is None:
        return Outcome(f"Error: the argument '{kind.argument}' is missing.", failed=True)
    given = {name: value for name, value in options.items() if takes is None or name in takes or name == "container"}

    def call() -> Outcome:
        container = [given.pop("container")] if "container" in given else []
        returned = hook(argument, *container, **given)
        results = _Results(tool, options, show)
        if kind.streams and isinstance(returned, AsyncIterator):
            return _driven(results.take_async(returned))
        if inspect.isawaitable(returned):
            returned = _driven(returned)
        if kind.streams and isinstance(returned, Iterator):
            return results.take(returned)
        return kind.read(returned, options)

    return _guarded(tool, call)


class _Results:
    """Results of a hook that returned an iterator: the last one is its result, and others are unfinished."""

    def __init__(self, tool: HostedTool, options: Options, show: Show) -> None:
        self._tool, self._options, self._show = tool, options, show
        self._last: list[object] = []
        """The last result so far, or nothing."""

    def take(self, results: Iterator[object]) -> Outcome:
        """Outcome of all results. Raises BadResultError if there are none, or one cannot be read."""
        try:
            for result in results:
                self._add(result)
        finally:
            if inspect.isgenerator(results):  # which the error would keep, and what it holds
                results.close()
        return self._outcome()

    async def take_async(self, results: AsyncIterator[object]) -> Outcome:
        """Outcome of all results of an async iterator. Raises as `take` does."""
        async for result in results:
            self._add(result)
        return self._outcome()

    def _add(self, result: object) -> None:
        check()
        before, self._last = self._last, [result]
        if before:
            self._show(self._tool.hosted.partial(before[0], self._options))

    def _outcome(self) -> Outcome:
        if not self._last:
            raise BadResultError(f"the iterator of '{self._tool.name}' is empty")
        return self._tool.hosted.read(self._last[0], self._options)


def _guarded(tool: HostedTool, call: Callable[[], Outcome]) -> Outcome:
    """Outcome of a hook's call, also of one that failed."""
    try:
        made = call()
    except BadResultError as error:
        log.warning("the function that `hosted_tools` has for '%s': %s", tool.name, error)
        made = Outcome(f"Error: {tool.name} returned no result that can be read.", failed=True)
    except (Exception, asyncio.CancelledError) as error:
        log.warning("the function that `hosted_tools` has for '%s' raised", tool.name, exc_info=True)
        made = Outcome(_told(error), failed=True)
    check()
    return made


def too_long(tool: HostedTool) -> Outcome:
    """Outcome of a call whose result does not fit the model's context."""
    log.warning("the function that `hosted_tools` has for '%s' returned more text than fits the context", tool.name)
    return Outcome(f"Error: the result of {tool.name} is too long for the context. Ask for less.", failed=True)


def _told(error: BaseException) -> str:
    """An exception as the model reads it."""
    return f"Error: {type(error).__name__}: {error}".encode(errors="replace").decode()


def _driven(returned: Awaitable[T]) -> T:
    """Result of an async hook, in an event loop of this thread."""
    return asyncio.run(_awaited(returned))


async def _awaited(returned: Awaitable[T]) -> T:
    """Result of an async hook, which is canceled when the caller of its request leaves."""
    task = asyncio.ensure_future(returned)
    while not task.done():
        check()
        await asyncio.wait([task], timeout=LOOK_SECONDS)
    return task.result()
