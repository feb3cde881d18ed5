"""Structured outputs of chat.completions: what a model with random weights says under a grammar."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import Oracle, revalidate
from tests.endpoints.answer.schemas import as_format, asks, integer, one_of, string
from tests.samples import only
from tests.tiny import VOCABULARY

Token = Callable[[str], int]


def texts(client: LocalOpenAI, schema: Any = None, **more: Any) -> list[str]:
    """What the choices say, each of which ended by itself."""
    made = client.chat.completions.create(**asks(schema, **more))
    assert [choice.finish_reason for choice in made.choices] == ["stop"] * len(made.choices)
    return [str(choice.message.content) for choice in made.choices]


def validate(text: str, schema: dict[str, Any]) -> Any:
    """The value, which satisfies the schema, formats included."""
    value = json.loads(text)
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
    return value


@pytest.fixture(scope="module")
def token(oracle: Oracle) -> Token:
    """The one token of a text."""

    def find(text: str) -> int:
        [found] = oracle.tokenizer.encode(text, add_special_tokens=False)
        return int(found)

    return find


# -- what OpenAI's strict mode documents ------------------------------------------------------------------------------

NODE = one_of(value=integer(), next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
STEP = one_of(explanation=string(maxLength=12), output=string(maxLength=6))
USER = one_of(name=string(maxLength=8), age=integer(0, 120))
ADDRESS = one_of(number=string(pattern="^[0-9]{1,3}$"), street=string(minLength=1, maxLength=9))

SCHEMAS: dict[str, dict[str, Any]] = {
    "nested objects": one_of(outer=one_of(inner=one_of(deep={"type": "boolean"}), other={"type": "null"}), n=integer()),
    "an array of objects": one_of(steps={"type": "array", "items": STEP, "maxItems": 3}, final=string(maxLength=5)),
    "anyOf": one_of(item={"anyOf": [USER, ADDRESS]}),
    "anyOf at the root": {"anyOf": [integer(), {"type": "boolean"}, one_of(a=integer())]},
    "definitions": {**one_of(a={"$ref": "#/$defs/step"}, b={"$ref": "#/$defs/step"}), "$defs": {"step": STEP}},
    "a list by recursion": {**one_of(list={"$ref": "#/$defs/node"}), "$defs": {"node": NODE}},
    "recursion at the root": one_of(
        tag={"enum": ["div", "field"]}, children={"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    ),
    "enums": one_of(a={"enum": ["x", 'ż"\\\n', 3, 2.5, None, True]}, b=string(enum=["red", "green"])),
    "constants": one_of(a={"const": "k"}, b={"const": {"c": [1, None]}}, c=string(const="\u2028\x7f🙂")),
    "types by name": one_of(a={"type": ["integer", "null"], "minimum": -3, "maximum": 3}, b=string(maxLength=0)),
    "integers": one_of(a=integer(-17, 300), b={"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6}),
    "multiples": one_of(a={**integer(0, 100), "multipleOf": 5}, b={**integer(-30, 30), "multipleOf": 7}),
    "numbers": one_of(
        a={"type": "number", "minimum": -1.5, "maximum": 2.25},
        b={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
    "lengths of strings": one_of(a=string(minLength=3, maxLength=3), b=string(minLength=2, maxLength=12)),
    "patterns": one_of(a=string(pattern=r"^@[a-zA-Z0-9_]{1,8}$"), b=string(pattern="^(ab|c)+d?$", maxLength=9)),
    "lengths of arrays": one_of(
        a={"type": "array", "items": integer(), "minItems": 2, "maxItems": 4},
        b={"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    ),
    "optional properties": {**one_of(a=integer(), b=integer(), c=integer()), "required": ["b"]},
    "names by pattern": {
        "type": "object",
        "patternProperties": {"^x[0-9]$": integer()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "dates and times": one_of(**{name: string(format=name) for name in ("date-time", "time", "date")}),
    "addresses": one_of(**{name: string(format=name) for name in ("ipv4", "ipv6", "uuid")}),
    "mailboxes and hosts": one_of(**{name: string(format=name, maxLength=16) for name in ("email", "hostname")}),
    "durations and addresses": one_of(**{name: string(format=name, maxLength=16) for name in ("duration", "uri")}),
}


@pytest.mark.parametrize("n", only([3], [3, 8]))
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_what_an_untrained_model_says_satisfies_the_schema(client: LocalOpenAI, schema: dict[str, Any], n: int) -> None:
    Draft202012Validator.check_schema(schema)
    said = texts(client, schema, n=n)
    values = [validate(text, schema) for text in said]
    properties = schema.get("properties", {})
    for value, text in zip(values, said, strict=True):
        if isinstance(value, dict) and properties:
            assert list(value) == [name for name in properties if name in value], "in the schema's order"
        assert "\n" not in text


def test_the_model_chooses_among_what_the_schema_allows(client: LocalOpenAI) -> None:
    schema = one_of(a={"enum": ["x", "y", 3, None]}, b={"anyOf": [integer(), {"type": "boolean"}]})
    said = set(texts(client, schema, n=32, temperature=2))
    assert {validate(text, schema)["a"] for text in said} == {"x", "y", 3, None}
    assert {type(validate(text, schema)["b"]) for text in said} == {int, bool}


@pytest.mark.parametrize("more", [{"strict": True}, {"strict": False}, {"strict": None, "description": "It answers."}])
def test_a_schema_is_held_strictly_or_not(client: LocalOpenAI, more: dict[str, Any]) -> None:
    schema = one_of(a=integer(), b=string(maxLength=9))
    assert texts(client, response_format=as_format(schema, **more)) == texts(client, schema)


def test_an_object_that_lists_its_properties_takes_no_others_unless_it_says_so(
    client: LocalOpenAI, token: Token
) -> None:
    listed = {"type": "object", "properties": {"a": integer()}}
    assert all(set(json.loads(text)) <= {"a"} for text in texts(client, listed, n=6))
    more = {**listed, "required": ["a"], "additionalProperties": {"const": 7}, "maxProperties": 2, "minProperties": 2}
    quotes = {token('"'): 12}  # names that the model makes up end soon
    assert all(7 in json.loads(text).values() for text in texts(client, more, n=6, logit_bias=quotes))


def test_json_object_is_an_object_whatever_is_in_it(client: LocalOpenAI, token: Token) -> None:
    short = {token('"'): 9, token("}"): 7, token("]"): 7}
    said = texts(client, response_format={"type": "json_object"}, logit_bias=short, n=8)
    values = [json.loads(text) for text in said]
    assert all(isinstance(value, dict) for value in values) and any(values)


def test_text_is_free_text(client: LocalOpenAI) -> None:
    free = client.chat.completions.create(**asks(max_tokens=20))
    made = client.chat.completions.create(**asks(max_tokens=20, response_format={"type": "text"}))
    assert made.choices == free.choices


def test_a_schema_may_be_absent(client: LocalOpenAI, token: Token) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "anything"}}
    short = {token(text): 8 for text in ('"', "}", "]")}
    assert all(isinstance(json.loads(text), dict) for text in texts(client, response_format=format, logit_bias=short))


# -- vLLM's names -----------------------------------------------------------------------------------------------------

REGEX = r"(yes|no), [0-9]{2,4}[a-f]*\."
ARITHMETIC = """
start: sum
sum: product | sum ("+" | "-") product
product: atom | product "*" atom
atom: NUMBER | "(" sum ")"
NUMBER: /[1-9][0-9]{0,2}/
"""


def test_guided_json_is_a_schema_as_an_object_or_as_text(client: LocalOpenAI) -> None:
    schema = SCHEMAS["an array of objects"]
    said = texts(client, guided_json=schema)
    assert said == texts(client, guided_json=json.dumps(schema)) == texts(client, schema)


def test_guided_regex_is_matched_as_a_whole(client: LocalOpenAI, token: Token) -> None:
    said = texts(client, guided_regex=REGEX, n=12, logit_bias={token("."): 6})
    assert all(re.fullmatch(REGEX, text) for text in said) and len(set(said)) > 6
    assert set(texts(client, guided_regex="a|b", n=16)) == {"a", "b"}


def test_guided_choice_is_one_of_the_strings(client: LocalOpenAI) -> None:
    options = ["yes", "no", "no way", "ż🙂", '"', "\\n", "\x7f\n", "/x/", "start: a"]
    said = texts(client, guided_choice=options, n=60, temperature=2)
    assert set(said) <= set(options) and len(set(said)) > 5
    for option in options:
        assert texts(client, guided_choice=[option]) == [option]


def test_guided_grammar_is_followed(client: LocalOpenAI, token: Token) -> None:
    ends = dict.fromkeys((token("+"), token("*"), token("(")), -4)
    said = texts(client, guided_grammar=ARITHMETIC, n=40, logit_bias=ends, max_tokens=900)
    assert len(set(said)) > 6 and any("+" in text or "*" in text for text in said)
    for text in said:
        kinds = {type(node) for node in ast.walk(ast.parse(text, mode="eval"))}
        operators = {ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Constant, ast.Expression}
        assert kinds <= operators


# -- streams and tasks ------------------------------------------------------------------------------------------------

EACH_WAY: dict[str, dict[str, Any]] = {
    "response_format": asks(SCHEMAS["an array of objects"]),
    "guided_json": asks(guided_json=SCHEMAS["anyOf"]),
    "guided_regex": asks(guided_regex="[ab]{20,30}"),
    "guided_choice": asks(guided_choice=["yes", "no", "maybe"]),
    "guided_grammar": asks(guided_grammar='start: "x" ("y" | "z")~9'),
}


@pytest.mark.parametrize("create", EACH_WAY.values(), ids=EACH_WAY)
def test_a_stream_says_what_the_whole_answer_says(client: LocalOpenAI, create: dict[str, Any]) -> None:
    whole = client.chat.completions.create(**create, n=3)
    revalidate(whole)
    chunks = list(client.chat.completions.create(**create, n=3, stream=True))
    for chunk in chunks:
        revalidate(chunk)
    for choice in whole.choices:
        mine = [c for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(c.delta.content or "" for c in mine) == choice.message.content
        assert mine[-1].finish_reason == choice.finish_reason == "stop"
        assert "refusal" in mine[0].delta.model_fields_set and all(c.delta.refusal is None for c in mine)
        assert "refusal" in choice.message.model_fields_set and choice.message.refusal is None


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only(["asyncio"], ["asyncio", "trio"]))
async def test_tasks_are_answered_alike(client: LocalOpenAI, async_client: AsyncLocalOpenAI) -> None:
    said: dict[str, str] = {}

    async def ask(name: str) -> None:
        whole = await async_client.chat.completions.create(**EACH_WAY[name])
        stream = await async_client.chat.completions.create(**EACH_WAY[name], stream=True)
        said[name] = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert whole.choices[0].message.content == said[name]

    async with anyio.create_task_group() as group:
        for name in EACH_WAY:
            group.start_soon(ask, name)
    assert said == {
        name: client.chat.completions.create(**create).choices[0].message.content for name, create in EACH_WAY.items()
    }


# -- together with other parameters -----------------------------------------------------------------------------------


OPTIONS = ["Paris", "Paris is the capital", "The quick brown fox", "one two three", "1 2 3", "x" * 12]


class Spelling:
    """Which tokens may follow when the answer is one of OPTIONS: those with which some option goes on."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._eos = set(oracle.tokenizer.eos_token_ids)
        self._written = [oracle.tokenizer.decode([i]) for i in range(VOCABULARY)]

    def allowed(self, out: list[int]) -> np.ndarray:
        """`[vocabulary]` bool."""
        said = "".join(self._written[i] for i in out)
        ends = said in OPTIONS
        goes_on = [any(o.startswith(said + w) for o in OPTIONS) and w.isascii() and len(w) > 0 for w in self._written]
        return np.array([ends if i in self._eos else goes for i, goes in enumerate(goes_on)])

    def finished(self, out: list[int]) -> bool:
        """An end of sequence was said, or nothing else may follow."""
        if not out or out[-1] in self._eos:
            return bool(out)
        goes_on = self.allowed(out)
        goes_on[list(self._eos)] = False
        return not goes_on.any()

    def greedy(self, prompt: list[int], adjust: Callable[[np.ndarray, list[int]], np.ndarray]) -> list[int]:
        """mlx-lm's own model, with what may not come taken out of its logits."""
        out: list[int] = []
        while not self.finished(out):
            logits = adjust(self._oracle.logits([*prompt, *out]), out)
            out.append(int(np.argmax(np.where(self.allowed(out), logits, -np.inf))))
        return out


