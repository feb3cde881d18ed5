"""Arguments of the clients' constructors: their own options and the SDK's."""

from __future__ import annotations

import difflib
import functools
import inspect
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import openai

from ..options import MODEL, OWN, TYPES, LocalOptions
from ..sdk import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
    from openai._client import DataResidency
    from openai._provider import _Provider
    from openai.auth import WorkloadIdentity, X509WorkloadIdentity

ClientT = TypeVar("ClientT")


class _SharedArguments(LocalOptions, total=False):
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


class ClientArguments(_SharedArguments, total=False):
    """Ours, and those of `openai.OpenAI`; not all of these exist in the SDK's 2.x line."""

    http_client: httpx.Client | None
    api_key: str | Callable[[], str] | None


class AsyncClientArguments(_SharedArguments, total=False):
    """Ours, and those of `openai.AsyncOpenAI`."""

    http_client: httpx.AsyncClient | None
    api_key: str | Callable[[], Awaitable[str]] | None


# Those that say where requests go and who sends them. There is nobody to send to.
_WITHOUT_EFFECT = ("base_url", "websocket_base_url", "provider", "workload_identity", "data_residency")


def stock_arguments(given: Mapping[str, object], http_client: object) -> dict[str, Any]:
    """The SDK's constructor arguments, without those that could lead a request out of this process."""
    kept = {name: value for name, value in copy_arguments(given).items() if name not in OWN}
    if not kept.get("api_key"):  # openai-agents sends its traces with a client's key, where there is one
        kept.update(api_key="", _enforce_credentials=False)
    kept.update(base_url=sdk.BASE_URL, http_client=http_client)
    return kept


def copy_arguments(given: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of `copy`, without those that could lead a request out of this process."""
    return {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}


def check_arguments(cls: type, given: Mapping[str, object]) -> None:
    """Refuse what neither the client nor the installed SDK has as a constructor argument, and timeouts that are none.

    Args:
        cls: `LocalOpenAI` or `AsyncLocalOpenAI`.
        given: the arguments, by name.

    Raises:
        TypeError: names the argument, and the one that may have been meant.
        ValueError: the timeout is none.
    """
    stock = _stock(sdk.stock_class(cls))
    for name in given:
        if name not in OWN and name not in stock and name not in _WITHOUT_EFFECT:
            _refuse_argument(cls.__name__, name, ["model", *OWN, *stock])
    if not isinstance(given.get("timeout"), openai.NotGiven):
        sdk.read_seconds(given.get("timeout"))


def check_options(function: str, given: Mapping[str, object]) -> None:
    """Refuse what is not an option of a local model.

    Args:
        function: what got them.
        given: the options, by name.

    Raises:
        TypeError: names the option, and the one that may have been meant.
    """
    for name in given:
        if name not in OWN:
            _refuse_argument(function, name, ["model", "timeout", *OWN])


def _refuse_argument(function: str, name: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f". Did you mean '{near[0]}'?" if near else ""
    raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")


@functools.cache
def _stock(base: type) -> frozenset[str]:
    """Names of the SDK's constructor arguments."""
    return frozenset(inspect.signature(base).parameters)


# -- what people and tools read -------------------------------------------------------------------------------------


def described(base: str, arguments: type) -> Callable[[type[ClientT]], type[ClientT]]:
    """Give a client its docstring, and spell out its own arguments, for `help` and whoever inspects it.

    Args:
        base: the SDK's client.
        arguments: the types of all that the constructor takes.
    """

    def describe(client: type[ClientT]) -> type[ClientT]:
        init = vars(client)["__init__"]
        found = inspect.signature(init)
        self, model, more = found.parameters.values()
        own = {name: (option.default, TYPES[name]) for name, option in OWN.items()}
        own["http_client"] = (None, arguments.__annotations__["http_client"].__forward_arg__)
        spelt = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (default, annotation) in own.items()
        ]
        init.__signature__ = found.replace(parameters=[self, model, *spelt, more])
        client.__doc__ = _DOC.format(base=base, own=_described(), example=_EXAMPLES[base])
        return client

    return describe


def options_docstring(base: str) -> str:
    """The docstring of what makes an http client for a client of the SDK."""
    return _HTTP_DOC.format(base=base, own=_described(), example=_HTTP_EXAMPLES[base])


def _described() -> str:
    lines = [
        textwrap.fill(f"{name}: {option.doc}", 112, subsequent_indent=" " * 4) for name, option in DOCUMENTED.items()
    ]
    return textwrap.indent("\n".join(lines), " " * 8)


DOCUMENTED = {"model": MODEL, **OWN}
_DOC = """An `openai.{base}` that runs a local model in this process.

    Args:
{own}
        **options: the SDK's own constructor arguments. `timeout`, `default_headers`, `organization`, ... work as
            there; `api_key` is not needed; those that say where requests go (`base_url`, `http_client`, ...) are
            accepted and lead nowhere.

    Raises:
        BackendMissingError: MLX has no back end; the message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` is a path and no such thing is there.
        TypeError: an argument that neither this client nor the SDK has.
        ValueError: arguments that contradict each other, or a `store` that cannot be used.

    Example:
{example}
    """

_HTTP_DOC = """An http client for `openai.{base}(http_client=...)` whose requests a local model in this process answers.

    For code that builds its own client; `Local{base}` is faster. It goes by a request's path, whatever the address, and
    never uses the network. Closing it lets the model go.

    Args:
{own}
        timeout: seconds, or an `httpx.Timeout`, for requests that have none of their own; 600 by default.

    Raises:
        BackendMissingError: MLX has no back end; the message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` is a path and no such thing is there.
        TypeError: an option that does not exist.
        ValueError: options that contradict each other, or a `store` that cannot be used.

    Example:
{example}
    """

_EXAMPLES = {
    "OpenAI": """\
        >>> from localai_shim import LocalOpenAI
        >>> with LocalOpenAI() as client:  # or LocalOpenAI("mlx-community/Qwen3-8B-4bit")
        ...     client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'""",
    "AsyncOpenAI": """\
        >>> import asyncio
        >>> from localai_shim import AsyncLocalOpenAI
        >>> async def main():
        ...     async with AsyncLocalOpenAI() as client:
        ...         ask = [client.responses.create(model="any", input=f"What is {i} + 3?") for i in (2, 4)]
        ...         return [answer.output_text for answer in await asyncio.gather(*ask)]
        >>> len(asyncio.run(main()))
        2""",
}
_HTTP_EXAMPLES = {
    "OpenAI": """\
        >>> import openai
        >>> from localai_shim import http_client
        >>> with openai.OpenAI(api_key="unused", http_client=http_client()) as client:
        ...     client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'""",
    "AsyncOpenAI": """\
        >>> import asyncio, openai
        >>> from localai_shim import async_http_client
        >>> async def main():
        ...     async with openai.AsyncOpenAI(api_key="unused", http_client=async_http_client()) as client:
        ...         answer = await client.responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0)
        ...         return answer.output_text
        >>> asyncio.run(main())
        '2 + 3 = 5.'""",
}
