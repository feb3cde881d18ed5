"""vLLM's present names in extra_body for what ends an answer, which tokens may come and which are text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from tests.conftest import Oracle
from tests.endpoints.text import ENDPOINTS, PROMPT, ask, ids_of, said, streamed, text_of

# -- where an answer ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_stop_token_ends_the_answer_and_is_no_text_unless_wanted(
    client: LocalOpenAI, oracle: Oracle, endpoint: str
) -> None:
    tokens = oracle.greedy(ids_of(oracle, endpoint), 12)
    end = tokens[4]
    at = tokens.index(end)
    made = ask(client, endpoint, stop_token_ids=[end])
    assert text_of(made) == streamed(client, endpoint, stop_token_ids=[end]) == oracle.text(tokens[:at])
    with_end = {"stop_token_ids": [end], "include_stop_str_in_output": True}
    assert text_of(ask(client, endpoint, **with_end)) == streamed(client, endpoint, **with_end)
    assert text_of(ask(client, endpoint, **with_end)) == oracle.text(tokens[: at + 1])
    if endpoint != "responses":
        assert (made.choices[0].finish_reason, made.choices[0].stop_reason) == ("stop", end)
        assert made.usage.completion_tokens == at + 1


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_stop_string_may_stay_in_the_text(client: LocalOpenAI, endpoint: str) -> None:
    text = text_of(ask(client, endpoint))
    stop = text[4:6]
    end = text.index(stop)
    assert text_of(ask(client, endpoint, stop=[stop])) == text[:end]
    with_stop = {"stop": [stop, "never"], "include_stop_str_in_output": True}
    assert text_of(ask(client, endpoint, **with_stop)) == text[: end + 2] == streamed(client, endpoint, **with_stop)


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
def test_the_stop_reason_is_the_string_the_token_or_null(client: LocalOpenAI, oracle: Oracle, endpoint: str) -> None:
    text = text_of(ask(client, endpoint))
    [end] = oracle.tokenizer.eos_token_ids

    def reasons(**extra: Any) -> tuple[Any, Any, Any]:
        choice = ask(client, endpoint, **extra).choices[0]
        *chunks, last = [c for chunk in ask(client, endpoint, stream=True, **extra) for c in chunk.choices]
        assert all(not hasattr(c, "stop_reason") for c in chunks)
        assert (last.finish_reason, last.stop_reason) == (choice.finish_reason, choice.stop_reason)
        return choice.finish_reason, choice.stop_reason, choice.to_dict()["stop_reason"]

    assert reasons() == ("length", None, None)
    assert reasons(stop=["never", text[3:5]]) == ("stop", text[3:5], text[3:5])
    assert reasons(logit_bias={str(end): 100}) == ("stop", None, None)
    assert reasons(logit_bias={str(end): 100}, stop_token_ids=[end]) == ("stop", None, None)
    both = {"logit_bias": {str(end): 100}, "stop_token_ids": [end], "ignore_eos": True}
    assert reasons(**both) == ("stop", end, end)
    assert reasons(logit_bias={"80": 100}, stop_token_ids=[80]) == ("stop", 80, 80)


@pytest.mark.parametrize("temperature", [0, 1])
def test_no_stop_token_comes_before_min_tokens(client: LocalOpenAI, temperature: float) -> None:
    extra = {"logit_bias": {"80": 100}, "stop_token_ids": [80], "min_tokens": 5, "temperature": temperature}
    tokens = said(client, **extra)
    assert 80 not in tokens[:5] and tokens[5:] == [80]


# -- which tokens may come --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_only_allowed_tokens_come(client: LocalOpenAI, oracle: Oracle, endpoint: str, temperature: float) -> None:
    allowed = [80, 81, 90]
    made = text_of(ask(client, endpoint, allowed_token_ids=allowed, temperature=temperature, seed=3))
    assert set(made) <= set("".join(oracle.tokenizer.decode([i]) for i in allowed)) and len(made) == 12
    assert streamed(client, endpoint, allowed_token_ids=allowed, temperature=temperature, seed=3) == made
    if temperature == 0:

        def only(logits: np.ndarray, out: list[int]) -> np.ndarray:
            return np.where(np.isin(np.arange(len(logits)), allowed), logits, -np.inf)

        assert made == oracle.text(oracle.greedy(ids_of(oracle, endpoint), 12, only))


def test_an_end_comes_only_if_it_is_allowed(client: LocalOpenAI, oracle: Oracle) -> None:
    [end] = oracle.tokenizer.eos_token_ids
    bias = {str(end): 100}
    assert end not in said(client, allowed_token_ids=[80, 81], logit_bias=bias)
    assert said(client, allowed_token_ids=[80, end], logit_bias=bias) == [end]


def test_where_all_allowed_tokens_are_banned_one_of_them_comes(client: LocalOpenAI, oracle: Oracle) -> None:
    [end] = oracle.tokenizer.eos_token_ids
    for temperature in (0, 1):
        assert said(client, allowed_token_ids=[end], min_tokens=3, temperature=temperature) == [end]
        word = oracle.tokenizer.decode([80])
        again = said(client, allowed_token_ids=[80], bad_words=[word], temperature=temperature)
        assert again == [80] * 12


def test_a_grammar_goes_before_the_allowed_tokens_where_they_leave_nothing(client: LocalOpenAI, oracle: Oracle) -> None:
    made = ask(client, "chat", allowed_token_ids=[80], structured_outputs={"regex": "[0-9]{3}"})
    assert made.choices[0].message.content.isdigit()
    digits = [i for i in range(400) if oracle.tokenizer.decode([i]) in ("1", "2")]
    made = ask(client, "chat", allowed_token_ids=digits, structured_outputs={"regex": "[0-9]{8}"})
    assert set(made.choices[0].message.content) <= {"1", "2"}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_bad_word_does_not_come_at_the_beginning_nor_after_a_space(
    client: LocalOpenAI, oracle: Oracle, endpoint: str, length: int
) -> None:
    """As vLLM says: its last token is not drawn where those before it were."""
    start, tokenizer = ids_of(oracle, endpoint), oracle.tokenizer
    free = oracle.greedy(start, 12)
    at = next(i for i in range(9) if tokenizer.encode(tokenizer.decode(free[i : i + length])) == free[i : i + length])
    word = tokenizer.decode(free[at : at + length]).lstrip()
    forms = [tokenizer.encode(form, add_special_tokens=False) for form in (word, f" {word}")]

    def ban(logits: np.ndarray, out: list[int]) -> np.ndarray:
        logits = logits.copy()
        for *before, last in forms:
            if out[len(out) - len(before) :] == before:
                logits[last] = -np.inf
        return logits

    expected = oracle.greedy(start, 12, ban)
    assert expected != free
    assert text_of(ask(client, endpoint, bad_words=[word])) == oracle.text(expected)
    assert streamed(client, endpoint, bad_words=[word, "never"]) == oracle.text(expected)


def test_bad_words_concern_the_output_only(client: LocalOpenAI, oracle: Oracle) -> None:
    """The prompt's last tokens do not begin a bad word."""
    prompt = oracle.tokenizer.encode(PROMPT)
    [first] = oracle.greedy(prompt, 1)
    word = PROMPT[-2:] + oracle.tokenizer.decode([first])
    made = client.completions.create(
        model="m", prompt=PROMPT, max_tokens=1, temperature=0, extra_body={"bad_words": [word]}
    )
    assert made.choices[0].text == oracle.tokenizer.decode([first])


