"""Clients of the SDK that a program makes for itself, made local, and the environment that they read.

Frameworks and scripts ask the environment for a key themselves. Processes that the program starts inherit it: their
clients of the SDK are not replaced, and must not send prompts anywhere. While a whole program's OpenAI is replaced,
they find an address that nothing answers. Tests keep the address: LangChain counts tokens of streams only without one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..client.local import AsyncLocalOpenAI, LocalOpenAI
from ..client.transport import LocalAsyncTransport, LocalTransport
from ..runtime.engines import Runtime
from ..sdk import credentials, stock_clients
from ..sdk import private as sdk
from ..sdk.credentials import PLACEHOLDER
from ..threads.system import RLock
from . import network

_SERVER = "https://localhost:1"
"""Port 1 is never in use. HTTPS, so that a proxy gets no prompt: it is asked for a connection, which it cannot make."""
NOWHERE = f"{_SERVER}/v1/"
_KEY = "OPENAI_API_KEY"
_PLACEHOLDERS = {
    _KEY: PLACEHOLDER,
    "OPENAI_BASE_URL": NOWHERE,
    "OPENAI_API_BASE": NOWHERE,  # an older name, which LangChain and LiteLLM read
    "AZURE_OPENAI_ENDPOINT": _SERVER,
    "OPENAI_AGENTS_DISABLE_TRACING": "1",  # openai-agents sends its traces with whatever key it finds
}
_ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")
_ONLY_IF_SET = ("OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")
_UNLESS_SET = ("OPENAI_AGENTS_DISABLE_TRACING",)
_replaced: dict[str, str | None] = {}
"""Variables that are placeholders, or were when other code replaced them -> their values before."""


def set_placeholders(*, whole_program: bool) -> None:
    """Set placeholders if there is no key.

    Args:
        whole_program: even if there is one, and for addresses.
    """
    if os.environ.get(_KEY) and not whole_program:
        return
    for name, placeholder in _PLACEHOLDERS.items():
        is_set = bool(os.environ.get(name))
        if name in (_UNLESS_SET if is_set else _ONLY_IF_SET) or (name in _ADDRESSES and not whole_program):
            continue
        _replaced.setdefault(name, os.environ.get(name))
        os.environ[name] = placeholder


def take_back() -> None:
    """Restore all variables that still have their placeholder."""
    for name, before in list(_replaced.items()):
        if os.environ.get(name) != _PLACEHOLDERS[name]:
            continue
        del _replaced[name]
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def forget() -> None:
    """Restore placeholders that came back after `take_back`, and keep no record of others."""
    take_back()
    _replaced.clear()


AnyLocalOpenAI = LocalOpenAI | AsyncLocalOpenAI


class ReplacedClients:
    """Clients of the SDK, served by what serves `client`, from now until `undo`.

    All that the program makes with `openai.OpenAI()`, `openai.AsyncOpenAI()` and their subclasses, such as
    `AzureOpenAI`, under whichever name it has imported them; the client of `openai.chat.completions.create(...)`; and
    clients that were made before. They stay what they are: only their http client is another (see transport.py), so
    that retries, types and settings are the SDK's own. No credentials are needed, none is sent, functions that fetch
    some are not called, and no websocket is opened (see sdk/credentials.py).

    Several may overlap: the last one that was made counts.

    Args:
        client: what answers.
        whole_program: keys and servers in the environment make way for placeholders even if there are some.
    """

    def __init__(self, client: AnyLocalOpenAI, *, whole_program: bool = False) -> None:
        self.client = client
        with _lock:
            if not _active:
                _undo.extend([_patch(sdk.OpenAI, _http), _patch(sdk.AsyncOpenAI, _async_http)])
                _undo.extend(_patch_arguments(*each) for each in credentials.SUBCLASSES.items())
                _settings.update(stock_clients.module_settings())
                forget()
            set_placeholders(whole_program=whole_program)
            _active.append(self)
            stock_clients.forget_module_client()

    def undo(self) -> None:
        """Let the SDK's clients be what they are again, unless another replacement lasts. Does nothing twice."""
        with _lock:
            if self not in _active:
                return
            _active.remove(self)
            stock_clients.forget_module_client()
            if not _active:
                stock_clients.set_module_settings(_settings)
                while _undo:
                    _undo.pop()()
                take_back()


def forget_placeholders() -> None:
    """Take back variables that became placeholders again after the last replacement.

    What replaces a variable while a replacement lasts, such as pytest's `monkeypatch`, may put back what it found
    later.
    """
    with _lock:
        if not _active:
            forget()


