"""completions.create, the legacy API, end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from openai.types import Completion

from localai_shim import LocalOpenAI
from tests.conftest import Oracle, refused, revalidate
from tests.floats import nearly
from tests.tiny import make_model

CREATE: dict[str, Any] = {"model": "gpt-3.5-turbo-instruct", "prompt": "Hello", "temperature": 0, "max_tokens": 12}

# kwargs of create() -> param, code and a piece of the message of the error
REFUSED: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"prompt": []}, "prompt", "empty_array", "minimum length 1"),
    ({"prompt": None}, "prompt", "missing_required_parameter", "'prompt'"),
    ({"prompt": 5}, "prompt", "invalid_type", "a string, an array of strings, an array of integers"),
    ({"prompt": ["a", 5]}, "prompt[1]", "invalid_type", "an integer"),
    ({"prompt": ["a", []]}, "prompt[1]", "invalid_type", "an array"),
    ({"prompt": [5, "a"]}, "prompt[0]", "invalid_type", "an integer"),
    ({"prompt": [5, True]}, "prompt[0]", "invalid_type", "an integer"),
    ({"prompt": [[5, 6], [7, 1.5]]}, "prompt[1][1]", "invalid_type", "expected an integer, but got a decimal"),
    ({"prompt": [5, 400]}, "prompt[1]", "invalid_value", "400 is not a token of this model"),
    ({"prompt": [-1]}, "prompt[0]", "invalid_value", "-1 is not a token of this model"),
    ({"prompt": ""}, "prompt", "invalid_value", "encodes to zero tokens"),
    ({"prompt": [5] * 1024}, "prompt", "context_length_exceeded", "maximum context length is 1024 tokens"),
    ({"echo": "yes"}, "echo", "invalid_type", "expected a boolean"),
    ({"suffix": "!"}, "suffix", "unsupported_parameter", "Filling in the middle"),
    ({"logprobs": 6}, "logprobs", "integer_above_max_value", "<= 5"),
    ({"logprobs": -1}, "logprobs", "integer_below_min_value", ">= 0"),
    ({"logprobs": True}, "logprobs", "invalid_type", "expected an integer, but got a boolean"),
    ({"best_of": 0}, "best_of", "integer_below_min_value", ">= 1"),
    ({"n": 3, "best_of": 2}, "best_of", "invalid_value", "n = 3, best_of = 2"),
    ({"best_of": 2, "stream": True}, "best_of", "invalid_value", "cannot be streamed"),
    ({"extra_body": {"messages": []}}, "messages", "unknown_parameter", "Unknown parameter: 'messages'"),
]


def text_of(chunks: list[Completion], index: int = 0) -> str:
    """What the chunks of one choice say together."""
    return "".join(choice.text for chunk in chunks for choice in chunk.choices if choice.index == index)


@pytest.mark.parametrize(("kwargs", "param", "code", "fragment"), REFUSED, ids=lambda v: str(v)[:32])
def test_a_wrong_field_is_refused(
    client: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        client.completions.create(**{**CREATE, **kwargs})


def test_a_whole_completion_has_openais_shape(client: LocalOpenAI, oracle: Oracle) -> None:
    made = client.completions.create(**CREATE)
    revalidate(made)
    prompt = oracle.tokenizer.encode("Hello")
    assert made.object == "text_completion" and made.id.startswith("cmpl-") and made.model == "tiny-qwen3"
    assert made.system_fingerprint is not None and made.system_fingerprint.startswith("fp_")
    [choice] = made.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert choice.text == oracle.text(oracle.greedy(prompt, 12))
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (len(prompt), 12)
    assert made.usage.total_tokens == len(prompt) + 12


def test_without_max_tokens_a_completion_has_openais_sixteen(client: LocalOpenAI) -> None:
    made = client.completions.create(model="m", prompt="Hello", temperature=0)
    assert made.usage is not None and made.usage.completion_tokens == 16


@pytest.mark.parametrize(("length", "room"), [(1023, 1), (1020, 4)])
def test_a_completion_ends_where_the_context_ends(client: LocalOpenAI, length: int, room: int) -> None:
    made = client.completions.create(
        model="m", prompt=[5] * length, max_tokens=50, temperature=0, extra_body={"ignore_eos": True}
    )
    assert made.usage is not None and made.usage.completion_tokens == room
    assert made.choices[0].finish_reason == "length"


def test_a_prompt_may_be_text_or_tokens_alone_or_in_a_list(client: LocalOpenAI, oracle: Oracle) -> None:
    ids = oracle.tokenizer.encode("Hello")
    expected = client.completions.create(**CREATE).choices
    for prompt in (["Hello"], ids, [ids]):
        assert client.completions.create(**{**CREATE, "prompt": prompt}).choices == expected


def test_choices_of_several_prompts_come_in_their_order(client: LocalOpenAI, oracle: Oracle) -> None:
    prompts = ["Hello", "What is", "one two three"]
    made = client.completions.create(**{**CREATE, "prompt": prompts}, n=2)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3, 4, 5]
    ids = [oracle.tokenizer.encode(prompt) for prompt in prompts]
    expected = [oracle.text(oracle.greedy(prompt, 12)) for prompt in ids]
    assert [choice.text for choice in made.choices] == [text for text in expected for _ in range(2)]
    assert made.usage is not None and made.usage.completion_tokens == 6 * 12
    assert made.usage.prompt_tokens == sum(len(prompt) for prompt in ids)


def test_a_completion_keeps_the_space_that_it_begins_with(client: LocalOpenAI, oracle: Oracle) -> None:
    token = next(i for i in range(400) if oracle.tokenizer.decode([i]).startswith(" t"))
    made = client.completions.create(**{**CREATE, "max_tokens": 1}, logit_bias={str(token): 100})
    assert made.choices[0].text == oracle.tokenizer.decode([token])


def test_chunks_have_openais_shape_but_for_the_finish_reason_that_is_still_open(client: LocalOpenAI) -> None:
    """The API sends null until the end, which the SDK's type does not know."""
    for chunk in client.completions.create(**CREATE, stream=True, logprobs=2):
        dumped = chunk.model_dump()
        for choice in dumped["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        revalidate(Completion.model_validate(dumped, strict=True))
        assert "usage" not in chunk.model_fields_set


def test_logprobs_are_those_of_the_model(client: LocalOpenAI, oracle: Oracle) -> None:
    made = client.completions.create(**CREATE, logprobs=3)
    logprobs = made.choices[0].logprobs
    assert logprobs is not None and logprobs.top_logprobs is not None
    assert logprobs.tokens is not None and logprobs.token_logprobs is not None
    prompt = oracle.tokenizer.encode("Hello")
    ids = oracle.greedy(prompt, 12)
    for i, token in enumerate(ids):
        expected = oracle.logprobs([*prompt, *ids[:i]])
        assert logprobs.token_logprobs[i] == pytest.approx(expected[token], abs=1e-3)
        assert max(logprobs.top_logprobs[i].values()) == pytest.approx(expected.max(), abs=1e-3)
        assert logprobs.top_logprobs[i][logprobs.tokens[i]] == logprobs.token_logprobs[i]
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 12


def test_top_logprobs_hold_the_likeliest_tokens_and_the_drawn_one(client: LocalOpenAI, oracle: Oracle) -> None:
    """Also where several of them are pieces of characters."""
    made = client.completions.create(**{**CREATE, "temperature": 1}, seed=2, logprobs=5)
    logprobs = made.choices[0].logprobs
    assert logprobs is not None and logprobs.top_logprobs is not None and logprobs.token_logprobs is not None
    prompt = oracle.tokenizer.encode("Hello")
    best = np.sort(oracle.logprobs(prompt))[::-1][:5].tolist()
    drawn = logprobs.token_logprobs[0]
    expected = best if any(abs(drawn - x) < 1e-3 for x in best) else [*best, drawn]
    assert sorted(logprobs.top_logprobs[0].values(), reverse=True) == pytest.approx(expected, abs=1e-3)
    assert all(5 <= len(top) <= 6 for top in logprobs.top_logprobs)


def test_text_offsets_count_from_the_beginning_of_the_prompt(builtin: LocalOpenAI) -> None:
    prompt = "The capital of France is"
    choice = builtin.completions.create(model="m", prompt=prompt, max_tokens=12, temperature=0, logprobs=0).choices[0]
    assert choice.logprobs is not None and choice.logprobs.text_offset is not None
    whole = prompt + choice.text
    tokens, offsets = choice.logprobs.tokens or [], choice.logprobs.text_offset
    assert [whole[at : at + len(token)] for at, token in zip(offsets, tokens, strict=True)] == tokens
    assert offsets[0] == len(prompt)


def test_a_stream_carries_the_same_logprobs(client: LocalOpenAI) -> None:
    whole = client.completions.create(**CREATE, logprobs=1).choices[0].logprobs
    pieces = [c.choices[0].logprobs for c in client.completions.create(**CREATE, logprobs=1, stream=True)]
    assert whole is not None
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for piece in pieces if piece is not None for value in getattr(piece, name)]
        assert streamed == nearly(getattr(whole, name))


