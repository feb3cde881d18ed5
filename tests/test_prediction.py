"""How much of a prediction an answer has: the place in it is lost where they differ, and found again."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import pytest

from localai_shim.engine.drafts.prediction import Follower, Prediction, accepted_tokens

TEXT = list(range(100, 140))


def test_an_answer_that_is_the_prediction_has_all_of_it() -> None:
    assert accepted_tokens(TEXT, TEXT) == 40


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ([*TEXT[:10], 1, *TEXT[11:]], 39),  # one token replaced by another
        ([*TEXT[:10], 1, 2, 3, *TEXT[13:]], 37),  # and three
        ([*TEXT[:10], 1, 2, 3, *TEXT[10:]], 39),  # three put in: one token tells where it goes on
        ([*TEXT[:10], 1, 2, 3, 4, 5, 6, 7, 8, 9, *TEXT[10:]], 38),  # after more, two do
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


def test_what_comes_next_is_said_as_long_as_the_place_is_known() -> None:
    follower = Follower(TEXT)
    assert list(follower.next(3)) == [100, 101, 102]
    follower.feed([100, 101])
    assert list(follower.next(2)) == [102, 103]
    follower.feed([7])
    assert list(follower.next(2)) == [103, 104], "one token may have been replaced"
    follower.feed(range(1, 9))
    assert not follower.next(2)
    follower.feed([120, 121])
    assert list(follower.next(2)) == [122, 123]
    follower.feed(TEXT[22:])
    assert not follower.next(2), "it is over"


def test_a_repetition_with_an_edit_is_not_gone_back_to() -> None:
    """What stands before the edit is what the answer goes on with, for ever."""
    follower = Follower([5, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1, 1])
    follower.feed([5, 1, 1, 1, 1])
    assert list(follower.next(1)) == [9]
    for _ in range(4):
        follower.feed([1])
        assert list(follower.next(1)) == [1]


WORDS = ["", "The", " mor", "ning", " morning", " was", " cold", "#", "in", "g", " and", " very", " old", " wet", "."]


def followed(prediction: str, answer: str) -> str:
    """What is expected next after these tokens, each by its number in `WORDS`, as text; tokens stand between bars."""
    predicted, said = ([WORDS.index(word) for word in text.split("|")] for text in (prediction, answer))
    follower = Follower(Prediction(predicted, WORDS.__getitem__))
    follower.feed(said)
    return "".join(WORDS[token] for token in follower.next(2))


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
    follower, steps, at = Follower(Prediction(edited, pieces.__getitem__)), 0, 0
    while at < len(answer):
        drafts = follower.next(15)
        right = next((i for i, (a, b) in enumerate(zip(drafts, answer[at:], strict=False)) if a != b), len(drafts))
        follower.feed(answer[at : at + right + 1])
        at, steps = at + right + 1, steps + 1
    assert steps < 2.2 * len(text) / 40 + len(answer) / 16


def plain(tokens: list[int], recent: list[int], start: int) -> int | None:
    """What `Prediction.behind` finds, by looking everywhere."""
    for size in range(len(recent), 1, -1):
        ends = [end for end in range(size, len(tokens) + 1) if tokens[end - size : end] == recent[-size:]]
        if ends:
            return next((end for end in ends if end >= start), ends[-1])
    return None


def test_a_place_is_found_by_as_many_of_the_last_tokens_as_stand_somewhere() -> None:
    draw = random.Random(3)
    found = 0
    for _ in range(2_000):
        tokens = [draw.randrange(4) for _ in range(draw.randrange(30))]
        recent, start = [draw.randrange(4) for _ in range(draw.randrange(5))], draw.randrange(-1, 32)
        place = Prediction(tokens).behind(recent, start)
        assert place == plain(tokens, recent, start)
        found += place is not None
    assert found > 500


def test_what_an_edit_takes_does_not_grow_with_the_prediction() -> None:
    """The engine thread follows it: the index is made before, and of a long one no more is looked at."""

    def lines(length: int) -> int:
        made, count = Prediction(range(100, 100 + length)), 0

        def counting(frame: Any, event: str, arg: object) -> Any:
            nonlocal count
            count += event == "line" and frame.f_code.co_filename.endswith("prediction.py")
            return counting

        follower = Follower(made)
        follower.feed(made[:10])
        sys.settrace(counting)
        try:
            follower.feed([7, *made[11:14], 8, 9, made[40], made[41]])
        finally:
            sys.settrace(None)
        assert list(follower.next(2)) == list(made[42:44])
        return count

    assert 0 < lines(16_000) == lines(60)


def test_an_edit_in_a_long_prediction_takes_a_small_share_of_its_index() -> None:
    tokens = [random.Random(1).randrange(1_000) for _ in range(16_000)]
    indexing, following = [], []
    for _ in range(7):
        start = time.thread_time()
        made = Prediction(tokens)
        indexing.append(time.thread_time() - start)
        follower = Follower(made)
        follower.feed(made[:100])
        start = time.thread_time()
        follower.feed([-1, *made[300:304]])
        following.append(time.thread_time() - start)
        assert list(follower.next(2)) == list(made[304:306])
    assert min(following) < min(indexing) / 5
