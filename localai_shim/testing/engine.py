"""An engine that plays scripted replies in place of a model, for tests of all code above the engine.

Its tokens take the same way as a real model's, through sinks, clients, endpoints and output code. It needs neither MLX
nor mlx-lm nor transformers.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence

from ..media import modalities
from ..types import EngineClosedError, EngineStats, Failure, GenerationRequest, RowError, Sink, Ticket, deliver_events
from .replies import Decide, PlayedRow, ReplyLike, Script, ScriptedModel, make_up_scores
from .tokenizer import ScriptedTokenizer


class ScriptedEngine:
    """Stands in for `Engine`: plays one scripted reply per choice of a request.

    Running rows get one token each per step, as in a batch. `max_tokens`, stop strings and cancellation end a reply
    early. With `ignore_eos`, or before `min_tokens`, a reply that is over begins again.

    Args:
        replies: one per choice, in the order of the requests; or a function that returns the reply to each. It is
            called on the thread that submits, and what it raises fails that call.
        name: `response.model` in the answers.
        context_length: most tokens of prompt and output together; None for no limit.
        tokenizer: with the model's markers and its chat template.
        obey_constraints: a request fails with a reply that its grammar constraint does not allow, or that has a token
            that is ruled out (what begins a call, with `tool_choice="none"`). False plays such replies, too.

    Attributes:
        requests: a `GenerationRequest` for each choice so far.
        prompts: the text of each one's prompt.

    Raises:
        ValueError: a reply that cannot be played.
    """

    def __init__(
        self,
        replies: Sequence[ReplyLike] | Decide = (),
        *,
        name: str = "scripted",
        context_length: int | None = 131_072,
        tokenizer: ScriptedTokenizer | None = None,
        obey_constraints: bool = False,
    ) -> None:
        self.requests: list[GenerationRequest] = []
        self.prompts: list[str] = []
        self.tokenizer = tokenizer or ScriptedTokenizer()
        self._model = ScriptedModel(name, context_length, self.tokenizer)
        self._obey_constraints = obey_constraints
        self._decide = replies if callable(replies) else None
        self._script: deque[Script] = deque()
        self._lock = threading.Lock()
        if not callable(replies):
            if isinstance(replies, str):
                raise TypeError("`replies` is a list of replies: pass [text]")
            self.say(*replies)
        self._pid = os.getpid()
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._loop.run, name=f"localai_shim:{name}", daemon=True)
        weakref.finalize(self, _tell_to_stop, self._loop, self._pid)
        self._thread.start()

    def say(self, *replies: ReplyLike) -> None:
        """Add replies to those that are left to play.

        Raises:
            ValueError: a reply that cannot be played.
        """
        if self._decide is not None:
            raise ValueError("a function decides this engine's replies")
        self._script.extend([Script(reply, self.tokenizer) for reply in replies])

    @property
    def left(self) -> int:
        """Replies that were not played yet."""
        return len(self._script)

    # -- as `Engine` --------------------------------------------------------------------------------------------

    @property
    def model(self) -> ScriptedModel:
        """Raises EngineClosedError when the engine was closed."""
        self.check_process()
        if self._loop.closing:
            raise _closed()
        return self._model

    def wait(self) -> None:
        """Does not wait: there is nothing to load."""
        self.check_process()

    @property
    def is_ready(self) -> bool:
        return True

    def submit(self, requests: Sequence[GenerationRequest], sink: Sink) -> Ticket:
        """Play a reply to each request; its events go to the sink under its place in the sequence.

        Raises:
            EngineClosedError: the engine was closed, or this process was forked from the one that made it.
            RowError: no reply is left.
        """
        self.check_process()
        if self._loop.closing:
            raise _closed()
        ticket = Ticket()
        rows = [
            PlayedRow(request, sink, index, ticket, self._next_script(request), self._model, self._obey_constraints)
            for index, request in enumerate(requests)
        ]
        with self._loop.lock:
            if self._loop.closing:
                raise _closed()
            self._loop.inbox.put(rows)
        return ticket

    def cancel(self, ticket: Ticket, index: int | None = None) -> None:
        """Remove a submission's rows, or the one with this index, without another event. Never blocks."""
        self._loop.inbox.put((ticket, index))

    def stats(self) -> EngineStats:
        """A snapshot; rows that wait for their next token are running."""
        reads = modalities(self._model.media_kinds)
        return EngineStats(running=len(self._loop.rows), waiting=0, steps=self._loop.steps, modalities=reads)

    @property
    def is_closed(self) -> bool:
        return self._loop.closing or self._pid != os.getpid()

    def close(self) -> None:
        """End the thread; requests in flight fail with `EngineClosedError`."""
        _tell_to_stop(self._loop, self._pid)
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join()

    def check_process(self) -> None:
        """Raise EngineClosedError in a process that was forked from the engine's."""
        if self._pid != os.getpid():
            raise EngineClosedError("this process was forked from the engine's, whose thread did not come along")

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_script(self, request: GenerationRequest) -> Script:
        prompt = self.tokenizer.decode(request.prompt.tokens)
        make_up_scores(request.prompt)
        with self._lock:
            index = len(self.requests)
            self.requests.append(request)
            self.prompts.append(prompt)
            script = self._script.popleft() if self._script else None
        if self._decide is not None:
            return Script(self._decide(request, prompt, index), self.tokenizer)
        if script is None:
            raise RowError(f"no reply is left: the script has {index}, and this is request {index + 1}: {prompt!r}")
        return script


