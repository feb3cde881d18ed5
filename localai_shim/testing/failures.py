"""A scripted failure as the SDK's exception, made of what the service would have sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai

from .. import sdk
from ..errors import RequestError
from ..types import RowError
from .answers import Trouble

if TYPE_CHECKING:
    from ..call import Call


def exception(trouble: Trouble, call: Call, *, amid_stream: bool = False) -> Exception:
    """What the caller of a request gets.

    Args:
        trouble: what goes wrong; not a hang.
        call: the request.
        amid_stream: after the first event of a stream, where an error has no status any more.
    """
    if trouble.error is not None:
        return trouble.error
    if trouble.kind == "timeout":
        return openai.APITimeoutError(request=call.request)
    if trouble.kind == "connection":
        return openai.APIConnectionError(message=trouble.message, request=call.request)
    error = RequestError(
        trouble.message, trouble.param, trouble.code, trouble.status, trouble.type, dict(trouble.headers)
    )
    if not amid_stream:
        return sdk.status_error(call.client, error, call.request)
    if call.path.startswith("/responses"):
        return RowError(trouble.message)  # which becomes the stream's last events
    return openai.APIError(trouble.message, request=call.request, body=error.body()["error"])
