"""Families of mlx-vlm whose code computes something else than the model's authors, and what mends it.

Each row was found by `make test-reference`, which compares logits with transformers'. A row applies only to the source
that it was written for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types import Json
from ..attention.blocks import by_head
from . import cubic, hy4
from .table import Fault
from .tensors import read_floats_of_hy4, rename

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

Mend = Callable[["nn.Module", Json], None]

_NOT_REPORTED = "not reported"


def _calling(name: str, call: Callable[..., Any], **members: Any) -> Mend:
    """Give the layers of a class another `__call__`."""

    def mend(model: nn.Module, config: Json) -> None:
        for layer in model.modules():
            if type(layer).__name__ == name:
                layer.__class__ = _called(type(layer), call, **members)

    return mend


def _called(kind: type, call: Callable[..., Any], **members: Any) -> type:
    from ...backends.patches import class_like

    return class_like(kind, {"__call__": call, "upstream_call": kind.__call__, **members})


class _ImageMasks:
    """Masks of layers that see all of an image that a token belongs to."""

    def __init__(self, types: mx.array, window: int) -> None:
        import mlx.core as mx

        kinds = np.array(types[0]) == 1
        starts = kinds & ~np.concatenate([[False], kinds[:-1]])
        images = np.where(kinds, np.cumsum(starts), 0)
        same = (images[:, None] == images) & kinds
        places = np.arange(len(kinds))
        causal = places[:, None] >= places
        self.full = mx.array(causal | same)
        self.sliding = mx.array((causal & (places[:, None] - places < window)) | same)


def _gemma3(self: Any, inputs: mx.array, *args: Any, **kwargs: Any) -> Any:
    """Tokens of an image see each other, in both directions."""
    types = kwargs.pop("mm_token_type_ids", None)
    types = kwargs.pop("token_type_ids", None) if types is None else types
    if types is not None and inputs.shape[1] == types.shape[1] > 1 and bool((types == 1).any()):
        kwargs["mask"] = _ImageMasks(types, self.config.sliding_window)
    return self.upstream_call(inputs, *args, **kwargs)


def _gemma3_layer(self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
    if isinstance(mask, _ImageMasks):
        mask = mask.sliding if self.self_attn.is_sliding else mask.full
    return self.upstream_call(x, mask, cache)


def _in_one_pass(self: Any, *args: Any, prefill_kwargs: Any = None, **kwargs: Any) -> bool:
    """False for a prompt with images, which has to be run in one pass."""
    types = (prefill_kwargs or {}).get("mm_token_type_ids")
    return types is None or not bool((types == 1).any())


def _see_images(model: nn.Module, config: Json) -> None:
    _calling("LanguageModel", _gemma3, chunked_prefill_policy=_in_one_pass)(model, config)
    _calling("TransformerBlock", _gemma3_layer)(model, config)


def _idefics2(self: Any, x: mx.array, mask: mx.array | None = None) -> mx.array:
    """Positions of patches are those of as many equal parts as the position table has."""
    import mlx.core as mx

    patches = self.patch_embedding(x).flatten(1, 2)
    edges = np.arange(1 / self.num_patches, 1.0, 1 / self.num_patches, dtype=np.float32)
    places = np.zeros(patches.shape[:2], int)
    for number, seen in enumerate(np.array(mask)):
        rows, columns = (
            np.digitize(np.minimum(np.arange(count, dtype=np.float32) / count, 1 - 1e-6), edges)
            for count in (seen[:, 0].sum(), seen[0].sum())
        )
        places[number][seen.reshape(-1)] = (rows[:, None] * self.num_patches + columns).reshape(-1)
    placed: mx.array = patches + self.position_embedding(mx.array(places))
    return placed


def _gelu(approximation: str, *names: str, kind: str = "") -> Mend:
    """Compute this GELU in layers, or those of a class, that have another one under one of these names."""

    def mend(model: nn.Module, config: Json) -> None:
        from mlx import nn

        for layer in model.modules():
            for name in names if type(layer).__name__ == kind or not kind else ():
                if isinstance(layer.get(name), nn.GELU):
                    layer[name] = nn.GELU(approximation)

    return mend


def _last_norm(model: nn.Module, config: Json) -> None:
    """Give Cohere's vision models the features behind the encoder's last norm, which Aya's do not read."""

    def call(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        last, *others, states = self.upstream_call(*args, **kwargs)
        return (last, *others, (*states[:-1], last))

    if config.get("model_type") == "cohere2_vision":
        _calling("VisionModel", call)(model, config)


def _turned_positions(model: nn.Module, config: Json) -> None:
    """Muse Glimmer counts the rows of the position table along an image's width."""
    from ...backends.patches import class_like

    def turned(self: Any, grid: list[list[int]]) -> mx.array:
        positions: mx.array = self.upstream_positions([[frames, width, height] for frames, height, width in grid])
        return positions

    for layer in model.modules():
        if (kind := type(layer)).__name__ == "PatchEmbedder":
            members = {"_position_embeddings": turned, "upstream_positions": kind._position_embeddings}
            layer.__class__ = class_like(kind, members)


def _glm(family: str) -> tuple[Fault, ...]:
    what = "interpolates positions of patches between 4 neighbors and zeros, not 16"
    source = {f"mlx_vlm.models.{family}.vision:Glm4vVisionEmbeddings.__call__": "d5038da9ae96"}
    return (Fault(what, _NOT_REPORTED, source, mend=_calling("Glm4vVisionEmbeddings", cubic.add_positions)),)


def _blocks_by_head(model: nn.Module, config: Json) -> None:
    for layer in model.modules():
        if type(layer).__name__ == "MiniMaxAttention" and layer.has_sparse_index:
            layer.indexer = by_head(layer.indexer)


def _edges() -> Fault:
    return Fault(
        "positions of patches at the edges are interpolated without those beyond, which PyTorch repeats",
        _NOT_REPORTED,
        {
            "mlx_vlm.models.kernels:bicubic_interpolate": "ff5607cb7d99",
            "mlx_vlm.models.kernels:_bicubic_interpolate_mlx": "5afc030eae6b",
        },
        mend=cubic.repeat_edges,
    )


def _moonvit(family: str) -> tuple[Fault, ...]:
    what = "the exact GELU in an encoder's layers, not that by tanh"
    source = {f"mlx_vlm.models.{family}.vision:MLP.__init__": "2cff83d14f27"}
    return (Fault(what, _NOT_REPORTED, source, mend=_gelu("tanh", "activation_fn", kind="MLP")), _edges())


def _minimax() -> tuple[Fault, ...]:
    place = "mlx_vlm.models.minimax_m3_vl.language"
    sources = {
        f"{place}:MiniMaxM3Indexer.select_blocks": "684913fb45d8",
        f"{place}:MiniMaxM3Indexer.build_block_mask": "5f563c1635d9",
        f"{place}:MiniMaxAttention.__call__": "709ea4dba8b4",
    }
    what = "sparse layers choose the same blocks for all heads"
    issue = "huggingface/transformers#46762 (the same fault in transformers, which has mended it)"
    return (Fault(what, issue, sources, mend=_blocks_by_head),)


FAULTS: dict[str, tuple[Fault, ...]] = {
    f"mlx_vlm.models.{name}.{name}": faults
    for name, faults in {
        "aya_vision": (
            Fault(
                "cohere2_vision: features from before the encoder's last norm",
                _NOT_REPORTED,
                {"Model.get_input_embeddings": "e32b6f5f279f", "VisionModel.__call__": "51728684671d"},
                mend=_last_norm,
            ),
        ),
        "deepseek_v4": (
            Fault(
                "transformers' names of tensors are not read",
                _NOT_REPORTED,
                {"mlx_vlm.models.deepseek_v4.language:LanguageModel.sanitize": "9b2e54daf0ae"},
                sanitize=rename({".hc_head.hc_": ".hc_head.", ".attn.norm.": ".attn.kv_norm."}),
            ),
        ),
        "gemma3": (
            Fault(
                "an image's tokens see only those before them",
                _NOT_REPORTED,
                {
                    "LanguageModel.__call__": "0a0793ee8287",
                    "mlx_vlm.models.gemma3.language:TransformerBlock.__call__": "d69e0b5fc6c6",
                },
                mend=_see_images,
            ),
        ),
        "glm4v": _glm("glm4v"),
        "glm4v_moe": _glm("glm4v_moe"),
        "hy_v4": (
            Fault(
                "experts in float, and transformers' names of tensors, are not read",
                _NOT_REPORTED,
                {"mlx_vlm.models.hy_v4.language:Model.sanitize": "479a6f312227"},
                sanitize=read_floats_of_hy4,
            ),
            Fault(
                "an indexer's first dimensions get positions, not the last",
                _NOT_REPORTED,
                {"mlx_vlm.models.hy_v4.indexer:HyV4Indexer.__call__": "8b8889b52a9b"},
                mend=hy4.rotate_last,
            ),
            Fault(
                "keys are chosen for the number of keys of the first pass that chose some",
                _NOT_REPORTED,
                {"mlx_vlm.models.hy_v4.indexer:_partition_scores": "e423e8c4f1ec"},
                mend=hy4.choose_keys,
            ),
            Fault(
                "routed experts without swiglu_limit",
                _NOT_REPORTED,
                {"mlx_vlm.models.hy_v4.fused_switch_glu:FusedSwitchGLU.__call__": "baad626efa12"},
                mend=hy4.limit_experts,
            ),
        ),
        "idefics2": (
            Fault(
                "positions of patches are one too low",
                _NOT_REPORTED,
                {"mlx_vlm.models.idefics2.vision:VisionEmbeddings.__call__": "164d5579f949"},
                mend=_calling("VisionEmbeddings", _idefics2),
            ),
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.idefics2.vision:MLP.__init__": "2d9cadd20bad"},
                mend=_gelu("tanh", "activation_fn"),
            ),
        ),
        "kimi_k25": (
            Fault(
                "transformers' names of tensors are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "53de3f58c6bb"},
                sanitize=rename({".model.blocks.": ".model.layers.", "model.mm_projector.": "mm_projector."}),
            ),
            *_moonvit("kimi_k25"),
        ),
        "kimi_vl": _moonvit("kimi_vl"),
        "llama4": (
            Fault(
                "GELU by a sigmoid, not the exact one",
                _NOT_REPORTED,
                {"mlx_vlm.models.llama4.vision:Llama4VisionMLP.__init__": "3dd23f34111b"},
                mend=_gelu("none", "activation_fn"),
            ),
        ),
        "locateanything": (_edges(),),
        "minicpmv4_6": (
            Fault(
                "GELU by tanh in the merger, not the exact one",
                _NOT_REPORTED,
                {"mlx_vlm.models.minicpmv4_6.minicpmv4_6:MergerBlock.__init__": "1e6130cd36d3"},
                mend=_gelu("none", "act", kind="MergerBlock"),
            ),
        ),
        "minimax_m3": _minimax(),
        "minimax_m3_vl": _minimax(),
        "muse_glimmer": (
            Fault(
                "positions of patches are those of an image with rows and columns exchanged",
                _NOT_REPORTED,
                {"mlx_vlm.models.muse_glimmer.vision:PatchEmbedder._position_embeddings": "e1d1ca2ecc75"},
                mend=_turned_positions,
            ),
        ),
        "qwen3_omni_moe": (
            Fault(
                "the exact GELU in an encoder's layers, not that by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_omni_moe.vision:MLP.__init__": "474fdde2d7be"},
                mend=_gelu("tanh", "act_fn", kind="MLP"),
            ),
        ),
        "qwen3_vl_moe": (
            Fault(
                "an encoder's layers have the GELU of its merger, and the merger that of the layers",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_vl_moe.vision:PatchMerger.__init__": "6e265233afd3"},
                mend=_gelu("none", "act_fn", kind="PatchMerger"),
            ),
            Fault(
                "an encoder's layers have the GELU of its merger, and the merger that of the layers",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_vl_moe.vision:MLP.__init__": "474fdde2d7be"},
                mend=_gelu("tanh", "act_fn", kind="MLP"),
            ),
        ),
        "internvl": (
            Fault(
                "GELU by tanh, not the exact one",
                _NOT_REPORTED,
                {
                    "mlx_vlm.models.internvl_chat.vision:MLP.__init__": "2dc2666b61aa",
                    "MultiModalProjector.__init__": "9ccac6397f28",
                },
                mend=_gelu("none", "activation", "activation_fn"),
            ),
        ),
    }.items()
}
"""By the module that defines the model."""
