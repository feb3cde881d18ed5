"""Rows share what several prompts begin with, if that is long enough, each token once, and in few groups."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.kv import RowCache
from localai_shim.engine.kv.row import write_row
from localai_shim.engine.kv.shared import Prefix
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prefix.sharing import MAX_GROUPS, MAX_OWN_TOKENS, MIN_SHARED_TOKENS, Sharing
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.types import GenerationRequest, Prompt
from tests.engine.folders import PLENTY, Fake
from tests.engine.harness import request
from tests.engine.segments import arrays_of

LEAST = MIN_SHARED_TOKENS
TOKEN = 2 * 3 * 4 * 4  # bytes: two arrays of three heads, four float32 each


class Model:
    """The part of a model that a row needs."""

    context_length = None


def begin(seed: int, length: int = LEAST) -> list[int]:
    """First tokens of prompts."""
    return [1000 * seed + i for i in range(length)]


def row(tokens: Sequence[int], salt: str | None = None, *, shares: bool = True, prefix: Prefix | None = None) -> Row:
    asked: GenerationRequest = request([1])
    asked.prompt = Prompt(tokens, salt=salt)
    made = Row(asked, SyncSink(), 0, Model())  # type: ignore[arg-type]
    made.shares, made.prefix = shares, prefix
    return made


def cache_of(made: Row) -> RowCache:
    return write_row(Fake().row(made.request.prompt.tokens))


def joining(*rows: Row) -> list[tuple[Row, RowCache]]:
    return [(each, cache_of(each)) for each in rows]


@pytest.fixture(params=[True, False], ids=["a prefix cache", "none"])
def sharing(request: pytest.FixtureRequest) -> Sharing:
    return Sharing(prefix_cache() if request.param else None)


def prefix_cache(budget: int = PLENTY) -> PrefixCache:
    return PrefixCache(Fake().new_cache(), "fp_fake", budget)


def lengths(chosen: dict[Row, Prefix], *rows: Row) -> list[int]:
    """Number of tokens that each of these rows shares."""
    for each, prefix in chosen.items():
        check(each, prefix)
    return [chosen[each].length if each in chosen else 0 for each in rows]


def check(made: Row, prefix: Prefix) -> None:
    """Check that the tokens that a row shares are its first ones."""
    tokens = made.request.prompt.tokens
    assert prefix.keys.tolist() == tokens[: prefix.length] and prefix.length < len(tokens)
    assert prefix.salt == made.request.prompt.salt
    for array, like in zip(prefix.arrays, arrays_of(tokens[: prefix.length]), strict=True):
        assert mx.array_equal(array, like)


# -- what two prompts begin with -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ([*begin(1), 1], [*begin(1), 2], LEAST),
        ([*begin(1), 1], [*begin(1), 1], LEAST),
        (begin(1, 400), begin(1, 400), 399),
        (begin(1, 400), begin(1, 300), 299),
        (begin(1, 300) + [7] * 50, begin(1, 300) + [8] * 50, 300),
        ([*begin(1, LEAST - 1), 1], [*begin(1, LEAST - 1), 2], 0),
        (begin(1), begin(1), 0),
        ([9, *begin(1)], [8, *begin(1)], 0),
        ([*begin(1, 9), 5, *begin(2)], [*begin(1, 9), 6, *begin(2)], 0),
        ([], begin(1), 0),
    ],
)
def test_common_tokens_are_fewer_than_either_prompt_has(one: list[int], other: list[int], length: int) -> None:
    sharing = Sharing(None)
    assert sharing.common(Prompt(one), [Prompt(other)]) == length == sharing.common(Prompt(other), [Prompt(one)])


def test_the_length_that_saves_most_copies_counts_and_only_with_the_same_salt() -> None:
    sharing, prompt = Sharing(None), Prompt(begin(1, 500), salt="a")
    others = [Prompt(begin(1, n), salt=salt) for n, salt in ((300, "a"), (350, "a"), (400, "b"), (450, None))]
    assert sharing.common(prompt, others) == 299  # by two rows, where the longer one would be by one
    assert sharing.common(prompt, [others[1]]) == 349
    assert sharing.common(prompt, others[2:]) == sharing.common(prompt, []) == 0


def test_on_a_gpu_rows_share_once_that_saves_many_tokens() -> None:
    sharing, prompt = Sharing(None, least_saved=1000), Prompt(begin(1, 500))
    others = [Prompt(begin(1, 400)) for _ in range(4)]
    assert [sharing.common(prompt, others[:count]) for count in range(5)] == [0, 0, 0, 399, 399]


# -- rows that join --------------------------------------------------------------------------------------------------


def test_rows_that_join_together_share_what_they_begin_with(sharing: Sharing) -> None:
    rows = [row([*begin(1, 300), i]) for i in range(3)] + [row(begin(2, 300))]
    chosen = sharing.choose(joining(*rows), [])
    assert lengths(chosen, *rows) == [300, 300, 300, 0]
    assert len(set(chosen.values())) == 1 and sharing.bytes == 300 * TOKEN


def test_a_row_that_runs_shares_its_copy_when_one_joins_that_begins_alike(sharing: Sharing) -> None:
    running, others = row([*begin(1, 300), 1]), row(begin(2, 300))
    joins = row([*begin(1, 300), 2])
    chosen = sharing.choose(joining(joins), [running, others])
    assert lengths(chosen, running, others, joins) == [300, 0, 300]


def test_a_row_joins_those_that_share_already(sharing: Sharing) -> None:
    first, second = row([*begin(1, 300), 1]), row([*begin(1, 300), 2])
    for each, prefix in sharing.choose(joining(first, second), []).items():
        each.prefix = prefix
    joins = row([*begin(1, 300), 3])
    assert sharing.choose(joining(joins), [first, second]) == {joins: first.prefix}
    assert sharing.bytes == 300 * TOKEN


def test_a_row_takes_the_longest_of_the_groups_that_it_begins_with(sharing: Sharing) -> None:
    running = [row([*begin(1, n), 7]) for n in (260, 300, 340)]
    for each in running:
        keys = np.array(each.request.prompt.tokens[:-1], np.int64)
        each.prefix = Prefix(None, keys, arrays_of(keys.tolist()))
    joins = row(begin(1, 320))
    assert lengths(sharing.choose(joining(joins), running), joins) == [300]


@pytest.mark.parametrize("salts", [("a", "b"), (None, "b"), ("a", None)])
def test_rows_with_different_salts_share_nothing(sharing: Sharing, salts: tuple[str | None, str | None]) -> None:
    rows = [row(begin(1, 300), salt) for salt in salts]
    assert sharing.choose(joining(*rows), []) == {} and sharing.bytes == 0
    assert lengths(sharing.choose(joining(row(begin(1, 300), salts[1])), rows), *rows) == [0, 299]


def test_rows_that_may_not_share_are_left_alone(sharing: Sharing) -> None:
    rows = [row([*begin(1, 300), i], shares=False) for i in range(2)]
    assert sharing.choose(joining(rows[0]), [rows[1]]) == {}
    joins = row([*begin(1, 300), 3])
    assert sharing.choose(joining(joins), rows) == {}, "nor does another one share with these"
    running = row([*begin(1, 300), 4])
    assert lengths(sharing.choose(joining(*rows, joins), [running]), *rows, joins, running) == [0, 0, 300, 300]


def test_few_tokens_are_not_shared(sharing: Sharing) -> None:
    rows = [row([*begin(1, LEAST - 1), i, i]) for i in range(3)]
    assert sharing.choose(joining(*rows), []) == {} and sharing.bytes == 0


def test_a_batch_has_few_groups(sharing: Sharing) -> None:
    rows = [row([*begin(seed), i]) for seed in range(1, MAX_GROUPS + 3) for i in range(2)]
    chosen = sharing.choose(joining(*rows), [])
    assert lengths(chosen, *rows) == [LEAST] * 2 * MAX_GROUPS + [0] * 4
    for each, prefix in chosen.items():
        each.prefix = prefix
    more = [row([*begin(1), 7]), row([*begin(MAX_GROUPS + 1), 7])]
    assert lengths(sharing.choose(joining(*more), rows), *more, *rows) == [LEAST] + [0] * (1 + len(rows))


def test_rows_that_part_within_what_others_share_share_no_token_that_they_do_not_have(sharing: Sharing) -> None:
    """They begin alike for longer than with the others."""
    others = [row([*begin(1, 600), i]) for i in range(2)]
    for each, prefix in sharing.choose(joining(*others), []).items():
        each.prefix = prefix
    rows = [row(begin(1, 300) + begin(2, 300) + [i]) for i in range(2)]
    chosen = sharing.choose(joining(*rows), others)
    assert all(length >= 300 for length in lengths(chosen, *rows)) and others[0] not in chosen
    assert len({chosen[each] for each in rows}) == 1


def test_bytes_are_counted_once_and_no_longer_than_rows_share_them(sharing: Sharing) -> None:
    rows = [row([*begin(1, 600), 1]), row([*begin(1, 600), 2])]
    chosen = sharing.choose(joining(*rows), [])
    prefix = next(iter(chosen.values()))
    shorter = prefix.first(300)
    assert sharing.bytes == 600 * TOKEN == prefix.nbytes + shorter.nbytes
    del prefix
    chosen.clear()
    gc.collect()
    assert sharing.bytes == 600 * TOKEN, "some are shared still"
    del shorter
    gc.collect()
    assert sharing.bytes == 0


# -- with the prefix cache -------------------------------------------------------------------------------------------


def test_what_the_prefix_cache_has_is_not_held_twice() -> None:
    cache = prefix_cache()
    sharing = Sharing(cache)
    rows = [row([*begin(1, 300), i]) for i in range(2)]
    cache.insert(None, begin(1, 300), lambda start: Fake().row(begin(1, 300), start))
    assert cache.bytes == 300 * TOKEN
    chosen = sharing.choose(joining(*rows), [])
    assert (cache.bytes, sharing.bytes) == (0, 300 * TOKEN)
    assert cache.match_prefix(None, begin(1, 300)) == 300
    chosen.clear()
    cache.limit(PLENTY)
    assert (cache.bytes, sharing.bytes) == (300 * TOKEN, 0)


def test_rows_share_more_than_the_prefix_cache_may_hold() -> None:
    sharing = Sharing(prefix_cache(budget=0))
    rows = [row([*begin(1, 300), i]) for i in range(2)]
    chosen = sharing.choose(joining(*rows), [])
    assert lengths(chosen, *rows) == [300, 300]


# -- prompts that begin ----------------------------------------------------------------------------------------------


def asked(sharing: Sharing, prompt: Prompt, found: int, *others: Prompt) -> Prefix | None:
    sharing.others = lambda: [prompt, *others]
    return sharing.for_prompt(prompt, found)


def test_a_prompt_begins_behind_what_it_shares_with_others() -> None:
    cache = prefix_cache()
    sharing, prompt = Sharing(cache), Prompt(begin(1, 400))
    cache.insert(None, prompt.tokens[:380], lambda start: Fake().row(prompt.tokens[:380], start))
    found = asked(sharing, prompt, 380, Prompt([*begin(1, 350), 1]), Prompt(begin(2, 390)))
    assert found is not None and found.length == 350 and sharing.bytes == 350 * TOKEN
    check(row(prompt.tokens), found)
    assert asked(sharing, prompt, 380, Prompt([*begin(1, 350), 2])) is found


def test_a_prompt_shares_no_more_than_the_prefix_cache_has() -> None:
    cache = prefix_cache()
    sharing, prompt, other = Sharing(cache), Prompt(begin(1, 400)), Prompt(begin(1, 400))
    cache.insert(None, prompt.tokens[:300], lambda start: Fake().row(prompt.tokens[:300], start))
    assert asked(sharing, prompt, LEAST - 1, other) is None
    found = asked(sharing, prompt, 300, other)
    assert found is not None and found.length == 300


@pytest.mark.parametrize("others", [[], [Prompt(begin(2, 400))], [Prompt(begin(1, 400), salt="other")]])
def test_a_prompt_that_no_other_begins_like_shares_nothing(others: list[Prompt]) -> None:
    cache = prefix_cache()
    sharing, prompt = Sharing(cache), Prompt(begin(1, 400))
    cache.insert(None, prompt.tokens, lambda start: Fake().row(prompt.tokens, start))
    assert asked(sharing, prompt, 399, *others) is None


def test_a_long_rest_of_a_prompt_is_prefilled_behind_a_copy() -> None:
    cache = prefix_cache()
    sharing, prompt = Sharing(cache), Prompt(begin(1, 300 + MAX_OWN_TOKENS + 1))
    cache.insert(None, prompt.tokens, lambda start: Fake().row(prompt.tokens, start))
    assert asked(sharing, prompt, 300, Prompt(begin(1, 400))) is None
    assert asked(sharing, prompt, 301, Prompt(begin(1, 400))) is not None


def test_a_prompt_shares_nothing_before_it_runs_without_a_prefix_cache() -> None:
    assert asked(Sharing(None), Prompt(begin(1, 400)), 399, Prompt(begin(1, 400))) is None


# -- what a row would share ------------------------------------------------------------------------------------------


def prefix_of(tokens: list[int], salt: str | None = None) -> Prefix:
    return Prefix(salt, np.array(tokens, np.int64), arrays_of(tokens))


def test_expected_tokens_are_a_group_s_or_those_in_common_with_a_row_that_holds_a_copy() -> None:
    sharing: Any = Sharing(None)
    comes = row(begin(1, 400), shares=False)
    group, copy = row(begin(1, 300), prefix=prefix_of(begin(1, 290))), row(begin(1, 350))
    assert sharing.expected(comes, []) == 0
    assert sharing.expected(comes, [group]) == 290, "no more than the group shares"
    assert sharing.expected(comes, [group, copy]) == 349
    assert sharing.expected(comes, [row(begin(1, 350), "salt"), row(begin(2, 350))]) == 0
    assert sharing.expected(comes, [row(begin(1, 300), prefix=prefix_of(begin(1, 290), "salt"))]) == 0


def test_no_new_group_is_expected_of_a_batch_that_has_its_most() -> None:
    groups = [row(begin(seed, 300), prefix=prefix_of(begin(seed, 290))) for seed in range(1, MAX_GROUPS + 1)]
    sharing, copy = Sharing(None), row(begin(9, 350))
    assert sharing.expected(row(begin(9, 400)), [*groups[1:], copy]) == 349
    assert sharing.expected(row(begin(9, 400)), [*groups, copy]) == 0
    assert sharing.expected(row(begin(1, 400)), [*groups, copy]) == 290
