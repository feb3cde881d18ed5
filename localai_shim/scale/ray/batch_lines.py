"""The lines of a batch's input file, answered by all replicas at once."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent import futures

import openai

from ...client.batch_lines import read_requests
from ...endpoints.batches.lines import Line, answer_text, error_text
from ...errors import BadRequest
from ...sdk import private as sdk
from .client import RayOpenAI

LINES_PER_REPLICA = 96
"""Lines that a replica has at once: as many as decode together by default, and half as many that wait."""
AHEAD = 4  # times as many are read before a slow line's answer is waited for
MAX_RETRIES = 5
"""Times that a line is sent again where replicas die: none starts as soon as another has died."""


def answer_lines(
    client: RayOpenAI,
    lines: Iterable[str | bytes],
    *,
    on_progress: Callable[[int, int], object] | None = None,
    done: Collection[str] = (),
) -> Iterator[str]:
    """Answer lines as `localai_shim.client.batch_lines.answer_lines` does, with the same arguments.

    Yields:
        The lines of the output file, in the order of the requests.
    """
    failed: list[str] = []  # what could not be read, until it is yielded
    counts = [0, 0]
    requests = (line for line in read_requests(lines, None, failed) if line.custom_id not in done)
    for text, ok in _answers(client.with_options(timeout=None, max_retries=MAX_RETRIES), requests, failed):
        counts[not ok] += 1
        if on_progress is not None:
            on_progress(*counts)
        yield text


def _answers(client: RayOpenAI, requests: Iterable[Line], failed: list[str]) -> Iterator[tuple[str, bool]]:
    """The line of each answer, and whether it is one."""
    width = LINES_PER_REPLICA * len(client._pool)
    threads = futures.ThreadPoolExecutor(width, "localai_shim-lines")
    running: deque[futures.Future[tuple[str, bool]]] = deque()
    try:
        for line in itertools.chain(requests, (None,)):
            while failed:
                running.append(threads.submit(_refused, failed.pop(0)))
            if line is not None:
                running.append(threads.submit(_answer, client, line))
            while running and (line is None or len(running) >= AHEAD * width or running[0].done()):
                yield running.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _refused(text: str) -> tuple[str, bool]:
    return text, False


def _answer(client: RayOpenAI, line: Line) -> tuple[str, bool]:
    for name in ("stream", "background"):
        if line.body.get(name):
            error = BadRequest(f"'{name}' is not supported in a batch: leave it out.", param=name)
            return answer_text(line.custom_id, error.status, "", json.dumps(error.body()).encode()), False
    try:
        response = client.post(line.url.removeprefix("/v1"), body=line.body, cast_to=sdk.httpx.Response)  # type: ignore[attr-defined]
    except openai.APIStatusError as failure:
        response = failure.response
    except openai.OpenAIError as failure:
        return error_text(line.custom_id, "request_failed", str(failure)), False
    request_id = response.headers.get("x-request-id", "")
    return answer_text(line.custom_id, response.status_code, request_id, response.content), response.is_success
