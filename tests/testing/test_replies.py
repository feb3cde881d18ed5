"""What a scripted model was told to say comes out of the clients token by token."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine, ScriptedTokenizer
from localai_shim.types import EngineError, GenerationRequest, RowError
from tests.conftest import revalidate
from tests.engine.harness import Running, request
from tests.testing.asking import answer, ask, contents

# -- what is said ---------------------------------------------------------------------------------------------------


def test_a_reply_comes_as_a_whole_completion_and_what_was_asked_is_recorded() -> None:
    with ScriptedEngine(["Hello there, you."], name="stand-in") as engine:
        made = ask(LocalOpenAI(engine=engine), temperature=0.25, max_tokens=9)
    revalidate(made)
    assert (made.model, made.choices[0].message.content, made.choices[0].finish_reason) == (
        "stand-in",
        "Hello there, you.",
        "stop",
    )
    assert engine.prompts == ["<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"]
    [asked] = engine.requests
    assert (asked.sampling.temperature, asked.max_tokens) == (0.25, 9)
    assert made.usage.prompt_tokens == len(asked.prompt.tokens) == len(engine.tokenizer.encode(engine.prompts[0]))
    assert made.usage.completion_tokens == 4  # three words and the end of the sequence


@pytest.mark.parametrize(
    ("reply", "pieces"),
    [
        ("Hello there, you.", ["Hello", " there,", " you."]),
        (["Hel", "lo the", "re"], ["Hel", "lo the", "re"]),
        (Reply(["<b", "old", ">"]), ["<b", "old", ">"]),
        ([72, 105], ["H", "i"]),
        (Reply(b"Hi"), ["H", "i"]),
        (["z", b"\xc5", b"\xbc\xf0\x9f\x99", b"\x82!"], ["z", "ż", "🙂!"]),
        (["a", b"\xff", "b"], ["a", "\ufffd", "b"]),
        (["", "a"], ["a"]),
        ("", []),
    ],
)
def test_each_piece_is_a_token_and_each_token_a_chunk_of_a_stream(reply: Any, pieces: list[str]) -> None:
    with ScriptedEngine([reply]) as engine:
        assert contents(ask(LocalOpenAI(engine=engine), stream=True)) == pieces


def test_replies_are_played_in_the_order_of_the_requests() -> None:
    with ScriptedEngine(["one", "two"]) as engine:
        client = LocalOpenAI(engine=engine)
        engine.say("three", Reply("four"))
        assert engine.left == 4
        said = [ask(client).choices[0].message.content for _ in range(4)]
        assert said == ["one", "two", "three", "four"]
        assert (engine.left, len(engine.requests)) == (0, 4)


def test_each_choice_is_a_reply_of_its_own() -> None:
    made = answer("one", "two words", "three", n=3)
    assert [(c.index, c.message.content) for c in made.choices] == [(0, "one"), (1, "two words"), (2, "three")]
    assert made.usage.completion_tokens == 2 + 3 + 2


def test_a_request_without_a_reply_fails_and_says_so() -> None:
    with ScriptedEngine(["only one"]) as engine:
        client = LocalOpenAI(engine=engine)
        ask(client)
        says = r"no reply is left: .* has 1, .*request 2: .*Hello there"
        with pytest.raises(openai.BadRequestError, match=says) as caught:
            ask(client)
        assert caught.value.code == "not_scripted"
        engine.say("another")
        assert ask(client).choices[0].message.content == "another"


def test_a_function_may_decide_what_to_say() -> None:
    def decide(request: GenerationRequest, prompt: str, index: int) -> Any:
        assert request.max_tokens == 7
        return Reply(f"{index}: {prompt.count('user')}")

    with ScriptedEngine(decide) as engine:
        client = LocalOpenAI(engine=engine)
        made = ask(client, n=2, max_tokens=7)
        assert [c.message.content for c in made.choices] == ["0: 1", "1: 1"]
        with pytest.raises(openai.InternalServerError, match="AssertionError") as caught:
            ask(client, max_tokens=8)
        assert isinstance(caught.value.__cause__, AssertionError)
        with pytest.raises(ValueError, match="a function decides"):
            engine.say("more")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ([999_999], "999999 is not a token"),
        (Reply("a b", logprobs=[-1.0]), "2 tokens with 1 logprobs"),
        (Reply("a", logprobs=[{"b": -1.0}]), "logprobs without that of 'a' itself"),
        (Reply("a", fail_after=2), "1 tokens cannot fail after 2"),
        (Reply("", finish_reason="length"), "at least one token"),
    ],
)
def test_a_reply_that_cannot_be_played_is_refused_at_once(reply: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScriptedEngine([reply])


def test_one_text_in_place_of_a_list_of_replies_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        ScriptedEngine("Hello")


# -- how replies end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "text", "reason"), [(1, "a", "length"), (3, "a b c", "length"), (4, "a b c", "stop")]
)
def test_max_tokens_cuts_a_reply(limit: int, text: str, reason: str) -> None:
    made = answer("a b c", max_tokens=limit)
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == (text, reason)
    assert made.usage.completion_tokens == limit


def test_the_context_cuts_a_reply_and_refuses_a_prompt() -> None:
    prompt = len(ScriptedTokenizer().encode("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"))
    with ScriptedEngine(["a b c"], context_length=prompt + 2) as engine:
        client = LocalOpenAI(engine=engine)
        made = ask(client)
        assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (prompt, 2)
        assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("a b", "length")
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hello there, you"}])
        assert caught.value.code == "context_length_exceeded"


def test_a_reply_may_end_as_if_it_had_been_cut() -> None:
    made = answer(Reply("a b", finish_reason="length"))
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("a b", "length")
    assert made.usage.completion_tokens == 2


@pytest.mark.parametrize("pieces", [["one ST", "OP two"], ["one ", "STOP", " two"], ["one STOP two"]])
def test_a_stop_string_ends_a_reply_across_tokens(pieces: list[str]) -> None:
    with ScriptedEngine([[*pieces, " three"], "next"]) as engine:
        client = LocalOpenAI(engine=engine)
        made = ask(client, stop=["STOP"])
        assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("one ", "stop")
        assert made.usage.completion_tokens == next(i for i in range(1, 4) if "STOP" in "".join(pieces[:i]))


def test_a_reply_that_must_go_on_begins_again() -> None:
    made = answer(["a ", "b "], max_tokens=7, extra_body={"ignore_eos": True})
    assert (made.choices[0].message.content, made.usage.completion_tokens) == ("a b a b a ", 7)  # and two ends
    made = answer(["a ", "b "], extra_body={"min_tokens": 3})
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("a b a b ", "stop")
    made = answer("", extra_body={"min_tokens": 2})
    assert (made.choices[0].message.content, made.usage.completion_tokens) == ("", 3)


# -- logprobs -------------------------------------------------------------------------------------------------------


def test_logprobs_are_those_of_the_script() -> None:
    reply = Reply(["Yes", "!"], logprobs=[{"No": -2.5, "Yes": -0.5, "Maybe": -3.0}, -1.5])
    content = answer(reply, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert [(t.token, t.logprob) for t in content] == [("Yes", -0.5), ("!", -1.5)]
    assert [(t.token, t.logprob) for t in content[0].top_logprobs] == [("Yes", -0.5), ("No", -2.5)]
    likelier, said = content[1].top_logprobs
    assert (said.token, said.logprob) == ("!", -1.5)
    assert likelier.logprob > -1.5


@pytest.mark.parametrize("logprob", [None, 0.0, -0.001, -1.5, -20.0])
def test_logprobs_that_the_script_does_not_say_are_a_distribution(logprob: float | None) -> None:
    reply = Reply(["b", "é", b"\xf0"], logprobs=None if logprob is None else [logprob] * 3)
    content = answer(reply, logprobs=True, top_logprobs=20).choices[0].logprobs.content
    assert [bytes(t.bytes) for t in content] == [b"b", "é".encode(), b"\xf0"]
    for token in content:
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len({t.token for t in token.top_logprobs}) == len(values) == 20
        assert sum(map(math.exp, values)) <= 1 + 1e-9
        assert token.logprob == pytest.approx(math.log(0.9) if logprob is None else logprob)
        assert logprob == -20.0 or token.logprob in values


def test_logprobs_are_there_only_where_they_were_asked_for() -> None:
    assert answer(Reply("a", logprobs=[-1.0])).choices[0].logprobs is None
    [token] = answer(Reply("a", logprobs=[-1.0]), logprobs=True).choices[0].logprobs.content
    assert (token.logprob, token.top_logprobs) == (-1.0, [])


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RowError("this row broke"), EngineError("this row broke"), OSError("this row broke")]
)
def test_a_failure_comes_after_the_tokens_before_it(error: Exception) -> None:
    with ScriptedEngine([Reply("a b c", error=error, fail_after=2), "fine"]) as engine:
        client = LocalOpenAI(engine=engine)
        stream = ask(client, stream=True)
        said: list[str] = []
        with pytest.raises(openai.InternalServerError, match="this row broke") as caught:
            said.extend(c.choices[0].delta.content for c in stream if c.choices[0].delta.content)
        assert caught.value.__cause__ is error
        assert ask(client).choices[0].message.content == "fine"


@pytest.mark.parametrize(("reply", "count"), [(Reply("a b", error=RowError("no")), 2), (Reply("a b", fail_after=0), 0)])
def test_a_failure_is_at_the_end_or_where_the_script_says(reply: Reply, count: int) -> None:
    with ScriptedEngine([reply]) as engine:
        running = Running(engine, request([1]))
        with pytest.raises(RowError):
            running.finish()
        assert len(running.events[0]) == count + 1


def test_one_row_fails_and_its_neighbours_go_on() -> None:
    with ScriptedEngine([Reply("a b", fail_after=1), "c d e"]) as engine:
        running = [Running(engine, request([1])) for _ in range(2)]
        with pytest.raises(RowError, match="fails this request"):
            running[0].finish()
        assert engine.tokenizer.decode(running[1].finish()[0]) == "c d e<|im_end|>"


def test_a_stop_check_that_raises_fails_its_own_row() -> None:
    class Broken:
        def feed(self, token_id: int) -> bool:
            raise ZeroDivisionError

    with ScriptedEngine(["a b", "c"]) as engine:
        broken, fine = Running(engine, request([1], stop=Broken())), Running(engine, request([1]))
        with pytest.raises(RowError, match="stop check or the grammar") as caught:
            broken.finish()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(fine.finish()[0]) == 2


# -- other endpoints ------------------------------------------------------------------------------------------------


def test_models_are_listed_and_texts_completed() -> None:
    with ScriptedEngine(["lo, you", "!"], name="stand-in") as engine:
        client = LocalOpenAI(engine=engine)
        assert [model.id for model in client.models.list()] == ["stand-in"]
        made = client.completions.create(model="any", prompt="Hel")
        assert made.choices[0].text == "lo, you"
        made = client.completions.create(model="any", prompt=[72, 105])
        assert (made.choices[0].text, engine.prompts) == ("!", ["Hel", "Hi"])


def test_a_model_may_have_another_template_or_none() -> None:
    with ScriptedEngine(["hi"], tokenizer=ScriptedTokenizer(chat_template="{{ messages[0].content }}:")) as engine:
        ask(LocalOpenAI(engine=engine))
        assert engine.prompts == ["Hello there:"]
    with (
        ScriptedEngine(["hi"], tokenizer=ScriptedTokenizer(chat_template=None)) as engine,
        pytest.raises(openai.BadRequestError, match="no chat template"),
    ):
        ask(LocalOpenAI(engine=engine))
