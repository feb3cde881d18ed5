"""Interpreter exit, fork, and what importing costs: each in a process of its own."""

from __future__ import annotations

import os

import pytest

from tests.samples import only
from tests.scripts import import_cost, run

PRELUDE = """
from localai_shim import LocalOpenAI, AsyncLocalOpenAI
ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], extra_body={"ignore_eos": True})
"""

STREAM = """
client = LocalOpenAI(MODEL)
stream = client.chat.completions.create(**ask, stream=True)
other = client.chat.completions.create(**ask, stream=True)
next(stream)
print("in mid-stream")
"""
ASYNC_STREAM = """
import asyncio
async def main():
    client = AsyncLocalOpenAI(MODEL)
    stream = await client.chat.completions.create(**ask, stream=True)
    async for chunk in stream:
        break
    print("in mid-stream of a task")
    return stream
left = asyncio.run(main())
"""
THREAD = """
import threading
waiting = LocalOpenAI(MODEL)
def work():
    print(waiting.chat.completions.create(**ask, max_tokens=50).usage.completion_tokens)
threading.Thread(target=work).start()
"""
"""It gets its answer before the process ends."""
CLOSED = """
with LocalOpenAI(MODEL, keep_alive=0, max_rows=3) as closed:
    closed.chat.completions.create(**ask, max_tokens=2)
"""
"""Right before the end."""

ENDS = {
    "all at once": (STREAM + ASYNC_STREAM + THREAD + CLOSED + "import sys; sys.exit(3)", 3),
    "a stream, at the end of the script": (STREAM, 0),
    "a stream, by sys.exit": (STREAM + "import sys; sys.exit(3)", 3),
    "a stream, by an exception": (STREAM + "raise SystemExit(5)", 5),
    "a stream of a task": (ASYNC_STREAM, 0),
    "a thread": (THREAD, 0),
    "a client that was closed": (CLOSED, 0),
}
SAID = {STREAM: "in mid-stream\n", ASYNC_STREAM: "in mid-stream of a task\n", THREAD: "50\n"}


@pytest.mark.parametrize("left", only(["all at once"], ENDS))
@pytest.mark.parametrize("warm", only(["mlx"], ["mlx", None]))
def test_a_script_that_ends_with_something_left_exits_at_once_and_quietly(left: str, warm: str | None) -> None:
    code, status = ENDS[left]
    done = run(PRELUDE + code, warm=warm)
    said = "".join(text for part, text in SAID.items() if part in code)
    assert (done.returncode, done.stdout, done.stderr) == (status, said, "")


def test_exiting_while_the_model_loads_is_quiet() -> None:
    done = run(PRELUDE + "client = LocalOpenAI(MODEL)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SCRIPTED = """
import logging, math, sys
logging.getLogger("localai_shim").setLevel(logging.INFO)
from localai_shim.testing import Reply, ScriptedEngine
client = LocalOpenAI(engine=ScriptedEngine(lambda *_: Reply("one two", interval=math.inf)))
"""
KEPT = {
    "a stream": ("mlx", "client = LocalOpenAI(MODEL); kept = client.chat.completions.create(**ask, stream=True)"),
    "a stream that is observed": (
        "sdk",
        SCRIPTED + "kept = client.completions.create(model='m', prompt='Hi', stream=True)",
    ),
    "events of the background": (
        "sdk",
        SCRIPTED + "job = client.responses.create(model='m', input='Hi', background=True)\n"
        "kept = client.responses.retrieve(job.id, stream=True); next(iter(kept))",
    ),
    "a store": ("sdk", "from localai_shim.state.store import Store; kept = Store()"),
}
AMONG_THE_LAST = """
import sys
sys.kept = [module for name, module in sys.modules.items() if name.startswith("localai_shim")]
for module in sys.kept:
    module.kept = kept
globals().clear()
"""
"""Modules that are kept until the very end are emptied, in the order of their names, when nothing else is left."""


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_dropped_while_modules_are_emptied_goes_quietly(kind: str) -> None:
    warm, code = KEPT[kind]
    done = run(PRELUDE + code + AMONG_THE_LAST, warm=warm)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on() -> None:
    done = run(
        PRELUDE
        + """
import os, sys, warnings
import openai
warnings.simplefilter("ignore")
client = LocalOpenAI(MODEL)
stream = client.chat.completions.create(**ask, stream=True)
next(stream)
pid = os.fork()
if pid == 0:
    try:
        client.chat.completions.create(**ask, max_tokens=2)
    except openai.APIConnectionError as error:
        assert "fork" in str(error), error
        try:
            LocalOpenAI(MODEL).chat.completions.create(**ask, max_tokens=2)
        except openai.APIConnectionError as error:
            assert "fork" in str(error), error
            sys.exit(7)
    sys.exit(1)
_, status = os.waitpid(pid, 0)
next(stream)
print(os.waitstatus_to_exitcode(status), client.chat.completions.create(**ask, max_tokens=2).usage.completion_tokens)
""",
        warm="mlx",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 2\n", "")


def test_importing_and_constructing_is_light() -> None:
    """No MLX, no transformers, no model is read, no SSL context built, and no database opened."""
    done = run(
        """
        import ssl, sys
        from localai_shim import LocalOpenAI, AsyncLocalOpenAI
        heavy = {"mlx", "mlx_lm", "mlx_vlm", "transformers", "numpy", "jinja2", "torch"}
        print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
        def refuse(*args, **kwargs):
            raise AssertionError("an SSL context was built")
        ssl.create_default_context = refuse
        ssl.SSLContext.__init__ = refuse
        LocalOpenAI(MODEL), AsyncLocalOpenAI(MODEL)
        print("built", "sqlite3" in sys.modules)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\nbuilt False\n", "")


@pytest.mark.timed
def test_importing_takes_less_than_a_fifth_longer_than_the_sdk() -> None:
    assert import_cost("from localai_shim import LocalOpenAI", "import openai") < 0.2


def test_without_a_back_end_the_error_says_what_to_install() -> None:
    done = run(
        """
        import sys
        class NoBackEnd:
            def find_spec(self, name, path=None, target=None):
                if name == "mlx.core":
                    raise ImportError("libmlx.so: cannot open shared object file")
        sys.meta_path.insert(0, NoBackEnd())
        from localai_shim import AsyncLocalOpenAI, BackendMissingError, LocalOpenAI
        install = ["mlx"] if sys.platform == "darwin" else ["'localai-shim[cpu]'", "'localai-shim[cuda13]'"]
        for make in (LocalOpenAI, AsyncLocalOpenAI):
            try:
                make()
            except BackendMissingError as error:
                print(all(f"pip install {name}" in str(error) for name in install))
        """,
        warm="sdk",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")