@pytest.fixture(scope="module")
def spelling(oracle: Oracle) -> Spelling:
    return Spelling(oracle)


PENALTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "presence": {"presence_penalty": 2},
    "frequency": {"frequency_penalty": 2},
    "bias": {"logit_bias": {str(i): float(i % 7) for i in range(3, VOCABULARY)}},
    "bias on what may not come": {"logit_bias": {str(i): 100 for i in range(3)}},
}


def adjusted(logits: np.ndarray, out: list[int], more: dict[str, Any]) -> np.ndarray:
    logits = logits.copy()
    for i in set(out):
        logits[i] -= more.get("presence_penalty", 0) + more.get("frequency_penalty", 0) * out.count(i)
    for i, bias in more.get("logit_bias", {}).items():
        logits[int(i)] += bias
    return logits


GREEDY = [(question, name) for question in ("Hello there", "The quick brown fox, again") for name in PENALTIES]


@pytest.mark.parametrize(("question", "penalty"), only(GREEDY[: len(PENALTIES) + 1], GREEDY))
def test_greedy_is_the_likeliest_of_what_the_grammar_allows(
    client: LocalOpenAI, oracle: Oracle, spelling: Spelling, question: str, penalty: str
) -> None:
    more = PENALTIES[penalty]
    messages = [{"role": "user", "content": question}]
    prompt = oracle.prompt(messages)
    ids = spelling.greedy(prompt, lambda logits, out: adjusted(logits, out, more))
    create = asks(guided_choice=OPTIONS, messages=messages, temperature=0, logprobs=True, top_logprobs=3, **more)
    made = client.chat.completions.create(**create)
    [choice] = made.choices
    assert choice.message.content == oracle.text(ids) and choice.message.content in OPTIONS
    assert made.usage is not None and made.usage.completion_tokens == len(ids)
    assert choice.logprobs is not None and choice.logprobs.content is not None
    said = [i for i in ids if i not in oracle.tokenizer.eos_token_ids]
    assert len(choice.logprobs.content) == len(said)
    for at, entry in enumerate(choice.logprobs.content):  # the model's own distribution, without the grammar
        expected = oracle.logprobs([*prompt, *ids[:at]])
        assert math.isclose(entry.logprob, expected[ids[at]], abs_tol=1e-3)
        best = [top.logprob for top in entry.top_logprobs]
        assert best == pytest.approx(np.sort(expected)[::-1][:3].tolist(), abs=1e-3)


