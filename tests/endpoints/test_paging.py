"""Pages of lists: what the url may say, and what a page looks like."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseItemList

from localai_shim.endpoints.items.resources import ENCRYPTED, INCLUDABLE, LOGPROBS, read_include, shown
from localai_shim.endpoints.paging import Paging, check_query, list_object, read_paging, unknown_after
from localai_shim.errors import BadRequest
from localai_shim.state.store import Page

# url parameters -> param, code and a piece of the message of the error
REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"limit": 0}, "limit", "integer_below_min_value", "Expected a value >= 1, but got 0 instead"),
    ({"limit": "0"}, "limit", "integer_below_min_value", "Expected a value >= 1, but got 0 instead"),
    ({"limit": 101}, "limit", "integer_above_max_value", "Expected a value <= 100, but got 101 instead"),
    ({"limit": "101"}, "limit", "integer_above_max_value", "Expected a value <= 100, but got 101 instead"),
    ({"limit": True}, "limit", "invalid_type", "expected an integer, but got a boolean"),
    ({"limit": 2.0}, "limit", "invalid_type", "expected an integer, but got a decimal"),
    ({"limit": "many"}, "limit", "invalid_type", "expected an integer, but got a string"),
    ({"order": "up"}, "order", "invalid_value", "Supported values are: 'asc' and 'desc'"),
    ({"order": 5}, "order", "invalid_type", "expected a string, but got an integer"),
    ({"after": 5}, "after", "invalid_type", "expected a string, but got an integer"),
    ({"before": "msg_1"}, "before", "unsupported_parameter", "Pass 'after' with the opposite 'order'"),
    ({"offset": 5}, "offset", "unknown_parameter", "knows: 'after', 'limit', and 'order'"),
]


@pytest.mark.parametrize(("query", "param", "code", "fragment"), REFUSED)
def test_wrong_parameters_are_refused(query: dict[str, Any], param: str, code: str, fragment: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_paging(query, default_order="asc")
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)
    assert fragment in caught.value.message


def test_an_empty_query_is_the_first_twenty_in_the_endpoints_order() -> None:
    assert read_paging({}, default_order="desc") == Paging(None, 20, descending=True)
    assert read_paging({"after": None, "limit": None, "order": None}, default_order="asc") == Paging(None, 20, False)


@pytest.mark.parametrize("limit", [100, "100"])
def test_numbers_may_be_text_as_in_a_url(limit: int | str) -> None:
    query = {"after": "a", "limit": limit, "order": "asc"}
    assert read_paging(query, default_order="desc") == Paging("a", 100, descending=False)


def test_what_the_endpoint_reads_besides_is_left_to_it() -> None:
    assert read_paging({"model": 5, "include[]": ["x"]}, default_order="asc", others=("model", "include")).limit == 20


def test_where_nothing_is_known_everything_is_unknown() -> None:
    check_query({"limit": None})
    with pytest.raises(BadRequest) as caught:
        check_query({"limit": 5})
    assert (caught.value.param, caught.value.code) == ("limit", "unknown_parameter")


def test_a_page_says_where_it_begins_and_ends() -> None:
    message = {"type": "message", "role": "user", "status": "completed", "content": []}
    data = [{"id": id, **message} for id in ("msg_1", "msg_2", "msg_3")]
    page = list_object(Page(data, has_more=True))
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("msg_1", "msg_3", True)
    assert ResponseItemList.model_validate(page, strict=True).model_dump(exclude_unset=True) == page


def test_an_empty_page_begins_nowhere() -> None:
    empty = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert list_object(Page([], has_more=False)) == empty


def test_an_unknown_after_is_not_found() -> None:
    error = unknown_after("Chat completion", "x")
    assert (error.message, error.param, error.code, error.status) == (
        "Chat completion with id 'x' not found.",
        "after",
        "completion_not_found",
        404,
    )


# -- include --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["include", "include[]"])
def test_include_is_one_string_or_several(name: str) -> None:
    assert read_include({name: LOGPROBS}) == {LOGPROBS}
    assert read_include({name: [LOGPROBS, ENCRYPTED]}) == {LOGPROBS, ENCRYPTED}
    assert read_include({name: None}) == read_include({}) == frozenset()


def test_every_documented_value_may_be_included() -> None:
    from typing import get_args

    from openai.types.responses import ResponseIncludable

    assert set(get_args(ResponseIncludable)) <= set(INCLUDABLE)


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        ({"a": 1}, "include", "invalid_type"),
        ([LOGPROBS, 5], "include[1]", "invalid_type"),
        ([LOGPROBS, "logprobs"], "include[1]", "invalid_value"),
        ("logprobs", "include[0]", "invalid_value"),
    ],
)
def test_values_that_are_not_documented_are_refused(value: Any, param: str, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_include({"include": value})
    assert (caught.value.param, caught.value.code) == (param, code)


def test_items_show_what_is_included_and_stay_as_they_are() -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": [{"token": "Hi"}]}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "secret"}
    call = {"id": "fc_1", "type": "function_call"}
    assert shown(message, {LOGPROBS}) == message
    assert shown(message, {ENCRYPTED})["content"] == [{**part, "logprobs": []}]
    assert part["logprobs"]
    assert shown(reasoning, {ENCRYPTED}) == reasoning
    assert shown(reasoning, {LOGPROBS}) == {"id": "rs_1", "type": "reasoning", "summary": []}
    assert "encrypted_content" in reasoning
    assert shown(call, ()) is call
