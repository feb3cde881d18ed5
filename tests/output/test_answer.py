"""Content, its tokens and its stop strings, among reasoning and tool calls."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from localai_shim.formats.values import OfferedTools
from localai_shim.output.answer import AnswerParser, TextParser
from localai_shim.output.channels import ChannelSplitter
from localai_shim.output.detokenizer import ByteDetokenizer, TokenBytes
from localai_shim.output.stop import RowText, StopStrings
from localai_shim.types import Token
from tests.conftest import TEXTS, chat_tokenizer
from tests.output.reading import Answer, Detokenizer, tokens
from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import OFFERED, Case
from tests.output.recorded.read import markup_of, parser_of, read, split, state_of
from tests.output.stops import cut_at_first_stop
from tests.samples import sampled

TOOLS = OfferedTools(OFFERED)
HERMES = markup_of("hermes")


def hermes(text: str, **more: Any) -> Case:
    """An answer of a model that writes calls as Hermes did."""
    return Case("hermes", "", text, **more)


def random_tokens(answer: Case, rng: random.Random) -> list[str]:
    """The answer in tokens of a few letters, none of them empty."""
    places = sorted({rng.randint(0, len(answer.text)) for _ in range(rng.randint(1, 40))} | {0, len(answer.text)})
    return [answer.text[start:end] for start, end in itertools.pairwise(places)]


def listed(answer: Case, pieces: Sequence[str], **options: Any) -> tuple[list[tuple[int, int]], str]:
    """(token, offset) of each token of the content as it is given out, and the content."""
    parser = parser_of(answer, pieces, with_tokens=True, **options)
    out: list[tuple[int, int]] = []
    content = ""
    for token in tokens(pieces, answer.finish):
        delta = parser.feed(token)
        content += delta.text
        assert all(offset <= len(content) for _, offset in delta.tokens)
        out += [(token.id, offset) for token, offset in delta.tokens]
    return out, content


def content_tokens(answer: Case, pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The definition: each token that has a character of the content, and where in the content that is."""
    found = [piece for piece in split(answer, pieces) if piece.kind == "content"]
    places = [at for piece in found for at in range(piece.start, piece.end)]
    end = 0
    for index, piece in enumerate(pieces):
        start, end = end, end + len(piece)
        own = [offset for offset, at in enumerate(places) if start <= at < end]
        if own:
            yield index, own[0]


def content_of(answer: Case) -> str:
    """All of its content."""
    return "".join(piece.text for piece in split(answer, [answer.text]) if piece.kind == "content")


# -- tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", sampled(CASES, 150), ids=str)
def test_the_tokens_listed_are_those_of_the_content(answer: Case) -> None:
    rng = random.Random(str(answer))
    for _ in range(6):
        pieces = random_tokens(answer, rng)
        found, content = listed(answer, pieces)
        assert found == list(content_tokens(answer, pieces)), pieces
        # Text that was meant as a call, of an answer that has nothing else, has no tokens.
        assert not found or content == content_of(answer) or not answer.tools


@pytest.mark.parametrize("answer", sampled([a for a in CASES if len(a.content or "") > 8], 120), ids=str)
def test_tokens_that_begin_behind_a_stop_string_are_not_listed(answer: Case) -> None:
    rng, whole = random.Random(str(answer)), content_of(answer)
    for _ in range(6):
        pieces = random_tokens(answer, rng)
        at = rng.randrange(len(whole) - 1)
        stop = whole[at : at + rng.randint(1, 4)]
        found, content = listed(answer, pieces, stop=[stop])
        assert content == cut_at_first_stop(whole, [stop])[0]
        expected = [(token, offset) for token, offset in content_tokens(answer, pieces) if offset < len(content)]
        assert found == expected, (pieces, stop)


def test_a_token_without_text_is_one_of_the_content_it_stands_in() -> None:
    for pieces, expected in (
        (["a", "", "b"], [0, 1, 2]),
        (["<think>", "", "b", "</think>", "", "c"], [4, 5]),  # it may be the first byte of c
        (["", "a"], [0, 1]),
    ):
        found, _ = listed(hermes("".join(pieces)), pieces)
        assert [token for token, _ in found] == expected


def test_tokens_are_not_kept_unless_they_are_asked_for() -> None:
    parser = parser_of(hermes(""), ["a", "b"])
    assert [parser.feed(token).tokens for token in tokens(["a", "b"], "length")] == [(), ()]


# -- stop strings ---------------------------------------------------------------------------------------------------


