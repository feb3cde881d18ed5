"""The self-test passes on a device without faults, and names the operation and the cases of a planted fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from localai_shim.backends.own_forms import Applied, OwnForms
from localai_shim.backends.self_test import Check, Shape, run
from localai_shim.backends.self_test.attention import SIZES, Size, check_attention, fused
from localai_shim.backends.self_test.operations import (
    check_packed_products,
    check_products,
    check_rope,
    check_vocabulary,
)
from localai_shim.backends.self_test.shape import KEYS, MOST_KEY_HEADS

SMALL = Shape(head_dim=16, heads=4, kv_heads=2, dtype="float32", vocabulary=5_000, inputs=128)
QUANTIZED = Shape(head_dim=64, heads=2, kv_heads=1, dtype="bfloat16", vocabulary=500, bits=4, inputs=64, kv_bits=8)
SHAPES = {
    "float32": SMALL,
    "bfloat16, 4 bits, quantized keys": QUANTIZED,
    "float16, sinks, values of another size": Shape(
        32, 3, 3, "float16", 300, bits=8, group_size=32, inputs=64, value_dim=48, sinks=True, traditional=True
    ),
    "part of a head rotates, bits without a pattern": Shape(24, 8, 1, "float32", 257, bits=6, inputs=192, rope_dims=8),
    "nothing rotates, another format": Shape(16, 2, 1, "float32", 64, bits=4, group_size=32, mode="mxfp4", rope_dims=0),
}


def wrong(checks: list[Check]) -> set[str]:
    return {f"{check.operation}: {check.case}" for check in checks if not check.passed}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_device_without_faults_passes(shape: Shape) -> None:
    checks = run(shape)
    assert wrong(checks) == set()
    operations = {check.operation for check in checks}
    assert ("rope" in operations) == (shape.rope_dims != 0)
    assert ("products with quantized keys and values" in operations) == (shape.kv_bits is not None)
    assert operations >= {"attention", "scatter", "sort", "argsort", "argpartition", "argmax", "cumsum"}


def test_a_check_passes_up_to_what_is_allowed() -> None:
    assert Check("sort", "", 0.0, 0.0).passed and Check("rope", "", 0.1, 0.1).passed
    assert not Check("rope", "", 0.11, 0.1).passed and not Check("rope", "", float("nan"), 0.1).passed


def test_the_program_s_random_numbers_stay_the_same() -> None:
    mx.random.seed(3)
    expected = mx.random.uniform(shape=(4,)).tolist()
    mx.random.seed(3)
    check_products(QUANTIZED)
    check_products(SMALL)
    assert mx.random.uniform(shape=(4,)).tolist() == expected


# -- planted faults: attention ---------------------------------------------------------------------------------------


def sizes(condition: Callable[[Size], bool]) -> set[Size]:
    return {size for size in SIZES if condition(size)}


def planted(fault: Callable[[mx.array, mx.array], mx.array], condition: Callable[[Size], bool]) -> set[Size]:
    """Sizes that fail if attention has a fault at the sizes that meet a condition.

    Args:
        fault: makes the wrong result of the right one, and of the values.
        condition: of a size, by its queries, columns, and mask.
    """

    def attend(queries: Any, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any) -> mx.array:
        out = fused(queries, keys, values, cache, scale, mask, sinks)
        size = Size(queries.shape[2], keys.shape[2], isinstance(mask, mx.array))
        return fault(out, values) if condition(size) else out

    return {size for size, check in check_attention(SMALL, attend).items() if not check.passed}


def last_head_is_nan(out: mx.array, values: mx.array) -> mx.array:
    return mx.concatenate([out[:, :-1], mx.full(out[:, -1:].shape, mx.nan)], axis=1)


ATTENTION_FAULTS: dict[str, Callable[[mx.array, mx.array], mx.array]] = {
    "zeros": lambda out, values: mx.zeros_like(out),
    "zeros for the last row": lambda out, values: mx.concatenate([out[:-1], mx.zeros_like(out[-1:])]),
    "another row's result": lambda out, values: out[::-1],
    "another head's result": lambda out, values: out[:, ::-1],
    "one query of the block is zero": lambda out, values: mx.concatenate(
        [out[:, :, :-1], mx.zeros_like(out[:, :, -1:])], axis=2
    ),
    "twice the result": lambda out, values: out * 2,
    "the mean of all values": lambda out, values: mx.broadcast_to(
        mx.repeat(values.mean(axis=2, keepdims=True), 2, axis=1), out.shape
    ),
    "not a number, in a head that is not compared": last_head_is_nan,
}


@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
def test_wrong_attention_is_found_at_the_sizes_that_have_the_fault(fault: str) -> None:
    def two_passes(size: Size) -> bool:
        return size.queries in (1, 8) and size.keys >= 1_024

    found = planted(ATTENTION_FAULTS[fault], two_passes)
    assert found == sizes(lambda size: size.queries in (1, 8) and size.keys > KEYS[0])


def test_a_mask_that_is_ignored_is_found() -> None:
    def attend(queries: Any, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any) -> mx.array:
        return fused(queries, keys, values, cache, scale, None, sinks)

    found = {size for size, check in check_attention(SMALL, attend).items() if not check.passed}
    assert found == sizes(lambda size: size.ragged or size.queries > 1)


def test_places_behind_a_row_that_are_read_are_found() -> None:
    """A kernel that takes another stride than that of a slice of slots."""

    def attend(queries: Any, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any) -> mx.array:
        return fused(queries, mx.roll(keys, 1, 2), values, cache, scale, mask, sinks)

    assert {size for size, check in check_attention(SMALL, attend).items() if not check.passed} == {*SIZES}


def test_attention_without_its_sinks_is_found() -> None:
    def attend(queries: Any, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any) -> mx.array:
        return fused(queries, keys, values, cache, scale, mask)

    shape = Shape(16, 4, 2, "float32", 100, sinks=True)
    few = [size for size in SIZES if size.keys == KEYS[0]]
    assert not any(check.passed for check in check_attention(shape, attend, few).values())


def test_attention_that_raises_an_error_is_wrong_at_this_size(caplog: pytest.LogCaptureFixture) -> None:
    def attend(queries: Any, *others: Any) -> mx.array:
        if queries.shape[2] == 5:
            raise RuntimeError("no kernel for this head")
        return fused(queries, *others)

    found = {size for size, check in check_attention(SMALL, attend).items() if not check.passed}
    assert found == sizes(lambda size: size.queries == 5)
    assert "no kernel for this head" in caplog.text


def test_lack_of_memory_is_no_verdict() -> None:
    def attend(*arguments: Any) -> mx.array:
        raise RuntimeError("[malloc] Unable to allocate 1000 bytes.")

    with pytest.raises(RuntimeError, match="Unable to allocate"):
        check_attention(SMALL, attend)


def test_the_device_has_the_model_s_heads_and_reads_slices_of_slots() -> None:
    seen = list[tuple[Any, ...]]()

    def attend(queries: Any, keys: Any, values: Any, *others: Any) -> mx.array:
        flat = np.array(keys, copy=False)
        seen.append((queries.shape, keys.shape, values.shape, flat.flags.c_contiguous))
        return fused(queries, keys, values, *others)

    shape = Shape(16, 40, 20, "float32", 100, value_dim=24)
    check_attention(shape, attend, [Size(3, 40, False), Size(3, 40, True)])
    few = MOST_KEY_HEADS
    for (queries, keys, values, contiguous), columns in zip(seen, (40, 64), strict=True):
        assert queries == (2, 2 * few, 3, 16) and keys == (2, few, columns, 16) and values == (2, few, columns, 24)
        assert not contiguous


# -- planted faults: everything else ---------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, make: Callable[..., Any]) -> None:
    right = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *args, **options: make(right(*args, **options), *args, **options))


def test_quantized_products_that_are_wrong_for_some_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(out: mx.array, x: mx.array, *weights: Any, **options: Any) -> mx.array:
        rows = x.shape[-2]
        return mx.concatenate([out[..., :-1, :], mx.zeros_like(out[..., -1:, :])], -2) if 2 <= rows <= 7 else out

    spoil(monkeypatch, mx, "quantized_matmul", fault)
    cases = {f"quantized products: prompt of {rows} rows" for rows in range(2, 8)}
    assert wrong(check_products(QUANTIZED)) == cases
    assert check_products(SMALL) and wrong(check_products(SMALL)) == set()


def test_products_that_are_wrong_for_a_batch_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, nn.Linear, "__call__", lambda out, layer, x: out[::-1] if x.shape[0] >= 33 else out)
    assert wrong(check_products(SMALL)) == {f"products: step of {rows} rows" for rows in (33, 64, 128)}


def test_products_are_computed_in_the_machine_s_form(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(nn.Linear):  # type: ignore[misc]
        def __call__(self, x: mx.array) -> mx.array:
            return 2 * super().__call__(x)

    class DoublingForms(OwnForms):
        def prepare_products(self, model: nn.Module) -> Applied:
            model.layer.__class__ = Doubled
            return {}

    monkeypatch.setattr("localai_shim.backends.self_test.operations.forms", DoublingForms)
    checks = check_products(SMALL)
    assert wrong(checks) == {f"products: {check.case}" for check in checks}


@pytest.mark.parametrize("transposed", [True, False])
def test_wrong_products_with_quantized_keys_and_values_are_found(
    transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(out: mx.array, *arguments: Any, transpose: bool, **options: Any) -> mx.array:
        return mx.zeros_like(out) if transpose is transposed else out

    spoil(monkeypatch, mx, "quantized_matmul", fault)
    found = wrong(check_packed_products(QUANTIZED))
    assert found and {case.rpartition(" ")[2] for case in found} == {f"transpose={transposed}"}


ROPE: Callable[..., mx.array] = mx.fast.rope
ROPE_FAULTS: dict[str, tuple[Callable[..., mx.array], Callable[[str], bool]]] = {
    "zeros for all rows but the first": (
        lambda out, x, *args, **options: mx.concatenate([out[:1], mx.zeros_like(out[1:])]),
        lambda case: True,
    ),
    "the first row's offset for all": (
        lambda out, x, *args, offset, **options: (
            out if isinstance(offset, int) else ROPE(x, *args, offset=offset[0], **options)
        ),
        lambda case: "per row" in case,
    ),
    "one position for all tokens": (
        lambda out, x, *args, **options: mx.broadcast_to(out[..., :1, :], out.shape) if x.shape[2] > 1 else out,
        lambda case: "3 tokens" in case,
    ),
    "freqs that are not read": (
        lambda out, x, *args, freqs, **options: x if freqs is not None else out,
        lambda case: "freqs" in case,
    ),
}


@pytest.mark.parametrize("name", ROPE_FAULTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrong_rope_is_found(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, concerns = ROPE_FAULTS[name]
    spoil(monkeypatch, mx.fast, "rope", fault)
    checks = check_rope(Shape(16, 4, 2, dtype, 100))
    assert wrong(checks) == {f"rope: {check.case}" for check in checks if concerns(check.case)} != set()


def drifting(out: mx.array, *args: Any, **options: Any) -> mx.array:
    """Sums that begin anew behind a block."""
    return mx.concatenate([out[:, :4_096], out[:, 4_096:] - out[:, 4_095:4_096]], axis=-1)


def swapped(out: mx.array, *args: Any, **options: Any) -> mx.array:
    """Two neighbors in the wrong order, behind a block."""
    return mx.concatenate([out[:, :4_096], out[:, 4_097:4_098], out[:, 4_096:4_097], out[:, 4_098:]], axis=-1)


VOCABULARY_FAULTS: dict[str, tuple[str, Callable[..., mx.array], str]] = {
    "scatter": (
        "put_along_axis",
        lambda out, array, index, new, **options: mx.concatenate([out[:-1], array[-1:]]) if len(index) > 6 else out,
        "scatter: 3 tokens into 3 slots",
    ),
    "sort": ("sort", lambda out, *args, **options: swapped(out) if out.shape[-1] > 20 else out, "sort: 5,000 tokens"),
    "argsort": ("argsort", swapped, "argsort: 5,000 tokens"),
    "argpartition": ("argpartition", lambda out, *args, **options: out[:, ::-1], "argpartition: 5,000 tokens"),
    "argmax": ("argmax", lambda out, *args, **options: mx.zeros_like(out), "argmax: 5,000 tokens"),
    "cumsum": ("cumsum", drifting, "cumsum: 5,000 tokens"),
}


@pytest.mark.parametrize("operation", VOCABULARY_FAULTS)
def test_a_wrong_operation_over_slots_or_the_vocabulary_is_found(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, fault, case = VOCABULARY_FAULTS[operation]
    spoil(monkeypatch, mx, name, fault)
    assert wrong(check_vocabulary(SMALL)) == {case}
