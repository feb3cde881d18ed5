"""Traits of a chat template: the variables that it reads, and the token that ends an assistant's turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import jinja2
import jinja2.meta
from jinja2 import nodes

from ..errors import BadRequest
from .history import Message

# What transformers and mlx-lm hand to a template themselves.
_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize"}
_ALWAYS_KNOWN = {"enable_thinking", "thinking"}  # a model that cannot think satisfies these as it is


def read_variables(source: str) -> frozenset[str] | None:
    """Names that a template reads and does not set itself; None where it cannot be parsed."""
    environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"])
    try:
        tree = environment.parse(_without_generation_tags(source))
        for constant in tree.find_all(nodes.Const):  # of which Jinja computes, however long that takes
            constant.value = _small(constant.value)
        names = jinja2.meta.find_undeclared_variables(tree)
    except (jinja2.TemplateError, RecursionError):
        return None
    return frozenset(names)


def _small(value: object) -> object:
    """A value of the same type, as true or false as this one."""
    if isinstance(value, str):
        return value[:1]
    return type(value)(bool(value)) if isinstance(value, int | float) else value


def check_variables(known: frozenset[str] | None, names: Sequence[str], param: str) -> None:
    """Refuse template arguments that nothing would read.

    Args:
        known: variables of the template; None: they cannot be listed.
        names: of the arguments.
        param: the request's field.

    Raises:
        BadRequest: naming the argument and those that the template knows.
    """
    for name in names:
        if name in _RESERVED:
            raise BadRequest.invalid(f"{param}.{name}", f"'{name}' is set by this client.")
        if known is not None and name not in known and name not in _ALWAYS_KNOWN:
            options = ", ".join(sorted((known | _ALWAYS_KNOWN) - _RESERVED))
            raise BadRequest(
                f"This model's chat template does not know '{name}'. Variables that it reads: {options}.",
                param=f"{param}.{name}",
                code="unknown_parameter",
            )


def _without_generation_tags(template: str) -> str:
    """Drop transformers' own {% generation %} tags, which plain Jinja cannot parse."""
    return re.sub(r"\{%-? (?:end)?generation -?%\}", "", template)


_ASKED, _ANSWER, _NEXT = "pencil", "marmalade", "umbrella"


def find_turn_end(
    render: Callable[[list[Message]], str | None],
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str],
    ends: Collection[int],
    added: Mapping[int, str],
    markers: Collection[int],
) -> int | None:
    """The token with which a chat template ends answers, if an answer would not end there.

    Args:
        render: the text of a prompt for messages; None if the template refuses them.
        encode: a text's tokens alone.
        decode: the text of tokens.
        ends: tokens that end a sequence.
        added: tokens that were added to the vocabulary, with their texts.
        markers: those of them that answers contain, such as the end of a thought.

    Returns:
        None if the template writes one of the ends behind an answer, or no token.
    """
    messages: list[Message] = [
        {"role": "user", "content": _ASKED},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _NEXT},
    ]
    text = render(messages) or ""
    behind, _, rest = text.rpartition(_ANSWER)[2].partition(_NEXT)
    if not rest and not text.endswith(_NEXT):
        return None
    ids = encode(behind)
    if any(i in ends for i in ids):
        return None
    for i in ids:
        if i in markers or not decode([i]).strip():
            continue
        return i if i in added else None
    return None