MAX_WAIT_SECONDS = 3600.0  # a queue takes no infinite timeout


class _Loop:
    """What runs on the thread. It holds no reference to the engine, so that an abandoned engine can be collected."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[list[PlayedRow] | tuple[Ticket, int | None] | None] = queue.SimpleQueue()
        self.lock = threading.Lock()
        """Held while rows are put into the inbox, and while the thread empties it for the last time."""
        self.closing = False
        self.rows: dict[PlayedRow, None] = {}
        self.steps = 0

    def run(self) -> None:
        while not self.closing:
            self.step()
        with self.lock:
            self._take_inbox(0.0)
        failed = [(row, Failure(_closed())) for row in self.rows]
        self.rows.clear()
        deliver_events(failed, ())

    def step(self) -> None:
        """Take the inbox, then play a token of each row that is due; wait for either."""
        due = min((row.due for row in self.rows), default=math.inf)
        self._take_inbox(min(max(0.0, due - time.monotonic()), MAX_WAIT_SECONDS))
        if self.closing:
            return
        now = time.monotonic()
        events = [(row, row.next()) for row in self.rows if row.due <= now]
        for row, event in events:
            row.due = now + row.reply.interval
            if isinstance(event, Failure) or event.finish_reason is not None:
                del self.rows[row]
        if events:
            self.steps += 1
            self._drop(deliver_events(events, self.rows))

    def _take_inbox(self, seconds: float) -> None:
        """Admit and cancel rows; wait this long for the first message."""
        cancelled: set[tuple[Ticket, int | None]] = set()
        try:
            while True:
                message = self.inbox.get(block=seconds > 0, timeout=seconds)
                seconds = 0.0
                if isinstance(message, list):
                    now = time.monotonic()
                    for row in message:
                        row.due = now + row.reply.delay
                        self.rows[row] = None
                elif message is not None:
                    cancelled.add(message)
        except queue.Empty:
            pass
        if cancelled:
            self._drop({row for row in self.rows if {(row.ticket, None), (row.ticket, row.index)} & cancelled})

    def _drop(self, gone: set[PlayedRow]) -> None:
        for row in gone:
            self.rows.pop(row, None)


def _tell_to_stop(loop: _Loop, pid: int) -> None:
    if os.getpid() == pid:
        loop.closing = True
        loop.inbox.put(None)


def _closed() -> EngineClosedError:
    return EngineClosedError("the engine was closed")
