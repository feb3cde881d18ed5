"""The agent's tests: no network, no key, no model, and no time lost."""

from __future__ import annotations

import openai
import pytest
from weather_agent import Report, answer, answer_all, report, tell

from localai_shim.testing import (
    AsyncScriptedOpenAI,
    ScriptedOpenAI,
    context_length_exceeded,
    cut,
    rate_limit,
    refusal,
    server_error,
    tool_call,
)


def weather(city: str) -> str:
    return {"Paris": "18 degrees", "Rome": "25 degrees"}[city]


def test_a_question_without_tools(local_openai: ScriptedOpenAI) -> None:
    local_openai.script("Ask me about a city.")
    assert answer(local_openai, "Hello?", weather) == "Ask me about a city."
    assert local_openai.last_call.system == "Be brief."


def test_the_weather_is_asked_for_and_told(
    local_openai: ScriptedOpenAI,
) -> None:
    local_openai.script(
        [
            tool_call("get_weather", city="Paris"),
            tool_call("get_weather", city="Rome"),
        ]
    )
    local_openai.when(tool_result="25 degrees").reply("Rome is warmer.")
    assert answer(local_openai, "Paris or Rome?", weather) == "Rome is warmer."
    assert local_openai.last_call.tool_results == ["18 degrees", "25 degrees"]
    local_openai.assert_tool_called("get_weather", city="Rome")


@pytest.mark.parametrize(
    "arguments", ['{"city": "Par', '{"town": "Paris"}', "Paris"]
)
def test_arguments_that_cannot_be_read_go_back_to_the_model(
    local_openai: ScriptedOpenAI, arguments: str
) -> None:
    local_openai.script(tool_call("get_weather", arguments), "I am sorry.")
    assert answer(local_openai, "Paris?", weather) == "I am sorry."
    local_openai.assert_tool_result("cannot be read")


def test_an_agent_that_goes_round_and_round_ends(
    local_openai: ScriptedOpenAI,
) -> None:
    local_openai.when().reply(tool_call("get_weather", city="Paris")).always()
    assert answer(local_openai, "Paris?", weather) == "I could not find out."
    local_openai.assert_called(times=5)


def test_a_flaky_service_is_asked_again(local_openai: ScriptedOpenAI) -> None:
    local_openai.script(rate_limit(retry_after=30), server_error(503), "Fine.")
    assert answer(local_openai, "Hello?", weather) == "Fine."
    assert local_openai.clock.sleeps[0] == 30


def test_a_question_that_is_too_long_is_the_caller_s_problem(
    local_openai: ScriptedOpenAI,
) -> None:
    local_openai.script(context_length_exceeded())
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        answer(local_openai, "A very long question", weather)


def test_a_report_is_parsed_or_refused(local_openai: ScriptedOpenAI) -> None:
    local_openai.when(schema=Report, user="Paris").reply(
        Report(city="Paris", degrees=18)
    )
    local_openai.script(refusal())
    assert report(local_openai, "In Paris it is 18 degrees.") == Report(
        city="Paris", degrees=18
    )
    assert report(local_openai, "How do I make it rain?") is None


def test_any_report_will_do(local_openai: ScriptedOpenAI) -> None:
    made = report(
        local_openai, "Nothing is scripted here: the answer is made up."
    )
    assert isinstance(made, Report)


def test_a_story_that_breaks_off_says_so(local_openai: ScriptedOpenAI) -> None:
    local_openai.script(cut("Once it rained in Paris.", tokens=3))
    assert (
        "".join(tell(local_openai, "Paris"))
        == "Once it rained ... (the connection broke)"
    )


@pytest.mark.anyio
@pytest.mark.local_openai(seed=7)
async def test_several_questions_at_once(
    async_local_openai: AsyncScriptedOpenAI,
) -> None:
    async_local_openai.when().reply(
        lambda request: request.user.upper()
    ).always()
    with async_local_openai.token_budget(max_total=200):
        assert await answer_all(async_local_openai, ["one", "two"]) == [
            "ONE",
            "TWO",
        ]


def test_what_is_asked_is_what_it_was(local_openai: ScriptedOpenAI) -> None:
    report(local_openai, "Rain.")
    snapshot = local_openai.last_call.snapshot()
    assert snapshot["messages"] == [{"role": "user", "content": "Rain."}]
    assert snapshot["response_format"]["json_schema"]["strict"] is True
