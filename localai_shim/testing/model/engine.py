"""An engine that plays scripted replies instead of a model, for tests of all code above the engine.

Its tokens take the same way as a real model's, through sinks, clients, endpoints and output code. It needs neither MLX
nor mlx-lm nor transformers.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import queue
import re
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...engine.sinks import deliver_events
from ...errors import BadRequest
from ...media import modalities
from ...stats import EngineStats
from ...threads.system import Future, Lock, SimpleQueue, current_thread, make_thread
from ...types import (
    EmbeddingRequest,
    EngineClosedError,
    Event,
    Failure,
    GenerationRequest,
    Prompt,
    RecognitionRequest,
    SamplingParams,
    Sink,
    SpeechRequest,
    Ticket,
    Work,
)
from .clock import REAL, Clock
from .replies import Decide, Pair, Patience, Place, PlayedRow, Reply, ReplyLike, Script, ScriptedModel
from .sounds import PlayedSpeech, PlayedTranscript, make_up_speech, speech_reply
from .tokenizer import ScriptedTokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NO_TOKENS = Reply("")
"""Ends a request that is answered otherwise."""


class ScriptedEngine:
    """Engine that plays one scripted reply per choice of a request, instead of a model.

    Running sequences get one token each per step, as in a batch. `max_tokens`, stop strings, and cancellation end a
    reply early. With `ignore_eos`, or before `min_tokens`, a finished reply starts again.

    Args:
        replies: One reply per choice, in the order of the requests, or a function that returns the reply to each.
            The function runs on the submitting thread; its exceptions fail the call.
        name: `response.model` in the answers.
        context_length: Maximum number of prompt and output tokens; None for no limit.
        tokenizer: Tokenizer with the model's markers and chat template.
        dimensions: Dimensions of vectors for embedding requests.
        obey_constraints: Fail a request whose reply violates its grammar, or has a banned token (the start of a call,
            with `tool_choice="none"`). False plays such replies, too.

    Attributes:
        requests: `GenerationRequest` of each choice.
        prompts: Text of each choice's prompt.
        embedded: Embedding requests. Their vectors depend on their texts, and are returned immediately.
        heard: Requests for transcriptions. The reply is the text of the file.
        spoken: Requests for speech. They get a tone, whose length depends on the text.

    Raises:
        ValueError: A reply cannot be played.

    Example:
        >>> from localai_shim import LocalOpenAI
        >>> from localai_shim.testing import ScriptedEngine
        >>> with ScriptedEngine(["Hello!"]) as engine, LocalOpenAI(engine=engine) as client:
        ...     client.responses.create(model="any", input="Hi").output_text
        'Hello!'
    """

    is_scripted = True
    """Preparing a request takes no time: it is done on its caller's thread, and the timeout counts from there on."""
    max_inline_tokens = 0
    """Answers that take no time, and have no more tokens than these, are played on their caller's thread."""
    is_ready = True

    def __init__(
        self,
        replies: Sequence[ReplyLike] | Decide = (),
        *,
        name: str = "scripted",
        context_length: int | None = 131_072,
        tokenizer: ScriptedTokenizer | None = None,
        dimensions: int = 1536,
        obey_constraints: bool = False,
    ) -> None:
        self.requests: list[GenerationRequest] = []
        self.prompts: list[str] = []
        self.embedded: list[EmbeddingRequest] = []
        self.heard: list[RecognitionRequest] = []
        self.spoken: list[SpeechRequest] = []
        self.tokenizer = tokenizer or ScriptedTokenizer()
        self._model = ScriptedModel(name, context_length, self.tokenizer, dimensions)
        self._obey_constraints = obey_constraints
        self._decide = replies if callable(replies) else None
        self._script: deque[Script] = deque()
        self._lock = Lock()
        if not callable(replies):
            if isinstance(replies, str):
                raise TypeError("`replies` is a list of replies: pass [text]")
            self.say(*replies)
        self._player = Player(name)
        weakref.finalize(self, self._player.tell_to_stop).atexit = False

    def say(self, *replies: ReplyLike) -> None:
        """Append replies to the script.

        Raises:
            ValueError: A reply cannot be played.
        """
        if self._decide is not None:
            raise ValueError("a function decides this engine's replies")
        self._script.extend([Script(reply, self.tokenizer) for reply in replies])

    @property
    def left(self) -> int:
        """Number of replies that were not played yet."""
        return len(self._script)

    # -- as `Engine` --------------------------------------------------------------------------------------------

    @property
    def model(self) -> ScriptedModel:
        """The scripted model. Raises EngineClosedError if the engine is closed."""
        self._check_open()
        return self._model

    @property
    def ready(self) -> Future[None]:
        """A completed future: no model is loaded."""
        self.check_process()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def wait(self) -> None:
        """Return immediately."""
        self.check_process()

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket | None = None) -> Ticket:
        """Play a reply for each sequence, and generate vectors and scores. Events have the index in `works`.

        Raises:
            EngineClosedError: the engine was closed, or this process was forked from the one that made it.
            BadRequest: No reply is left.
        """
        self._check_open()
        ticket = ticket or Ticket()
        self._play([self._row(work, (sink, index, ticket)) for index, work in enumerate(works)])
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Remove the sequences of a submission, without another event. Never blocks."""
        self._player.inbox.put(ticket)

    def stats(self, *, plans: bool = False) -> EngineStats:
        """Return a snapshot without plans. Sequences that wait for their next token count as running."""
        reads = modalities(self._model.media_kinds)
        return EngineStats(running=len(self._player.rows), waiting=0, steps=self._player.steps, modalities=reads)

    @property
    def is_closed(self) -> bool:
        return self._player.closing or self._player.pid != os.getpid()

    def close(self) -> None:
        """End the thread; requests in flight fail with `EngineClosedError`."""
        self._player.close()

    def check_process(self) -> None:
        """Raise EngineClosedError in a process that was forked from the engine's."""
        if self._player.pid != os.getpid():
            raise EngineClosedError("this process was forked from the engine's, whose thread did not come along")

    def _check_open(self) -> None:
        self.check_process()
        if self._player.closing:
            raise closed_error()

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self, work: Work, place: Place) -> PlayedRow:
        """Begin to play what was chosen for a piece of work, or else what comes next."""
        if callable(work.reply):
            row: PlayedRow = work.reply(work, place)
            return row
        if isinstance(work, GenerationRequest):
            return PlayedRow(work, place, self._next_script(work), self._model, self._obey_constraints)
        if isinstance(work, RecognitionRequest):
            self.heard.append(work)
            prompt = Prompt(self.tokenizer.encode(work.prompt or ""))
            script = self._next_script(GenerationRequest(prompt, SamplingParams(), 1))
            return PlayedTranscript(work, place, script, self._model)
        if isinstance(work, SpeechRequest):
            self.spoken.append(work)
            pieces = make_up_speech(work)
            script = Script(speech_reply(pieces), self.tokenizer)
            return PlayedSpeech(work, place, script, self._model, pieces)
        assert isinstance(work, EmbeddingRequest)
        return self._vectors(work, place)

    def _vectors(
        self,
        work: EmbeddingRequest,
        place: Place,
        rows: Sequence[Sequence[float]] | None = None,
        dimensions: int | None = None,
        reply: Reply = NO_TOKENS,
        clock: Clock = REAL,
        patience: Patience | None = None,
    ) -> PlayedRow:
        """Give a request its vectors, or made-up ones with this number of dimensions; `reply` ends it."""
        import numpy as np

        if rows is not None:
            work.vectors = np.array(rows, np.float32)
        elif pairs := [text for text in work.texts if isinstance(text, Pair)]:
            work.vectors = make_up_relevance(pairs)
        else:
            texts = [self.tokenizer.decode(tokens) for tokens in work.texts]
            work.vectors = make_up_vectors(texts, dimensions or self._model.dimensions)
        self.embedded.append(work)
        once, script = GenerationRequest(Prompt([]), SamplingParams(), 1), Script(reply, self.tokenizer)
        return PlayedRow(once, place, script, self._model, False, clock, patience)

    def _play(self, rows: list[PlayedRow]) -> None:
        if not all(row.takes_no_time(self.max_inline_tokens) for row in rows):
            self._player.play(rows)
            return
        events: list[tuple[PlayedRow, Event]] = []
        left = rows
        while left:
            step = [(row, row.next()) for row in left]
            events += step
            left = [row for row, event in step if not is_last(event)]
        deliver_events(events, ())

    def _next_script(self, request: GenerationRequest) -> Script:
        prompt = self.tokenizer.decode(request.prompt.tokens)
        with self._lock:
            index = len(self.requests)
            self.requests.append(request)
            self.prompts.append(prompt)
            script = self._script.popleft() if self._script else None
        if self._decide is not None:
            return Script(self._decide(request, prompt, index), self.tokenizer)
        if script is None:
            text = f"no reply is left: the script has {index}, and this is request {index + 1}: {prompt!r}"
            raise BadRequest(text, code="not_scripted")
        return script


