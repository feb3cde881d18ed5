"""Other weights for a model that is loaded: read, checked and packed as its layers are, before any of them changes."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ..backends.layers import Format, packed_format
from ..types import Json, ModelLoadError, NewWeights
from .adapters.bank import bare_modules
from .checkpoint.completeness import check_weights
from .checkpoint.contents import digest_of
from .checkpoint.tensor_names import without_extra

MAX_NAMED = 8  # tensors that an error names
_NUMBERS = "fiub"  # kinds of NumPy's dtypes that are numbers

Sanitize = Callable[[dict[str, mx.array]], dict[str, mx.array]]


def copy_weights(weights: Mapping[str, object]) -> NewWeights:
    """Copy a caller's arrays, on its thread: what crosses to the engine's is NumPy's.

    Raises:
        ValueError: there are none, or one of them is no array of numbers.
    """
    arrays: dict[str, tuple[npt.NDArray[np.generic], bool]] = {}
    digest = hashlib.blake2b()
    for name, value in weights.items():
        if not isinstance(name, str):
            raise ValueError(f"update_weights: the names of tensors must be strings, not {name!r}")
        arrays[name] = copied, half = _copy(name, value)
        digest.update(f"{name} {copied.shape} {copied.dtype} {half} ".encode())
        digest.update(copied.data.cast("B") if copied.size else b"")
    if not arrays:
        raise ValueError("update_weights: there is no tensor in it")
    return NewWeights(arrays, None, digest.hexdigest())


def _copy(name: str, value: object) -> tuple[npt.NDArray[np.generic], bool]:
    """A copy, and if these are the bits of bfloat16, which NumPy does not have."""
    half = isinstance(value, mx.array) and value.dtype == mx.bfloat16
    if isinstance(value, np.ndarray):
        half = value.dtype.name == "bfloat16"
    try:
        array = np.array(value.view(mx.uint16) if half else value, order="C")  # type: ignore[attr-defined]
    except Exception as error:
        raise ValueError(f"update_weights: '{name}' could not be copied: {error}") from error
    if half and array.dtype != np.uint16:
        array = array.view(np.uint16)
    if array.dtype.kind not in _NUMBERS:
        raise ValueError(f"update_weights: '{name}' must be an array of numbers, not {type(value).__name__}")
    return array, half


def folder_weights(folder: Path) -> NewWeights:
    """Weights of a folder, told from others by their contents, as a checkpoint's are.

    Raises:
        ValueError: it has none, or they are not all there, or not whole.
    """
    files = _files(folder)
    if not files:
        raise ValueError(f"update_weights: the folder '{folder}' has no *.safetensors")
    try:
        check_weights(folder, _pattern(folder))
    except ModelLoadError as error:
        raise ValueError(f"update_weights: the folder '{folder}' is incomplete or damaged: {error}") from error
    return NewWeights({}, str(folder), digest_of(files))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(_pattern(folder)))


def _pattern(folder: Path) -> str:
    return "model*.safetensors" if next(folder.glob("model*.safetensors"), None) else "*.safetensors"


def read_update(
    model: nn.Module, weights: NewWeights, sanitize: Sanitize | None = None, config: Json | None = None
) -> Callable[[], None]:
    """Read weights for a model; returns what gives them to its layers. On the engine thread.

    Args:
        model: gets them.
        weights: some or all of the model's.
        sanitize: makes a checkpoint's tensors the model's, as loading does; None: nothing does.
        config: the model's, by which the tensors of a folder that it does not need are skipped.

    Raises:
        ModelLoadError: they do not fit; names the tensors and the shapes. Nothing has changed.
    """
    given = _load(weights)
    modules = dict(bare_modules(model))
    known = {join(name, key): (name, key) for name, module in modules.items() for key in _tensors(module)}
    foreign = weights.folder is not None or any(name not in known for name in given)
    if sanitize is not None:
        given = _sanitized(sanitize, given, needed=foreign)
    if weights.folder is not None and config is not None:
        given = without_extra(known.keys(), given, config)
    wrong: list[str] = []
    by_module: defaultdict[str, dict[str, mx.array]] = defaultdict(dict)
    for name, array in given.items():
        place = known.get(name) or _packed_place(name, modules)
        if place is None:
            wrong.append(f"'{name}' {array.shape} is no tensor of this model")
        else:
            by_module[place[0]][place[1]] = array
    made = [(modules[name], _fitted(name, modules[name], arrays, wrong)) for name, arrays in by_module.items()]
    if wrong:
        more = f"; and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        raise ModelLoadError(f"The weights do not fit, and nothing has changed: {'; '.join(wrong[:MAX_NAMED])}{more}")
    if not any(arrays for _, arrays in made):
        raise ModelLoadError("The weights have no tensor of this model, and nothing has changed.")
    try:
        mx.eval([arrays for _, arrays in made])
    except Exception as error:  # a file that is cut off is found out here
        what = error if weights.folder is None else f"{weights.folder}: {error}"
        raise ModelLoadError(f"The weights could not be read, and nothing has changed: {what}") from error
    if weights.folder is not None and digest_of(_files(Path(weights.folder))) != weights.digest:
        raise ModelLoadError(f"The files of '{weights.folder}' changed while they were read, and nothing has changed.")

    def apply() -> None:
        for module, arrays in made:
            for key, array in arrays.items():
                module[key] = array

    return apply


def join(name: str, key: str) -> str:
    """Name of a tensor of a layer."""
    return f"{name}.{key}" if name else key


def _load(weights: NewWeights) -> dict[str, mx.array]:
    if weights.folder is None:
        made = {name: mx.array(array) for name, (array, _) in weights.arrays.items()}
        return {name: a.view(mx.bfloat16) if weights.arrays[name][1] else a for name, a in made.items()}
    found: dict[str, mx.array] = {}
    for file in _files(Path(weights.folder)):
        try:
            found.update(mx.load(str(file)))  # type: ignore[arg-type]
        except Exception as error:
            raise ModelLoadError(f"The weights could not be read, and nothing has changed: {file}: {error}") from error
    return found


def _tensors(module: nn.Module) -> Iterator[str]:
    for key, value in module.items():
        if isinstance(value, mx.array) and not key.startswith("_"):
            yield key


def _packed_place(name: str, modules: Mapping[str, nn.Module]) -> tuple[str, str] | None:
    """The place of a packed layer's tensor, where this machine has unpacked the layer."""
    layer, _, key = name.rpartition(".")
    there = key in ("scales", "biases") and layer in modules and packed_format(modules[layer]) is not None
    return (layer, key) if there else None


