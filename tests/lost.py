"""Exceptions of streams whose connection is lost: the SDK's 2.x line does not make its own of httpx's."""

from __future__ import annotations

import openai

from localai_shim.sdk import private as sdk

STREAM_TIMEOUT: type[Exception] = openai.APITimeoutError if sdk.SERIES >= 3 else sdk.httpx.ReadTimeout  # type: ignore[attr-defined]
STREAM_CUT: type[Exception] = openai.APIConnectionError if sdk.SERIES >= 3 else sdk.httpx.RemoteProtocolError  # type: ignore[attr-defined]
