"""A row's constraint: the grammar waits until the reasoning is over, which it is when its budget is spent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localai_shim.formats.markup import REASONING, Markup, Thought
from localai_shim.formats.table import FORMATS
from localai_shim.formats.values import OfferedTools
from localai_shim.grammar import GrammarError
from localai_shim.grammar.compile import Grammar, lark, regex
from localai_shim.grammar.constraint import RowConstraint, Thinking
from localai_shim.output.channels import ChannelSplitter
from localai_shim.output.detokenizer import ByteDetokenizer, TokenBytes
from localai_shim.output.stop import RowText, StopStrings
from tests.formats.channels import CHANNELS
from tests.grammar.drafts import allowed, tokenizer_with, vocabulary_of
from tests.samples import exhaustive

MARKERS = ("<think>", "</think>", "<|channel>", "<channel|>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>")
TOKENIZER = tokenizer_with(*MARKERS)
VOCABULARY = vocabulary_of(TOKENIZER)
ALL = None
"""Stands for a mask that limits nothing."""

THINK = Markup(Thought("think", "<think>", "</think>"))
GEMMA = Markup(Thought("think", "<|channel>thought", "<channel|>"))
SPELT = Markup(Thought("think", "<reason>", "</reason>"))  # no special tokens: several tokens each
HARMONY = Markup(tools=FORMATS["harmony"], channels=CHANNELS["harmony"])
YES_OR_NO = "yes|no"


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


def one(text: str) -> int:
    [token] = ids(text)
    return token


def row_text(splitter: ChannelSplitter) -> RowText:
    return RowText(ByteDetokenizer(TokenBytes(TOKENIZER)), splitter)


def constraint(
    pattern: str | None = None,
    *,
    markup: Markup = THINK,
    state: str | None = None,
    thinks: bool = True,
    from_start: bool = False,
    may_open: bool = True,
    barred: Sequence[int] = (),
    budget: int | None = None,
) -> RowConstraint:
    """A constraint whose answer matches a regular expression, of a model with this markup."""
    matcher = None if pattern is None else Grammar(regex(pattern), VOCABULARY).matcher()
    if not thinks:
        return RowConstraint(matcher)
    thinking = Thinking(
        text=row_text(ChannelSplitter(markup, state=state)),
        opener=[] if markup.thought is None else ids(markup.thought.start),
        closer=ids(markup.think_end or ""),
        allowed=may_open,
        barred=barred,
        budget=budget,
        reopeners=[] if markup.thought is None or budget is None else [ids(markup.thought.start)],
    )
    return RowConstraint(matcher, thinking, from_start=from_start)


def asked(row: RowConstraint) -> list[int] | None:
    """The tokens that may come, asked for twice."""
    found = []
    for _ in range(2):
        out = np.zeros(VOCABULARY.words, np.int32)
        found.append(allowed(out) if row.mask(out) else ALL)
    assert found[0] == found[1]
    return found[0]


def take(row: RowConstraint, tokens: Sequence[int] | str) -> list[bool]:
    """Tokens that the constraint's mask or escape allows."""
    out = []
    for token in ids(tokens) if isinstance(tokens, str) else tokens:
        may = asked(row)
        assert may is ALL or token in may or token == row.escape
        out.append(row.accept(token))
    return out


def banned(row: RowConstraint) -> set[int]:
    """The tokens that may not come."""
    may = asked(row)
    return set() if may is ALL else set(range(len(TOKENIZER))) - set(may)


def forced(row: RowConstraint) -> str:
    """What the constraint makes the model say, and has said."""
    out: list[int] = []
    while (may := asked(row)) is not ALL and len(may) == 1:
        out += may
        if row.accept(may[0]):
            break
    return str(TOKENIZER.decode(out))


def letters(row: RowConstraint) -> set[str]:
    """What the answer's first letter may be."""
    may = asked(row)
    assert may is not ALL
    return {str(TOKENIZER.decode([token]))[0] for token in may}


# -- an answer without reasoning --------------------------------------------------------------------------------------


def test_without_reasoning_the_grammar_holds_from_the_first_token() -> None:
    row = constraint(YES_OR_NO, thinks=False)
    assert (row.idle, row.escape, letters(row)) == (False, None, {"y", "n"})
    ended = take(row, "no")
    assert ended == [False] * (len(ended) - 1) + [True]


def test_a_token_that_the_grammar_forbids_is_an_error() -> None:
    with pytest.raises(GrammarError):
        constraint(YES_OR_NO, thinks=False).accept(one("x"))


