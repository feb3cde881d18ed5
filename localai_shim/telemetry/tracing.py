"""Reports requests to OpenTelemetry: a span of the engine's work, and a server's metrics.

Names are those of the semantic conventions for generative AI, where these have one, and `localai_shim.` otherwise.
Imported only where the program has imported OpenTelemetry. Nothing is exported but through the providers that it set.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from ..stats import EngineStats
from ..threads.system import HeldLock, Lock
from ..types import VERSION, EngineError, EngineLike
from .timings import Observer, RequestTimings, Served

NAME = "localai_shim"
PROVIDER = "mlx"
CANCELLED = "cancelled"
"""`error.type` where the caller stopped reading, or its task was cancelled."""

# As the conventions advise, in seconds.
REQUEST_BUCKETS = [0.01 * 2**i for i in range(14)]
FIRST_TOKEN_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
PER_TOKEN_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
ROWS_BUCKETS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]

_REQUEST_FIELDS: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "stream": bool,
    **dict.fromkeys(("n", "max_tokens", "max_completion_tokens", "max_output_tokens", "top_k", "seed"), int),
    **dict.fromkeys(("temperature", "top_p", "frequency_penalty", "presence_penalty"), (int, float)),
}
_OTHER_NAMES = {"n": "choice.count", "max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}
_AGENTS = {"invoke_agent", "create_agent", "invoke_workflow", "execute_tool"}
Attributes = dict[str, Any]
ProviderT = TypeVar("ProviderT")
MadeT = TypeVar("MadeT")


def observer() -> Observer | None:
    """An observer for a request that begins now, under the caller's span; None if no spans or metrics are collected."""
    if _is_disabled():
        return None
    here = context.get_current()
    if context.get_value("suppress_instrumentation", here):
        # Tools suppress whatever else would make a span of the call that theirs is about; ours is about something else.
        caller = trace.get_current_span(here)
        if not _is_inference(caller):
            return None
        here = trace.set_span_in_context(caller, context.Context())
    spans, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    tracer = None if _is_idle(spans, trace) else _tracer(spans)
    instruments = None if _is_idle(meters, metrics) else _instruments(meters)
    if tracer is None and instruments is None:
        return None

    def tell(served: Served) -> None:
        inner, token = here, context.attach(here)
        try:
            if tracer is not None:
                inner = trace.set_span_in_context(_make_span(tracer, here, served), here)
            if instruments is not None:
                instruments.record(served, inner)
        finally:
            context.detach(token)

    return tell


@functools.cache
def _is_disabled() -> bool:
    names = os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "")
    return NAME in [name.strip() for name in names.split(",")]


def _is_idle(provider: object, api: ModuleType) -> bool:
    """True if no SDK was set up: the provider is one of the API's own, which do nothing."""
    return type(provider).__module__.startswith(api.__name__)


def _made_once(make: Callable[[ProviderT], MadeT]) -> Callable[[ProviderT], MadeT]:
    """Keep what `make` returns for the latest provider. By identity: Logfire's providers cannot be hashed."""
    turn = HeldLock()
    latest: tuple[ProviderT, MadeT] | None = None

    def made(provider: ProviderT) -> MadeT:
        nonlocal latest
        known = latest
        if known is None or known[0] is not provider:
            with turn:  # two threads would register each gauge twice
                if (known := latest) is None or known[0] is not provider:
                    known = latest = provider, make(provider)
        return known[1]

    return made


@_made_once
def _tracer(provider: trace.TracerProvider) -> trace.Tracer:
    return provider.get_tracer(NAME, VERSION)


# -- the span -------------------------------------------------------------------------------------------------------


