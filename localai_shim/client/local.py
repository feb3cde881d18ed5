"""LocalOpenAI and AsyncLocalOpenAI: the SDK's own clients, whose requests stay in this process.

Both override the one method that every resource goes through, `request`; everything else is the SDK's own code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

import anyio
import openai

from ..engine.sinks import SyncSink, make_async_sink
from ..media import UnreadError
from ..options import LocalOptions, ModelPath
from ..runtime.engines import Runtime, make_runtime
from ..runtime.offload import aside, run, run_async, turns, wait, wait_async
from ..sdk import private as sdk
from ..sdk import stock_clients
from ..sdk.event_stream import AnyResponse, LocalStreamResponse
from ..stats import EngineStats
from ..threads import greenlets
from ..threads.caller_loop import note_caller
from .arguments import (
    AsyncClientArguments,
    ClientArguments,
    check_arguments,
    check_options,
    copy_arguments,
    described,
    stock_arguments,
    with_options_described,
)
from .attaching import attach_state
from .call import Call
from .changes import AsyncModelChanges, ModelChanges
from .streams import answer, answer_async, follow, follow_async, start
from .timeline import Timelines
from .transport import LocalAsyncTransport, LocalTransport

if TYPE_CHECKING:
    from ..endpoints.responses.background import Run
    from ..endpoints.turn import Turn


T = TypeVar("T")


class OfflineClient:
    """Parts of the SDK's clients whose requests never reach a server: no credentials, no websockets, copies that share
    what answers."""

    def __copy__(self) -> Self:
        """The same attributes, with separate resources that belong to the copy."""
        made = self.__class__.__new__(self.__class__)
        resources = {name for cls in type(self).__mro__ for name, value in vars(cls).items() if _is_cached(value)}
        made.__dict__.update({key: value for key, value in self.__dict__.items() if key not in resources})
        return made

    if not TYPE_CHECKING:  # type checkers see the SDK's own signatures

        def copy(self, *, http_client=None, **options):
            """Copy the client as the SDK does; the copy shares the model and whatever is stored."""
            local = http_client if isinstance(http_client, type(self._client)) else self._client
            return super().copy(http_client=local, **copy_arguments(options))

        with_options = copy

        def _validate_headers(self, headers, custom_headers):
            """No credentials are needed."""

        @property
        def user_agent(self):
            """The SDK's own, not this class's name."""
            return sdk.user_agent(self)

        @property
        def websocket_base_url(self):
            """A url that raises when a websocket is to be opened with it."""
            return stock_clients.no_websocket_url()

        @websocket_base_url.setter
        def websocket_base_url(self, url):
            pass


def _is_cached(value: object) -> bool:
    return type(value).__name__ == "cached_property"


class _LocalClient(Timelines, OfflineClient):
    """Parts that both clients have in common."""

    _runtime: Runtime

    def _open(
        self,
        cls: type,
        kind: type[sdk.LocalHttpClient | sdk.LocalAsyncHttpClient],
        model: ModelPath | None,
        given: ClientArguments | AsyncClientArguments,
    ) -> dict[str, Any]:
        """The arguments of the SDK's constructor. A copy comes with the http client of what it copies."""
        check_arguments(cls, given)
        http_client = given.get("http_client")
        if not isinstance(http_client, kind):
            make = _http_client if kind is sdk.LocalHttpClient else _async_http_client
            timeout = given.get("timeout")
            seconds = None if isinstance(timeout, openai.NotGiven) else sdk.read_seconds(timeout)
            http_client = make(make_runtime(model, given, seconds), sdk.timeout_of(http_client), sdk.BASE_URL)
        self._runtime = http_client.runtime
        return stock_arguments(given, http_client)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, for another process or for `copy.deepcopy`."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, because its model runs in this process. Create a client in each "
            "process, for example in the initializer of a pool. `client.copy()` shares the model in this process"
        )

    def stats(self, model: str = "", *, plans: bool = False) -> EngineStats:
        """Return statistics of the engine that serves a model name. The model does not have to be loaded.

        Args:
            model: Model name. Not required with one model.
            plans: Include what the last 64 steps did, to find out why a request was slow.

        Raises:
            ValueError: No such model.
            EngineClosedError: The client is closed.

        Example:
            >>> from localai_shim import LocalOpenAI
            >>> with LocalOpenAI() as client:
            ...     answer = client.responses.create(model="any", input="Hello")
            ...     stats = client.stats()
            >>> stats.generated_tokens > 0
            True
        """
        return self._runtime.engine_of(model).stats(plans=plans)

    if not TYPE_CHECKING:

        def _call(self, cast_to, options, stream, stream_cls):
            """A request on its way, and how the SDK is to process its response."""
            call = Call(self, self._runtime, options)
            how = {"options": options, "stream": stream, "stream_cls": sdk.localise(stream_cls)}
            how["retries_taken"] = call.attempt
            how["cast_to"] = call.cast_to = self._maybe_override_cast_to(cast_to, options)
            return call, how

        def _make_status_error_from_response(self, response):
            made = getattr(response, "local_error", None)
            return super()._make_status_error_from_response(response) if made is None else made

        def _process_response_data(self, *, data, cast_to, response):
            model = getattr(response, "local_model", None)
            if type(model) is cast_to:
                return model
            return super()._process_response_data(data=data, cast_to=cast_to, response=response)


