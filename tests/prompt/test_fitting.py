"""Every conversation that OpenAI accepts is shown to a model, whatever its template refuses, drops or wants otherwise.

The templates of `template_kinds` have the form of real ones. What is held is what stands in the rendered prompt.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper

from localai_shim.errors import BadRequest
from localai_shim.formats.table import FORMATS
from localai_shim.grammar.tool import Tool
from localai_shim.prompt.messages import template_messages
from localai_shim.prompt.template import ChatTokenizer, Conversation
from tests import inside
from tests.conftest import chat_tokenizer
from tests.prompt import template_kinds as kinds

Make = Callable[[Any], ChatTokenizer]
Messages = list[dict[str, Any]]

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [Tool("weather", PARAMETERS, description="How it is outside.").template()]
SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}


@pytest.fixture(scope="module")
def make(byte_level: Any) -> Make:
    """A tokenizer with a template of one's own, or with several by name."""

    def make(template: str | dict[str, str]) -> ChatTokenizer:
        inner = copy.deepcopy(inside.tokenizer(byte_level))
        inner.chat_template = template
        return chat_tokenizer(TokenizerWrapper(inner, BPEStreamingDetokenizer))

    return make


@pytest.fixture(scope="module")
def of_kind(make: Make) -> Make:
    """The tokenizer of a kind."""
    return functools.cache(lambda name: make(kinds.ALL[name]))


