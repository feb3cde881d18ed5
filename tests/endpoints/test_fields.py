"""Fields that chat.completions and completions share: what they refuse and in which words, and what they do."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.fields import Fields
from localai_shim.errors import BadRequest, listed
from tests.conftest import MESSAGES, Oracle, refused

HUGE = 10**400  # more than a double can hold

# kwargs of create() -> param, code and a piece of the message of the error
REFUSED: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"model": 5}, "model", "invalid_type", "expected a string, but got an integer"),
    ({"temperature": -0.1}, "temperature", "decimal_below_min_value", "Expected a value >= 0, but got -0.1 instead"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value", "Expected a value <= 2, but got 2.1 instead"),
    ({"temperature": "hot"}, "temperature", "invalid_type", "expected a decimal, but got a string"),
    ({"temperature": True}, "temperature", "invalid_type", "expected a decimal, but got a boolean"),
    ({"temperature": [1]}, "temperature", "invalid_type", "expected a decimal, but got an array"),
    ({"temperature": float("inf")}, "temperature", "decimal_above_max_value", "Expected a value <= 2"),
    ({"temperature": HUGE}, "temperature", "decimal_above_max_value", "Expected a value <= 2"),
    ({"temperature": -HUGE}, "temperature", "decimal_below_min_value", "Expected a value >= 0"),
    ({"temperature": float("nan")}, "temperature", "invalid_value", "expected a decimal 0 to 2, but got NaN"),
    ({"top_p": 1.01}, "top_p", "decimal_above_max_value", "<= 1"),
    ({"top_p": -0.01}, "top_p", "decimal_below_min_value", ">= 0"),
    ({"presence_penalty": 2.5}, "presence_penalty", "decimal_above_max_value", "<= 2"),
    ({"presence_penalty": -2.5}, "presence_penalty", "decimal_below_min_value", ">= -2"),
    ({"frequency_penalty": 2.5}, "frequency_penalty", "decimal_above_max_value", "<= 2"),
    ({"frequency_penalty": "1"}, "frequency_penalty", "invalid_type", "a string"),
    ({"n": 0}, "n", "integer_below_min_value", "Expected a value >= 1, but got 0 instead"),
    ({"n": 129}, "n", "integer_above_max_value", "Expected a value <= 128, but got 129 instead"),
    ({"n": HUGE}, "n", "integer_above_max_value", "<= 128"),
    ({"n": 1.0}, "n", "invalid_type", "expected an integer, but got a decimal"),
    ({"n": True}, "n", "invalid_type", "expected an integer, but got a boolean"),
    ({"seed": 1.5}, "seed", "invalid_type", "expected an integer"),
    ({"seed": 2**63}, "seed", "integer_above_max_value", "<= 9223372036854775807"),
    ({"seed": -(2**63) - 1}, "seed", "integer_below_min_value", ">= -9223372036854775808"),
    ({"max_tokens": -7}, "max_tokens", "integer_below_min_value", "but got -7 instead"),
    ({"max_tokens": "5"}, "max_tokens", "invalid_type", "expected an integer, but got a string"),
    ({"max_tokens": 1025}, "max_tokens", "invalid_value", "max_tokens is too large: 1025"),
    ({"stop": list("abcde")}, "stop", "array_above_max_length", "maximum length 4"),
    ({"stop": ["a", ""]}, "stop[1]", "string_below_min_length", "minimum length 1"),
    ({"stop": ""}, "stop[0]", "string_below_min_length", "minimum length 1"),
    ({"stop": 5}, "stop", "invalid_type", "one of a string or array of strings, but got an integer"),
    ({"stop": ["a", 5]}, "stop[1]", "invalid_type", "expected a string, but got an integer"),
    ({"logit_bias": [5]}, "logit_bias", "invalid_type", "expected an object, but got an array"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value", "Invalid key in 'logit_bias': x"),
    ({"logit_bias": {"1_0": 1}}, "logit_bias", "invalid_value", "Invalid key in 'logit_bias': 1_0"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value", "Invalid key in 'logit_bias': -1"),
    ({"logit_bias": {"400": 1}}, "logit_bias", "invalid_value", "400 is not a token of this model"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5", "decimal_above_max_value", "<= 100"),
    ({"logit_bias": {"5": -101}}, "logit_bias.5", "decimal_below_min_value", ">= -100"),
    ({"logit_bias": {"5": "x"}}, "logit_bias.5", "invalid_type", "expected a decimal, but got a string"),
    ({"stream_options": {"include_usage": True}}, "stream_options", None, "only allowed when 'stream' is enabled"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        "stream_options.include_usage",
        "invalid_type",
        "expected a boolean, but got an integer",
    ),
    (
        {"stream": True, "extra_body": {"stream_options": {"include": True}}},
        "stream_options.include",
        "unknown_parameter",
        "Unknown parameter: 'stream_options.include'",
    ),
    ({"user": 5}, "user", "invalid_type", "expected a string, but got an integer"),
]

# fields of extra_body
REFUSED_EXTRA: list[tuple[dict[str, Any], str, str, str]] = [
    ({"top_k": -2}, "top_k", "integer_below_min_value", ">= -1"),
    ({"top_k": 1.5}, "top_k", "invalid_type", "expected an integer"),
    ({"min_p": 1.5}, "min_p", "decimal_above_max_value", "<= 1"),
    ({"min_p": -0.5}, "min_p", "decimal_below_min_value", ">= 0"),
    ({"repetition_penalty": 0}, "repetition_penalty", "decimal_below_min_value", "Invalid 'repetition_penalty'"),
    ({"repetition_penalty": "x"}, "repetition_penalty", "invalid_type", "expected a decimal"),
    ({"min_tokens": -1}, "min_tokens", "integer_below_min_value", ">= 0"),
    ({"min_tokens": 5}, "min_tokens", "invalid_value", "above the limit of 4"),
    ({"ignore_eos": "yes"}, "ignore_eos", "invalid_type", "expected a boolean"),
    ({"temprature": 0.5}, "temprature", "unknown_parameter", "Unknown parameter: 'temprature'"),
    ({"stream": "yes"}, "stream", "invalid_type", "expected a boolean, but got a string"),
]


def say(client: LocalOpenAI, **kwargs: Any) -> str:
    """The text of one answer to the usual message."""
    made = client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "max_tokens": 16, **kwargs})
    return str(made.choices[0].message.content)


def _label(row: object) -> str | None:
    return f"{next(iter(row))}={str(next(iter(row.values())))[:24]}" if isinstance(row, dict) else None


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_wrong_field_is_refused(client: LocalOpenAI, endpoint: str, subtests: pytest.Subtests) -> None:
    create: Any = {
        "chat": partial(client.chat.completions.create, messages=MESSAGES),
        "completions": partial(client.completions.create, prompt="Hello"),
    }[endpoint]
    extra = [({"extra_body": fields}, *error) for fields, *error in REFUSED_EXTRA]
    for kwargs, param, code, fragment in [*REFUSED, *extra]:
        with subtests.test(_label(kwargs)), refused(param, code, fragment):
            create(**{"model": "m", "max_tokens": 4, **kwargs})


def test_no_tokens_at_all_are_for_completions(client: LocalOpenAI) -> None:
    with refused("max_tokens", "integer_below_min_value", "Expected a value >= 1"):
        client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=0)
    assert client.completions.create(model="m", prompt="Hello", max_tokens=0).choices[0].text == ""


@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "n", "seed", "stop", "logit_bias", "max_tokens", "stream_options", "user"]
)
def test_an_explicit_null_means_absent(client: LocalOpenAI, name: str) -> None:
    base: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_completion_tokens": 4, "extra_body": {"top_k": 1}}
    absent = client.chat.completions.create(**base)
    null = client.chat.completions.create(**{**base, name: None})
    assert null.choices == absent.choices


def test_a_field_that_nobody_read_is_refused() -> None:
    fields = Fields({"known": 1, "unknown": 2})
    fields.get("known")
    with pytest.raises(BadRequest, match=r"Unknown parameter: 'unknown'\. This endpoint knows: 'known'\.") as caught:
        fields.finish()
    assert caught.value.param == "unknown"


def test_a_null_that_nobody_read_is_no_field() -> None:
    fields = Fields({"unknown": None})
    fields.finish()
    assert not fields.has("unknown")


def test_a_required_field_may_not_be_null() -> None:
    with pytest.raises(BadRequest, match=r"Missing required parameter: 'messages'\.") as caught:
        Fields({"messages": None}).require("messages")
    assert caught.value.code == "missing_required_parameter"


@pytest.mark.parametrize(
    ("options", "text"),
    [([], ""), (["a"], "'a'"), (["a", "b"], "'a' and 'b'"), (["a", "b", "c"], "'a', 'b', and 'c'")],
)
def test_options_are_listed_as_openai_lists_them(options: list[str], text: str) -> None:
    assert listed(options) == text


# -- what they do ---------------------------------------------------------------------------------------------------


def test_temperature_zero_is_greedy(client: LocalOpenAI, oracle: Oracle) -> None:
    assert say(client, temperature=0) == oracle.text(oracle.greedy(oracle.prompt(), 16))


@pytest.mark.parametrize(
    "kwargs",
    [{"top_p": 0}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1}}],
    ids=["top_p=0", "top_k=1", "min_p=1"],
)
def test_a_filter_that_keeps_one_token_is_greedy(client: LocalOpenAI, oracle: Oracle, kwargs: dict[str, Any]) -> None:
    assert say(client, temperature=2, **kwargs) == oracle.text(oracle.greedy(oracle.prompt(), 16))


@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_a_filter_keeps_the_likeliest_tokens_only(client: LocalOpenAI, oracle: Oracle, name: str) -> None:
    logprobs = oracle.logprobs(oracle.prompt())
    order = np.argsort(-logprobs)
    p = np.exp(logprobs[order])
    kept = {"top_p": int((np.cumsum(p) - p < 0.2).sum()), "top_k": 3, "min_p": int((p >= 0.4 * p[0]).sum())}[name]
    value = {"top_p": 0.2, "top_k": 3, "min_p": 0.4}[name]
    made = client.chat.completions.create(
        model="m",
        messages=MESSAGES,
        max_tokens=1,
        n=100,
        seed=1,
        temperature=1,
        logprobs=True,
        extra_body={name: value},
    )
    said = [entry.logprob for choice in made.choices for entry in choice.logprobs.content]
    drawn = {int(np.abs(logprobs - logprob).argmin()) for logprob in said}
    assert drawn == set(order[:kept].tolist())
    assert 1 < kept < 30


@pytest.mark.parametrize(("presence", "frequency", "repetition"), [(2, 0, 1), (0, 0.7, 1), (0, 0, 1.5), (-1, 1.5, 1.3)])
def test_penalties_are_openais_and_vllms(
    client: LocalOpenAI, oracle: Oracle, presence: float, frequency: float, repetition: float
) -> None:
    prompt = oracle.prompt()

    def adjust(logits: np.ndarray, generated: list[int]) -> np.ndarray:
        counts = np.bincount(generated, minlength=len(logits))
        seen = np.bincount([*prompt, *generated], minlength=len(logits)) > 0
        logits = np.where(seen, np.where(logits > 0, logits / repetition, logits * repetition), logits)
        return logits - frequency * counts - presence * (counts > 0)

    said = say(
        client,
        max_tokens=24,
        temperature=0,
        presence_penalty=presence,
        frequency_penalty=frequency,
        extra_body={"repetition_penalty": repetition},
    )
    assert said == oracle.text(oracle.greedy(prompt, 24, adjust))
    assert said != say(client, max_tokens=24, temperature=0)


def test_logit_bias_forces_a_token(client: LocalOpenAI, oracle: Oracle) -> None:
    token = oracle.tokenizer.encode("q")[0]
    assert say(client, logit_bias={str(token): 100}, seed=3) == "q" * 16


def test_logit_bias_bans_a_token(client: LocalOpenAI, oracle: Oracle) -> None:
    banned = oracle.greedy(oracle.prompt(), 1)[0]

    def adjust(logits: np.ndarray, generated: list[int]) -> np.ndarray:
        logits[banned] -= 100
        return logits

    said = say(client, temperature=0, logit_bias={str(banned): -100})
    assert said == oracle.text(oracle.greedy(oracle.prompt(), 16, adjust))


def test_logit_bias_shifts_a_logit_by_its_value(client: LocalOpenAI, oracle: Oracle) -> None:
    first, second = np.argsort(-oracle.logits(oracle.prompt()))[:2].tolist()
    gap = float(np.diff(oracle.logits(oracle.prompt())[[second, first]])[0])
    for bias, expected in ((gap - 0.01, first), (gap + 0.01, second)):
        said = say(client, temperature=0, max_tokens=1, logit_bias={str(second): bias})
        assert said == oracle.text([expected])


def test_a_seed_fixes_the_answer(client: LocalOpenAI) -> None:
    assert say(client, seed=5) == say(client, seed=5)
    assert len({say(client, seed=seed) for seed in range(5)}) == 5
    assert say(client) != say(client)


def test_choices_of_a_seeded_request_differ_and_do_not_depend_on_their_number(client: LocalOpenAI) -> None:
    whole: Any = {"seed": 5, "extra_body": {"min_tokens": 16}}
    made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=16, n=4, **whole)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in made.choices}) == 4
    assert made.choices[0].message.content == say(client, **whole)
    assert made.usage.completion_tokens == 64


def test_min_tokens_holds_the_end_of_sequence_back(builtin: LocalOpenAI) -> None:
    short = builtin.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=200)
    length = short.usage.completion_tokens
    longer = builtin.chat.completions.create(
        model="m", messages=MESSAGES, temperature=0, max_tokens=200, extra_body={"min_tokens": length + 5}
    )
    assert short.choices[0].finish_reason == "stop"
    assert longer.usage.completion_tokens >= length + 5
    assert longer.choices[0].message.content.startswith(short.choices[0].message.content)


def test_min_tokens_lets_an_early_stop_string_pass(client: LocalOpenAI) -> None:
    whole = say(client, temperature=0)
    made = client.chat.completions.create(
        model="m", messages=MESSAGES, temperature=0, max_tokens=16, stop=whole[:2], extra_body={"min_tokens": 16}
    )
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == (whole, "length")


def test_ignore_eos_goes_on_past_the_end_of_sequence(builtin: LocalOpenAI) -> None:
    stopped = builtin.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=200)
    most = stopped.usage.completion_tokens + 10
    made = builtin.chat.completions.create(
        model="m", messages=MESSAGES, temperature=0, max_tokens=most, extra_body={"ignore_eos": True}
    )
    assert (made.usage.completion_tokens, made.choices[0].finish_reason) == (most, "length")
    assert made.choices[0].message.content.startswith(stopped.choices[0].message.content)
    assert "<|im_end|>" not in made.choices[0].message.content


@pytest.mark.parametrize(
    ("config", "same_as"),
    [
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0}),
        ({"temperature": 0.3}, {"temperature": 0.3}),
        ({"top_k": 2, "top_p": 0.8}, {"top_p": 0.8, "extra_body": {"top_k": 2}}),
        ({"min_p": 0.2, "repetition_penalty": 1.3}, {"extra_body": {"min_p": 0.2, "repetition_penalty": 1.3}}),
        ({}, {"temperature": 1, "top_p": 1, "extra_body": {"top_k": 0, "min_p": 0, "repetition_penalty": 1}}),
    ],
    ids=lambda value: next(iter(value), "nothing"),
)
def test_defaults_come_from_the_models_generation_config(
    client: LocalOpenAI, model_path: Path, tmp_path: Path, config: dict[str, Any], same_as: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(model_path, tmp_path / "configured"))
    (folder / "generation_config.json").write_text(json.dumps(config))
    neutral = {"top_k": 0, "min_p": 0, "repetition_penalty": 1}
    with LocalOpenAI(folder, keep_alive=0) as configured:
        assert say(configured, seed=5) == say(client, seed=5, **same_as)
        explicit: dict[str, Any] = {"temperature": 1, "top_p": 1, "extra_body": neutral}
        assert say(configured, seed=5, **explicit) == say(client, seed=5)