@described(ClientArguments)
class LocalOpenAI(ModelChanges, _LocalClient, sdk.OpenAI):
    """An `openai.OpenAI` client that runs a local model in this process.

    Args:
        **options: Arguments of the SDK's constructor, such as `timeout` or `default_headers`. `api_key` is not
            required. Arguments that select a server, such as `base_url` and `http_client`, have no effect.

    Raises:
        BackendMissingError: MLX has no back end. The message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` does not exist, or `adapter_path` holds no adapters.
        RuntimeError: The program was patched by eventlet, which is not supported (gevent is).
        TypeError: Unknown argument.
        ValueError: Conflicting or out-of-range arguments, or an unusable `store`.

    Example:
        >>> from localai_shim import LocalOpenAI
        >>> with LocalOpenAI() as client:  # or LocalOpenAI("mlx-community/Qwen3-8B-4bit")
        ...     client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'
    """

    def __init__(self, model: ModelPath | None = None, **options: Unpack[ClientArguments]) -> None:
        super().__init__(**self._open(LocalOpenAI, sdk.LocalHttpClient, model, options))

    @staticmethod
    def _respond(call: Call) -> AnyResponse:
        note_caller(waits=True)
        if (imports := call.begin()) is not None:
            wait(imports, call.deadline)
        local = call.local()
        if local is not None:  # which may wait for other processes that use the store
            found = (aside if call.runtime.is_scripted else run)(local, call.deadline)
            events = call.followed(found)
            return call.whole(found) if events is None else follow(call, *events)
        engine = call.engine()
        if not engine.is_ready:
            wait(engine.ready, call.deadline)
        if not greenlets.are_here() and (call.runtime.is_scripted or call.is_light(engine)):
            turn = call.prepare(engine)
        else:  # nothing could have this thread return in time
            turn = run(partial(call.prepare, engine), call.deadline)
        stage = partial(call.stage, engine, turn)
        begun = stage() if turn.background is None else aside(stage)  # it is stored
        if begun is not None:
            return follow(call, begun) if turn.stream else call.whole(begun.queued)
        sink = SyncSink()
        start(turn, engine, sink)
        return answer(call, turn, sink)

    if not TYPE_CHECKING:

        def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from this process. Every resource of the SDK calls this method."""
            if stock_clients.is_wrapped(inherited := super().request):
                local = {"stream": stream, "stream_cls": sdk.localise(stream_cls)}
                return inherited(cast_to, stock_clients.without_retries(options), **local)
            call, how = self._call(cast_to, options, stream, stream_cls)
            try:
                response = self._respond(call)
            except BaseException as error:
                call.fail(error)
            try:
                return self._process_response(response=response, **how)
            except BaseException:
                if isinstance(response, LocalStreamResponse):  # no caller gets it, and the exception holds it
                    response.close()
                raise


@described(AsyncClientArguments)
class AsyncLocalOpenAI(AsyncModelChanges, _LocalClient, sdk.AsyncOpenAI):
    """An `openai.AsyncOpenAI` client that runs a local model in this process.

    Concurrent requests share one batch. Works with asyncio and trio, and in several event loops.

    Args:
        **options: Arguments of the SDK's constructor, such as `timeout` or `default_headers`. `api_key` is not
            required. Arguments that select a server, such as `base_url` and `http_client`, have no effect.

    Raises:
        BackendMissingError: MLX has no back end. The message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` does not exist, or `adapter_path` holds no adapters.
        RuntimeError: The program was patched by eventlet, which is not supported (gevent is).
        TypeError: Unknown argument.
        ValueError: Conflicting or out-of-range arguments, or an unusable `store`.

    Example:
        >>> import asyncio
        >>> from localai_shim import AsyncLocalOpenAI
        >>> async def main():
        ...     async with AsyncLocalOpenAI() as client:
        ...         ask = [client.responses.create(model="any", input=f"What is {i} + 3?") for i in (2, 4)]
        ...         return [answer.output_text for answer in await asyncio.gather(*ask)]
        >>> len(asyncio.run(main()))
        2
    """

    def __init__(self, model: ModelPath | None = None, **options: Unpack[AsyncClientArguments]) -> None:
        super().__init__(**self._open(AsyncLocalOpenAI, sdk.LocalAsyncHttpClient, model, options))

    @staticmethod
    async def _respond(call: Call) -> AnyResponse:
        note_caller(waits=False)
        if (imports := call.begin()) is not None:
            await wait_async(imports, call.deadline)
        local = call.local()
        if local is not None:
            found = await run_async(local, call.deadline)
            events = call.followed(found)
            return call.whole(found) if events is None else follow_async(call, *events)
        engine = call.engine()
        if not engine.is_ready:
            await wait_async(engine.ready, call.deadline)
        sink = make_async_sink()

        def begin(turn: Turn) -> tuple[Turn, Run | None]:
            begun = call.stage(engine, turn)
            if begun is None:
                # Submitted from here: the engine starts while the event loop is still being woken. Should the task be
                # canceled meanwhile, the turn has no reader: it leaves the engine when it is dropped.
                start(turn, engine, sink)
            return turn, begun

        light = call.read_at_once(engine)
        if light is not None and light.background is None:  # which is stored first
            turn, begun = begin(light)
        else:
            turn, begun = await _prepared(call, lambda: begin(call.read(engine)))
        if begun is not None:
            return follow_async(call, begun) if turn.stream else call.whole(begun.queued)
        return await answer_async(call, turn, sink, waited=light is None)

    if not TYPE_CHECKING:

        async def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from this process. Every resource of the SDK calls this method."""
            if stock_clients.is_wrapped(inherited := super().request):
                local = {"stream": stream, "stream_cls": sdk.localise(stream_cls)}
                return await inherited(cast_to, stock_clients.without_retries(options), **local)
            call, how = self._call(cast_to, options, stream, stream_cls)
            try:
                response = await self._respond(call)
            except BaseException as error:
                call.fail(error)
            try:
                return await self._process_response(response=response, **how)
            except BaseException:
                if isinstance(response, LocalStreamResponse):  # no caller gets it, and the exception holds it
                    await response.aclose()
                raise


async def _prepared(call: Call, prepare: Callable[[], T]) -> T:
    """Prepare a request on another thread, with the files and URLs that it names read before."""
    while True:
        left = call.deadline.left()
        with anyio.fail_after(math.inf if left is None else left):
            try:
                return await turns().run(prepare)
            except UnreadError:
                pass
        await wait_async(call.read_contents(), call.deadline)


# -- for clients that other code builds -----------------------------------------------------------------------------


@with_options_described
def http_client(
    model: ModelPath | None = None, *, timeout: sdk.Timeout = openai.DEFAULT_TIMEOUT, **options: Unpack[LocalOptions]
) -> sdk.LocalHttpClient:
    """Create an HTTP client for `openai.OpenAI(http_client=...)` that answers requests with a local model.

    Use it for code that builds its own client; `LocalOpenAI` is faster. Requests are routed by path, at any host, and
    never use the network. Close it to release the model.

    Args:
        timeout: Seconds, or an `httpx.Timeout`, for requests without a timeout (600 by default).

    Raises:
        BackendMissingError: MLX has no back end. The message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` does not exist, or `adapter_path` holds no adapters.
        TypeError: Unknown argument.
        ValueError: Conflicting or out-of-range arguments, or an unusable `store`.

    Example:
        >>> import openai
        >>> from localai_shim import http_client
        >>> with openai.OpenAI(api_key="unused", http_client=http_client()) as client:
        ...     client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'
    """
    check_options("http_client", options)
    return _http_client(make_runtime(model, options, sdk.read_seconds(timeout)), timeout)


@with_options_described
def async_http_client(
    model: ModelPath | None = None, *, timeout: sdk.Timeout = openai.DEFAULT_TIMEOUT, **options: Unpack[LocalOptions]
) -> sdk.LocalAsyncHttpClient:
    """Create an HTTP client for `openai.AsyncOpenAI(http_client=...)` that answers requests with a local model.

    Use it for code that builds its own client; `AsyncLocalOpenAI` is faster. Requests are routed by path, at any host,
    and never use the network. Close it to release the model.

    Args:
        timeout: Seconds, or an `httpx.Timeout`, for requests without a timeout (600 by default).

    Raises:
        BackendMissingError: MLX has no back end. The message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` does not exist, or `adapter_path` holds no adapters.
        TypeError: Unknown argument.
        ValueError: Conflicting or out-of-range arguments, or an unusable `store`.

    Example:
        >>> import asyncio, openai
        >>> from localai_shim import async_http_client
        >>> async def main():
        ...     async with openai.AsyncOpenAI(api_key="unused", http_client=async_http_client()) as client:
        ...         answer = await client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0)
        ...         return answer.output_text
        >>> asyncio.run(main())
        '2 + 3 = 5.'
    """
    check_options("async_http_client", options)
    return _async_http_client(make_runtime(model, options, sdk.read_seconds(timeout)), timeout)


def _http_client(runtime: Runtime, timeout: sdk.Timeout, base_url: str | None = None) -> sdk.LocalHttpClient:
    attach_state(runtime)
    transport = LocalTransport(runtime, LocalOpenAI._respond, base_url)
    return sdk.LocalHttpClient(runtime, transport, timeout)


def _async_http_client(runtime: Runtime, timeout: sdk.Timeout, base_url: str | None = None) -> sdk.LocalAsyncHttpClient:
    attach_state(runtime)
    transport = LocalAsyncTransport(runtime, AsyncLocalOpenAI._respond, base_url)
    return sdk.LocalAsyncHttpClient(runtime, transport, timeout)
