"""What a scripted answer of `localai_shim.testing` costs beside the endpoints and the SDK, which run for it too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localai_shim import LocalOpenAI
from localai_shim.engine.sinks import deliver_events
from localai_shim.testing import ClientFactory, ScriptedEngine, scripted
from localai_shim.testing.model.engine import is_last
from localai_shim.testing.model.replies import PlayedRow
from localai_shim.types import Event

from .bench import Bench
from .figures import Figure, Section, print_figures

MESSAGES: list[Any] = [{"role": "user", "content": "Say this is a test."}]
ANSWER = "This is a test, and nothing else than that."


class _Straight(ScriptedEngine):
    """Answers with one text at once: nothing is chosen, and nothing is remembered."""

    def _play(self, rows: list[PlayedRow]) -> None:
        events: list[tuple[PlayedRow, Event]] = []
        for row in rows:
            events.append((row, row.next()))
            while not is_last(events[-1][1]):
                events.append((row, row.next()))
        deliver_events(events, ())
        self.requests.clear()
        self.prompts.clear()


@dataclass(slots=True)
class Costs:
    """Seconds of processor time each, run by run."""

    straight: list[float]
    scripted: list[float]
    clients: list[float]


def measure(bench: Bench) -> Section:
    """Answers and clients, each in turn with what it is compared with."""
    costs = _measure(20 if bench.quick else 100, 5 if bench.quick else 20)
    more = [ours - bare for ours, bare in zip(costs.scripted, costs.straight, strict=True)]
    figures = [
        Figure("scripted answer, beyond the endpoints and the SDK", more, 0.001, False, " ms", 1e3),
        Figure("the endpoints and the SDK alone", costs.straight, None, unit=" ms", scale=1e3),
        Figure("a scripted client, made and closed", costs.clients, 0.001, False, " ms", 1e3),
    ]
    print("Offline tests: processor time of one answer, and of a test's client")
    print_figures(figures)
    return Section(figures, {"straight": costs.straight, "scripted": costs.scripted, "clients": costs.clients})


def _measure(count: int, runs: int) -> Costs:
    out = Costs([], [], [])
    with _Straight(lambda *_: ANSWER) as engine, scripted() as client:
        client.when().reply(ANSWER).always()
        straight = LocalOpenAI(engine=engine)
        for _ in range(runs + 1):
            out.straight.append(_seconds(lambda: _ask(straight), count))
            out.scripted.append(_seconds(lambda: _ask(client), count))
            out.clients.append(_seconds(_make_client, count))
    for values in (out.straight, out.scripted, out.clients):
        del values[0]  # which warmed up
    return out


def _ask(client: LocalOpenAI) -> None:
    assert client.chat.completions.create(model="bench", messages=MESSAGES).choices[0].message.content == ANSWER


def _make_client() -> None:
    factory = ClientFactory({})
    factory("one", "two")
    factory.close()


def _seconds(work: Callable[[], None], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - began) / count
