"""Arguments of the clients' constructors: their own options and the SDK's."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import openai

from ..options import MODEL, OWN, TYPES, LocalOptions
from ..sdk import private as sdk
from .foreign_arguments import explain_argument

if TYPE_CHECKING:
    import httpx2 as httpx
    from openai._client import DataResidency
    from openai._provider import _Provider
    from openai.auth import WorkloadIdentity, X509WorkloadIdentity

ClientT = TypeVar("ClientT")
DocumentedT = TypeVar("DocumentedT", bound=Callable[..., object])


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


def copy_arguments(given: Mapping[str, object]) -> dict[str, object]:
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
    stock = inspect.signature(sdk.stock_class(cls)).parameters
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
        ValueError: the option is one that only clients have.
    """
    if given.get("record_timeline"):
        raise ValueError(
            f"`record_timeline` has no effect with {function}(): pass it to LocalOpenAI or AsyncLocalOpenAI"
        )
    for name in given:
        if name not in OWN:
            _refuse_argument(function, name, ["model", "timeout", *OWN])


def _refuse_argument(function: str, name: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1)
    hint = explain_argument(name) or (f"Did you mean '{near[0]}'?" if near else "")
    raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{'. ' if hint else ''}{hint}")


# -- what people and tools read -------------------------------------------------------------------------------------


def described(arguments: type) -> Callable[[type[ClientT]], type[ClientT]]:
    """Complete a client's docstring, and spell out its own arguments, for `help` and editors.

    Args:
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
        return with_options_described(client)

    return describe


def with_options_described(documented: DocumentedT) -> DocumentedT:
    """Insert the options that all local clients share at the top of a docstring's `Args`."""
    lines = [
        textwrap.fill(f"{name}: {option.doc}", 112, subsequent_indent=" " * 4, break_on_hyphens=False)
        for name, option in DOCUMENTED.items()
    ]
    text = documented.__doc__ or ""
    head, heading, rest = text.partition("Args:\n")
    margin = " " * (len(rest) - len(rest.lstrip()))  # Python 3.13 removes some of it
    documented.__doc__ = head + heading + textwrap.indent("\n".join(lines), margin) + "\n" + rest
    return documented


DOCUMENTED = {"model": MODEL, **OWN}
