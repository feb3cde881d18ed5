"""Templates that would take gigabytes or minutes: they are refused at once, as they are rendered or looked at."""

from __future__ import annotations

from typing import Any

import pytest
from mlx_lm.utils import load_tokenizer

from localai_shim.models.chat_templates import limited_template
from localai_shim.models.text import render
from localai_shim.prompt.template_traits import read_variables
from tests import inside
from tests.tiny import tiny

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
TOO_LARGE = [
    "{{ 'x' * 10000000000 }}",
    "{{ ['a'] * 10000000000 }}",
    "{{ 10 ** 100000000 }}",
    "{% set ns = namespace(x=7) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{{ 'x'.ljust(9999999999) }}",
    "{{ 'x' | center(9999999999) }}",
    "{{ 'x' | indent(9999999999) }}",
    "{{ messages | tojson(indent=9999999999) }}",
    "{{ '%09999999999d' % 1 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '%9999999999s' | format(1) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 9999999999) }}",
    "{{ ('a' * 50000) | replace('a', 'a' * 50000) }}",
    "{{ ('a' * 50000).replace('a', 'a' * 50000) }}",
    "{% set x = 'a' * 50000 %}{{ ([x] * 50000) | join }}",
    "{% set x = 'a' * 50000 %}{{ x.join([''] * 50000) }}",
    "{% set x = 'a' * 50000 %}{% for i in range(50000) %}{{ x }}{% endfor %}",
    "{% macro f() %}{% for i in range(50000) %}{{ 'a' * 50000 }}{% endfor %}{% endmacro %}{{ f() }}",
]
SMALL = [
    ("{{ 'a' ~ 1 ~ none }}{{ ('x' ~ 2) | upper }}", "a1NoneX2"),
    ("{{ 'a' + 'b' }}{{ 2 * 3 }}{{ '-' * 3 }}{{ 2 ** 5 }}{{ 7 % 4 }}", "ab6---323"),
    ("{{ '%s-%5d' % ('a', 3) }}{{ '%s' | format('b') }}{{ '{:>3}'.format(1) }}", "a-    3b  1"),
    ("{% macro f(x) %}<{{ x ~ '!' }}>{% endmacro %}{{ f('1') }}{% set z %}a{{ 1 }}{% endset %}{{ z }}", "<1!>a1"),
    ("{{ ['a', 'b'] | join(', ') }}{{ 'a\\n b' | indent(2) }}{{ 'x'.replace('x', 'yy') }}", "a, ba\n   byy"),
    ("{{ 1700000000 | default(1) }}{{ 'a,b'.split(',', 1700000000)[1] }}", "1700000000b"),
    ("{{ \"it's\" ~ 'a\\\\b' }}", "it'sa\\b"),
]
SMALL_IDS = ["concatenated", "operators", "formats", "macros", "filters", "large numbers", "quotes"]


def tokenizer(template: str) -> Any:
    made = load_tokenizer(tiny("qwen3"))
    inside.tokenizer(made).chat_template = template
    return made


@pytest.mark.timeout(60)
@pytest.mark.parametrize("template", TOO_LARGE)
def test_what_would_be_too_large_is_not_made(template: str) -> None:
    its = tokenizer(template)
    assert limited_template(inside.tokenizer(its), None)
    with pytest.raises(ValueError, match="template"):
        render(its, MESSAGES, {}, None, False)
    assert read_variables(template) is not None


@pytest.mark.parametrize(("template", "text"), SMALL, ids=SMALL_IDS)
def test_all_else_makes_what_it_makes_for_transformers(template: str, text: str) -> None:
    its = tokenizer(template)
    assert limited_template(inside.tokenizer(its), None)
    assert render(its, MESSAGES, {}, None, False) == text
    assert inside.tokenizer(its).apply_chat_template(MESSAGES, tokenize=False) == text


def test_variables_are_those_that_a_template_with_constants_reads() -> None:
    source = "{{ 'a' * 99999999999 }}{{ one if true else 'x' * 9 }}{{ 0 or two }}{{ '' or three }}{{ 1.5 and four }}"
    assert read_variables(source) == {"one", "two", "three", "four"}