def _sanitized(sanitize: Sanitize, given: dict[str, mx.array], *, needed: bool) -> dict[str, mx.array]:
    """A checkpoint's tensors as loading makes them the model's; as they are where that fails and is not needed."""
    try:
        return sanitize(dict(given))
    except Exception as error:
        if not needed:
            return given
        raise ModelLoadError(
            "Partial update not supported, and nothing has changed: these tensors are derived from a group "
            f"({type(error).__name__}: {error}). Pass the whole group, or tensors by the model's own names."
        ) from error


def _fitted(name: str, layer: nn.Module, given: dict[str, mx.array], wrong: list[str]) -> dict[str, mx.array]:
    """Tensors of a layer in the form that they have here."""
    unpacked, weight = packed_format(layer), given.get("weight")
    plain = weight is not None and mx.issubdtype(weight.dtype, mx.floating)
    if unpacked is not None:
        how, dtype = unpacked
        if plain and weight is not None and _has_shape(name, weight, layer.weight.shape, wrong):
            return {**_others(name, layer, given, wrong), "weight": how.unpack(_packed(weight, how, dtype))}
        return {} if plain else _unpacked(name, layer, how, given, wrong)
    if "scales" in layer and plain and weight is not None:
        how = Format(getattr(layer, "mode", "affine"), layer.bits, layer.group_size)
        if layer.get("global_scale") is not None:
            wrong.append(f"'{name}.weight' is packed with a scale of the whole tensor: pass its packed form")
            return {}
        shape = (*layer.weight.shape[:-1], layer.weight.shape[-1] * 32 // how.bits)
        if not _has_shape(name, weight, shape, wrong):
            return {}
        dtype = layer.scales.dtype if mx.issubdtype(layer.scales.dtype, mx.floating) else mx.float32
        packed = dict(zip(("weight", "scales", "biases"), _packed(weight, how, dtype), strict=True))
        return {**_others(name, layer, given, wrong), **{k: v for k, v in packed.items() if v is not None}}
    return _others(name, layer, given, wrong, but=())


def _others(
    name: str, layer: nn.Module, given: dict[str, mx.array], wrong: list[str], but: tuple[str, ...] = ("weight",)
) -> dict[str, mx.array]:
    """Tensors that stay as they are given, with the layer's shapes and dtypes."""
    made = {}
    for key, array in given.items():
        if key in but:
            continue
        its = layer[key]
        if mx.issubdtype(its.dtype, mx.floating) != mx.issubdtype(array.dtype, mx.floating):
            wrong.append(f"'{join(name, key)}' is {array.dtype}, and the model's is {its.dtype}")
        elif _has_shape(name, array, its.shape, wrong, key):
            made[key] = mx.contiguous(array.astype(its.dtype))
    return made


def _packed(weight: mx.array, how: Format, dtype: mx.Dtype) -> tuple[mx.array, mx.array, mx.array | None]:
    weight, scales, *biases = mx.quantize(weight.astype(dtype), **how._asdict())
    return weight, scales, biases[0] if biases else None


def _unpacked(
    name: str, layer: nn.Module, how: Format, given: dict[str, mx.array], wrong: list[str]
) -> dict[str, mx.array]:
    """Packed tensors for a layer that this machine has unpacked: all of them together."""
    packed: dict[str, mx.array] = {key: given[key] for key in ("weight", "scales", "biases") if key in given}
    rest = {key: array for key, array in given.items() if key not in packed}
    made = _others(name, layer, rest, wrong)
    if not packed:
        return made
    shape = layer.weight.shape
    needed: dict[str, tuple[int, ...]] = {"weight": (*shape[:-1], shape[-1] * how.bits // 32)}
    needed["scales"] = (*shape[:-1], shape[-1] // how.group_size)
    if how.mode == "affine":
        needed["biases"] = needed["scales"]
    if packed.keys() != needed.keys():
        lacks = ", ".join(f"'{join(name, key)}'" for key in needed if key not in packed)
        wrong.append(f"'{name}' is packed: pass {lacks or 'no biases'} with it")
    elif all(_has_shape(name, packed[key], each, wrong, key) for key, each in needed.items()):
        made["weight"] = how.unpack((packed["weight"], packed["scales"], packed.get("biases")))
    return made


def _has_shape(name: str, array: mx.array, shape: tuple[int, ...], wrong: list[str], key: str = "weight") -> bool:
    fits = tuple(array.shape) == tuple(shape)
    if not fits:
        wrong.append(f"'{join(name, key)}' has the shape {tuple(array.shape)}, and the model's has {tuple(shape)}")
    return fits
