"""LocalOpenAI and AsyncLocalOpenAI: the SDK's own clients, whose requests stay in this process.

Both override the one method that every resource goes through, `request`; everything else is the SDK's own code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import anyio
import anyio.to_thread
import openai

from . import sdk
from .call import Call, preparing
from .options import AsyncClientOptions, ClientOptions, check_options, copy_options, stock_options
from .runtime import KEEP_ALIVE, Runtime, Source, check_number, resolve_path, source_options
from .types import EngineLike, EngineStats, ModelLoadError

if TYPE_CHECKING:
    import httpx2 as httpx

ModelPath = str | os.PathLike[str]
ClientT = TypeVar("ClientT", "LocalOpenAI", "AsyncLocalOpenAI")


def _make_runtime(
    model: ModelPath | None,
    models: Mapping[str, ModelPath | None] | None,
    engine: EngineLike | None,
    keep_alive: float,
    store: ModelPath | None,
    options: dict[str, Any],
) -> Runtime:
    from .adapters.backend import require_backend

    if sum(x is not None for x in (model, models, engine)) > 1:
        raise ValueError("pass one of `model`, `models` and `engine`")
    check_number("keep_alive", keep_alive)
    path = None if store is None else os.fspath(store)
    given = [name for name, value in options.items() if value]
    if engine is not None and given:
        raise ValueError(f"`engine` runs already: `{given[0]}` would not be heeded")
    if engine is not None:
        return _with_store(Runtime({}, engine=engine, keep_alive=keep_alive, store_path=path))
    if models is not None and not models:
        raise ValueError("`models` is empty: pass at least one name and path")
    require_backend()
    try:
        paths = {name: resolve_path(path) for name, path in (models or {"": model}).items()}
    except ModelLoadError as error:
        raise FileNotFoundError(str(error)) from None
    sources = {name: Source(path, **options) for name, path in paths.items()}
    runtime = _with_store(Runtime(sources, only=models is not None, keep_alive=keep_alive, store_path=path))
    runtime.start()
    return runtime


def _with_store(runtime: Runtime) -> Runtime:
    """Open the file now, if there is one: better than to fail when the first answer is to be stored."""
    if runtime.store_path is None:
        return runtime
    from .state.errors import StoreError

    try:
        runtime.store()
    except StoreError as error:
        runtime.close()
        raise ValueError(f"`store`: {error}") from error
    return runtime


def _stub_timeout(foreign: Any) -> Any:
    """The timeout of an http client that the caller brought: the SDK takes it over, and so do we."""
    return getattr(foreign, "timeout", 5.0)


_DOC = """An `openai.{base}` that runs a local model in this process.

    Args:
        model: a folder with an MLX or Hugging Face checkpoint, a hub id, or None for the small checkpoint that ships
            with the package. It serves every model name that requests mention.
        models: several models by name, each loaded on first use; other names are not found.
        engine: an engine that already runs, which stays the caller's to close.
        context_length: most tokens of prompt and output together; None reads it from the model's config.
        adapter_path: a folder of LoRA adapters, as mlx-lm trains them, to apply.
        trust_remote_code: run Python code that the model's folder brings.
        max_rows: most rows that decode together (default 64); more wait their turn.
        max_stall: seconds that a new prompt may keep running rows from their next token (default 0.05).
        max_queue: most rows that wait beyond those (default 16,384); more get a `RateLimitError`.
        memory_limit: most bytes for this model's weights, running rows, prefix cache and MLX's free buffers together
            (default: models share 0.9 of a GPU's memory, or MLX's own limit on the CPU back end).
        kv_bits: keep keys and values in 4 or 8 bits; None keeps them as the model makes them.
        kv_group_size: numbers that share a scale then: 32, 64 (default) or 128.
        prefix_cache_bytes: most bytes that finished prompts and turns may hold, for later ones to go on from; 0 keeps
            none (default: a quarter of what the weights leave of a GPU's memory, a tenth of the machine's otherwise).
        cache_dir: a folder in which these survive the process; several processes may share it.
        store: a file (SQLite) in which responses, conversations and stored completions survive the process; several
            clients and processes may share it. None keeps them in memory, the latest 256 MiB (a chain of
            `previous_response_id` whole, as long as its last response is kept).
        keep_alive: seconds for which the model stays loaded after its last client closed (default 60); -1 keeps it
            until the process ends.
        **options: the SDK's own constructor arguments. `timeout`, `default_headers`, `organization`, ... work as
            there; `api_key` is not needed; those that say where requests go (`base_url`, `http_client`, ...) are
            accepted and lead nowhere.

    Raises:
        BackendMissingError: MLX has no back end; the message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` is a path and no such thing is there.
        TypeError: an argument that neither this client nor the SDK has.
        ValueError: arguments that contradict each other, or a `store` that cannot be used.
    """


class LocalOpenAI(openai.OpenAI):
    __doc__ = _DOC.format(base="OpenAI")

    def __init__(
        self,
        model: ModelPath | None = None,
        *,
        models: Mapping[str, ModelPath | None] | None = None,
        engine: EngineLike | None = None,
        context_length: int | None = None,
        adapter_path: ModelPath | None = None,
        trust_remote_code: bool = False,
        max_rows: int | None = None,
        max_stall: float | None = None,
        max_queue: int | None = None,
        memory_limit: int | None = None,
        kv_bits: int | None = None,
        kv_group_size: int | None = None,
        prefix_cache_bytes: int | None = None,
        cache_dir: ModelPath | None = None,
        store: ModelPath | None = None,
        keep_alive: float = KEEP_ALIVE,
        http_client: httpx.Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(LocalOpenAI, options)
        if not isinstance(http_client, sdk.LocalHttpClient):
            local = source_options(
                context_length=context_length,
                adapter_path=adapter_path,
                trust_remote_code=trust_remote_code,
                max_rows=max_rows,
                max_stall=max_stall,
                max_queue=max_queue,
                memory_limit=memory_limit,
                kv_bits=kv_bits,
                kv_group_size=kv_group_size,
                prefix_cache_bytes=prefix_cache_bytes,
                cache_dir=cache_dir,
            )
            runtime = _make_runtime(model, models, engine, keep_alive, store, local)
            http_client = sdk.LocalHttpClient(runtime, _stub_timeout(http_client))
        self._runtime: Runtime = http_client.runtime
        super().__init__(**stock_options(options, http_client))

    if not TYPE_CHECKING:  # type checkers see the SDK's own signatures

        def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from this process. What every resource of the SDK calls."""
            cast_to = self._maybe_override_cast_to(cast_to, options)
            call = Call(self, options)
            try:
                response = self._respond(call)
            except BaseException as error:
                failure = call.fail(error)
                if failure is error:
                    raise
                raise failure from error
            return self._process_response(
                cast_to=cast_to,
                options=options,
                response=response,
                stream=stream,
                stream_cls=sdk.localise(stream_cls),
                retries_taken=0,
            )

        def copy(self, *, http_client=None, **options):
            """As the SDK's; the copy shares the model and whatever is stored."""
            local = http_client if isinstance(http_client, sdk.LocalHttpClient) else self._client
            return super().copy(http_client=local, **copy_options(options))

        with_options = copy

        @property
        def user_agent(self):
            """The SDK's own, not this class's name."""
            return sdk.user_agent(openai.OpenAI)

        @property
        def websocket_base_url(self):
            """A url that raises when a websocket is to be opened with it."""
            return sdk.NoWebsocketURL(self)

        @websocket_base_url.setter
        def websocket_base_url(self, url):
            pass

        def _process_response_data(self, *, data, cast_to, response):
            model = getattr(response, "local_model", None)
            if type(model) is cast_to:
                return model
            return super()._process_response_data(data=data, cast_to=cast_to, response=response)

    def _respond(self, call: Call) -> Any:
        from .streams import SyncEvents, SyncFollowing, SyncGeneration

        def follow(source: Any, after: int = -1) -> Any:
            events = SyncFollowing(source, after, call.timeout, call.fail)
            return sdk.LocalStreamResponse(events, request=call.request)

        local = call.local()
        if local is not None:
            answer = local()
            return follow(answer.source, answer.after) if call.follows(answer) else call.whole(answer)
        engine = call.engine()
        prepared = call.prepare(engine)
        if prepared.background:
            run = call.runtime.background().start(engine, prepared)
            return follow(run) if prepared.stream else call.whole(run.queued)
        since = time.monotonic()
        generation = SyncGeneration(engine, prepared.requests)
        assembler = prepared.assembler
        if prepared.stream:
            events = SyncEvents(generation, assembler, call.timeout, call.fail)
            return sdk.LocalStreamResponse(events, request=call.request)
        while not assembler.finished:
            assembler.collect(*generation.next(call.remaining(since)))
        assembler.save()
        return call.whole(assembler.result())

    def stats(self, model: str = "") -> EngineStats:
        """A snapshot of the engine that serves a model name; it need not be loaded yet.

        Raises:
            ValueError: there is no such model.
            EngineClosedError: the client was closed.
        """
        return _engine_of(self._runtime, model).stats()

    def __copy__(self) -> LocalOpenAI:
        return _shallow_copy(self)


class AsyncLocalOpenAI(openai.AsyncOpenAI):
    __doc__ = _DOC.format(base="AsyncOpenAI")

    def __init__(
        self,
        model: ModelPath | None = None,
        *,
        models: Mapping[str, ModelPath | None] | None = None,
        engine: EngineLike | None = None,
        context_length: int | None = None,
        adapter_path: ModelPath | None = None,
        trust_remote_code: bool = False,
        max_rows: int | None = None,
        max_stall: float | None = None,
        max_queue: int | None = None,
        memory_limit: int | None = None,
        kv_bits: int | None = None,
        kv_group_size: int | None = None,
        prefix_cache_bytes: int | None = None,
        cache_dir: ModelPath | None = None,
        store: ModelPath | None = None,
        keep_alive: float = KEEP_ALIVE,
        http_client: httpx.AsyncClient | None = None,
        **options: Unpack[AsyncClientOptions],
    ) -> None:
        check_options(AsyncLocalOpenAI, options)
        if not isinstance(http_client, sdk.LocalAsyncHttpClient):
            local = source_options(
                context_length=context_length,
                adapter_path=adapter_path,
                trust_remote_code=trust_remote_code,
                max_rows=max_rows,
                max_stall=max_stall,
                max_queue=max_queue,
                memory_limit=memory_limit,
                kv_bits=kv_bits,
                kv_group_size=kv_group_size,
                prefix_cache_bytes=prefix_cache_bytes,
                cache_dir=cache_dir,
            )
            runtime = _make_runtime(model, models, engine, keep_alive, store, local)
            http_client = sdk.LocalAsyncHttpClient(runtime, _stub_timeout(http_client))
        self._runtime: Runtime = http_client.runtime
        super().__init__(**stock_options(options, http_client))

    if not TYPE_CHECKING:  # type checkers see the SDK's own signatures

        async def request(self, cast_to, options, *, stream=False, stream_cls=None):
            """Serve a request from this process. What every resource of the SDK calls."""
            cast_to = self._maybe_override_cast_to(cast_to, options)
            call = Call(self, options)
            try:
                response = await self._respond(call)
            except BaseException as error:
                failure = call.fail(error)
                if failure is error:
                    raise
                raise failure from error
            return await self._process_response(
                cast_to=cast_to,
                options=options,
                response=response,
                stream=stream,
                stream_cls=sdk.localise(stream_cls),
                retries_taken=0,
            )

        def copy(self, *, http_client=None, **options):
            """As the SDK's; the copy shares the model and whatever is stored."""
            local = http_client if isinstance(http_client, sdk.LocalAsyncHttpClient) else self._client
            return super().copy(http_client=local, **copy_options(options))

        with_options = copy

        @property
        def user_agent(self):
            """The SDK's own, not this class's name."""
            return sdk.user_agent(openai.AsyncOpenAI)

        @property
        def websocket_base_url(self):
            """A url that raises when a websocket is to be opened with it."""
            return sdk.NoWebsocketURL(self)

        @websocket_base_url.setter
        def websocket_base_url(self, url):
            pass

        def _process_response_data(self, *, data, cast_to, response):
            model = getattr(response, "local_model", None)
            if type(model) is cast_to:
                return model
            return super()._process_response_data(data=data, cast_to=cast_to, response=response)

    async def _respond(self, call: Call) -> Any:
        from .engine.sinks import AsyncSink, make_async_sink
        from .streams import AsyncEvents, AsyncFollowing, AsyncGeneration, save

        def follow(source: Any, after: int = -1) -> Any:
            events = AsyncFollowing(source, after, call.timeout, call.fail, make_async_sink())
            return sdk.LocalStreamResponse(events, request=call.request)

        local = call.local()
        if local is not None:
            answer = await anyio.to_thread.run_sync(local, abandon_on_cancel=True)
            return follow(answer.source, answer.after) if call.follows(answer) else call.whole(answer)
        engine = call.engine()

        def start(sink: AsyncSink) -> tuple[Any, Any]:
            prepared = call.prepare(engine)
            if prepared.background:
                return prepared, call.runtime.background().start(engine, prepared)
            # Submitted from here: the engine starts while the event loop is still being told. Should the task be
            # cancelled meanwhile, nobody takes the generation, and it leaves the engine as it is dropped.
            return prepared, AsyncGeneration(engine, prepared.requests, sink)

        if not engine.is_ready:
            await anyio.to_thread.run_sync(engine.wait, abandon_on_cancel=True)
        prepared, started = await anyio.to_thread.run_sync(
            partial(start, make_async_sink()), abandon_on_cancel=True, limiter=preparing()
        )
        if prepared.background:
            return follow(started) if prepared.stream else call.whole(started.queued)
        generation: AsyncGeneration = started
        since = time.monotonic()
        assembler = prepared.assembler
        if prepared.stream:
            events = AsyncEvents(generation, assembler, call.timeout, call.fail)
            return sdk.LocalStreamResponse(events, request=call.request)
        while not assembler.finished:
            assembler.collect(*await generation.next(call.remaining(since)))
        await save(assembler)
        return call.whole(assembler.result())

    def stats(self, model: str = "") -> EngineStats:
        """A snapshot of the engine that serves a model name; it need not be loaded yet.

        Raises:
            ValueError: there is no such model.
            EngineClosedError: the client was closed.
        """
        return _engine_of(self._runtime, model).stats()

    def __copy__(self) -> AsyncLocalOpenAI:
        return _shallow_copy(self)


def _engine_of(runtime: Runtime, model: str) -> EngineLike:
    """The engine that serves a model name.

    Raises:
        ValueError: there is none.
    """
    engine = runtime.engine(model or next(iter(runtime.sources), ""))
    if engine is None:
        raise ValueError(f"there is no model '{model}', only {', '.join(runtime.names())}")
    return engine


def _shallow_copy(client: ClientT) -> ClientT:
    """`copy.copy`: the same attributes, with resources of its own that belong to the copy."""
    made = client.__class__.__new__(client.__class__)
    resources = {name for cls in type(client).__mro__ for name, value in vars(cls).items() if _is_cached(value)}
    made.__dict__.update({key: value for key, value in client.__dict__.items() if key not in resources})
    return made


def _is_cached(value: Any) -> bool:
    return type(value).__name__ == "cached_property"
