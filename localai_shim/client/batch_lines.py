"""Requests that run side by side, always as many as the engine has rows for: the lines of batches."""

from __future__ import annotations

import contextlib
import itertools
import queue
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from typing import Protocol

import openai

from ..endpoints.batches.lines import NO_USAGE, Answered, Line, answer_text, error_text, read_lines, usage_json
from ..endpoints.batches.runner import Batches, Progress
from ..endpoints.responses.background import Background
from ..endpoints.turn import Turn, TurnEvent
from ..errors import BadRequest
from ..runtime.engines import Runtime
from ..runtime.offload import aside
from ..sdk import private as sdk
from ..sdk.stock_clients import stock_client
from ..state.store import Store
from ..threads.deadline import Overdue
from ..threads.system import SimpleQueue, make_queue
from ..types import EngineClosedError, EngineLike, Json, QueueFullError, Token
from .call import Call

BATCH_PRIORITY = 1_000_000
"""Added to the priority of a batch's rows: all others are more urgent."""
POLL_SECONDS = 0.2  # that `run_lines` waits for an answer at most
QUEUED_SHARE = 0.5  # of `max_rows`: rows that wait in the engine's queue, lest it should ever wait for one
_USUAL_ROWS = 64  # of engines that do not say how many they have

Inbox = SimpleQueue["_Request | None"]
"""Queue of requests whose round or turn is over; None makes `run_lines` return to its caller immediately."""


def run_lines(runtime: Runtime, lines: Iterable[Line], inbox: Inbox) -> Generator[Answered | None]:
    """Answer requests in whatever order they end, and None now and then, whenever nothing has for a while.

    A request is read from `lines` when there is room for it. Closing the iterator stops those that run.

    Raises:
        EngineClosedError: the engine, or the client, was closed.
    """
    running: set[_Request] = set()
    try:
        for line in lines:
            yield from _start(_Request(runtime, line, inbox), running, inbox)
        while running:
            yield _wait(running, inbox)
    finally:
        while running:
            running.pop().leave()


def _start(request: _Request, running: set[_Request], inbox: Inbox) -> Generator[Answered | None]:
    """Start a request when there is room; until then, and where it fails at once, there are answers."""
    try:
        engine = request.engine()
        while engine is not None and not engine.is_ready:
            yield _wait(running, inbox)
        request.prepare()
        while request.turn is not None and not request.submit(sum(each.rows for each in running)):
            yield _wait(running, inbox)
    except Overdue:  # lines have no timeout
        raise EngineClosedError("the interpreter is ending") from None
    except Exception as error:
        yield request.failed(error)
        return
    if request.turn is None:
        yield request.answer()
    else:
        running.add(request)


def _wait(running: set[_Request], inbox: Inbox) -> Answered | None:
    """The next answer; None where none comes for a while, or the caller is wanted."""
    request = next((each for each in running if each.refused), None)
    answered = None if request is None else request.answer()
    if request is None or request.refused:
        try:
            request = inbox.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None
        if request is None or request not in running:
            return None
        answered = request.answer()
    if answered is not None:
        running.remove(request)
    return answered


def make_batches(reference: weakref.ref[Runtime], store: Store, background: Background) -> Batches:
    """Make the runner of a client's batches."""
    return Batches(
        store,
        lambda lines, inbox: run_lines(_alive(reference), lines, inbox),
        served=sorted(f"{name}={found.root}" for name, found in _alive(reference).names().items()),
        owner=background.owner,
        is_alive=background.is_alive,
        make_progress=_make_bar,
    )


def _alive(reference: weakref.ref[Runtime]) -> Runtime:
    """The runtime; once a batch runs, it lives on until that has ended, or the client was closed."""
    runtime = reference()
    if runtime is None:
        raise EngineClosedError("the client is gone")
    return runtime


def _make_bar(name: str) -> Progress:
    from ..models.progress import make_bar

    return make_bar(name)


class AnyLocalClient(Protocol):
    """A `LocalOpenAI` or `AsyncLocalOpenAI`."""

    _runtime: Runtime


def answer_lines(
    client: AnyLocalClient,
    lines: Iterable[str | bytes],
    *,
    endpoint: str | None = None,
    on_progress: Callable[[int, int], object] | None = None,
    done: Collection[str] = (),
) -> Iterator[str]:
    """Answer the lines of a batch's input file, without files and batches: for programs that have their own.

    Args:
        client: whose models answer. Not to be used on the thread of an event loop.
        lines: JSON, see https://platform.openai.com/docs/api-reference/batch/request-input. Read as there is room.
        endpoint: the only one that lines may have; None: each its own.
        done: each `custom_id` that has its answer already, and gets none.
        on_progress: called after each answer with the number of lines that were answered and that failed so far.

    Yields:
        The lines of the output file, in whatever order they end. Invalid requests are answered with an `error`.

    Raises:
        EngineClosedError: the client was closed meanwhile.

    Example:
        >>> import json
        >>> from localai_shim.client.batch_lines import answer_lines
        >>> from localai_shim.testing import scripted
        >>> body = {"model": "any", "input": "Hi"}
        >>> line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body})
        >>> with scripted("Hello!") as client:
        ...     [answer] = map(json.loads, answer_lines(client, [line]))
        >>> answer["custom_id"], answer["response"]["body"]["output"][0]["content"][0]["text"]
        ('a', 'Hello!')
    """
    failed: list[str] = []  # what could not be read, until it is yielded
    counts = [0, 0]

    def count(ok: bool) -> None:
        counts[not ok] += 1
        if on_progress is not None:
            on_progress(*counts)

    requests = (line for line in read_requests(lines, endpoint, failed) if line.custom_id not in done)
    with contextlib.closing(run_lines(client._runtime, requests, make_queue())) as answers:
        for answered in itertools.chain(answers, (None,)):
            while failed:
                count(ok=False)
                yield failed.pop(0)
            if answered is not None:
                count(answered.ok)
                yield answered.text


