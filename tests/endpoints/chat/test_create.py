"""chat.completions.create, end to end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest
from openai.types.chat import ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import MESSAGES, Oracle, refused, revalidate
from tests.floats import nearly, plain
from tests.tiny import VOCABULARY

CREATE: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "temperature": 0, "max_tokens": 20}
QUESTION: dict[str, Any] = {**CREATE, "messages": [{"role": "user", "content": "What is the capital of France?"}]}

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]

# kwargs of create() -> param, code and a piece of the message of the error
REFUSED: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"messages": []}, "messages", "empty_array", "minimum length 1"),
    ({"messages": "Hello"}, "messages", "invalid_type", "expected an array of objects, but got a string"),
    ({"messages": None}, "messages", "missing_required_parameter", "'messages'"),
    ({"messages": ["Hello"]}, "messages[0]", "invalid_type", "expected an object, but got a string"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "invalid_value", "'wizard'"),
    ({"messages": [*MESSAGES, {"content": "x"}]}, "messages[1].role", "missing_required_parameter", "role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter", "content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type", "an integer"),
    (
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages[0].content[0].type",
        "unsupported_value",
        "reads text only",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, AUDIO]}]},
        "messages[0].content[1].type",
        "unsupported_value",
        "reads text only",
    ),
    ({"messages": [{"role": "user", "content": "a" * 9000}]}, "messages", "context_length_exceeded", "1024 tokens"),
    ({"logprobs": 1}, "logprobs", "invalid_type", "expected a boolean, but got an integer"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value", "<= 20"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "integer_below_min_value", ">= 0"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value", "'logprobs' must be true"),
    ({"max_completion_tokens": 5}, "max_tokens", None, "'max_tokens' and 'max_completion_tokens'"),
    ({"max_tokens": None, "max_completion_tokens": 0}, "max_completion_tokens", "integer_below_min_value", ">= 1"),
    ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value", "'huge'. Supported values are: 'none'"),
    ({"verbosity": "shouting"}, "verbosity", "invalid_value", "'low', 'medium', and 'high'"),
    ({"service_tier": "gold"}, "service_tier", "invalid_value", "'gold'. Supported values are: 'auto'"),
    ({"prompt_cache_retention": "forever"}, "prompt_cache_retention", "invalid_value", "'forever'"),
    ({"store": "no"}, "store", "invalid_type", "expected a boolean"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", "object_above_max_properties", "at most 16"),
    ({"metadata": {"k" * 65: "x"}}, "metadata", "string_above_max_length", "maximum length 64"),
    ({"metadata": {"k": "x" * 513}}, "metadata", "string_above_max_length", "maximum length 512"),
    ({"metadata": {"k": 1}}, "metadata.k", "invalid_type", "expected a string, but got an integer"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter", "in text only"),
    ({"modalities": 5}, "modalities", "invalid_type", "expected an array"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio", "unsupported_parameter", "in text only"),
    ({"response_format": {}}, "response_format.type", "missing_required_parameter", "'response_format.type'"),
    ({"web_search_options": {}}, "web_search_options", "unsupported_value", "not available locally"),
    (
        {"extra_body": {"chat_template_kwargs": {"mood": "gay"}}},
        "chat_template_kwargs.mood",
        "unknown_parameter",
        "does not know 'mood'",
    ),
    ({"extra_body": {"chat_template_kwargs": []}}, "chat_template_kwargs", "invalid_type", "expected an object"),
    ({"extra_body": {"best_of": 2}}, "best_of", "unknown_parameter", "Unknown parameter: 'best_of'"),
]


def _label(row: object) -> str | None:
    return str(row)[:40] if isinstance(row, dict) else None


def text_of(chunks: Iterable[ChatCompletionChunk], index: int = 0) -> str:
    """What the deltas of one choice say together."""
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index)


@pytest.mark.parametrize(("kwargs", "param", "code", "fragment"), REFUSED, ids=_label)
def test_a_wrong_field_is_refused(
    client: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        client.chat.completions.create(**{**CREATE, **kwargs})


def test_a_whole_completion_has_openais_shape(client: LocalOpenAI, oracle: Oracle) -> None:
    made = client.chat.completions.create(**CREATE)
    revalidate(made)
    ids = oracle.greedy(oracle.prompt(), 20)
    assert made.object == "chat.completion" and made.id.startswith("chatcmpl-") and made.model == "tiny-qwen3"
    assert made.system_fingerprint is not None and made.system_fingerprint.startswith("fp_")
    [choice] = made.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    message = choice.message
    assert (message.role, message.content) == ("assistant", oracle.text(ids))
    assert (message.refusal, message.tool_calls, message.function_call, message.audio) == (None, None, None, None)
    usage = made.usage
    assert usage is not None and usage.completion_tokens_details is not None and usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(oracle.prompt()), 20)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 0
    assert usage.prompt_tokens_details.cached_tokens is not None


def test_each_completion_has_an_id_of_its_own(client: LocalOpenAI) -> None:
    made = [client.chat.completions.create(**{**CREATE, "max_tokens": 1}) for _ in range(3)]
    assert len({completion.id for completion in made}) == 3


def test_a_turn_that_ends_by_itself_ends_with_stop(builtin: LocalOpenAI) -> None:
    made = builtin.chat.completions.create(**{**QUESTION, "max_tokens": 200})
    choice = made.choices[0]
    assert choice.finish_reason == "stop" and made.usage is not None and made.usage.completion_tokens < 200
    assert choice.message.content is not None and "<|im_end|>" not in choice.message.content


def test_the_first_delta_of_each_choice_has_its_role(client: LocalOpenAI) -> None:
    chunks = list(client.chat.completions.create(**CREATE, n=2, stream=True))
    for chunk in chunks:
        revalidate(chunk)
    for index in (0, 1):
        first, *others = [c.delta for chunk in chunks for c in chunk.choices if c.index == index]
        assert (first.role, first.content) == ("assistant", "")
        assert all(delta.role is None for delta in others)


def test_the_sdks_stream_helper_accepts_the_stream(builtin: LocalOpenAI) -> None:
    question = {**QUESTION, "max_tokens": 200}
    whole = builtin.chat.completions.create(**question)
    with builtin.chat.completions.stream(**question) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == whole.choices[0].message.content


def test_an_answer_can_be_handed_back_as_a_message(client: LocalOpenAI, oracle: Oracle) -> None:
    first = client.chat.completions.create(**CREATE)
    history = [*MESSAGES, first.choices[0].message, {"role": "user", "content": "And now?"}]
    second = client.chat.completions.create(**{**CREATE, "messages": history})
    as_dicts = [*MESSAGES, {"role": "assistant", "content": first.choices[0].message.content}, history[-1]]
    assert second.choices[0].message.content == oracle.text(oracle.greedy(oracle.prompt(as_dicts), 20))


@pytest.mark.anyio
async def test_a_stream_never_shows_a_piece_of_a_stop_string(builtin: LocalOpenAI) -> None:
    text = str(builtin.chat.completions.create(**QUESTION).choices[0].message.content)
    said: dict[str, tuple[str, str | None]] = {}

    async def ask(client: AsyncLocalOpenAI, stop: str) -> None:
        chunks = [chunk async for chunk in await client.chat.completions.create(**QUESTION, stop=stop, stream=True)]
        said[stop] = text_of(chunks), chunks[-1].choices[0].finish_reason

    stops = {text[i : i + 1 + i % 6] for i in range(0, len(text), 2)}
    async with AsyncLocalOpenAI() as client, anyio.create_task_group() as group:
        for stop in stops:
            group.start_soon(partial(ask, client, stop))
    assert said == {stop: (text[: text.find(stop)], "stop") for stop in stops}


def test_logprobs_are_those_of_the_model(client: LocalOpenAI, oracle: Oracle) -> None:
    made = client.chat.completions.create(**CREATE, logprobs=True, top_logprobs=5, presence_penalty=1)
    revalidate(made)
    logprobs = made.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and logprobs.refusal is None
    ids = oracle.greedy(oracle.prompt(), 20, lambda x, out: x - np.isin(np.arange(VOCABULARY), out))
    assert len(logprobs.content) == len(ids) == 20
    for i, entry in enumerate(logprobs.content):
        expected = oracle.logprobs([*oracle.prompt(), *ids[:i]])
        assert math.isclose(entry.logprob, expected[ids[i]], abs_tol=1e-3)
        best = np.argsort(-expected)[:5]
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(expected[best].tolist(), abs=1e-3)
        for one in (entry, *entry.top_logprobs):
            assert one.bytes is not None and one.token == written(bytes(one.bytes))


def written(token: bytes) -> str:
    """A token as OpenAI writes it: part of a character as its bytes, escaped."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)