def says(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def calls(*arguments: str, content: str | None = None, first: int = 0) -> Messages:
    """An assistant's message with calls of `f0`, `f1` ... and their results, R0x, R1x ..."""
    ids = [f"call_{i + first:020}" for i in range(len(arguments))]
    made = [
        {"id": ids[i], "type": "function", "function": {"name": f"f{i + first}", "arguments": text}}
        for i, text in enumerate(arguments)
    ]
    results = [{"role": "tool", "tool_call_id": id, "content": f"R{i + first}x"} for i, id in enumerate(ids)]
    return [{"role": "assistant", "content": content, "tool_calls": made}, *results]


def render(tokenizer: ChatTokenizer, messages: Messages, tools: Any = None, **variables: Any) -> str:
    read = template_messages(messages, knows_developer=tokenizer.knows_developer)
    return tokenizer.decode(tokenizer.render(Conversation(read, variables, tools)))


# -- a template that takes everything gets everything as it came --------------------------------------------------


def test_nothing_is_changed_for_a_template_that_takes_everything(make: Make) -> None:
    messages = [
        SYSTEM,
        SYSTEM,
        says("assistant", "Hello."),
        says("user", "a"),
        says("user", "b"),
        *calls('{"x": [1, null]}', "{}", content="Let me see."),
        says("user", "c"),
        says("system", "Late."),
        says("assistant", "d"),
        says("assistant", "e"),
    ]
    tokenizer = make(kinds.EVERYTHING)
    shown = inside.tokenizer(inside.tokenizer(tokenizer)).apply_chat_template(
        template_messages(messages), TOOLS, tokenize=False, add_generation_prompt=True
    )
    assert render(tokenizer, messages, TOOLS) == shown


def test_a_template_is_tried_out_once_in_the_process(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    template = kinds.EVERYTHING + "{# tried once #}"
    make(template).prepare()
    later = make(template)
    seen: list[Any] = []
    original = later.model.apply_chat_template
    monkeypatch.setattr(later.model, "apply_chat_template", lambda *of: seen.append(of) or original(*of))
    render(later, [SYSTEM, USER], TOOLS)
    assert len(seen) == 1


# -- roles --------------------------------------------------------------------------------------------------------


def test_without_a_system_role_its_text_comes_before_the_user_s(make: Make) -> None:
    assert render(make(kinds.STRICT), [SYSTEM, USER]) == "<user>Be brief.\n\nWeather?</><a>"


def test_a_conversation_of_a_system_message_alone_is_the_user_s_without_a_system_role(make: Make) -> None:
    assert render(make(kinds.STRICT), [SYSTEM]) == "<user>Be brief.</><a>"


def test_messages_of_one_role_are_joined_where_roles_must_alternate(make: Make) -> None:
    messages = [says("user", "a"), says("user", "b"), says("assistant", "c"), says("assistant", "d"), says("user", "e")]
    assert render(make(kinds.STRICT), messages) == "<user>a\n\nb</><assistant>c\n\nd</><user>e</><a>"


def test_instructions_amid_a_conversation_stay_where_they_are_as_the_user_s(make: Make) -> None:
    messages = [SYSTEM, says("user", "a"), says("assistant", "b"), says("system", "Late."), says("user", "c")]
    assert render(make(kinds.NEEDS_USER), messages) == (
        "<system>Be brief.</><user>a</><assistant>b</><user>Late.</><user>c</>"
    )
    assert render(make(kinds.STRICT), messages) == "<user>Be brief.\n\na</><assistant>b</><user>Late.\n\nc</><a>"


def test_no_system_message_takes_the_place_of_another(make: Make) -> None:
    text = render(make(kinds.LAST_SYSTEM), [SYSTEM, says("system", "Be kind."), USER, says("system", "Late.")])
    assert text == "Be brief.\n\nBe kind.<user>Weather?</><user>Late.</>"


def test_a_system_message_that_only_the_user_s_last_one_shows_is_never_lost(make: Make) -> None:
    mistral = make(kinds.MISTRAL)
    assert render(mistral, [SYSTEM, USER]) == "<user>Be brief.\n\nWeather?</>"
    assert render(mistral, [SYSTEM, USER, *calls("{}")]).startswith("<user>Be brief.\n\nWeather?</><assistant><call>")


def test_an_answer_comes_between_results_and_the_user_where_roles_must_alternate(make: Make) -> None:
    text = render(make(kinds.MISTRAL), [USER, *calls("{}"), says("user", "Thanks.")])
    assert text.endswith(":R0x</><assistant></><user>Thanks.</>")


def test_the_user_begins_where_a_template_insists(make: Make) -> None:
    assert render(make(kinds.STRICT), [says("assistant", "Hello."), USER]) == (
        "<user></><assistant>Hello.</><user>Weather?</><a>"
    )


@pytest.mark.parametrize("after", [[], calls("{}")], ids=["alone", "before a call"])
def test_a_question_is_put_in_where_a_template_needs_one(make: Make, after: Messages) -> None:
    assert render(make(kinds.NEEDS_USER), [SYSTEM, *after]).startswith("<system>Be brief.</><user></>")


def test_a_role_of_the_developer_is_one_that_a_template_treats_as_no_other(make: Make) -> None:
    own = "{% for m in messages %}{% if m.role == 'developer' %}!{% endif %}{{ m.content }}{% endfor %}"
    refused = kinds.CONTENT_ONLY.replace("<{{", "{% if m.role == 'developer' %}{{ raise_exception('') }}{% endif %}<{{")
    assert make(own).knows_developer
    for template in (kinds.CONTENT_ONLY, kinds.STRICT, refused, "{# developer #}" + kinds.CONTENT_ONLY):
        assert not make(template).knows_developer
        assert "Be kind." in render(make(template), [says("developer", "Be kind."), USER])


def test_an_answer_that_is_begun_goes_on_whatever_comes_before(make: Make) -> None:
    messages = [SYSTEM, USER, says("user", "In Oslo?"), says("assistant", "The weather in")]
    tokenizer = make(kinds.STRICT)
    begun = Conversation(template_messages(messages), {"continue_final_message": True})
    assert tokenizer.decode(tokenizer.render(begun, generation_prompt=False)) == (
        "<user>Be brief.\n\nWeather?\n\nIn Oslo?</><assistant>The weather in"
    )


# -- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template", [kinds.NOT_NONE, kinds.FUNCTIONS, kinds.DESCRIBED], ids=["NOT_NONE", "FUNCTIONS", "DESCRIBED"]
)
def test_a_template_that_needs_tools_gets_none_where_there_are_none(make: Make, template: str) -> None:
    assert render(make(template), [USER]).endswith("<user>Weather?</><a>")


@pytest.mark.parametrize("name", ["NOT_NONE", "FUNCTIONS", "XML_TOOLS", "DESCRIBED", "IN_SYSTEM", "GENERATOR"])
def test_tools_come_where_and_how_a_template_shows_them(make: Make, name: str) -> None:
    text = render(make(kinds.ALL[name]), [USER], TOOLS)
    assert text.count("How it is outside.") == 1 and "weather" in text and "city" in text
    assert "<tool_call>" not in text, "it is not told of a form that is not its own"


def test_what_the_caller_says_of_a_variable_counts(make: Make) -> None:
    assert "Today: Monday" in render(make(kinds.FUNCTIONS), [USER], TOOLS, datetime="Monday")


def test_schemas_that_a_template_fails_on_come_with_one_type_for_each_parameter(make: Make) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": ["null", "integer"], "description": "A number."},
            "b": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "description": "Texts."},
        },
    }
    text = render(make(kinds.DESCRIBED), [USER], [Tool("f", parameters, description="Does.").template()])
    assert text == "f: Does. a: integer A number. b: array Texts.<user>Weather?</><a>"


