"""The threads of engines: those that ended leave theirs to the next ones, and nothing of themselves."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine import threads
from localai_shim.engine.engine import Engine
from localai_shim.models.loading import load_model
from localai_shim.types import ModelLoadError
from tests import inside
from tests.engine.harness import engine_for, eventually, generate, request
from tests.scripts import run
from tests.threads import in_threads
from tests.tiny import tiny

ON_LINUX = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="reads /proc")


class Own(list[Any]):
    """Idle threads of this test's engines: those of earlier tests may end meanwhile."""

    def __init__(self) -> None:
        self._others = {*threading.enumerate()}

    def append(self, each: Any) -> None:
        if each[0] not in self._others:
            super().append(each)


@pytest.fixture(autouse=True)
def none_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", Own())


def system_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def load_and_close() -> None:
    engine = engine_for("qwen3")
    generate(engine, request([5, 6, 7], max_tokens=3))
    engine.close()


@ON_LINUX
def test_loading_and_closing_again_and_again_leaves_no_more_threads_than_once() -> None:
    load_and_close()
    before = system_threads()
    for _ in range(6):
        load_and_close()
    assert system_threads() <= before  # a thread of an earlier test may have ended meanwhile


@ON_LINUX
def test_as_many_are_left_as_ran_at_once() -> None:
    def several() -> None:
        engines = [engine_for("qwen3") for _ in range(3)]
        for engine in engines:
            generate(engine, request([5, 6, 7], max_tokens=3))
        for engine in engines:
            engine.close()

    several()
    before = system_threads()
    several()
    load_and_close()
    assert system_threads() <= before and len(threads._idle) == 3


def test_engines_that_start_at_once_have_a_thread_each() -> None:
    load_and_close()
    engines: list[Engine[Any]] = []
    in_threads(lambda _: engines.append(engine_for("qwen3")), range(4))
    try:
        assert len({inside.worker(engine).thread for engine in engines}) == 4
        assert len({tuple(generate(engine, request([5, 6, 7]))[0]) for engine in engines}) == 1
    finally:
        for engine in engines:
            engine.close()


def test_a_thread_has_its_engine_s_name_and_none_when_it_is_idle() -> None:
    path = str(tiny("qwen3"))
    names = []
    for name in ("first", "second"):
        engine = Engine(lambda: load_model(path, {}), name=name)
        engine.wait()
        names.append(inside.worker(engine).thread.name)
        engine.close()
        names.append(inside.worker(engine).thread.name)
    assert names == ["localai_shim:first", "localai_shim:idle", "localai_shim:second", "localai_shim:idle"]


def test_a_thread_that_waits_keeps_nothing_of_the_engine_that_ended() -> None:
    first = engine_for("qwen3")
    generate(first, request([5, 6, 7]))  # fills bounded caches of the thread, such as cosines of positions
    first.close()
    gc.collect()
    before = mx.get_active_memory()
    engine = engine_for("qwen3")
    generate(engine, request([5, 6, 7]))
    model, loop = weakref.ref(engine.model), weakref.ref(inside.loop(engine))
    engine.close()
    assert model() is None and mx.get_active_memory() <= before
    del engine
    assert eventually(lambda: loop() is None, 5)


def test_a_model_that_cannot_be_loaded_leaves_its_thread_to_the_next_one() -> None:
    def load() -> Any:
        raise ValueError("weights are damaged")

    engine: Engine[Any] = Engine(load)
    with pytest.raises(ModelLoadError):
        _ = engine.model
    engine.close()
    following = engine_for("qwen3")
    assert inside.worker(following).thread is inside.worker(engine).thread
    assert generate(following, request([5, 6, 7]))
    following.close()