def _make_span(tracer: trace.Tracer, here: context.Context, served: Served) -> Span:
    """The span of a request that has ended, with the times at which things happened."""
    timings, offset = served.timings, time.time_ns() - round(time.monotonic() * 1e9)

    def wall(seconds: float) -> int:
        return round(seconds * 1e9) + offset

    attributes = {"gen_ai.provider.name": PROVIDER, **_response(served)}
    if not _is_inference(trace.get_current_span(here)):
        attributes |= {"gen_ai.operation.name": served.operation, **_request(served.body), **_usage(served)}
    name = f"engine {served.model}" if served.model else "engine"
    span = tracer.start_span(name, here, SpanKind.INTERNAL, attributes=attributes, start_time=wall(timings.started))
    if span.is_recording():
        span.set_attributes(_measured(timings))
        for event, at in (
            ("queued", timings.queued),
            ("prefill_started", timings.begun),
            ("prefill_finished", timings.prefilled),
            ("first_token", timings.first_token),
            ("finished", timings.finished),
        ):
            if at is not None:
                span.add_event(f"{NAME}.{event}", timestamp=wall(at))
        if served.error is not None:
            span.set_attribute("error.type", error_type(served.error))
            left = "the stream was closed, dropped or cancelled before its end"
            text = left if isinstance(served.error, GeneratorExit) else str(served.error)
            span.set_status(Status(StatusCode.ERROR, text))
    span.end(wall(timings.ended))
    return span


def _is_inference(span: Span) -> bool:
    """The caller's span is that of a model's call and has its usage, which would be counted twice with ours."""
    attributes: Mapping[str, object] = getattr(span, "attributes", None) or {}
    if attributes.get("gen_ai.operation.name") in _AGENTS:
        return False
    kind = attributes.get("openinference.span.kind", "LLM")
    return kind == "LLM" and ("gen_ai.request.model" in attributes or "openinference.span.kind" in attributes)


def _request(body: Mapping[str, object]) -> Attributes:
    out: Attributes = {}
    for field, kind in _REQUEST_FIELDS.items():
        value = body.get(field)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            out[f"gen_ai.request.{_OTHER_NAMES.get(field, field)}"] = value
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop
    if isinstance(stops, list) and stops and all(isinstance(each, str) for each in stops):
        out["gen_ai.request.stop_sequences"] = stops
    conversation = body.get("conversation")
    id = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    more = {"conversation.id": id if isinstance(id, str) else None, "output.type": _output_type(body)}
    return out | _named("gen_ai", more)


def _output_type(body: Mapping[str, object]) -> str | None:
    """Type of output that is asked for, where the caller says so: `text` or `json`."""
    text = body.get("text")
    format = body.get("response_format") or (text.get("format") if isinstance(text, Mapping) else None)
    kind = format.get("type") if isinstance(format, Mapping) else None
    return {"text": "text", "json_object": "json", "json_schema": "json"}.get(str(kind))


def _response(served: Served) -> Attributes:
    reasons = served.timings.finish_reasons or None
    return _named("gen_ai.response", {"model": served.model, "id": served.answer_id, "finish_reasons": reasons})


def _named(prefix: str, found: Mapping[str, object]) -> Attributes:
    """Attributes of what is known."""
    return {f"{prefix}.{name}": value for name, value in found.items() if value is not None}


def _usage(served: Served) -> Attributes:
    if not served.timings.input_tokens:  # it was refused
        return {}
    usage = {"gen_ai.usage.input_tokens": served.timings.input_tokens}
    if served.timings.rows:
        usage["gen_ai.usage.output_tokens"] = served.timings.output_tokens
        usage["gen_ai.usage.cache_read.input_tokens"] = served.timings.cached_tokens
        usage["gen_ai.usage.reasoning.output_tokens"] = served.timings.reasoning_tokens
    return usage


def _tokens(timings: RequestTimings) -> dict[str, int]:
    """Tokens of a request, by what they were; of one that generates none, those of its input."""
    found = {"input": timings.input_tokens} if timings.input_tokens else {}
    if timings.rows:
        found |= {
            "cached": timings.cached_tokens,
            "media": timings.media_tokens,
            "output": timings.output_tokens,
            "drafted": timings.drafts.drafted,
            "accepted": timings.drafts.accepted,
        }
    return found


def _measured(timings: RequestTimings) -> Attributes:
    """Figures that only the engine knows."""
    found = {
        "time_to_first_token": timings.first_token_seconds,
        "time_per_output_token": timings.seconds_per_token,
        "queue_time": timings.queue_seconds,
        "prefill_time": timings.prefill_seconds,
        "batch_rows": timings.batch_rows,
        "adapter": timings.adapter,
        **{f"{name}_tokens": count for name, count in _tokens(timings).items()},
    }
    return _named(NAME, found)