def test_the_end_of_the_sequence_is_allowed_where_the_grammar_may_end() -> None:
    row = constraint("no(pe)?", thinks=False)
    assert TOKENIZER.eos_token_id not in (asked(row) or ())
    take(row, "no")
    assert TOKENIZER.eos_token_id in (asked(row) or ())


def test_without_grammar_and_reasoning_nothing_is_limited() -> None:
    row = constraint(thinks=False)
    assert (row.idle, row.escape, asked(row)) == (True, None, ALL)


# -- reasoning before a grammar ---------------------------------------------------------------------------------------


def test_a_block_that_the_prompt_opened_is_free_until_it_is_closed() -> None:
    row = constraint(YES_OR_NO, state=REASONING)
    assert (asked(row), row.escape) == (ALL, None)
    take(row, "Hm, yes or no?")
    assert asked(row) is ALL
    take(row, "</think>")
    assert (letters(row), row.escape, row.idle) == ({"y", "n"}, None, False)
    assert take(row, "yes")[-1]


@pytest.mark.parametrize("markup", [THINK, GEMMA, SPELT], ids=["one token", "a token and a word", "letters"])
def test_a_model_may_open_a_block_of_its_own_and_then_has_to_open_it_wholly(markup: Markup) -> None:
    assert markup.thought is not None
    first, *rest = ids(markup.thought.start)
    row = constraint(YES_OR_NO, markup=markup)
    assert letters(row) == {"y", "n"} and row.escape == first
    take(row, [first])
    assert row.escape is None
    assert forced(row) == TOKENIZER.decode(rest)
    assert asked(row) is ALL
    take(row, "\nHm." + markup.thought.end)
    assert (letters(row), row.escape) == ({"y", "n"}, None)


def test_a_model_that_answers_at_once_may_open_no_block_after_that() -> None:
    row = constraint(YES_OR_NO)
    take(row, "y")
    assert row.escape is None and asked(row) is not ALL


def test_an_answer_that_begins_as_a_block_does_is_an_answer() -> None:
    markup = Markup(Thought("think", "<|channel|>thought", "<|end|>"))
    opener, closer = ids("<|channel|>thought"), ids("<|end|>")
    grammar = Grammar(lark(f"start: {VOCABULARY.lark('<|channel|>yes')}"), VOCABULARY)
    row = RowConstraint(grammar.matcher(), Thinking(row_text(ChannelSplitter(markup)), opener, closer))
    take(row, "<|channel|>ye")
    assert forced(row) == "s"
    other = Grammar(regex("yes"), VOCABULARY).matcher()
    row = RowConstraint(other, Thinking(row_text(ChannelSplitter(markup)), opener, closer))
    assert asked(row) is not ALL and row.escape == one("<|channel|>")


def test_a_block_that_is_not_allowed_is_not_offered() -> None:
    row = constraint(YES_OR_NO, may_open=False)
    assert row.escape is None and letters(row) == {"y", "n"}


def test_end_markers_are_found_in_letters_and_across_tokens() -> None:
    row = constraint(YES_OR_NO, state=REASONING)
    for token in ids("</th") + ids("ink") + ids(" "):
        take(row, [token])
    assert asked(row) is ALL
    for letter in "</think>":
        assert asked(row) is ALL
        take(row, letter)
    assert letters(row) == {"y", "n"}


def test_a_thought_before_a_grammar_holds_no_token_that_is_barred() -> None:
    barred = [TOKENIZER.eos_token_id, one("x")]
    everything = set(range(VOCABULARY.words * 32))
    for row, start in (
        (constraint(YES_OR_NO, barred=barred), "<think>"),
        (constraint(YES_OR_NO, barred=barred, state=REASONING), ""),
    ):
        take(row, start)
        assert set(asked(row) or ()) == everything - set(barred)
        take(row, "Hm.")
        assert set(asked(row) or ()) == everything - set(barred)
        take(row, "</think>")
        assert letters(row) == {"y", "n"}
    free = constraint(barred=barred, state=REASONING)
    assert asked(free) is ALL


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 1, 5])
@pytest.mark.parametrize("pattern", [None, YES_OR_NO], ids=["free", "guided"])
@pytest.mark.parametrize("opened", [True, False], ids=["by the prompt", "by the model"])
def test_a_block_is_closed_after_its_budget(budget: int, pattern: str | None, opened: bool) -> None:
    row = constraint(pattern, state=REASONING if opened else None, budget=budget)
    if not opened:
        take(row, "<think>")
    for token in ids("a b c d e f g h")[:budget]:
        assert asked(row) is ALL
        take(row, [token])
    assert asked(row) == ids("</think>")
    take(row, "</think>")
    if pattern is None:
        assert banned(row) == {one("<think>")}
    else:
        assert letters(row) == {"y", "n"}


