"""Families of mlx-vlm whose code computes something else than the model's authors, and what mends it.

Each row was found by `make test-reference`, which compares logits with transformers'. A row applies only to the source
that it was written for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...types import Json
from . import deepstack, mobile, sam, token_types
from .table import Fault
from .tensors import SHARED_LAYERS, fill_unused, fold_scales, rename

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

log = logging.getLogger("localai_shim")

Mend = Callable[["nn.Module", Json], None]

_NOT_REPORTED = "not reported"
_CUBIC = -0.75  # PyTorch's


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


def _cubic(
    self: Any, embeddings: mx.array, lengths: list[int], shapes: mx.array, rows: mx.array, columns: mx.array
) -> mx.array:
    """Add positions that are interpolated between 16 neighbors, those at the edges repeated."""
    import mlx.core as mx

    table = self.position_embedding.weight
    side = int(table.shape[0] ** 0.5)
    number = np.repeat(np.arange(len(lengths)), np.array(lengths, int) if isinstance(lengths, list) else lengths)
    height, width = shapes[mx.array(number), 1], shapes[mx.array(number), 2]
    ys, y_weights = _taps(rows, height, side)
    xs, x_weights = _taps(columns, width, side)
    found = table.astype(mx.float32)[ys[:, :, None] * side + xs[:, None, :]]
    weights = y_weights[:, :, None, None] * x_weights[:, None, :, None]
    added: mx.array = (found * weights).sum(axis=(1, 2))
    return embeddings + added.astype(embeddings.dtype)


def _taps(places: mx.array, count: mx.array, side: int) -> tuple[mx.array, mx.array]:
    """Four places of a table around each of `count` places, and their weights."""
    import mlx.core as mx

    exact = (places.astype(mx.float32) + 0.5) / count.astype(mx.float32) * side - 0.5
    first = mx.floor(exact)
    near = exact - first

    def inner(t: mx.array) -> mx.array:
        return ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1

    def outer(t: mx.array) -> mx.array:
        return ((_CUBIC * t - 5 * _CUBIC) * t + 8 * _CUBIC) * t - 4 * _CUBIC

    weights = mx.stack([outer(near + 1), inner(near), inner(1 - near), outer(2 - near)], axis=-1)
    taps = first.astype(mx.int32)[:, None] + mx.array([-1, 0, 1, 2])
    return mx.clip(taps, 0, side - 1), weights


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


def _reads_pieces(model: nn.Module, config: Json) -> None:
    """Only images need one pass, which the language model knows by the types of tokens."""
    model.language_model.no_chunked_prefill = False


def _glm(family: str) -> tuple[Fault, ...]:
    what = "interpolates positions of patches between 4 neighbors and zeros, not 16"
    source = {f"mlx_vlm.models.{family}.vision:Glm4vVisionEmbeddings.__call__": "d5038da9ae96"}
    issue = "osaurus-ai/vmlx-swift#92 (the same fault in a port of mlx-vlm's)"
    return (Fault(what, issue, source, mend=_calling("Glm4vVisionEmbeddings", _cubic)),)


def _unexplained(what: str) -> tuple[Fault, ...]:
    """A difference that nothing mends: the log names it."""

    def warn(model: nn.Module, config: Json) -> None:
        log.warning(
            "mlx-vlm's code of '%s' gives other logits than transformers: %s. Its answers may be wrong",
            config.get("model_type"),
            what,
        )

    return (Fault(what, _NOT_REPORTED, {}, mend=warn),)


_SAM = (
    Fault(
        "relative positions of images of other sizes are interpolated from the first one on, not from the middle",
        _NOT_REPORTED,
        {"mlx_vlm.models.deepseekocr.sam:get_rel_pos": "599a752cc8ce"},
        mend=sam.interpolate("deepseekocr.sam"),
    ),
)
_SAM_AND_CLIP = (
    *_SAM,
    Fault(
        "positions of CLIP's patches are interpolated without smoothing",
        _NOT_REPORTED,
        {"mlx_vlm.models.deepseekocr.vision:VisionEmbeddings._get_abs_pos": "78950f5971bb"},
        mend=sam.smooth_positions,
    ),
    Fault(
        "CLIP's layers have the exact GELU, not that by a sigmoid, and norms another epsilon",
        _NOT_REPORTED,
        {
            "mlx_vlm.models.deepseekocr.vision:MLP.__init__": "8f27653e7163",
            "mlx_vlm.models.deepseekocr.vision:EncoderLayer.__init__": "a13261b1561a",
        },
        mend=sam.correct_layers,
    ),
)
_FILES = {"unlimited_ocr": "unlimitedocr"}

FAULTS: dict[str, tuple[Fault, ...]] = {
    f"mlx_vlm.models.{name}.{_FILES.get(name, name)}": faults
    for name, faults in {
        "aya_vision": (
            Fault(
                "cohere2_vision: features from before the encoder's last norm",
                _NOT_REPORTED,
                {"Model.get_input_embeddings": "e32b6f5f279f", "VisionModel.__call__": "51728684671d"},
                mend=_last_norm,
            ),
        ),
        "gemma3": (
            Fault(
                "an image's tokens see only those before them",
                "Blaizzy/mlx-vlm#671",
                {
                    "LanguageModel.__call__": "0a0793ee8287",
                    "mlx_vlm.models.gemma3.language:TransformerBlock.__call__": "d69e0b5fc6c6",
                },
                mend=_see_images,
            ),
        ),
        "deepseekocr": _SAM_AND_CLIP,
        "deepseekocr_2": _SAM,
        "ernie4_5_moe_vl": (
            Fault(
                "transformers' names of its encoder are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "1077d47c0152"},
                sanitize=rename({"model.vision_model.": "vision_model."}),
            ),
            Fault(
                "tokens at an image's edges get the experts of text, and all do in passes of the language model",
                _NOT_REPORTED,
                {
                    "Model._build_token_type_ids": "b732673e2d85",
                    "mlx_vlm.models.ernie4_5_moe_vl.language:Ernie4_5_MoeMLP.__call__": "db2d73118a3f",
                },
                mend=token_types.choose_experts,
            ),
        ),
        "flint": _unexplained("from the first tokens on"),
        "gemma3n": (
            Fault(
                "layers that use another one's keys require weights that transformers 5 does not save",
                "vllm-project/vllm#54917 (the same fault in vLLM)",
                {"Model.sanitize": "71c36593ee79"},
                sanitize=fill_unused(SHARED_LAYERS),
            ),
            Fault(
                "an encoder's layers have the exact GELU, not that by tanh, and norms another epsilon",
                _NOT_REPORTED,
                {
                    "mlx_vlm.models.gemma3n.vision:RMSNormAct2d.__init__": "15d1d79f204b",
                    "mlx_vlm.models.gemma3n.vision:ConvNormAct.__init__": "edb9628fa117",
                },
                mend=mobile.correct_norms,
            ),
            Fault(
                "keys and values of an encoder's layers are convolved with padding on both sides",
                _NOT_REPORTED,
                {
                    "mlx_vlm.models.gemma3n.vision:MultiQueryAttention2d.__init__": "9e5e14766f1c",
                    "mlx_vlm.models.gemma3n.vision:create_conv2d": "3ab12072fad0",
                },
                mend=mobile.pad_behind,
            ),
            Fault(
                "an image's features come column by column",
                _NOT_REPORTED,
                {"mlx_vlm.models.gemma3n.vision:MobileNetV5MultiScaleFusionAdapter.__call__": "ebfafb69dc6d"},
                mend=mobile.fuse_by_rows,
            ),
        ),
        "gemma4_unified": (
            Fault(
                "the language model alone says that it reads no text in pieces",
                _NOT_REPORTED,
                {"Model.__init__": "460a213a1839"},
                mend=_reads_pieces,
            ),
        ),
        "glm4v": _glm("glm4v"),
        "glm4v_moe": _glm("glm4v_moe"),
        "granite4_vision": (
            Fault(
                "features of layers are those of whole prompts, not of one image",
                _NOT_REPORTED,
                {
                    "Model.get_input_embeddings": "e476b9be1a77",
                    "mlx_vlm.models.granite4_vision.language:Granite.__call__": "5464b6632bb6",
                },
                mend=deepstack.add_to_granite,
            ),
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.granite4_vision.vision:MLP.__init__": "c0c3d26a5dd0"},
                mend=_gelu("tanh", "activation_fn"),
            ),
        ),
        "glm5_next": _unexplained("in prompts of 90 tokens and more"),
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
        "minimax_m3_vl": _unexplained("from the first tokens on"),
        "molmo2": (
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.molmo2.vision:_gelu_from_name": "c1ad5c11a873"},
                mend=_gelu("tanh", "act", kind="ViTMLP"),
            ),
            *_unexplained("in prompts with images, whose tokens see only those before them"),
        ),
        "muse_glimmer": _unexplained("in prompts with images"),
        "nemotron_h_nano_omni": (
            Fault(
                "scales of an encoder's layers, which transformers saves, are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "3b6c4b37a791"},
                sanitize=fold_scales,
            ),
            Fault(
                "means of pixels, which are not used, are required, and transformers does not save them",
                _NOT_REPORTED,
                {"mlx_vlm.models.nemotron_h_nano_omni.vision:InputConditioner.__init__": "d25d88366231"},
                sanitize=fill_unused(r"\.input_conditioner\."),
            ),
        ),
        "phi4mm": _unexplained(
            "the LoRA for images is applied to all prompts, and an image's parts lack the separators between them"
        ),
        "qwen3_omni_moe": (
            Fault(
                "features of layers are those of whole prompts, not of one image",
                _NOT_REPORTED,
                {
                    "mlx_vlm.models.qwen3_omni_moe.thinker:Thinker.get_input_embeddings": "462d1df54463",
                    "mlx_vlm.models.qwen3_omni_moe.language:Qwen3VLMoEModel.__call__": "71028f996679",
                },
                mend=deepstack.add_to_omni,
            ),
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
        "unlimited_ocr": (
            Fault(
                "weights of an embedding that is not used are required, and transformers does not save them",
                _NOT_REPORTED,
                {"Model.sanitize": "bca3e24161e4"},
                sanitize=fill_unused(r"^vision_model\.embeddings\.patch_embedding\."),
            ),
            *_SAM_AND_CLIP,
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