def random_answer(rng: random.Random) -> tuple[Case, list[str]]:
    """Letters of which stop strings are made, with reasoning, calls and whitespace between them."""
    parts = ["a", "b", "ab", "ba", " ", "\n", "<think>", "</think>", '<tool_call>{"name": "ring"', ', "arguments": {}}']
    parts += ["</tool_call>", "<tool_call>", "<", "</thi", "nk>", '"a b"']
    pieces = rng.choices(parts, [6, 6, 3, 3, 3, 1, 2, 3, 2, 2, 2, 1, 1, 1, 1, 1], k=rng.randint(1, 16))
    opened = rng.choice([False, False, True])
    return hermes("".join(pieces), opened=opened, finish="length"), pieces


def as_the_engine_ends_it(answer: Case, pieces: list[str], stop: list[str], min_tokens: int) -> list[Token]:
    """The row's tokens, up to the one at which the engine's own matcher stops it."""
    splitter = ChannelSplitter(markup_of(answer.family), state=state_of(answer), tools=TOOLS)
    checker = StopStrings(RowText(Detokenizer(pieces), splitter), stop, min_tokens)
    made = tokens(pieces, answer.finish)
    for token in made:
        if checker.feed(token.id):
            return [*made[: token.id], token._replace(finish_reason="stop")]
    return made


def feed(parser: AnswerParser | TextParser, row: Sequence[Token]) -> Answer:
    out = Answer()
    for token in row:
        out.add(parser.feed(token))
    return out


def test_the_engine_stops_a_row_at_the_token_at_which_its_content_is_cut() -> None:
    rng = random.Random(3)
    stopped = 0
    for _ in range(2000):
        answer, pieces = random_answer(rng)
        stop = ["".join(rng.choices("ab ", k=rng.randint(1, 3))) for _ in range(rng.randint(1, 2))]
        row = as_the_engine_ends_it(answer, pieces, stop, 0)
        whole = read(answer, pieces).content
        expected, _ = cut_at_first_stop(whole, stop)
        assert feed(parser_of(answer, pieces, stop=stop), row).content == expected, (pieces, stop)
        assert feed(parser_of(answer, pieces, stop=stop), tokens(pieces, answer.finish)).content == expected
        if row[-1].finish_reason == "stop":
            stopped += 1
            assert len(expected) < len(whole)
            said = certain_content(answer, pieces[: len(row) - 1])
            assert not cut_at_first_stop(said, stop)[1], "a token later than it had to"
    assert stopped > 400


def certain_content(answer: Case, pieces: Sequence[str]) -> str:
    """What is known of the content while the answer goes on."""
    splitter = ChannelSplitter(markup_of(answer.family), state=state_of(answer), tools=TOOLS)
    return "".join(found.text for piece in pieces for found in splitter.feed(piece) if found.kind == "content")


@pytest.mark.parametrize("min_tokens", [1, 3, 8])
def test_stop_strings_of_the_first_tokens_count_on_neither_side(min_tokens: int) -> None:
    rng = random.Random(min_tokens)
    for _ in range(400):
        answer, pieces = random_answer(rng)
        stop = ["".join(rng.choices("ab", k=rng.randint(1, 2)))]
        row = as_the_engine_ends_it(answer, pieces, stop, min_tokens)
        assert len(row) > min_tokens or len(row) == len(pieces)
        first, all_of_it = (certain_content(answer, pieces[:n]) for n in (min_tokens, len(row)))
        out = feed(parser_of(answer, pieces, stop=stop, min_tokens=min_tokens), row)
        if row[-1].finish_reason == "stop":
            assert out.content == first + cut_at_first_stop(all_of_it[len(first) :], stop)[0], (pieces, stop)
        else:
            assert out.content.startswith(all_of_it)


def test_ends_of_sequence_that_a_row_goes_on_behind_are_neither_text_nor_counted_for_stop_strings() -> None:
    answer, pieces = hermes(""), ["a", "b", "c"]
    eos = Token(-1, is_eos=True)
    row = [eos, Token(0), eos, Token(1), Token(2, finish_reason="length")]
    checker = StopStrings(RowText(Detokenizer(pieces), ChannelSplitter(HERMES)), ["b", "c"], 2)
    assert [checker.feed(token.id) for token in row if not token.is_eos] == [False, False, True]
    parser = parser_of(answer, pieces, stop=["b", "c"], min_tokens=2)
    assert feed(parser, row).content == "ab"
    assert parser.generated == 5


def test_what_is_no_content_holds_no_stop_string() -> None:
    text = '<think>stop</think><tool_call>{"name": "plan_trip", "arguments": {"city": "stop"}}</tool_call>go stop on'
    answer = read(hermes(text), list(text), stop=["stop"])
    assert (answer.reasoning, answer.content) == ("stop", "go ")
    assert answer.whole_calls == [("plan_trip", {"city": "stop"})]


def test_nothing_is_read_behind_a_stop_string() -> None:
    text = 'a stop <think>b</think><tool_call>{"name": "ring", "arguments": {}}</tool_call> <tool_call> c'
    assert read(hermes(text), [text], stop=["stop"]) == Answer(content="a ")


