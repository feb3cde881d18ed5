"""Folders of LoRA adapters: those that mlx-lm and mlx-vlm train, and PEFT's."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...options import Search
from ...types import Adapter, ModelLoadError, Product
from ..checkpoint.completeness import IncompleteError, check_file
from ..checkpoint.files import check_files, read_json
from ..checkpoint.tensors import Tensor, read_header
from ..hub import fetch
from .config import CONFIG, MlxConfig, PeftConfig, RefusedError, parse_config

MAX_NAME = 512  # characters of a tensor's name
_PEFT_NAME = re.compile(
    r"(?:base_model\.model\.)?(.+)\.lora_(?:embedding_)?([AB])(?:\.(?!weight$|bias$)\w+)?(?:\.weight)?"
)
_EXPERT = re.compile(r"(.+)\.experts\.(\d{1,6})\.(\w+)")


@dataclass(frozen=True, slots=True)
class _Format:
    """Form of numbers: their type in NumPy, the one of their bits, and the bits of infinity without a sign."""

    array: str
    bits: str
    infinity: int


_FORMATS = {
    "F32": _Format("<f4", "<u4", 0x7F800000),
    "F16": _Format("<f2", "<u2", 0x7C00),
    "BF16": _Format("<u2", "<u2", 0x7F80),
}


@dataclass(frozen=True, slots=True)
class _Factor:
    """One factor of a layer; `name` is the tensor's."""

    name: str
    dtype: str
    array: npt.NDArray[np.generic]

    def __str__(self) -> str:
        return f"'{self.name}' {self.dtype} {self.array.shape}"


def read_adapter(
    name: str, path_or_id: str, progress: bool | None = None, *, offline: bool = False
) -> tuple[Adapter, Mapping[str, Product]]:
    """Read an adapter's folder, fetching it if it is a hub id. The result holds what was read, whatever becomes of
    the files.

    Args:
        name: by which requests name it.
        path_or_id: the folder or the hub id.
        progress: whether a bar is shown; None: on a terminal.
        offline: the hub is not asked.

    Returns:
        The adapter, told by its contents from any other, and the changes of layers by their names.

    Raises:
        ModelLoadError: there is no such folder, or it is damaged, or holds what cannot be done per row; says what.
    """
    folder = fetch(path_or_id, progress, search=Search(local=False, offline=offline))
    check_files(folder)
    try:
        given = read_json(folder / CONFIG)
        config = parse_config(given)
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode())
        factors = _read_factors(folder / config.weights, config, digest)
        return Adapter(name, digest.hexdigest()[:16], str(folder)), _products(factors, config)
    except RefusedError as error:
        more = ": load it with `adapter_path`, or fuse it into a model" if error.apart else ""
        raise ModelLoadError(
            f"The adapter '{path_or_id}' cannot be combined with other adapters: {error}{more}."
        ) from None
    except (OSError, IncompleteError) as error:
        raise ModelLoadError(f"The adapter '{path_or_id}' could not be read: {error}") from error


# -- the file ---------------------------------------------------------------------------------------------------------


def _read_factors(path: Path, config: MlxConfig | PeftConfig, digest: hashlib._Hash) -> dict[str, dict[str, _Factor]]:
    """The factors of each layer, "a" and "b". The digest goes over all of the file."""
    if not path.exists():
        raise RefusedError(f"it has no {path.name}")
    check_file(path)
    content = path.read_bytes()  # not mapped: what another process writes into the file changes nothing here
    digest.update(content)
    try:
        tensors = read_header(io.BytesIO(content), len(content))
    except ValueError as error:
        raise IncompleteError(f"'{path.name}' {error}") from None
    parse = _parse_peft if isinstance(config, PeftConfig) else _parse_mlx
    found: dict[str, dict[str, _Factor]] = {}
    for name, tensor in tensors.items():
        parsed = parse(name) if len(name) <= MAX_NAME else None
        if parsed is None:
            raise RefusedError(f"{path.name}: '{name[:MAX_NAME]}' is no factor of a low rank")
        layer, which = parsed
        if which in found.setdefault(layer, {}):
            raise RefusedError(f"{path.name}: '{name}' and '{found[layer][which].name}' are the same factor")
        found[layer][which] = _factor(path, name, tensor, content)
    for layer, both in found.items():
        if both.keys() != {"a", "b"}:
            raise RefusedError(f"{path.name}: '{layer}' has no `lora_{'b' if 'a' in both else 'a'}`")
    if not found:
        raise RefusedError(f"{path.name}: there is no factor in it")
    return found