def test_tools_that_no_template_shows_are_told_in_words_once(make: Make) -> None:
    for template in (kinds.CONTENT_ONLY, kinds.STRICT):
        text = render(make(template), [SYSTEM, USER], TOOLS)
        assert text.index("Be brief.") < text.index(json.dumps(TOOLS[0]["function"])) < text.index("Weather?")
        assert text.count('"weather"') == 1 and text.count("<tool_call>\n{") == 1


def test_calls_and_results_come_in_the_form_that_the_tools_were_told_in(make: Make) -> None:
    messages = [USER, *calls('{"city": "Oslo"}', '{"n": 2}', content="Let me see."), says("user", "Thanks.")]
    text = render(make(kinds.STRICT), messages, TOOLS)
    assert text.partition("</>")[2] == (
        '<assistant>Let me see.\n<tool_call>\n{"name": "f0", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "f1", "arguments": {"n": 2}}\n</tool_call></>'
        "<user><tool_response>\nR0x\n</tool_response>\n<tool_response>\nR1x\n</tool_response>\n\nThanks.</><a>"
    )


def test_a_model_s_own_calls_are_written_by_what_knows_them(make: Make) -> None:
    tokenizer = ChatTokenizer(make(kinds.TALK_ALONE).model, FORMATS["pythonic"])
    text = render(tokenizer, [USER, *calls('{"a": 1}')], TOOLS)
    assert text.endswith("<user>Weather?</><assistant>[f0(a=1)]</><user><tool_response>\nR0x\n</tool_response></>")


def test_of_named_templates_each_is_fitted(make: Make) -> None:
    tokenizer = make({"default": kinds.CONTENT_ONLY, "tool_use": kinds.EVERYTHING})
    messages = [USER, *calls('{"a": 1}')]
    assert '<call>{"name": "f0", "arguments": {"a": 1}}</call>' in render(tokenizer, messages, TOOLS)
    assert render(tokenizer, messages).count('"a": 1') == 1


# -- calls --------------------------------------------------------------------------------------------------------


def test_calls_with_content_null_and_arguments_as_text(make: Make) -> None:
    text = render(make(kinds.NULL_CONTENT), [USER, *calls('{"a": "b"}', content="Let me see.")])
    assert text == '<user>Weather?</><assistant>Let me see.</><call>f0{"a": "b"}</call><tool>R0x</>'


def test_text_beside_calls_comes_before_them_where_they_would_replace_it(make: Make) -> None:
    text = render(make(kinds.CALLS_ALONE), [USER, *calls("{}", content="Let me see.")])
    assert text == (
        "<user>Weather?</><assistant>Let me see.</>"
        '<assistant><call>{"name": "f0", "arguments": {}}</call></><tool>R0x</>'
    )


