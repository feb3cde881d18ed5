"""Grammars that constrain what a row may generate: their sources, and how llguidance compiles and follows them with a
model's tokens.

A source is a string in llguidance's own form. JSON that a source describes is written in one way only, with ", " and
": " as Python's `json.dumps` writes it: a model that could choose would spend tokens on blanks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark

from ..threads.cache import LRUCache
from . import GrammarError, TooComplexError, UnsatisfiableError
from .schema import exact_dates
from .schema_checks import MAX_ENUM_CHARACTERS, check_cost, check_pattern
from .subschemas import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Where the next bytes are certain, llguidance asks the tokenizer how they are written and allows that one token: left
# alone, a model spells a key that it did not expect in odd pieces, and generates worse after it. But it never ends
# where what is certain never ends (`/x+/` before something that cannot follow it), so nothing is forced in grammars
# that callers write.
_UNFORCED = '\n%llguidance {"no_forcing": true}'

_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# A lexer state takes 1 to 2 kB, and a string of bounded length one state per character.
# Fuel is what expressions cost, in units of about a microsecond or less, and items of the parser cost two: first of
# compiling, on a caller's thread (20,000 texts of a choice take half of it), then of a mask, on the engine's.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=50_000,
    step_max_items=20_000,
    max_lexer_states=100_000,
    verbose_errors=False,
)
MAX_CACHED_GRAMMARS = 128
MAX_GRAMMAR_CHARACTERS = 64_000
"""Of a grammar that a caller writes."""
_LARK_PATTERN = re.compile(r"/((?:\\.|[^/\\\n])+)/")
_JSON_ERROR = re.compile(r"at \d+\(\d+\): failed to compile JSON schema: ")
_IMPOSSIBLE = re.compile(r"nsatisfiable|cannot be satisfied|[Rr]egex is empty")
_TOO_COMPLEX = re.compile(
    r"too (big|large|complex)|too many (items|expressions|states)|\d+ items; max|fuel|recursion limit|level exceeded"
    r"|precomputation failed|unable to determine if regex",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"initial lexer configuration .* too big|lexer precomputation failed")
_SOURCE_LINE = re.compile(r"\s*(\d+ \||\^+\s*$|>)")


def json_expression(schema: Schema, *, lenient: bool = False) -> str:
    """A Lark expression of a JSON value that satisfies a schema; see `json_schema`.

    Raises:
        TooComplexError: the schema is too large.
        UnsatisfiableError: a value of it would never end.
    """
    check_cost(schema)
    guidance = {**_JSON, "lenient": True} if lenient else _JSON
    return "%json " + json.dumps({**exact_dates(schema), "x-guidance": guidance})


def json_schema(schema: Schema, *, lenient: bool = False) -> str:
    """A JSON value that satisfies a schema; properties in the schema's order.

    Keywords that constrain nothing are ignored. `oneOf` works where llguidance can tell that no value satisfies
    two of its options (types, constants of a required property); read as `anyOf` it would allow values that
    the schema forbids, so any other is an error unless `lenient`.

    Args:
        schema: a JSON Schema, draft 2020-12 or 7.
        lenient: ignore keywords and formats that llguidance does not know, and read `oneOf` as `anyOf`.
    """
    return lark(f"start: {json_expression(schema, lenient=lenient)}", forced=True)


def json_object() -> str:
    """Any JSON object."""
    return json_schema({"type": "object"})


def regex(pattern: str) -> str:
    """A text that matches a regular expression as a whole, in the syntax of Rust's regex crate, without look-around."""
    _check_length(pattern)
    check_pattern(pattern)
    return lark(f"start: /(?:{regex_to_lark(pattern, '')})/")  # `//` would be a comment


def choice(options: Sequence[str]) -> str:
    """One of several texts, of which there may be thousands.

    They are one terminal, as the values of an `enum` are; alternatives of a rule are items of the parser, whose rows
    hold 2,000.

    Raises:
        GrammarError: there are none.
        TooComplexError: they are too long together.
    """
    if not options:
        raise GrammarError("Pass at least one choice.")
    if sum(map(len, options)) > MAX_ENUM_CHARACTERS:
        raise TooComplexError(
            f"The choices are too long: together they have more than {MAX_ENUM_CHARACTERS:,} characters."
        )
    return lark("start: CHOICE\nCHOICE: " + " | ".join(literal(option) for option in dict.fromkeys(options)))


