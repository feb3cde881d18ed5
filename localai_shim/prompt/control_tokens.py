"""The tokens that steer a model, such as `<|im_end|>`, and the caller's strings, which stay text if they spell these.

A template puts the caller's strings next to its own control tokens, and the tokenizer cannot tell one from the other.
So what spells a control token is replaced by digits before the template sees it, which no filter of a template changes.
In the rendered text it comes back with a separator in it, another control token, whose id is then taken out again: the
tokenizer sees two pieces of text that are not tokens, and the model sees all the letters.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2

from ..media import ProcessedMedia
from .history import Message
from .parts import MediaPart

_HTML = re.compile(r"</?[a-z]+[1-6]?>")  # Gemma has tokens for these, which are text
_write_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
_PAD = "\u2581"  # what sentencepiece writes for a space


def read_control_tokens(tokenizer: object, template: str | None) -> dict[int, str]:
    """The control tokens of a tokenizer, by id.

    Those are its special tokens, whatever they look like (`<image>`), and of the others that were added to it the ones
    that look like markup (`<tool_call>`, `[ARGS]`): words, whitespace and HTML tags were added as text.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        template: its chat template; an HTML tag that it writes is markup.
    """
    special = set(read_special_ids(tokenizer))
    added = {int(i): str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
    extra = getattr(tokenizer, "special_tokens", None)  # of tokenizers on tiktoken, where there may be more
    if isinstance(extra, Mapping):
        of_tiktoken = {i: str(text) for text, i in extra.items() if isinstance(i, int)}
        special |= set(of_tiktoken)
        added = of_tiktoken | added
    added = _of_sentencepiece(tokenizer) | added
    return {i: text for i, text in added.items() if text.strip() and (i in special or _is_markup(text, template))}


def read_special_ids(tokenizer: object) -> frozenset[int]:
    """Special tokens: those that the tokenizer names, and those that are flagged in its list of added tokens."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    flagged = (int(i) for i, token in added.items() if getattr(token, "special", False))
    return frozenset([*map(int, getattr(tokenizer, "all_special_ids", ())), *flagged])


def _of_sentencepiece(tokenizer: object) -> dict[int, str]:
    """Control tokens that a sentencepiece model itself finds in texts, in tokenizers that use it in Python."""
    model = getattr(tokenizer, "sp_model", None)
    if model is None:
        return {}
    protocol = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    pieces = protocol.ModelProto.FromString(model.serialized_model_proto()).pieces
    return {i: piece.piece for i, piece in enumerate(pieces) if piece.type == piece.USER_DEFINED}


def _is_markup(text: str, template: str | None) -> bool:
    if text[0] not in "<[" or text[-1] not in ">]":
        return False
    return not _HTML.fullmatch(text) or text in (template or "<think></think><tool_call></tool_call>")


