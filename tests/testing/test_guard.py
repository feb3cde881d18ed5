"""`--block-openai`: a test that reaches out has failed, and its report says where it did."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

import localai_shim

pytest_plugins = ["pytester"]
ARGUMENTS = ("-p", "localai_shim.testing.plugin", "-p", "no:cacheprovider", "--block-openai")


def outcome(pytester: pytest.Pytester, test: str, *arguments: str) -> tuple[dict[str, int], str]:
    """How the tests of a file end, and what is shown."""
    pytester.makepyfile(test_it=test)
    result = pytester.runpytest_inprocess(*(arguments or ARGUMENTS))
    return result.parseoutcomes(), result.stdout.str()


CALLS = {
    "httpx": "import httpx; httpx.get('https://api.openai.com/v1/models')",
    "httpx2": "import httpx2; httpx2.get('https://api.openai.com/v1/models')",
    "requests": "import requests; requests.get('https://api.openai.com/v1/models')",
    "urllib3": "import urllib3; urllib3.PoolManager().request('GET', 'https://api.openai.com/v1/models')",
    "socket": "import socket; socket.create_connection(('api.openai.com', 443))",
}


@pytest.mark.parametrize("library", CALLS)
def test_whatever_library_reaches_out_the_test_fails_with_its_name_and_the_line(
    pytester: pytest.Pytester, library: str
) -> None:
    pytest.importorskip(library)
    swallowed = f"def test_swallows():\n    try:\n        {CALLS[library]}\n    except Exception:\n        pass\n"
    counts, shown = outcome(pytester, swallowed)
    assert counts == {"failed": 1}
    assert "test_it.py::test_swallows reached out to api.openai.com:443" in shown
    through = "" if library == "socket" else f", through .*{library}"
    assert re.search(rf"test_it\.py:3 in test_swallows{through}", shown)


TASK = """
import asyncio

async def call_home():
    {call}

def test_it():
    asyncio.run(call_home())
"""
ASYNC = {
    "asyncio": "await asyncio.open_connection('api.openai.com', 443)",
    "aiohttp": "import aiohttp\n    async with aiohttp.ClientSession() as s:\n        await s.get('https://api.openai.com')",
    "openai": "import openai\n    await openai.AsyncOpenAI(api_key='x', max_retries=0).models.list()",
}


@pytest.mark.parametrize("library", ASYNC)
def test_async_libraries_are_caught_with_the_line_that_awaits(pytester: pytest.Pytester, library: str) -> None:
    pytest.importorskip(library)
    counts, shown = outcome(pytester, TASK.format(call=ASYNC[library]))
    assert counts == {"failed": 1}
    assert "test_it.py::test_it reached out to api.openai.com" in shown and " in call_home" in shown


def test_threads_tasks_of_trio_and_datagrams_are_caught(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(
        pytester,
        """
import contextlib, socket, threading, trio

def call_home():
    with contextlib.suppress(Exception), socket.socket() as phone:
        phone.connect(("93.184.216.34", 443))

def test_thread():
    thread = threading.Thread(target=call_home, name="phone")
    thread.start()
    thread.join()

def test_trio():
    async def main():
        with contextlib.suppress(Exception):
            await trio.open_tcp_stream("api.openai.com", 443)
    trio.run(main)

def test_datagram():
    with contextlib.suppress(Exception), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as phone:
        phone.sendto(b"x", ("8.8.8.8", 53))

def test_connect_ex():
    with contextlib.suppress(Exception), socket.socket(socket.AF_INET6) as phone:
        phone.connect_ex(("2001:db8::1", 443, 0, 0))
""",
    )
    assert counts == {"failed": 4}
    assert "test_thread reached out to 93.184.216.34:443" in shown and "on thread 'phone'" in shown
    assert "test_it.py:5 in call_home" in shown
    assert "test_trio reached out to api.openai.com:443" in shown and "in test_trio.<locals>.main" in shown
    assert "test_datagram reached out to 8.8.8.8:53" in shown
    assert "test_connect_ex reached out to 2001:db8::1:443" in shown


def test_this_machine_may_be_reached(pytester: pytest.Pytester) -> None:
    counts, _ = outcome(
        pytester,
        """
import asyncio, contextlib, socket, pytest

@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_server(host):
    with socket.create_server(("127.0.0.1" if host[0] in "l:" else host, 0)) as server:
        with socket.create_connection((host, server.getsockname()[1])):
            pass

@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1"])
def test_names_of_this_machine(host):
    with contextlib.suppress(OSError):  # it need not have any
        socket.gethostbyaddr(host)
    assert socket.getnameinfo((host, 80), 0)
    assert socket.getfqdn() and socket.getfqdn(host)

def test_pairs_and_lookups():
    left, right = socket.socketpair()
    left.close(); right.close()
    assert socket.getaddrinfo("93.184.216.34", 443) and socket.gethostname()
    asyncio.run(asyncio.sleep(0))
