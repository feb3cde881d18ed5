"""Choice of the reply that a request gets: replies in order, rules that match requests, and functions."""

from __future__ import annotations

import contextvars
import inspect
import json
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Self, TypedDict

from ..threads.workers import Workers
from .answers import Answer, ScriptedReply, Trouble, read_answer
from .requests import Request

_loops = Workers("reply", idle=0.0)


def decide(reply: ScriptedReply, request: Request) -> Answer:
    """Find the answer that a reply gives to a request.

    A function is called on this thread; an awaitable that it returns is awaited on the event loop that the thread works
    for, if there is one.

    Raises:
        TypeError: a function returned what is not an answer.
        Exception: what a function raises.
    """
    made: object = reply
    if callable(reply) and not isinstance(reply, type):
        made = reply(request)
        if inspect.isawaitable(made):
            made = _wait_for(made)
    return read_answer(made)


def _wait_for(made: Awaitable[object]) -> object:
    import anyio.from_thread

    from ..runtime.offload import turns

    async def alone() -> object:
        return await made

    async def beside_others() -> object:
        with turns().given_away():  # this thread waits, perhaps for a request that has to be prepared first
            return await made

    try:
        anyio.from_thread.run_sync(int)
    except RuntimeError:  # this thread works for no event loop
        # It may have a running event loop itself, which its context tells of.
        return contextvars.Context().run(_loops.submit, partial(anyio.run, alone)).result()
    return anyio.from_thread.run(beside_others)


TextPattern = str | re.Pattern[str]
"""A piece of a text, or a regular expression that is found in it."""


class Criteria(TypedDict, total=False):
    """Criteria by which `when` and `assert_called` tell requests; all that are given have to hold."""

    api: str
    """The endpoint: `chat.completions`, `responses`, `completions`, `embeddings`, `rerank`, `audio.transcriptions`,
    `audio.translations` or `audio.speech`."""
    user: TextPattern
    """In the last user message; in any of the texts that are embedded, or of the documents and the query; in the text
    to speak, or the prompt of a transcription."""
    system: TextPattern
    """In the system or developer messages."""
    tool: str
    """A tool of this name is offered."""
    tool_result: TextPattern
    """In a result that came since the model spoke last."""
    model: TextPattern
    """The model's name: all of it, or a regular expression."""
    schema: str | Mapping[str, object] | type
    """The answer's JSON schema: its name, the schema, or the pydantic class that it was made of."""
    predicate: Callable[[Request], bool]


_NAMES = frozenset(Criteria.__annotations__)


class UnexpectedRequest(AssertionError):
    """A request that the script has no reply for.

    Example:
        >>> from localai_shim.testing import UnexpectedRequest, scripted
        >>> with scripted("Hello!", assert_complete=False) as client:
        ...     answer = client.responses.create(model="any", input="Hi")
        ...     try:
        ...         client.responses.create(model="any", input="Hi again")
        ...     except UnexpectedRequest:
        ...         print("nothing was scripted for it")
        nothing was scripted for it
    """


class Rule:
    """Replies to the requests that match; see `when`."""

    def __init__(self, criteria: Criteria) -> None:
        check_criteria(criteria)
        self.criteria = criteria
        self._replies: tuple[ScriptedReply, ...] = ()
        self._limit: int | None = None
        self.used = 0

    def reply(self, *replies: ScriptedReply) -> Self:
        """Answer with these, one request each, once; `times` and `always` repeat the last one."""
        self._replies, self._limit = replies, len(replies)
        return self

    def times(self, count: int) -> Self:
        """Answer this number of requests; the test is incomplete with fewer."""
        if count < len(self._replies):
            raise ValueError(f"{len(self._replies)} replies cannot be played in {count} times")
        self._limit = count
        return self

    def always(self) -> Self:
        """Answer any number of requests, or none."""
        self._limit = None
        return self

    def take(self, request: Request) -> tuple[ScriptedReply] | None:
        """The next reply, if the request matches and one is left."""
        if (self._limit is not None and self.used >= self._limit) or mismatch(self.criteria, request) is not None:
            return None
        if not self._replies:
            if not request.wants_text and "api" not in self.criteria:
                return None
            raise UnexpectedRequest(f"{self} matches, but has no reply: write {self}.reply(...)")
        reply = self._replies[min(self.used + 1, len(self._replies)) - 1]
        if not _suits(reply, request) and not (not request.wants_text and "api" in self.criteria):
            return None
        self.used += 1
        return (reply,)

    @property
    def missing(self) -> int:
        """Number of requests that it still waits for."""
        return 0 if self._limit is None else self._limit - self.used

    def why_not(self, request: Request) -> str:
        """Reason why it does not answer a request."""
        if why := mismatch(self.criteria, request):
            return why
        played = self._limit is not None and self.used >= self._limit
        return f"all of its {self.used} replies were played" if played else "its reply is for another API"

    def __str__(self) -> str:
        return f"when({describe(self.criteria)})"


