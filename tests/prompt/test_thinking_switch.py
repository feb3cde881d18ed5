"""What turns a model's reasoning on and off is found by asking its template both ways."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.prompt.template import ChatTokenizer
from localai_shim.prompt.template_traits import ThinkingSwitch
from localai_shim.testing import ScriptedTokenizer
from localai_shim.testing.model.replies import ScriptedModel

MESSAGES = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
WORDS: Any = ("/think", "/no_think")


def switch_of(source: str) -> ThinkingSwitch | None:
    tokenizer = ScriptedTokenizer(chat_template=MESSAGES + source)
    return ChatTokenizer(ScriptedModel("scripted", None, tokenizer)).thinking_switch


@pytest.mark.parametrize(
    ("source", "on", "off"),
    [
        ("{% if enable_thinking %}<think>{% endif %}", {"enable_thinking": True}, {"enable_thinking": False}),
        (
            "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
            {"enable_thinking": True},
            {"enable_thinking": False},
        ),
        (
            "{% if thinking or enable_thinking %}<think>{% else %}</think>{% endif %}",
            {"enable_thinking": True, "thinking": True},
            {"enable_thinking": False, "thinking": False},
        ),
        (
            "{% if thinking_mode == 'disabled' %}</mm:think>{% elif thinking_mode == 'enabled' %}<mm:think>{% endif %}",
            {"thinking_mode": "enabled"},
            {"thinking_mode": "disabled"},
        ),
        ("{{ '</t>' if reasoning is false else '<t>' }}", {"reasoning": True}, {"reasoning": False}),
        (
            "{% if reasoning_effort not in ['high', 'low', 'no_think'] %}{{ raise_exception('which?') }}{% endif %}"
            "{{ '</t>' if reasoning_effort == 'no_think' else '<t>' }}",
            {"reasoning_effort": "high"},
            {"reasoning_effort": "no_think"},
        ),
        (
            "{{ '<t></t>' if reasoning_effort in ['low', 'minimal'] }}",
            {"reasoning_effort": "high"},
            {"reasoning_effort": "minimal"},
        ),
        ("{{ '<t></t>' if thinking_budget == 0 }}", {"thinking_budget": -1}, {"thinking_budget": 0}),
    ],
)
def test_the_variable_that_changes_the_prompt_is_the_switch(source: str, on: Any, off: Any) -> None:
    assert switch_of(source) == ThinkingSwitch(on, off)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "{% if enable_thinking %}{% endif %}",  # is read, and changes nothing
        "{{ thinking_mode or '' }}{{ raise_exception('no') if thinking_mode }}",
        "{{ range(1000000) | random }}",
        "{% if enable_thinking %}{% endif %}{{ range(1000000) | random }}",
        "{{ strftime_now('%f') }}",
    ],
)
def test_a_template_whose_prompts_stay_the_same_has_none(source: str) -> None:
    assert switch_of(source) is None


@pytest.mark.parametrize(
    "template", ["Reasoning: {{ reasoning_effort }}\n" + MESSAGES, MESSAGES + "{{ reasoning_effort }}"]
)
def test_an_effort_that_is_only_repeated_is_no_switch(template: str) -> None:
    tokenizer = ScriptedTokenizer(chat_template=template)
    assert ChatTokenizer(ScriptedModel("scripted", None, tokenizer)).thinking_switch is None


def test_words_in_the_system_message_are_one_where_they_are_looked_for() -> None:
    source = "{% set off = '/no_think' in messages[0].content %}<think>{{ '</think>' if off }}"
    assert switch_of(source) == ThinkingSwitch(words=WORDS)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], [{"role": "system", "content": "/no_think"}]),
        (
            [{"role": "user", "content": "Hi"}],
            [{"role": "system", "content": "/no_think"}, {"role": "user", "content": "Hi"}],
        ),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            [{"role": "system", "content": "Be brief.\n/no_think"}, {"role": "user", "content": "Hi"}],
        ),
        (
            [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}],
            [
                {
                    "role": "system",
                    "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "\n/no_think"}],
                }
            ],
        ),
    ],
)
def test_a_word_stands_at_the_end_of_the_system_message(messages: Any, told: Any) -> None:
    given = [dict(message) for message in messages]
    assert ThinkingSwitch(words=WORDS).messages(messages, False) == told
    assert messages == given


def test_where_there_is_a_variable_messages_stay_as_they_are() -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    switch = ThinkingSwitch({"thinking": True}, {"thinking": False})
    assert switch.messages(messages, False) == messages
    assert (switch.variables(True), switch.variables(False)) == ({"thinking": True}, {"thinking": False})


def test_variables_that_a_caller_gives_say_what_is_wanted() -> None:
    switch = ThinkingSwitch({"thinking_mode": "enabled"}, {"thinking_mode": "disabled"})
    given: list[dict[str, object]] = [{"thinking_mode": "disabled"}, {"thinking_mode": "adaptive"}, {}]
    assert [switch.wanted_by(variables) for variables in given] == [False, True, None]
