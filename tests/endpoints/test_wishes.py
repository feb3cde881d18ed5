"""Wishes: fields that ask for a manner of answering. A value that OpenAI documents is never refused, in either API."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from openai.types.shared_params import Reasoning

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import MESSAGES, refused
from tests.endpoints.text import ask

PLAIN = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
VERBOSE = PLAIN + "{% if verbosity %}Verbosity: {{ verbosity }}.{% endif %}"
PICKY = (
    PLAIN
    + "{% if reasoning_effort and reasoning_effort not in ['none', 'high'] %}"
    + "{{ raise_exception('reasoning_effort must be none or high') }}{% endif %}Effort: {{ reasoning_effort }}."
)
"""As the templates of Mistral's models, which raise where an effort is not among theirs."""


def documented(owner: Any, name: str) -> list[Any]:
    """The values of a field that the SDK's types list."""

    def literals(hint: Any) -> list[Any]:
        if typing.get_origin(hint) is typing.Literal:
            return list(typing.get_args(hint))
        return [value for inner in typing.get_args(hint) for value in literals(inner)]

    hints = typing.get_type_hints(owner)
    return literals(hints[name]) if name in hints else []


def reasoning(name: str) -> list[dict[str, Any]]:
    return [{"reasoning": {name: value}} for value in documented(Reasoning, name)]


WORDS: list[dict[str, Any]] = [
    {"user": "me"},
    {"safety_identifier": "me"},
    {"prompt_cache_key": "key"},
    {"metadata": {"topic": "tests"}},
    {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}},
]
SHARED = ("service_tier", "prompt_cache_retention")
CHAT: list[dict[str, Any]] = [
    *(
        {name: v}
        for name in ("verbosity", "reasoning_effort")
        for v in documented(chat.CompletionCreateParamsBase, name)
    ),
    *({name: v} for name in SHARED for v in documented(chat.CompletionCreateParamsBase, name)),
    *WORDS,
    {"prediction": {"type": "content", "content": "Hello"}},
    {"modalities": ["text"]},
]
RESPONSES: list[dict[str, Any]] = [
    *({"text": {"verbosity": value}} for value in documented(responses.ResponseTextConfigParam, "verbosity")),
    *(field for name in ("context", "effort", "generate_summary", "mode", "summary") for field in reasoning(name)),
    *({name: v} for name in (*SHARED, "truncation") for v in documented(responses.ResponseCreateParamsBase, name)),
    *WORDS,
    {"prompt_cache_options": {"comparison_response_id": "resp_1"}},
    {"image": {"context_compression": "auto"}},
    {"include": ["web_search_call.action.sources"]},
]
TEXTS: list[dict[str, Any]] = [{"user": "me"}, *({name: field[name]} for field in WORDS[1:3] for name in field)]


def test_the_values_are_those_of_the_sdk() -> None:
    assert [field["verbosity"] for field in CHAT if "verbosity" in field] == ["low", "medium", "high"]
    assert {"none", "minimal", "low", "medium", "high", "xhigh"} <= {field.get("reasoning_effort") for field in CHAT}


WISHES = {"chat": CHAT, "responses": RESPONSES, "completions": TEXTS}


@pytest.mark.parametrize("endpoint", WISHES)
def test_no_wish_is_refused(client: LocalOpenAI, endpoint: str, subtests: pytest.Subtests) -> None:
    for wish in WISHES[endpoint]:
        with subtests.test(str(wish)):
            made = ask(client, endpoint, max_tokens=2, **wish)
            if endpoint == "responses":
                assert made.status in ("completed", "incomplete")
            else:
                assert made.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize(
    ("demand", "param"),
    [
        ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm"),
        ({"image": {"context_compression": "enabled"}}, "image.context_compression"),
    ],
)
def test_what_changes_the_answer_is_no_wish(client: LocalOpenAI, demand: dict[str, Any], param: str) -> None:
    with refused(param, "unsupported_value", ""):
        client.responses.create(model="m", input="Hello there", extra_body=demand)


def prompt_tokens(template: str, **more: Any) -> int:
    """The length of the prompt that the usual message makes in a template."""
    with ScriptedEngine(["Hi."], tokenizer=ScriptedTokenizer(chat_template=template)) as engine:
        made = LocalOpenAI(engine=engine).chat.completions.create(model="m", messages=MESSAGES, **more)
    assert made.usage is not None
    return made.usage.prompt_tokens


@pytest.mark.parametrize(("wish", "said"), [("low", "low"), ("high", "high"), ("medium", None), (None, None)])
def test_a_template_that_reads_verbosity_gets_it(wish: Any, said: str | None) -> None:
    told = f"Verbosity: {said}." if said else ""
    assert prompt_tokens(VERBOSE, verbosity=wish) == prompt_tokens(PLAIN) + len(told)


@pytest.mark.parametrize(
    ("wish", "told"),
    [("none", "none"), ("minimal", "none"), ("low", "high"), ("medium", "high"), ("high", "high"), ("max", "high")],
)
def test_a_template_that_refuses_an_effort_gets_the_nearest_that_it_takes(wish: Any, told: str) -> None:
    exact = {"chat_template_kwargs": {"reasoning_effort": told}}
    assert prompt_tokens(PICKY, reasoning_effort=wish) == prompt_tokens(PICKY, extra_body=exact)
