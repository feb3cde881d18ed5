"""What is content, what is reasoning and what is markup; and that content is passed on as soon as it is known to be."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from localai_shim.formats.markup import HEADER, NORMAL, REASONING, Markup
from localai_shim.formats.values import OfferedTools
from localai_shim.output.channels import ChannelSplitter, _edges_of, markers_of
from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import OFFERED
from tests.output.recorded.read import markup_of, state_of

HERMES = markup_of("hermes")  # calls amid the reasoning are only mentioned there
R1 = markup_of("deepseek_v3")  # calls end the reasoning
HARMONY = markup_of("harmony")
MUSE = markup_of("muse")
TOOLS = OfferedTools(OFFERED)
NONE = OfferedTools()


def kinds(markup: Markup, *texts: str, state: str | None = None, offered: bool = True, cut: bool = False) -> list[str]:
    """The pieces as `kind: text`, neighbours of one kind as one."""
    splitter = ChannelSplitter(markup, state=state, tools=TOOLS if offered else NONE)
    found = [piece for text in texts for piece in splitter.feed(text)] + splitter.finish(cut=cut)
    runs = itertools.groupby(found, key=lambda piece: piece.kind)
    return [f"{kind}: {''.join(piece.text for piece in run)}" for kind, run in runs]


@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.parametrize("offered", [True, False])
def test_no_marker_stands_amid_another(family: str, offered: bool) -> None:
    """One that begins with another waits for its rest, and one that ends with another begins before that."""
    for _, markers in _edges_of(markup_of(family), offered).values():
        for one, other in itertools.permutations(markers, 2):
            assert one not in other or other.startswith(one) or other.endswith(one)


@pytest.mark.parametrize("family", WRITERS)
def test_only_what_may_become_a_marker_is_held_back(family: str) -> None:
    state = NORMAL
    rng = random.Random(family)
    own = _edges_of(markup_of(family), True)[state][1]
    is_loose = any(re.search(r"\|>\s*\w|\w\s*<\|", marker) for marker in own)  # blanks may be in it

    def squeezed(text: str) -> str:
        return re.sub(r"(?<=\|>)\s+(?=\w|$)|(?<=\w)\s+(?=<|$)", "", text) if is_loose else text

    starts = {squeezed(marker)[:n] for marker in own for n in range(1, len(squeezed(marker)))}
    longest = max(map(len, starts), default=0) + 16
    for _ in range(60):
        words = rng.choices(["Hello", " x", "<", "<|", "|>", "]<", "[", "to=", "é", *sorted(starts)], k=6)
        text = "".join(["x", *words])  # a call could be the first
        splitter = ChannelSplitter(markup_of(family), state=state, tools=TOOLS)
        out = ""
        for end, letter in enumerate(text, 1):
            pieces = splitter.feed(letter)
            if any(piece.kind != "content" for piece in pieces) or splitter.state != state:
                break  # a marker was put together by chance
            out += "".join(piece.text for piece in pieces)
            ends = (text[end - n : end] for n in range(min(longest, end), 0, -1))
            held = next((len(part) for part in ends if squeezed(part) in starts), 0)
            assert out == text[: end - held].rstrip()


def test_whitespace_is_held_back_where_tools_are_offered_and_a_call_may_follow_it() -> None:
    with_tools, without = ChannelSplitter(HERMES, tools=TOOLS), ChannelSplitter(HERMES)
    assert [piece.text for piece in with_tools.feed("Hello \n")] == ["Hello"]
    assert [piece.text for piece in without.feed("Hello \n")] == ["Hello \n"]
    assert [piece.text for piece in with_tools.feed("you")] == [" \n", "you"]
    assert [piece.text for piece in without.feed("you")] == ["you"]


@pytest.mark.parametrize("offered", [True, False])
def test_whitespace_behind_the_first_words_stays_in_its_place(offered: bool) -> None:
    found = kinds(HERMES, "<think>x</think>", "\n\nHello ", "you ", "there ", offered=offered)
    assert found == ["markup: <think>", "reasoning: x", "markup: </think>\n\n", "content: Hello you there "]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Hello \n", ["content:   Hello \n"]),
        ("\n\n", ["content: \n\n"]),
        (
            "<think>\n a\n\nb \n</think>\n\n c \n",
            ["markup: <think>\n ", "reasoning: a\n\nb", "markup:  \n</think>\n\n ", "content: c \n"],
        ),
        ("a </think> b", ["content: a", "markup:  </think> ", "content: b"]),
        ("<think></think>\n", ["markup: <think></think>\n"]),
        (
            "a <think>b<think>c</think>",
            [
                "content: a",
                "markup:  <think>",
                "reasoning: b",
                "markup: <think>",
                "reasoning: c",
                "markup: </think>",
            ],
        ),
        (
            "a\n<tool_call>{}</tool_call>\n<tool_call>[]</tool_call>\n b",
            [
                "content: a",
                "markup: \n",
                "open: <tool_call>",
                "call: {}",
                "close: </tool_call>",
                "markup: \n",
                "open: <tool_call>",
                "call: []",
                "close: </tool_call>",
                "markup: \n ",
                "content: b",
            ],
        ),
        ("<tool_call>{}</tool_call>\n", ["open: <tool_call>", "call: {}", "close: </tool_call>", "markup: \n"]),
        (
            "<tool_call>{}</tool_call> b \n",
            ["open: <tool_call>", "call: {}", "close: </tool_call>", "markup:  ", "content: b", "markup:  \n"],
        ),
        ("a </tool_call>b", ["content: a", "markup:  </tool_call>", "content: b"]),
        ("a <tool_call> b", ["content: a", "markup:  ", "stray: <tool_call>", "content:  b"]),
        ("a <tool_call>", ["content: a", "markup:  ", "open: <tool_call>", "close: "]),
    ],
    ids=str,
)
def test_whitespace_next_to_a_block_is_markup(text: str, expected: list[str]) -> None:
    assert kinds(HERMES, text) == expected


RING = '<tool_call>{"name": "ring", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "blocks"),
    [
        (f"<think>a {RING} b</think>c", f"a {RING} b", "c", 0),
        (f"<think>a {RING}</think>c", f"a {RING}", "c", 0),
        (f"<think>a {RING}", "a", "", 1),
        ('<think>a <tool_call>{"name": "ring"', 'a <tool_call>{"name": "ring"', "", 0),
        ("<think>a <tool_call></tool_call>", "a <tool_call></tool_call>", "", 0),
        ("<think>a <tool_call>", "a <tool_call>", "", 0),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_a_call_is_only_mentioned_amid_the_reasoning_unless_the_answer_ends_with_it(
    text: str, reasoning: str, content: str, blocks: int, cut: bool
) -> None:
    for pieces in ([text], list(text)):
        found = kinds(HERMES, *pieces, cut=cut)
        assert "".join(piece[len("reasoning: ") :] for piece in found if piece.startswith("reasoning")) == reasoning
        assert "".join(piece[len("content: ") :] for piece in found if piece.startswith("content")) == content
        assert [piece.split(":")[0] for piece in found].count("open") == blocks


def test_a_call_amid_the_reasoning_ends_it_where_a_format_has_it_so() -> None:
    call = WRITERS["deepseek_v3"].block([("ring", {})])
    begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    assert kinds(R1, f"<think>a {call} b") == [
        "markup: <think>",
        "reasoning: a",
        "markup:  ",
        f"open: {begin}",
        f"call: {call.removeprefix(begin).removesuffix(end)}",
        f"close: {end}",
        "markup:  ",
        "content: b",
    ]


def test_a_call_amid_the_reasoning_is_none_where_no_tools_were_offered() -> None:
    assert kinds(HERMES, f"<think>a {RING} b</think>c", offered=False) == [
        "markup: <think>",
        f"reasoning: a {RING} b",
        "markup: </think>",
        "content: c",
    ]


def test_a_call_begins_when_its_functions_name_is_there() -> None:
    splitter = ChannelSplitter(HERMES, tools=TOOLS)
    assert [splitter.feed(text) for text in ("<tool_call>", " \n", '{"name": "ri')] == [[], [], []]
    assert [piece.kind for piece in splitter.feed('ng", "arguments": {')] == ["open", "call"]


def test_a_marker_means_nothing_as_soon_as_no_call_can_follow_it() -> None:
    splitter = ChannelSplitter(HERMES, tools=TOOLS)
    assert [piece.kind for piece in splitter.feed("<tool_call> is")] == ["stray", "content"]


def test_the_beginning_of_a_marker_is_content_if_the_model_ended_there_and_not_if_it_was_cut() -> None:
    assert kinds(HERMES, "a <tool_c") == ["content: a <tool_c"]
    assert kinds(HERMES, "a <tool_c", cut=True) == ["content: a", "markup:  ", "stray: <tool_c"]
    assert kinds(HERMES, "1 <", cut=True) == ["content: 1 <"]  # not worth a loss


def test_an_answer_begins_where_the_prompt_ended() -> None:
    assert HERMES.state_after("<|im_start|>assistant\n<think>\n") == "reasoning"
    assert HERMES.state_after("<|im_start|>assistant\n<think>\n\n</think>\n\n") == "normal"
    assert HERMES.closed_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not HERMES.closed_by("<|im_start|>assistant\n<think>\n")
    assert MUSE.state_after("<|start|>assistant ") == "header"
    assert kinds(HERMES, "\na</think>b", state="reasoning") == [
        "markup: \n",
        "reasoning: a",
        "markup: </think>",
        "content: b",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi", ["content: Hi"]),
        (
            "<|channel|>final<|message|>Hi<|return|>",
            ["markup: <|channel|>final<|message|>", "content: Hi", "markup: <|return|>"],
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>",
            [
                "markup: <|channel|>analysis<|message|>",
                "reasoning: a",
                "markup: <|end|><|start|>assistant<|channel|>commentary<|message|>",
                "content: b",
                "markup: <|end|>",
            ],
        ),
        (
            "<|channel|>final <|constrain|>json<|message|>{}",
            ["markup: <|channel|>final <|constrain|>json<|message|>", "content: {}"],
        ),
        (
            "<|channel|>analysis to=browser.search code<|message|>{}<|call|>",
            [
                "markup: <|channel|>analysis to=browser.search code<|message|>",
                "open: ",
                "call: {}<|call|>",
                "close: ",
            ],
        ),
        ("<|channel|>analysis<|mess", ["markup: <|channel|>analysis<|mess"]),
        ("<|channel|>analysis<|end|>a", ["markup: <|channel|>analysis<|end|>", "content: a"]),
    ],
    ids=str,
)
def test_harmony_headers_say_what_their_message_is(text: str, expected: list[str]) -> None:
    assert kinds(HARMONY, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eot|>", ("a", "b")),
        ("to=commentary<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eot|>", ("", "ab")),
        ("to=self<|message|>a", ("a", "")),
        ("to=user<|message|>to=self<|message|>", ("", "to=self")),
        ("plain text", ("", "plain text")),
        (" to=user plain text<|eom|>", ("", "plain text")),
    ],
)
def test_a_message_of_muse_goes_where_its_header_says(text: str, expected: tuple[str, str]) -> None:
    splitter = ChannelSplitter(MUSE, state=HEADER)
    pieces = [*splitter.feed(text), *splitter.finish()]
    said = tuple("".join(p.text for p in pieces if p.kind == kind) for kind in ("reasoning", "content"))
    assert said == expected


def test_structural_markers_are_dropped_wherever_content_stands() -> None:
    text = "<|START_TEXT|>a<|END_TEXT|>"
    assert [k for k in kinds(markup_of("cohere2_moe"), text) if k.startswith("content")] == ["content: a"]


def test_without_markers_all_text_is_content_at_once() -> None:
    plain = Markup()
    assert plain.plain and not plain.thinks and plain.think_end is None
    splitter = ChannelSplitter(plain)
    assert [[piece.text for piece in splitter.feed(t)] for t in ("a ", "<thi", "\n")] == [["a "], ["<thi"], ["\n"]]
    assert splitter.finish() == []


@pytest.mark.parametrize(("family", "end"), [("hermes", "</think>"), ("harmony", "<|end|>"), ("muse", "<|eom|>")])
def test_the_marker_that_ends_the_reasoning_is_known(family: str, end: str) -> None:
    markup = markup_of(family)
    assert markup.thinks and not markup.plain
    assert markup.think_end == end
    opening = {"hermes": "<think>", "harmony": "<|channel|>analysis<|message|>", "muse": "to=self<|message|>"}
    splitter = ChannelSplitter(markup, state=markup.state_after(""))
    splitter.feed(opening[family] + "a")
    assert splitter.state == "reasoning"
    splitter.feed(end)
    assert splitter.state != "reasoning"


def test_a_call_in_a_message_to_the_user_is_only_mentioned() -> None:
    call = WRITERS["muse"].block([("ring", {})]).partition("<|message|>")[2]
    splitter = ChannelSplitter(MUSE, state=HEADER, tools=TOOLS)
    pieces = [*splitter.feed(f" to=user<|message|>Well. {call}"), *splitter.finish()]
    assert "".join(piece.text for piece in pieces if piece.kind == "content") == f"Well. {call}"


def test_all_markers_of_a_family_are_looked_for() -> None:
    found = markers_of(HERMES)
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>"} <= found
    assert {"<|channel|>", "<|message|>", "<|end|>", "<|call|>"} <= markers_of(HARMONY)


@pytest.mark.parametrize("state", [NORMAL, REASONING])
def test_a_text_that_is_one_piece_at_first_sight_is_taken_at_once(state: str) -> None:
    splitter, kind = ChannelSplitter(HERMES, state=state, tools=TOOLS), "content" if state == NORMAL else "reasoning"
    splitter.feed("a")
    assert splitter.prose(" word") == kind
    assert splitter.prose(" word", "content") == ("content" if state == NORMAL else None)
    assert [splitter.prose(text) for text in ("", "x <", "x ", "\n")] == [None] * 4, "it may be next to a marker"
    splitter.feed("<")
    assert splitter.prose("x") is None, "the marker's letters come first"
    assert [piece.text for piece in splitter.feed("x")] == ["<x"]
    assert splitter.prose("y") == kind


def test_places_go_on_behind_a_text_that_was_taken_at_once() -> None:
    splitter = ChannelSplitter(HERMES, tools=TOOLS)
    splitter.feed("ab")
    splitter.prose("cde")
    assert [(piece.text, piece.start, piece.end) for piece in splitter.feed("f")] == [("f", 5, 6)]


@pytest.mark.parametrize("family", WRITERS)
def test_a_text_that_is_taken_at_once_is_what_it_would_be_if_it_were_fed(family: str) -> None:
    rng = random.Random(family)
    markup = markup_of(family)
    for case in rng.sample([case for case in CASES if case.family == family], 6):
        one, other = (ChannelSplitter(markup, state=state_of(case), tools=OfferedTools(case.tools)) for _ in range(2))
        parts = re.findall(r"\s*\w+|\W", case.text)
        quick: list[tuple[str, str]] = []
        for part in parts:
            kind = one.prose(part)
            quick += [(kind, part)] if kind else [(piece.kind, piece.text) for piece in one.feed(part)]
        slow = [(piece.kind, piece.text) for part in parts for piece in other.feed(part)]
        assert quick + [(p.kind, p.text) for p in one.finish()] == slow + [(p.kind, p.text) for p in other.finish()]
