"""`web_search` with a hook: items, events, options, citations, and choices."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.fields import Fields
from localai_shim.endpoints.hosted.table import BY_NAME
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import (
    ANSWER,
    ASKS_SAVE,
    ASKS_SEARCH,
    PAGE,
    RESULT,
    SAVE,
    SEARCH,
    URL,
    Hooks,
    ask,
    each_way,
    script,
    types,
)

LIVE = ["in_progress", "searching", "completed"]


@each_way
def test_a_search_is_made_and_the_same_response_continues(how: str) -> None:
    hooks = Hooks()
    with ScriptedEngine(script("Let me see." + ASKS_SEARCH, ANSWER)) as engine:
        response, events = ask(engine, how, hooks.all)
        works = engine.requests
    assert hooks.calls == [("weather Paris", {})]
    assert types(response) == ["message", "web_search_call", "message"]
    said, search, answer = response.output
    assert search.id.startswith("ws_") and search.status == "completed"
    assert search.action.to_dict() == {"type": "search", "query": "weather Paris", "queries": ["weather Paris"]}
    assert (said.content[0].text, answer.content[0].text) == ("Let me see.", ANSWER)
    usage = response.usage
    assert usage is not None
    assert usage.input_tokens == sum(len(work.prompt.tokens) for work in works) and len(works) == 2
    assert usage.output_tokens == sum(len(work.timings.output) for work in works)
    if how.endswith("streamed"):
        heard = [event.type.split(".")[-1] for event in events if "web_search_call" in event.type]
        assert heard == LIVE


@each_way
def test_places_that_name_a_source_are_cited(how: str) -> None:
    text = f"Rain ({URL}). See [{URL}] and {URL}/more, {URL}?q=1 and {URL}."
    with ScriptedEngine(script(ASKS_SEARCH, text)) as engine:
        response, events = ask(engine, how, Hooks().all)
    cited = response.output[-1].content[0].annotations
    assert [text[each.start_index : each.end_index] for each in cited] == [URL] * 3
    assert {(each.url, each.title, each.type) for each in cited} == {(URL, "Almanac", "url_citation")}
    if how.endswith("streamed"):
        added = [event.annotation_index for event in events if event.type.endswith("annotation.added")]
        assert added == [0, 1, 2]


def test_sources_and_results_are_included_on_request() -> None:
    pages = [PAGE, {"url": "https://b.example", "title": "", "text": ""}, PAGE]
    with ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine:
        include = ["web_search_call.action.sources", "web_search_call.results"]
        response, _ = ask(engine, "streamed", Hooks(pages).all, include=include)
    [search, _] = response.output
    assert [source.url for source in search.action.sources] == [URL, "https://b.example"]
    assert search.results == pages


OPTIONS: dict[str, Any] = {
    "search_context_size": "low",
    "user_location": {"type": "approximate", "city": "Paris", "country": "FR"},
    "filters": {"allowed_domains": ["almanac.example"]},
    "external_web_access": False,
}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "web_search"},
        {"type": "web_search_2025_08_26", **OPTIONS},
        {"type": "web_search_preview", "search_context_size": "high", "search_content_types": ["text"]},
        {"type": "web_search_preview_2025_03_11", "user_location": None},
    ],
)
def test_fields_of_the_tool_are_options_of_the_hook(entry: dict[str, Any]) -> None:
    hooks = Hooks()
    with ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine:
        response, _ = ask(engine, "whole", hooks.all, tools=[entry])
    [(_, options)] = hooks.calls
    assert options == {name: value for name, value in entry.items() if name != "type" and value is not None}
    assert response.tools[0].to_dict()["type"] == entry["type"]


def test_a_hook_without_options_serves_requests_with_hints_only() -> None:
    def search(query: str) -> list[Any]:
        return [PAGE]

    with ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine:
        hints = {name: OPTIONS[name] for name in ("search_context_size", "user_location")}
        response, _ = ask(engine, "whole", {"web_search": search}, tools=[{**SEARCH, **hints}])
        assert response.output[0].status == "completed"
        with pytest.raises(openai.BadRequestError, match=r"'web_search' does not take 'filters'") as caught:
            ask(engine, "whole", {"web_search": search}, tools=[{**SEARCH, "filters": OPTIONS["filters"]}])
    assert caught.value.param == "tools[0].filters"


CHOICES: list[Any] = [
    "required",
    {"type": "web_search"},
    {"type": "web_search_2025_08_26"},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_forced_search_is_made_once_and_then_the_model_answers(choice: Any) -> None:
    """The script wants to answer at first, and obeys the grammar."""
    hooks = Hooks()
    with ScriptedEngine(script(ASKS_SEARCH, ANSWER), obey_constraints=True) as engine:
        tools = [SEARCH] if choice == "required" else [SAVE, SEARCH]
        response, _ = ask(engine, "whole", hooks.all, tools=tools, tool_choice=choice)
    assert types(response) == ["web_search_call", "message"] and len(hooks.calls) == 1


def test_a_choice_of_a_tool_that_is_not_offered_is_refused() -> None:
    with (
        ScriptedEngine() as engine,
        pytest.raises(openai.BadRequestError, match="no tool of type 'web_search'") as caught,
    ):
        ask(engine, "whole", Hooks().all, tools=[SAVE], tool_choice={"type": "web_search"})
    assert caught.value.param == "tool_choice"


def test_a_hosted_tool_cannot_be_chosen_as_a_function() -> None:
    with ScriptedEngine() as engine, pytest.raises(openai.BadRequestError, match="no function named 'web_search'"):
        ask(engine, "whole", Hooks().all, tool_choice={"type": "function", "name": "web_search"})


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_response_makes_no_more_calls_than_it_may(most: int) -> None:
    """The model asks for two searches at once, then for another one, unless it may not call."""
    hooks = Hooks()
    asks = [ASKS_SEARCH + call("web_search", {"query": "weather Rome"}), ASKS_SEARCH, ANSWER]
    with ScriptedEngine(script(*asks), obey_constraints=True) as engine:
        response, _ = ask(engine, "streamed", hooks.all, max_tool_calls=most)
    assert types(response).count("web_search_call") == len(hooks.calls) == most
    assert response.max_tool_calls == most


@each_way
def test_the_callers_functions_end_the_response_behind_searches_of_the_same_round(how: str) -> None:
    hooks = Hooks()
    with ScriptedEngine(script(ASKS_SEARCH + ASKS_SAVE + ASKS_SEARCH)) as engine:
        response, _ = ask(engine, how, hooks.all, tools=[SEARCH, SAVE])
    assert types(response) == ["web_search_call", "function_call", "web_search_call"]
    assert response.status == "completed" and len(hooks.calls) == 2
    assert {item.status for item in response.output} == {"completed"}


def test_calls_of_one_round_are_one_message_of_the_next_prompt() -> None:
    seen: list[str] = []

    def decide(request: Any, prompt: str, before: int) -> str:
        seen.append(prompt)
        return script(ASKS_SEARCH * 2, ASKS_SEARCH, ANSWER)(request, prompt, before)

    with ScriptedEngine(decide) as engine, LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as client:
        asked: Any = {"model": "m", "tools": [SEARCH]}
        first = client.responses.create(**asked, input="Weather?")
        client.responses.create(**asked, input="Weather again?", previous_response_id=first.id)
        sent = [{"role": "user", "content": "Weather?"}, *first.output, {"role": "user", "content": "Weather again?"}]
        client.responses.create(**asked, input=sent)
    calls = [[part.count("<tool_call>") for part in prompt.split("<|im_start|>assistant")[1:]] for prompt in seen[:3]]
    assert calls == [[0], [2, 0], [2, 1, 0]]
    replayed = [prompt for prompt in seen[3:] if prompt.endswith("again?<|im_end|>\n<|im_start|>assistant\n")]
    assert len(replayed) == 2 and replayed[0] == replayed[1]
    assert replayed[0].startswith(seen[2]) and replayed[0].count(RESULT) == 3


def test_a_round_reads_as_many_cached_tokens_as_a_request_with_the_output_of_a_function() -> None:
    """The bundled model, once with the hook, and once with a function of the same name whose result is sent back."""
    asked: Any = {"model": "m", "temperature": 0}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    with LocalOpenAI(hosted_tools=Hooks().all, prefix_cache_bytes=50_000_000) as client:
        hosted = client.responses.create(**asked, input=[question], tools=[SEARCH], tool_choice=SEARCH)
    shown = BY_NAME["web_search"].tool(Fields(SEARCH))
    function: Any = {
        "type": "function",
        "name": "web_search",
        "description": shown.description,
        "parameters": shown.parameters,
        "strict": True,
    }
    with LocalOpenAI(prefix_cache_bytes=50_000_001) as client:
        choice: Any = {"type": "function", "name": "web_search"}
        first = client.responses.create(**asked, input=[question], tools=[function], tool_choice=choice)
        [made] = first.output
        result = {"type": "function_call_output", "call_id": made.call_id, "output": hosted.output[0].output}
        second = client.responses.create(**asked, input=[question, made, result], tools=[function])
    usages = [response.usage for response in (hosted, first, second)]
    total, one, two = [(usage.input_tokens, usage.input_tokens_details.cached_tokens) for usage in usages if usage]
    assert hosted.output_text == second.output_text
    assert total == (one[0] + two[0], one[1] + two[1])
    assert two[1] > 0.9 * one[0]
