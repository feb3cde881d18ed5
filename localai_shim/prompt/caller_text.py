"""Keeps the caller's strings text, even where they spell control tokens.

A template puts the caller's strings next to its own control tokens, and the tokenizer cannot tell one from the other.
So what spells a control token is replaced by digits before the template sees it, which no filter of a template changes.
In the rendered text it comes back with a separator in it, another control token, whose id is then taken out again: the
tokenizer sees two pieces of text that are not tokens, and the model sees all the letters.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

from ..media import ProcessedMedia
from .control_tokens import ControlTokens
from .history import Message
from .parts import MediaPart

# A 7 and digits that are none: a number cannot begin inside of another. Random, so that no caller can write it.
_MARK = "7" + "".join(secrets.choice("012345689") for _ in range(20))
_PLACE = re.compile(rf"{_MARK}(\d{{7}})")


class CallerText:
    """Strings of callers that were replaced in one conversation.

    Args:
        tokens: the model's control tokens.
    """

    def __init__(self, tokens: ControlTokens) -> None:
        self._tokens = tokens
        self._replaced: list[str] = []  # with separators
        self._numbers: dict[str, int] = {}
        self._of_template: list[bool] = []  # for each separator in the rendered text: it is not ours

    def mask(self, value: Any) -> Any:
        """The same JSON value, in whose strings and keys nothing spells a control token."""
        if isinstance(value, str):
            return self._mask(value)
        if isinstance(value, MediaPart):
            return value
        if isinstance(value, dict):
            return {self.mask(key): self.mask(item) for key, item in value.items()}
        return [self.mask(item) for item in value] if isinstance(value, list | tuple) else value

    def mask_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Messages of a conversation; roles are not free text."""
        return [{**self.mask(message), "role": message["role"]} for message in messages]

    def restore(self, rendered: str) -> str:
        """The rendered conversation with what was replaced, and separators in it."""
        separator = self._tokens.separator
        parts: list[str] = []
        of_template: list[bool] = []
        for i, part in enumerate(_PLACE.split(rendered)):
            text = self._replaced[int(part)] if i % 2 else part
            parts.append(text)
            if i % 2:
                of_template += [False] * text.count(separator)
            else:
                of_template += [True for found in self._tokens.pattern.findall(text) if found == separator]
        self._of_template = of_template
        return "".join(parts)

    def clean(self, ids: Sequence[int], media: Sequence[ProcessedMedia] = ()) -> list[int]:
        """The tokens of the restored text without the separators.

        Args:
            ids: of the text with media put in.
            media: those, in their order; their placeholders stay as they are.
        """
        separators = iter(self._of_template)
        own = _separators_of(media, ids, self._tokens.separator_id)
        out: list[int] = []
        cut = False
        for at, token_id in enumerate(ids):
            if token_id == self._tokens.separator_id and at not in own and not next(separators, True):
                cut = True
                continue
            out.extend(self._tokens.without_pad(token_id) if cut else (token_id,))
            cut = False
        return out

    # -----------------------------------------------------------------------------------------------------------

    def _mask(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for start, end, cuts in self._tokens.find(text):
            pieces = (text[a:b] for a, b in zip([start, *cuts], [*cuts, end], strict=True))
            parts += [text[at:start], self._number(self._tokens.separator.join(pieces))]
            at = end
        return "".join([*parts, text[at:]]) if parts else text

    def _number(self, text: str) -> str:
        number = self._numbers.setdefault(text, len(self._replaced))
        if number == len(self._replaced):
            self._replaced.append(text)
        return f"{_MARK}{number:07}"


def _separators_of(media: Sequence[ProcessedMedia], ids: Sequence[int], separator_id: int) -> frozenset[int]:
    """Positions of the separator within the tokens of media."""
    found: set[int] = set()
    start = 0
    for item in media:
        tokens = list(item.tokens)
        places = [i for i, token_id in enumerate(tokens) if token_id == separator_id]
        if not places:
            continue
        with contextlib.suppress(ValueError):  # it is not there
            while list(ids[start : start + len(tokens)]) != tokens:
                start = ids.index(tokens[0], start + 1)
            found.update(start + i for i in places)
            start += len(tokens)
    return frozenset(found)
