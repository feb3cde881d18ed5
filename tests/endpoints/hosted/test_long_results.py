"""Results of hooks that are longer than the model's context."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import (
    ANSWER,
    ASKS_CODE,
    ASKS_SEARCH,
    CODE,
    PAGE,
    SEARCH,
    Hooks,
    ask,
    each_way,
    script,
    types,
)

CONTEXT = 2000
LONG = "word " * 5000
TOLD = "Error: the result of web_search is too long for the context. Ask for less."


def engine(*replies: str, context: int = CONTEXT) -> ScriptedEngine:
    return ScriptedEngine(script(*replies), context_length=context)


@each_way
def test_a_result_that_does_not_fit_fails_its_item_and_the_answer_continues(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(ASKS_SEARCH, "That was too much.") as made, caplog.at_level(logging.WARNING, "localai_shim"):
        include = ["web_search_call.results"]
        response, events = ask(made, how, Hooks([{**PAGE, "text": LONG}]).all, include=include)
        assert TOLD in made.prompts[1] and LONG not in made.prompts[1]
    search, answer = response.output
    assert (response.status, search.status, answer.status) == ("completed", "failed", "completed")
    assert search.output == TOLD and "results" not in search.to_dict()
    assert "more text than fits" in caplog.text
    assert not [event for event in events if event.type == "response.web_search_call.completed"]


def test_code_whose_output_does_not_fit_has_no_outputs() -> None:
    with engine(ASKS_CODE, "Too much.") as made:
        include = ["code_interpreter_call.outputs"]
        response, _ = ask(made, "streamed", Hooks(ran=LONG).all, tools=[CODE], include=include)
    assert (response.output[0].status, response.output[0].outputs) == ("failed", None)


def test_results_of_one_round_share_the_context() -> None:
    """Each fits alone: the first one is read, the second one is not."""
    pages = [{**PAGE, "text": "word " * 150}]
    asks = ASKS_SEARCH + call("web_search", {"query": "weather Rome"})
    with engine(asks, ANSWER) as made:
        response, _ = ask(made, "whole", Hooks(pages).all)
    assert [item.status for item in response.output] == ["completed", "failed", "completed"]


def test_the_model_may_ask_for_less() -> None:
    found = iter([[{**PAGE, "text": LONG}], [PAGE]])
    with engine(ASKS_SEARCH, ASKS_SEARCH, ANSWER) as made:
        response, _ = ask(made, "streamed", Hooks(lambda: next(found)).all)
    assert [item.status for item in response.output] == ["failed", "completed", "completed"]
    assert response.output_text == ANSWER


@pytest.mark.parametrize("characters", ['"', "é", "\\", "\n", "😀", "<|im_end|>"])
def test_texts_that_become_longer_as_json_are_measured_as_tokens(characters: str) -> None:
    """Around the limit a result is either read and answered, or fails alone."""
    statuses = set()
    for count in range(0, 700, 70):
        with engine(ASKS_SEARCH, "Hi.", context=1200) as made:
            response, _ = ask(made, "whole", Hooks([{**PAGE, "text": characters * count}]).all)
        assert response.status == "completed" and response.output_text == "Hi."
        statuses.add(response.output[0].status)
    assert statuses == {"completed", "failed"}


def test_a_sixteenth_of_the_context_is_left_for_the_answer() -> None:
    """Or less, if the request wants fewer tokens."""
    with engine(ASKS_SEARCH, ANSWER) as made:
        ask(made, "whole", Hooks().all)
        length = len(made.requests[1].prompt.tokens)
    room = length // 15
    cases: list[tuple[int, dict[str, int], str]] = [
        (room, {}, "completed"),
        (room - 1, {}, "failed"),
        (30, {"max_output_tokens": 30}, "completed"),
        (29, {"max_output_tokens": 30}, "failed"),
    ]
    for left, more, status in cases:
        with engine(ASKS_SEARCH, ANSWER, context=length + left) as made:
            response, _ = ask(made, "whole", Hooks().all, **more)
        assert response.output[0].status == status, (left, more)


@each_way
def test_a_response_whose_context_is_full_is_incomplete_and_keeps_its_items(how: str) -> None:
    """Not even what the model is told fits."""
    with engine(ASKS_SEARCH, ANSWER) as made:
        ask(made, "whole", Hooks().all)
        begins = len(made.requests[0].prompt.tokens) + len(made.requests[0].timings.output)
    with engine(ASKS_SEARCH, ANSWER, context=begins + 5) as made:
        response, _ = ask(made, how, Hooks([{**PAGE, "text": LONG}]).all)
    assert (response.status, types(response)) == ("incomplete", ["web_search_call"])
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens > 0


def test_truncation_leaves_out_the_oldest_turns_for_a_result() -> None:
    pages = [{**PAGE, "text": "word " * 200}]
    turns: list[Any] = [{"role": role, "content": "old " * 150} for role in ("user", "assistant")]
    asked = {"input": [*turns, {"role": "user", "content": "Weather?"}], "tools": [SEARCH]}
    for truncation, status in (("auto", "completed"), ("disabled", "failed")):
        with engine(ASKS_SEARCH, ANSWER) as made:
            response, _ = ask(made, "whole", Hooks(pages).all, **asked, truncation=truncation)
            assert ("old old" in made.prompts[1]) is (truncation == "disabled")
        assert response.output[0].status == status


def test_a_later_response_reads_that_a_result_was_too_long() -> None:
    with (
        engine(ASKS_SEARCH, "Hi.") as made,
        LocalOpenAI(engine=made, hosted_tools=Hooks([{**PAGE, "text": LONG}]).all) as client,
    ):
        first = client.responses.create(model="m", input="Weather?", tools=[SEARCH])
        client.responses.create(model="m", input="And?", previous_response_id=first.id)
        assert json.dumps(TOLD)[1:-1] in made.prompts[-1]