MAX_WAIT_SECONDS = 3600.0  # a queue takes no infinite timeout


class Player:
    """Plays rows on a thread, which begins with the first of them. It holds no engine, so that one can be collected."""

    def __init__(self, name: str = "scripted") -> None:
        self.inbox: SimpleQueue[list[PlayedRow] | Ticket | None] = SimpleQueue()
        self.lock = Lock()
        """Held while rows are put into the inbox, and while the thread empties it for the last time."""
        self.closing = False
        self.rows: dict[PlayedRow, None] = {}
        self.steps = 0
        self.thread = make_thread(self._run, name=f"localai_shim:{name}")
        self.pid = os.getpid()

    def play(self, rows: list[PlayedRow]) -> None:
        """Begin to play rows. Raises EngineClosedError when the thread is to end."""
        with self.lock:
            if self.closing:
                raise closed_error()
            self.inbox.put(rows)
            if self.thread.ident is None:
                self.thread.start()

    def wake(self) -> None:
        """Look again at what is due: a clock has moved."""
        self.inbox.put(None)

    def close(self) -> None:
        """End the thread; rows in flight fail with `EngineClosedError`."""
        self.tell_to_stop()
        with self.lock:
            begun = self.thread.ident is not None
        if begun and self.pid == os.getpid() and self.thread is not current_thread():
            self.thread.join()

    def tell_to_stop(self) -> None:
        """Begin to close without waiting or taking a lock."""
        if os.getpid() == self.pid:
            self.closing = True
            self.inbox.put(None)

    def _run(self) -> None:
        while not self.closing:
            self._step()
        with self.lock:
            self._take_inbox(0.0)
        failed = [(row, Failure(closed_error())) for row in self.rows]
        self.rows.clear()
        deliver_events(failed, ())

    def _step(self) -> None:
        """Take the inbox, then play a token of each row that is due; wait for either."""
        arrived = self._take_inbox(min((row.seconds_until_due() for row in self.rows), default=math.inf))
        if self.closing:
            return
        if not arrived:
            for clock in {row.clock for row in self.rows}:
                due = (row.due for row in self.rows if row.clock is clock and not row.hangs)
                clock.reach(min(due, default=0.0))
        events = [(row, row.next()) for row in self.rows if row.seconds_until_due() <= 0]
        for row, event in events:
            row.wait(row.reply.interval)
            if is_last(event):
                del self.rows[row]
        if events:
            self.steps += 1
            self._drop(deliver_events(events, self.rows))

    def _take_inbox(self, seconds: float) -> bool:
        """Admit and cancel rows; wait this long for the first message. Returns whether there was one."""
        cancelled: set[Ticket] = set()
        arrived = False
        try:
            while True:
                message = self.inbox.get(block=seconds > 0, timeout=min(seconds, MAX_WAIT_SECONDS))
                seconds, arrived = 0.0, True
                if isinstance(message, list):
                    for row in message:
                        row.wait(row.reply.delay)
                        self.rows[row] = None
                elif message is not None:
                    cancelled.add(message)
        except queue.Empty:
            pass
        if cancelled:
            self._drop({row for row in self.rows if row.ticket in cancelled})
        return arrived

    def _drop(self, gone: set[PlayedRow]) -> None:
        for row in gone:
            self.rows.pop(row, None)


