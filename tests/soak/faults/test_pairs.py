"""Pairs of faults beside requests, streams that are left, and timeouts: each ends right, or as it has to."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.lost import STREAM_TIMEOUT
from tests.soak.faults.kinds import KINDS
from tests.soak.faults.load import CALLERS, Beside, Load, logged
from tests.soak.faults.outcomes import attempt, gets, said
from tests.soak.faults.places import Armed
from tests.soak.faults.table import ALWAYS, POINTS, Point
from tests.soak.fuzz.blocks import BLOCKS

EXAMPLES = 25  # and 25 more for each further block of FUZZ
RULES = 14  # of an example
HURRY = 0.001  # seconds that a caller has who hurries
MOST_FAULTS = 2

# A template that raises once is rendered in another form, and what passes is tried again.
PASSING = [point for point in POINTS if point.times != ALWAYS]
ASKED = [kind for kind, (client, _) in KINDS.items() if client != "hub"]


class Request:
    """A request on a thread of its own, and what came of it."""

    def __init__(self, load: Load, kind: str, caller: str, timeout: float | None = None) -> None:
        self.kind, self.hurries = kind, timeout is not None
        self._load, self.outcome = load, None
        self._thread = threading.Thread(target=self._run, args=(caller, timeout), name=f"request {kind}", daemon=True)
        self._thread.start()

    def _run(self, caller: str, timeout: float | None) -> None:
        self.outcome: Any = attempt(self._load, self.kind, caller, timeout)

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.kind} never ended"


class Pairs(RuleBasedStateMachine):
    """Requests, streams and two faults."""

    streams: Bundle[Beside] = Bundle("streams")

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.load = load
        self.patch = pytest.MonkeyPatch()
        self.armed: list[tuple[Point, Armed]] = []
        self.requests: list[Request] = []
        self.all: list[Beside] = []
        self.logged = logged()
        self.logged.__enter__()

    @initialize(target=streams)
    def begin_with_a_stream(self) -> Beside:
        return self.open("text", "thread")

    @rule(
        target=streams, name=st.sampled_from(["text", "text", "vision", "embedder"]), how=st.sampled_from(CALLERS[:2])
    )
    def open(self, name: str, how: str) -> Beside:
        self.all.append(Beside(self.load, name, how))
        return self.all[-1]

    @rule(kind=st.sampled_from(ASKED), caller=st.sampled_from(CALLERS))
    def ask(self, kind: str, caller: str) -> None:
        self.requests.append(Request(self.load, kind, caller))

    @precondition(lambda self: len(self.armed) < MOST_FAULTS)
    @rule(point=st.sampled_from(PASSING), after=st.integers(0, 3))
    def arm(self, point: Point, after: int) -> None:
        """The request that meets it comes, too. A sink that fails twice can tell nobody."""
        if any(point.place == other.place for other, _ in self.armed):
            return
        armed = Armed(self.patch, point.place, point.raised, point.after + after, beside=True)
        self.armed.append((point, armed))
        self.ask(point.kind, CALLERS[after % 3])

    @rule(kind=st.sampled_from(["chat", "stream", "response", "picture", "embeddings", "schema"]))
    def hurry(self, kind: str) -> None:
        self.requests.append(Request(self.load, kind, "thread", HURRY))

    @rule(stream=streams)
    def read_on(self, stream: Beside) -> None:
        stream.proceed()

    @rule(stream=consumes(streams), how=st.sampled_from(["close", "drop"]))
    def leave(self, stream: Beside, how: str) -> None:
        stream.end(drops=how == "drop")

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 9))
    def wait(self, which: int) -> None:
        self.requests[which % len(self.requests)].end()

    def teardown(self) -> None:
        try:
            for request in self.requests:
                request.end()
            for stream in self.all:
                stream.end()
        finally:
            self.patch.undo()
            self.logged.__exit__(None, None, None)
        self.load.renew()
        for request in self.requests:
            self.check(request)
        for stream in self.all:
            assert stream.is_right
            assert stream.error is None or self.is_told(stream.error)
        assert not self.load.left()
        for kind in {request.kind for request in self.requests}:
            assert self.load.is_right(kind, self.load.play(kind))

    def check(self, request: Request) -> None:
        got = gets(self.load, request.kind, request.outcome)
        if got == "right" or (request.hurries and got in (openai.APITimeoutError, STREAM_TIMEOUT)):
            return
        if isinstance(request.outcome, Exception):
            assert self.is_told(request.outcome), (request.kind, request.outcome, self.armed)
        else:
            assert any(armed.fired.is_set() for _, armed in self.armed), (request.kind, request.outcome)

    def is_told(self, error: Exception) -> bool:
        """The error tells of a fault that was met."""
        met = [point for point, armed in self.armed if armed.fired.is_set()]
        return any(str(point.raised()) in said(error) for point in met)


COUPLES = [
    ("engine.sinks:SyncSink.put", "models.text:TextModel.forward"),
    ("engine.sinks:LoopWaker.wake", "engine.prompts.prefill:mx.eval"),
    ("grammar.compile:Grammar.__init__", "grammar.constraint:RowConstraint.mask"),
    ("models.adapters.layers:Stack.write", "models.adapters.folder:read_adapter"),
    ("prompt.template:ChatTokenizer.spans", "models.vision.model:VisionModel.embed"),
    ("endpoints.responses.background:Run.put", "state.store:Store.save"),
    ("client.batch_lines:_Request.put", "state.store:Store.update"),
    ("engine.prefix.tree:PrefixTree.insert", "engine.decode.in_flight:AwaitingHost.wait"),
]
"""Places of two faults, the one of which may meet what the other left."""


@pytest.mark.parametrize("couple", COUPLES, ids=" and ".join)
def test_two_faults_at_once(load: Load, couple: tuple[str, str]) -> None:
    machine = Pairs(load)
    streams = [machine.open("text", how) for how in CALLERS[:2]]
    for stream in streams:
        stream.proceed()
    for place in couple:
        machine.arm(next(point for point in PASSING if point.place == place), 0)
    machine.teardown()
    assert any(armed.fired.is_set() for _, armed in machine.armed)


def test_pairs_of_faults(load: Load) -> None:
    how = settings(
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # threads end as they like: there would be no end to shrinking
        max_examples=EXAMPLES * len(BLOCKS),
        stateful_step_count=RULES,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(partial(Pairs, load), settings=how)  # type: ignore[arg-type]