def test_a_template_may_append_to_lists_and_take_from_them(make: Make) -> None:
    text = render(make(kinds.APPENDS), [USER, *calls("{}", '{"a": 1}')])
    assert text == (
        '<user>Weather?</><assistant><call>functions.f0:0{}<call>functions.f1:1{"a": 1}</>'
        "<tool>functions.f0:0=R0x</><tool>functions.f1:1=R1x</>"
    )


@pytest.mark.parametrize("changed", ["messages.clear()", "messages[0].update(role='x')", "messages.__class__"])
def test_a_template_may_do_nothing_else_that_the_sandbox_refuses(make: Make, changed: str) -> None:
    with pytest.raises(BadRequest, match="unsafe"):
        render(make("{{ " + changed + ".x }}{{ messages[0].content }}"), [USER])


def test_ids_hold_the_name_where_a_template_shows_it_nowhere_else(make: Make) -> None:
    assert "<call>functions.f0:0{}<call>functions.f1:1{}" in render(make(kinds.NUMBERED), [USER, *calls("{}", "{}")])


def test_nested_values_among_bare_strings_are_json(make: Make) -> None:
    text = render(make(kinds.BARE), [USER, *calls('{"a": "it\'s", "b": {"c": [true, null]}, "d": 1}')])
    assert '<a>it\'s</a><b>{"c": [true, null]}</b><d>1</d>' in text


def test_values_of_calls_in_python_are_python(make: Make) -> None:
    text = render(make(kinds.PYTHON), [USER, *calls('{"a": "b", "c": [true, null]}')])
    assert "[f0(a='b', c=[True, None])]" in text


def test_a_conversation_that_is_refused_in_every_form_is_quoted_with_what_was_said_first(make: Make) -> None:
    with pytest.raises(BadRequest, match="not on Mondays"):
        render(make("{{ raise_exception('not on Mondays') }}"), [SYSTEM, USER, *calls("{}")], TOOLS)


# -- any conversation ---------------------------------------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Any]]:
    """Turns: a role each, or the number of an assistant's calls and whether there is text beside them."""
    turn = st.sampled_from(["system", "developer", "user", "assistant"]).map(lambda role: [role])
    called = st.tuples(st.integers(1, 3), st.booleans()).map(list)
    return draw(st.lists(st.one_of(turn, called), min_size=1, max_size=7))


def written(turns: list[list[Any]], *, text_beside: bool) -> tuple[Messages, list[str]]:
    """The messages, and each string in them once, in order."""
    messages: Messages = []
    texts: list[str] = []
    count = 0
    for turn in turns:
        if isinstance(turn[0], str):
            texts.append(f"word{count}x")
            messages.append(says(turn[0], texts[-1]))
            count += 1
            continue
        content = f"word{count}x" if turn[1] and text_beside else None
        values = [f"value{count + i}x" for i in range(turn[0])]
        messages += calls(*(json.dumps({"a": value}) for value in values), content=content, first=count)
        texts += [content] if content else []
        texts += [*values, *(f"R{count + i}x" for i in range(turn[0]))]
        count += turn[0]
    return messages, texts


@pytest.mark.parametrize("name", kinds.ALL)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["", "tools"])
@settings(derandomize=True, max_examples=25, deadline=None)
@given(turns=conversations())
def test_every_string_of_any_conversation_stands_in_the_prompt_once(
    of_kind: Make, name: str, tools: Any, turns: list[list[Any]]
) -> None:
    messages, texts = written(turns, text_beside=name not in kinds.DROPS_TEXT_BESIDE_CALLS)
    text = render(of_kind(name), messages, tools)
    assert {word: text.count(word) for word in texts} == dict.fromkeys(texts, 1)
    assert text.count("How it is outside.") == bool(tools)
    assert '\\"a' not in text and "{'a'" not in text
