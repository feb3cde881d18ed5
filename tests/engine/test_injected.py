"""An error in any part of the engine: whose requests fail with it, who goes on, and that the next ones are served.

One engine has all of these errors, one after the other.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from localai_shim.backends.memory import DeviceMemory
from localai_shim.engine import loop
from localai_shim.engine.costs.chunks import Pace
from localai_shim.engine.costs.cost_model import CostModel, Meter
from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.decode.in_flight import Verifying
from localai_shim.engine.drafts.controller import Speculation
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv import Buckets
from localai_shim.engine.loop import Loop
from localai_shim.engine.memory import Memory
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prefix.tree import PrefixTree
from localai_shim.engine.prompts.features import FeatureCache, Tower
from localai_shim.engine.prompts.prefill import Prefiller, PrefillJob
from localai_shim.engine.row import Row
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.engine.work import rows as of_rows
from localai_shim.engine.work.batcher import Batcher
from localai_shim.engine.work.lane import Share
from localai_shim.engine.work.prefill import Prefill
from localai_shim.engine.work.prompts import PromptJobs
from localai_shim.engine.work.queue import Queue
from localai_shim.engine.work.rows import Room, Rows
from localai_shim.engine.work.runner import RowRunner, TextRunner
from localai_shim.engine.work.scheduler import Decoding, Scheduler
from localai_shim.engine.work.texts import TextJobs
from localai_shim.engine.work.tickets import Tickets
from localai_shim.types import GenerationRequest, ModelLoadError, Prompt, RowError, SamplingParams
from tests import inside
from tests.engine.everything import Everything, Texts, everything
from tests.engine.guessing import Failing, speculate
from tests.engine.harness import GREEDY, Running, eventually
from tests.engine.media import QUESTION, TEXT, prompt_of
from tests.engine.media import picture as make_picture

SHARED = [7 + i % 50 for i in range(90)]
PICTURE = make_picture(9)
TEXTS = [[3] * 5, [4] * 9, [5] * 40]

_ROUNDS = itertools.count()

NOBODY, OWN, ROWS = "nobody fails", "rows that run go on", "rows fail"
POINTS: dict[str, list[tuple[Any, str]]] = {
    NOBODY: [
        (PrefixTree, "match_prefix"),
        (PrefixTree, "covers"),
        (PrefixTree, "walk"),
        (PrefixTree, "insert"),
        (PrefixTree, "evict"),
        (PrefixCache, "save"),
        (FeatureCache, "limit"),
        (FeatureCache, "release"),
        (Speculation, "_guess"),
        (Speculation, "_best"),
        (Speculation, "_plan"),
        (CostModel, "note"),
        (CostModel, "seconds"),
        (of_rows, "_length"),
        (DeviceMemory, "rest"),
        (DeviceMemory, "work"),
        (DeviceMemory, "_settle"),
    ],
    OWN: [
        (Row, "__init__"),
        (PrefillJob, "__init__"),
        (PrefillJob, "step"),
        (Prefiller, "begin"),
        (Prefiller, "run"),
        (Prefiller, "run_together"),
        (Prefiller, "estimate"),
        (Prefiller, "depends"),
        (Prefiller, "note_first_pass"),
        (Prefiller, "chunk_limit"),
        (Prefiller, "is_short"),
        (Prefiller, "together"),
        (PromptJobs, "add"),
        (PromptJobs, "drop"),
        (PromptJobs, "_place"),
        (PromptJobs, "job"),
        (PromptJobs, "joined"),
        (PromptJobs, "release"),
        (PromptJobs, "_finish"),
        (PromptJobs, "take"),
        (PromptJobs, "put"),
        (RowRunner, "_open"),
        (RowRunner, "_run_chunk"),
        (RowRunner, "_run_item"),
        (RowRunner, "_join"),
        (Prefill, "next"),
        (Prefill, "_begin"),
        (Prefill, "_choose"),
        (Prefill, "_most"),
        (Prefill, "_to_gather"),
        (Prefill, "_advance"),
        (Prefill, "_make_way"),
        (Room, "in_the_way"),
        (Room, "fitting"),
        (Room, "open"),
        (Room, "_fits"),
        (RowRunner, "_limit"),
        (Prefill, "priority"),
        (Scheduler, "_choose_kind"),
        (Memory, "batch"),
        (Memory, "row"),
        (Tickets, "enter"),
        (Batcher, "lane"),
        (Rows, "enter"),
        (Rows, "add"),
        (Queue, "add"),
        (Queue, "first"),
        (Queue, "discard"),
        (Queue, "turn"),
        (Queue, "goes_first"),
        (Pace, "note"),
        (Pace, "chunk"),
        (Buckets, "choose"),
        (Tower, "missing"),
        (Tower, "pin"),
        (Tower, "run"),
        (FeatureCache, "add"),
        (FeatureCache, "pin"),
        (Everything, "embed"),
        (Everything, "row_state"),
        (Everything, "prefill"),
        (Everything, "new_cache"),
        (Batch, "join"),
        (Meter, "stalled"),
        (TextJobs, "enter"),
        (TextJobs, "add"),
        (Share, "pause"),
        (Share, "note_pass"),
        (TextJobs, "note_tokens"),
        (TextJobs, "is_due"),
        (TextJobs, "next_pass"),
        (TextJobs, "_choose"),
        (TextJobs, "_first"),
        (TextJobs, "take"),
        (TextJobs, "requeue"),
        (TextJobs, "finish"),
        (TextRunner, "run"),
        (TextRunner, "_read_on"),
        (TextRunner, "_embed"),
        (TextRunner, "_store"),
        (TextRunner, "_emit_done"),
    ],
    ROWS: [
        (Everything, "forward"),
        (Sampler, "__init__"),
        (Sampler, "sample"),
        (Sampler, "retire"),
        (Buckets, "join"),
        (Buckets, "leave"),
        (Batch, "_in_order_of_places"),
        (Batch, "_finish"),
        (Batch, "_reap"),
        (Batch, "_leave"),
        (Verifying, "launch"),
        (Tickets, "forget"),
        (Tickets, "find"),
        (Rows, "drop"),
        (Decoding, "next"),
        (Decoding, "end"),
        (Batch, "collect"),
        (Batch, "run"),
        (Loop, "_take_inbox"),
        (Loop, "_flush"),
        (Loop, "_drop"),
        (loop, "deliver_events"),
        (Batcher, "by_lane"),
        (Batcher, "step"),
        (Scheduler, "next"),
        (Scheduler, "_begin"),
        (Scheduler, "_rest"),
        (Scheduler, "_end"),
        (Room, "outgrows"),
        (Meter, "stepped"),
    ],
}


class Fault(ArithmeticError):
    """Errors that are injected."""


@dataclass
class Asked:
    """Requests of all kinds at once, and what came of each: its output, or the error."""

    running: dict[str, Any]
    """Rows that have had some tokens before the others came."""
    others: dict[str, Any]
    outcomes: dict[str, Any] = field(default_factory=dict)

    def finish(self) -> dict[str, Any]:
        for name, each in (self.running | self.others).items():
            try:
                self.outcomes[name] = each.finish()
            except RowError as error:
                self.outcomes[name] = error
        return self.outcomes


def ask(engine: Engine[Any], before_others: Callable[[], object] = lambda: None) -> Asked:
    """Ask for everything; nothing that was asked before is found in the prefix cache."""
    salt = str(next(_ROUNDS))

    def row(tokens: list[int], sampling: SamplingParams = GREEDY, count: int = 12) -> GenerationRequest:
        return GenerationRequest(Prompt(tokens, salt=salt), sampling, count, ignore_eos=True)

    running = {
        "greedy": Running(engine, row([5, 6, 7], count=60)),
        "seeded": Running(engine, row([8, 9], SamplingParams(seed=3, presence_penalty=0.5), count=60)),
    }
    for each in running.values():
        each.read(3)
    before_others()
    picture = prompt_of(TEXT, PICTURE, QUESTION, salt=salt)
    gone = Running(engine, row([19, 20, 21], count=1000))
    others: dict[str, Any] = {
        "short": Running(engine, row([11, 12, 13])),
        "short, too": Running(engine, row([14, 15, 16, 17], SamplingParams(seed=5))),
        "choices": Running(engine, [row([*SHARED, 3]), row([*SHARED, 3], SamplingParams(seed=6))]),
        "shares its beginning": Running(engine, row([*SHARED, 4, 5])),
        "picture": Running(engine, GenerationRequest(picture, GREEDY, 12, ignore_eos=True)),
        "texts": Texts(engine, TEXTS),
        "a text": Texts(engine, TEXTS[:1]),
    }
    gone.cancel()
    return Asked(running, others)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine[Everything]]:
    folder = tmp_path_factory.mktemp("prefixes")
    with pytest.MonkeyPatch.context() as patch:
        speculate(patch, Failing(after=10**9))
        made = everything(EngineOptions(speculation="auto", prefill_chunk=48, cache_dir=folder))
        yield made
        made.close()


@pytest.fixture(scope="module")
def undisturbed(engine: Engine[Everything]) -> dict[str, Any]:
    return ask(engine).finish()


@pytest.mark.parametrize(
    ("whose", "owner", "name"), [(whose, *point) for whose, points in POINTS.items() for point in points]
)
def test_an_error_is_that_of_its_own_requests_and_the_next_ones_are_served(
    whose: str,
    owner: Any,
    name: str,
    engine: Engine[Everything],
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, found, raised = inside.worker(engine).thread, getattr(owner, name), threading.Event()
    original = found.fget if isinstance(found, property) else found

    def failing(*given: Any, **more: Any) -> Any:
        if threading.current_thread() is thread and not raised.is_set():
            raised.set()
            raise Fault(name)
        return original(*given, **more)

    fails = property(failing) if isinstance(found, property) else failing
    asked = ask(engine, lambda: monkeypatch.setattr(owner, name, fails))
    outcomes = asked.finish()
    assert raised.wait(20), "it was never called"
    monkeypatch.undo()
    failed = {name: error for name, error in outcomes.items() if isinstance(error, RowError)}
    assert {name: each for name, each in outcomes.items() if name not in failed} == {
        name: each for name, each in undisturbed.items() if name not in failed
    }
    assert all("Fault" in str(error) for error in failed.values())
    if whose == NOBODY:
        assert not failed
    elif whose == OWN:
        assert not failed.keys() & asked.running.keys()
    assert not inside.worker(engine).wait(0) and thread.is_alive()
    assert eventually(lambda: not (engine.stats().running or engine.stats().waiting))
    assert not inside.loop(engine).tickets and inside.setup(engine).speculation is not None
    inside.setup(engine).features.clear()
    following = Running(engine, GenerationRequest(Prompt([11, 12, 13]), GREEDY, 12, ignore_eos=True))
    assert Texts(engine, TEXTS).finish() == undisturbed["texts"] and following.finish() == undisturbed["short"]


def test_an_engine_that_cannot_start_afresh_fails_requests_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = everything(EngineOptions(prefix_cache_bytes=0))
    make, lacking = Batch.__init__, threading.Event()

    def making(*given: Any, **more: Any) -> None:
        if lacking.is_set():
            raise Fault("no memory for a batch")
        make(*given, **more)

    def step() -> GenerationRequest:
        return GenerationRequest(Prompt([11, 12, 13]), GREEDY, 12, ignore_eos=True)

    try:
        expected = Running(engine, step()).finish()
        monkeypatch.setattr(Batch, "__init__", making)
        lacking.set()
        with monkeypatch.context() as patch:
            patch.setattr(Meter, "stepped", lambda *_: 1 / 0)
            with pytest.raises(RowError, match="the engine failed"):
                Running(engine, step()).finish()
        for asked in (Running(engine, step()), Texts(engine, TEXTS)):
            with pytest.raises(RowError, match=r"could not be admitted: .*no memory for a batch"):
                asked.finish()
        assert eventually(lambda: not (engine.stats().running or engine.stats().waiting))
        lacking.clear()
        assert Running(engine, step()).finish() == expected and Texts(engine, TEXTS[:1]).finish() == [[5.0, 3.0]]
    finally:
        engine.close()


def test_a_panic_while_a_model_is_tried_is_why_it_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """Those of programs in Rust are no `Exception`."""

    def set_up(*_: object) -> None:
        raise Panic("index out of bounds")

    monkeypatch.setattr(loop, "set_up", set_up)
    engine = everything()
    try:
        with pytest.raises(ModelLoadError, match="cannot be run: index out of bounds"):
            _ = engine.model
    finally:
        engine.close()
