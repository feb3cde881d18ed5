"""Threads that take the jobs of one owner: how many, in which order, and how they end."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import pytest

from localai_shim.threads import workers as module
from localai_shim.threads.workers import Crew
from tests.engine.harness import eventually


def running(name: str) -> int:
    return sum(thread.name == f"localai_shim:{name}" for thread in threading.enumerate())


def test_jobs_are_begun_in_their_order_by_a_limited_number_of_threads() -> None:
    crew, opened, begun, done = Crew[int]("order", 2), threading.Event(), list[int](), list[int]()

    def work(job: int) -> None:
        begun.append(job)
        assert opened.wait(60)
        done.append(job)

    crew.add(range(5), work)
    assert eventually(lambda: len(begun) == 2) and running("order") == 2
    crew.add([5], work)
    assert running("order") == 2
    opened.set()
    assert eventually(lambda: len(done) == 6 and not running("order"))
    assert sorted(begun[:2]) == [0, 1] and set(begun) == set(range(6))


def test_closing_waits_for_jobs_that_run_and_begins_no_other() -> None:
    crew, begun, opened, done = Crew[int]("closing", 1), threading.Event(), threading.Event(), list[int]()

    def work(job: int) -> None:
        begun.set()
        assert opened.wait(60)
        done.append(job)

    crew.add([1, 2], work)
    assert begun.wait(60)
    crew.is_closed = True
    closing = threading.Thread(target=crew.close)
    closing.start()
    opened.set()
    closing.join(60)
    assert done == [1] and not running("closing")


def test_a_thread_that_cannot_be_started_fails_the_jobs_unless_another_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew, opened, done = Crew[int]("short", 2), threading.Event(), list[int]()

    def work(job: int) -> None:
        assert opened.wait(60)
        done.append(job)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            crew.add([1, 2], work)
    crew.add([3], work)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        crew.add([4], work)
    opened.set()
    assert eventually(lambda: done == [3, 4])


def test_a_crew_does_not_hold_its_owner() -> None:
    class Owner:
        def __init__(self) -> None:
            self.crew, self.done = Crew[int]("owned", 1), threading.Event()

        def work(self, job: int) -> None:
            self.done.set()

    gc.disable()
    try:
        owner = Owner()
        owner.crew.add([1], owner.work)
        assert owner.done.wait(60) and eventually(lambda: not running("owned"))
        gone = weakref.ref(owner)
        del owner
        assert gone() is None
    finally:
        gc.enable()


def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, opened = Crew[int]("forked", 1), threading.Event()
    crew.add([1], lambda job: opened.wait(60) and None)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "getpid", lambda: -1)
        assert crew.is_forked
        crew.close()
    opened.set()
    crew.close()
    assert not crew.is_forked and os.getpid() > 0 and not running("forked")
