"""All private names of the SDK that we use, in one place; tests/test_sdk.py fails loudly when one moves.

Private names used: `_process_response` and `_process_response_data` (a response -> what the caller gets),
`_maybe_override_cast_to`, `_build_request`, `_validate_headers`, `_make_status_error_from_response`, `_should_retry`,
`_calculate_retry_timeout`, `openapi_dumps` (a body -> the bytes that are sent), and `Stream.__stream__`.
stock_clients.py has some more.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import operator
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from numbers import Real
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin

import openai
from openai import AsyncStream, Stream
from openai._models import FinalRequestOptions
from openai._utils._json import openapi_dumps as openapi_dumps  # a body as the SDK sends it
from openai.types import CreateEmbeddingResponse
from openai.types.responses import Response

from ..errors import BadRequest, RequestError

SERIES = int(openai.__version__.partition(".")[0])
"""Of the SDK: 3, or 2."""

if TYPE_CHECKING:
    import httpx2 as httpx

    from ..runtime.engines import Runtime
else:
    httpx = importlib.import_module("httpx2" if SERIES >= 3 else "httpx")
    # The SDK's 2.x line looks into httpx2 wherever it stands in sys.modules, also while a model's thread imports it.
    with contextlib.suppress(ImportError):
        importlib.import_module("httpx2")

T = TypeVar("T")
RequestOptions = FinalRequestOptions
# The SDK's own classes: a program may put ours, or others, in their place in `openai`.
OpenAI = openai.OpenAI
AsyncOpenAI = openai.AsyncOpenAI
Client = OpenAI | AsyncOpenAI
TransportError = httpx.TransportError

Timeout = openai.Timeout | float | None

BASE_URL = "http://localhost:0/v1/"  # port 0 cannot be connected to


# -- requests and responses -----------------------------------------------------------------------------------------


_RAW = "X-Stainless-Raw-Response"  # set by with_raw_response ("true" or "raw") and with_streaming_response ("stream")


def make_request(client: Client, options: RequestOptions) -> httpx.Request:
    """The request of a call: where the caller gets the raw response, all that the SDK would have sent.

    Elsewhere it is without body and default headers: making a large body's JSON would keep an event loop waiting.
    """
    headers = {str(k): str(v) for k, v in (options.headers or {}).items() if isinstance(v, str)}
    if _RAW in headers:
        with contextlib.suppress(Exception):  # a body without JSON, a wrong header: the call itself says so
            return client._build_request(options)
    return httpx.Request(options.method.upper(), _url(str(options.url)), headers=headers)


def is_raw(options: RequestOptions) -> bool:
    """True if the caller gets the raw response."""
    return _RAW in (options.headers or {})


def is_read_in_pieces(request: httpx.Request) -> bool:
    """True if the caller reads the response as it comes: `with_streaming_response`."""
    return bool(request.headers.get(_RAW) == "stream")


def stock_class(cls: type) -> type:
    """The SDK's own client that a class derives from."""
    return AsyncOpenAI if issubclass(cls, AsyncOpenAI) else OpenAI


def user_agent(client: Client) -> str:
    """Name that a client of the SDK gives itself."""
    return f"{stock_class(type(client)).__name__}/Python {openai.__version__}"


@functools.lru_cache(maxsize=64)
def _url(url: str) -> httpx.URL:
    return httpx.URL(url) if "://" in url else httpx.URL(BASE_URL).join(url.lstrip("/"))


def answer_headers(content_type: str) -> dict[str, str]:
    """Those that every answer has."""
    return {
        "content-type": content_type,
        "x-request-id": f"req_{secrets.token_hex(16)}",
        "openai-version": "2020-10-01",
        "openai-processing-ms": "0",
    }


def raw_fields(answer: object) -> object:
    """The JSON of an answer or event; times are integers, of which the SDK's types make floats."""
    if not isinstance(answer, openai.BaseModel):
        return answer
    if isinstance(answer, CreateEmbeddingResponse):  # serialising it would warn of vectors in base64
        return {**dict(answer), "data": [dict(vector) for vector in answer.data], "usage": dict(answer.usage)}
    fields = answer.to_dict(mode="json")
    response = fields.get("response", fields)
    for name in ("created_at", "completed_at"):
        if isinstance(response, dict) and isinstance(response.get(name), float):
            response[name] = int(response[name])
    return fields


def raw_json(answer: object) -> bytes:
    """An answer or event, as a server sends it."""
    if isinstance(getattr(answer, "response", answer), Response | CreateEmbeddingResponse):
        answer = raw_fields(answer)
    if isinstance(answer, openai.BaseModel):
        return answer.to_json(indent=None).encode()
    return json.dumps(answer, separators=(",", ":")).encode()


