"""Traits of a chat template: the variables that it reads, the token that ends an assistant's turn, and the
switches by which it is told whether the model is to think, and how much.

The switches are found by rendering a question both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

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
            text = f"This model's chat template does not know '{name}'. Variables that it reads: {options}."
            raise BadRequest(text, param=f"{param}.{name}", code="unknown_parameter")


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


T = TypeVar("T")
Render = Callable[[list[Message], Mapping[str, object]], str | None]
"""The prompt of a conversation with these variables; None where the template refuses it."""

_WORD = "\N{MIDDLE DOT}"  # a question, behind which prompts of a model that thinks and of one that does not differ
_SWITCHES = ("enable_thinking", "thinking", "reasoning")
"""Variables that are true or false."""
_WAYS: tuple[tuple[str, object, object], ...] = (
    ("thinking_mode", "enabled", "disabled"),
    ("reasoning_effort", "high", "no_think"),
    ("reasoning_effort", "high", "minimal"),
    ("thinking_budget", -1, 0),
)
"""Other variables, with what means that the model is to think, and that it is not."""
_WORDS = ("/think", "/no_think")
"""Words in the system message that mean that the model is to think, and that it is not."""
EFFORT_VARIABLES = ("reasoning_effort", "thinking_effort", "reasoning_strength")
"""Names of templates for the effort."""


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Settings that tell a template whether the model is to think.

    Attributes:
        on, off: variables that say so.
        words: for the end of the system message, which say so.
    """

    on: Mapping[str, object] = field(default_factory=dict[str, object])
    off: Mapping[str, object] = field(default_factory=dict[str, object])
    words: tuple[str, str] | None = None

    def variables(self, wanted: bool) -> Mapping[str, object]:
        """The variables that say that the model is to think, or is not."""
        return self.on if wanted else self.off

    def messages(self, messages: list[Message], wanted: bool) -> list[Message]:
        """A conversation whose system message says so, where no variable does."""
        if self.words is None:
            return messages
        word = self.words[0 if wanted else 1]
        head = messages[0] if messages and messages[0]["role"] in ("system", "developer") else None
        if head is None:
            return [{"role": "system", "content": word}, *messages]
        content = head.get("content") or ""
        if isinstance(content, str):
            return [{**head, "content": f"{content}\n{word}".lstrip()}, *messages[1:]]
        return [{**head, "content": [*content, {"type": "text", "text": f"\n{word}"}]}, *messages[1:]]

    def wanted_by(self, variables: Mapping[str, object]) -> bool | None:
        """Read from a caller's variables whether the model is to think; None: they say nothing of it."""
        for name, off in self.off.items():
            if name in variables:
                return variables[name] != off
        return None


def find_thinking_switch(render: Render, knows: Callable[[str], bool]) -> ThinkingSwitch | None:
    """The switch of a template; None: it has none.

    Args:
        knows: the template may read this variable.
    """
    question: Message = {"role": "user", "content": _WORD}

    def told(name: str, value: object) -> str | None:
        return render([question], {name: value})

    def behind(name: str, value: object) -> str | None:
        return _behind(told(name, value), str(value))

    def behind_word(word: str) -> str | None:
        return _behind(render([{"role": "system", "content": word}, question], {}), word)

    switches = [name for name in _SWITCHES if knows(name) and _differ(partial(told, name), True, False)]
    if switches:
        return ThinkingSwitch(dict.fromkeys(switches, True), dict.fromkeys(switches, False))
    for name, on, off in _WAYS:
        if knows(name) and _differ(partial(behind, name), on, off):
            return ThinkingSwitch({name: on}, {name: off})
    return ThinkingSwitch(words=_WORDS) if _differ(behind_word, *_WORDS) else None


def _differ(prompt: Callable[[T], str | None], on: T, off: T) -> bool:
    """The template makes other prompts of these two values, and always the same of one: no time, nothing random."""
    first, other = prompt(on), prompt(off)
    return first is not None and other is not None and first != other and first == prompt(on)


def _behind(prompt: str | None, told: str) -> str | None:
    """Text after the question, because the text before it may contain an effort.

    Args:
        told: the value that the template was given, and may only repeat there.
    """
    return None if prompt is None else prompt.rpartition(_WORD)[2].replace(told, "")
