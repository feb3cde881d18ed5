"""Engines that are loaded and shared in this process, and the choice of the one that serves a model name."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine import threads
from ..media import NO_SOURCES, Contents, MediaRules
from ..options import (
    KEEP_ALIVE_SECONDS,
    LocalOptions,
    ModelPath,
    SearchOptions,
    check_number,
    media_rules,
    model_options,
    processes,
    records_timeline,
    search_options,
)
from ..telemetry.observe import follow_environment
from ..threads import greenlets
from ..threads.deadline import Deadline, until
from ..threads.system import RLock, Timer
from ..types import EngineClosedError, EngineLike, ModelLoadError
from .adapters import ClientAdapters, adapter_paths
from .offload import are_imported, import_modules, importing
from .served_models import hooks_of, listed, serve
from .sources import EmbeddingModel, ModelSource, make_sources, read_embedding
from .starting import MODULES, open_store, set_switch_interval, start_engine
from .timelines import Timelines

if TYPE_CHECKING:
    from ..endpoints.batches.runner import Batches
    from ..endpoints.models import Listed
    from ..endpoints.responses.background import Background
    from ..endpoints.served import ServedModel
    from ..endpoints.vector_stores.library import Library
    from ..state.store import Store
    from .client_state import ClientState, MakeBatches, MakeLibrary


def make_runtime(model: ModelPath | None, given: LocalOptions, seconds: float | None = None) -> Runtime:
    """Make a client's runtime: its store's file is open, and its model begins to load.

    Args:
        seconds: that it waits at most for processes that lock that file.

    Raises:
        BackendMissingError: MLX has no back end.
        FileNotFoundError: a path leads to nothing.
        RuntimeError: eventlet has patched the program.
        ValueError: arguments that contradict each other or are out of range, a file that cannot be used, or a model
            that cannot be spread over processes.
    """
    from ..backends.machine import require_backend

    greenlets.check()
    follow_environment()
    options, rules = model_options(given), media_rules(given)
    models, engine = given.get("models"), given.get("engine")
    if sum(x is not None for x in (model, models, engine)) > 1:
        raise ValueError("pass one of `model`, `models` and `engine`")
    keep_alive, store = given.get("keep_alive", KEEP_ALIVE_SECONDS), given.get("store")
    check_number("keep_alive", keep_alive)
    if (progress := given.get("progress")) not in (None, True, False):
        raise ValueError(f"`progress` must be True, False or None, not {progress!r}")
    set_switch_interval(given)
    records = records_timeline(given)
    adapters, search = adapter_paths(given, options), search_options(given)
    store_path = None if store is None else os.fspath(store)
    sources: Mapping[str, ModelSource] = {}
    if engine is not None:
        if idle := [*filter(options.get, options), *filter(given.get, SearchOptions.__annotations__)]:
            raise ValueError(f"`engine` runs already: `{idle[0]}` would have no effect")
    elif models is not None and not models:
        raise ValueError("`models` is empty: pass at least one name and path")
    else:
        if not threads.are_lost():  # as each request says
            importing(require_backend)
        try:
            sources = make_sources(models or {"": model}, options, progress, search)
        except ModelLoadError as error:
            raise FileNotFoundError(str(error)) from None
        if processes(options) > 1:
            from .group import check, join

            check(sources.values())
            join(options)
    only = models is not None
    runtime = Runtime(sources, only=only, engine=engine, keep_alive=keep_alive, store_path=store_path, rules=rules)
    runtime.hooks = hooks_of(given)
    runtime.embedding = read_embedding(given, sources, options, progress, search)
    for name, path in adapters.items():
        runtime.adapters.enter(name, path)
    if store_path is not None:
        with until(Deadline(seconds)):
            open_store(runtime.store, runtime.close)
    if records:
        runtime.timelines.record_all()
    runtime.start()
    return runtime


class _Shared:
    """An engine and the runtimes that hold it."""

    def __init__(self, source: ModelSource) -> None:
        self._files = source.files()  # before they are read
        self.source = source
        self.engine = start_engine(source)
        self.holders: set[object] = set()
        self.timer: Timer | None = None
        self._detached = 0
        """Changes in progress: see `detached`."""
        self._shareable = False
        """It was shared before these, and none of them has succeeded."""

    @property
    def is_over(self) -> bool:
        """The engine was closed, and another one may do better.

        Not if its model could not be loaded for a reason that lasts, or the GPU refuses this process's work: then every
        request fails immediately with this engine's reason.
        """
        if not self.engine.is_closed or threads.refusal() is not None:
            return False
        failure = self.engine.failure
        return failure is None or failure.transient or self._files != self.source.files()

    def release(self, holder: object, keep_alive: float, wait: bool) -> None:
        """Release the engine. After its last holder it ends, or stays loaded for `keep_alive` seconds.

        A caller that was interrupted may release it again. No thread is waited for with the lock held, nor by a
        finalizer: these run on any thread, those of engines included.
        """
        with _lock:
            self.holders.discard(holder)
            if self.holders or not 0 <= keep_alive <= threading.TIMEOUT_MAX:
                return
            if keep_alive > 0 and _shared.get(self.source) is self:
                self.stop_timer()
                self.timer = Timer(keep_alive, self.unload)
                self.timer.start()
                return
        self.unload(wait)

    def stop_timer(self) -> None:
        """Have it stay loaded. Called with the lock held."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def unload(self, wait: bool = True) -> None:
        """End the engine, unless it is held."""
        with _lock:
            if self.holders:
                return
            if _shared.get(self.source) is self:
                del _shared[self.source]
        self.engine.close(wait=wait)

    @contextlib.contextmanager
    def detached(self) -> Iterator[None]:
        """Have clients that are made from now on load the model afresh, unless what is done meanwhile fails."""
        with _lock:
            self._detached += 1
            if _shared.get(self.source) is self:
                del _shared[self.source]
                self._shareable = True
        try:
            yield
        except BaseException:
            with _lock:
                self._detached -= 1
                if self._shareable and not self._detached:  # another one that goes on may succeed
                    _shared.setdefault(self.source, self)
                    self._shareable = False
            raise
        with _lock:
            self._detached -= 1
            self._shareable = False


