"""The same request alone, and what became of one beside it."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from math import isclose
from typing import Any

import openai

from tests.lost import STREAM_CUT, STREAM_TIMEOUT

from .bad import Bad
from .requests import Drawn, Item
from .scripts import Call, Script, Variation, play
from .setting import Pair

TOLERANCE = 2e-3  # of logprobs, scores and vectors
TIE = 1e-4  # of two logprobs that rounding may put in either order
WARMER = (-1e-5, -3e-6, 3e-6, 1e-5)  # of a temperature: by this rounding moves the edges between tokens, too
MAX_SHOWN = 20


class Left(Exception):
    """The caller has left a stream, as was drawn."""


def run_alone(pairs: Mapping[str, Pair], pool: Sequence[Item]) -> list[Any]:
    """The answer to each request of a pool, one after another, with nothing beside it and nothing on."""
    return [finish(pairs[item.client].sync, item.make(Variation())) for item in pool]


def finish(client: Any, script: Script) -> Any:
    """Play a script to its end."""
    return play(script, partial(ask, client))


def _warmer(script: Script, by: float) -> Script:
    """The same script, whose calls sample at another temperature."""
    step = script.send(None)
    while True:
        if isinstance(step, Call) and step.fields.get("temperature"):
            fields = {**step.fields, "temperature": step.fields["temperature"] * (1 + by)}
            step = Call(step.path, fields, step.stream)
        try:
            step = script.send((yield step))
        except StopIteration as stop:
            return stop.value


def ask(client: Any, call: Call) -> Any:
    """Make a call: an answer or a stream, of an async client what is to be awaited for it."""
    if call.path == "rerank":
        from localai_shim import rerank

        return rerank(client, **call.fields)
    target = client
    for name in call.path.split("."):
        target = getattr(target, name)
    return target(**call.fields, **({"stream": True} if call.stream else {}))


def same(one: Any, other: Any) -> bool:
    """True if two answers are equal, but for the rounding of numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, abs_tol=TOLERANCE)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class Outcomes:
    """Outcomes of all requests; callers on any thread tell.

    Args:
        pool: the requests, with what each is answered alone.
        alone: clients for looking whether an answer that differs is a tie.
    """

    def __init__(self, pool: Sequence[Item], bad: Sequence[Bad], expected: Sequence[Any], alone: Any) -> None:
        self._pool, self._bad, self._expected, self._alone = pool, bad, expected, alone
        self._lock = threading.Lock()
        self.ended: dict[int, str] = {}
        self.kinds: Counter[str] = Counter()
        """Answers that were compared, by the kind of their request."""
        self.mishaps: Counter[str] = Counter()
        self.shown: list[str] = []
        """Details of the first answers that were wrong and failures that nobody expects."""

    def counts(self) -> Counter[str]:
        with self._lock:
            return Counter(self.ended.values())

    def answered(self, drawn: Drawn, answer: Any) -> None:
        """Compare an answer with the one alone."""
        if drawn.mishap == "bad":
            self._end(drawn, "wrong", f"answered what has to be refused: {answer!r}")
            return
        item, expected = self._pool[drawn.item], self._expected[drawn.item]
        if same(answer, expected):
            with self._lock:
                self.kinds[item.kind] += 1
            self._end(drawn, "answered")
        else:
            found = "tie" if self._is_tie(drawn, answer) else "wrong"
            self._end(drawn, found, f"{item.kind}: {answer!r}\n  alone: {expected!r}")

    def failed(self, drawn: Drawn, error: BaseException) -> None:
        """Note how a request failed, and whether that is what was drawn."""
        kind = self._kind(drawn, error)
        if kind is None:
            text = "".join(traceback.format_exception(error)[-12:])
            self._end(drawn, f"unexpected {type(error).__name__}", text)
        else:
            self._end(drawn, kind)

    def cancelled(self, drawn: Drawn) -> None:
        self._end(drawn, "failed: cancelled")

    def _kind(self, drawn: Drawn, error: BaseException) -> str | None:
        """None: nobody expects it."""
        bad = drawn.mishap == "bad"
        churned = not bad and self._pool[drawn.item].client == "churned"
        if isinstance(error, Left):
            return f"failed: {drawn.mishap}"
        if isinstance(error, openai.APITimeoutError | STREAM_TIMEOUT):
            return "failed: timeout" if drawn.mishap == "timeout" else None
        if isinstance(error, openai.APIConnectionError | STREAM_CUT):
            return "failed: cancelled" if drawn.mishap == "cancelled" else "failed: closed" if churned else None
        if isinstance(error, openai.APIStatusError):
            status = error.status_code
            expected = (bad and status == self._bad[drawn.item].status) or (churned and status == 429)
            return f"refused: {status}" if expected else None
        return None

    def _is_tie(self, drawn: Drawn, answer: Any) -> bool:
        """True if rounding tells this answer from the one alone: two of its tokens are as probable as each other, or a
        sampled token is next to the edge to another one.
        """
        item = self._pool[drawn.item]
        script = item.make(Variation())
        call = script.send(None)
        if not isinstance(call, Call) or call.path != "chat.completions.create":
            return False
        client = self._alone[item.client].sync
        with self._lock:
            if item.sampled:
                return any(same(answer, finish(client, _warmer(item.make(Variation()), by))) for by in WARMER)
            made = ask(client, Call(call.path, {**call.fields, "logprobs": True, "top_logprobs": 2}))
        likely = [each.top_logprobs for choice in made.choices for each in choice.logprobs.content]
        return any(len(two) == 2 and two[0].logprob - two[1].logprob < TIE for two in likely)

    def _end(self, drawn: Drawn, what: str, text: str = "") -> None:
        with self._lock:
            if drawn.number in self.ended:
                what, text = "unexpected second outcome", f"{self.ended[drawn.number]}, then {what}"
            self.ended[drawn.number] = what
            self.mishaps[drawn.mishap] += 1
            if text and len(self.shown) < MAX_SHOWN:
                self.shown.append(f"request {drawn.number}, {drawn}: {what}\n  {text}")