# -- counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "pieces", "opened", "expected"),
    [
        ("hermes", ["<think>", "\n", "a", " b", "</think>", "\n", "c"], False, 5),
        ("hermes", ["\n", "a", "</think>", "c"], True, 3),
        ("hermes", ["<think>", "a", "b"], False, 3),
        ("hermes", ["a", "b"], False, 0),
        ("hermes", ["<th", "ink>", "a", "</th", "ink>", "b"], False, 4),
        (
            "harmony",
            ["<|channel|>", "analysis", "<|message|>", "a", "b", "<|end|>", "<|start|>", "assistant"],
            False,
            4,
        ),
        ("muse", [" to=self", "<|message|>", "a", "<|eom|>", "<|start|>assistant to=user<|message|>", "b"], False, 3),
        ("gemma4", ["<|channel>", "thought", "\n", "a", "<channel|>", "b"], False, 4),
    ],
)
def test_reasoning_tokens_are_those_from_its_start_marker_to_its_end_marker(
    family: str, pieces: list[str], opened: bool, expected: int
) -> None:
    parser = parser_of(Case(family, "", "", opened=opened), pieces)
    feed(parser, tokens(pieces, "length"))
    assert (parser.reasoning_tokens, parser.generated) == (expected, len(pieces))


def test_the_last_delta_has_the_reason() -> None:
    for finish in ("stop", "length"):
        parser = parser_of(hermes(""), ["a", "b"])
        reasons = [parser.feed(token).finish_reason for token in tokens(["a", "b"], finish)]  # type: ignore[arg-type]
        assert reasons[-1] == finish
        assert set(reasons[:-1]) == {None}


# -- a real tokenizer -----------------------------------------------------------------------------------------------


def byte_tokens(tokenizer: Any, text: str) -> list[Token]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [*map(Token, ids[:-1]), Token(ids[-1], finish_reason="length")]


@pytest.mark.parametrize("text", TEXTS)
def test_characters_of_several_tokens_are_whole_in_every_channel(byte_level: Any, text: str) -> None:
    spoken = text.strip()
    whole = WRITERS["hermes"].turn(spoken, spoken, WRITERS["hermes"].block([("store_note", {"title": text})]))
    row = byte_tokens(byte_level, whole)
    assert len(row) > len(set(whole))
    for with_tokens in (False, True):
        detokenizer = ByteDetokenizer(TokenBytes(byte_level))
        parser = AnswerParser(detokenizer, HERMES, tools=TOOLS, with_tokens=with_tokens)
        answer = feed(parser, row)
        assert (answer.content, answer.reasoning) == (spoken, spoken)
        assert answer.whole_calls == [("store_note", {"title": text})]
        assert answer.invalid == []


@pytest.mark.parametrize("text", TEXTS)
def test_every_token_of_a_character_of_the_content_is_listed(byte_level: Any, text: str) -> None:
    spoken = text.strip()
    before, after = "<think>é🙂</think>", '<tool_call>{"name": "ring", "arguments": {}}</tool_call>'
    own = byte_level.encode(spoken, add_special_tokens=False)
    around = [byte_level.encode(part, add_special_tokens=False) for part in (before, after)]
    ids = [*around[0], *own, *around[1]]
    detokenizer = ByteDetokenizer(TokenBytes(byte_level))
    parser = AnswerParser(detokenizer, HERMES, tools=TOOLS, with_tokens=True)
    row = [Token(token_id, logprob=-float(i)) for i, token_id in enumerate(ids)]
    row[-1] = row[-1]._replace(finish_reason="length")
    out = [token for token in row for token, _ in parser.feed(token).tokens]
    assert out == row[len(around[0]) : len(around[0]) + len(own)]


def test_a_character_that_is_cut_is_shown_as_a_replacement_in_its_channel(byte_level: Any) -> None:
    for before, channel in (("", "content"), ("<think>", "reasoning")):
        ids = byte_level.encode(before + "ok 🚀", add_special_tokens=False)
        row = [*map(Token, ids[:-2]), Token(ids[-2], finish_reason="length")]
        parser = AnswerParser(ByteDetokenizer(TokenBytes(byte_level)), HERMES, tools=TOOLS)
        assert getattr(feed(parser, row), channel).rstrip("\ufffd") == "ok "


@pytest.mark.parametrize("text", TEXTS)
def test_plain_answers_read_as_plain_text(tokenizer: Any, text: str) -> None:
    """A model with markers that are not used says what one without markers says."""
    for stop in ([], [text[3:6]], ["never"]):
        row = byte_tokens(tokenizer, text)
        detokenizers = [chat_tokenizer(tokenizer).detokenizer() for _ in range(2)]
        plain = feed(TextParser(detokenizers[0], stop, with_tokens=True), row)
        assert feed(AnswerParser(detokenizers[1], HERMES, stop=stop, with_tokens=True), row) == plain
