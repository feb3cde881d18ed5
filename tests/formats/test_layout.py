"""Layouts: matched anywhere in a text, also when it is not all there yet, and written."""

from __future__ import annotations

import pytest

from localai_shim.formats.source import Match, Partial, around, layout, skip_space


def test_a_layout_is_literals_and_holes_in_turn() -> None:
    parts = layout("<a NAME=KEY>VALUE</a>").parts
    assert parts == (
        (False, "<a "),
        (True, "NAME"),
        (False, "="),
        (True, "KEY"),
        (False, ">"),
        (True, "VALUE"),
        (False, "</a>"),
    )
    assert layout("RENAME THE KEYS").parts == ((False, "RENAME THE KEYS"),), "only whole words are holes"


@pytest.mark.parametrize(
    ("text", "written", "holes", "end"),
    [
        ("<function=NAME>", "<function=f.g-1>x", {"NAME": "f.g-1"}, 16),
        ("<function=NAME>\n", "  <function= f>", {}, None),
        ("<function=NAME>\n", "\n <function=f >rest", {"NAME": "f"}, 15),
        ("functions.NAME:INDEX<x>", "functions.f:12<x>", {"NAME": "f", "INDEX": "12"}, 17),
        ("NAME[CALL_ID]ID[ARGS]", "f[CALL_ID]a:b-c[ARGS]{", {"NAME": "f", "ID": "a:b-c"}, 21),
        ('<p name="KEY" t="TYPE">', '<p name="größe" t="true">', {"KEY": "größe", "TYPE": "true"}, 25),
        ("<function=NAME>", "<function=>", {}, None),
        ("<function=NAME>", "<function=f g>", {}, None),
        ("<function=NAME>", "<functional>", {}, None),
    ],
)
def test_a_layout_is_found_with_free_space_around_its_literals(
    text: str, written: str, holes: dict[str, str], end: int | None
) -> None:
    found = layout(text).match(written, 0)
    assert found == (None if end is None else Match(end, holes))


@pytest.mark.parametrize("text", ["<function=NAME>", "NAME\n```json\n", "functions.NAME:INDEX<sep>"])
def test_a_layout_that_is_not_all_there_may_become_one_at_every_letter(text: str) -> None:
    whole = layout(text).write({"NAME": "store", "INDEX": "0"}).rstrip()
    for end in range(len(whole)):
        assert isinstance(layout(text).match(whole[:end], 0), Partial), whole[:end]
    assert isinstance(layout(text).match(whole, 0), Match)


def test_a_hole_at_the_end_of_the_text_may_go_on() -> None:
    assert isinstance(layout("NAME").match("store", 0), Partial)
    assert layout("NAME").match("store ", 0) == Match(5, {"NAME": "store"})


def test_a_hole_has_a_length() -> None:
    """A name that goes on and on is none; otherwise it would be read again with each token."""
    assert isinstance(layout("NAME:").match("x" * 200, 0), Partial)
    assert layout("NAME:").match("x" * 300, 0) is None


def test_the_holes_of_a_layout_are_filled() -> None:
    assert layout("<a NAME>VALUE</a>").write({"NAME": "n", "VALUE": "v NAME"}) == "<a n>v NAME</a>"


def test_what_stands_around_a_hole() -> None:
    assert around("<a>VALUE</a>", "VALUE") == ("<a>", "</a>")
    with pytest.raises(ValueError, match="no VALUE in '<a>'"):
        around("<a>", "VALUE")


def test_space_is_skipped() -> None:
    assert skip_space(" \n\tx", 0) == 3
    assert skip_space("x", 0) == 0
    assert skip_space("  ", 0) == 2