_shared: dict[ModelSource, _Shared] = {}
_lock = RLock()  # finalizers may run, and release an engine, while it is held


def _acquire(source: ModelSource, holder: object, engines: dict[ModelSource, _Shared]) -> _Shared:
    """Hold the engine of a source, among those of the holder: there it is found when they are released, whatever was
    interrupted here.
    """
    with _lock:
        shared = _shared.get(source)
        if shared is None or shared.is_over:
            shared = engines[source] = _Shared(source)
            _shared[source] = shared
        engines[source] = shared
        shared.stop_timer()
        shared.holders.add(holder)
        return shared


def _forget_engines() -> None:
    """Renew the locks in a forked child. Its parent's engines have no thread there, and refuse requests."""
    global _lock
    _lock = RLock()
    for shared in _shared.values():
        shared.timer = None


os.register_at_fork(after_in_child=_forget_engines)


class Runtime:
    """Names of models and their engines, shared by a client and its copies.

    Args:
        sources: model names -> what serves them.
        only: serve these names and no others; otherwise the first one serves every name.
        engine: serve every name with this engine, which stays the caller's to close.
        keep_alive: seconds for which engines stay loaded after the last client closed; below 0 for good.
        store_path: the file in which responses and conversations are kept; None: memory.
        rules: where requests may take media from.
    """

    def __init__(
        self,
        sources: Mapping[str, ModelSource],
        *,
        only: bool = False,
        engine: EngineLike | None = None,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        store_path: str | None = None,
        rules: MediaRules = NO_SOURCES,
    ) -> None:
        self.sources = dict(sources)
        self._rules = rules
        self.only = only
        self._engine = engine
        parallel = any(processes(source.options) > 1 for source in sources.values())
        offline = any(source.search.offline for source in sources.values())
        self.adapters = ClientAdapters(allowed=not only and engine is None and not parallel, offline=offline)
        self.is_scripted = bool(getattr(engine, "is_scripted", False))
        self._engines: dict[ModelSource, _Shared] = {}
        self._lock, self._closed = RLock(), False
        self.store_path = store_path
        self.make_batches: MakeBatches  # clients set it; it must not hold this object
        self.make_library: MakeLibrary  # likewise
        self.hooks: Mapping[str, Callable[..., object]] = {}
        self.embedding = EmbeddingModel()
        self._state: list[ClientState] = []  # one, once something is stored
        self._holder = object()
        self.timelines = Timelines()
        self._held = (self._engines, self._holder, keep_alive, self._state, self.adapters, self.timelines)
        self._finalizer = weakref.finalize(self, _release_all, *self._held)
        self._finalizer.atexit = False

    def start(self) -> None:
        """Begin to load the model that serves every name."""
        if not self.only and self._engine is None:
            with contextlib.suppress(EngineClosedError):  # in a forked child: each request says so
                self.engine(next(iter(self.sources)))

    def engine(self, name: str) -> EngineLike | None:
        """The engine that serves a model name, started if it was not; None if there is no such model."""
        if self._engine is not None:
            return self.timelines.noted(self._engine)
        if self.only and name not in self.sources:
            return None
        return self._engine_of(self.sources.get(name) or next(iter(self.sources.values())))

    def embedding_engine(self) -> EngineLike:
        """The engine of the model that embeds the files of vector stores, started if it was not."""
        source = self.embedding.source_among(self.sources)
        return self.engine_of("") if source is None else self._engine_of(source)

    def embedding_name(self) -> str:
        """The name of that model, which does not have to be loaded."""
        source = self.embedding.source_among(self.sources)
        return self.engine_of("").model.name if source is None else source.name

    def _engine_of(self, source: ModelSource) -> EngineLike:
        threads.check()  # before a lock that a thread of the parent may have held
        if source not in self._engines:
            self.load_modules()  # before a lock: see `threads.system`
        with self._lock:
            if self._closed:
                raise EngineClosedError("client is closed")
            shared = self._engines.get(source)
            if shared is None or shared.is_over:
                shared = _acquire(source, self._holder, self._engines)
            return self.timelines.noted(shared.engine)

    @property
    def default_name(self) -> str | None:
        """Name of the model that serves requests that name none; None if there are several."""
        if not self.only:
            return ""  # whatever the name, one model serves it
        return next(iter(self.sources)) if len(self.sources) == 1 else None

    def engine_of(self, name: str) -> EngineLike:
        """Find an engine like `engine`; an empty name is that of the first model.

        Raises:
            ValueError: there is no such model.
        """
        engine = self.engine(name or next(iter(self.sources), ""))
        if engine is None:
            raise ValueError(f"there is no model '{name}', only {', '.join(self.names())}")
        return engine

    def detached(self, engine: EngineLike) -> contextlib.AbstractContextManager[None]:
        """Keep an engine to those who have it already, unless what is done meanwhile fails."""
        with self._lock:
            found = next((shared for shared in self._engines.values() if shared.engine is engine), None)
        return contextlib.nullcontext() if found is None else found.detached()

    def started(self) -> list[EngineLike]:
        """The engines that this client has asked for."""
        with self._lock:
            return [shared.engine for shared in self._engines.values()]

    def served(self, engine: EngineLike, contents: Contents | None = None, adapter: str | None = None) -> ServedModel:
        """Description of an engine's model for the endpoints; waits until it is loaded.

        Args:
            contents: of the request that it is for; None: it is for none, and has no rules and hooks.
            adapter: the name of the one that it uses; it is loaded if it is not.

        Raises:
            KeyError: there is no such adapter any more.
            ModelLoadError: the adapter does not fit, or cannot be read.
        """
        made = serve(engine)
        if adapter is not None:
            made = self.adapters.served(adapter, engine, made)
        if contents is None:
            return made
        return replace(made, media_rules=replace(self._rules, contents=contents), hooks={**self.hooks, **made.hooks})

    @property
    def is_imported(self) -> bool:
        """`load_modules` returns at once."""
        return self._engine is not None or are_imported(*MODULES)

    def load_modules(self) -> None:
        """Import what runs the models; takes long. Which back end there is was found out before."""
        if self._engine is None:
            import_modules(*MODULES)

    def store(self) -> Store:
        """Store of responses and conversations.

        Raises:
            StoreError: the file cannot be used.
        """
        return self._stored().store

    def background(self) -> Background:
        """Runner of responses in the background."""
        return self._stored().background

    def batches(self) -> Batches:
        """Runner of batches."""
        return self._stored().batches(self.make_batches)

    def library(self) -> Library:
        """Vector stores."""
        return self._stored().library(self.make_library)

    def _stored(self) -> ClientState:
        import_modules("runtime.client_state")  # before a lock: see `threads.system`
        with self._lock:
            if self._closed:
                raise EngineClosedError("client is closed")
            if not self._state:
                from .client_state import ClientState

                self._state.append(ClientState(self.store_path))
            return self._state[0]

    def serves(self, name: str) -> bool:
        """True if requests may have this model name."""
        if self.only:
            return name in self.sources
        return not self.adapters.was_unloaded(name) or name in self.names()

    def names(self) -> dict[str, Listed]:
        """The models that this client lists, by name."""
        from ..endpoints.models import Listed

        if self._engine is not None:
            model = self._engine.model
            return {model.name: Listed.of(model, model.created, model.name)}
        first = next(iter(self.sources.values()))
        listed = self.sources if self.only else {first.name: first}
        known = {name: self._listed(source) for name, source in listed.items()}
        for name, path in self.adapters.paths().items():
            known[name] = known[first.name]._replace(root=path, parent=first.name)
        return known

    def _listed(self, source: ModelSource) -> Listed:
        """Entry of a model for lists, without waiting for it to be loaded."""
        shared = self._engines.get(source)
        return listed(source, None if shared is None else shared.engine)

    def close(self) -> None:
        """Let the engines go; they stay loaded for `keep_alive` seconds."""
        with self._lock:
            self._closed = True
        for state in [*self._state]:
            state.close()
        close_servers = getattr(self.hooks.get("mcp"), "close", None)
        if close_servers is not None:
            close_servers()
        if self._finalizer.alive:
            _release_all(*self._held, wait=True)
            self._finalizer.detach()  # last: who is interrupted before it closes again, or the garbage collector does


def _release_all(
    engines: dict[ModelSource, _Shared],
    holder: object,
    keep_alive: float,
    state: list[ClientState],
    adapters: ClientAdapters,
    timelines: Timelines,
    wait: bool = False,
) -> None:
    timelines.stop()
    adapters.close()
    while state:
        state.pop().stop()
    for source, shared in [*engines.items()]:
        shared.release(holder, keep_alive, wait)
        engines.pop(source, None)
