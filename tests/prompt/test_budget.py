"""Trials of a chat template cost little, however long the template takes.

Costs are in CPU time of the thread: these tests do not need a quiet machine.
"""

from __future__ import annotations

import copy
import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper

from localai_shim.models.chat_templates import MAX_PROMPT_CHARACTERS, find_formats
from localai_shim.models.text import TextTokenizer
from localai_shim.prompt.fit.form import Form
from localai_shim.prompt.template import ChatTokenizer
from localai_shim.threads import deadline
from localai_shim.threads.deadline import Budget, check
from tests import inside
from tests.preparing import LOOPS
from tests.prompt.template_kinds import CONTENT_ONLY, STRICT

SECONDS = 0.05
UNTIL_STOPPED = 1.0
"""Seconds of CPU time in which a template that never ends has noticed that the budget is spent."""


def make(tokenizer: Any, template: str) -> TextTokenizer:
    inner = copy.deepcopy(inside.tokenizer(tokenizer))
    inner.chat_template = template
    return TextTokenizer(TokenizerWrapper(inner, BPEStreamingDetokenizer), cuts_anywhere=True)


# -- budgets ----------------------------------------------------------------------------------------------------------


def forever() -> str:
    while True:
        check()


def test_what_costs_less_is_found(caplog: pytest.LogCaptureFixture) -> None:
    assert Budget(60).find("a", lambda: "found", lambda: "otherwise") == "found"
    assert not caplog.messages


def test_what_costs_more_is_given_up_and_so_is_all_that_comes_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    budget, asked = Budget(SECONDS), list[str]()
    assert budget.find("the first", forever, lambda: "otherwise") == "otherwise"
    assert budget.find("the second", lambda: asked.append("tried") or "found", lambda: "otherwise") == "otherwise"
    assert not asked
    assert caplog.messages == [
        "a chat template takes long: it was tried for 0.05 s of CPU time, and the first was not found out"
    ]


def test_time_in_which_the_thread_waits_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is one on which the wall clock runs on."""
    clocks = SimpleNamespace(monotonic=itertools.count(0, 1000).__next__, thread_time=time.thread_time)
    monkeypatch.setattr(deadline, "time", clocks)
    assert Budget(60).find("a", lambda: [check() for _ in range(9)], list) == [None] * 9


def test_what_is_found_out_for_something_else_is_paid_for_once_and_ends_that_too() -> None:
    outer, inner = Budget(SECONDS), Budget(60)
    found = outer.find("a", lambda: inner.find("b", forever, lambda: "inner"), lambda: "outer")
    assert found == "outer"
    assert inner.find("b", lambda: "found", lambda: "inner") == "found"


def test_nothing_is_limited_afterwards() -> None:
    Budget(SECONDS).find("a", forever, str)
    check()


# -- templates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "with_tools"),
    [(LOOPS + STRICT, None), (LOOPS + "{{ tools }}" + STRICT, Form())],
    ids=["without tools", "with tools"],
)
def test_a_template_that_never_ends_gets_conversations_as_they_come(
    byte_level: Any, template: str, with_tools: Form | None, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = ChatTokenizer(make(byte_level, template), budget=Budget(SECONDS))
    began = time.thread_time()
    tokenizer.prepare()
    assert (tokenizer.fitting.without_tools, tokenizer.fitting.with_tools) == (Form(), with_tools)
    assert tokenizer.thinking_switch is None and not tokenizer.takes("tools", "x") and not tokenizer.is_quick
    assert not tokenizer.knows_developer
    assert time.thread_time() - began < SECONDS + UNTIL_STOPPED
    [line] = caplog.messages
    assert "the form of conversations that it takes best" in line


def test_formats_of_a_template_that_never_ends_are_found_in_its_source(byte_level: Any) -> None:
    model = make(byte_level, LOOPS + "{{ tools }}<minimax:tool_call>" + STRICT)
    began = time.thread_time()
    assert find_formats(model.tokenizer, budget=Budget(SECONDS)).tools is not None
    nothing = make(byte_level, LOOPS + "{{ tools }}" + STRICT)  # which is looked for in a prompt, too
    assert not find_formats(nothing.tokenizer, budget=Budget(SECONDS)).taught
    assert time.thread_time() - began < 2 * SECONDS + UNTIL_STOPPED


@pytest.mark.parametrize("padding", [0, MAX_PROMPT_CHARACTERS])
def test_signs_of_formats_are_looked_for_in_the_first_part_of_a_long_prompt(byte_level: Any, padding: int) -> None:
    """A template may make a prompt of hundreds of megabytes, which each of fifty signs would be looked for in."""
    model = make(byte_level, "{{ ' ' * " + str(padding) + " }}{{ '<mini' ~ 'max:tool_call>' }}")
    assert find_formats(model.tokenizer).taught == (padding == 0)


def test_a_template_without_loops_is_not_rendered_on_and_on(byte_level: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A string that is doubled takes some milliseconds and is no loop: nothing can stop a rendering amid it."""
    rendered: list[float] = []
    render = TextTokenizer.apply_chat_template

    def counting(*args: Any, **more: Any) -> Any:
        began = time.thread_time()
        try:
            return render(*args, **more)
        finally:
            rendered.append(time.thread_time() - began)

    monkeypatch.setattr(TextTokenizer, "apply_chat_template", counting)
    model = make(byte_level, "{% set s = messages[0].role %}" + "{% set s = s ~ s %}" * 21 + STRICT)
    tokenizer = ChatTokenizer(model, budget=Budget(SECONDS))
    tokenizer.prepare()
    assert tokenizer.fitting.without_tools == Form()
    assert sum(rendered[:-1]) < SECONDS  # all before the last, which spent the rest


def test_a_prompt_that_is_long_whatever_is_asked_is_not_made_quickly(byte_level: Any) -> None:
    assert ChatTokenizer(make(byte_level, CONTENT_ONLY)).is_quick
    assert not ChatTokenizer(make(byte_level, "{{ 'ab ' * 100000 }}" + CONTENT_ONLY)).is_quick
    assert not ChatTokenizer(make(byte_level, "{% for i in range(99999) %}{% endfor %}" * 9 + CONTENT_ONLY)).is_quick


def test_a_template_that_writes_something_else_each_time_has_no_developer_role(byte_level: Any) -> None:
    tokenizer = ChatTokenizer(make(byte_level, CONTENT_ONLY + "{{ range(100000) | random }}"))
    assert not tokenizer.knows_developer
