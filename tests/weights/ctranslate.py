"""Whisper's weights in CTranslate2's file, as a folder in MLX's form."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt

_TYPES = {0: np.float32, 4: np.float16}
_DIMS = {
    "n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": 384, "n_audio_head": 6, "n_audio_layer": 4, "n_vocab": 51_864,
    "n_text_ctx": 448, "n_text_state": 384, "n_text_head": 6, "n_text_layer": 4,
}  # fmt: skip
"""Of tiny.en."""
_NORMS = {"gamma": "weight", "beta": "bias"}

Arrays = dict[str, npt.NDArray[np.float32]]


def read_variables(file: Path) -> Arrays:
    """The arrays of a model.bin of version 6, by CTranslate2's names."""
    data, at = file.read_bytes(), 0

    def take(form: str) -> int:
        nonlocal at
        [value] = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return int(value)

    def text() -> str:
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at].rstrip(b"\0").decode()

    assert take("I") == 6
    assert text() == "WhisperSpec"
    take("I")  # revision
    found: Arrays = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = take("B"), take("I")
        if kind in _TYPES:
            found[name] = np.frombuffer(data, _TYPES[kind], size // np.dtype(_TYPES[kind]).itemsize, at).reshape(shape)
        at += size
    return {name: array.astype(np.float32) for name, array in found.items()}


def convert(source: Path, folder: Path) -> Path:
    """Make a folder of CTranslate2's: `model.bin`, `tokenizer.json`, and `vocabulary.txt`."""
    folder.mkdir(parents=True)
    made: Arrays = {}
    for name, array in read_variables(source / "model.bin").items():
        made |= _renamed(name, array)
    mx.save_safetensors(str(folder / "model.safetensors"), {name: mx.array(array) for name, array in made.items()})
    (folder / "config.json").write_text(json.dumps(_DIMS), encoding="utf-8")
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    return folder


def _renamed(name: str, array: npt.NDArray[np.float32]) -> Arrays:
    """Tensors of mlx-audio's model that one of CTranslate2 holds; none for what the model computes itself."""
    side, _, rest = name.partition("/")
    rest = re.sub(r"layer_(\d+)/", r"blocks.\1.", rest)
    last = rest.rpartition("/")[2].rpartition(".")[2]
    if rest == "position_encodings/encodings":
        return {"decoder.positional_embedding": array} if side == "decoder" else {}
    if rest == "embeddings/weight":
        return {"decoder.token_embedding.weight": array}
    if found := re.fullmatch(r"(conv\d)/(\w+)", rest):
        return {f"encoder.{found[1]}.{found[2]}": array.transpose(0, 2, 1) if array.ndim == 3 else array}
    if found := re.fullmatch(r"layer_norm/(\w+)", rest):
        return {f"{side}.{'ln_post' if side == 'encoder' else 'ln'}.{_NORMS[found[1]]}": array}
    found = re.fullmatch(r"(blocks\.\d+)\.(\w+)/(layer_norm|linear_\d)/(\w+)", rest)
    if found is None:
        return {}
    block, part, layer = f"{side}.{found[1]}", found[2], found[3]
    ours = {"self_attention": "attn", "attention": "cross_attn", "ffn": "mlp"}[part]
    if layer == "layer_norm":
        return {f"{block}.{ours}_ln.{_NORMS[last]}": array}
    if part == "ffn":
        return {f"{block}.mlp{int(layer[-1]) + 1}.{last}": array}
    stacked = {
        ("attn", "0"): ("query", "key", "value"), ("attn", "1"): ("out",),
        ("cross_attn", "0"): ("query",), ("cross_attn", "1"): ("key", "value"), ("cross_attn", "2"): ("out",),
    }[ours, layer[-1]]  # fmt: skip
    parts = np.split(array, len(stacked))
    names = [f"{block}.{ours}.{each}.{last}" for each in stacked]
    return {made: part for made, part in zip(names, parts, strict=True) if not made.endswith("key.bias")}
