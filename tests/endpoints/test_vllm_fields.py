"""vLLM's present names in extra_body: what each does, alone and beside others, in a stream and not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine, ScriptedTokenizer
from tests.conftest import MESSAGES, Oracle, refused, revalidate
from tests.endpoints.text import ENDPOINTS, ask, ids_of, streamed, text_of
from tests.floats import nearly, plain
from tests.samples import only
from tests.tiny import make_model, tiny

# -- wrong types and values -------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"return_token_ids": 1}, "return_token_ids", "invalid_type", "a boolean"),
    ({"stop_token_ids": 5}, "stop_token_ids", "invalid_type", "an array of integers"),
    ({"stop_token_ids": [5, "a"]}, "stop_token_ids[1]", "invalid_type", "an integer"),
    ({"stop_token_ids": [400]}, "stop_token_ids[0]", "invalid_value", "ids go from 0 to 399"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "empty_array", "minimum length 1"),
    ({"allowed_token_ids": [True]}, "allowed_token_ids[0]", "invalid_type", "an integer"),
    ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]", "invalid_value", "-1 is not a token"),
    ({"bad_words": "no"}, "bad_words", "invalid_type", "an array of strings"),
    ({"bad_words": ["a", 5]}, "bad_words[1]", "invalid_type", "a string"),
    ({"bad_words": [" "]}, "bad_words[0]", "invalid_value", "more than white space"),
    ({"bad_words": ["\ud800"]}, "bad_words[0]", "invalid_value", ""),
    ({"bad_words": [f"w{i}" for i in range(5000)]}, "bad_words", "array_above_max_length", "at most 4096"),
    ({"include_stop_str_in_output": 1}, "include_stop_str_in_output", "invalid_type", "a boolean"),
    ({"skip_special_tokens": "no"}, "skip_special_tokens", "invalid_type", "a boolean"),
    ({"thinking_token_budget": -2}, "thinking_token_budget", "integer_below_min_value", ">= -1"),
    ({"thinking_token_budget": 5, "thinking_budget": 5}, "thinking_token_budget", None, "not both"),
    ({"structured_outputs": "x"}, "structured_outputs", "invalid_type", "an object"),
    ({"structured_outputs": {}}, "structured_outputs", "invalid_value", "'json', 'regex'"),
    ({"structured_outputs": {"xml": 1}}, "structured_outputs.xml", "unknown_parameter", "xml"),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", "invalid_type", "a string"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "invalid_value", "not JSON"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "empty_array", "empty array"),
    ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object", "invalid_type", "a boolean"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "invalid_value", "regex"),
    (
        {"structured_outputs": {"structural_tag": "{}"}},
        "structured_outputs.structural_tag",
        "unsupported_parameter",
        "strict tools",
    ),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", None, "cannot be combined"),
    ({"structured_outputs": {"regex": "a"}, "guided_regex": "a"}, "structured_outputs.regex", None, "cannot be"),
]
NOT_IN_RESPONSES: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value", "nothing to continue"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "integer_below_min_value", ">= -1"),
    ({"truncation_side": "top"}, "truncation_side", "invalid_value", "'left' and 'right'"),
    ({"prompt_logprobs": -1}, "prompt_logprobs", "integer_below_min_value", ">= 0"),
    ({"prompt_logprobs": 21}, "prompt_logprobs", "integer_above_max_value", "<= 20"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "invalid_value", "stream"),
    (
        {"stream": True, "stream_options": {"continuous_usage_stats": 1}},
        "stream_options.continuous_usage_stats",
        "invalid_type",
        "a boolean",
    ),
]
CHAT_ONLY: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"include_reasoning": "no"}, "include_reasoning", "invalid_type", "a boolean"),
    ({"add_generation_prompt": 1}, "add_generation_prompt", "invalid_type", "a boolean"),
    (
        {"add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
        "invalid_value",
        "cannot both be true",
    ),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs.regex",
        None,
        "cannot be combined",
    ),
]


@pytest.mark.parametrize(
    ("endpoint", "extra", "param", "code", "fragment"),
    [
        (endpoint, *case)
        for cases, endpoints in ((WRONG, ENDPOINTS), (NOT_IN_RESPONSES, ENDPOINTS[:2]), (CHAT_ONLY, ENDPOINTS[:1]))
        for endpoint in endpoints
        for case in cases
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_wrong_value_is_refused_with_the_field(
    client: LocalOpenAI, endpoint: str, extra: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        ask(client, endpoint, **extra)


# -- what comes with the answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
def test_token_ids_come_with_the_answer(client: LocalOpenAI, oracle: Oracle, endpoint: str) -> None:
    prompt = ids_of(oracle, endpoint)
    expected = oracle.greedy(prompt, 12)
    made = ask(client, endpoint, return_token_ids=True, n=2)
    assert [choice.token_ids for choice in made.choices] == [expected] * 2
    where = made if endpoint == "chat" else made.choices[0]
    assert where.prompt_token_ids == prompt
    chunks = list(ask(client, endpoint, stream=True, return_token_ids=True, n=2))
    for index in (0, 1):
        mine = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert [i for c in mine for i in c.token_ids or []] == expected
    places: list[Any] = chunks if endpoint == "chat" else [c for chunk in chunks for c in chunk.choices if c.index == 1]
    assert [place.prompt_token_ids for place in places] == [prompt] + [None] * (len(places) - 1)


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
def test_what_is_not_asked_for_is_null(client: LocalOpenAI, endpoint: str) -> None:
    whole = ask(client, endpoint, n=2)
    chunks = list(ask(client, endpoint, stream=True, n=2, stream_options={"include_usage": True}))
    for made in (whole, *chunks):
        if made is whole or endpoint == "chat":  # the SDK's type of a completion has no null as `finish_reason`
            revalidate(made)
        for choice in made.choices:
            about = made if endpoint == "chat" else choice
            assert choice.token_ids is about.prompt_token_ids is about.prompt_logprobs is None
            assert choice.to_dict()["token_ids"] is about.to_dict()["prompt_token_ids"] is None
    asked = ask(client, endpoint, return_token_ids=True)
    about = asked if endpoint == "chat" else asked.choices[0]
    assert asked.choices[0].token_ids and about.prompt_token_ids and about.prompt_logprobs is None


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
@pytest.mark.parametrize("top", [0, 2])
def test_prompt_logprobs_are_those_of_a_direct_pass(
    client: LocalOpenAI, oracle: Oracle, endpoint: str, top: int
) -> None:
    prompt = ids_of(oracle, endpoint)
    made = ask(client, endpoint, prompt_logprobs=top, n=2)
    first, *found = (made if endpoint == "chat" else made.choices[1]).prompt_logprobs
    assert first is None and len(found) == len(prompt) - 1
    for i, entries in enumerate(found, 1):
        expected = oracle.logprobs(prompt[:i])
        assert {prompt[i], *np.argsort(-expected)[:top].tolist()} == {int(key) for key in entries}
        for key, entry in entries.items():
            token = int(key)
            assert entry["logprob"] == pytest.approx(expected[token], abs=1e-4)
            assert entry["rank"] == 1 + (expected > expected[token]).sum()
            assert entry["decoded_token"] == oracle.tokenizer.decode([token]) or "\ufffd" in oracle.tokenizer.decode(
                [token]
            )


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
def test_each_chunk_may_have_the_usage_of_its_choice_so_far(client: LocalOpenAI, endpoint: str) -> None:
    options = {"continuous_usage_stats": True, "include_usage": True}
    chunks = list(ask(client, endpoint, stream=True, stream_options=options, return_token_ids=True, n=2))
    assert chunks[-1].choices == []
    told = [0, 0]
    for chunk in chunks[:-1]:
        [choice] = chunk.choices
        told[choice.index] += len(choice.token_ids or [])
        assert chunk.usage.completion_tokens >= told[choice.index]
        assert chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens
        if choice.finish_reason is not None:
            assert chunk.usage.completion_tokens == told[choice.index] == 12
    assert chunks[-1].usage.completion_tokens == 24


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
@pytest.mark.parametrize("options", [{}, {"include_usage": False}])
def test_the_usage_so_far_needs_that_of_the_end(client: LocalOpenAI, endpoint: str, options: dict[str, bool]) -> None:
    given = {"continuous_usage_stats": True, **options}
    chunks = list(ask(client, endpoint, stream=True, stream_options=given))
    assert chunks[-1].choices != [] and [chunk.usage for chunk in chunks] == [None] * len(chunks)


def test_the_chunk_with_the_role_counts_no_token_yet(client: LocalOpenAI) -> None:
    options = {"continuous_usage_stats": True, "include_usage": True}
    chunks = list(ask(client, "chat", stream=True, stream_options=options, n=2))
    begins = [chunk.usage for chunk in chunks if chunk.choices and chunk.choices[0].delta.role is not None]
    assert [usage.completion_tokens for usage in begins] == [0, 0]
    assert all(usage.total_tokens == usage.prompt_tokens > 0 for usage in begins)
    others = [chunk.usage for chunk in chunks if chunk.choices and chunk.choices[0].delta.role is None]
    assert all(usage.completion_tokens > 0 for usage in others)


# -- the prompt -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS[:2])
def test_a_prompt_can_be_cut_at_either_end(client: LocalOpenAI, oracle: Oracle, endpoint: str) -> None:
    prompt = ids_of(oracle, endpoint)

    def used(**extra: Any) -> list[int]:
        made = ask(client, endpoint, return_token_ids=True, **extra)
        ids = (made if endpoint == "chat" else made.choices[0]).prompt_token_ids
        assert made.usage.prompt_tokens == len(ids)
        assert list(made.choices[0].token_ids) == oracle.greedy(ids, 12)
        return list(ids)

    assert used(truncate_prompt_tokens=3) == prompt[-3:]
    assert used(truncate_prompt_tokens=3, truncation_side="right") == prompt[:3]
    assert used(truncate_prompt_tokens=1000) == used(truncate_prompt_tokens=-1) == prompt


def test_minus_one_cuts_a_prompt_to_what_the_context_has_room_for(client: LocalOpenAI) -> None:
    long = [5 + i % 300 for i in range(2000)]
    extra = {"truncate_prompt_tokens": -1, "return_token_ids": True}
    made: Any = client.completions.create(model="m", prompt=long, max_tokens=24, temperature=0, extra_body=extra)
    assert made.choices[0].prompt_token_ids == long[-1000:] and made.usage.prompt_tokens == 1000
    messages: Any = [{"role": "user", "content": "one two three " * 900}]
    chat: Any = client.chat.completions.create(model="m", messages=messages, max_tokens=24, extra_body=extra)
    assert chat.usage.prompt_tokens == 1000


def test_an_echo_is_of_what_was_left_of_the_prompt(client: LocalOpenAI) -> None:
    text, extra = "one two three four", {"truncate_prompt_tokens": 2}
    made = client.completions.create(model="m", prompt=text, max_tokens=0, echo=True, logprobs=0, extra_body=extra)
    choice = made.choices[0]
    assert choice.logprobs is not None and choice.logprobs.tokens is not None
    assert choice.text == "".join(choice.logprobs.tokens) and text.endswith(choice.text)


def test_a_chat_may_end_without_what_opens_a_turn(client: LocalOpenAI, oracle: Oracle) -> None:
    made = ask(client, "chat", add_generation_prompt=False, return_token_ids=True)
    bare = oracle.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=False)
    assert made.prompt_token_ids == list(bare)


@pytest.mark.parametrize("text", ["Once upon", "Once upon "])
def test_the_last_message_can_be_continued(client: LocalOpenAI, oracle: Oracle, text: str) -> None:
    messages: Any = [*MESSAGES, {"role": "assistant", "content": text}]
    expected = [*oracle.tokenizer.encode(oracle.tokenizer.decode(oracle.prompt()) + text, add_special_tokens=False)]
    extra = {"continue_final_message": True, "return_token_ids": True}
    made: Any = client.chat.completions.create(
        model="m", messages=messages, max_tokens=8, temperature=0, extra_body=extra
    )
    stripped = oracle.tokenizer.encode(
        oracle.tokenizer.decode(oracle.prompt()) + text.rstrip(), add_special_tokens=False
    )
    assert made.prompt_token_ids in (expected, stripped), "transformers may strip it, as the template would"
    assert made.choices[0].message.content == oracle.text(oracle.greedy(made.prompt_token_ids, 8))


def test_a_template_that_is_a_program_cannot_leave_a_message_open(tmp_path: Path) -> None:
    """mlx-lm's own, of DeepSeek's models, which `chat_template_type` names."""
    folder = make_model(tmp_path / "program", "llama")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template_type": "deepseek_v32"}))
    messages: Any = [*MESSAGES, {"role": "assistant", "content": "Once"}]
    with LocalOpenAI(folder) as client, refused("continue_final_message", "unsupported_parameter", "leave a message"):
        client.chat.completions.create(model="m", messages=messages, extra_body={"continue_final_message": True})


# -- grammars and reasoning -------------------------------------------------------------------------------------------

SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"json": {"type": "integer"}}, {"guided_json": {"type": "integer"}}),
    ({"json": '{"enum": [1, 2]}'}, {"guided_json": '{"enum": [1, 2]}'}),
    ({"regex": "[0-9]{3}"}, {"guided_regex": "[0-9]{3}"}),
    ({"choice": ["yes", "no"]}, {"guided_choice": ["yes", "no"]}),
    ({"grammar": 'start: "a" "b"+'}, {"guided_grammar": 'start: "a" "b"+'}),
    ({"json_object": True}, {"response_format": {"type": "json_object"}}),
]


EACH = [(endpoint, *shape) for endpoint in ENDPOINTS for shape in SHAPES]
EACH_ONCE = [(ENDPOINTS[i % len(ENDPOINTS)], *shape) for i, shape in enumerate(SHAPES)]


@pytest.mark.parametrize(("endpoint", "new", "old"), only(EACH_ONCE, EACH))
def test_structured_outputs_do_what_the_older_names_do(
    client: LocalOpenAI, endpoint: str, new: dict[str, Any], old: dict[str, Any]
) -> None:
    if endpoint == "responses" and "response_format" in old:
        old = {"text": {"format": {"type": "json_object"}}}
    flags = {"disable_any_whitespace": True, "disable_additional_properties": False}
    made = text_of(ask(client, endpoint, structured_outputs={**new, **flags}))
    assert made == text_of(ask(client, endpoint, **old)) == streamed(client, endpoint, structured_outputs=new)
    assert made != text_of(ask(client, endpoint)) and made[:1] in "0123456789yna{-"


def test_a_forced_call_is_valid_beside_bans_and_ends_at_a_stop_token(builtin: LocalOpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}
    create: dict[str, Any] = {"model": "m", "messages": MESSAGES, "tools": [tool], "tool_choice": "required"}

    def call(**extra: Any) -> Any:
        made: Any = builtin.chat.completions.create(
            **create, temperature=0, extra_body={"return_token_ids": True, **extra}
        )
        return made.choices[0]

    free = call()
    city = json.loads(free.message.tool_calls[0].function.arguments)["city"]
    banned = call(bad_words=[*(city[:end] for end in range(1, len(city) + 1)), f'"{city}'])
    assert json.loads(banned.message.tool_calls[0].function.arguments)["city"] == ({"Paris", "Rome"} - {city}).pop()
    stopped = call(stop_token_ids=free.token_ids[2:3])
    assert stopped.token_ids == free.token_ids[:3] and stopped.stop_reason == free.token_ids[2]


def thinking_model() -> ScriptedTokenizer:
    return ScriptedTokenizer(think=("<think>", "</think>"))


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_can_be_left_out_of_the_answer(stream: bool) -> None:
    with (
        ScriptedEngine(["<think>Well.</think>Yes."] * 2, tokenizer=thinking_model()) as engine,
        LocalOpenAI(engine=engine) as client,
    ):
        for wanted in (True, False):
            made: Any = client.chat.completions.create(
                model="m", messages=MESSAGES, stream=stream, extra_body={"include_reasoning": wanted}
            )
            if stream:
                deltas = [choice.delta for chunk in made for choice in chunk.choices]
                content = "".join(delta.content or "" for delta in deltas)
                reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
            else:
                message = made.choices[0].message
                content, reasoning = message.content, getattr(message, "reasoning_content", None) or ""
                assert made.usage.completion_tokens_details.reasoning_tokens > 0
            assert (content, reasoning) == ("Yes.", "Well." if wanted else "")


def test_a_budget_closes_the_reasoning_of_a_completion_and_its_grammar_waits_for_that() -> None:
    said, tokenizer = "<think>So it is, I think.</think>yes", thinking_model()
    rest = said.removeprefix("<think>")
    script = [said, said, said, rest]
    with (
        ScriptedEngine(script, tokenizer=tokenizer, obey_constraints=True) as engine,
        LocalOpenAI(engine=engine) as client,
    ):
        create: dict[str, Any] = {"model": "m", "max_tokens": 100}
        choice = {"structured_outputs": {"choice": ["yes", "no"]}}

        def text(prompt: str, **extra: Any) -> str:
            return client.completions.create(**create, prompt=prompt, extra_body=extra).choices[0].text

        assert text("Well? ", thinking_token_budget=-1) == said
        with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
            text("Well? ", thinking_token_budget=3)  # the script goes on thinking
        with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
            text("Well? ", **choice)  # it begins where the prompt ends
        assert text("Well? <think>", **choice) == rest


def test_markers_are_read_and_not_skipped_as_special_tokens() -> None:
    tokenizer = ScriptedTokenizer(think=("<think>", "</think>"), markers=["<|odd|>"])
    reply = Reply("<think>We<|odd|>ll.</think>Y<|odd|>es.")
    with ScriptedEngine([reply] * 2, tokenizer=tokenizer) as engine, LocalOpenAI(engine=engine) as client:
        for skip, expected in ((True, ("Well.", "Yes.")), (False, ("We<|odd|>ll.", "Y<|odd|>es."))):
            made: Any = client.chat.completions.create(
                model="m", messages=MESSAGES, extra_body={"skip_special_tokens": skip}
            )
            message = made.choices[0].message
            assert (message.reasoning_content, message.content) == expected


@pytest.mark.anyio
async def test_the_async_client_takes_the_fields_too(async_client: AsyncLocalOpenAI, client: LocalOpenAI) -> None:
    extra = {"allowed_token_ids": [80, 81], "return_token_ids": True, "prompt_logprobs": 0}
    made: Any = await async_client.chat.completions.create(
        model="m", messages=MESSAGES, temperature=0, max_tokens=12, extra_body=extra
    )
    expected: Any = ask(client, "chat", **extra)
    assert plain(made.choices) == nearly(expected.choices)
    assert plain(made.prompt_logprobs) == nearly(expected.prompt_logprobs)


# -- models -----------------------------------------------------------------------------------------------------------


def test_models_say_where_they_come_from_and_how_long_their_context_is(client: LocalOpenAI) -> None:
    path = tiny("qwen3")
    [listed] = client.models.list().data
    made: Any = listed
    assert (made.root, made.max_model_len) == (str(path.resolve()), 1024)
    one: Any = client.models.retrieve("anything")
    assert (one.root, one.max_model_len) == (made.root, 1024)
    with LocalOpenAI(models={"short": path, "long": path}, context_length=99) as several:
        found: list[Any] = several.models.list().data  # nothing is loaded
        assert [(model.id, model.root, model.max_model_len) for model in found] == [
            ("short", made.root, 99),
            ("long", made.root, 99),
        ]