def test_best_of_returns_the_candidates_with_the_highest_logprob_per_token(client: LocalOpenAI, oracle: Oracle) -> None:
    ban = {str(i): -100 for i in oracle.tokenizer.eos_token_ids}
    create = {**CREATE, "temperature": 1, "seed": 11, "logit_bias": ban}
    everyone = client.completions.create(**create, n=6, logprobs=0).choices
    means = [float(np.mean(c.logprobs.token_logprobs)) for c in everyone if c.logprobs and c.logprobs.token_logprobs]
    best = [everyone[i].text for i in np.argsort(means)[::-1][:2]]
    made = client.completions.create(**create, n=2, best_of=6)
    assert [choice.text for choice in made.choices] == best and len(set(means)) == 6
    assert [choice.index for choice in made.choices] == [0, 1]
    assert [choice.logprobs for choice in made.choices] == [None, None]
    assert made.usage is not None and made.usage.completion_tokens == 6 * 12


def test_a_model_without_a_chat_template_completes_and_does_not_chat(tmp_path: Any) -> None:
    with LocalOpenAI(make_model(tmp_path / "base", "qwen3", template=None), keep_alive=0) as base:
        assert base.completions.create(**CREATE).choices[0].text
        with refused("messages", "unsupported_value", "no chat template"):
            base.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