def error_type(error: BaseException) -> str:
    """Text for `error.type`."""
    name = type(error).__name__
    return CANCELLED if isinstance(error, GeneratorExit) or name in ("CancelledError", "Cancelled") else name


# -- metrics --------------------------------------------------------------------------------------------------------


_HISTOGRAMS = {
    "seconds": ("gen_ai.server.request.duration", "s", "From the call to the end of the answer", REQUEST_BUCKETS),
    "first_token_seconds": (
        "gen_ai.server.time_to_first_token",
        "s",
        "From the call to the first token",
        FIRST_TOKEN_BUCKETS,
    ),
    "seconds_per_token": ("gen_ai.server.time_per_output_token", "s", "Between two tokens of a row", PER_TOKEN_BUCKETS),
    "queue_seconds": (f"{NAME}.queue.duration", "s", "Waiting for a request's turn", FIRST_TOKEN_BUCKETS),
    "batch_rows": (f"{NAME}.batch.rows", "{row}", "Rows that decoded together, the mean of a request", ROWS_BUCKETS),
}
"""By what they show of `RequestTimings`."""


class _Instruments(NamedTuple):
    histograms: dict[str, metrics.Histogram]
    tokens: metrics.Counter
    kept: Sequence[object]
    """The meter and its gauges: Logfire forgets those without a reference when it is configured again."""

    def record(self, served: Served, here: context.Context) -> None:
        """Record a request that has ended; `here` holds its span, for exemplars."""
        timings = served.timings
        if served.engine is not None:
            with _engines_lock:
                _engines.add(served.engine)
        asked = served.body.get("model")
        models = {"request.model": asked if isinstance(asked, str) else None, "response.model": served.model}
        labels = _named("gen_ai", {"operation.name": served.operation, "provider.name": PROVIDER, **models})
        failed = {} if served.error is None else {"error.type": error_type(served.error)}
        for name, histogram in self.histograms.items():
            if (value := getattr(timings, name)) is not None:
                histogram.record(value, labels | failed if name == "seconds" else labels, here)
        for kind, count in _tokens(timings).items():
            if count:
                self.tokens.add(count, labels | {f"{NAME}.token.type": kind}, here)


@_made_once
def _instruments(provider: metrics.MeterProvider) -> _Instruments:
    meter = provider.get_meter(NAME, VERSION)

    rows = meter.create_observable_gauge(f"{NAME}.rows", [_rows], "{row}", "Rows that decode, and rows that wait")
    about = "What engines hold beside their models' weights"
    memory = meter.create_observable_gauge(f"{NAME}.memory", [_memory], "By", about)
    histograms = {
        name: meter.create_histogram(*how, explicit_bucket_boundaries_advisory=buckets)
        for name, (*how, buckets) in _HISTOGRAMS.items()
    }
    tokens = meter.create_counter(f"{NAME}.tokens", "{token}", "Tokens of requests that have ended, by what they were")
    return _Instruments(histograms, tokens, (meter, rows, memory))


# -- of engines -----------------------------------------------------------------------------------------------------

_engines: weakref.WeakSet[EngineLike] = weakref.WeakSet()
_engines_lock = Lock()


def _observed(kind: str, read: Callable[[EngineStats], Mapping[str, int]]) -> Iterator[metrics.Observation]:
    """Read the current figures of the engines that served requests. Runs on the thread that reads the metrics."""
    with _engines_lock:
        engines = [engine for engine in _engines if not engine.is_closed]
    found: Counter[tuple[str, str]] = Counter()
    for engine in engines:
        with contextlib.suppress(EngineError):  # it is closed meanwhile
            model = engine.model.name
            for name, value in read(engine.stats()).items():
                found[model, name] += value
    for (model, name), value in found.items():
        yield metrics.Observation(value, {"gen_ai.response.model": model, f"{NAME}.{kind}": name})


def _rows(_: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    return _observed("row.state", lambda stats: {"running": stats.running, "waiting": stats.waiting})


def _memory(_: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    return _observed(
        "memory.use",
        lambda stats: {"rows": stats.kv_bytes, "prefix_cache": stats.cache_bytes, "media": stats.feature_bytes},
    )
