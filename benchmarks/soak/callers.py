"""Sixteen threads, an asyncio loop and a trio loop that send requests at once, and a model that comes and goes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import anyio
import trio

from localai_shim import LocalOpenAI

from .bad import Bad
from .checks import Left, Outcomes, ask
from .meters import Clocks
from .requests import Drawn, Item
from .scripts import Call, Script, play, play_async
from .setting import Pair, close_pair, open_pair

THREADS = 16
TASKS = 6  # on each loop
SLOW_SECONDS = 0.02  # for which a slow reader pauses after a chunk
MIN_TIMEOUT = 0.002
STALL_SECONDS = 240.0  # without any outcome, after which what has none is lost
BEAT_SECONDS = 0.01
OPEN_SECONDS = (0.5, 3.0)  # for which the model that comes and goes is there


@dataclass(frozen=True, slots=True)
class Load:
    """Clients, requests and notes that the callers share."""

    pairs: Mapping[str, Pair]
    churn: Churn
    pool: Sequence[Item]
    bad: Sequence[Bad]
    expected: Sequence[Any]
    outcomes: Outcomes
    clocks: Clocks

    def begin(self, drawn: Drawn) -> tuple[Pair, Script]:
        """The clients that a request goes to, and its script."""
        which: Item | Bad = self.bad[drawn.item] if drawn.mishap == "bad" else self.pool[drawn.item]
        guess = ""
        if drawn.predicted:
            guess = self.expected[drawn.item][0][0]
        pair = self.churn.pair if which.client == "churned" else self.pairs[which.client]
        return pair, which.make(drawn.variation(guess))


class Churn:
    """A model that is loaded and closed again and again, whoever asks it, and an adapter of another one.

    Args:
        options: of the model.
        other: client of the one that has adapters.
        adapter: a folder of one that nobody asks for.
    """

    def __init__(self, options: dict[str, Any], other: LocalOpenAI, adapter: Path) -> None:
        self._options, self._other, self._adapter = options, other, adapter
        self._stop, self._rng = threading.Event(), Random(5)
        self.pair = open_pair(options)
        self.loads = 0

    def __enter__(self) -> Churn:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        close_pair(self.pair)

    def _run(self) -> None:
        while not self._stop.wait(self._rng.uniform(*OPEN_SECONDS)):
            self._other.load_adapter("c", self._adapter)
            close_pair(self.pair)
            self.pair = open_pair(self._options)
            self._other.unload_adapter("c")
            self.loads += 1


def run_all(load: Load, draws: Callable[[int], Drawn], numbers: range) -> bool:
    """Send the requests of these numbers; whether each had an outcome in time."""
    taken = _Numbers(numbers)
    threads = [_thread(f"caller-{i}", _send_from_thread, load, draws, taken) for i in range(THREADS)]
    threads.append(_thread("asyncio", lambda: asyncio.run(_send_from_loop(load, draws, taken, "asyncio"))))
    threads.append(_thread("trio", lambda: trio.run(_send_from_loop, load, draws, taken, "trio")))
    known, since = -1, time.monotonic()
    for thread in threads:
        while thread.is_alive():
            thread.join(1)
            now = len(load.outcomes.ended)
            if now != known:
                known, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                return False
    return True


def _thread(name: str, work: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    thread.start()
    return thread


class _Numbers:
    """Numbers that threads and loops take in turn."""

    def __init__(self, numbers: range) -> None:
        self._left, self._lock = iter(numbers), threading.Lock()

    def __iter__(self) -> Iterator[int]:
        for _ in count():
            with self._lock:
                number = next(self._left, None)
            if number is None:
                return
            yield number


# -- threads ----------------------------------------------------------------------------------------------------------


def _send_from_thread(load: Load, draws: Callable[[int], Drawn], numbers: _Numbers) -> None:
    for number in numbers:
        drawn = draws(number)
        try:
            pair, script = load.begin(drawn)
            answer = _perform(load, _timed(pair.sync, drawn), script, drawn)
        except Exception as error:
            load.outcomes.failed(drawn, error)
        else:
            load.outcomes.answered(drawn, answer)


def _timed(client: Any, drawn: Drawn) -> Any:
    """The client, or a copy of it that has little time."""
    return client.with_options(timeout=max(MIN_TIMEOUT, drawn.seconds)) if drawn.mishap == "timeout" else client


def _perform(load: Load, client: Any, script: Script, drawn: Drawn) -> Any:
    def asked(call: Call) -> Any:
        answer = ask(client, call)
        return _read(load, answer, drawn) if call.stream else answer

    return play(script, asked)


def _read(load: Load, stream: Any, drawn: Drawn) -> list[Any]:
    """All chunks, unless the reader leaves before: by dropping the stream, or as another thread closes it."""
    chunks: list[Any] = []
    if drawn.mishap == "cancelled":
        closed = threading.Event()
        closer = threading.Timer(drawn.seconds, lambda: (closed.set(), stream.close()))
        closer.start()
        try:
            chunks.extend(stream)
        finally:
            closer.cancel()
            closer.join()
        if closed.is_set():  # between two chunks: then the stream has just ended
            raise Left
        return chunks
    last = None
    for chunk in stream:
        last = load.clocks.gap(drawn.priority, last)
        chunks.append(chunk)
        if drawn.mishap == "abandoned" and len(chunks) > drawn.chunks:
            raise Left
        if drawn.mishap == "slow" and len(chunks) <= drawn.chunks:
            time.sleep(SLOW_SECONDS)
            last = None
    return chunks


# -- event loops ----------------------------------------------------------------------------------------------------


async def _send_from_loop(load: Load, draws: Callable[[int], Drawn], numbers: _Numbers, name: str) -> None:
    async with anyio.create_task_group() as beating:
        beating.start_soon(_beat, load.clocks, name)
        async with anyio.create_task_group() as tasks:
            for _ in range(TASKS):
                tasks.start_soon(_send_from_task, load, draws, numbers)
        beating.cancel_scope.cancel()


async def _beat(clocks: Clocks, name: str) -> None:
    while True:
        before = clocks.now()
        await anyio.sleep(BEAT_SECONDS)
        clocks.beat(name, before, BEAT_SECONDS)


async def _send_from_task(load: Load, draws: Callable[[int], Drawn], numbers: _Numbers) -> None:
    for number in numbers:
        drawn = draws(number)
        limit = drawn.seconds if drawn.mishap == "cancelled" else None
        with anyio.move_on_after(limit) as scope:
            try:
                pair, script = load.begin(drawn)
                answer = await _perform_async(load, _timed(pair.async_, drawn), script, drawn)
            except Exception as error:
                load.outcomes.failed(drawn, error)
            else:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(load.outcomes.answered, drawn, answer)
        if scope.cancelled_caught:
            load.outcomes.cancelled(drawn)


async def _perform_async(load: Load, client: Any, script: Script, drawn: Drawn) -> Any:
    return await play_async(script, lambda call: _ask_async(load, client, call, drawn))


async def _ask_async(load: Load, client: Any, call: Call, drawn: Drawn) -> Any:
    stream = await ask(client, call)
    if not call.stream:
        return stream
    chunks: list[Any] = []
    last = None
    async for chunk in stream:
        last = load.clocks.gap(drawn.priority, last)
        chunks.append(chunk)
        if drawn.mishap == "abandoned" and len(chunks) > drawn.chunks:
            raise Left
        if drawn.mishap == "slow" and len(chunks) <= drawn.chunks:
            await anyio.sleep(SLOW_SECONDS)
            last = None
    return chunks