class ControlTokens:
    """Finds control tokens that a text spells, or would complete. One per model; may be used from several threads.

    Args:
        tokens: their texts, by id.
        template: the chat template's source, whose own texts may be the beginning of one.
        encode: text to ids, nothing put around it.
        spelling: how the vocabulary writes a token.
        find_id: the inverse; None for what is not a token.

    Attributes:
        separator: a control token that keeps apart the texts on both sides of it; empty where there is none.
        separator_id: its id.
    """

    def __init__(
        self,
        tokens: Mapping[int, str],
        template: str | None,
        encode: Callable[[str], list[int]],
        spelling: Callable[[int], str],
        find_id: Callable[[str], int | None],
    ) -> None:
        self._spelling, self._find_id = spelling, find_id
        self.separator_id, self.separator = _separator(tokens, template or "", encode)
        texts = set(tokens.values()) if self.separator else set[str]()
        self._beginnings = {text[:n] for text in texts for n in range(1, len(text))}
        self._longest = max(map(len, texts), default=0)
        self._ends = tuple(sorted(_ends(texts, self._beginnings, template or "")))
        self._parts_of_ends = {end[:n] for end in self._ends for n in range(1, len(end) + 1)}
        full = _any_of(texts)
        self.pattern = re.compile(full or "(?!)")
        # In JSON, where a quote is the beginning or the end of a string.
        cases = [full, f'{_any_of(self._beginnings)}"']
        if self._ends:
            cases += [f'"{_any_of(self._ends)}', f'"{_any_of(self._parts_of_ends)}"']
        self._in_json = re.compile("|".join(cases if texts else ["(?!)"]))
        self._escapes = re.search(r'["\\]', "".join(texts)) is not None  # JSON writes such a token otherwise
        behind = encode(f"{self.separator}a") if self.separator else []
        self._pads = bool(behind) and spelling(behind[behind.index(self.separator_id) + 1]).startswith(_PAD)

    def occur_in(self, *values: object) -> bool:
        """True if a control token may occur in the strings of these JSON values."""
        if not self.separator:
            return False
        text = _write_json(values)
        return self._escapes or self._in_json.search(text) is not None

    def find(self, text: str) -> Iterator[tuple[int, int, list[int]]]:
        """The stretches of a text that spell control tokens, or might next to other text, and where they are to be cut.

        Yields:
            (start, end, indices at which a separator belongs), from left to right and without overlap.
        """
        found: list[tuple[int, int, int]] = []
        match = self.pattern.search(text)
        while match is not None:
            found.append((*match.span(), match.start() + 1))
            match = self.pattern.search(text, match.start() + 1)
        if text in self._parts_of_ends or text.startswith(self._ends):
            found.append((0, 1, 0))
        for at in range(max(0, len(text) - self._longest), len(text)):
            if text[at:] in self._beginnings:
                found.append((at, len(text), at + 1))
        found.sort()
        while found:
            start, end, cut = found.pop(0)
            cuts = [cut]
            while found and found[0][0] < end:
                _, other, cut = found.pop(0)
                end, cuts = max(end, other), [*cuts, cut]
            yield start, end, sorted(set(cuts))

    def without_pad(self, token_id: int) -> Iterable[int]:
        """A token behind a separator without the space that tokenizers of sentencepiece put there."""
        spelt = self._spelling(token_id)
        if not self._pads or not spelt.startswith(_PAD):
            return (token_id,)
        rest = spelt[1:]
        whole = self._find_id(rest) if rest else None
        parts = [whole] if whole is not None else [self._find_id(char) for char in rest]
        return (token_id,) if None in parts else [part for part in parts if part is not None]


# ---------------------------------------------------------------------------------------------------------------


def _separator(tokens: Mapping[int, str], template: str, encode: Callable[[str], list[int]]) -> tuple[int, str]:
    """A control token that leaves the spaces around it as they are; at best one that the template does not use.

    Where all of them take spaces, one that does: a space may be lost, which is better than that texts steer the model.
    """
    unknown = encode("\U000f1234")  # no separator is what unknown characters become
    found = -1, ""
    for token_id, text in sorted(tokens.items(), key=lambda item: item[1] in template):
        alone, before, behind = (encode(f"a{around}b") for around in (text, f" {text}", f"{text} "))
        if alone.count(token_id) != 1 or token_id in unknown:
            continue
        if alone != before and alone != behind:
            return token_id, text
        found = (token_id, text) if not found[1] else found
    return found


def _ends(texts: Collection[str], beginnings: Collection[str], template: str) -> set[str]:
    """Texts that would complete a control token behind a text of the template's own, such as `<` or `<|`."""
    longest = max(map(len, beginnings), default=0)
    literals = _literals(template)
    begun = {text[-n:] for text in literals for n in range(1, min(longest, len(text)) + 1)} & set(beginnings)
    return {text[len(start) :] for start in begun for text in texts if text.startswith(start) and text != start}


def _literals(template: str) -> set[str]:
    """The texts that a template writes as they are."""
    out: set[str] = set()
    try:
        for _, kind, value in jinja2.Environment().lex(template):
            if kind == "data":
                out.add(value)
            elif kind == "string":
                out.add(value[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape"))
    except (jinja2.TemplateError, UnicodeError):
        pass
    return out


_Tree = dict[str, "_Tree"]


def _any_of(words: Iterable[str]) -> str:
    """A regular expression for the longest of many words, in time that does not depend on how many there are."""
    tree: _Tree = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _branch(tree)


def _branch(node: _Tree) -> str:
    options = [re.escape(char) + _branch(child) for char, child in sorted(node.items()) if char]
    body = options[0] if len(options) == 1 else f"(?:{'|'.join(options)})" if options else ""
    return f"(?:{body})?" if body and "" in node else body


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