def is_last(event: Event) -> bool:
    """True if nothing of a row follows."""
    return isinstance(event, Failure) or event.finish_reason is not None


def closed_error() -> EngineClosedError:
    """Error with which requests to a closed engine fail."""
    return EngineClosedError("engine is closed")


# -- vectors of texts and scores of documents: the same in every process, and by the words that texts share -----------

_ORDER_WEIGHT = 0.1  # of the text as a whole, so that other orders of the same words differ a little


def make_up_vectors(texts: Sequence[str], dimensions: int) -> npt.NDArray[np.float32]:
    """`[texts, dimensions]`, rows of length 1: the sum of a vector for each of a text's words."""
    import numpy as np

    made = np.empty((len(texts), dimensions), np.float32)
    for row, text in zip(made, texts, strict=True):
        words = _words(text)
        row[:] = _ORDER_WEIGHT * _direction(text, dimensions) + sum(_direction(word, dimensions) for word in words)
        row /= np.linalg.norm(row)
    return made


def make_up_relevance(pairs: Sequence[Pair]) -> npt.NDArray[np.float32]:
    """`[pairs, 1]`: 0 where a document has none of the query's words, 1 where it has all of them and no others."""
    import numpy as np

    words = [(set(_words(pair.query)), set(_words(pair.document))) for pair in pairs]
    made = [[len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0] for a, b in words]
    return np.array(made, np.float32)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@functools.lru_cache(maxsize=4096)
def _direction(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    """Direction of a text on its own. It is never written to."""
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimensions, np.float32)