@pytest.mark.parametrize(
    "more",
    [
        {"top_p": 0.2},
        {"top_k": 1},
        {"min_p": 0.9},
        {"temperature": 2},
        {"presence_penalty": 2, "frequency_penalty": 2},
        {"repetition_penalty": 5},
        {"logit_bias": {str(i): 100 if i % 2 else -100 for i in range(VOCABULARY)}},
    ],
    ids=str,
)
def test_no_parameter_breaks_the_grammar(client: LocalOpenAI, more: dict[str, Any]) -> None:
    schema = SCHEMAS["an array of objects"]
    for text in texts(client, schema, n=4, **more):
        validate(text, schema)


def test_the_bytes_of_the_logprobs_are_the_content(client: LocalOpenAI) -> None:
    made = client.chat.completions.create(**asks(one_of(a=string(maxLength=20)), n=6, logprobs=True))
    for choice in made.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        joined = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
        assert joined.decode() == choice.message.content


def test_a_seed_gives_the_same_text_with_any_number_of_choices(client: LocalOpenAI) -> None:
    schema = SCHEMAS["nested objects"]
    alone = texts(client, schema)
    assert texts(client, schema) == alone
    many = texts(client, schema, n=40)
    assert many[:1] == alone and len(set(many)) > 6
    assert texts(client, schema, seed=6) != alone