def lark(text: str, embedded: Mapping[str, str] | None = None, *, forced: bool = False) -> str:
    """A grammar in llguidance's Lark dialect.

    Args:
        text: the grammar.
        embedded: others that it refers to, as `@name`.
        forced: text that is certain is written as the tokenizer writes it; the grammar must have an end to that.
    """
    others = [{"name": name, "lark_grammar": definition} for name, definition in (embedded or {}).items()]
    return json.dumps({"grammars": [{"lark_grammar": text if forced else text + _UNFORCED}, *others]})


def caller_lark(text: str) -> str:
    """A grammar in llguidance's Lark dialect that a caller wrote."""
    _check_length(text)
    for pattern in _LARK_PATTERN.findall(text):
        check_pattern(pattern)
    return lark(text)


def _check_length(text: str) -> None:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise TooComplexError(f"It is too long: at most {MAX_GRAMMAR_CHARACTERS:,} characters are allowed.")


def check(source: str, what: str = "") -> Sequence[str]:
    """Find out whether a source compiles and can be satisfied, whatever the vocabulary.

    Args:
        source: without special tokens.
        what: whose grammar it is, for the message.

    Returns:
        llguidance's warnings about what it does not follow in a `lenient` source.

    Raises:
        GrammarError: it does not, or cannot.
    """
    problem, warnings = _checked(source)
    if problem:
        raise _error(problem, what)
    return warnings


class Grammar:
    """A compiled grammar, shared by the rows that follow it.

    Raises:
        GrammarError: it does not compile, or nothing satisfies it.
    """

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._pristine = LLMatcher(vocabulary.tokenizer, source, log_level=0, limits=_LIMITS)
        _probe(self._pristine)

    def matcher(self) -> GrammarMatcher:
        """A fresh state, which takes microseconds."""
        return GrammarMatcher(self._pristine.deep_copy(), self._vocabulary.words)


class GrammarMatcher:
    """The state of one row in its grammar. For one thread at a time.

    Every method raises `GrammarError` once the grammar has become too complex or was given a token that it forbids.
    """

    def __init__(self, matcher: LLMatcher, words: int) -> None:
        self._matcher = matcher
        self._words = words

    def mask(self, out: NDArray[np.int32]) -> None:
        """Write the mask of the tokens that are allowed next. Changes nothing and may be called again.

        Args:
            out: `[words]`, contiguous: bit i % 32 of word i // 32 is set where token i is allowed. Words past the
                vocabulary's own are left alone; where there are fewer, the tokens that have no bit are left out.
        """
        if out.size >= self._words and out.flags.c_contiguous:
            self._matcher.unsafe_compute_mask_ptr(out.ctypes.data, self._words * 4)
            _check(self._matcher)
            return
        import numpy as np  # here, since tests without a model do without it

        mask = self._matcher.compute_bitmask()
        _check(self._matcher)
        out[: self._words] = np.frombuffer(mask, np.int32)[: out.size]

    def accept(self, token_id: int) -> bool:
        """Advance by one token; True when nothing may follow it."""
        if not self._matcher.consume_token(token_id):
            _check(self._matcher)
            raise GrammarError(f"The grammar does not allow token {token_id} here.")
        return self._matcher.is_stopped()

    def forced(self) -> list[int]:
        """The tokens of the text that has to come next, as the tokenizer writes it; others may write it, too."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens


class GrammarCompiler:
    """Compiles grammars for one vocabulary and caches the latest. May be used from several threads.

    Compiling takes from a fraction of a millisecond to some tens of them, without the GIL. Equal sources compile once,
    also when several threads ask at the same time; different ones do not wait for each other.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._grammars = LRUCache[Grammar](MAX_CACHED_GRAMMARS)

    def compile(self, source: str) -> Grammar:
        """The grammar of a source.

        Raises:
            GrammarError: see `Grammar`.
        """
        return self._grammars.get_or_make(source, lambda: Grammar(source, self.vocabulary))


@lru_cache(maxsize=512)
def _checked(source: str) -> tuple[str, Sequence[str]]:
    """The reason why a source does not compile, if it does not, and the warnings about it."""
    matcher = LLMatcher(_byte_tokenizer(), source, log_level=0, limits=_LIMITS)
    try:
        _probe(matcher)
    except GrammarError as error:
        return str(error), ()
    return "", tuple(matcher.get_grammar_warnings())


@cache
def _byte_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