def read_requests(lines: Iterable[str | bytes], endpoint: str | None, failed: list[str]) -> Iterator[Line]:
    """The requests among the lines; answers to others are added to `failed`."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    for each in read_lines(numbered, endpoint):
        if isinstance(each, Line):
            yield each
        else:
            failed.append(error_text(None, each.code, f"Line {each.number}: {each.message}"))


class _Request:
    """One request on its way; its turn's sink, which keeps the events of a round until the last one has come."""

    waker = None
    turn: Turn | None = None
    rows = most_rows = _open = 0
    refused = False
    """The engine had no room for its next round."""

    def __init__(self, runtime: Runtime, line: Line, inbox: Inbox) -> None:
        url = line.url.removeprefix("/v1")
        options = sdk.RequestOptions.construct(method="post", url=url, json_data=line.body, timeout=None)
        self._call, self._line, self._inbox = Call(stock_client(False), runtime, options), line, inbox
        self._local: Callable[[], object] | None = None
        self._engine: EngineLike | None = None
        self._events: list[tuple[int, TurnEvent]] = []

    def engine(self) -> EngineLike | None:
        """Engine that serves the request; None: no model is needed."""
        imports = self._call.begin()
        if imports is not None:
            imports.result()
        self._local = self._call.local()
        if self._local is None:
            self._engine = self._call.engine()
        return self._engine

    def prepare(self) -> None:
        """Validate, render and tokenise."""
        for name in ("stream", "background"):
            if self._line.body.get(name):
                raise BadRequest(f"'{name}' is not supported in a batch: leave it out.", param=name)
        if self._engine is not None:
            turn = aside(partial(self._call.prepare, self._engine))
            turn.defer(BATCH_PRIORITY)
            self._call.stage(self._engine, turn)
            self.turn, self.rows = turn, len(turn.works) or 1
            max_rows = self._engine.stats().max_rows or _USUAL_ROWS
            self.most_rows = max_rows + max(1, int(QUEUED_SHARE * max_rows))

    def submit(self, running: int) -> bool:
        """Make the engine run it next to `running` rows; False if there is no room."""
        assert self.turn is not None
        if running >= self.most_rows:
            return False
        try:
            self._start(self.turn)
        except QueueFullError:
            return False
        return True

    def _start(self, turn: Turn) -> None:
        assert self._engine is not None
        turn.start(self._engine, self, self._expect)

    def _expect(self, rows: int) -> None:
        """Note the number of rows of a round that begins."""
        self._open = rows

    def put(self, index: int, event: TurnEvent) -> None:
        """Take an event, on the engine thread. Wakes the reader at a round's last event, and at a failure."""
        self._events.append((index, event))
        if type(event) is Token:
            self._open -= event.finish_reason is not None
            if self._open:
                return
        self._inbox.put(self)

    def leave(self) -> None:
        """Leave the engine."""
        if self.turn is not None:
            self.turn.leave()
            self.turn = None

    def answer(self) -> Answered | None:
        """The answer, when a round has ended; None: another one follows.

        Raises:
            EngineClosedError: there will be none.
        """
        try:
            if self.turn is not None and not self._collect(self.turn):
                return None
            answer = self._made()
            response = self._call.whole(answer)
        except Exception as error:
            return self.failed(error)
        text = answer_text(self._line.custom_id, 200, response.headers["x-request-id"], response.content)
        return Answered(self._line, text, True, getattr(answer, "model", None), read_usage(answer))

    def _collect(self, turn: Turn) -> bool:
        """Have the turn take what has come; True if it has finished."""
        events, self._events = self._events, []
        try:
            if self.refused:
                self._start(turn)
            for event in events:
                turn.collect(*event)
            self.refused = False
        except QueueFullError:
            self.refused = True
        return turn.assembler.finished

    def _made(self) -> object:
        if self.turn is None:
            assert self._local is not None
            return aside(self._local)
        assembler, self.turn = self.turn.assembler, None  # which has this sink
        self._call.save(assembler)
        return assembler.result()

    def failed(self, error: Exception) -> Answered:
        """Answer to a request that failed; raises where no other would fare better."""
        if isinstance(error, EngineClosedError):
            raise error
        self.leave()
        try:
            self._call.fail(error)
        except openai.APIStatusError as failure:
            response = failure.response
            id = response.headers.get("x-request-id", "")
            text = answer_text(self._line.custom_id, response.status_code, id, response.content)
        except openai.APITimeoutError as failure:
            text = error_text(self._line.custom_id, "request_timeout", str(failure))
        except openai.OpenAIError as failure:
            text = error_text(self._line.custom_id, "request_failed", str(failure))
        return Answered(self._line, text, False)


def read_usage(answer: object) -> Json:
    """The tokens that an answer of any endpoint counts, in the form of `batch.usage`."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return NO_USAGE
    counts: Json = usage.to_dict()
    read, written = ("input", "output") if "input_tokens" in counts else ("prompt", "completion")
    details = [counts.get(f"{each}_tokens_details") or {} for each in (read, written)]
    cached, reasoning = details[0].get("cached_tokens") or 0, details[1].get("reasoning_tokens") or 0
    return usage_json(counts.get(f"{read}_tokens", 0), cached, counts.get(f"{written}_tokens", 0), reasoning)
