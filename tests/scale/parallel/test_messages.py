"""Records name what both sides have by the same numbers, whatever comes and goes."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache

from localai_shim.engine.mirror.journal import Mirrored
from localai_shim.scale.parallel.messages import Read, Written, checksum


class Thing(Mirrored):
    def __init__(self, name: str) -> None:
        self.name = name

    def shape(self) -> object:
        return len(self.name)

    def twins(self) -> list[Thing]:
        return [Thing(f"{self.name}1"), Thing(f"{self.name}2")]


@dataclass
class Pair:
    first: Thing
    number: int


def call(made: Any, written: Written, read: Read) -> tuple[Any, Any]:
    """Make a call on both sides; what it returns on each."""
    its = read.read(written.write(made))
    results = made(), its()
    written.returned(results[0])
    read.returned(results[1])
    return results


def test_an_object_is_sent_once_and_named_afterwards() -> None:
    written, read, thing = Written(), Read(), Thing("a")
    first = read.read(written.write(thing))
    assert first is not thing and first.name == "a"
    thing.name = "b"
    assert read.read(written.write([thing, thing])) == [first, first]
    assert first.name == "a", "each side changes its own"


def test_what_calls_return_has_the_same_number_on_both_sides() -> None:
    written, read, thing = Written(), Read(), Thing("a")
    mine, its = call(partial(Thing.twins, thing), written, read)
    assert read.read(written.write({"second": mine[1], "first": mine[0]})) == {"second": its[1], "first": its[0]}
    pair, its_pair = call(partial(Pair, mine[0], 3), written, read)
    assert read.read(written.write(pair.first)) is its_pair.first is its[0]


def test_lists_of_caches_and_their_layers_are_each_one_object() -> None:
    written, read = Written(), Read()
    layers = [KVCache(), CacheList(KVCache(), KVCache())]
    its = read.read(written.write(layers))
    assert [type(layer) for layer in its] == [KVCache, CacheList]
    assert read.read(written.write(layers[1].caches[1])) is its[1].caches[1]


def test_objects_that_are_no_more_are_dropped() -> None:
    written, read, thing = Written(), Read(), Thing("a")
    read.read(written.write(thing))
    del thing
    gc.collect()
    assert len(read) == 1
    read.drop(written.take_gone())
    assert len(read) == 0
    assert read.read(written.write(other := Thing("c"))).name == other.name


def test_an_array_travels_as_its_shape() -> None:
    content = Written().write(mx.ones((3, 5), mx.int32))
    made = Read().read(content)
    assert (made.shape, made.dtype, made.sum().item()) == ((3, 5), mx.int32, 0)


def test_records_of_a_step_are_small() -> None:
    written, layers = Written(), [KVCache() for _ in range(32)]
    written.write(layers)
    assert len(written.write((1, 2, [], print, (layers, mx.zeros((8, 1), mx.int32)), {}))) < 300


def test_checksums_tell_outcomes_and_shapes_apart() -> None:
    same = checksum([Thing("a"), (3, mx.zeros((2, 4)))], Thing("x"))
    assert same == checksum([Thing("b"), (3, mx.ones((2, 4)))], Thing("y"))
    others = [([Thing("a"), (4, mx.zeros((2, 4)))], "x"), ([Thing("a"), (3, mx.zeros((4, 2)))], "x")]
    assert all(checksum(result, Thing(name)) != same for result, name in others)
    assert checksum([Thing("a"), (3, mx.zeros((2, 4)))], Thing("longer")) != same
