"""Answers of every family are read as their models mean them, whole and in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.output.recorded import CASES, WRITERS
from tests.output.recorded.case import Case
from tests.output.recorded.read import read


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


@pytest.mark.parametrize("case", [c for c in CASES if c.kept or c.unreadable], ids=str)
def test_nothing_of_an_answer_is_lost(case: Case) -> None:
    found = read(case, [case.text])
    everything = "\n".join(
        [found.content, *(arguments for _, arguments in found.calls), *(call.text for call in found.invalid)]
    )
    for part in case.kept:
        assert part in everything
    assert found.invalid or not case.unreadable


@pytest.mark.parametrize("case", [c for c in CASES if c.content == "" and c.finish == "stop"], ids=str)
def test_nothing_is_reported_as_unreadable_where_all_is_read(case: Case) -> None:
    found = read(case, [case.text])
    assert bool(found.invalid) == case.unreadable


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_answer_that_comes_by_characters_says_the_same(case: Case) -> None:
    assert read(case, list(case.text)) == read(case, [case.text])


@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
@settings(derandomize=True, deadline=None)
@given(data=st.data())
def test_an_answer_in_any_pieces_says_the_same(family: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([case for case in CASES if case.family == family]))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(case.text) - 1)), max_size=12)))
    pieces = [case.text[a:b] for a, b in zip([0, *cuts], [*cuts, len(case.text)], strict=True)]
    assert read(case, pieces) == read(case, [case.text])


@pytest.mark.parametrize("case", [c for c in CASES if c.calls and c.finish == "stop"], ids=str)
def test_no_marker_reaches_the_content(case: Case) -> None:
    found = read(case, [case.text])
    assert not [marker for marker in WRITERS[case.family].markers if marker in found.content]
