"""Constructor arguments: the SDK's own with their types, and what the clients make of them."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import openai

from . import sdk

if TYPE_CHECKING:
    import httpx2 as httpx
    from openai._client import DataResidency
    from openai._provider import _Provider
    from openai.auth import WorkloadIdentity, X509WorkloadIdentity


class _SharedOptions(TypedDict, total=False):
    admin_api_key: str | None
    workload_identity: WorkloadIdentity | X509WorkloadIdentity | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    provider: _Provider | None
    base_url: str | httpx.URL | openai.NotGiven | None
    data_residency: DataResidency | None
    websocket_base_url: str | httpx.URL | None
    timeout: float | openai.Timeout | openai.NotGiven | None
    max_retries: int
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    _strict_response_validation: bool
    _enforce_credentials: bool


class ClientOptions(_SharedOptions, total=False):
    """Constructor arguments of `openai.OpenAI`; not all of them exist in the SDK's 2.x line."""

    api_key: str | Callable[[], str] | None


class AsyncClientOptions(_SharedOptions, total=False):
    """Constructor arguments of `openai.AsyncOpenAI`."""

    api_key: str | Callable[[], Awaitable[str]] | None


# Those that say where requests go and who sends them. There is nobody to send to.
_WITHOUT_EFFECT = ("base_url", "websocket_base_url", "provider", "workload_identity", "data_residency")


def stock_options(options: Mapping[str, Any], http_client: Any) -> dict[str, Any]:
    """The SDK's constructor arguments, without those that could lead a request out of this process."""
    kept = copy_options(options)
    if kept.get("api_key") is None:
        kept["api_key"] = "local"
    kept.update(base_url=sdk.BASE_URL, http_client=http_client)
    return kept


def copy_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `copy`, without those that could lead a request out of this process."""
    return {key: value for key, value in options.items() if key not in _WITHOUT_EFFECT}


def check_options(cls: type, options: Mapping[str, Any]) -> None:
    """Refuse what neither the client nor the installed SDK has as a constructor argument, and timeouts that are none.

    Args:
        cls: `LocalOpenAI` or `AsyncLocalOpenAI`.
        options: those that the client does not have itself.

    Raises:
        TypeError: names the argument, and the one that may have been meant.
        ValueError: the timeout is none.
    """
    stock, own = _parameters(cls)
    for name in options:
        if name not in stock and name not in _WITHOUT_EFFECT:
            near = difflib.get_close_matches(name, [*own, *stock], n=1)
            hint = f". Did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument '{name}'{hint}")
    if not isinstance(options.get("timeout"), openai.NotGiven):
        sdk.read_seconds(options.get("timeout"))


@functools.cache
def _parameters(cls: type) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the SDK's constructor arguments, and of the client's own."""
    stock, own = (inspect.signature(each.__init__).parameters for each in (cls.__mro__[1], cls))  # type: ignore[misc]
    return frozenset(stock) - {"self"}, tuple(name for name in own if name not in ("self", "options"))