def _probe(pristine: LLMatcher) -> None:
    """Take a first step, for what only shows there: a grammar that allows nothing, or whose first rows are too large.

    Copies inherit what was found out.
    """
    _check(pristine)
    matcher = pristine.deep_copy()
    mask = matcher.compute_bitmask()
    _check(matcher)
    allowed = mask.lstrip(b"\0")
    if allowed and not matcher.is_stopped():
        matcher.consume_token(8 * (len(mask) - len(allowed)) + (allowed[0] & -allowed[0]).bit_length() - 1)
        _check(matcher)


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise _error(_cause(matcher.get_error()))


def _error(cause: str, what: str = "") -> GrammarError:
    kind = TooComplexError if _TOO_COMPLEX.search(cause) else GrammarError
    return (UnsatisfiableError if _IMPOSSIBLE.search(cause) else kind)(f"{what}: {cause}" if what else cause)


def _cause(message: str) -> str:
    """A message of llguidance without the parser's state and the lines of the grammar that it quotes."""
    message = message.partition("<state>")[0].replace("<non-verbose/>", "")
    lines = [line.strip() for line in message.splitlines() if not _SOURCE_LINE.match(line)]
    text = _JSON_ERROR.sub("", " ".join(line for line in lines if line))
    if _TOO_LARGE.search(text):
        return "It is too large: it has too many alternatives or patterns, or they are too long. Pass fewer."
    if text.startswith("NoExtension"):
        return "The grammar cannot be satisfied: it leads to a point after which no text is allowed."
    return text[:500] or "llguidance gives no reason."


MAX_ENCODED_TEXTS = 1024


class Vocabulary:
    """The tokens that a model can generate. One per model; may be used from several threads.

    Args:
        token_bytes: the bytes that a token stands for, such as a `TokenBytes`; empty where a token has none.
        size: how many token ids there are, padding of the model's vocabulary included.
        eos_token_ids: the tokens that end a sequence.
        added: contents of the tokens that were added to the tokenizer, by id. All of them but those that are only
            whitespace are special: free text never holds them, and a grammar names them.
        encode: text to token ids, special tokens recognised, none put around it.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        size: int,
        eos_token_ids: Collection[int],
        added: Mapping[int, str],
        encode: Callable[[str], list[int]],
    ) -> None:
        self.size = size
        self.eos_token_ids = sorted(eos_token_ids)
        self.special = {i: content for i, content in added.items() if content.strip()}
        self._token_bytes = token_bytes
        self._added = dict(added)
        self._encode = encode

    @property
    def words(self) -> int:
        """Number of 32-bit words in a mask of all tokens."""
        return (self.size + 31) // 32

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        """Built when first asked for. That takes 0.9 s for 152,000 tokens, with the GIL: better while a model loads."""
        tokens = [self._added[i].encode() if i in self._added else self._token_bytes(i) for i in range(self.size)]
        wrapped = _WrappedTokenizer(tokens, sorted({*self.special, *self.eos_token_ids}), self._encode)
        made = LLTokenizer(TokenizerWrapper(wrapped), n_vocab=self.size, eos_token=self.eos_token_ids)
        tokens.clear()  # it has copied them, and keeps `wrapped`
        return made

    def split(self, text: str) -> Iterator[str | int]:
        """The pieces of a marker: ids of special tokens, and the text between them."""
        position = 0
        for token in self._encode(text):
            content = self.special.get(token)
            if content is None or (start := text.find(content, position)) < 0:
                continue
            if start > position:
                yield text[position:start]
            yield token
            position = start + len(content)
        if position < len(text):
            yield text[position:]

    def lark(self, text: str) -> str:
        """A Lark expression, for use in rules, of a marker: `<[id]>` for special tokens, the rest as literals."""
        return " ".join(map(expression, self.split(text))) or '""'


def expression(part: str | int) -> str:
    """A Lark expression of a piece that `Vocabulary.split` yields."""
    return f"<[{part}]>" if isinstance(part, int) else literal(part)


def literal(text: str) -> str:
    """A Lark string literal."""
    # DEL is not a character of Lark's literals, and JSON leaves it as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _WrappedTokenizer:
    """Tokens and encoder for llguidance's `TokenizerWrapper`, which has no base class for it."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], encode: Callable[[str], list[int]]) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = 0  # overridden by what LLTokenizer is given, which may be several
        # llguidance asks for the text that has to come next with every mask: a fifth of a millisecond each time.
        self._encode = lru_cache(MAX_ENCODED_TEXTS)(encode)

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):  # this is how the wrapper finds out what it may pass
            raise TypeError("text is a str")
        return self._encode(text)
