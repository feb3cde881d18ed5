"""What a chunk of a call costs: a few calls of Python functions, and no more where the call is long."""

from __future__ import annotations

import itertools
import json
import sys
import time
from types import FrameType

import pytest

from localai_shim.types import Token
from tests.output.reading import tokens
from tests.output.recorded import WRITERS
from tests.output.recorded.case import Case
from tests.output.recorded.read import markup_of, parser_of

MOST_CALLS = 60  # of Python functions, generators that go on included: 48 of JSON, 55 between tags
LETTERS = 5  # of a token
LONGER = 8
SHORTEST = 0.001  # seconds; what takes less is not measured well
# One family of each reader, and of each way to begin a block.
READERS = (
    "hermes", "llama3_json", "apertus", "mistral", "kimi_k2", "qwen3_coder", "glm", "minimax_m3", "kimi_k3", "pythonic",
    "gemma4", "functiongemma", "harmony",
)  # fmt: skip


def streamed(case: Case) -> tuple[list[str], list[Token]]:
    pieces = [case.text[at : at + LETTERS] for at in range(0, len(case.text), LETTERS)]
    return pieces, [Token(i) for i in range(len(pieces))]


def long_call(family: str, words: int) -> Case:
    writer = WRITERS[family]
    text = "".join(itertools.islice(itertools.cycle((" word", " it's", " \\d+", "\ntext")), words))
    return Case(family, "", writer.turn("", "", writer.block([("store_note", {"title": "a", "body": "x" + text})])))


def odd(words: int) -> list[Case]:
    """Long answers in which something waits for its end."""
    text, code = "word " * words, "if a < b: " * (words // 2)
    encoded = json.dumps(json.dumps({"title": "a", "body": text}))
    call = f'{{"name": "store_note", "arguments": {json.dumps({"title": text})}}}'
    return [
        Case(
            "hermes",
            "arguments as a string",
            f'<tool_call>{{"name": "store_note", "arguments": {encoded}}}</tool_call>',
        ),
        Case("hermes", "before the name", f'<tool_call>{{"arguments": {{"body": "{text}"}}, "name": "store_note"}}'),
        Case("hermes", "a string without an end", f'<tool_call>{{"name": "store_note", "arguments": {{"body": "{text}'),
        Case("hermes", "a key without an end", f'<tool_call>{{"{text}'),
        Case("hermes", "no call", f"<tool_call>[{{{text}"),
        Case("hermes", "amid the reasoning", f"<think>a <tool_call>{call}"),
        Case("hermes", "an answer", code + text),
        Case("qwen3_coder", "code", f"<tool_call><function=store_note><parameter=body>\n{code}</parameter></function>"),
        Case(
            "qwen3_coder", "JSON", f"<tool_call><function=store_note><parameter=meta>\n[{'1, ' * words}1]</parameter>"
        ),
        Case(
            "qwen3_coder",
            "an end that is none",
            f"<tool_call><function=store_note><parameter=body>\n</parameter> {text}",
        ),
        Case("qwen3_coder", "no parameter", f"<tool_call><function=store_note>{text}"),
        Case("lfm2", "a list", f"<|tool_call_start|>[store_note(tags=[{'1, ' * words}1])]"),
        Case("lfm2", "without an end", f'<|tool_call_start|>[store_note(title="{text}'),
        Case("gemma4", "without an end", f'<|tool_call>call:store_note{{title:<|"|>{text}'),
        Case("gemma4", "a list", f"<|tool_call>call:store_note{{tags:[{'1,' * words}1]}}"),
        Case("llama3_json", "an answer in JSON", f'{{"text": "{text}"}}'),
        Case("mistral", "a name", f"[TOOL_CALLS]{'store' * words}"),
        Case("qwen3_coder", "a key", f"<tool_call><function=store_note><parameter={'title' * words}"),
        Case("harmony", "a header", f"<|channel|>{text}"),
    ]


@pytest.mark.parametrize("family", ["hermes", "mistral", "qwen3_coder", "glm", "minimax_m2", "lfm2", "gemma4"])
def test_a_chunk_of_a_call_takes_few_calls(family: str) -> None:
    pieces, row = streamed(long_call(family, 2000))
    parser = parser_of(long_call(family, 2000), pieces)
    middle = len(row) // 2
    for token in row[:middle]:
        parser.feed(token)
    count = 0

    def entered(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    for token in row[middle : middle + 100]:
        parser.feed(token)
    sys.setprofile(before)
    assert 0 < count / 100 <= MOST_CALLS


def long_answers(family: str, letters: int) -> dict[str, Case]:
    """Answers of a family that have much of one thing, most of them without an end."""
    block, tools = WRITERS[family].block, markup_of(family).tools
    assert tools is not None
    note = block([("store_note", {"title": "HERE"})])
    number = block([("plan_trip", {"nights": 77345})])
    value, bare, name = note[: note.index("HERE")], number[: number.index("77345")], note[: note.index("store_note")]
    ring = block([("ring", {})])
    much = {
        "calls": ("", ring),
        "text behind a call": (ring, "word "),
        "beginnings of blocks": ("", tools.start or ring[:12]),
        "ends of blocks": ("", tools.end or "]"),
        "calls without an end": ("", ring[: len(ring) * 2 // 3]),
        "a name": (name, "x"),
        "blanks in place of a name": (name, " "),
        "blanks behind a name": (name + "store_note", " "),
        **{f"a value of {letter!r}": (value, letter) for letter in ('"', "'", "\\", "[", "}", "<", "\n", "a, ")},
        **{f"a number of {letter!r}": (bare, letter) for letter in ("1", " ", "[", "word ")},
    }
    return {what: Case(family, what, before + part * (letters // len(part))) for what, (before, part) in much.items()}


def seconds(case: Case, *, whole: bool = False, times: int = 3) -> float:
    """Time to read an answer, the least of several."""
    pieces, row = ([case.text], tokens([case.text], "stop")) if whole else streamed(case)
    took = []
    for _ in range(times):
        parser = parser_of(case, pieces)
        began = time.process_time()
        for token in row:
            parser.feed(token)
        took.append(time.process_time() - began)
    return min(took)


def grows(short: Case, long: Case, *, whole: bool = False) -> bool:
    """The longer answer takes more than its share; a machine that is busy makes one measurement say so, not all."""

    def ratio(times: int) -> float:
        return seconds(long, whole=whole, times=times) / max(seconds(short, whole=whole, times=times), SHORTEST)

    return all(ratio(times) > 2 * LONGER for times in (1, 3, 3))


@pytest.mark.timed
@pytest.mark.parametrize("family", WRITERS)
def test_a_call_that_is_longer_takes_as_many_times_longer(family: str) -> None:
    assert not grows(long_call(family, 500), long_call(family, 500 * LONGER))


@pytest.mark.timed
@pytest.mark.parametrize("number", range(len(odd(1))), ids=[str(case) for case in odd(1)])
def test_what_waits_for_its_end_takes_no_longer_the_longer_it_waits(number: int) -> None:
    assert not grows(odd(1000)[number], odd(1000 * LONGER)[number])


@pytest.mark.timed
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("family", READERS)
def test_an_answer_that_is_longer_takes_as_many_times_longer(family: str, whole: bool) -> None:
    short, long = long_answers(family, 1_500), long_answers(family, 1_500 * LONGER)
    assert [what for what in long if grows(short[what], long[what], whole=whole)] == []
