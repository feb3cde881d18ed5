"""The pytest plugin, in suites of its own: fixtures, marker, what fails a test, and what it costs to have it."""

from __future__ import annotations

import textwrap
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import factory  # noqa: F401 (what a suite imports first is dropped with it)
from tests.scripts import import_cost, run

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = "localai_shim.testing.plugin"
ASK = """
import openai, pytest
from localai_shim.testing import *
def ask(client, said="Hi", /, **more):
    return client.responses.create(model="gpt-4o", input=said, **more)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a suite in this process: (tests, arguments) -> the result."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(tests: str, *arguments: str, conftest: str = "") -> pytest.RunResult:
        pytester.makepyfile(ASK + textwrap.dedent(tests))
        pytester.makeconftest(textwrap.dedent(conftest))
        return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "anyio", "--strict-markers", *arguments)

    return run


def test_the_entry_point_is_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}, "a name of its own would load it twice with -p"


# -- fixtures ---------------------------------------------------------------------------------------------------------


def test_the_fixtures_are_real_clients_that_share_the_test_s_script(suite: Any) -> None:
    result = suite("""
        import localai_shim
        def test_sync(local_openai):
            assert isinstance(local_openai, openai.OpenAI) and isinstance(local_openai, localai_shim.LocalOpenAI)
            local_openai.script("one")
            assert ask(local_openai).output_text == "one"
        @pytest.mark.anyio
        async def test_async(async_local_openai, local_openai):
            assert isinstance(async_local_openai, openai.AsyncOpenAI)
            async_local_openai.script("one", "two")
            assert (await ask(async_local_openai)).output_text == "one"
            assert ask(local_openai).output_text == "two"
            assert len(local_openai.calls) == 2
        def test_another_test_has_another_script(local_openai):
            assert local_openai.calls == [] and ask(local_openai).output_text
    """)
    result.assert_outcomes(passed=4)  # anyio: asyncio and trio


def test_a_test_s_answers_are_stored_for_that_test_only(suite: Any) -> None:
    suite("""
        ids = []
        def test_one(local_openai):
            ids.append(ask(local_openai).id)
            assert local_openai.responses.retrieve(ids[0]).id == ids[0]
        def test_two(local_openai):
            with pytest.raises(openai.NotFoundError):
                local_openai.responses.retrieve(ids[0])
    """).assert_outcomes(passed=2)


def test_a_factory_makes_clients_with_scripts_of_their_own(suite: Any) -> None:
    result = suite("""
        def test_two(local_openai_factory):
            one, two = local_openai_factory("one", model="a"), local_openai_factory("two", client={"max_retries": 0})
            assert (ask(two).output_text, ask(one).output_text, ask(one.with_options()).model) == ("two", "one", "a")
            assert two.max_retries == 0 and isinstance(local_openai_factory.make_async(), openai.AsyncOpenAI)
        def test_left(local_openai_factory):
            local_openai_factory("one")
    """)
    result.assert_outcomes(passed=0, failed=2)
    result.stdout.fnmatch_lines(["*no reply is scripted*", "*1 of 1 replies were not played: 'one'*"])


def test_the_configuration_is_a_fixture_that_packages_override(suite: Any, pytester: pytest.Pytester) -> None:
    tests = """
        def test_it(local_openai):
            made = ask(local_openai)
            assert (made.model, local_openai.max_retries) == ("outer", 7)
        @pytest.mark.local_openai(model="marked", script=["x"])
        class TestClass:
            @pytest.fixture
            def local_openai_config(self, local_openai_config):
                return {**local_openai_config, "model": "inner"}
            @pytest.mark.local_openai(script=["y"])
            def test_marker(self, local_openai):
                assert (ask(local_openai).model, local_openai.calls[0].api) == ("marked", "responses")
    """
    conftest = """
        import pytest
        @pytest.fixture(scope="session")
        def local_openai_config():
            return {"model": "outer", "client": {"max_retries": 7}}
    """
    suite(tests, conftest=conftest).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("modl='x'", "'modl' is not a setting; the settings are model, seed, clock"),
        ("['x']", "the arguments of the marker local_openai have names"),
        ("clock='slow'", "a clock is 'instant', 'manual' or 'real', not 'slow'"),
    ],
)
def test_a_wrong_marker_says_what_is_wrong(suite: Any, marker: str, message: str) -> None:
    result = suite(f"""
        @pytest.mark.local_openai({marker})
        def test_it(local_openai): pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_the_tiny_model_is_real_and_answers_the_same_each_time(suite: Any) -> None:
    suite("""
        def test_sync(local_openai_tiny):
            made = [ask(local_openai_tiny, temperature=1.0, max_output_tokens=8).output_text for _ in range(3)]
            assert made[0] and made == [made[0]] * 3
            other = ask(local_openai_tiny, temperature=2.0, max_output_tokens=8, extra_body={"seed": 5}).output_text
            assert other != made[0]
        @pytest.mark.anyio
        async def test_async(async_local_openai_tiny, local_openai_tiny):
            made = await ask(async_local_openai_tiny, temperature=1.0, max_output_tokens=8)
            assert made.output_text == ask(local_openai_tiny, temperature=1.0, max_output_tokens=8).output_text
    """).assert_outcomes(passed=3)


