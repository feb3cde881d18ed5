"""The variables that a chat template reads, apart from the conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jinja2
import jinja2.meta
from jinja2 import nodes

from ..errors import BadRequest

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