_CREATE = {
    "/chat/completions": "chat.completions.create",
    "/completions": "completions.create",
    "/embeddings": "embeddings.create",
    "/audio/transcriptions": "audio.transcriptions.create",
    "/audio/translations": "audio.translations.create",
    "/audio/speech": "audio.speech.create",
    "/responses": "responses.create",
    "/responses/input_tokens": "responses.input_tokens.count",
    "/responses/compact": "responses.compact",
    "/conversations": "conversations.create",
}


def newer_argument(client: Client, path: str, name: str | None) -> str:
    """Hint for the refusal of an unknown field that the installed SDK has as an argument; else nothing."""
    try:
        known = inspect.signature(operator.attrgetter(_CREATE[path])(client)).parameters
    except (KeyError, AttributeError, TypeError, ValueError):  # no such method, or something stands in its place
        return ""
    if name not in known:
        return ""
    return f" It is an argument of openai {openai.__version__}, which is newer than this version of localai_shim."


class LocalResponse(httpx.Response):
    """A whole answer: the object, and its JSON for code that reads the response itself.

    It is open until it is read if the request asks for the response as a stream. Where the SDK would make the same
    object of the JSON again, that is made only if it is read.

    Args:
        answer: an SDK object, what `json.dumps` takes, the bytes of a file, or a plain text.
        cast_to: what the SDK makes of it; None: this is not known.
    """

    def __init__(self, answer: object, *, request: httpx.Request, seconds: float = 0.0, cast_to: object = None) -> None:
        if isinstance(answer, bytes | str):
            kind = "application/octet-stream" if isinstance(answer, bytes) else "text/plain; charset=utf-8"
            later, content = False, answer if isinstance(answer, bytes) else answer.encode()
        else:
            later, kind = type(answer) is cast_to and _RAW not in request.headers, "application/json"
            content = b"" if later else raw_json(answer)
        headers = answer_headers(kind)
        self._later: object = answer if later else None
        if request.headers.get(_RAW) == "stream":
            headers["content-length"] = str(len(content))
            super().__init__(200, headers=headers, stream=httpx.ByteStream(content), request=request)
        else:
            super().__init__(200, headers=headers, content=content, request=request)
        self.elapsed = timedelta(seconds=seconds)
        self.local_model = answer if isinstance(answer, openai.BaseModel) else None

    @property
    def content(self) -> bytes:
        if getattr(self, "_later", None) is not None:
            self._content, self._later = raw_json(self._later), None
        return super().content

    def json(self, **options: object) -> object:
        """The answer, or `LATER`: what the SDK makes of it is mostly not looked at."""
        return LATER if self._later is not None else super().json(**options)


LATER = object()
"""Stands for an answer of which no JSON was made: `response.content` makes it."""


# -- streams --------------------------------------------------------------------------------------------------------


class LocalStream(Stream[T]):
    """A `Stream` whose items are the objects that the endpoint made, with no JSON between."""

    def __stream__(self) -> Iterator[T]:
        events = getattr(self.response, "local_events", None)
        return super().__stream__() if events is None else events  # an iterator that does not hold this stream

    def __iter__(self) -> Iterator[T]:
        """The source itself, without the SDK's generator around it."""
        return self._iterator

    def close(self) -> None:
        """Close the response, and the generator of a tracing tool that reads it.

        The garbage collector would end the generator later, on any thread: its span would be late, and Python 3.11
        may crash if that changes a context variable while another one is set.
        """
        super().close()
        if inspect.isgenerator(source := self._iterator):
            try:
                source.close()
            except ValueError:  # another thread reads: the closed response ends the generator
                if not source.gi_running:
                    raise


class LocalAsyncStream(AsyncStream[T]):
    """Async form of `LocalStream`."""

    def __stream__(self) -> AsyncIterator[T]:
        events = getattr(self.response, "local_events", None)
        return super().__stream__() if events is None else events

    def __aiter__(self) -> AsyncIterator[T]:
        """The source itself: the SDK's generator around it costs as much as waking a task."""
        return self._iterator

    async def close(self) -> None:
        """Close the response, and the generator of a tracing tool that reads it."""
        await super().close()
        if inspect.isasyncgen(source := self._iterator) and not source.ag_running:  # another task reads
            await source.aclose()