def test_the_model_that_sees_answers_about_a_picture_sync_and_async(suite: Any, sees_already: None) -> None:
    suite("""
        from localai_shim import input_image
        from tests.endpoints.pictures import BLUE, RED, picture
        def about(colour):
            parts = [input_image(picture(colour)), {"type": "input_text", "text": "What colour is this?"}]
            return {"model": "any", "input": [{"role": "user", "content": parts}]}
        def test_sync(local_openai_vision):
            assert "red" in local_openai_vision.responses.create(**about(RED)).output_text.lower()
        @pytest.mark.anyio
        async def test_async(async_local_openai_vision):
            assert "blue" in (await async_local_openai_vision.responses.create(**about(BLUE))).output_text.lower()
    """).assert_outcomes(passed=3)


def test_async_tests_run_under_pytest_asyncio_too(suite: Any) -> None:
    pytest.importorskip("pytest_asyncio")
    tests = """
        @pytest.mark.asyncio
        async def test_async(async_local_openai, local_openai):
            local_openai.script(rate_limit(retry_after=3), "fine")
            assert (await ask(async_local_openai)).output_text == "fine"
        @pytest.mark.asyncio
        async def test_left(async_local_openai):
            async_local_openai.script("one")
    """
    arguments = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
    suite(tests, *arguments).assert_outcomes(passed=1, failed=1)


# -- what fails a test -----------------------------------------------------------------------------------------------


def test_a_script_that_is_not_complete_fails_its_test_by_name(suite: Any) -> None:
    result = suite("""
        def test_left(local_openai):
            local_openai.script("one")
        def test_swallowed(local_openai):
            local_openai.script("one")
            for _ in range(2):
                try:
                    ask(local_openai)
                except Exception:
                    pass
        def test_budget(local_openai):
            local_openai.token_budget(max_total=3)
            ask(local_openai, "one two three")
        @pytest.mark.local_openai(assert_complete=False)
        def test_left_on_purpose(local_openai):
            local_openai.script("one")
        def test_skips(local_openai):
            local_openai.script("one")
            pytest.skip("no reason")
        @pytest.mark.xfail(strict=True)
        def test_is_expected_to_fail(local_openai):
            local_openai.script("one")
        @pytest.mark.anyio
        async def test_async(async_local_openai):
            async_local_openai.script("one")
    """)
    result.assert_outcomes(failed=5, passed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "the script of test_left is not complete:",
            "1 of 1 replies were not played: 'one'",
            "the script of test_swallowed is not complete:",
            "UnexpectedRequest: no reply is scripted for responses(model='gpt-4o', user: 'Hi')",
            "the script of test_budget is not complete:",
            "the token budget is exceeded: * of max_total=3",
        ]
    )


