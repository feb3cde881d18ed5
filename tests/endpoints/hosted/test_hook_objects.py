"""Hooks that are objects with one method, and the types of their results."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from localai_shim import (
    CodeFile,
    CodeInterpreterHook,
    CodeResult,
    SearchResult,
    WebSearchHook,
)
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import (
    ANSWER,
    ASKS_CODE,
    ASKS_SEARCH,
    CODE,
    PAGE,
    RAN,
    SEARCH,
    URL,
    ask,
    each_way,
    script,
    types,
)


class Search:
    """Has state, which functions would keep in globals."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def search(self, query: str, user_location: Any = None) -> list[SearchResult]:
        self.calls.append((query, user_location))
        return [SearchResult(URL, "Almanac", "Rain in Paris.")]


class Sandbox:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def run(self, code: str, container: str) -> CodeResult:
        self.calls.append((code, container))
        return CodeResult("ok", [CodeFile("plot.png", "data:image/png;base64,AA=="), CodeFile("a.txt")])


@each_way
def test_methods_of_objects_serve_hosted_tools(how: str) -> None:
    search, sandbox = Search(), Sandbox()
    hooks: tuple[WebSearchHook, CodeInterpreterHook] = search, sandbox
    place = {"type": "approximate", "city": "Paris"}
    with ScriptedEngine(script(ASKS_SEARCH + ASKS_CODE, ANSWER)) as engine:
        response, _ = ask(
            engine,
            how,
            dict(zip(("web_search", "code_interpreter"), hooks, strict=True)),
            tools=[{**SEARCH, "user_location": place, "search_context_size": "low"}, CODE],
            include=["code_interpreter_call.outputs"],
        )
    assert types(response) == ["web_search_call", "code_interpreter_call", "message"]
    assert search.calls == [("weather Paris", place)]
    [(code, container)] = sandbox.calls
    assert code == RAN and container == response.output[1].container_id
    assert json.loads(response.output[0].output) == [PAGE]
    assert [each.type for each in response.output[1].outputs] == ["logs", "image"]
    assert response.output[2].content[0].annotations[0].url == URL


def test_options_that_a_method_does_not_take_are_refused() -> None:
    tool = {**SEARCH, "filters": {"allowed_domains": ["almanac.example"]}}
    with ScriptedEngine() as engine, pytest.raises(openai.BadRequestError, match="does not take 'filters'") as caught:
        ask(engine, "whole", {"web_search": Search()}, tools=[tool])
    assert caught.value.param == "tools[0].filters"


def test_the_method_of_an_object_that_can_be_called_itself_is_the_hook() -> None:
    class Both(Search):
        def __call__(self, query: str) -> Any:
            raise AssertionError

    hook = Both()
    with ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine:
        response, _ = ask(engine, "whole", {"web_search": hook})
    assert response.output[0].status == "completed" and len(hook.calls) == 1
