"""Forks: in a child, whatever it inherits, a call answers at once; and the parent goes on, amid its models' work."""

from __future__ import annotations

import os

import pytest

from tests.scripts import run
from tests.tiny import tiny

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PRELUDE = """
import asyncio, concurrent.futures, faulthandler, multiprocessing, os, sys, warnings
import openai
warnings.simplefilter("ignore")
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], extra_body={"ignore_eos": True})

def count(client, **more):
    return client.chat.completions.create(**ask, max_tokens=2, **more).usage.completion_tokens

def refused(call):
    try:
        call()
    except openai.APIConnectionError as error:
        assert "fork" in str(error) and "spawn" in str(error), error
        return True

def in_a_child(work):
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(60, exit=True)  # also where MLX holds the GIL
        sys.exit(7 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def printed(code: str, warm: str | None = "mlx", first: str = "", **env: str) -> str:
    done = run(first + PRELUDE + code, warm=warm, **env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_a_new_client_in_a_child_of_a_parent_that_used_mlx_alone_is_refused() -> None:
    code = """
import mlx.core as mx
mx.eval(mx.ones(4) + 1)
print(in_a_child(lambda: refused(lambda: count(LocalOpenAI(MODEL)))), count(LocalOpenAI(MODEL)))
"""
    assert printed(code) == "7 2\n"


def test_the_streams_of_a_parent_end_in_its_child_and_go_on_in_the_parent() -> None:
    code = """
client = LocalOpenAI(MODEL)
stream = client.chat.completions.create(**ask, stream=True)
next(stream)
print(in_a_child(lambda: refused(lambda: list(stream))))
next(stream)

async def main():
    streaming = await AsyncLocalOpenAI(MODEL).chat.completions.create(**ask, stream=True)
    await streaming.__anext__()
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            async for chunk in streaming:
                pass
        except openai.APIConnectionError as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    await streaming.__anext__()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

print(asyncio.run(main()))
"""
    assert printed(code) == "7\n7\n"


def test_a_child_of_a_process_that_still_imports_is_told_at_once() -> None:
    code = """
client = LocalOpenAI(MODEL)
print(in_a_child(lambda: refused(lambda: count(client)) and refused(lambda: count(LocalOpenAI(MODEL)))), count(client))
"""
    assert printed(code, warm=None) == "7 2\n"


def test_pools_of_forked_processes_tell_and_those_that_forked_before_the_first_client_work() -> None:
    code = """
def of_parent():
    return refused(lambda: count(client))

def of_its_own():
    with LocalOpenAI(MODEL) as own:
        return count(own)

fork = multiprocessing.get_context("fork")
early = concurrent.futures.ProcessPoolExecutor(1, mp_context=fork)
early.submit(os.getpid).result()  # its process is there
client = LocalOpenAI(MODEL)
parents = count(client)
with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as late:
    print(parents, late.submit(of_parent).result(60), early.submit(of_its_own).result(60), count(client))
early.shutdown()
"""
    assert printed(code, warm="sdk") == "2 True 2 2\n"


def test_a_parent_that_forks_again_and_again_while_a_model_computes_goes_on_and_answers_the_same() -> None:
    """OpenBLAS ends its threads before a fork, and would wait for ever for one that is amid a product: seen within 50
    forks."""
    wide = tiny("qwen3", hidden_size=512, intermediate_size=1024, max_position_embeddings=200_000)
    code = """
import threading
faulthandler.dump_traceback_later(60, exit=True)  # also where OpenBLAS holds the GIL
client, forked, others = LocalOpenAI(WIDE), threading.Event(), 0

def answer(words):
    asked = {**ask, "messages": [{"role": "user", "content": "word " * words}]}
    return client.chat.completions.create(**asked, max_tokens=8, temperature=0).choices[0].message.content

def answers(words):
    global others
    while not forked.is_set():
        others += answer(words) != alone[words]

alone = {words: answer(words) for words in (50, 100, 400)}
asking = [threading.Thread(target=answers, args=(words,)) for words in alone]
for thread in asking:
    thread.start()
for _ in range(100):
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
forked.set()
for thread in asking:
    thread.join()
print(others)
"""
    assert printed(code.replace("WIDE", repr(str(wide))), warm=None, OPENBLAS_NUM_THREADS="2") == "0\n"


def test_a_fork_waits_for_the_step_that_an_engine_is_in_and_holds_up_the_next() -> None:
    first = """
import os, time
steps = []

def look():  # registered before the package's own: it is called after them
    if steps:
        before = client.stats().steps
        time.sleep(0.05)  # dozens of steps
        steps.append(client.stats().steps - before)

os.register_at_fork(before=look)
"""
    code = """
client = LocalOpenAI(MODEL)
stream = client.chat.completions.create(**ask, stream=True)
for turn in range(3):
    for _ in range(20):
        next(stream)
    steps.append(None)
    os._exit(0) if os.fork() == 0 else os.wait()
print([taken for taken in steps if taken is not None])
"""
    assert printed(code, warm=None, first=first) == "[0, 0, 0]\n"


def test_a_client_that_is_pickled_says_what_to_do() -> None:
    code = """
import copy, pickle
for client in (LocalOpenAI(MODEL), AsyncLocalOpenAI(MODEL)):
    for copied in (pickle.dumps, copy.deepcopy):
        try:
            copied(client)
        except TypeError as error:
            print(str(error).partition(".")[0])
"""
    reason = "cannot be pickled, because its model runs in this process"
    assert printed(code) == f"LocalOpenAI {reason}\n" * 2 + f"AsyncLocalOpenAI {reason}\n" * 2
