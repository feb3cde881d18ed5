"""A scripted failure as the SDK's exception, made of what the service would have sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai

from ..errors import RequestError
from ..sdk import private as sdk
from ..sdk.event_stream import CUT
from ..types import RowError
from .answers import Trouble

if TYPE_CHECKING:
    import httpx2 as httpx

    from ..client.call import Call
else:
    httpx = sdk.httpx


def exception(trouble: Trouble, call: Call, *, begun: bool = False) -> Exception:
    """Make the exception that the caller of a request gets.

    Args:
        trouble: what goes wrong; not a hang.
        call: the request.
        begun: after the first tokens of the answer. An error in the middle of a stream has no status any more.
    """
    if trouble.kind == "timeout":
        late = openai.APITimeoutError(request=call.request)
        late.__cause__ = httpx.ReadTimeout("timed out")
        return late
    if trouble.kind == "connection":
        lost = openai.APIConnectionError(message=trouble.message, request=call.request)
        lost.__cause__ = httpx.RemoteProtocolError(CUT) if begun else httpx.ConnectError("Connection refused")
        return lost
    error = trouble.error
    assert error is not None
    if not isinstance(error, RequestError) or trouble.kind == "raise":
        return error
    if not begun or not call.body.get("stream"):
        return sdk.status_error(call.client, error, call.request)
    if call.path.startswith("/responses"):
        return RowError(trouble.message)  # which becomes the stream's last events
    return openai.APIError(trouble.message, request=call.request, body=error.body()["error"])
