"""The url of websockets, by which the SDK would reach some APIs past `request`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import sdk
from .errors import NotFound

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx


class NoWebsocketURL(str):
    """Stands where the SDK looks for the url of websockets: it may be looked at, and raises when it is parsed.

    The SDK reaches some APIs over a websocket, past `request`. httpx looks at a url's length before all else.
    """

    client: sdk.Client

    def __new__(cls, client: sdk.Client) -> NoWebsocketURL:
        made = super().__new__(cls, sdk.BASE_URL.replace("http", "ws", 1))
        made.client = client
        return made

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        error = NotFound(
            "Realtime and other websocket APIs do not exist: this client is local and never uses the network."
        )
        raise sdk.status_error(self.client, error, httpx.Request("GET", sdk.BASE_URL))
