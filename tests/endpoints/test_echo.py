"""completions with `echo` and `max_tokens=0`: the prompt repeated, its tokens' logprobs, and nothing generated.

Shapes are those of https://platform.openai.com/docs/api-reference/completions; the numbers are mlx-lm's own, of a
direct pass over the same prompt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from openai.types import Completion, CompletionChoice

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.completions.create import make_echo
from localai_shim.testing import ScriptedEngine
from localai_shim.types import Prompt
from tests.conftest import Oracle, chat_tokenizer, refused
from tests.floats import nearly, plain

TEXT = "The quick brown fox jumps over the lazy dog. 🙂"
CREATE: dict[str, Any] = {"model": "m", "prompt": TEXT, "temperature": 0, "max_tokens": 0, "echo": True}


def forward(oracle: Oracle, ids: list[int]) -> tuple[list[float], list[dict[int, float]]]:
    """For each token but the first: its logprob, and those of all tokens."""
    rows = [oracle.logprobs(ids[:i]) for i in range(1, len(ids))]
    own = [float(row[token]) for row, token in zip(rows, ids[1:], strict=True)]
    return own, [dict(enumerate(row.tolist())) for row in rows]


def logprobs_of(choice: CompletionChoice) -> Any:
    assert choice.logprobs is not None
    return choice.logprobs


def test_the_prompt_alone_comes_back_and_nothing_was_generated(client: LocalOpenAI) -> None:
    made = client.completions.create(**CREATE)
    [choice] = made.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == (TEXT, "length", None)
    assert made.usage is not None and made.usage.completion_tokens == 0
    assert made.usage.total_tokens == made.usage.prompt_tokens


def test_without_echo_no_tokens_are_no_text(client: LocalOpenAI) -> None:
    made = client.completions.create(**{**CREATE, "echo": False}, logprobs=2)
    [choice] = made.choices
    assert (choice.text, choice.finish_reason) == ("", "length")
    assert logprobs_of(choice).tokens == [] and made.usage is not None and made.usage.completion_tokens == 0


def test_a_prompt_that_fills_the_context_may_be_looked_at(client: LocalOpenAI) -> None:
    made = client.completions.create(**{**CREATE, "prompt": [5] * 1024}, logprobs=0)
    assert len(logprobs_of(made.choices[0]).tokens) == 1024
    with refused("prompt", "context_length_exceeded", "1025 tokens"):
        client.completions.create(**{**CREATE, "prompt": [5] * 1025})


def test_the_prompt_s_logprobs_are_those_of_a_direct_pass(client: LocalOpenAI, oracle: Oracle) -> None:
    ids = oracle.tokenizer.encode(TEXT)
    own, all_of_them = forward(oracle, ids)
    found = logprobs_of(client.completions.create(**CREATE, logprobs=3).choices[0])
    assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
    assert found.token_logprobs[1:] == pytest.approx(own, abs=1e-4)
    names = [found.tokens[i] for i in range(len(ids))]
    for name, logprob, top, expected in zip(names[1:], own, found.top_logprobs[1:], all_of_them, strict=True):
        assert top[name] == pytest.approx(logprob, abs=1e-4)
        likeliest = sorted(expected.values(), reverse=True)[:3]
        assert sorted(top.values(), reverse=True)[:3] == pytest.approx(likeliest, abs=1e-4)
        assert len(top) in (3, 4)


def test_offsets_say_where_in_the_text_each_token_begins(client: LocalOpenAI, oracle: Oracle) -> None:
    choice = client.completions.create(**{**CREATE, "max_tokens": 5}, logprobs=0).choices[0]
    found = logprobs_of(choice)
    assert len(found.tokens) == len(found.text_offset) == len(found.token_logprobs) == len(found.top_logprobs)
    assert found.text_offset == sorted(found.text_offset)
    for token, start in zip(found.tokens, found.text_offset, strict=True):
        if not token.startswith("bytes:"):
            assert choice.text[start:].startswith(token)


@pytest.mark.parametrize("max_tokens", [1, 6])
def test_what_is_generated_follows_the_prompt(client: LocalOpenAI, oracle: Oracle, max_tokens: int) -> None:
    ids = oracle.tokenizer.encode(TEXT)
    plain = client.completions.create(**{**CREATE, "max_tokens": max_tokens, "echo": False}, logprobs=2)
    both = client.completions.create(**{**CREATE, "max_tokens": max_tokens}, logprobs=2)
    assert both.choices[0].text == TEXT + plain.choices[0].text and both.usage is not None and plain.usage is not None
    assert both.usage.completion_tokens == plain.usage.completion_tokens == max_tokens
    found, alone = logprobs_of(both.choices[0]), logprobs_of(plain.choices[0])
    assert len(found.tokens) == len(ids) + max_tokens
    assert found.tokens[len(ids) :] == alone.tokens and found.text_offset[len(ids) :] == alone.text_offset
    assert found.token_logprobs[len(ids) :] == pytest.approx(alone.token_logprobs, abs=1e-4)


def test_echo_without_logprobs_uses_what_the_prefix_cache_has_and_scores_do_not(client: LocalOpenAI) -> None:
    create = {**CREATE, "prompt": "one two three four five six seven eight nine ten " * 3, "max_tokens": 1}
    client.completions.create(**create)

    def cached(**more: Any) -> int | None:
        usage = client.completions.create(**create, **more).usage
        assert usage is not None and usage.prompt_tokens_details is not None
        return usage.prompt_tokens_details.cached_tokens

    assert cached()
    first = client.completions.create(**create, logprobs=1).choices
    assert cached(logprobs=1) == 0
    assert plain(client.completions.create(**create, logprobs=1).choices) == nearly(first)
    assert cached()


def test_prompts_in_lists_as_text_and_as_tokens_give_the_same(client: LocalOpenAI, oracle: Oracle) -> None:
    texts = [TEXT, "What is", "one two three four five six"]
    ids = [oracle.tokenizer.encode(text) for text in texts]
    made = client.completions.create(**{**CREATE, "prompt": texts}, logprobs=1, n=2)
    assert [choice.text for choice in made.choices] == [text for text in texts for _ in range(2)]
    again = client.completions.create(**{**CREATE, "prompt": ids}, logprobs=1, n=2)
    for one, other, tokens in zip(made.choices, again.choices, [i for i in ids for _ in range(2)], strict=True):
        assert one.text == other.text and logprobs_of(one).tokens == logprobs_of(other).tokens
        own, _ = forward(oracle, tokens)
        assert logprobs_of(one).token_logprobs[1:] == pytest.approx(own, abs=1e-4)
        assert logprobs_of(other).token_logprobs[1:] == pytest.approx(own, abs=1e-4)


def test_best_of_chooses_by_what_was_generated_and_repeats_the_prompt(client: LocalOpenAI) -> None:
    create = {**CREATE, "temperature": 1, "max_tokens": 4, "seed": 5, "n": 2, "best_of": 5}
    plain = client.completions.create(**{**create, "echo": False})
    both = client.completions.create(**create, logprobs=1)
    assert [choice.text for choice in both.choices] == [TEXT + choice.text for choice in plain.choices]


@pytest.mark.parametrize("max_tokens", [0, 1, 6])
@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_stream_says_what_the_whole_answer_says(client: LocalOpenAI, max_tokens: int, logprobs: int | None) -> None:
    create = {**CREATE, "prompt": [TEXT, "What is"], "n": 2, "logprobs": logprobs, "max_tokens": max_tokens}
    whole = client.completions.create(**create)
    options: Any = {"include_usage": True}
    *chunks, last = client.completions.create(**create, stream=True, stream_options=options)
    assert last.usage == whole.usage or logprobs is None  # what was cached may have changed
    for choice in whole.choices:
        mine = [c for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(c.text for c in mine) == choice.text
        assert mine[0].text.startswith((TEXT, "What is")), "the prompt is in the first chunk"
        assert [c.finish_reason for c in mine] == [None] * (len(mine) - 1) + ["length"]
        if logprobs is not None:
            for name in ("tokens", "text_offset", "token_logprobs", "top_logprobs"):
                streamed = [x for c in mine for x in getattr(c.logprobs, name)]
                for sent, at_once in zip(streamed, getattr(choice.logprobs, name), strict=True):
                    # Which prompts share a pass may differ, and with it the last digits.
                    exact = isinstance(at_once, str | None)
                    assert sent == (at_once if exact else pytest.approx(at_once, abs=1e-4))


@pytest.mark.anyio
async def test_the_async_client_answers_alike(async_client: AsyncLocalOpenAI, client: LocalOpenAI) -> None:
    whole = await async_client.completions.create(**CREATE, logprobs=1)
    assert plain(whole.choices) == nearly(client.completions.create(**CREATE, logprobs=1).choices)
    chunks = [chunk async for chunk in await async_client.completions.create(**CREATE, logprobs=1, stream=True)]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == TEXT


def test_the_raw_answer_has_null_for_the_first_token(client: LocalOpenAI) -> None:
    raw = client.completions.with_raw_response.create(**CREATE, logprobs=1)
    body = raw.http_response.json()["choices"][0]["logprobs"]
    assert body["token_logprobs"][0] is None and body["top_logprobs"][0] is None
    parsed: Completion = raw.parse()
    assert logprobs_of(parsed.choices[0]).token_logprobs == body["token_logprobs"]


def test_a_token_that_begins_sequences_is_no_part_of_the_text(sentencepiece: Any) -> None:
    """Llama's tokenizer puts `<s>` before a text: it is scored, and its own text is empty."""
    tokenizer, text = chat_tokenizer(sentencepiece), "The quick fox"
    ids = [sentencepiece.convert_tokens_to_ids("<s>"), *tokenizer.encode_marker(text)]
    echo = make_echo(Prompt(ids), text, tokenizer)
    assert echo.text == text and echo.offsets[:2] == [0, 0] and len(echo.offsets) == len(ids)
    for token, start in zip(ids[2:], echo.offsets[2:], strict=True):
        assert text[start:].startswith(tokenizer.token_bytes.text(token))
    assert make_echo(Prompt(ids), None, tokenizer).text.startswith("<s>"), "as token ids it was there"


