"""One line in the log per request, with its timings; nothing of what it says."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openai import BaseModel

from .endpoints.assembler import Assembler
from .types import GenerationRequest, Token, log

if TYPE_CHECKING:
    from .endpoints.prepared import Prepared

Fields = dict[str, str | int | float]
"""Of a line, by name: seconds, counts, words."""


def record_of(method: str, path: str, started: float) -> RequestRecord | None:
    """What a request's line will say; None while nobody wants to see these.

    Args:
        started: when the request came, in seconds of `time.monotonic`.
    """
    return RequestRecord(f"{method.upper()} {path}", started) if log.isEnabledFor(logging.INFO) else None


class RequestRecord:
    """What becomes of one request: written once, when it has ended in whatever way."""

    def __init__(self, endpoint: str, started: float) -> None:
        self._endpoint, self._started = endpoint, started
        self._model: str | None = None
        self._requests: Sequence[GenerationRequest] = ()
        self._submitted = started
        self._first: float | None = None
        self._tokens = 0
        self._reasons: dict[str, None] = {}
        self._written = self._in_background = False

    def watch(self, prepared: Prepared, model: str) -> None:
        """Have tokens counted on their way into the answer, by whoever takes them."""
        self._model, self._requests, self._submitted = model, prepared.requests, time.monotonic()
        prepared.assembler = watched = _Watched(prepared.assembler, self)
        if prepared.run is not None:
            self._in_background = True
            prepared.run.assembler = watched  # type: ignore[assignment]  # it delegates what it has not

    def count(self, token: Token) -> None:
        """Count the next token of a row."""
        if self._first is None:
            self._first = time.monotonic()
        self._tokens += 1
        if token.finish_reason is not None:
            self._reasons[token.finish_reason] = None

    def answered(self) -> None:
        """Write the line of a request whose answer was given whole, unless that goes on in the background."""
        if not self._in_background:
            self.end()

    def fail(self, error: BaseException) -> None:
        """Write the line of one that failed: with the kind of error, not its message, which may quote the request."""
        found = {name: getattr(error, name, None) for name in ("param", "code")}
        self.end(error=type(error).__name__, **{name: str(value) for name, value in found.items() if value})

    def end(self, **outcome: str) -> None:
        """Write the line, unless it is written."""
        if self._written:
            return
        self._written = True
        if not outcome and self._reasons:
            outcome = {"finish": ",".join(self._reasons)}
        fields = {**self._fields(time.monotonic()), **outcome}
        self._requests = ()
        words = "".join(f" {name}={_shown(name, value)}" for name, value in fields.items())
        log.info("%s%s", self._endpoint, words, extra={"request": {"endpoint": self._endpoint, **fields}})

    def _fields(self, now: float) -> Fields:
        fields: Fields = {} if self._model is None else {"model": self._model}
        if self._requests:
            fields |= self._timings(now)
        return {**fields, "total": now - self._started}

    def _timings(self, now: float) -> Fields:
        """Of the rows: prompts that choices share are one."""
        prompts = list({id(request.prompt): request.prompt for request in self._requests}.values())
        began = min((prompt.began for prompt in prompts if prompt.began is not None), default=None)
        first, fields = self._first, Fields(prepare=self._submitted - self._started)
        if began is not None:
            fields["queued"] = max(0.0, began - self._submitted)
        if first is not None:
            if began is not None:
                fields["prefill"] = max(0.0, first - began)
            fields["ttft"] = first - self._started
        fields["in"] = sum(len(prompt.tokens) for prompt in prompts)
        fields["cached"] = sum(prompt.cached_tokens or 0 for prompt in prompts)
        fields["out"] = self._tokens
        decoded = self._tokens - len(self._requests)
        if first is not None and decoded > 0:
            fields["tok/s"] = decoded / max(now - first, 1e-9)
        return fields


class _Watched(Assembler[BaseModel]):
    """An assembler whose tokens are counted on their way to it."""

    def __init__(self, inner: Assembler[BaseModel], record: RequestRecord) -> None:
        super().__init__()
        self._inner, self._record = inner, record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def finished(self) -> bool:  # type: ignore[override]
        return self._inner.finished

    @property
    def keeps(self) -> bool:
        return self._inner.keeps

    def begin(self) -> Sequence[BaseModel]:
        return self._inner.begin()

    def feed(self, index: int, token: Token) -> Sequence[BaseModel]:
        self._record.count(token)
        events = self._inner.feed(index, token)
        if token.finish_reason is not None and self._inner.finished:
            self._record.end()
        return events

    def collect(self, index: int, token: Token) -> None:
        self._record.count(token)
        self._inner.collect(index, token)

    def fail(self, error: Exception) -> Sequence[BaseModel] | None:
        events = self._inner.fail(error)
        if events is not None:  # otherwise the consumer gets an exception, which says more
            self._record.fail(error)
        return events

    def result(self) -> BaseModel:
        return self._inner.result()

    def save(self) -> None:
        self._inner.save()

    def left(self) -> None:
        if sys.exception() is None:  # otherwise whoever handles it says what it was
            self._record.end(finish="left")

    def __del__(self) -> None:
        self._record.end(finish="left")


def _shown(name: str, value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if name == "tok/s" else f"{value * 1000:.1f}ms"
    return str(value)