@pytest.mark.parametrize("pattern", [None, YES_OR_NO])
def test_an_end_marker_of_several_tokens_is_forced_one_by_one(pattern: str | None) -> None:
    row = constraint(pattern, markup=SPELT, state=REASONING, budget=1)
    take(row, "x")
    assert len(ids("</reason>")) > 2
    for token in ids("</reason>"):
        assert asked(row) == [token]
        take(row, [token])
    assert asked(row) is ALL if pattern is None else letters(row) == {"y", "n"}


def test_a_block_that_closes_in_time_is_left_alone() -> None:
    row = constraint(state=REASONING, budget=50)
    take(row, "Hm.</think>Yes, and so on, for more than the budget has tokens. " * 3)
    assert asked(row) is ALL


def test_a_guide_without_grammar_and_budget_is_idle_once_the_answer_has_begun() -> None:
    row = constraint(state=REASONING)
    assert not row.idle
    take(row, "Hm.</think>")
    assert row.idle


def test_blocks_share_one_budget() -> None:
    row = constraint(budget=3)
    take(row, "<think>xy</think>So")
    assert not row.idle
    take(row, "<think>z")
    assert asked(row) == ids("</think>")
    take(row, "</think>")
    assert banned(row) == {one("<think>")}


def test_with_no_budget_at_all_the_only_block_is_closed_as_soon_as_it_opens() -> None:
    row = constraint(budget=0)
    take(row, "Sure.")
    assert asked(row) is ALL
    take(row, "<think>")
    assert forced(row) == "</think>"
    for _ in range(3):
        assert banned(row) == {one("<think>")}
        take(row, "Well.")


@pytest.mark.parametrize(
    ("markup", "pattern"),
    [(THINK, None), (GEMMA, None), (SPELT, None), (SPELT, "(?s:.*)")],
    ids=["one token", "a token and a word", "letters", "letters that the grammar takes for text"],
)
def test_no_block_opens_once_the_budget_is_spent(markup: Markup, pattern: str | None) -> None:
    assert markup.thought is not None
    opens, closes = ids(markup.thought.start), ids(markup.thought.end)
    row = constraint(pattern, markup=markup, budget=3 + len(closes) - 1)  # but for its last token, a marker is thought
    for thought in ("a", "bc"):
        take(row, "So" if pattern else "")
        take(row, opens)
        take(row, thought)
        take(row, closes)
    for _ in range(2):
        take(row, "So")
        take(row, opens[:-1])
        assert opens[-1] in banned(row)
        assert len(banned(row)) == 1 or pattern


def test_a_closer_that_the_model_has_begun_is_ended_when_the_budget_is_spent() -> None:
    closer = ids("</reason>")
    for begun in range(1, len(closer)):
        row = constraint(markup=SPELT, state=REASONING, budget=2 + begun)
        take(row, "ab")
        take(row, closer[:begun])
        assert forced(row) == str(TOKENIZER.decode(closer[begun:]))
        assert asked(row) is ALL


def test_where_a_prompt_has_closed_the_block_none_opens_again() -> None:
    row = constraint(budget=0, may_open=False)
    for _ in range(2):
        assert banned(row) == {one("<think>")}
        take(row, "Yes.")


# -- channels ---------------------------------------------------------------------------------------------------------


def harmony(budget: int | None = None, letters: str = "a-z ") -> RowConstraint:
    """A constraint whose grammar is that of the whole answer, with these letters in its thought."""
    opening, closing, final = map(
        VOCABULARY.lark, ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant", "<|channel|>final<|message|>")
    )
    source = f'start: ({opening} /[{letters}]*/ {closing})? {final} ("yes" | "no")'
    thinking = Thinking(
        text=row_text(ChannelSplitter(HARMONY)),
        opener=[],
        closer=ids("<|end|>"),
        budget=budget,
    )
    return RowConstraint(Grammar(lark(source), VOCABULARY).matcher(), thinking, from_start=True)


def test_a_grammar_of_the_whole_answer_holds_in_the_reasoning_too() -> None:
    row = harmony()
    assert asked(row) == ids("<|channel|>") and row.escape is None
    take(row, "<|channel|>analysis<|message|>hm yes")
    assert one("X") not in (asked(row) or ()) and one("x") in (asked(row) or ())
    assert take(row, "<|end|><|start|>assistant<|channel|>final<|message|>yes")[-1]