# -- what lm-evaluation-harness's `local-completions` sends, and what it makes of the answer ---------------------------


def loglikelihoods(made: Completion, context_lengths: list[int]) -> list[tuple[float, bool]]:
    """(loglikelihood of the continuation, whether it is greedy), as the harness reads an answer to `max_tokens=1`: the
    last token is the generated one.
    """
    found = []
    for choice, start in zip(sorted(made.choices, key=lambda choice: choice.index), context_lengths, strict=True):
        own = logprobs_of(choice).token_logprobs[start:-1]
        tops = logprobs_of(choice).top_logprobs[start:-1]
        found.append((sum(own), all(one == max(top.values()) for one, top in zip(own, tops, strict=True))))
    return found


@pytest.mark.parametrize("as_text", [False, True], ids=["tokens", "text"])
def test_loglikelihoods_of_continuations_are_those_of_a_direct_pass(
    client: LocalOpenAI, oracle: Oracle, as_text: bool
) -> None:
    contexts = [oracle.tokenizer.encode(text) for text in ("The quick brown", "What is the capital of France?", "one")]
    greedy = [[i for i in oracle.greedy(ids, 3) if i not in oracle.tokenizer.eos_token_ids] for ids in contexts]
    other = [oracle.tokenizer.encode(text) for text in (" fox jumps", " Paris is", " two three")]
    pairs = [(c, t) for c, tails in zip(contexts, zip(greedy, other, strict=True), strict=True) for t in tails if t]
    if as_text:  # only what the tokenizer splits so itself
        pairs = [(c, t) for c, t in pairs if oracle.tokenizer.encode(oracle.tokenizer.decode([*c, *t])) == [*c, *t]]
    prompts: Any = [[*context, *tail] for context, tail in pairs]
    expected = []
    for context, tail in pairs:
        own, everything = forward(oracle, [*context, *tail])
        own, everything = own[len(context) - 1 :], everything[len(context) - 1 :]
        expected.append((sum(own), all(one == max(of.values()) for one, of in zip(own, everything, strict=True))))
    if as_text:
        prompts = [oracle.tokenizer.decode(ids) for ids in prompts]
    made = client.completions.create(
        model="m", prompt=prompts, temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True
    )
    found = loglikelihoods(made, [len(context) for context, _ in pairs])
    assert [is_greedy for _, is_greedy in found] == [is_greedy for _, is_greedy in expected]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in expected], abs=1e-3)
    assert {True, False} <= {is_greedy for _, is_greedy in found} or as_text


