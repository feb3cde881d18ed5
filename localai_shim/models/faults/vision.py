"""Families of mlx-vlm whose code computes something else than the model's authors, and what mends it.

Each row was found by `make test-reference`, which compares logits with transformers'. A row applies only to the source
that it was written for.
"""

from __future__ import annotations

import logging

from mlx import nn

from ...types import Json
from . import hy4, image_encoders, seeing
from .seeing import (
    blocks_by_head,
    calling,
    gelu,
    last_norm,
    parts_in_a_row,
    place_from_zero,
    reads_pieces,
    same_epsilon,
    see_images,
    see_images_nearby,
    turned_positions,
)
from .table import Fault
from .tensors import SHARED_LAYERS, fill_unused, fold_scales, read_floats_of_hy4, rename

log = logging.getLogger("localai_shim")

_NOT_REPORTED = "not reported"


def _glm(family: str) -> tuple[Fault, ...]:
    what = "interpolates positions of patches between 4 neighbors and zeros, not 16"
    source = {f"mlx_vlm.models.{family}.vision:Glm4vVisionEmbeddings.__call__": "d5038da9ae96"}
    issue = "osaurus-ai/vmlx-swift#92 (the same fault in a port of mlx-vlm's)"
    return (
        Fault(what, issue, source, mend=calling("Glm4vVisionEmbeddings", image_encoders.add_positions)),
        _norms(family),
    )


def _norms(family: str) -> Fault:
    block, source = {
        "glm4v": ("Glm4vVisionBlock", "5d2df14e84d7"),
        "glm4v_moe": ("Glm4vMoeVisionBlock", "b435072a9512"),
    }[family]
    sources = {f"mlx_vlm.models.{family}.vision:{block}.__init__": source}
    what = "norms of an encoder's layers have another epsilon"
    return Fault(what, _NOT_REPORTED, sources, mend=same_epsilon)


def _unexplained(what: str) -> tuple[Fault, ...]:
    """A difference that nothing mends: the log names it."""

    def warn(model: nn.Module, config: Json) -> None:
        log.warning(
            "mlx-vlm's code of '%s' gives other logits than transformers: %s. Its answers may be wrong",
            config.get("model_type"),
            what,
        )

    return (Fault(what, _NOT_REPORTED, {}, mend=warn),)


def _edges() -> Fault:
    return Fault(
        "positions of patches at the edges are interpolated without those beyond, which PyTorch repeats",
        _NOT_REPORTED,
        {
            "mlx_vlm.models.kernels:bicubic_interpolate": "ff5607cb7d99",
            "mlx_vlm.models.kernels:_bicubic_interpolate_mlx": "5afc030eae6b",
        },
        mend=image_encoders.repeat_edges,
    )


def _moonvit(family: str) -> tuple[Fault, ...]:
    what = "the exact GELU in an encoder's layers, not that by tanh"
    source = {f"mlx_vlm.models.{family}.vision:MLP.__init__": "2cff83d14f27"}
    return (Fault(what, _NOT_REPORTED, source, mend=gelu("tanh", "activation_fn", kind="MLP")), _edges())


def _minimax() -> tuple[Fault, ...]:
    place = "mlx_vlm.models.minimax_m3_vl.language"
    sources = {
        f"{place}:MiniMaxM3Indexer.select_blocks": "684913fb45d8",
        f"{place}:MiniMaxM3Indexer.build_block_mask": "5f563c1635d9",
        f"{place}:MiniMaxAttention.__call__": "709ea4dba8b4",
    }
    what = "sparse layers choose the same blocks for all heads"
    issue = "huggingface/transformers#46762 (the same fault in transformers, which has mended it)"
    return (Fault(what, issue, sources, mend=blocks_by_head),)


