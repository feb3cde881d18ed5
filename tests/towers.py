"""Tiny towers of mlx-vlm's families that attend in windows, made in memory by its classes, and patches for them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_map

from localai_shim.backends.tower_windows import _LAYERS

Grid = tuple[int, int, int]
"""Frames, and rows and columns of patches."""

FAMILIES = sorted({module.split(".")[2] for module, _ in _LAYERS})
PICTURES_ONLY = {"glm4v_moe", "kimi_vl", "locateanything", "paddleocr_vl", "youtu_vl"}
PATCH, LAYERS = 14, 2
_ALL: dict[str, Any] = {
    **dict.fromkeys(("depth", "num_hidden_layers"), LAYERS),
    **dict.fromkeys(("hidden_size", "embed_dim", "out_hidden_size"), 32),
    **dict.fromkeys(("num_heads", "num_attention_heads"), 2),
    "patch_size": PATCH,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "intermediate_size": 48,
    "projection_intermediate_size": 48,
    "mlp_ratio": 2,
    "image_size": 4 * PATCH,
    "num_patches": 64,
    "num_position_embeddings": 16,
    "pos_emb_height": 4,
    "pos_emb_width": 4,
    "init_pos_emb_height": 4,
    "init_pos_emb_width": 4,
    "deepstack_visual_indexes": [],
    "window_size": 4 * PATCH,
    "fullatt_block_indexes": [1],
    "layer_types": ["window_attention", "full_attention"],
}
_UNTYPED = {"glm4v_moe"}  # its config has no type of its own
_WITHOUT_FRAMES = {"kimi_vl", "locateanything", "youtu_vl"}
_WITHOUT_TIME = {"dots_ocr", "kimi_vl", "locateanything", "paddleocr_vl", "youtu_vl"}


def tower(family: str, **changes: Any) -> nn.Module:
    """A tower with random weights; those with windows have them of 4 x 4 patches in their first layer.

    Args:
        changes: of the config's values, where the family has them.
    """
    made, config = (importlib.import_module(f"mlx_vlm.models.{family}.{name}") for name in ("vision", "config"))
    kind = config.VisionConfig
    values = {**_ALL, **changes, **({"temporal_patch_size": 1} if family in _WITHOUT_TIME else {})}
    known = {name: value for name, value in values.items() if name in inspect.signature(kind).parameters}
    mx.random.seed(1)
    its: nn.Module = made.VisionModel(kind(**known, **({"model_type": family} if family in _UNTYPED else {})))
    its.update(tree_map(lambda array: mx.random.normal(array.shape) * 0.3, its.parameters()))
    mx.eval(its.parameters())
    return its


def rows(family: str, its: nn.Module, grids: Sequence[Grid]) -> list[mx.array]:
    """All that a tower makes of some pictures or films of noise."""
    patches = sum(frames * height * width for frames, height, width in grids)
    mx.random.seed(2)
    values = mx.random.normal((patches, (1 if family in _WITHOUT_TIME else 2) * 3 * PATCH * PATCH))
    grid = mx.array([grid[1:] for grid in grids] if family in _WITHOUT_FRAMES else list(grids))
    if family in ("kimi_vl", "locateanything"):
        values = values.reshape(-1, PATCH, PATCH, 3)
    elif family == "paddleocr_vl":
        values = values.reshape(1, -1, 3, PATCH, PATCH)
    return _arrays(its(values, grid))


def _arrays(made: Any) -> list[mx.array]:
    return [made] if isinstance(made, mx.array) else [array for part in made or () for array in _arrays(part)]
