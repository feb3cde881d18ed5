"""Chat templates of a model's own, beside those that transformers keeps for everybody."""

from __future__ import annotations

from typing import Any

import pytest
from mlx_lm.utils import load_tokenizer
from transformers.utils import chat_template_utils

from localai_shim.models.chat_templates import _FILTER, limited_template
from localai_shim.models.text import render
from tests import inside
from tests.tiny import tiny

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
LOOP = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
ENDS = ["", "\n", "\n\n", "\r\n", "  ", "\n  ", "end", "{# c #}\n", "{%- if true %}\n{%- endif %}\n", "{{ 'x' -}}\n "]


def tokenizer(template: str) -> Any:
    made = load_tokenizer(tiny("qwen3"))
    inside.tokenizer(made).chat_template = template
    return made


@pytest.mark.parametrize("end", ENDS)
def test_a_limited_template_makes_the_same_text(end: str) -> None:
    its = tokenizer(LOOP + end)
    assert limited_template(inside.tokenizer(its), None)
    plain = inside.tokenizer(its).apply_chat_template(MESSAGES, tokenize=False)
    assert render(its, MESSAGES, {}, None, False) == plain


def test_transformers_makes_the_same_of_a_template_for_everybody_else() -> None:
    its = tokenizer(LOOP + "{% set made = [] %}{{ made.append(1) }}")
    assert render(its, MESSAGES, {}, None, False).startswith("hi\nho\n"), "ours may append to lists"
    kept = chat_template_utils._compile_jinja_template(inside.tokenizer(its).chat_template)
    assert _FILTER not in kept.environment.filters
    with pytest.raises(Exception, match="append"):
        inside.tokenizer(its).apply_chat_template(MESSAGES, tokenize=False)


def test_a_tokenizer_that_renders_in_a_way_of_its_own_is_left_to_it() -> None:
    its = inside.tokenizer(tokenizer(LOOP))
    its.apply_chat_template = lambda messages: "text"
    assert limited_template(its, None) == {}