def test_rows_with_bans_leave_their_neighbours_alone(client: LocalOpenAI, oracle: Oracle) -> None:
    """Different bans, greedy and sampled, in one batch: each answer is what it is alone."""
    word = text_of(ask(client, "chat"))[:3].strip()
    asked: list[dict[str, Any]] = [
        {},
        {"allowed_token_ids": [80, 81, 82, 83]},
        {"bad_words": [word]},
        {"bad_words": ["the", "a", word], "temperature": 1, "seed": 4},
        {"stop_token_ids": [80], "logit_bias": {"80": 4}},
        {"temperature": 1, "seed": 5},
        {"temperature": 1, "seed": 6, "top_p": 0.9, "allowed_token_ids": list(range(3, 300))},
        {"structured_outputs": {"regex": "[a-f]{20}"}, "bad_words": ["a", "b"]},
        {"prompt_logprobs": 1},
    ]

    def run(extra: dict[str, Any]) -> tuple[str, list[int]]:
        choice = ask(client, "chat", 30, return_token_ids=True, ignore_eos=True, **extra).choices[0]
        return choice.message.content, choice.token_ids

    alone = [run(extra) for extra in asked]
    with ThreadPoolExecutor(18) as pool:
        together = list(pool.map(run, asked * 2))
    assert together == alone * 2
    assert not set("ab") & set(alone[7][0])


# -- what is text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_special_tokens_are_no_text_unless_wanted(client: LocalOpenAI, oracle: Oracle, endpoint: str) -> None:
    start = oracle.tokenizer.convert_tokens_to_ids("<|im_start|>")
    extra = {"logit_bias": {str(start): 100}, "max_tokens": 4}
    assert text_of(ask(client, endpoint, **extra)) == "" == streamed(client, endpoint, **extra)
    shown = {**extra, "skip_special_tokens": False}
    assert text_of(ask(client, endpoint, **shown)) == "<|im_start|>" * 4 == streamed(client, endpoint, **shown)
    assert text_of(ask(client, endpoint, **shown, stop=["start|><|"])) == "<|im_"


def test_ends_that_are_ignored_are_text_where_special_tokens_are(client: LocalOpenAI, oracle: Oracle) -> None:
    [end] = oracle.tokenizer.eos_token_ids
    extra = {"logit_bias": {str(end): 100}, "ignore_eos": True, "max_tokens": 3}
    assert text_of(ask(client, "chat", **extra)) == ""
    assert text_of(ask(client, "chat", **extra, skip_special_tokens=False)) == "<|im_end|>" * 3
    cut = ask(client, "chat", **extra, skip_special_tokens=False, stop=["end|><"]).choices[0]
    assert (cut.message.content, cut.finish_reason, cut.stop_reason) == ("<|im_", "stop", "end|><")
    once = {"logit_bias": {str(end): 100}, "skip_special_tokens": False}
    assert text_of(ask(client, "chat", **once)) == "", "what ended the answer is no text"
    assert text_of(ask(client, "chat", **once, include_stop_str_in_output=True)) == "<|im_end|>"
