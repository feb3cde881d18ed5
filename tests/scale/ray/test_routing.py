"""Choice of a replica: by what is kept where, by load, and by the prompts that each has seen. No Ray is needed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localai_shim.scale.ray.routing import (
    BLOCK_CHARACTERS,
    MAX_BLOCKS,
    MAX_KNOWN_BLOCKS,
    Router,
    Wish,
    kept_ids,
    read_wish,
)

LONG = "You are an assistant who answers in verse. " * 30
RESPONSE, CONVERSATION = f"resp_{'0a' * 24}", f"conv_{'1b' * 24}"


def wish_of(path: str = "/v1/chat/completions", **fields: Any) -> Wish:
    return read_wish("POST", path, json.dumps(fields).encode())


def chat(*texts: str, **fields: Any) -> Wish:
    return wish_of(messages=[{"role": "user", "content": text} for text in texts], **fields)


def served(router: Router, wish: Wish, ready: str = "ab") -> str:
    """The replica that gets a request, which it has from then on."""
    name = router.choose(wish, ready)
    assert name is not None
    router.begin(name, wish)
    return name


# -- what a request says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", f"/v1/responses/{RESPONSE}", b"", Wish(kept=(RESPONSE,))),
        ("POST", f"/v1/responses/{RESPONSE}/cancel", b"", Wish(kept=(RESPONSE,))),
        ("GET", f"/v1/conversations/{CONVERSATION}/items", b"", Wish(kept=(CONVERSATION,))),
        ("POST", "/v1/responses", b'{"previous_response_id":"resp_1"}', Wish(kept=("resp_1",), keeps=True)),
        ("POST", "/v1/responses", b'{"conversation":"conv_1"}', Wish(kept=("conv_1",), keeps=True)),
        ("POST", "/v1/responses", b'{"conversation":{"id":"conv_1"}}', Wish(kept=("conv_1",), keeps=True)),
        ("POST", "/v1/conversations", b"{}", Wish(keeps=True)),
        ("POST", "/v1/files", b"--boundary", Wish(listed=True)),
        ("GET", "/v1/files/file-1/content", b"", Wish(listed=True)),
        ("POST", "/v1/batches", b'{"input_file_id":"file-1"}', Wish(listed=True)),
        ("GET", "/v1/chat/completions", b"", Wish(listed=True)),
        ("DELETE", "/v1/chat/completions/chatcmpl-1", b"", Wish(listed=True)),
        ("POST", "/v1/chat/completions/chatcmpl-1", b"{}", Wish(listed=True)),
        ("POST", "/v1/chat/completions", b'{"store":true}', Wish(listed=True)),
        ("POST", "/v1/chat/completions", b'{"store":false}', Wish()),
        ("POST", "/v1/responses", b'{"input":[{"file_id":"file-1"}]}', Wish(listed=True, keeps=True)),
        ("GET", "/v1/models", b"", Wish()),
        ("POST", "/v1/embeddings", b'{"broken', Wish()),
    ],
)
def test_a_request_names_what_it_needs(method: str, path: str, body: bytes, expected: Wish) -> None:
    assert read_wish(method, path, body) == expected


def test_a_prompt_is_known_by_its_beginnings() -> None:
    one, longer, other = chat(LONG), chat(LONG, "And now?"), chat("No. " + LONG)
    assert len(one.blocks) == len(json.dumps({"role": "user", "content": LONG})) // BLOCK_CHARACTERS
    assert longer.blocks[: len(one.blocks)] == one.blocks
    assert not set(one.blocks) & set(other.blocks)
    assert chat("short").blocks == ()


def test_tools_and_instructions_stand_before_the_input() -> None:
    first, second = (
        wish_of("/v1/responses", input=text, instructions=LONG, tools=[{"name": "a"}]) for text in ("One", "Two")
    )
    assert first.blocks == second.blocks != ()


def test_of_a_very_long_prompt_the_beginning_is_looked_at() -> None:
    assert len(chat("a" * 10 * MAX_BLOCKS * BLOCK_CHARACTERS).blocks) <= MAX_BLOCKS
    assert len(chat(*["abc" * 100] * 10_000).blocks) == MAX_BLOCKS


def test_an_answer_names_what_is_kept() -> None:
    event = f'event: response.created\ndata: {{"response":{{"id":"{RESPONSE}","created_at":1}}}}'.encode()
    assert kept_ids(event) == (RESPONSE,)
    assert kept_ids(f'{{"id": "{CONVERSATION}"}}'.encode()) == (CONVERSATION,)
    assert kept_ids(b'{"error":{"message":"no"}}') == ()


# -- who gets it -----------------------------------------------------------------------------------------------------


def test_requests_without_a_common_beginning_are_spread_evenly() -> None:
    router = Router("ab")
    assert Counter(served(router, chat(f"{number} {LONG}")) for number in range(10)) == {"a": 5, "b": 5}


def test_requests_one_after_another_are_spread_evenly() -> None:
    router, seen = Router("abc"), Counter[str]()
    for number in range(9):
        name = served(router, chat(f"{number}"), "abc")
        router.end(name)
        seen[name] += 1
    assert set(seen.values()) == {3}


def test_a_conversation_comes_back_to_the_replica_that_knows_it() -> None:
    router = Router("abc")
    turns: dict[int, list[str]] = {number: [f"{number} {LONG}"] for number in range(9)}
    homes = {number: served(router, chat(*texts), "abc") for number, texts in turns.items()}
    for name in homes.values():
        router.end(name)
    for number, texts in turns.items():
        texts.append("And then?")
        assert served(router, chat(*texts), "abc") == homes[number]
        router.end(homes[number])


def test_the_longest_known_beginning_counts() -> None:
    router = Router("ab")
    router.begin("a", chat(LONG))
    router.begin("b", chat(LONG, LONG))
    assert router.choose(chat(LONG, LONG, LONG), "ab") == "b"


def test_a_cache_key_brings_requests_together() -> None:
    router = Router("ab")
    home = served(router, chat("One", prompt_cache_key="team"))
    router.end(home)
    for text in ("Two", "Three", "Four"):
        assert served(router, chat(text, prompt_cache_key="team")) == home
        router.end(home)


def test_a_beginning_that_all_share_does_not_overload_one_replica() -> None:
    router = Router("abcd")
    loads = Counter(served(router, chat(LONG), "abcd") for _ in range(64))
    assert max(loads.values()) <= 1.25 * min(loads.values()) + 1


def test_what_is_kept_is_asked_where_it_is_kept_however_busy() -> None:
    router = Router("ab")
    router.keep("a", ["resp_1"])
    for _ in range(50):
        router.begin("a", Wish())
    assert router.choose(Wish(kept=("resp_1",)), "ab") == "a"
    assert router.choose(Wish(kept=("resp_2",)), "ab") == "b"
    assert router.choose(Wish(kept=("resp_1",)), "b") == "b"  # which says that it has no such response


def test_what_clients_list_is_in_one_place_or_waits() -> None:
    router = Router("ab")
    assert router.choose(Wish(listed=True), "ab") == "a"
    assert router.choose(Wish(listed=True), "b") is None
    router.remove("a")
    assert router.choose(Wish(listed=True), "b") == "b"


def test_with_one_store_for_all_files_are_everywhere() -> None:
    router = Router("ab", shared_store=True)
    assert router.choose(Wish(listed=True), "b") == "b"


def test_a_replica_that_begins_anew_knows_nothing() -> None:
    router = Router("ab")
    router.begin("a", chat(LONG))
    router.end("a")
    assert router.choose(chat(LONG), "ab") == "a"
    router.forget("a")
    assert router.choose(chat(LONG), "ab") == "b"


def test_nobody_is_chosen_where_nobody_is_ready() -> None:
    assert Router("ab").choose(Wish(), ()) is None


def test_memory_of_prompts_is_bounded() -> None:
    router = Router("ab")
    first = chat(LONG)
    router.begin("a", first)
    router.end("a")
    for number in range(MAX_KNOWN_BLOCKS // 50 + 1):
        router.begin("a", Wish(blocks=tuple(range(number * 100, number * 100 + 50))))
        router.end("a")
    assert router.choose(first, "ab") == "b"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "begin", "end", "remove", "add"]),
            st.integers(0, 5),
            st.sets(st.sampled_from("abcdef"), min_size=1),
        ),
        max_size=60,
    )
)
def test_the_choice_is_a_ready_replica_near_the_least_loaded_one(steps: list[tuple[str, int, set[str]]]) -> None:
    """The model: plain counts of what each replica has."""
    router, model = Router("abc"), dict.fromkeys("abc", 0)
    running: list[str] = []
    for step, number, ready in steps:
        if step == "begin":
            wish = chat(*[f"{number} {LONG}"] * (number + 1))
            name, able = router.choose(wish, ready), {each: model[each] for each in model if each in ready}
            assert (name is None) == (not able)
            if name is not None:
                assert able[name] <= 1.25 * min(able.values()) + 1
                router.begin(name, wish)
                model[name] += 1
                running.append(name)
        elif step == "end" and running:
            name = running.pop(number % len(running))
            router.end(name)
            if name in model:
                model[name] -= 1
        elif step == "remove" and len(model) > 1:
            name = sorted(model)[number % len(model)]
            router.remove(name)
            del model[name]
            running = [each for each in running if each != name]
        elif step == "add":
            name = f"{'def'[number % 3]}"
            if name not in model:
                router.add(name)
                model[name] = 0
        assert {name: router.running(name) for name in model} == model
