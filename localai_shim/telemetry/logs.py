"""The logger "localai_shim": its level and handler by `LOCALAI_SHIM_LOG`, and one line per request with its timings."""

from __future__ import annotations

import logging
import os
import sys

from ..types import log
from .timings import Served, between

VARIABLE = "LOCALAI_SHIM_LOG"
LEVELS = ("debug", "info", "warning", "error")


def follow_environment() -> None:
    """Set the logger's level to what `LOCALAI_SHIM_LOG` says, and have its lines on stderr if nothing takes them yet.

    Called when a client is made: importing the package changes nothing of the program's logging.
    """
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return
    if wanted not in LEVELS:
        log.warning("%s must be one of %s, not '%s': it has no effect", VARIABLE, ", ".join(LEVELS), wanted)
        return
    log.setLevel(wanted.upper())
    if not log.hasHandlers() and sys.stderr is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        log.addHandler(handler)


Fields = dict[str, str | int | float]
"""Of a line, by name: seconds, counts, words."""


def write(served: Served) -> None:
    """Write the line of a request that has ended."""
    endpoint = f"{served.method.upper()} {served.path}"
    model = {} if served.model is None else {"model": served.model}
    if served.timings.adapter is not None:
        model["adapter"] = served.timings.adapter
    fields: Fields = {**model, **_timings(served), "total": served.timings.seconds, **_outcome(served)}
    words = "".join(f" {name}={_shown(name, value)}" for name, value in fields.items())
    log.info("%s%s", endpoint, words, extra={"request": {"endpoint": endpoint, **fields}})


def _timings(served: Served) -> Fields:
    timings = served.timings
    if timings.queued is None:
        return {}
    stages = {
        "prepare": timings.queued - timings.started,
        "queued": timings.queue_seconds,
        "prefill": between(timings.begun, timings.first_token),
        "ttft": timings.first_token_seconds,
    }
    fields: Fields = {name: seconds for name, seconds in stages.items() if seconds is not None}
    fields |= {"in": timings.input_tokens, "cached": timings.cached_tokens, "out": timings.output_tokens}
    decoded = timings.output_tokens - timings.rows
    if timings.first_token is not None and decoded > 0:
        fields["tok/s"] = decoded / max((timings.finished or timings.ended) - timings.first_token, 1e-9)
    return fields


def _outcome(served: Served) -> Fields:
    """Outcome of a request: with the kind of an error, not its message, which may quote the request."""
    error = served.error
    if isinstance(error, GeneratorExit):
        return {"finish": "left"}
    if error is not None:
        found = {name: getattr(error, name, None) for name in ("param", "code")}
        return {"error": type(error).__name__, **{name: str(value) for name, value in found.items() if value}}
    reasons = ",".join(dict.fromkeys(served.timings.finish_reasons))
    return {"finish": reasons} if reasons else {}


def _shown(name: str, value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if name == "tok/s" else f"{value * 1000:.1f}ms"
    return str(value)
