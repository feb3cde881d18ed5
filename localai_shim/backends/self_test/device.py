"""Checks when a model is loaded that the device computes its operations, and verdicts that later processes read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from ...types import VERSION, ModelLoadError
from ..layers import Format
from ..machine import identity, mlx_build
from .attention import SIZES, Size, check_attention
from .operations import PACKED, check_packed_products, check_products, check_rope, check_vocabulary
from .safe_attention import Call, Sizes, calls, guard, plain
from .shape import EPSILONS, Check, Shape

log = logging.getLogger("localai_shim")


def unsafe_sizes(shapes: Sequence[Shape], calls: Sequence[Call]) -> Sizes:
    """Sizes at which this device's attention is wrong: tested once, and remembered for the same machine and MLX.

    Args:
        shapes: a model's, one for each kind of its weights.
        calls: its layers' calls of attention.

    Raises:
        ModelLoadError: another operation is wrong.
    """
    name = _name(shapes, calls)
    failed = _read(name)
    if failed is None:
        failed = _test(shapes, calls)
        _write(name, failed)
    if failed:
        sizes = "; ".join(str(size) for size in SIZES if size in failed)
        log.warning(
            "MLX's attention gives wrong results on this machine (%s): at these sizes the model uses plain products "
            "and softmax, which are slower: %s",
            identity(),
            sizes,
        )
    return failed


def _test(shapes: Sequence[Shape], calls: Sequence[Call]) -> Sizes:
    first = shapes[0]
    found = [check for shape in shapes for check in check_products(shape)]
    _require([*found, *check_packed_products(first), *check_rope(first), *check_vocabulary(first)])
    failed = set[Size]()
    for call in calls:
        shape = _attending(first, call)
        wrong = [size for size, check in check_attention(shape, call.attend).items() if not check.passed]
        _require(check_attention(shape, plain, wrong).values() if wrong else ())
        failed.update(wrong)
    return frozenset(failed)


def _attending(shape: Shape, call: Call) -> Shape:
    """The same model, with the heads of one of its calls."""
    return replace(
        shape,
        head_dim=call.head_dim,
        value_dim=call.value_dim,
        heads=call.heads,
        kv_heads=call.kv_heads,
        dtype=call.dtype,
        sinks=call.sinks,
    )


def _require(checks: Iterable[Check]) -> None:
    """Raise a ModelLoadError that names the operations that are wrong, and their sizes."""
    cases = dict[str, list[str]]()
    for check in checks:
        if not check.passed:
            cases.setdefault(check.operation, []).append(check.case)
    if not cases:
        return
    what = "; ".join(f"{operation} ({', '.join(each)})" for operation, each in cases.items())
    raise ModelLoadError(
        f"the self-test found operations of MLX that give wrong results on this machine: {what}. This is {mlx_build()} "
        f"on {identity().partition(', mlx ')[0]}. {_advice(cases)}"
    )


def _advice(cases: Iterable[str]) -> str:
    update = "Install another version of mlx, or update the system or the GPU's driver, and restart the process."
    return f"Leave kv_bits out, or: {update[0].lower()}{update[1:]}" if {*cases} == {PACKED} else update


# -- what is remembered ----------------------------------------------------------------------------------------------


def _name(shapes: Sequence[Shape], calls: Sequence[Call]) -> str:
    """Name of a verdict's file: of all that it depends on."""
    attended = [(call._replace(attend=None), getattr(call.attend, "__module__", "")) for call in calls]  # type: ignore[arg-type]
    return hashlib.sha256(f"{identity()} {VERSION} {[*shapes]} {attended}".encode()).hexdigest()[:20]


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "localai_shim" / "self_test"


def _read(name: str) -> Sizes | None:
    """The remembered verdict; None if there is none, or its file is damaged."""
    try:
        content = json.loads((_folder() / name).read_text(encoding="utf-8"))
        found = frozenset(Size(*size) for size in content["unsafe"])
        return found if found <= {*SIZES} else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(name: str, failed: Sizes) -> None:
    """Remember a verdict if the folder can be written to; otherwise the next process tests again."""
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.{secrets.token_hex(4)}"
        content = {"unsafe": sorted(failed), "machine": identity()}
        part.write_text(json.dumps(content), encoding="utf-8")
        part.replace(folder / name)


PLAIN = "plain attention at sizes that failed the self-test"


def check_device(model: nn.Module, build: Callable[[], mx.array], kv: tuple[int, int] | None = None) -> dict[str, int]:
    """Give a model's layers plain attention at sizes where the device's own is wrong; returns how many have it.

    Args:
        model: mlx-lm's or mlx-vlm's; changed in place if necessary.
        build: builds the logits of a pass, `[..., vocabulary]`, without evaluating them.
        kv: bits and group size of quantized keys and values that attention reads as they are.

    Raises:
        ModelLoadError: the device computes another operation wrongly.
    """
    built: list[mx.array] = []
    attended = calls(model, lambda: built.append(build()))
    failed = unsafe_sizes(shapes(model, attended, built[0].shape[-1], kv), attended)
    return {PLAIN: guard(model, failed)} if failed else {}


def shapes(
    model: nn.Module, attended: Sequence[Call], vocabulary: int, kv: tuple[int, int] | None = None
) -> list[Shape]:
    """Shapes of a model: one for each kind of its weights."""
    dtype = _dtype(model)
    call = attended[0] if attended else Call(None, 1, 1, 64, 64, dtype, False)  # type: ignore[arg-type]
    dims, traditional = _rotation(model, call.head_dim)
    shape = Shape(
        call.head_dim,
        call.heads,
        call.kv_heads,
        dtype,
        vocabulary,
        value_dim=call.value_dim,
        rope_dims=dims,
        traditional=traditional,
        sinks=call.sinks,
    )
    if kv is not None:
        shape = replace(shape, kv_bits=kv[0], kv_group_size=kv[1])
    packed = [(how._asdict() if how else {}, inputs) for how, inputs in _weights(model).items()]
    return [replace(shape, **fields, inputs=inputs) for fields, inputs in packed] or [shape]


def _dtype(model: nn.Module) -> str:
    """The dtype of most of a model's numbers that are not packed."""
    sizes = dict.fromkeys(EPSILONS, 0)
    for _, array in tree_flatten(model.parameters()):
        name = str(array.dtype).removeprefix("mlx.core.")
        if name in sizes:
            sizes[name] += array.size
    return max(sizes, key=lambda name: sizes[name])


def _weights(model: nn.Module) -> dict[Format | None, int]:
    """Formats of packed weights, and None for others, each with the most inputs that a layer has."""
    kinds = dict[Format | None, int]()
    for layer in model.modules():
        kind, inputs = None, 0
        if isinstance(layer, nn.QuantizedLinear):
            kind = Format(layer.mode, layer.bits, layer.group_size)
            inputs = layer.weight.shape[-1] * 32 // layer.bits
        elif isinstance(layer, nn.Linear):
            inputs = layer.weight.shape[-1]
        if inputs:
            kinds[kind] = max(kinds.get(kind, 0), inputs)
    return kinds


def _rotation(model: nn.Module, head_dim: int) -> tuple[int, bool]:
    """`rope_dims` and `traditional` of a model's layers; the usual ones if none says."""
    for layer in model.modules():
        dims, traditional = getattr(layer, "dims", None), getattr(layer, "traditional", None)
        if isinstance(dims, int) and isinstance(traditional, bool) and dims <= head_dim:
            return dims, traditional
    return head_dim // 2 * 2, False