def test_a_failure_shows_what_was_asked(suite: Any) -> None:
    result = suite("""
        def test_it(local_openai):
            local_openai.script("one", rate_limit(), tool_call("f", a=1))
            ask(local_openai, "first")
            ask(local_openai, "second", tools=[{"type": "function", "name": "f", "parameters": {}}])
            assert False, "it failed itself"
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: it failed itself*",
            "*Captured local_openai call*",
            "1. responses(model='gpt-4o', user: 'first') -> 2 tokens",
            "2. responses(model='gpt-4o', user: 'second', tools: f) -> RateLimitError",
            "3. responses(model='gpt-4o', user: 'second', tools: f) (retry 1) -> * tokens, f({'a': 1})",
        ]
    )
    assert "not complete" not in result.stdout.str()


def test_unittest_has_a_base_class_with_the_same(suite: Any) -> None:
    tests = """
        import unittest
        class Sync(LocalOpenAITestCase):
            local_openai_config = {"model": "own"}
            def test_asks(self):
                self.local_openai.script("one")
                self.assertEqual((ask(self.local_openai).output_text, self.local_openai.calls[0].user), ("one", "Hi"))
            def test_left(self):
                self.local_openai.script("one")
            def test_fails_itself(self):
                self.local_openai.script("one")
                self.fail("itself")
            def test_asks_nobody(self):
                pass
        class Async(LocalOpenAITestCase, unittest.IsolatedAsyncioTestCase):
            async def test_async(self):
                self.local_openai.script("one")
                self.assertEqual((await ask(self.async_local_openai)).output_text, "one")
    """
    result = suite(tests)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*IncompleteScript: 1 of 1 replies were not played*"])
    assert result.stdout.str().count("IncompleteScript:") <= 2, "what fails itself is not told about its script"
    import unittest

    namespace: dict[str, Any] = {}
    exec(ASK + textwrap.dedent(tests), namespace)
    found = unittest.TestResult()
    for name in ("Sync", "Async"):
        unittest.defaultTestLoader.loadTestsFromTestCase(namespace[name]).run(found)
    assert found.testsRun == 5 and not found.errors
    assert sorted(test.id().rsplit(".", 1)[-1] for test, _ in found.failures) == ["test_fails_itself", "test_left"]


# -- what it costs ---------------------------------------------------------------------------------------------------


def test_no_thread_is_left_behind(suite: Any) -> None:
    before = set(threading.enumerate())
    suite("""
        @pytest.mark.local_openai(client={"max_retries": 0})
        @pytest.mark.parametrize("i", range(20))
        def test_it(local_openai, async_local_openai, i):
            local_openai.script(timed("x", first_token=1), hang())
            ask(local_openai)
            with pytest.raises(openai.APITimeoutError):
                ask(local_openai, timeout=0.01)
            local_openai.script("y")
            ask(local_openai, background=True)
    """).assert_outcomes(passed=20)  # fmt: skip
    assert set(threading.enumerate()) - before == set()


@pytest.mark.timed
def test_a_client_costs_its_test_less_than_a_few_empty_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times 50 tests with the fixture, in turns with as many with one that makes nothing, in processor time.

    The quickest of each count, which other programs have held up least. An empty test takes pytest 0.4 ms on two quiet
    cores, and a client as much again. One that read certificates, as the SDK's own do, would take tens of them.
    """
    suite = """
        import pytest, time
        @pytest.fixture
        def nothing(request):
            yield request.node
        took = {}
        @pytest.fixture(scope="class", autouse=True)
        def timed(request):
            began = time.process_time()
            yield
            name = request.cls.__name__[:-1] if request.cls else "end"
            took.setdefault(name, []).append(time.process_time() - began)
        class Bare:
            @pytest.mark.parametrize("i", range(50))
            def test_it(self, nothing, i):
                pass
        class Client:
            @pytest.mark.parametrize("i", range(50))
            def test_it(self, local_openai, i):
                assert local_openai.calls == []
        for turn in range(10):
            globals()[f"TestBare{turn}"] = type(f"TestBare{turn}", (Bare,), {})
            globals()[f"TestClient{turn}"] = type(f"TestClient{turn}", (Client,), {})
        def test_end():
            bare, ours = min(took["TestBare"]), min(took["TestClient"])
            assert ours - bare < 3 * bare, took
    """
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")  # ours is held against a test with what is usually there
    pytester.makepyfile(textwrap.dedent(suite))
    result = pytester.runpytest_inprocess("-q", "-p", PLUGIN, "-p", "no:logfire", "-p", "no:asyncio")
    result.assert_outcomes(passed=1001)


@pytest.mark.timed
def test_having_the_plugin_costs_a_suite_next_to_nothing() -> None:
    """A thirtieth of importing pytest, which takes 0.15 s on two quiet cores."""
    ours = "import localai_shim.testing.plugin, localai_shim.testing.offline"
    assert import_cost(ours, "import pytest", PYDANTIC_DISABLE_PLUGINS="__all__", PYTHONDONTWRITEBYTECODE="") < 1 / 30


def python(code: str, **env: str) -> str:
    done = run(code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_collecting_imports_neither_the_sdk_nor_anything_heavy() -> None:
    code = """
    import sys, pytest, localai_shim, localai_shim.testing, localai_shim.testing.plugin
    heavy = ("openai", "httpx", "httpx2", "pydantic", "jinja2", "llguidance", "mlx", "mlx_lm", "numpy", "transformers")
    print([name for name in heavy if name in sys.modules])
    """
    assert python(code, PYDANTIC_DISABLE_PLUGINS="__all__") == "[]\n"


@pytest.mark.exhaustive
def test_a_suite_under_xdist_that_never_sees_numpy_nor_mlx(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in processes of its own, with the plugin found by name."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    pytester.makepyfile(ASK + textwrap.dedent("""
        import sys
        @pytest.mark.parametrize("i", range(8))
        def test_it(local_openai, i):
            local_openai.script(f"{i}", {"a": i})
            assert ask(local_openai).output_text == f"{i}"
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
            ask(local_openai, text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
            assert not [name for name in ("mlx", "mlx_lm", "mlx_vlm", "transformers", "numpy") if name in sys.modules]
        def test_left(local_openai):
            local_openai.script("one")
    """))  # fmt: skip
    result = pytester.runpytest_subprocess("-p", PLUGIN, "-p", "xdist.plugin", "-n", "2")
    result.assert_outcomes(passed=8, failed=1)
    result.stdout.fnmatch_lines(["the script of test_left is not complete:"])


def test_the_names_of_the_package_come_when_they_are_asked_for() -> None:
    code = """
    import localai_shim, sys
    assert {"LocalOpenAI", "AsyncLocalOpenAI"} <= set(dir(localai_shim)) and "openai" not in sys.modules
    from localai_shim import *
    print(LocalOpenAI is localai_shim.client.local.LocalOpenAI, hasattr(localai_shim, "nothing"))
    """
    assert python(code) == "True False\n"
    assert LocalOpenAI.__module__ == "localai_shim.client.local"