def test_a_stop_string_cuts_a_guided_answer(client: LocalOpenAI) -> None:
    schema = one_of(a=string(maxLength=12), b=integer())
    [text] = texts(client, schema)
    for at in range(0, len(text) - 1, 7):
        stop = text[at : at + 2]
        for stream in (False, True):
            made: Any = client.chat.completions.create(**asks(schema, stop=stop, stream=stream))
            said = (
                "".join(c.choices[0].delta.content or "" for c in made) if stream else made.choices[0].message.content
            )
            assert said == text[: text.find(stop)]


def test_min_tokens_holds_as_far_as_the_grammar_goes_on(client: LocalOpenAI) -> None:
    for n in (1, 7, 20):
        assert all(len(text) >= n for text in texts(client, guided_regex="[ab]*", min_tokens=n, n=6))
    assert set(texts(client, guided_choice=["yes", "no"], min_tokens=20, n=6)) <= {"yes", "no"}


def test_the_end_of_the_grammar_ends_the_row_though_ends_of_sequence_are_ignored(client: LocalOpenAI) -> None:
    assert texts(client, guided_choice=["yes"], ignore_eos=True) == ["yes"]
    assert all(re.fullmatch("[ab]*", text) for text in texts(client, guided_regex="[ab]*", ignore_eos=True, n=6))