@pytest.mark.parametrize("error", [ValueError, SystemExit, BaseException])
def test_whatever_ends_a_piece_of_work_the_next_one_runs(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("no")

    first = threads.start(fail, "first")
    assert first.wait(60)
    ran = threading.Event()
    second = threads.start(ran.set, "second")
    assert second.wait(60) and ran.is_set() and second.thread is first.thread


def test_a_program_that_ends_with_an_idle_thread_does_so_at_once_and_quietly() -> None:
    code = """
        from localai_shim import LocalOpenAI
        for _ in range(2):
            with LocalOpenAI(MODEL, keep_alive=0) as client:
                print(len(client.completions.create(model="m", prompt="Hi", max_tokens=3).choices))
    """
    done = run(code, warm="mlx")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1\n1\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_has_no_idle_threads() -> None:
    code = """
        import os, warnings
        from localai_shim.engine import threads
        threads.start(lambda: None, "x").wait(60)
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
        child = os.fork()
        if not child:
            idle = len(threads._idle)
            ran = threads.start(lambda: None, "y").wait(60)
            os._exit(0 if ran and not idle else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(threads._idle))
    """
    done = run(code, warm="mlx")
    assert (done.stderr, done.stdout) == ("", "0 1\n")


# -- forks -----------------------------------------------------------------------------------------------------------

COMPUTING = """
import os, sys, threading, warnings
from localai_shim.engine import threads
warnings.simplefilter("ignore")
settled, computes, may_end = [], threading.Event(), threading.Event()
computation = threads.Computation(lambda: settled.append(os.getpid()))

def compute():
    with computation:
        computes.set()
        may_end.wait()
        computation.safepoint()

def fork():
    pid = os.fork()
    if pid == 0:
        with computation if free else threads.Computation(print):  # what its thread held is lost with it
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

free = True
thread = threading.Thread(target=compute)
thread.start()
computes.wait()
"""
ON_FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def printed(code: str) -> str:
    done = run(COMPUTING + code, warm="sdk")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@ON_FORKS
def test_a_fork_waits_for_a_safepoint_where_what_was_launched_is_waited_for() -> None:
    code = """
os.register_at_fork(before=lambda: print("forks, settled", len(settled), flush=True))
threading.Timer(0.1, may_end.set).start()
status = fork()
thread.join()
print(status, len(settled), fork())
"""
    # The hook that was registered last is called first.
    assert printed(code) == "forks, settled 0\nforks, settled 2\n7 2 7\n"


@ON_FORKS
def test_a_fork_waits_only_so_long_and_says_what_may_come_of_it() -> None:
    code = """
threads.FORK_SECONDS, free = 0.05, False
status = fork()
may_end.set()
thread.join()
free = True
print(status, fork())
"""
    warned = "the process is forked while a model computes: with some BLAS libraries it may hang\n"
    assert sorted(printed(code).splitlines(keepends=True)) == ["7 7\n", warned]


@ON_FORKS
def test_a_handler_of_a_signal_may_fork_while_its_thread_waits_to_and_nothing_stays_held() -> None:
    code = """
import signal
def handler(*_):
    threads.FORK_SECONDS = 0.05
    print(fork())
    may_end.set()

free = False
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
print(fork())
thread.join()
free = True
print(fork(), threads._held)
with computation:
    print("computes")
"""
    warned = "the process is forked while a model computes: with some BLAS libraries it may hang\n"
    assert printed(code) == "7\n7\n7 []\ncomputes\n" + warned


@ON_FORKS
@pytest.mark.parametrize("by", ["signal.pthread_kill(main, signal.SIGINT)", "signal.raise_signal(signal.SIGINT)"])
def test_ctrl_c_while_a_fork_waits_comes_after_it_and_the_fork_still_waits(by: str) -> None:
    """A signal ends the wait of the thread that it reaches; that of another one is seen once the wait has ended."""
    code = """
import signal, time
free = True
main = threading.get_ident()
threading.Timer(0.1, lambda: BY).start()
threading.Timer(0.3, may_end.set).start()
seen = []
os.register_at_fork(after_in_parent=lambda: seen.append(len(settled) > 0))
try:
    fork()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
thread.join()
print(fork(), seen)
"""
    assert printed(code.replace("BY", by)) == "interrupted\n7 [True, True]\n"


@ON_FORKS
def test_a_fork_still_waits_where_another_handler_raises_meanwhile() -> None:
    code = """
import signal
def handler(*_):
    raise SystemExit(3)

sys.unraisablehook = lambda raised: print(repr(raised.exc_value), flush=True)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
threading.Timer(0.3, may_end.set).start()
os.register_at_fork(after_in_parent=lambda: print("settled:", len(settled) > 0, flush=True))
print(fork())
thread.join()
with computation:
    print("computes")
"""
    assert printed(code) == "SystemExit(3)\nsettled: True\n7\ncomputes\n"


@ON_FORKS
def test_threads_that_fork_at_the_same_time_take_turns() -> None:
    code = """
results = []
forking = [threading.Thread(target=lambda: results.append(fork())) for _ in range(8)]
for each in forking:
    each.start()
may_end.set()
for each in (*forking, thread):
    each.join()
print(results)
"""
    assert printed(code) == f"{[7] * 8}\n"
