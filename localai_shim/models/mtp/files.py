"""The files in which a checkpoint's head is, and its tensors under one set of names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import mlx.core as mx

from ...types import Json
from ..checkpoint.files import read_json
from ..checkpoint.tensors import read_header

log = logging.getLogger("localai_shim")

_SIDECARS = ("mtp.safetensors", "mtp/weights.safetensors", "mtp/model.safetensors", "model-mtp.safetensors")
"""Files next to the weights, in which converters put a head; many are in no index."""
_UNUSED = "consolidated"  # the same weights in Mistral's own form
_PREFIX = re.compile(r"(?:(?:model|language_model)\.)*(?:mtp|mtp_layers\.0)\.")
"""Of the names of a head's tensors; of several heads the first one is read."""
_FLAT = re.compile(r"(fc|pre_fc_norm_\w+|norm|layers\.\d+|enorm|hnorm|eh_proj|shared_head|embed_tokens)\.")
"""Names of a file that holds nothing but a head."""
_AROUND = re.compile(r"layers\.\d+\.((?:enorm|hnorm|eh_proj|final_layernorm)\..*)")
_SPLIT = {
    "model.mtp_block.": "",
    "model.shared_head_norm.": "shared_head.norm.",
    "lm_head.": "shared_head.head.",
    "model.": "",
}
"""Beginnings of names in folders that mlx-vlm has split off, and those of the checkpoint."""

_FP8_BLOCK = 128  # rows and columns with one scale
_FP8_SCALES = re.compile(r"(.*\.weight)_scale(?:_inv)?")

Form = Literal["mlx", "hf"] | None
"""MLX's form of a checkpoint's tensors, that of Hugging Face, or nothing that says it."""


class HeadTensors(NamedTuple):
    """The tensors of a head, of one layer, under the names behind `mtp.` or those behind `layers.N.`."""

    tensors: dict[str, mx.array]
    form: Form
    where: str
    """The file or the folder."""
    config: Json
    """Of the folder that they are in."""


def find_tensors(folder: Path, layers: int) -> HeadTensors | None:
    """Find the tensors of a head: in a checkpoint's weights, in a file next to these, or in a folder without a model.

    No values are read.

    Args:
        folder: the checkpoint's.
        layers: of the model; the head may be the next one.
    """
    config = read_json(folder / "config.json")
    extra = config.get("mlx_lm_extra_tensors")
    named = extra.get("mtp_file") if isinstance(extra, dict) else None
    sidecars = [name for name in (named, *_SIDECARS) if isinstance(name, str) and ".." not in Path(name).parts]
    alone = str(config.get("model_type", "")).endswith("_mtp") or not config
    for name in dict.fromkeys(sidecars):
        if (folder / name).is_file() and (found := _read([folder / name], layers, flat=True)):
            beside = read_json((folder / name).parent / "config.json")
            return HeadTensors(*found, f"{folder.name}/{name}", beside or config)
    files = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith(_UNUSED)]
    found = _read(files, layers, flat=alone)
    return None if found is None else HeadTensors(*found, folder.name, config)


def without_fp8(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """A head's tensors, those in FP8 (e4m3) multiplied by their scales: one for each block, row, or tensor.

    Raises:
        ValueError: scales do not fit the shape of their tensor.
    """
    matches = filter(None, map(_FP8_SCALES.fullmatch, tensors))
    scales = {match[1]: match[0] for match in matches if _is_fp8(tensors, match[1])}
    left_out = {*scales.values(), *(weight.replace(".weight", ".input_scale") for weight in scales)}
    made = {name: array for name, array in tensors.items() if name not in left_out}
    return made | {weight: _multiplied(weight, tensors[weight], tensors[scale]) for weight, scale in scales.items()}


def _is_fp8(tensors: dict[str, mx.array], weight: str) -> bool:
    return weight in tensors and tensors[weight].dtype == mx.uint8


def _multiplied(name: str, weight: mx.array, scale: mx.array) -> mx.array:
    if scale.ndim not in (0, 1, weight.ndim):
        raise ValueError(f"'{name}' of shape {weight.shape} has FP8 scales of shape {scale.shape}")
    scale = scale.astype(mx.float32).reshape(*scale.shape, *[1] * (weight.ndim - scale.ndim))
    for axis, (size, count) in enumerate(zip(weight.shape, scale.shape, strict=True)):
        if count == -(-size // _FP8_BLOCK) and count > 1:
            scale = mx.take(mx.repeat(scale, _FP8_BLOCK, axis=axis), mx.arange(size), axis=axis)
        elif count not in (1, size):
            raise ValueError(f"'{name}' of shape {weight.shape} has {count} FP8 scales in dimension {axis}")
    return (mx.from_fp8(weight, dtype=mx.float32) * scale).astype(mx.bfloat16)


def _read(files: list[Path], layers: int, *, flat: bool) -> tuple[dict[str, mx.array], Form] | None:
    """The tensors of a head in these files, and their form; None: there are none."""
    made: dict[str, mx.array] = {}
    form: Form = None
    for file in files:
        names = dict(_names(file, layers, flat=flat))
        if not names:
            continue
        arrays: dict[str, mx.array]
        metadata: dict[str, str]
        arrays, metadata = mx.load(str(file), return_metadata=True)  # type: ignore[assignment]  # lazy
        made |= {names[name]: array for name, array in arrays.items() if name in names}
        said = metadata.get("format")
        form = form or ("mlx" if said == "mlx" else "hf" if said in ("pt", "np", "flax") else None)
    return (made, form) if made else None


def _names(file: Path, layers: int, *, flat: bool) -> Iterator[tuple[str, str]]:
    """Names of a head's tensors in a file, with the ones that they get."""
    try:
        with file.open("rb") as opened:
            names = list(read_header(opened, file.stat().st_size))
    except (OSError, ValueError) as error:
        log.warning("'%s' is not searched for an MTP head: %s", file, error)
        return
    behind = re.compile(rf"(?:(?:model|language_model)\.)*layers\.{layers}\.")
    for name in names:
        if found := _PREFIX.match(name) or behind.match(name):
            yield name, _short(name[found.end() :])
        elif flat:
            split = next((short for short in _SPLIT if name.startswith(short)), None)
            short = name if split is None else _SPLIT[split] + name.removeprefix(split)
            if split is not None or _FLAT.match(short):
                yield name, _short(short)


def _short(name: str) -> str:
    """A tensor's name in a head. Some files name the tensors around several layers after the first or the last one."""
    found = _AROUND.fullmatch(name)
    return found[1] if found else name.replace("shared_head_norm.", "shared_head.norm.")