_SAM = (
    Fault(
        "relative positions of images of other sizes are interpolated from the first one on, not from the middle",
        _NOT_REPORTED,
        {"mlx_vlm.models.deepseekocr.sam:get_rel_pos": "599a752cc8ce"},
        mend=image_encoders.interpolate("deepseekocr.sam"),
    ),
)
_SAM_AND_CLIP = (
    *_SAM,
    Fault(
        "positions of CLIP's patches are interpolated without smoothing",
        _NOT_REPORTED,
        {"mlx_vlm.models.deepseekocr.vision:VisionEmbeddings._get_abs_pos": "78950f5971bb"},
        mend=image_encoders.smooth_positions,
    ),
    Fault(
        "CLIP's layers have the exact GELU, not that by a sigmoid, and norms another epsilon",
        _NOT_REPORTED,
        {
            "mlx_vlm.models.deepseekocr.vision:MLP.__init__": "8f27653e7163",
            "mlx_vlm.models.deepseekocr.vision:EncoderLayer.__init__": "a13261b1561a",
        },
        mend=image_encoders.correct_layers,
    ),
)
_GEMMA4 = "mlx_vlm.models.gemma4.language:Gemma4TextModel"
_NEARBY = Fault(
    "an image's tokens see those after them in layers without a window, and beyond windows",
    "huggingface/transformers#46850 (the same fault in transformers, which has mended it)",
    {
        f"{_GEMMA4}._make_masks": "f06c9ddfb73d",
        f"{_GEMMA4}._apply_blockwise_bidirectional_overlay": "03ada53ac443",
    },
    mend=see_images_nearby,
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
                mend=last_norm,
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
                "Blaizzy/mlx-vlm#671",
                {
                    "LanguageModel.__call__": "0a0793ee8287",
                    "mlx_vlm.models.gemma3.language:TransformerBlock.__call__": "d69e0b5fc6c6",
                },
                mend=see_images,
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
                mend=seeing.choose_experts,
            ),
        ),
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
                mend=image_encoders.correct_norms,
            ),
            Fault(
                "keys and values of an encoder's layers are convolved with padding on both sides",
                _NOT_REPORTED,
                {
                    "mlx_vlm.models.gemma3n.vision:MultiQueryAttention2d.__init__": "9e5e14766f1c",
                    "mlx_vlm.models.gemma3n.vision:create_conv2d": "3ab12072fad0",
                },
                mend=image_encoders.pad_behind,
            ),
            Fault(
                "an image's features come column by column",
                _NOT_REPORTED,
                {"mlx_vlm.models.gemma3n.vision:MobileNetV5MultiScaleFusionAdapter.__call__": "ebfafb69dc6d"},
                mend=image_encoders.fuse_by_rows,
            ),
        ),
        "gemma4": (_NEARBY,),
        "gemma4_unified": (
            _NEARBY,
            Fault(
                "the language model alone says that it reads no text in pieces",
                _NOT_REPORTED,
                {"Model.__init__": "460a213a1839"},
                mend=reads_pieces,
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
                mend=seeing.add_to_granite,
            ),
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.granite4_vision.vision:MLP.__init__": "c0c3d26a5dd0"},
                mend=gelu("tanh", "activation_fn"),
            ),
        ),
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
                mend=calling("VisionEmbeddings", place_from_zero),
            ),
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.idefics2.vision:MLP.__init__": "2d9cadd20bad"},
                mend=gelu("tanh", "activation_fn"),
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
                mend=gelu("none", "activation_fn"),
            ),
        ),
        "locateanything": (_edges(),),
        "minicpmv4_6": (
            Fault(
                "GELU by tanh in the merger, not the exact one",
                _NOT_REPORTED,
                {"mlx_vlm.models.minicpmv4_6.minicpmv4_6:MergerBlock.__init__": "1e6130cd36d3"},
                mend=gelu("none", "act", kind="MergerBlock"),
            ),
            Fault("parts of an image, whose sizes can differ, are no array", _NOT_REPORTED, {}, mend=parts_in_a_row),
        ),
        "minimax_m3": _minimax(),
        "minimax_m3_vl": _minimax(),
        "molmo2": (
            Fault(
                "GELU by a sigmoid, not by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.molmo2.vision:_gelu_from_name": "c1ad5c11a873"},
                mend=gelu("tanh", "act", kind="ViTMLP"),
            ),
            *_unexplained("in prompts with images, whose tokens see only those before them"),
        ),
        "muse_glimmer": (
            Fault(
                "positions of patches are those of an image with rows and columns exchanged",
                _NOT_REPORTED,
                {"mlx_vlm.models.muse_glimmer.vision:PatchEmbedder._position_embeddings": "e1d1ca2ecc75"},
                mend=turned_positions,
            ),
        ),
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
                mend=seeing.add_to_omni,
            ),
            Fault(
                "the exact GELU in an encoder's layers, not that by tanh",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_omni_moe.vision:MLP.__init__": "474fdde2d7be"},
                mend=gelu("tanh", "act_fn", kind="MLP"),
            ),
        ),
        "qwen3_vl_moe": (
            Fault(
                "an encoder's layers have the GELU of its merger, and the merger that of the layers",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_vl_moe.vision:PatchMerger.__init__": "6e265233afd3"},
                mend=gelu("none", "act_fn", kind="PatchMerger"),
            ),
            Fault(
                "an encoder's layers have the GELU of its merger, and the merger that of the layers",
                _NOT_REPORTED,
                {"mlx_vlm.models.qwen3_vl_moe.vision:MLP.__init__": "474fdde2d7be"},
                mend=gelu("tanh", "act_fn", kind="MLP"),
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
        "internvl_chat": (
            Fault(
                "GELU by tanh in an encoder's layers, not the exact one",
                _NOT_REPORTED,
                {"mlx_vlm.models.internvl_chat.vision:MLP.__init__": "2dc2666b61aa"},
                mend=gelu("none", "activation_fn"),
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
                mend=gelu("none", "activation", "activation_fn"),
            ),
        ),
    }.items()
}
"""By the module that defines the model."""