class Script:
    """All replies of one client, in the order in which they are tried: rules, then what is left of the ordered ones."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a predicate may ask the client itself
        self.ordered: deque[ScriptedReply] = deque()
        self.played = 0
        self.rules: list[Rule] = []
        self._answered: set[str] = set()
        """The APIs whose vectors or speech were scripted, and all played."""

    def take(self, request: Request) -> tuple[ScriptedReply] | None:
        """The reply to a request; None where nothing is scripted, and an answer is made up.

        Vectors and speech answer requests for them, all else the others, each in their order; a failure that comes
        next is for whatever request comes next. Vectors and speech are made up as long as none were scripted.

        Raises:
            UnexpectedRequest: there is none.
        """
        with self._lock:
            if not (self.ordered or self.played or self.rules):  # nothing was ever scripted
                return None
            for rule in self.rules:
                taken = rule.take(request)
                if taken is not None:
                    return taken
            index = self._next(request)
            if index is None:
                if not request.wants_text and request.api not in self._answered:
                    return None
                raise UnexpectedRequest(self._unexpected(request))
            reply = self.ordered[index]
            del self.ordered[index]
            self.played += 1
            if _only_api(reply) == request.api:
                self._answered.add(request.api)
            return (reply,)

    def _next(self, request: Request) -> int | None:
        """Index of the ordered reply for a request."""
        if self.ordered and isinstance(self.ordered[0], Trouble | Exception):
            return 0
        return next((i for i, reply in enumerate(self.ordered) if _suits(reply, request)), None)

    def left(self) -> list[str]:
        """List what was not played, a line each."""
        waiting = [rule for rule in self.rules if rule.missing]
        lines = [f"{rule} answered {rule.used} requests, and waits for {rule.missing} more" for rule in waiting]
        if self.ordered:
            shown = ", ".join(shorten(reply) for reply in list(self.ordered)[:3]) + ", …" * (len(self.ordered) > 3)
            lines.append(f"{len(self.ordered)} of {self.played + len(self.ordered)} replies were not played: {shown}")
        return lines

    def _unexpected(self, request: Request) -> str:
        lines = [f"no reply is scripted for {request.brief()}"]
        if self.played:
            lines.append(f"  all {self.played} replies of script(...) were played")
        lines += [f"  {rule}: {rule.why_not(request)}" for rule in self.rules]
        return "\n".join(lines)


def _only_api(reply: ScriptedReply) -> str | None:
    """The only API whose requests a reply answers; None: it has a text, or says nothing of it."""
    return reply.api if isinstance(reply, Answer) else None


def _suits(reply: ScriptedReply, request: Request) -> bool:
    """True if a reply is of the kind that a request wants."""
    if request.has_sound:
        return _only_api(reply) in (None, "audio.transcriptions")
    if request.wants_text:
        return _only_api(reply) is None
    return _only_api(reply) == request.api or (request.api == "audio.speech" and says_nothing(reply))


def says_nothing(reply: ScriptedReply) -> bool:
    """True if a reply says how an answer is played, or how it fails, and not what it is."""
    return isinstance(reply, Answer) and not (reply.parts or reply.reply.content or reply.api)


def check_criteria(criteria: Mapping[str, object]) -> None:
    """Refuse criteria that do not exist, and values of a wrong type.

    Raises:
        TypeError: with the name and the values that it may have.
    """
    for name, value in criteria.items():
        if name not in _NAMES:
            raise TypeError(f"'{name}' is not a criterion; the criteria are {', '.join(sorted(_NAMES))}")
        if name in ("user", "system", "tool_result", "model") and not isinstance(value, str | re.Pattern):
            raise TypeError(f"'{name}' is a string or a compiled regular expression, not {value!r}")
        if name == "predicate" and not callable(value):
            raise TypeError(f"'predicate' is a function of the request, not {value!r}")


def mismatch(criteria: Criteria, request: Request) -> str | None:
    """The first criterion that does not hold; None: all do."""
    texts = {"user": [request.user], "system": [request.system], "tool_result": request.tool_results}
    if request.wants_vectors:
        texts["user"] = [*request.texts, str(request.body.get("query", ""))]
    for name, value in criteria.items():
        if name in texts:
            if not any(_found(value, text) for text in texts[name]):
                where = shorten(texts[name] if name == "tool_result" or len(texts[name]) > 1 else texts[name][0])
                return f"{name}: {_shown(value)} is not in {where}"
        elif name == "model":
            if request.model != value if isinstance(value, str) else not _found(value, request.model):
                return f"model: {_shown(value)} is not {request.model!r}"
        elif name == "api":
            if request.api != value:
                return f"api: {value!r} is not {request.api!r}"
        elif name == "tool":
            if request.offered_tool(str(value)) is None:
                return f"tool: {value!r} is not among {request.tool_names}"
        elif name == "schema":
            if not _has_schema(value, request):
                return f"schema: {_shown(value)} is not {request.schema_name!r}"
        elif not criteria["predicate"](request):
            return f"predicate: {_shown(value)} is false"
    return None


def describe(criteria: Mapping[str, object]) -> str:
    """Criteria as they were written."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in criteria.items())


def shorten(value: object) -> str:
    """An object's repr, on one line of at most 80 characters."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 80 else f"{text[:79]}…"


def _found(wanted: object, text: str) -> bool:
    return wanted in text if isinstance(wanted, str) else isinstance(wanted, re.Pattern) and bool(wanted.search(text))


def _shown(value: object) -> str:
    if isinstance(value, re.Pattern):
        return f"re.compile({value.pattern!r})"
    return str(getattr(value, "__qualname__", None) or shorten(value))


def _has_schema(wanted: object, request: Request) -> bool:
    if request.schema is None and request.schema_name is None:
        return False
    if isinstance(wanted, str):
        return wanted == request.schema_name
    if isinstance(wanted, Mapping):
        return bool(json.loads(json.dumps(wanted)) == request.schema)
    name: object = getattr(wanted, "__name__", None)
    return name in (request.schema_name, (request.schema or {}).get("title"))