def test_an_end_of_sequence_is_among_the_logprobs_for_the_harness_to_drop(client: LocalOpenAI, oracle: Oracle) -> None:
    """It drops the last token, whatever that is: if an end did not count, it would drop one of the continuation."""
    [end] = oracle.tokenizer.eos_token_ids
    made = client.completions.create(**{**CREATE, "max_tokens": 1}, logprobs=1, logit_bias={str(end): 100})
    choice, ids = made.choices[0], oracle.tokenizer.encode(TEXT)
    assert (choice.text, choice.finish_reason) == (TEXT, "stop")
    assert len(logprobs_of(choice).tokens) == len(ids) + 1 and logprobs_of(choice).tokens[-1] == "<|im_end|>"
    own, _ = forward(oracle, ids)
    [(value, _)] = loglikelihoods(made, [4])
    assert value == pytest.approx(sum(own[3:]), abs=1e-3)


def test_a_scripted_model_scores_prompts_too() -> None:
    with ScriptedEngine(["never said"]) as engine, LocalOpenAI(engine=engine) as client:
        found = logprobs_of(client.completions.create(**{**CREATE, "prompt": "abc"}, logprobs=1).choices[0])
    assert found.tokens == ["a", "b", "c"] and found.token_logprobs == [None, *[pytest.approx(np.log(0.9))] * 2]


def test_echo_of_another_type_is_refused(client: LocalOpenAI) -> None:
    with refused("echo", "invalid_type", "expected a boolean"):
        client.completions.create(**{**CREATE, "echo": "yes"})
    with refused("max_tokens", "integer_below_min_value", ">= 0"):
        client.completions.create(**{**CREATE, "max_tokens": -1})
