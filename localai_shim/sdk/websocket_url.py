"""The url of websockets, by which the SDK would reach some APIs past `request`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import openai

from ..errors import NotFound
from . import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx


@cache
def no_websocket_url() -> httpx.URL:
    """A url as any other, until another one is derived from it, as the SDK does where it opens a websocket.

    Raises:
        openai.NotFoundError: then.
    """
    url = httpx.URL(sdk.BASE_URL.replace("http", "ws", 1))
    parts: Any = url._uri_reference
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