def test_the_bytes_of_the_logprobs_are_the_content(client: LocalOpenAI) -> None:
    made = client.chat.completions.create(
        **{**CREATE, "temperature": 1, "n": 8}, seed=7, logprobs=True, extra_body={"ignore_eos": True}
    )
    for choice in made.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        joined = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
        assert joined.decode("utf-8", "replace") == choice.message.content


def test_a_stream_carries_the_same_logprobs(client: LocalOpenAI) -> None:
    create = {**CREATE, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**create).choices[0].logprobs
    chunks = list(client.chat.completions.create(**create, stream=True))
    streamed = [c.logprobs.content or [] for chunk in chunks for c in chunk.choices if c.logprobs is not None]
    assert whole is not None and plain(list(itertools.chain.from_iterable(streamed))) == nearly(whole.content)


def test_logprobs_end_where_a_stop_string_cuts_the_text(client: LocalOpenAI) -> None:
    whole = client.chat.completions.create(**CREATE, logprobs=True).choices[0]
    text = str(whole.message.content)
    cut = client.chat.completions.create(**CREATE, logprobs=True, stop=text[8:11]).choices[0]
    assert whole.logprobs is not None and cut.logprobs is not None
    kept = cut.logprobs.content or []
    assert plain(kept) == nearly((whole.logprobs.content or [])[: len(kept)])
    said = b"".join(bytes(entry.bytes or []) for entry in kept).decode("utf-8", "replace")
    assert said.startswith(str(cut.message.content)) and len(kept) < 20


