"""How much of a prediction an answer has: the place in it is lost where they differ, and found again."""

from __future__ import annotations

import pytest

from localai_shim.prediction import Follower, accepted_tokens

TEXT = list(range(100, 140))


def test_an_answer_that_is_the_prediction_has_all_of_it() -> None:
    assert accepted_tokens(TEXT, TEXT) == 40


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ([*TEXT[:10], 1, *TEXT[11:]], 39),  # one token replaced by another
        ([*TEXT[:10], 1, 2, 3, *TEXT[13:]], 37),  # and three
        ([*TEXT[:10], 1, 2, 3, *TEXT[10:]], 38),  # three put in: two tokens tell where it goes on
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
