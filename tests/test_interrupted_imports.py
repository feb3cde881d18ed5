"""Ctrl-C, or a failure, while the first call imports: the caller is told at once, and the next call works."""

from __future__ import annotations

import pytest

from tests.samples import only
from tests.scripts import run

ASK = """
def ask():
    with LocalOpenAI(MODEL) as client:
        messages, more = [{"role": "user", "content": "Hi"}], {"ignore_eos": True}
        made = client.chat.completions.create(model="m", messages=messages, max_tokens=2, extra_body=more)
        return made.usage.completion_tokens
"""
INTERRUPT = (
    """
import os, signal, sys, threading
from localai_shim import LocalOpenAI
handled = threading.Event()

def handler(*_):
    handled.set()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)

class AtImport:
    name = {name!r}

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            self.name = None
            os.kill(os.getpid(), signal.SIGINT)
            if threading.current_thread() is not threading.main_thread():
                assert handled.wait(60)

hook = AtImport()
sys.meta_path.insert(0, hook)
"""
    + ASK
    + """
try:
    ask()
except KeyboardInterrupt:
    print("interrupted", end=" ")
assert hook.name is None, "it was imported before"
print(ask(), ask())
"""
)
FAIL = (
    """
import sys, openai
from localai_shim import LocalOpenAI

class AtImport:
    name = {name!r}

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            self.name = None
            raise ImportError("the disk is gone", name=name)

hook = AtImport()
sys.meta_path.insert(0, hook)
"""
    + ASK
    + """
try:
    ask()
except openai.InternalServerError as error:
    print(error.body["message"])
assert hook.name is None, "it was imported before"
print(ask())
"""
)


@pytest.mark.parametrize(
    "name",
    only(
        ["numpy.linalg"],
        ["mlx.core", "numpy.linalg", "localai_shim.endpoints.chat.create", "jinja2.environment", "llguidance"],
    ),
)
def test_a_call_that_is_interrupted_amid_an_import_leaves_a_process_in_which_the_next_works(name: str) -> None:
    done = run(INTERRUPT.replace("{name!r}", repr(name)))
    assert (done.returncode, done.stdout) == (0, "interrupted 2 2\n"), done.stderr


@pytest.mark.parametrize(
    "name",
    only(
        ["localai_shim.endpoints.chat.create"],
        ["localai_shim.endpoints.chat.create", "localai_shim.endpoints.responses.create"],
    ),
)
def test_an_import_that_fails_is_named_and_tried_again(name: str) -> None:
    done = run(FAIL.replace("{name!r}", repr(name)))
    message = f"{name} could not be imported: the disk is gone. It is tried again with the next request."
    assert (done.returncode, done.stdout) == (0, f"{message}\n2\n"), done.stderr
