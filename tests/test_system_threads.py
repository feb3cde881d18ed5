"""Threads, locks, queues and futures where nothing is patched; tests/soak/life/test_gevent.py has other programs."""

from __future__ import annotations

import _thread
import concurrent.futures
import queue
import sys
import threading
import time
from functools import partial

import pytest

from localai_shim.threads import greenlets, system
from tests.scripts import run
from tests.threads import in_threads


def test_unpatched_programs_use_the_standard_library() -> None:
    thread = system.make_thread(print, name="localai_shim:one")
    assert type(thread) is threading.Thread and thread.daemon
    assert (system.Lock, system.RLock, system.sleep) == (_thread.allocate_lock, _thread.RLock, time.sleep)
    assert type(system.make_queue()) is queue.SimpleQueue is system.SimpleQueue
    assert type(system.make_held_lock()) is type(threading.Lock())
    assert system.current_thread() is threading.current_thread()
    assert isinstance(system.Future(), concurrent.futures.Future)
    assert not greenlets.are_used() and not greenlets.are_here()


def test_gevent_and_eventlet_are_not_imported_for_a_program_that_has_not() -> None:
    ended = run(
        """
        import sys
        from localai_shim import LocalOpenAI
        with LocalOpenAI(MODEL) as client:
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
        print([name for name in ("gevent", "eventlet", "greenlet") if name in sys.modules])
        """
    )
    assert ended.stdout == "[]\n", ended.stderr


def test_a_program_that_has_imported_gevent_and_patched_nothing_is_an_ordinary_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Monkey:
        @staticmethod
        def is_module_patched(name: str) -> bool:
            return False

    monkeypatch.setitem(sys.modules, "gevent.monkey", Monkey)  # type: ignore[arg-type]
    assert not greenlets.are_used()


def test_an_event_is_set_once_and_stays_so() -> None:
    event = system.Event()
    assert not event.is_set() and not event.wait(0.0)
    threading.Timer(0.01, event.set).start()
    assert event.wait(60)
    event.set()
    assert event.is_set() and event.wait()


def test_a_timer_calls_unless_it_is_canceled() -> None:
    called = system.Event()
    canceled = system.Timer(0.0, lambda: 1 / 0)
    canceled.cancel()
    canceled.start()
    system.Timer(0.0, called.set).start()
    assert called.wait(60)


# What greenlets wait with serves threads, too: those of gevent's thread pool.


def test_a_queue_of_greenlets_gives_each_item_to_one_of_its_readers() -> None:
    made, taken = system._GreenletQueue(), list[int]()

    def read(_: int) -> None:
        while (item := made.get(timeout=60)) is not None:
            taken.append(item)

    def write(first: int) -> None:
        for item in range(first, first + 500):
            made.put(item)

    readers = threading.Thread(target=in_threads, args=(read, range(3)))
    readers.start()
    in_threads(write, (0, 500, 1000, 1500))
    for _ in range(3):
        made.put(None)
    readers.join()
    assert sorted(taken) == list(range(2000))
    assert made._waiters._all == []


def test_a_queue_of_greenlets_that_stays_empty_says_so() -> None:
    made = system._GreenletQueue()
    for get in (partial(made.get, block=False), partial(made.get, timeout=0.0), partial(made.get, timeout=0.01)):
        with pytest.raises(queue.Empty):
            get()
    assert made._waiters._all == []


def test_a_turn_of_greenlets_is_for_one_at_a_time() -> None:
    turn, inside, most = system.HeldLock(), list[int](), list[int]()

    def take(number: int) -> None:
        for _ in range(50):
            with turn:
                inside.append(number)
                most.append(len(inside))
                time.sleep(0)
                inside.remove(number)

    in_threads(take, range(4))
    assert max(most) == 1 and len(most) == 200
    assert turn._waiters._all == []
