"""A text that comes in pieces: nothing is decided before enough is there."""

from __future__ import annotations

import pytest

from localai_shim.formats.source import Event, Reading, Source, UnreadableError, layout
from tests.formats.reading import run


def test_the_longest_literal_is_awaited() -> None:
    def read(source: Source) -> Reading[str | None]:
        return (yield from source.literal(["<a>", "<a><b>"]))

    assert run(read, " \n<a><b>x") == ([], "<a><b>", "x")
    assert run(read, "<a><c>") == ([], "<a>", "<c>")
    assert run(read, "<a><b") == ([], "<a>", "<b")
    assert run(read, "  <c>") == ([], None, "  <c>")
    assert run(read, "") == ([], None, "")


def test_the_next_character_is_behind_whitespace() -> None:
    assert run(Source.peek, " \n x")[1:] == ("x", "x")
    assert run(Source.peek, " \n ")[1:] == ("", "")


def test_the_first_of_several_layouts_is_taken_once_it_cannot_be_an_earlier_one() -> None:
    layouts = [layout("<a>NAME<b>"), layout("<a>")]

    def read(source: Source) -> Reading[str | None]:
        found = yield from source.match(layouts)
        return None if found is None else found[1].holes.get("NAME", "")

    assert run(read, "<a>x<b>") == ([], "x", "")
    assert run(read, "<a>x<c>") == ([], "", "x<c>")
    assert run(read, "<a>x") == ([], "", "x")
    assert run(read, "<b>") == ([], None, "<b>")


@pytest.mark.parametrize(
    ("text", "end"), [("a </x> b", 2), ("a </x", 5), ("a <stop> </x>", 2), ("", 0), ("</x>", 0), ("abc", 3)]
)
def test_a_text_goes_up_to_the_first_end_or_stop(text: str, end: int) -> None:
    def read(source: Source) -> Reading[int]:
        return (yield from source.until("</x>"))

    assert run(read, text, stops=["<stop>"]) == ([], end, text)


@pytest.mark.parametrize(
    ("text", "stops"), [(" <stop>", True), ("<sto", False), ("x <stop>", False), ("", True), (" \n", True)]
)
def test_a_stop_or_the_end_is_the_next(text: str, stops: bool) -> None:
    assert run(Source.stops_here, text, stops=["<stop>"]) == ([], stops, text)


@pytest.mark.parametrize(("text", "held"), [("a<s", 1), ("a<sx", 4), ("a<stop>", 1), ("", 0), ("<s<", 2)])
def test_what_may_begin_a_marker_is_held_back(text: str, held: int) -> None:
    source = Source()
    source.text = text
    assert source.held(["<stop>", "</x>"]) == held


def test_a_text_that_has_ended_has_no_more() -> None:
    def read(source: Source) -> Reading[None]:
        yield from source.more()
        yield Event("text", "it came")
        yield from source.more()

    with pytest.raises(UnreadableError):
        run(read, "x")


def test_what_was_read_is_forgotten() -> None:
    source = Source()
    source.text = "abc"
    assert source.take(2) == "ab"
    source.forget()
    assert (source.text, source.at) == ("c", 0)