@pytest.mark.parametrize(
    "extra", [{"guided_choice": [""]}, {"guided_regex": ""}, {"guided_grammar": 'start: ""'}], ids=str
)
def test_a_grammar_may_allow_nothing_but_the_empty_text(client: LocalOpenAI, extra: dict[str, Any]) -> None:
    made = client.chat.completions.create(**asks(**extra, logprobs=True))
    revalidate(made)
    [choice] = made.choices
    assert (choice.message.content, choice.finish_reason) == ("", "stop")
    assert choice.logprobs is not None and choice.logprobs.content == []
    chunks = list(client.chat.completions.create(**asks(**extra), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ""
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_grammar_that_allows_the_empty_text_gives_others_too(client: LocalOpenAI) -> None:
    said = set(texts(client, guided_choice=["", "yes"], n=40, temperature=2))
    assert said == {"", "yes"}


@pytest.mark.parametrize("schema", [integer(), one_of(a={"const": "k"}), {"const": [1, 2]}], ids=str)
def test_the_row_ends_with_the_grammar_and_no_token_more(client: LocalOpenAI, schema: dict[str, Any]) -> None:
    made = client.chat.completions.create(**asks(schema, logprobs=True))
    [choice] = made.choices
    assert made.usage is not None and choice.logprobs is not None and choice.logprobs.content is not None
    total = made.usage.completion_tokens
    assert total == len(choice.logprobs.content)  # an end of sequence would have no text
    just = client.chat.completions.create(**asks(schema, max_tokens=total)).choices[0]
    assert (just.finish_reason, just.message.content) == ("stop", choice.message.content)


def test_an_answer_that_max_tokens_cuts_ends_with_length(client: LocalOpenAI) -> None:
    schema = one_of(a=string(maxLength=12), b=integer())
    made = client.chat.completions.create(**asks(schema))
    assert made.usage is not None
    whole = str(made.choices[0].message.content)
    for most in [*range(1, made.usage.completion_tokens, 4), made.usage.completion_tokens - 1]:
        choice = client.chat.completions.create(**asks(schema, max_tokens=most)).choices[0]
        said = str(choice.message.content).rstrip("\ufffd")  # a character that is cut in two
        assert choice.finish_reason == "length" and whole.startswith(said) and said != whole