def _factor(path: Path, name: str, tensor: Tensor, content: bytes) -> _Factor:
    kind = _FORMATS.get(tensor.dtype)
    if kind is None:
        raise RefusedError(f"{path.name}: '{name}' is {tensor.dtype}, and factors are {', '.join(_FORMATS)}")
    if len(tensor.shape) not in (2, 3) or 0 in tensor.shape:
        raise RefusedError(f"{path.name}: '{name}' has the shape {tensor.shape}, which no factor has")
    array = np.frombuffer(content, kind.array, math.prod(tensor.shape), tensor.start)
    return _Factor(name, tensor.dtype, array.reshape(tensor.shape))


def _parse_mlx(name: str) -> tuple[str, str] | None:
    layer, _, part = name.rpartition(".")
    return (layer, part[-1].lower()) if layer and part in ("lora_a", "lora_b", "A", "B") else None


def _parse_peft(name: str) -> tuple[str, str] | None:
    match = _PEFT_NAME.fullmatch(name)
    return None if match is None else (match[1], match[2].lower())


# -- products ---------------------------------------------------------------------------------------------------------


def _products(factors: Mapping[str, Mapping[str, _Factor]], config: MlxConfig | PeftConfig) -> dict[str, Product]:
    made: dict[str, Product] = {}
    experts: dict[str, dict[int, Product]] = {}
    for layer, both in factors.items():
        a, b = both["a"], both["b"]
        if a.dtype != b.dtype or a.array.ndim != b.array.ndim:
            raise RefusedError(f"{a} and {b} are no pair")
        product = _product(layer, a, b, config)
        match = _EXPERT.fullmatch(layer) if isinstance(config, PeftConfig) else None
        if match is None:
            made[layer] = product
        else:
            experts.setdefault(f"{match[1]}.switch_mlp.{match[3]}", {})[int(match[2])] = product
    for layer, found in experts.items():
        if layer in made:
            raise RefusedError(f"'{layer}' is there whole, and expert by expert")
        made[layer] = _joined(layer, found)
    return made


def _product(layer: str, a: _Factor, b: _Factor, config: MlxConfig | PeftConfig) -> Product:
    low, high = a.array, b.array
    if isinstance(config, PeftConfig):  # [rank, in] and [out, rank]
        if low.ndim != 2:
            raise RefusedError(f"{a} has three axes, and two in PEFT's form")
        high = high.T
    elif low.ndim == 2:  # [in, rank] and [rank, out]
        low = low.T
    else:  # [experts, rank, in] and [experts, out, rank]
        high = high.swapaxes(1, 2)
    rank = low.shape[-2]
    if high.shape[-2] != rank or low.shape[:-2] != high.shape[:-2]:
        raise RefusedError(f"{a} and {b} have different ranks")
    scale = config.scale_of(layer, rank)
    largest = (_largest(a), _largest(b))
    low, high = (np.require(array, requirements=("C", "A")) for array in (low, high))
    return Product(low, high, scale, a.dtype == "BF16", largest, f"{a} and {b}")


def _largest(factor: _Factor) -> float:
    """Magnitude of the largest number: without their signs, numbers are in the order of their bits."""
    kind = _FORMATS[factor.dtype]
    bits = factor.array.view(kind.bits)
    most = int((bits & bits.dtype.type(np.iinfo(bits.dtype).max >> 1)).max())
    if most >= kind.infinity:
        raise RefusedError(f"'{factor.name}' has numbers that are not finite, which would spoil other rows")
    if factor.dtype == "F16":
        return float(np.uint16(most).view(np.float16))
    return float(np.uint32(most << 16 if factor.dtype == "BF16" else most).view(np.float32))


def _joined(layer: str, found: Mapping[int, Product]) -> Product:
    """One product of experts that came one by one."""
    numbers = sorted(found)
    products: Sequence[Product] = [found[number] for number in numbers]
    first = products[0]
    if len({(each.low.shape, each.high.shape, each.scale, each.low.dtype, each.half) for each in products}) > 1:
        raise RefusedError(f"'{layer}' has experts of different ranks or scales")
    low, high = (max(each.largest[i] for each in products) for i in range(2))
    return replace(
        first,
        low=np.stack([each.low for each in products]),
        high=np.stack([each.high for each in products]),
        largest=(low, high),
        source=f"experts up to number {numbers[-1]}, the first of them {first.source}",
        experts=tuple(numbers),
    )
