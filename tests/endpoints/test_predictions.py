"""`prediction` and `speculation`: what they may be, and that they change nothing but the counts of the usage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.costs.cost_model import CostModel
from localai_shim.output.prediction import Prediction
from localai_shim.stats import DraftCounts
from tests import inside
from tests.conftest import MESSAGES
from tests.tiny import tiny

ASK: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 40, "temperature": 0}


@pytest.fixture(scope="module")
def auto() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(tiny("qwen3"), speculation="auto", keep_alive=0) as client:
        yield client


def predicted(text: str) -> dict[str, Any]:
    return {"type": "content", "content": text}


def counted(made: Any) -> tuple[int, Any]:
    """The tokens of an answer, with OpenAI's details."""
    assert made.usage is not None and made.usage.completion_tokens_details is not None
    return made.usage.completion_tokens, made.usage.completion_tokens_details


def test_an_answer_is_the_same_with_a_prediction_whose_tokens_are_counted(auto: LocalOpenAI) -> None:
    plain = auto.chat.completions.create(**ASK, logprobs=True, extra_body={"ignore_eos": True})
    text = plain.choices[0].message.content or ""
    assert plain.usage is not None and plain.usage.completion_tokens_details is not None
    assert plain.usage.completion_tokens_details.accepted_prediction_tokens == 0
    made = auto.chat.completions.create(
        **ASK,
        logprobs=True,
        prediction=predicted(text + " and more"),
        extra_body={"ignore_eos": True},  # type: ignore[arg-type]
    )
    assert made.choices[0].message.content == text
    assert made.usage is not None and made.usage.completion_tokens_details is not None
    details = made.usage.completion_tokens_details
    assert details.accepted_prediction_tokens and details.rejected_prediction_tokens
    assert made.usage.completion_tokens == plain.usage.completion_tokens + details.rejected_prediction_tokens
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens


def test_the_counts_do_not_depend_on_whether_drafts_were_run(auto: LocalOpenAI, client: LocalOpenAI) -> None:
    text = auto.chat.completions.create(**ASK).choices[0].message.content or ""
    prediction = predicted(text[: len(text) // 2] + "?" + text[len(text) // 2 :])
    usages = [
        counted(one.chat.completions.create(**ASK, n=2, prediction=prediction, extra_body=extra))  # type: ignore[call-overload]
        for one, extra in ((auto, {}), (auto, {"speculation": "off"}), (client, {}))
    ]
    assert usages[0] == usages[1] == usages[2]


def test_streams_end_with_the_same_usage(auto: LocalOpenAI) -> None:
    whole = auto.chat.completions.create(**ASK, prediction=predicted("The quick brown fox"))  # type: ignore[call-overload]
    stream = auto.chat.completions.create(
        **ASK, prediction=predicted("The quick brown fox"), stream=True, stream_options={"include_usage": True}
    )  # type: ignore[call-overload]
    assert counted(list(stream)[-1]) == counted(whole)


def test_a_prediction_comes_to_the_engine_with_its_index(auto: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    made = Prediction.__init__

    def noting(self: Prediction, *args: Any) -> None:
        threads.append(threading.current_thread().name)
        made(self, *args)

    monkeypatch.setattr(Prediction, "__init__", noting)
    auto.chat.completions.create(**ASK, n=2, prediction=predicted("The quick brown fox"))  # type: ignore[call-overload]
    assert len(threads) == 1, "once for all choices"
    engine: Any = inside.engine(auto)
    assert threads[0] != inside.worker(engine).thread.name, "and not on the engine's thread"


def test_a_call_is_the_same_with_a_prediction_of_it(builtin: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CostModel, "seconds", lambda self, kind, size: 1.0)  # so drafts always pay
    parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}
    ask: Any = {**ASK, "tools": [tool], "tool_choice": "required"}
    plain = builtin.chat.completions.create(**ask, extra_body={"speculation": "off"})
    [call] = plain.choices[0].message.tool_calls or ()
    assert call.type == "function"
    said = f'{{"name": "weather", "arguments": {call.function.arguments}}}'
    made = builtin.chat.completions.create(**ask, prediction=predicted(said))
    [again] = made.choices[0].message.tool_calls or ()
    assert again.type == "function" and again.function == call.function
    assert made.choices[0].finish_reason == plain.choices[0].finish_reason == "tool_calls"
    assert counted(made)[1].accepted_prediction_tokens


def test_text_parts_are_one_prediction(auto: LocalOpenAI) -> None:
    parts = [{"type": "text", "text": "The quick "}, {"type": "text", "text": "brown fox"}]
    made = [
        counted(auto.chat.completions.create(**ASK, prediction={"type": "content", "content": content}))  # type: ignore[call-overload]
        for content in (parts, "The quick brown fox")
    ]
    assert made[0] == made[1]


def test_completions_and_responses_take_one_too(auto: LocalOpenAI) -> None:
    extra = {"prediction": predicted("The quick brown fox")}
    made = auto.completions.create(model="m", prompt="Hello", max_tokens=12, temperature=0, extra_body=extra)
    assert made.usage is not None and made.usage.completion_tokens_details is not None
    assert made.usage.completion_tokens_details.rejected_prediction_tokens
    plain = auto.completions.create(model="m", prompt="Hello", max_tokens=12, temperature=0)
    assert made.choices[0].text == plain.choices[0].text
    asked: dict[str, Any] = {"model": "m", "input": "Hello", "max_output_tokens": 12, "temperature": 0}
    assert auto.responses.create(**asked, extra_body=extra).output_text == auto.responses.create(**asked).output_text


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ("text", "prediction"),
        ({"content": "text"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "text", "content": "text"}, "prediction.type"),
        ({"type": "content", "content": 3}, "prediction.content"),
        ({"type": "content", "content": ["text"]}, "prediction.content[0]"),
        ({"type": "content", "content": [{"type": "image", "text": "a"}]}, "prediction.content[0].type"),
        ({"type": "content", "content": [{"type": "text"}]}, "prediction.content[0].text"),
        ({"type": "content", "content": "text", "more": 1}, "prediction.more"),
    ],
)
def test_what_is_no_prediction_is_refused_by_its_path(client: LocalOpenAI, prediction: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ASK, extra_body={"prediction": prediction})
    assert caught.value.param == param


def test_a_mode_that_does_not_exist_is_refused(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="fast") as caught:
        client.chat.completions.create(**ASK, extra_body={"speculation": "fast"})
    assert caught.value.param == "speculation"


def test_stats_say_how_many_drafts_were_right_by_source(auto: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CostModel, "seconds", lambda self, kind, size: 1.0)  # so drafts always pay
    ask: Any = {**ASK, "extra_body": {"ignore_eos": True}}
    text = auto.chat.completions.create(**ask)
    before = auto.stats().drafts.get("prediction", DraftCounts(0, 0))
    auto.chat.completions.create(**ask, prediction=predicted(text.choices[0].message.content))
    after = auto.stats().drafts["prediction"]
    assert before.accepted < after.accepted <= after.drafted