@pytest.mark.parametrize("budget", [0, 2])
def test_a_budget_closes_a_channel_whose_grammar_goes_on(budget: int) -> None:
    row = harmony(budget)
    take(row, "<|channel|>analysis<|message|>")
    take(row, ids("hm yes yes yes")[:budget])
    assert asked(row) == ids("<|end|>")
    assert take(row, "<|end|><|start|>assistant<|channel|>final<|message|>no")[-1]


def test_a_budget_that_is_spent_amid_a_character_closes_the_channel_behind_it() -> None:
    first, *others = ids("\N{OCTOPUS}")
    row = harmony(1, "a-z\N{OCTOPUS}")
    take(row, "<|channel|>analysis<|message|>")
    take(row, [first])
    for token in others:
        assert asked(row) == [token]
        take(row, [token])
    assert asked(row) == ids("<|end|>")
    assert take(row, "<|end|><|start|>assistant<|channel|>final<|message|>no")[-1]


def test_channels_without_grammar_are_closed_and_followed_to_the_end() -> None:
    row = constraint(markup=HARMONY, budget=2)
    for _ in range(2):
        take(row, "<|channel|>analysis<|message|>")
        while asked(row) is ALL:
            take(row, "a")
        assert forced(row) == "<|end|>"
        take(row, "<|start|>assistant")
    take(row, "<|channel|>final<|message|>Yes, that is so.")
    assert asked(row) is ALL


def test_a_failure_of_the_grammar_is_the_guide_s() -> None:
    row = constraint("a", thinks=False)
    out: Any = np.zeros(VOCABULARY.words, np.int32)
    with pytest.raises(GrammarError):
        row.accept(one("b"))
    with pytest.raises(GrammarError):
        row.mask(out)


# -- with a stop check that reads the same text -----------------------------------------------------------------------


CALLING = Markup(Thought("think", "<think>", "</think>"), tools=FORMATS["qwen3_coder"])
CALLED = OfferedTools([{"type": "function", "function": {"name": "f", "parameters": {}}}])


def tokens_of(rng: random.Random) -> list[int]:
    call = ["<tool_call>", "<function=f>", "</function>", "</tool_call>"]
    parts = ["yes", "no", " ", "\n", "a", "<think>", "</think>", *call, "</th"]
    return [token for part in rng.choices(parts, k=rng.randint(1, 25)) for token in ids(part)]


@pytest.mark.parametrize(
    ("budget", "matches"),
    [
        (0, None),
        (4, None),
        (1000, None),
        (None, r"[^x]*"),
        (4, r"[^x]*"),
        pytest.param(1000, r"[^x]*", marks=exhaustive),
    ],
)
def test_a_guide_and_a_stop_check_find_in_one_text_what_they_find_in_two(
    budget: int | None, matches: str | None
) -> None:
    rng = random.Random(budget)
    compiled = None if matches is None else Grammar(regex(matches), VOCABULARY)
    limits = {"opener": ids("<think>"), "closer": ids("</think>"), "barred": [one("a")], "budget": budget}
    stopped = 0
    for _ in range(150 if matches is None else 60):  # whose masks take long
        state, offered = rng.choice([None, REASONING]), rng.choice([CALLED, OfferedTools()])
        stop = ["".join(rng.choices("noa ", k=rng.randint(1, 2)))]
        shared, own, alone = (
            row_text(ChannelSplitter(CALLING, state=state, tools=offers))
            for offers in (offered, offered, OfferedTools())
        )
        checks = [StopStrings(text, stop, 2) for text in (shared, own)]
        constraints = [
            RowConstraint(None if compiled is None else compiled.matcher(), Thinking(text=text, **limits))
            for text in (shared, alone)
        ]
        for token in tokens_of(rng):
            may = asked(constraints[0])
            assert may == asked(constraints[1])
            if may is not ALL and token not in may:
                if len(may) > 1:
                    continue
                token = may[0]
            ends = [check.feed(token) for check in checks]
            over = [constraint.accept(token) for constraint in constraints]
            assert ends[0] == ends[1]
            assert over[0] == over[1]
            assert constraints[0].idle == constraints[1].idle
            assert constraints[0].escape == constraints[1].escape
            if ends[0] or over[0]:
                stopped += ends[0]
                break
            if shared.in_reasoning != alone.in_reasoning:
                assert offered.functions  # a string of a call amid reasoning said that this is over, and the call ended
                break
    assert stopped