@contextlib.contextmanager
def unpatched() -> Iterator[None]:
    """Let this thread's clients of the SDK be what they are, and reach out, whatever is replaced or blocked."""
    token = network.passes.set(True)
    try:
        yield
    finally:
        network.passes.reset(token)


_lock = RLock()
_active: list[ReplacedClients] = []
"""The last one counts."""
_undo: list[Callable[[], None]] = []
_settings: dict[str, object] = {}


# -- the SDK's classes ----------------------------------------------------------------------------------------------


class _HttpClient(sdk.LocalHttpClient):
    """Http client whose end lets no model go: that belongs to the client that answers."""

    def close(self) -> None:
        super(sdk.LocalHttpClient, self).close()


class _AsyncHttpClient(sdk.LocalAsyncHttpClient):
    """Async form of `_HttpClient`."""

    async def aclose(self) -> None:
        await super(sdk.LocalAsyncHttpClient, self).aclose()


def _http(runtime: Runtime, replaced: object) -> sdk.LocalHttpClient:
    return _HttpClient(runtime, LocalTransport(runtime, LocalOpenAI._respond), sdk.timeout_of(replaced))


def _async_http(runtime: Runtime, replaced: object) -> sdk.LocalAsyncHttpClient:
    return _AsyncHttpClient(runtime, LocalAsyncTransport(runtime, AsyncLocalOpenAI._respond), sdk.timeout_of(replaced))


_KINDS = (sdk.LocalHttpClient, sdk.LocalAsyncHttpClient)


def _current() -> AnyLocalOpenAI | None:
    """The client that counts here; None: nothing is patched."""
    try:
        return None if network.passes.get() else _active[-1].client
    except IndexError:
        return None


def _patch(base: Any, make_http: Callable[[Runtime, object], object]) -> Callable[[], None]:
    """Patch one of the SDK's classes; what is returned undoes it."""
    init, request = base.__init__, base.request

    @functools.wraps(init)
    def make(self: object, **given: object) -> None:
        local = _current()
        if local is not None and not isinstance(given.get("http_client"), _KINDS):
            given = credentials.openai_arguments(given)
            given["http_client"] = make_http(local._runtime, given.get("http_client"))
        init(self, **given)

    @functools.wraps(request)
    def ask(self: Any, *args: object, **more: object) -> object:
        local = _current()
        if local is not None:
            self = credentials.signed_out(self)
            if not isinstance(self._client, _KINDS):  # it was made before
                self._client = make_http(local._runtime, self._client)
        return request(self, *args, **more)

    ask.stands_before = (ask, request)  # type: ignore[attr-defined]
    made = {
        "__init__": make,
        "request": ask,
        "websocket_base_url": property(_read_websocket_base_url, _set_websocket_base_url),
        stock_clients.SLEEP: _patient(getattr(base, stock_clients.SLEEP)),
    }
    return _replace(base, made)


def _patch_arguments(base: Any, arguments: Callable[[Mapping[str, object]], dict[str, object]]) -> Callable[[], None]:
    """Patch a constructor that looks for credentials itself; what is returned undoes it."""
    init = base.__init__

    @functools.wraps(init)
    def make(self: object, **given: object) -> None:
        init(self, **(given if _current() is None else arguments(given)))

    return _replace(base, {"__init__": make})


def _replace(base: type, made: Mapping[str, object]) -> Callable[[], None]:
    """Give a class other attributes; what is returned undoes it."""
    before = {name: vars(base).get(name) for name in made}
    for name, attribute in made.items():
        setattr(base, name, attribute)

    def undo() -> None:
        for name, attribute in made.items():
            if vars(base).get(name) is attribute:  # else other code has replaced it since
                delattr(base, name)
                if before[name] is not None:
                    setattr(base, name, before[name])

    return undo


def _read_websocket_base_url(client: object) -> object:
    """A URL that raises when a websocket is opened with it."""
    return vars(client).get("websocket_base_url") if _current() is None else stock_clients.no_websocket_url()


def _set_websocket_base_url(client: object, url: object) -> None:
    vars(client)["websocket_base_url"] = url


def _patient(sleep: Callable[..., object]) -> Callable[..., object]:
    """The SDK's wait before a retry, on the clock of a scripted client."""

    @functools.wraps(sleep)
    def wait(self: Any, *, retries_taken: int, options: Any, response: Any, **more: object) -> object:
        clock = getattr(_current(), "clock", None)
        if clock is None or not isinstance(self._client, _KINDS):
            return sleep(self, retries_taken=retries_taken, options=options, response=response, **more)
        delay = sdk.retry_delay(self, options, retries_taken, response) or 0.0
        return (clock.sleep_async if inspect.iscoroutinefunction(sleep) else clock.sleep)(delay)

    return wait
