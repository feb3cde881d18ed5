"""Answers of every family are read as their models mean them, whole and in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import Case
from tests.output.recorded.read import read

FAMILIES = sorted({case.family for case in CASES})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_answer_says_what_its_model_means(case: Case) -> None:
    found = read(case, [case.text])
    assert found.whole_calls == list(case.calls)
    assert [name for name, _ in found.broken_calls] == [name for name, _ in case.broken]
    for (_, arguments), (_, part) in zip(found.broken_calls, case.broken, strict=True):
        assert part in arguments
    if case.reasoning is not None:
        assert found.reasoning.strip() == case.reasoning.strip()
    if case.content is not None:
        assert found.content.strip() == case.content.strip()


def _of(family: str) -> list[Case]:
    return [case for case in CASES if case.family == family]


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_of_an_answer_is_lost(family: str) -> None:
    for case in _of(family):
        found = read(case, [case.text])
        calls = [arguments for _, arguments in found.calls]
        everything = "\n".join([found.content, *calls, *(call.text for call in found.invalid)])
        assert not [part for part in case.kept if part not in everything], case
        assert found.invalid or not case.unreadable, case


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_reported_as_unreadable_where_all_is_read(family: str) -> None:
    for case in _of(family):
        if case.content == "" and case.finish == "stop":
            assert bool(read(case, [case.text]).invalid) == case.unreadable, case


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_that_comes_by_characters_says_the_same(family: str) -> None:
    for case in _of(family):
        assert read(case, list(case.text)) == read(case, [case.text]), case


@pytest.mark.parametrize("family", FAMILIES)
@settings(derandomize=True, deadline=None, max_examples=50)
@given(data=st.data())
def test_an_answer_in_any_pieces_says_the_same(family: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(_of(family)))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(case.text) - 1)), max_size=12)))
    pieces = [case.text[a:b] for a, b in zip([0, *cuts], [*cuts, len(case.text)], strict=True)]
    assert read(case, pieces) == read(case, [case.text])


@pytest.mark.parametrize("family", FAMILIES)
def test_no_marker_reaches_the_content(family: str) -> None:
    for case in _of(family):
        if case.calls and case.finish == "stop":
            content = read(case, [case.text]).content
            assert not [marker for marker in WRITERS[family].markers if marker in content], case
