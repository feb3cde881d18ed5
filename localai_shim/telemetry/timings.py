"""Timings of a request, made of those of its rows, and what observers of requests are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..stats import NO_DRAFTS, DraftCounts, RowTimings
from ..types import EngineError, EngineLike, Work


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Timings of one request with all of its rows. Seconds of `time.monotonic`; None: that stage was not reached."""

    started: float
    """The client was called."""
    ended: float
    """The answer was complete, failed, or was given up."""
    queued: float | None = None
    """The request was read, and submitted to the engine."""
    begun: float | None = None
    """Its prompt began to be run."""
    prefilled: float | None = None
    """Its first row joined the batch."""
    first_token: float | None = None
    finished: float | None = None
    """Its last row had its last token."""
    seconds_per_token: float | None = None
    """Between two tokens of a row."""
    input_tokens: int = 0
    """Of its prompts, each counted once however many choices it has."""
    cached_tokens: int = 0
    """Those that the prefix cache had."""
    media_tokens: int = 0
    """Those that stand for images, videos and sounds."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Those of them that are no part of the content."""
    batch_rows: float | None = None
    """Rows that decoded together: the mean."""
    drafts: DraftCounts = NO_DRAFTS
    adapter: str | None = None
    """The name of the LoRA adapter that it used."""
    rows: int = 0
    finish_reasons: tuple[str, ...] = ()
    """Of its choices, as the caller got them; of its rows, as the engine says, where the answer did not end."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def queue_seconds(self) -> float | None:
        """Seconds in the queue."""
        return between(self.queued, self.begun)

    @property
    def prefill_seconds(self) -> float | None:
        """Seconds in which its prompt was prefilled, among other work."""
        return between(self.begun, self.prefilled)

    @property
    def first_token_seconds(self) -> float | None:
        """From the call until the first token."""
        return between(self.started, self.first_token)


@dataclass(frozen=True, slots=True)
class Served:
    """A request that has ended."""

    method: str
    path: str
    """Of the endpoint: "/chat/completions"."""
    operation: str | None
    """The endpoint's name in traces; None: it has none."""
    body: Mapping[str, object]
    """Fields of the request in the caller's own form, which is not checked: prompts are in it."""
    engine: EngineLike | None
    """Engine that ran the request; None: it did not come to that."""
    answer_id: str | None
    timings: RequestTimings
    error: BaseException | None
    """Error that the caller got instead of the (whole) answer; a `GeneratorExit` where the caller stopped reading."""

    @property
    def model(self) -> str | None:
        """The name of what ran it; None where nothing did, or its engine was closed meanwhile."""
        try:
            return None if self.engine is None else self.engine.model.name
        except EngineError:
            return None


Observer = Callable[[Served], None]


def measure(works: Sequence[Work], started: float, ended: float) -> RequestTimings:
    """The timings of a request, of those of its work, which may still run where the client gave up."""
    times, rows = [work.timings for work in works], [work.timings for work in works if work.emits_tokens]
    inputs = [each.counts() for each in {id(work.input): work.input for work in works}.values()]
    decoded = [row.batch_rows for row in rows if row.batch_rows is not None]
    return RequestTimings(
        started,
        ended,
        queued=_first(each.queued for each in times),
        begun=_first(each.begun for each in times),
        prefilled=_first(each.prefilled for each in times),
        first_token=_first(each.first_token for each in rows),
        finished=max((each.finished for each in times if each.finished is not None), default=None),
        seconds_per_token=_seconds_per_token(rows),
        input_tokens=sum(each.tokens for each in inputs),
        cached_tokens=sum(each.cached for each in inputs),
        media_tokens=sum(each.media for each in inputs),
        output_tokens=sum(len(row.output) for row in rows),
        batch_rows=fmean(decoded) if decoded else None,
        drafts=DraftCounts(sum(row.drafts.drafted for row in rows), sum(row.drafts.accepted for row in rows)),
        adapter=next((work.uses.name for work in works if work.uses is not None), None),
        rows=len(rows),
        finish_reasons=tuple(row.finish_reason for row in rows if row.finish_reason is not None),
    )


def between(start: float | None, end: float | None) -> float | None:
    """Seconds from one time to another, as far as it came to both."""
    return None if start is None or end is None else end - start


def _first(times: Iterable[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _seconds_per_token(rows: Sequence[RowTimings]) -> float | None:
    seconds, tokens = 0.0, 0
    for row in rows:
        if row.first_token is not None and row.finished is not None and len(row.output) > 1:
            seconds += row.finished - row.first_token
            tokens += len(row.output) - 1
    return seconds / tokens if tokens else None
