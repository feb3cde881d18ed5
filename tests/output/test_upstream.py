"""Calls are read as upstream's parsers read them, wherever upstream has the family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.output.recorded import WRITERS
from tests.output.recorded.case import OFFERED, Call, Case
from tests.output.recorded.read import read
from tests.output.recorded.scenarios import NESTED, RING, SHORT, TRICKY, TRIP
from tests.output.upstream import FAMILIES, parser, upstream_calls

# What upstream makes less of than it was given.
_STRIPS = ("glm", "longcat", "minicpm5", "minimax_m2", "minimax_m3", "muse")  # whitespace of texts that have no quotes
_NEEDS_ARGUMENTS = ("longcat",)
_NEEDS_BARE_STRINGS = ("functiongemma",)  # a brace or a comma ends an argument, also in a string


def written(family: str, calls: Sequence[Call]) -> Case:
    writer = WRITERS[family]
    return Case(family, "", writer.turn("", "", writer.block(calls)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "calls", [[TRIP], [SHORT, RING, TRIP], [TRICKY], [NESTED]], ids=["one", "three", "odd", "deep"]
)
def test_calls_are_those_that_upstream_reads(family: str, calls: list[Call]) -> None:
    if calls == [NESTED] and family in _NEEDS_BARE_STRINGS:  # which it takes for text
        return
    if family in _NEEDS_ARGUMENTS:
        calls = [call for call in calls if call[1]]
    if family in _NEEDS_BARE_STRINGS:
        calls = [call for call in calls if call != TRICKY]
    case = written(family, calls)
    assert read(case, [case.text]).whole_calls == upstream_calls(family, case.text, OFFERED) == calls


_WORDS = st.text(st.sampled_from("abc äöü字🚲 .,:;!?'-_/&()"), min_size=1, max_size=20).map(str.strip).filter(bool)


@st.composite
def _arguments(draw: st.DrawFn, family: str) -> dict[str, Any]:
    words = _WORDS.filter(lambda text: not set(",:(){}") & set(text)) if family in _NEEDS_BARE_STRINGS else _WORDS
    fields: dict[str, st.SearchStrategy[Any]] = {"body": words}
    if family not in _NEEDS_BARE_STRINGS:
        fields["tags"] = st.lists(words, min_size=1, max_size=3)
        fields["meta"] = st.fixed_dictionaries(
            {"lang": words, "pages": st.lists(st.integers(0, 999), min_size=2, max_size=3), "draft": st.booleans()}
        )
    return draw(st.fixed_dictionaries({"title": words}, optional=fields))


@pytest.mark.parametrize("family", FAMILIES)
@settings(derandomize=True, max_examples=25, deadline=None)
@given(data=st.data())
def test_any_arguments_are_read_as_upstream_reads_them(family: str, data: st.DataObject) -> None:
    calls = [("store_note", arguments) for arguments in data.draw(st.lists(_arguments(family), min_size=1, max_size=2))]
    case = written(family, calls)
    assert read(case, [case.text]).whole_calls == upstream_calls(family, case.text, OFFERED) == calls


@pytest.mark.parametrize("family", _STRIPS)
def test_whitespace_of_a_text_is_kept_where_upstream_strips_it(family: str) -> None:
    call: Call = ("store_note", {"title": "  indented", "body": "  x = 1\n    y = 2  "})
    case = written(family, [call])
    [(_, theirs)] = upstream_calls(family, case.text, OFFERED)
    assert {key: value.strip() for key, value in call[1].items()} == {key: v.strip() for key, v in theirs.items()}
    assert theirs != call[1], "upstream keeps it now: the family is no exception any more"
    assert read(case, [case.text]).whole_calls == [call]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_stands_between_the_markers_that_upstream_looks_for(family: str) -> None:
    text = written(family, [TRIP]).text
    assert parser(family).tool_call_start in text
    assert parser(family).tool_call_end in text
