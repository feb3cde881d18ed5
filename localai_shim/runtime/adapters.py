"""LoRA adapters of a client, by name: each is loaded into the engine when a request first names it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..endpoints.fields import FieldCache
from ..options import LocalOptions, ModelOptions, ModelPath, processes
from ..threads import system
from ..threads.system import RLock
from ..types import Adapter, EngineLike, ModelLoadError, Product
from .offload import import_modules

if TYPE_CHECKING:
    from ..endpoints.served import ServedModel


class AdaptingEngine(EngineLike, Protocol):
    """An engine that runs a model, not a script."""

    def load_adapter(self, adapter: Adapter, products: Mapping[str, Product], /) -> Future[None]: ...

    def unload_adapter(self, adapter: Adapter, /) -> None: ...


@dataclass(slots=True)
class _Loading:
    """An adapter in one engine."""

    path: str
    engine: EngineLike | None = None
    done: Future[Adapter] = field(default_factory=system.Future[Adapter])
    served: ServedModel | None = None

    def is_in(self, engine: EngineLike) -> bool:
        return self.engine is engine and self.done.done() and self.done.exception() is None

    def release(self) -> None:
        """Have the engine forget it, now or once it is loaded. Never blocks."""
        engine = self.engine
        if engine is not None:
            self.done.add_done_callback(lambda done: _unload(cast(AdaptingEngine, engine), done))


def _unload(engine: AdaptingEngine, done: Future[Adapter]) -> None:
    if done.exception() is None:
        engine.unload_adapter(done.result())


class ClientAdapters:
    """The adapters of a client and its copies. May be used from any thread.

    Args:
        allowed: this client may have some.
        offline: the Hugging Face Hub is not asked for them.
    """

    def __init__(self, *, allowed: bool, offline: bool = False) -> None:
        self.allowed, self._offline = allowed, offline
        self._known: dict[str, _Loading] = {}
        self._gone = set[str]()
        """Names that were unloaded, and not loaded again: the model alone does not answer for them."""
        self._closed = False
        self._lock = RLock()  # a finalizer may close it while it is held

    def paths(self) -> dict[str, str]:
        """The folder or hub id of each name."""
        with self._lock:
            return {name: loading.path for name, loading in self._known.items()}

    def enter(self, name: str, path: str) -> None:
        """Have requests name an adapter, which is loaded when the first one does."""
        self._known[name] = _Loading(path)
        self._gone.discard(name)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def was_unloaded(self, name: str) -> bool:
        """True if the name was an adapter's, and is none now."""
        return name in self._gone

    def is_ready(self, name: str, engine: EngineLike) -> bool:
        """True if `served` returns at once."""
        loading = self._known.get(name)
        return loading is not None and loading.is_in(engine)

    def served(self, name: str, engine: EngineLike, base: ServedModel) -> ServedModel:
        """The model of an engine with an adapter, which is loaded into it if it is not; waits for that.

        Raises:
            KeyError: the name was unloaded meanwhile.
            ModelLoadError: it does not fit, or cannot be read.
        """
        with self._lock:
            loading = self._known[name]
            mine = loading.engine is not engine
            if mine:  # nobody has asked, or the model's engine was replaced
                loading = self._known[name] = _Loading(loading.path, engine)
        if mine:
            self._load(name, loading)
        adapter = loading.done.result()
        both = f"{base.fingerprint}_{adapter.fingerprint[:8]}"
        if loading.served is None or loading.served.fingerprint != both:
            made = replace(base, name=name, adapter=adapter, fingerprint=both, field_cache=FieldCache())
            loading.served = made
            return made
        return loading.served

    def load(self, name: str, path: ModelPath, engine: EngineLike) -> None:
        """Load an adapter now; one of the same name is replaced when that is done.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: this client can have none, or the adapter does not fit, or cannot be read.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of an adapter must be a string, not {name!r}")
        if not self.allowed or not hasattr(engine, "load_adapter"):
            raise ValueError("load_adapter: adapters are for clients with one `model`, in one process")
        loading = _Loading(_adapter_path(name, path, "load_adapter"), engine)
        try:
            _ = engine.model  # waits for it
            self._load(name, loading, known=False)
        except ModelLoadError as error:
            raise ValueError(str(error)) from error
        with self._lock:
            gone = loading if self._closed else self._known.get(name)
            if not self._closed:
                self._known[name] = loading
                self._gone.discard(name)
        if gone is not None:
            gone.release()

    def unload(self, name: str) -> None:
        """Forget a name; rows that use the adapter keep it until they end.

        Raises:
            ValueError: there is none.
        """
        with self._lock:
            loading = self._known.pop(name, None)
            if loading is not None:
                self._gone.add(name)
            known = ", ".join(f"'{each}'" for each in self._known) or "none"
        if loading is None:
            raise ValueError(f"there is no adapter '{name}': this client has {known}")
        loading.release()

    def close(self) -> None:
        """Forget all. Never blocks."""
        with self._lock:
            known, self._known, self._closed = self._known, {}, True
        for loading in known.values():
            loading.release()

    def _load(self, name: str, loading: _Loading, *, known: bool = True) -> None:
        import_modules("models.adapters.folder")
        from ..models.adapters.folder import read_adapter

        try:
            adapter, products = read_adapter(name, loading.path, offline=self._offline)
            cast(AdaptingEngine, loading.engine).load_adapter(adapter, products).result()
        except BaseException as error:
            with self._lock:
                if known and self._known.get(name) is loading:  # the next request tries again
                    self._known[name] = _Loading(loading.path)
            loading.done.set_exception(error)
            raise
        loading.done.set_result(adapter)


def adapter_paths(given: LocalOptions, options: ModelOptions) -> dict[str, str]:
    """Check the adapters that a client is given, and return the folder or hub ID of each name.

    Raises:
        FileNotFoundError: one of them is a path that leads to no folder.
        ValueError: this client can have none, or a name or a path is none.
    """
    adapters = given.get("adapters")
    if not adapters:
        return {}
    for other in ("models", "engine"):
        if given.get(other) is not None:
            raise ValueError(f"`adapters` are for the one `model` of a client: leave them or `{other}` out")
    if processes(options) > 1:
        raise ValueError("`adapters` need a model that runs in one process: leave them or `tensor_parallel` out")
    if not isinstance(adapters, Mapping) or not all(isinstance(name, str) and name for name in adapters):
        raise ValueError("`adapters` must be a mapping of names to folders or hub ids")
    return {name: _adapter_path(name, path, "`adapters`") for name, path in adapters.items()}


def _adapter_path(name: str, path: object, argument: str) -> str:
    """The folder or the hub id of an adapter.

    Raises:
        FileNotFoundError: it is a path, and no folder is there.
        ValueError: it is neither.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"{argument}: the adapter '{name}' must be a folder or a hub id, not {path!r}")
    text = os.fspath(path)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return str(folder.resolve())
    if isinstance(path, os.PathLike) or text.startswith((".", "/", "~")) or text.count("/") != 1:
        raise FileNotFoundError(f"{argument}: there is no folder '{text}' for the adapter '{name}'.")
    return text
