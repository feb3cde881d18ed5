"""Tools, calls, results and reasoning in the prompt, for templates that want them in ways of their own.

The templates here imitate the parts of real ones that differ: those of Hermes, Mistral, Kimi K2, GLM, Llama 3, gpt-oss
and LFM2.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from mlx_lm.chat_templates import deepseek_v32
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper

from localai_shim.errors import BadRequest
from localai_shim.formats.table import FORMATS
from localai_shim.grammar.tool import CustomFormat, Tool
from localai_shim.prompt.messages import template_messages
from localai_shim.prompt.template import ChatTokenizer, Conversation
from tests import inside
from tests.conftest import chat_tokenizer
from training import chat

TOOLS = [
    Tool("weather", description="The weather.").template(),
    Tool("sql", custom=CustomFormat()).template(),
]

HERMES = """{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}
{%- for call in m.tool_calls or [] %}{% set f = call.function %}
{{- '<tool_call>{"name": "' + f.name + '", "arguments": ' + f.arguments | tojson + '}</tool_call>' }}
{%- endfor %}{% endfor %}"""
JOINED = """{% for m in messages %}{% for call in m.tool_calls %}{{ '<args>' + call.function.arguments }}
{%- endfor %}{% endfor %}"""
MISTRAL = """{%- macro check(id) %}
{%- if id is not defined or id | length != 9 %}{{ raise_exception('ids should have length 9!') }}{% endif %}
{%- endmacro %}
{%- for m in messages %}{% if m.tool_calls is defined %}{% for call in m.tool_calls %}{{ check(call.id) }}
{{- '[TOOL_CALLS]' + call.id + ':' + call.function.name + ARGUMENTS }}{% endfor %}
{%- elif m.role == 'tool' %}{{ check(m.tool_call_id) + '[TOOL_RESULTS]' + m.tool_call_id + ':' + m.content }}
{%- else %}[INST]{{ m.content }}{% endif %}
{%- endfor %}"""
KIMI = """{%- for m in messages %}{% if m.tool_calls %}<|tool_calls_section_begin|>{% for call in m.tool_calls %}
{{- call.id }}|{{ call.function.arguments | tojson }};{% endfor %}
{%- elif m.role == 'tool' %}{{ m.name }}: Return of {{ m.tool_call_id }}={{ m.content }};{% endif %}
{%- endfor %}"""
GLM = """{%- for m in messages %}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}
{%- for key, value in call.function.arguments.items() %}<arg_key>{{ key }}</arg_key><arg_value>{{ value }}</arg_value>
{%- endfor %}</tool_call>{% endfor %}{% endfor %}"""
LLAMA = """{%- for m in messages %}{% if 'tool_calls' in m %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('only single tool-calls at once!') }}{% endif %}
{%- for call in m.tool_calls %}{% set f = call.function %}[{{ m.content }}|{{ f.name }}{{ f.arguments | tojson }}]
{%- endfor %}
{%- else %}[{{ m.content }}]{% endif %}{% endfor %}"""
GPT_OSS = """{%- for m in messages %}{% if 'tool_calls' in m %}{% set f = m.tool_calls[0].function %}
{%- if m.content and m.thinking %}{{ raise_exception('Cannot pass both content and thinking!') }}{% endif %}
{{- '<analysis>' + (m.content or m.thinking or '') + '<to=' + f.name + '>' + f.arguments | tojson }}
{%- elif m.role == 'tool' %}<result>{{ m.content }}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}
{%- endfor %}"""
LFM = """{% if tools %}List of tools: {{ tools | tojson }}{% endif %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"""


def call(call_id: str, arguments: str = '{"city": "Oslo"}', name: str = "weather") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(*calls: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """An assistant's message with calls, and the results in the opposite order: R1 is that of the first call."""
    results = [{"role": "tool", "tool_call_id": c["id"], "content": f"R{i + 1}"} for i, c in enumerate(calls)]
    return [{"role": "assistant", "content": None, "tool_calls": list(calls), **fields}, *results[::-1]]


USER = [{"role": "user", "content": "Weather?"}]
LONG_ID = "call_0123456789abcdef"

Tokenizer = Callable[..., ChatTokenizer]


@pytest.fixture
def tokenizer(byte_level: Any) -> Tokenizer:
    """A tokenizer with a Jinja template, or with one of mlx-lm's programs."""

    def make(template: Any, writes: str = "hermes", **options: Any) -> ChatTokenizer:
        inner = copy.deepcopy(inside.tokenizer(byte_level))
        program = template if callable(template) else None
        inner.chat_template = None if program else template
        wrapper = TokenizerWrapper(inner, BPEStreamingDetokenizer, chat_template=program, **options)
        return chat_tokenizer(wrapper, FORMATS[writes])

    return make


def render(tokenizer: ChatTokenizer, messages: list[Any], tools: Any = None, **variables: Any) -> str:
    return tokenizer.decode(tokenizer.render(Conversation(template_messages(messages), variables, tools)))


def count_attempts(tokenizer: ChatTokenizer, messages: list[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the template runs until one rendering is accepted."""
    attempts = []
    original = tokenizer.model.apply_chat_template

    def counting(*args: Any) -> list[int]:
        attempts.append(args)
        return original(*args)

    monkeypatch.setattr(tokenizer.model, "apply_chat_template", counting)
    tokenizer.render(Conversation(template_messages(messages)))
    return len(attempts)


# -- tools ------------------------------------------------------------------------------------------------------


def test_tools_reach_the_template(tokenizer: Tokenizer) -> None:
    text = render(tokenizer(HERMES), USER, TOOLS)
    assert text == f"<tools>{''.join(json.dumps(tool) for tool in TOOLS)}</tools>[user]Weather?"


@pytest.mark.parametrize("tools", [None, []])
def test_without_tools_the_template_sees_none(tokenizer: Tokenizer, tools: Any) -> None:
    assert render(tokenizer(HERMES), USER, tools) == "[user]Weather?"


def test_tools_that_a_template_would_not_read_stand_in_the_system_message(tokenizer: Tokenizer) -> None:
    without = tokenizer("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    text = render(without, USER, TOOLS)
    assert text.startswith("[system]") and text.endswith("[user]Weather?")
    for tool in TOOLS:
        assert text.count(f"\n{json.dumps(tool['function'])}\n") == 1
    assert render(without, USER) == "[user]Weather?"


def test_of_named_templates_the_one_for_tools_is_used_when_there_are_some(tokenizer: Tokenizer) -> None:
    named = tokenizer({"default": "plain", "tool_use": HERMES, "rag": "{{ documents }}"})
    assert named.knows("tools") and not named.knows("documents")
    assert render(named, USER) == "plain"
    assert render(named, USER, TOOLS).startswith("<tools>")


def test_named_templates_of_which_none_that_would_be_used_shows_tools_get_them_as_text(tokenizer: Tokenizer) -> None:
    text = render(tokenizer({"default": HERMES.replace("tools", "nothing"), "agent": HERMES}), USER, TOOLS)
    assert text.startswith("[system]") and json.dumps(TOOLS[0]["function"]) in text


# -- calls ------------------------------------------------------------------------------------------------------


def test_arguments_are_written_as_json_once_and_the_template_runs_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [*USER, *turn(call(LONG_ID, '{"city": "Tromsø", "days": [1, null]}'))]
    hermes = tokenizer(HERMES)
    expected = '<tool_call>{"name": "weather", "arguments": {"city": "Tromsø", "days": [1, null]}}</tool_call>'
    assert render(hermes, messages) == f"[user]Weather?[assistant]{expected}[tool]R1"
    assert count_attempts(hermes, messages, monkeypatch) == 1


def test_a_custom_call_is_a_call_of_a_function_of_one_string(tokenizer: Tokenizer) -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    assert '{"name": "sql", "arguments": {"input": "SELECT 1"}}' in render(tokenizer(HERMES), [*USER, *turn(custom)])


def test_a_template_that_joins_arguments_to_text_gets_them_as_text(tokenizer: Tokenizer) -> None:
    assert render(tokenizer(JOINED), turn(call("a", '{"city":"Oslo"}'))) == '<args>{"city": "Oslo"}'


@pytest.mark.parametrize("arguments", ["(call.function.arguments | tojson)", "call.function.arguments"])
def test_a_template_that_wants_ids_of_nine_alphanumerics_gets_them_alike_in_calls_and_results(
    tokenizer: Tokenizer, arguments: str
) -> None:
    text = render(tokenizer(MISTRAL.replace("ARGUMENTS", arguments)), [*USER, *turn(call(LONG_ID), call("b"))])
    found = re.fullmatch(
        r"\[INST\]Weather\?\[TOOL_CALLS\](\w{9}):weather{.*?}\[TOOL_CALLS\](\w{9}):weather{.*?}"
        r"\[TOOL_RESULTS\](\w{9}):R2\[TOOL_RESULTS\](\w{9}):R1",
        text,
    )
    assert found is not None
    first, second, of_second, of_first = found.groups()
    assert (first, second) == (of_first, of_second) and first != second


def test_short_ids_do_not_change_as_the_conversation_grows_and_those_that_fit_are_kept(tokenizer: Tokenizer) -> None:
    mistral = tokenizer(MISTRAL.replace("ARGUMENTS", "(call.function.arguments | tojson)"))
    short = render(mistral, [*USER, *turn(call("Abc123xyz"))])
    assert "[TOOL_CALLS]Abc123xyz:" in short and "[TOOL_RESULTS]Abc123xyz:" in short
    before = [*USER, *turn(call("Abc123xyz")), *USER, *turn(call(LONG_ID))]
    assert render(mistral, [*before, *USER, *turn(call("other"))]).startswith(render(mistral, before))


def test_kimi_s_ids_are_names_and_numbers_counted_through_the_conversation(tokenizer: Tokenizer) -> None:
    messages = [*USER, *turn(call("a"), call("b", name="time")), *USER, *turn(call("a"))]
    assert render(tokenizer(KIMI), messages) == (
        '<|tool_calls_section_begin|>functions.weather:0|{"city": "Oslo"};functions.time:1|{"city": "Oslo"};'
        "time: Return of functions.time:1=R2;weather: Return of functions.weather:0=R1;"
        '<|tool_calls_section_begin|>functions.weather:2|{"city": "Oslo"};weather: Return of functions.weather:2=R1;'
    )


def test_malformed_arguments_are_wrapped_where_a_template_iterates_over_them(tokenizer: Tokenizer) -> None:
    messages = turn(call("a", '{"city": "Os'), call("b"))
    assert render(tokenizer(GLM), messages) == (
        '<tool_call>weather<arg_key>arguments</arg_key><arg_value>{"city": "Os</arg_value></tool_call>'
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
    )


def test_malformed_arguments_stay_as_they_were_where_a_template_takes_them(tokenizer: Tokenizer) -> None:
    assert render(tokenizer(JOINED), turn(call("a", '{"city": "Os'))) == '<args>{"city": "Os'


def test_parallel_calls_go_one_by_one_where_a_template_wants_one_at_a_time(tokenizer: Tokenizer) -> None:
    messages = [*USER, *turn(call("a", '{"n": 1}'), call("b", '{"n": 2}'), content="Both."), *USER]
    assert render(tokenizer(LLAMA), messages) == '[Weather?][Both.|weather{"n": 2}][R2][|weather{"n": 1}][R1][Weather?]'


def test_parallel_calls_go_one_by_one_where_a_template_would_drop_all_but_the_first(tokenizer: Tokenizer) -> None:
    messages = [*USER, *turn(call("a", '{"n": 1}'), call("b", '{"n": 2}'), thinking="Hm."), *USER]
    assert render(tokenizer(GPT_OSS), messages) == (
        '<user>Weather?<analysis>Hm.<to=weather>{"n": 2}<result>R2<analysis><to=weather>{"n": 1}<result>R1'
        "<user>Weather?"
    )


def test_a_template_that_reads_content_only_gets_calls_as_the_model_writes_them(tokenizer: Tokenizer) -> None:
    messages = [*USER, *turn(call("a", '{"city": "Oslo", "now": true}'), content="Let me see.")]
    for format, written in (
        ("hermes", '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "now": true}}\n</tool_call>'),
        ("lfm2", '<|tool_call_start|>[weather(city="Oslo", now=True)]<|tool_call_end|>'),
        ("mistral", '[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "now": true}'),
    ):
        text = render(tokenizer(LFM, writes=format), messages)
        assert text == f"[user]Weather?[assistant]Let me see.\n{written}[tool]R1"


def test_a_call_written_for_lfm2_is_one_that_mlx_lm_reads(tokenizer: Tokenizer) -> None:
    from mlx_lm.tool_parsers import pythonic

    arguments = {"city": 'O\'slo "x"\n', "days": [1, 2.5], "now": None, "deep": {"a": False}}
    text = render(tokenizer(LFM, writes="lfm2"), [*USER, *turn(call("a", json.dumps(arguments)))])
    written = text.split(pythonic.tool_call_start)[1].split(pythonic.tool_call_end)[0]
    parsed = pythonic.parse_tool_call(written)
    assert parsed == {"name": "weather", "arguments": arguments} or parsed == [
        {"name": "weather", "arguments": arguments}
    ]


def test_a_template_that_refuses_every_form_is_quoted_with_what_it_said_first(tokenizer: Tokenizer) -> None:
    says = """{% for call in messages[1].tool_calls %}
    {{ raise_exception('first' if call.id == 'long_id' and call.function.arguments is mapping else 'later') }}
    {% endfor %}"""
    with pytest.raises(BadRequest, match="does not accept these messages: first"):
        render(tokenizer(says), [*USER, *turn(call("long_id"), call("b", "{oops"))])


def test_rendering_changes_nothing_of_what_it_was_given(tokenizer: Tokenizer) -> None:
    messages = template_messages([*USER, *turn(call(LONG_ID, "{oops"), call("b"), content="x", thinking="Hm.")])
    before = copy.deepcopy(messages)
    for template in (HERMES, MISTRAL.replace("ARGUMENTS", "'x'"), KIMI, GLM, LLAMA, GPT_OSS, LFM):
        tokenizer(template).render(Conversation(messages))
        assert messages == before


# -- reasoning --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for m in messages %}{{ m.reasoning_content }}{% endfor %}", "because"),
        ("{% for m in messages %}{{ m['reasoning'] }}{% endfor %}", "because"),
        ('{% for m in messages %}{% if "thinking" in m %}{{ m.thinking }}{% endif %}{% endfor %}', "because"),
        ("{% for m in messages %}{{ m.get('reasoning') or m.reasoning_content }}{% endfor %}", "because"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}{{ enable_thinking }}", "x"),
    ],
    ids=["DeepSeek", "reasoning", "gpt-oss", "either", "none"],
)
def test_earlier_reasoning_reaches_the_template_under_the_name_that_it_reads(
    tokenizer: Tokenizer, sent: str, template: str, expected: str
) -> None:
    assert render(tokenizer(template), [{"role": "assistant", "content": "x", sent: "because"}]) == expected


def test_a_template_that_takes_no_content_beside_reasoning_and_calls_gets_both_as_reasoning(
    tokenizer: Tokenizer,
) -> None:
    messages = turn(call("a"), content="Let me see.", reasoning_content="Hm.")
    assert render(tokenizer(GPT_OSS), messages) == '<analysis>Hm.\n\nLet me see.<to=weather>{"city": "Oslo"}<result>R1'


# -- whole templates --------------------------------------------------------------------------------------------


def test_the_built_in_template_shows_tools_calls_results_and_reasoning(tokenizer: Tokenizer) -> None:
    messages = [*USER, *turn(call("a"), reasoning="Hm.")]
    text = render(tokenizer(chat.TEMPLATE), messages, TOOLS)
    system = chat.tools_text(TOOLS)
    written = chat.tool_call_text("weather", {"city": "Oslo"})
    assert text == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
        f"<think>\nHm.\n</think>\n\n{written}<|im_end|>\n<|im_start|>user\n<tool_response>\nR1\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief."}]], ids=["alone", "with a system"])
def test_mlx_lm_s_program_for_deepseek_shows_tools_and_calls(tokenizer: Tokenizer, system: list[Any]) -> None:
    deepseek = tokenizer(deepseek_v32.apply_chat_template)
    assert deepseek.knows("tools") and deepseek.template_variables is None
    text = render(deepseek, [*system, *USER, *turn(call("a"), call("b"))], TOOLS)
    for tool in TOOLS:
        assert text.count(json.dumps(tool["function"])) == 1
    assert text.count('<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>') == 2
    assert "<result>R2</result>\n<result>R1</result>" in text and ("Be brief." in text) == bool(system)


def test_mlx_lm_s_program_survives_malformed_arguments(tokenizer: Tokenizer) -> None:
    text = render(tokenizer(deepseek_v32.apply_chat_template), [*USER, *turn(call("a", "{oops"))])
    assert '<｜DSML｜parameter name="arguments" string="true">{oops</｜DSML｜parameter>' in text


@pytest.mark.parametrize(
    ("variables", "end"),
    [
        ({"enable_thinking": True}, "<｜Assistant｜><think>"),
        ({"enable_thinking": False}, "<｜Assistant｜></think>"),
        ({"thinking": True, "reasoning_effort": "high"}, "<｜Assistant｜><think>"),
        ({"thinking": False}, "<｜Assistant｜></think>"),
        ({"thinking": True, "enable_thinking": False}, "<｜Assistant｜></think>"),
    ],
    ids=str,
)
def test_mlx_lm_s_program_is_told_of_thinking_and_spared_what_it_does_not_know(
    tokenizer: Tokenizer, variables: dict[str, Any], end: str
) -> None:
    assert render(tokenizer(deepseek_v32.apply_chat_template), USER, **variables).endswith(end)


def test_a_program_is_preferred_to_the_template_of_the_checkpoint(tokenizer: Tokenizer) -> None:
    made = tokenizer(deepseek_v32.apply_chat_template)
    inside.tokenizer(inside.tokenizer(made)).chat_template = "{{ mood }}"
    assert made.template_variables is None
    assert render(made, USER).startswith("<｜begin▁of▁sentence｜>")


# -- the end of a prompt ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
@pytest.mark.parametrize("end", ["<think>\n", "<think>\n\n</think>\n\n", "assistant\n", "<|channel|>analysis"])
def test_the_end_of_a_prompt_is_text_whatever_comes_before(request: pytest.FixtureRequest, kind: str, end: str) -> None:
    made = chat_tokenizer(request.getfixturevalue(kind))
    for before in ("", "Привет, 你好 🙂🚀" * 20, "word " * 50):
        assert made.prompt_end(made.encode(before + end)).endswith(end)


def test_the_end_of_an_empty_prompt_is_empty(byte_level: Any) -> None:
    assert chat_tokenizer(byte_level).prompt_end([]) == ""
