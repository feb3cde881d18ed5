"""What every framework is asked for, through the lines that docs/frameworks.md gives for it.

A framework's file says how a question, a stream, a tool and a structured answer are written with it. Tests are here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

import anyio.to_thread
import pytest
from pydantic import BaseModel

import localai_shim
from localai_shim.testing import tool_call
from tests import inside

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
MADE_LOCAL = ("LocalOpenAI", "AsyncLocalOpenAI", "http_client", "async_http_client")
AT_ONCE = 8
WAIT_SECONDS = 60


def framework(module: str) -> Any:
    """A framework's module. Skips where it is not installed, but not in an environment that was made for it."""
    made_for = "FRAMEWORKS" in os.environ
    return importlib.import_module(module) if made_for else pytest.importorskip(module)


def snippets() -> dict[str, str]:
    """The page's blocks of Python, by the word behind the language."""
    return dict(re.findall(r"^```python (\S+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def run_snippet(name: str, engine: Any) -> Any:
    """Run a block of the page; what it defines. The clients that it makes are served by an engine."""
    names: dict[str, Any] = {"__name__": "snippet"}
    with pytest.MonkeyPatch.context() as patch:
        for each in MADE_LOCAL:
            patch.setattr(localai_shim, each, partial(getattr(localai_shim, each), engine=engine))
        exec(compile(snippets()[name], f"{PAGE.name}: {name}", "exec"), names)
    return SimpleNamespace(**names)


class Answer(NamedTuple):
    """What came back for a question."""

    text: str
    input_tokens: int
    output_tokens: int


def answer_with(text: str, usage: dict[str, int]) -> Answer:
    """An answer whose usage has the names of either API."""
    names = ("prompt_tokens", "completion_tokens") if "prompt_tokens" in usage else ("input_tokens", "output_tokens")
    return Answer(text, *(usage[name] for name in names))


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    celsius: int
    sky: Literal["clear", "grey"]


PARIS = {"city": "Paris", "celsius": 21, "sky": "clear"}


def fill(request: Any) -> Any:
    """The weather in Paris, in whichever form it was asked for: a call, or JSON."""
    return tool_call(request.tool_names[0], **PARIS) if request.tool_names else PARIS


def check_filled(made: Any) -> None:
    """It is a `Weather` as scripted, or of a class that a framework has made of it."""
    assert isinstance(made, Weather) and made.model_dump() == PARIS


def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: Its name.
    """
    assert city == "Paris"
    return "sunny"


def run(made: Any) -> Any:
    """What a call returned, or what comes of it on an event loop of its own."""

    async def wait() -> Any:
        return await made

    return asyncio.run(wait()) if inspect.isawaitable(made) else made


def run_all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What calls return that are made at once: in tasks of one event loop, or on a thread each."""
    if not inspect.iscoroutinefunction(getattr(calls[0], "func", calls[0])):
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: call(), calls))

    async def gather() -> list[Any]:
        return await asyncio.gather(*[call() for call in calls])

    return asyncio.run(gather())


def meet(count: int, says: Callable[[str], Any]) -> Callable[[Any], Awaitable[Any]]:
    """A reply that echoes, as soon as so many requests are there; `says` is how the model writes a text."""
    there = threading.Barrier(count)

    async def reply(request: Any) -> Any:
        await anyio.to_thread.run_sync(partial(there.wait, WAIT_SECONDS))
        found = re.search(r"Question \d+", request.user)
        assert found, request.user
        return says(f"Echo of {found[0]}")

    return reply


class Behaviours:
    """The tests. A subclass says how things are done; its methods may be async.

    Attributes:
        snippet: the page's block to run.
        docs: what it defined.
        tool: the name that a framework gives to `get_weather`.
        ends: how the model ends after a tool's result: with a text, or with a tool of the framework's.
        filled: how it gives a structured answer.
    """

    snippet: ClassVar[str]
    tool: ClassVar[str] = "get_weather"
    ends: ClassVar[Any] = "It is sunny in Paris."
    filled: ClassVar[Any] = staticmethod(fill)
    docs: Any

    @pytest.fixture(autouse=True)
    def _run_the_page_s_lines(self, request: pytest.FixtureRequest) -> Iterator[None]:
        real = "local_openai_tiny" in request.fixturenames
        engine = inside.engine(request.getfixturevalue("local_openai_tiny")) if real else None
        self.docs = run_snippet(self.snippet, engine or request.getfixturevalue("local_openai").stage)
        self.prepare()
        yield
        self.finish()

    # -- what a subclass says -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make of what the page's lines define what the tests need."""

    def finish(self) -> None:
        """Undo what the page's lines have set for the process."""

    def says(self, text: str) -> Any:
        """How the model writes a text."""
        return text

    def ask(self, text: str) -> Any:
        """An `Answer` to a question."""
        raise NotImplementedError

    def stream(self, text: str) -> Any:
        """The pieces of an answer's text, as they came."""
        raise NotImplementedError

    def use_tool(self, text: str) -> Any:
        """The text that an agent gives at last, which has `get_weather`."""
        raise NotImplementedError

    def fill_in(self, text: str) -> Any:
        """A `Weather`."""
        raise NotImplementedError

    # -- what holds for each ------------------------------------------------------------------------------------

    def test_an_answer(self, local_openai: Any) -> None:
        local_openai.when(user="capital").reply(self.says("It is Paris, of course."))
        assert run(self.ask("What is the capital of France?")).text == "It is Paris, of course."

    def test_usage(self, local_openai: Any) -> None:
        local_openai.when(user="capital").reply(self.says("It is Paris, of course."))
        answer = run(self.ask("What is the capital of France?"))
        assert answer.output_tokens == local_openai.last_call.completion_tokens > 0
        assert answer.input_tokens == local_openai.last_call.prompt_tokens > 0

    def test_a_stream_comes_in_pieces(self, local_openai: Any) -> None:
        local_openai.when(user="story").reply(self.says("Once upon a time there was a hare."))
        pieces = [piece for piece in run(self.stream("Tell me a story.")) if piece]
        assert "".join(pieces) == "Once upon a time there was a hare."
        assert len(pieces) > 4
        assert local_openai.last_call.stream

    def test_a_tool_runs_and_its_result_comes_back(self, local_openai: Any) -> None:
        local_openai.when(predicate=lambda request: "sunny" in request.prompt).reply(self.ends)
        local_openai.when(tool=self.tool).reply(tool_call(self.tool, city="Paris"))
        assert run(self.use_tool("How is the weather in Paris?")) == "It is sunny in Paris."
        local_openai.assert_tool_called(self.tool, city="Paris")
        assert "sunny" in local_openai.last_call.prompt
        local_openai.assert_called(times=2, predicate=lambda request: "How is the weather" in request.prompt)

    def test_a_structured_answer(self, local_openai: Any) -> None:
        local_openai.when(user="weather").reply(self.filled)
        check_filled(run(self.fill_in("How is the weather in Paris?")))

    def test_eight_calls_are_in_flight_at_once(self, local_openai: Any) -> None:
        local_openai.when(user="Question").reply(meet(AT_ONCE, self.says)).times(AT_ONCE)
        answers = run_all([partial(self.ask, f"Question {i}") for i in range(AT_ONCE)])
        assert [answer.text for answer in answers] == [f"Echo of Question {i}" for i in range(AT_ONCE)]

    def test_a_real_model_answers(self, local_openai_tiny: Any) -> None:
        answer = run(self.ask("What is your name?"))
        assert answer.text.strip() and answer.output_tokens > 0
