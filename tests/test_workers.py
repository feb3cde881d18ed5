"""Work that is begun on spare threads is done once, by whoever comes first, and never waits for a thread."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import itertools
import os
import threading
from functools import partial

import pytest

from localai_shim.threads import workers
from localai_shim.threads.workers import MAX_THREADS, Begun, Workers, run_all
from tests.engine.harness import eventually
from tests.soak.life.lines import InterruptAt

SECONDS = 30


def test_work_is_done_before_anybody_asks() -> None:
    done = threading.Event()
    begun = Begun(done.set)
    assert done.wait(SECONDS)
    assert begun.result() is None


def test_where_no_thread_is_free_whoever_asks_does_it() -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def block() -> None:
        entered.release()
        assert gate.wait(SECONDS)

    blocked = [Begun(block) for _ in range(MAX_THREADS)]
    for _ in blocked:
        assert entered.acquire(timeout=SECONDS)
    assert Begun(threading.current_thread).result() is threading.current_thread()
    gate.set()
    for each in blocked:
        each.result()


def test_work_is_done_once_however_many_ask() -> None:
    calls: list[int] = []
    gate = threading.Event()

    def work() -> int:
        assert gate.wait(SECONDS)
        calls.append(1)
        return 7

    begun, found = Begun(work), list[int]()
    asking = [threading.Thread(target=lambda: found.append(begun.result())) for _ in range(6)]
    for thread in asking:
        thread.start()
    gate.set()
    for thread in asking:
        thread.join(SECONDS)
    assert found == [7] * 6 and calls == [1]


def test_what_it_raises_is_raised_whenever_its_result_is_asked_for() -> None:
    begun = Begun(partial(int, "x"))
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            begun.result()


def test_what_nobody_holds_any_more_is_not_begun() -> None:
    gate, entered, done = threading.Event(), threading.Semaphore(0), list[str]()

    def block() -> None:
        entered.release()
        assert gate.wait(SECONDS)

    blocked = [Begun(block) for _ in range(MAX_THREADS)]
    for _ in blocked:
        assert entered.acquire(timeout=SECONDS)
    dropped, held = Begun(lambda: done.append("dropped")), Begun(lambda: done.append("held"))
    del dropped
    gc.collect()
    gate.set()
    held.result()
    for each in blocked:
        each.result()
    Begun(lambda: done.append("after")).result()
    assert done == ["held", "after"]


def test_work_runs_in_the_context_of_whoever_began_it() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    assert run_all([variable.get] * 4) == ["mine"] * 4


def test_where_no_thread_can_be_started_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case of a thread that goes on while the interpreter ends, from Python 3.12 on."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool = Workers("test")
    assert pool.submit(threading.current_thread).result(SECONDS) is threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    Begun(int).result()
    child = os.fork()
    if child == 0:
        done = threading.Event()
        begun = Begun(done.set)
        os._exit(0 if done.wait(SECONDS) and begun.result() is None and workers._spare._threads > 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("has_free_thread", [False, True])
@pytest.mark.parametrize("most", [1, 4])
def test_an_interrupt_at_any_line_of_submit_delays_no_other_job_and_keeps_no_thread(
    most: int, has_free_thread: bool
) -> None:
    pool = Workers(f"interrupted-{most}-{has_free_thread}", most, idle=0.1 if has_free_thread else 0.0)

    def has_ended() -> bool:
        return not any(thread.name.endswith(pool._name) for thread in threading.enumerate())

    for n in itertools.count():
        if has_free_thread:
            pool.submit(int).result(SECONDS)
        with InterruptAt(n) as interrupt, contextlib.suppress(KeyboardInterrupt):
            pool.submit(int)
        assert [each.result(SECONDS) for each in [pool.submit(lambda: 7) for _ in range(3)]] == [7] * 3
        assert eventually(has_ended), interrupt.where
        assert (pool._threads, pool._free) == (0, 0), interrupt.where
        if not interrupt.where:
            break
    assert n > 5