def localise(stream_cls: Any) -> object:
    """The stream class that the caller or a tracing tool asked for, with ours between it and the SDK's.

    Not cached: Logfire makes a class for each call, and a cache would keep the class with all that it refers to.
    """
    if stream_cls is None:
        return None
    origin = get_origin(stream_cls) or stream_cls
    local = LocalStream if issubclass(origin, Stream) else LocalAsyncStream
    if issubclass(origin, local):
        return stream_cls
    if origin in (Stream, AsyncStream):
        return local[get_args(stream_cls)[0]]
    return type(origin.__name__, (origin, local), {"__module__": origin.__module__})


# -- http clients that refuse ---------------------------------------------------------------------------------------


class _Refuse(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """No holder of the client may reach the network."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        refuse(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        refuse(request)


def refuse(request: httpx.Request) -> NoReturn:
    """Send nothing."""
    raise httpx.ConnectError("localai_shim runs in this process and never uses the network", request=request)


class LocalHttpClient(httpx.Client):
    """Takes the place of the SDK's http client. Copies of an OpenAI client share it, with the models behind it.

    Building it makes no SSL context, which takes about 20 ms.

    Args:
        runtime: closed with it.
        transport: what answers.
        timeout: of requests that set none.
    """

    def __init__(self, runtime: Runtime, transport: httpx.BaseTransport, timeout: Timeout) -> None:
        super().__init__(transport=transport, timeout=timeout)
        self.runtime = runtime

    def close(self) -> None:
        self.runtime.close()
        super().close()


class LocalAsyncHttpClient(httpx.AsyncClient):
    """Async form of `LocalHttpClient`."""

    def __init__(self, runtime: Runtime, transport: httpx.AsyncBaseTransport, timeout: Timeout) -> None:
        super().__init__(transport=transport, timeout=timeout)
        self.runtime = runtime

    async def aclose(self) -> None:
        self.runtime.close()
        await super().aclose()


# -- errors and time ------------------------------------------------------------------------------------------------


def status_error(client: Client, error: RequestError, request: httpx.Request) -> openai.APIStatusError:
    """The SDK's own exception for one of this package, made the way that the SDK makes it from a response."""
    headers = {**answer_headers("application/json"), **error.headers}
    response = httpx.Response(error.status, headers=headers, json=error.body(), request=request)
    response.elapsed = timedelta(0)
    return client._make_status_error_from_response(response)


RETRIES = "x-stainless-retry-count"


def retry_delay(client: Client, options: RequestOptions, taken: int, response: httpx.Response | None) -> float | None:
    """Seconds after which the SDK would ask again, after this number of retries; None: it would not.

    Args:
        response: what the request failed with; None: nothing came.
    """
    remaining = options.get_max_retries(client.max_retries) - taken
    if remaining <= 0 or (response is not None and not client._should_retry(response)):
        return None
    return client._calculate_retry_timeout(remaining, options, None if response is None else response.headers)


def as_retry(options: RequestOptions, taken: int) -> RequestOptions:
    """A request's options with the header by which the SDK counts its retries."""
    return options.model_copy(update={"headers": {**(options.headers or {}), RETRIES: str(taken)}})


def with_body_field(options: RequestOptions, name: str, value: object) -> RequestOptions:
    """A request's options with one more field in the body, unless it has one or is not an object."""
    if options.method.lower() != "post" or not isinstance(options.json_data, dict) or name in options.json_data:
        return options
    return options.model_copy(update={"extra_json": {name: value, **(options.extra_json or {})}})


def retries_taken(options: RequestOptions) -> int:
    """Number of retries that came before a request, by its header."""
    count = (options.headers or {}).get(RETRIES, "0")
    return int(count) if isinstance(count, str) and count.isdecimal() else 0


def seconds(client: Client, options: RequestOptions) -> float | None:
    """Seconds that a call waits: for the whole answer, or between two chunks of a stream. None waits for ever.

    Raises:
        BadRequest: the timeout is none.
    """
    timeout = client.timeout if isinstance(options.timeout, openai.NotGiven) else options.timeout
    try:
        return read_seconds(timeout)
    except ValueError as error:
        raise BadRequest.invalid("timeout", str(error)) from None


def timeout_of(foreign: object) -> httpx.Timeout | float:
    """The timeout of an http client that the caller brought: the SDK takes it over, and so do we."""
    return getattr(foreign, "timeout", 5.0)


def read_seconds(timeout: object) -> float | None:
    """A timeout of the SDK as seconds; None: for ever, or longer than a thread can wait.

    Raises:
        ValueError: it is none.
    """
    value = getattr(timeout, "read", timeout)
    if value is None:
        return None
    if not isinstance(value, Real) or not float(value) >= 0:  # NaN is not
        raise ValueError(f"'timeout' must be seconds (0 or more), an httpx.Timeout or None, not {timeout!r}.")
    return float(value) if float(value) < TIMEOUT_MAX else None
