"""The request that a raw response shows, where what was asked holds pictures that are not JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..prompt.objects import holds_objects, with_data_urls
from . import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx


def make_request(client: sdk.Client, options: sdk.RequestOptions) -> httpx.Request:
    """Make a request like `sdk.make_request`, also where it holds objects."""
    if not sdk.is_raw(options) or not holds_objects((options.json_data, options.extra_json)):
        return sdk.make_request(client, options)
    bare = sdk.make_request(client, options.model_copy(update={"json_data": None, "extra_json": None}))
    return _LazyRequest(client, options, bare)


class _LazyRequest(httpx.Request):
    """All that the SDK would have sent, with data URLs for objects, which are made when its content is read."""

    def __init__(self, client: sdk.Client, options: sdk.RequestOptions, bare: httpx.Request) -> None:
        super().__init__(bare.method, bare.url, headers=bare.headers, content=_content(client, options))

    @property
    def content(self) -> bytes:
        return self.read()

    async def aread(self) -> bytes:
        return self.read()


def _content(client: sdk.Client, options: sdk.RequestOptions) -> Iterator[bytes]:
    parts = {name: with_data_urls(getattr(options, name), name) for name in ("json_data", "extra_json")}
    yield sdk.make_request(client, options.model_copy(update=parts)).content
