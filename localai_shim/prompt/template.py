"""A model's chat template and tokenizer, as the endpoints use them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import jinja2
import jinja2.meta

from ..errors import BadRequest
from ..output.detokenizer import ByteDetokenizer
from ..output.token_bytes import TokenBytes

# What transformers and mlx-lm hand to a template themselves.
_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize"}
_ALWAYS_KNOWN = {"enable_thinking", "thinking"}  # a model that cannot think satisfies these as it is


class Tokenizing(Protocol):
    """What an adapter's model offers for prompts."""

    @property
    def tokenizer(self) -> Any:
        """mlx-lm's `TokenizerWrapper`."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def apply_chat_template(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> list[int]: ...


class ChatTokenizer:
    """Text to tokens and back for one model. May be used from several threads.

    Args:
        model: the adapter's model, of which only `tokenizer`, `encode` and `apply_chat_template` are used.
    """

    def __init__(self, model: Tokenizing) -> None:
        self._model = model
        self._tokenizer = tokenizer = model.tokenizer
        self.token_bytes = TokenBytes(tokenizer)

    def encode(self, text: str) -> list[int]:
        """A plain prompt, with the beginning-of-sequence token where the tokenizer adds one.

        Raises:
            UnicodeEncodeError: the text holds lone surrogates.
        """
        text.encode()
        return self._model.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a prompt given as token ids."""
        return str(self._tokenizer.decode(list(ids)))

    def detokenizer(self, *, continuing: bool = False) -> Any:
        """A fresh streaming detokenizer.

        Args:
            continuing: the text goes on where a prompt ended. mlx-lm's detokenizers drop the space that a text
                begins with, so they are shown a letter first.
        """
        if self.token_bytes.kind == "byte_level":
            return ByteDetokenizer(self.token_bytes)
        detokenizer = self._tokenizer.detokenizer
        if continuing:
            for token_id in self._letter:
                detokenizer.add_token(token_id)
            _ = detokenizer.last_segment
        return detokenizer

    @cached_property
    def _letter(self) -> list[int]:
        ids: list[int] = self._tokenizer.encode("a", add_special_tokens=False)
        return ids

    @cached_property
    def vocabulary_size(self) -> int:
        return len(self._tokenizer)

    @cached_property
    def template_variables(self) -> frozenset[str] | None:
        """Names that the chat template reads; None when it is a program whose variables nobody can list."""
        template = getattr(self._tokenizer, "chat_template", None)
        if isinstance(template, dict):
            template = "\n".join(str(t) for t in template.values())
        if not isinstance(template, str):
            return None
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"])
        try:
            names = jinja2.meta.find_undeclared_variables(environment.parse(_without_generation_tags(template)))
        except jinja2.TemplateError:
            return None
        return frozenset(names)

    @property
    def knows_developer(self) -> bool:
        """The template has a developer role of its own."""
        return "developer" in str(getattr(self._tokenizer, "chat_template", None) or "")

    def knows(self, variable: str) -> bool:
        """Whether the chat template reads this variable, as far as anybody can tell."""
        known = self.template_variables
        return known is None or variable in known

    def check_variables(self, names: Sequence[str], param: str) -> None:
        """Refuse template arguments that nothing would read.

        Raises:
            BadRequest: naming the argument and those that the template knows.
        """
        known = self.template_variables
        for name in names:
            if name in _RESERVED:
                raise BadRequest(f"'{name}' is set by this client.", param=f"{param}.{name}", code="invalid_value")
            if known is not None and name not in known and name not in _ALWAYS_KNOWN:
                options = ", ".join(sorted((known | _ALWAYS_KNOWN) - _RESERVED))
                raise BadRequest(
                    f"This model's chat template does not know '{name}'. Variables that it reads: {options}.",
                    param=f"{param}.{name}",
                    code="unknown_parameter",
                )

    def render(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> list[int]:
        """Prompt tokens for a conversation, up to where the assistant speaks.

        Raises:
            BadRequest: the model has no chat template, or the template refuses this conversation.
        """
        if not self._tokenizer.has_chat_template:
            raise BadRequest(
                "This model has no chat template: use client.completions, or a model tuned for chat.",
                param="messages",
                code="unsupported_value",
            )
        try:
            return self._model.apply_chat_template(messages, variables)
        except Exception as error:  # templates raise what they like, TypeError from a filter included
            raise BadRequest(
                f"This model's chat template does not accept these messages: {error}",
                param="messages",
                code="invalid_messages",
            ) from error


def _without_generation_tags(template: str) -> str:
    """Drop transformers' own {% generation %} tags, which plain Jinja cannot parse."""
    for tag in ("generation", "endgeneration"):
        for start in ("{%-", "{%"):
            for end in ("-%}", "%}"):
                template = template.replace(f"{start} {tag} {end}", "")
    return template
