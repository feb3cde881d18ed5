"""The SDK's own clients, as other code makes and patches them: requests that were built, what replaces `request`, and
the URL by which the SDK would reach some APIs past it.

Beyond public names: the options of a request, the file that has the SDK's own `request`, `_client` of a client, its
wait before a retry, and the settings of the SDK's module with its module-level client.
"""

from __future__ import annotations

import email
import functools
import json
import re
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

import openai
from openai import _base_client
from openai._models import FinalRequestOptions

from ..errors import NotFound
from . import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx


SLEEP = "_sleep_for_retry"
"""The method of the SDK's clients that waits before a retry."""


def read_request(request: httpx.Request) -> sdk.RequestOptions:
    """The options of a request that the SDK, or anybody else, made for a server. Its content was read.

    Where servers have their API is left out of the path, as `/v1` and Azure's deployments are.
    """
    path, _, query = request.url.raw_path.decode().partition("?")
    params: dict[str, object] = {}
    for name, value in parse_qsl(query):
        if name.endswith("[]"):
            params[name] = [*cast(list[str], params.get(name, [])), value]
        elif name != "api-version":  # Azure's clients send it with every request
            params[name] = value
    body, files = _read_json(request), dict[str, tuple[str, bytes]]()
    if isinstance(body, dict):
        files = {name: body.pop(name) for name in [*body] if isinstance(body[name], tuple)}
    return FinalRequestOptions.construct(
        method=request.method,
        url=_API_ROOT.sub("", path, count=1),
        params=params,
        json_data=body,
        files=files,
        timeout=request.extensions.get("timeout", {}).get("read"),
        headers={name: value for name, value in request.headers.items() if name == sdk.RETRIES},
    )


def _read_json(request: httpx.Request) -> object:
    """The body; its text where it should be JSON and is not, which endpoints refuse; None for other types."""
    boundary = _BOUNDARY.match(request.headers.get("content-type", ""))
    if boundary is not None:
        return _read_multipart(request.content, (boundary[1] or boundary[2]).encode())
    try:
        return json.loads(request.content) if request.content else None
    except ValueError:
        is_json = "json" in request.headers.get("content-type", "json")
        return request.content.decode(errors="replace") if is_json else None


def _read_multipart(content: bytes, boundary: bytes) -> dict[str, object]:
    """The fields of a multipart body; a file is a tuple of its name and its bytes, `name[key]` is in an object, and
    `name[]` in an array.
    """
    found: dict[str, object] = {}
    for part in (b"\r\n" + content).split(b"\r\n--" + boundary)[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        headers = email.message_from_string(head.strip().decode(errors="replace"))
        name, filename = headers.get_param("name", header="content-disposition"), headers.get_filename()
        outer, _, inner = str(name).partition("[")
        value = data.decode(errors="replace") if filename is None else (filename, data)
        if inner == "]":
            cast(list[object], found.setdefault(outer, [])).append(value)
        elif inner:
            cast(dict[str, object], found.setdefault(outer, {}))[inner.rstrip("]")] = value
        else:
            found[outer] = value
    return found


_BOUNDARY = re.compile(r'multipart/form-data;.*boundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)
_API_ROOT = re.compile(
    r"^(?:(?:/.*?)?/(?:openai/)?deployments/[^/]+|/openai(?:/v1)?|(?:/.*?)?/(?:v1beta/openai|v1))(?=/)"
)


def is_wrapped(request: object) -> bool:
    """True if a client's `request`, as the SDK's class has it, is no longer the SDK's own: tracing tools replace it.

    A function that passes local clients on as they are says so with `stands_before`: itself, and the function that
    it has replaced. A wrapper around it may show its attributes as its own.
    """
    function = request.__func__ if type(request) is MethodType else request
    if type(function) is FunctionType and function.__code__.co_filename == _base_client.__file__:
        return False
    itself, before = getattr(function, "stands_before", (None, None))
    return itself is not function or is_wrapped(before)


def without_retries(options: sdk.RequestOptions) -> sdk.RequestOptions:
    """A copy of the options, without retries."""
    return options.model_copy(update={"max_retries": 0})


@functools.cache
def stock_client(asynchronous: bool) -> sdk.Client:
    """A stock client of the SDK that cannot send, to call its methods on."""
    made: Any = object.__new__(sdk.AsyncOpenAI if asynchronous else sdk.OpenAI)  # no hook in __init__ sees it
    made._client = (httpx.AsyncClient if asynchronous else httpx.Client)(transport=sdk._Refuse())
    return cast(sdk.Client, made)


def module_settings() -> dict[str, object]:
    """The settings of the SDK's module (`openai.api_key`, ...) and the client that it has made of them."""
    return {name: value for name, value in vars(openai).items() if name in openai.__annotations__}


def set_module_settings(settings: dict[str, object]) -> None:
    """Put them back."""
    vars(openai).update(settings)


def forget_module_client() -> None:
    """Make the SDK's module create a new client at its next use, of settings that say nothing of a server."""
    vars(openai).update(_client=None, http_client=None, api_type="openai")


@functools.cache
def no_websocket_url() -> httpx.URL:
    """A url as any other, until another one is derived from it, as the SDK does where it opens a websocket.

    Raises:
        openai.NotFoundError: then.
    """
    url = httpx.URL(sdk.BASE_URL.replace("http", "ws", 1))
    parts = url._uri_reference
    url._uri_reference = type("NoWebsocket", (_Underivable, type(parts)), {})(*parts)
    return url


class _Underivable:
    """The parts of a url, in front of httpx's own class of them."""

    def copy_with(self, **changes: object) -> _Underivable:
        if not changes:  # the url of a url
            return self
        error = NotFound(
            "Realtime and other websocket APIs do not exist: this client is local and never uses the network."
        )
        request = httpx.Request("GET", sdk.BASE_URL)
        response = httpx.Response(error.status, json=error.body(), request=request)
        raise openai.NotFoundError(str(error), response=response, body=error.body()["error"])