""",
    )
    assert counts == {"passed": 10}


REVERSE = {
    "gethostbyaddr": "socket.gethostbyaddr('8.8.8.8')",
    "getfqdn": "socket.getfqdn('2001:4860:4860::8888')",
    "getnameinfo": "socket.getnameinfo(('8.8.8.8', 53), 0)",
    "mapped": "socket.getnameinfo(('::ffff:8.8.8.8', 53), 0)",
    "asyncio": "asyncio.run(look_up())",
}


@pytest.mark.parametrize("call", REVERSE)
def test_to_ask_for_the_name_of_a_number_reaches_out(pytester: pytest.Pytester, call: str) -> None:
    counts, shown = outcome(
        pytester,
        f"""
import asyncio, contextlib, socket

async def look_up():
    await asyncio.get_running_loop().getnameinfo(("8.8.8.8", 53))

def test_it():
    with contextlib.suppress(Exception):
        {REVERSE[call]}
""",
    )
    assert counts == {"failed": 1}
    assert re.search(r"test_it reached out to (8\.8\.8\.8|2001:4860:4860::8888|::ffff:8\.8\.8\.8)", shown)


VECTORS = """
import openai
from localai_shim import rerank

def test_search(patch_openai):
    theirs = openai.OpenAI()
    assert len(theirs.embeddings.create(model="text-embedding-3-large", input=["a", "b"]).data[1].embedding) == 3072
    assert rerank(theirs, "b", ["a", "b"]).results[0].index == 1

async def ask():
    made = await openai.AsyncOpenAI().embeddings.create(model="text-embedding-ada-002", input="a", dimensions=8)
    assert len(made.data[0].embedding) == 8

def test_async_search(patch_openai):
    import asyncio
    asyncio.run(ask())
"""


def test_vectors_of_scripted_clients_come_from_this_process(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(pytester, VECTORS)
    assert counts == {"passed": 2}, shown


def test_a_blocked_call_shows_beside_other_failures_and_no_expectation_hides_it(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(
        pytester,
        """
import contextlib, socket, pytest

def call_home():
    with contextlib.suppress(Exception):
        socket.create_connection(("api.openai.com", 443))

def test_fails():
    call_home()
    assert 1 == 2

@pytest.mark.xfail
def test_expected():
    call_home()
    assert False

@pytest.fixture
def phone():
    yield
    call_home()

def test_teardown(phone):
    pass

def test_next():
    pass
""",
    )
    assert counts == {"failed": 2, "errors": 1, "passed": 2}
    assert "assert 1 == 2" in shown and shown.count("reached out") >= 3


def test_a_thread_that_a_test_leaves_is_found_later(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(
        pytester,
        """
import contextlib, socket, threading

go = threading.Event()

def late():
    go.wait()
    with contextlib.suppress(Exception):
        socket.create_connection(("api.openai.com", 443))

thread = threading.Thread(target=late)

def test_leaves():
    thread.start()

def test_innocent():
    go.set()
    thread.join()
""",
    )
    assert counts == {"failed": 1, "passed": 1}
    assert "which test_it.py::test_leaves started at" in shown


def test_the_guard_is_off_unless_it_is_asked_for(pytester: pytest.Pytester) -> None:
    test = """
import socket, pytest

def test_reaches_out():
    with socket.socket() as phone, pytest.raises(OSError):
        phone.settimeout(0.01)
        phone.connect(("192.0.2.1", 9))
"""
    assert outcome(pytester, test, *ARGUMENTS[:-1])[0] == {"passed": 1}
    assert outcome(pytester, test)[0] == {"failed": 1}
    pytester.makeini("[pytest]\nblock_openai = true\n")
    assert outcome(pytester, test, *ARGUMENTS[:-1])[0] == {"failed": 1}
    with socket.socket() as phone:  # it is over with the session
        phone.settimeout(0.01)
        with pytest.raises(OSError):
            phone.connect(("192.0.2.1", 9))


def test_the_guard_works_under_xdist(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(localai_shim.__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_it():\n    import socket\n    socket.create_connection(('api.openai.com', 443))\n")
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-p", "xdist", "-n1")
    result.assert_outcomes(failed=1)
    assert "test_it reached out to api.openai.com:443" in result.stdout.str()


def test_a_swallowed_request_to_openai_fails_the_test_although_openai_is_replaced(pytester: pytest.Pytester) -> None:
    counts, shown = outcome(
        pytester,
        """
import contextlib, socket
from localai_shim import replace_openai
from localai_shim.testing import scripted

def test_it():
    with scripted() as client, replace_openai(client), contextlib.suppress(Exception):
        socket.create_connection(("api.openai.com", 443))
""",
    )
    assert counts == {"failed": 1} and "test_it reached out to api.openai.com:443" in shown