@pytest.mark.parametrize(
    "kwargs",
    [{"metadata": {"a": "b"}}, {"service_tier": "flex"}, {"user": "me"}, {"store": False}, {"modalities": ["text"]}],
    ids=_label,
)
def test_what_only_matters_remotely_changes_nothing(client: LocalOpenAI, kwargs: dict[str, Any]) -> None:
    made = client.chat.completions.create(**CREATE, **kwargs)
    assert made.choices == client.chat.completions.create(**CREATE).choices
    assert made.service_tier == "default"
    assert getattr(made, "metadata", None) == kwargs.get("metadata")


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "function"])
def test_every_role_reaches_the_template(client: LocalOpenAI, oracle: Oracle, role: str) -> None:
    needed = {"function": {"name": "f"}}.get(role, {})
    messages: Any = [{"role": role, "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]}]
    made = client.chat.completions.create(**{**CREATE, "messages": [messages[0] | needed]})
    seen = {"developer": "system", "function": "tool"}.get(role, role)
    prompt = oracle.prompt([{"role": seen, "content": "Hello you"}])
    assert made.choices[0].message.content == oracle.text(oracle.greedy(prompt, 20))


def test_thinking_can_be_turned_off_by_effort_or_by_template_argument(builtin: LocalOpenAI) -> None:
    plain = builtin.chat.completions.create(**QUESTION, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    off = builtin.chat.completions.create(**QUESTION, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    none = builtin.chat.completions.create(**QUESTION, reasoning_effort="none")
    assert none.choices == off.choices and plain.usage is not None and none.usage is not None
    assert none.usage.prompt_tokens > plain.usage.prompt_tokens  # the template closes an empty thought itself
