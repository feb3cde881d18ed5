"""How much of a prediction an answer has: the place in it is lost where they differ, and found again."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import pytest

from localai_shim.output.prediction import Pointer, Prediction

TEXT = list(range(100, 140))


def accepted_tokens(prediction: list[int], answer: list[int]) -> int:
    pointer = Pointer(Prediction(prediction))
    pointer.feed(answer)
    return pointer.accepted


def test_an_answer_that_is_the_prediction_has_all_of_it() -> None:
    assert accepted_tokens(TEXT, TEXT) == 40


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ([*TEXT[:10], 1, *TEXT[11:]], 39),  # one token replaced by another
        ([*TEXT[:10], 1, 2, 3, *TEXT[13:]], 37),  # and three
        ([*TEXT[:10], 1, 2, 3, *TEXT[10:]], 38),  # three put in: two tokens tell where it goes on
        ([*TEXT[:10], 1, 2, 3, 4, 5, 6, 7, 8, 9, *TEXT[10:]], 38),  # and nine
        ([*TEXT[:10], 1, *TEXT[12:]], 37),  # two replaced by one
        ([*TEXT[:10], *TEXT[20:]], 28),  # ten left out
        ([*TEXT[20:], *TEXT[:20]], 36),  # halves that changed places
        ([1, 2, 3], 0),
        ([], 0),
    ],
)
def test_an_answer_with_edits_has_the_rest(answer: list[int], accepted: int) -> None:
    assert accepted_tokens(TEXT, answer) == accepted


def test_a_token_of_the_prediction_comes_once_at_most() -> None:
    assert accepted_tokens(TEXT, TEXT * 3) == 40


def test_what_comes_next_is_known_as_long_as_the_place_is() -> None:
    after, output = Prediction(TEXT).follow(), [100, 101]
    assert list(after((), 3)) == [100, 101, 102]
    assert list(after(output, 2)) == [102, 103]
    output.append(7)
    assert list(after(output, 2)) == [103, 104], "one token may have been replaced"
    output += range(1, 9)
    assert not after(output, 2)
    output += [120, 121]
    assert list(after(output, 2)) == [122, 123]
    output += TEXT[22:]
    assert not after(output, 2), "it is over"


def test_a_repetition_with_an_edit_is_not_gone_back_to() -> None:
    """What stands before the edit is what the answer goes on with, for ever."""
    after, output = Prediction([5, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1, 1]).follow(), [5, 1, 1, 1, 1]
    assert list(after(output, 1)) == [9]
    for _ in range(4):
        output.append(1)
        assert list(after(output, 1)) == [1]


WORDS = ["", "The", " mor", "ning", " morning", " was", " cold", "#", "in", "g", " and", " very", " old", " wet", "."]


def followed(prediction: str, answer: str) -> str:
    """What is expected next after these tokens, each by its number in `WORDS`, as text; tokens stand between bars."""
    predicted, said = ([WORDS.index(word) for word in text.split("|")] for text in (prediction, answer))
    after = Prediction(predicted, WORDS.__getitem__).follow()
    return "".join(WORDS[token] for token in after(said, 2))


@pytest.mark.parametrize(
    ("prediction", "answer", "coming"),
    [
        ("The| mor|#|in|g| was| cold", "The| morning", " was cold"),  # a letter, and other tokens around it
        ("The| morning| was| cold", "The| mor|#|in|g", " was cold"),
        ("The| mor|#|in|g| was| cold", "The| mor|ning", " was cold"),
        ("The| morning| was| cold|.", "The| old", " was cold"),  # another word: as if it stood for one
        ("The| morning| was| cold|.", "The| very| cold| morning", " was cold"),
        ("The| very| cold| mor|ning| was| wet", "The| morning", " was wet"),  # two words less
        ("The| morning| was| cold", "The|", " morning was"),  # a token without a text
    ],
)
def test_after_an_edit_the_text_tells_the_place_whatever_tokens_it_has(
    prediction: str, answer: str, coming: str
) -> None:
    assert followed(prediction, answer) == coming


def test_letters_that_are_others_cost_a_step_each_and_no_more() -> None:
    """Tokens of a letter or of several: an answer without the edits, of which one letter in forty was changed."""
    draw = random.Random(5)
    pieces = (
        [chr(97 + i) for i in range(26)]
        + [chr(97 + draw.randrange(26)) + chr(97 + draw.randrange(26)) + "e" * (i % 2) for i in range(400)]
        + ["#"]
    )

    def coded(text: str) -> list[int]:
        out = []
        while text:
            size = next(n for n in (3, 2, 1) if text[:n] in pieces)
            out.append(pieces.index(text[:size]))
            text = text[size:]
        return out

    text = "".join(draw.choice(pieces[:-1]) for _ in range(1_500))
    answer = coded(text)
    edited = coded("".join("#" if i % 40 == 39 else letter for i, letter in enumerate(text)))
    after, steps, at = Prediction(edited, pieces.__getitem__).follow(), 0, 0
    while at < len(answer):
        drafts = after(answer[:at], 15)
        right = next((i for i, (a, b) in enumerate(zip(drafts, answer[at:], strict=False)) if a != b), len(drafts))
        at, steps = at + right + 1, steps + 1
    assert steps < 2.2 * len(text) / 40 + len(answer) / 16


def test_what_an_edit_takes_does_not_grow_with_the_prediction() -> None:
    """The engine thread follows it: of a long one no more is looked at, but for a search of a string."""

    def lines(length: int) -> int:
        made, count = Prediction(range(100, 100 + length)), 0

        def counting(frame: Any, event: str, arg: object) -> Any:
            nonlocal count
            count += event == "line" and frame.f_code.co_filename.endswith("prediction.py")
            return counting

        after, output = made.follow(), [*made.tokens[:10]]
        after(output, 2)
        output += [7, *made.tokens[11:14], 8, 9, made.tokens[40], made.tokens[41]]
        sys.settrace(counting)
        try:
            coming = after(output, 2)
        finally:
            sys.settrace(None)
        assert coming == made.tokens[42:44]
        return count

    assert 0 < lines(16_000) == lines(60)


def test_an_edit_in_a_long_prediction_takes_a_small_share_of_what_making_it_does() -> None:
    tokens = [random.Random(1).randrange(1_000) for _ in range(16_000)]
    making, following = [], []
    for _ in range(7):
        start = time.thread_time()
        made = Prediction(tokens)
        making.append(time.thread_time() - start)
        after = made.follow()
        after(tokens[:100], 2)
        start = time.thread_time()
        coming = after([*tokens[:100], -1, *tokens[300:304]], 2)
        following.append(time.thread_time() - start)
        assert list(coming) == tokens[304:306]
    assert min(following) < min(making) / 5
