"""Tiny checkpoints of transformers, GGUF files that llama.cpp's own converter makes of them, and transformers' logits.

Runs in an environment with torch and transformers, and imports nothing of the package:

    python originals.py LLAMA_CPP TOKENIZER FOLDER [NAME ...]

LLAMA_CPP has `conversion` and `gguf-py` of llama.cpp, and TOKENIZER is a folder with a byte-level tokenizer. FOLDER
gets a compressed file for each family, and one with the logits of all. The files in `converted/` were made like this.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy

PROMPT = [(7 * i) % 300 + 2 for i in range(90)]
"""Longer than the windows, and than the context before it was stretched."""
PLACES = [0, 16, 89]
"""Tokens of the prompt whose logits are kept."""
SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
HYBRID = {
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOWS = ["sliding_attention", "full_attention"]
GEMMA4 = {
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "global_head_dim": 64,
    "sliding_window": 16,
    "use_double_wide_mlp": False,
    "vocab_size_per_layer_input": 400,
    "tie_word_embeddings": True,
    "layer_types": WINDOWS * 2,
}
ROPE = {"rope_type": "default", "rope_theta": 5000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_parameters": ROPE}),
    "llama-3": (
        "Llama",
        {
            "rope_parameters": {
                **ROPE,
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "qwen2": ("Qwen2", {"head_dim": 16, "rope_parameters": ROPE}),
    "qwen3": ("Qwen3", {"rope_parameters": ROPE}),
    "qwen2vl": (
        "Qwen2_5_VL",
        {
            "text_config": {**SIZES, "head_dim": 16, "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]}},
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
            },
        },
    ),
    "qwen3vl": (
        "Qwen3VL",
        {
            "text_config": {
                **SIZES,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
            },
        },
    ),
    "qwen3vlmoe": (
        "Qwen3VLMoe",
        {
            "text_config": {
                **SIZES,
                **EXPERTS,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
            },
        },
    ),
    "qwen3-yarn": ("Qwen3", {"rope_parameters": {**ROPE, **YARN}}),
    "qwen3moe": ("Qwen3Moe", {**EXPERTS, "rope_parameters": ROPE, "norm_topk_prob": True}),
    "gemma3": (
        "Gemma3Text",
        {
            "num_hidden_layers": 7,
            "sliding_window": 16,
            "layer_types": [WINDOWS[0]] * 5 + WINDOWS[::-1],
            "query_pre_attn_scalar": 32,
        },
    ),
    "qwen3next": (
        "Qwen3Next",
        {
            **HYBRID,
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "norm_topk_prob": True,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25},
        },
    ),
    "qwen35": ("Qwen3_5Text", {**HYBRID, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}}),
    "qwen35moe": (
        "Qwen3_5MoeText",
        {
            **HYBRID,
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25},
        },
    ),
    "gpt-oss": (
        "GptOss",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "layer_types": WINDOWS * 2,
            "rope_parameters": {**ROPE, **YARN},
        },
    ),
    "mistral3": (
        "Ministral3",
        {
            "rope_parameters": {
                **ROPE,
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            "sliding_window": None,
        },
    ),
    "phi3": ("Phi3", {"head_dim": 16, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}}),
    "phi3-longrope": (
        "Phi3",
        {
            "head_dim": 16,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                **ROPE,
                "rope_type": "longrope",
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "glm4moe": (
        "Glm4Moe",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "use_qk_norm": True,
            "attention_bias": True,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "gemma4": ("Gemma4Text", GEMMA4),
    "gemma4-e2b": (
        "Gemma4Text",
        {
            **GEMMA4,
            "hidden_size_per_layer_input": 32,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "num_hidden_layers": 6,
            "layer_types": WINDOWS * 3,
        },
    ),
    "gemma4-31b": (
        "Gemma4Text",
        {**GEMMA4, "num_key_value_heads": 2, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "gemma4-26b": (
        "Gemma4Text",
        {
            **GEMMA4,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
    ),
}
"""Names, and transformers' class and settings."""


class Seeing(NamedTuple):
    """A family with a vision encoder, which the converter writes to a file of its own.

    Attributes:
        kind: of transformers' classes.
        settings: of its config.
        tokens: those that are added to the vocabulary, with their keys in the config.
        image: tokens of an image.
        inputs: what the encoder reads, as the processor would make it of an image.
        preprocessor: what is saved of the processor.
    """

    kind: str
    settings: dict[str, Any]
    tokens: dict[str, str]
    image: list[str]
    inputs: dict[str, Any]
    preprocessor: dict[str, Any]


def waves(*shape: int) -> Any:
    """Numbers like those of pixels."""
    return numpy.sin(numpy.arange(numpy.prod(shape), dtype=numpy.float32)).reshape(shape)


SEEING_SIZES = {**SIZES, "vocab_size": 416}
QWEN_TOKENS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
QWEN_PREPROCESSOR = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}


PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 7,
    "hidden_act": "silu",
}
PIXTRAL_TOKENS = {
    "image_token_index": "[IMG]",
    "image_break_token_id": "[IMG_BREAK]",
    "image_end_token_id": "[IMG_END]",
}


def pixtral_image(rows: int, columns: int) -> list[str]:
    row = ["[IMG]"] * columns
    return [*[*row, "[IMG_BREAK]"] * (rows - 1), *row, "[IMG_END]"]


QWEN35_ROPE = {**ROPE, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
QWEN35_VISION = {
    "depth": 3,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "patch_size": 8,
    "num_position_embeddings": 25,
    "deepstack_visual_indexes": [],
}


def qwen_image(count: int) -> list[str]:
    return ["<|vision_start|>", *["<|image_pad|>"] * count, "<|vision_end|>"]


SEEING = {
    "gemma3-vision": Seeing(
        "Gemma3",
        {
            "text_config": {**SIZES, **FAMILIES["gemma3"][1], "vocab_size": 416},
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 7,
            },
            "mm_tokens_per_image": 4,
        },
        {
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "image_token_index": "<image_soft_token>",
        },
        ["<start_of_image>", *["<image_soft_token>"] * 4, "<end_of_image>"],
        {"pixel_values": waves(1, 3, 56, 56)},
        {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "image_seq_length": 4},
    ),
    "qwen2-vision": Seeing(
        "Qwen2VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "head_dim": 16,
                "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 3,
                "embed_dim": 48,
                "hidden_size": 32,
                "mlp_ratio": 2,
                "num_heads": 2,
                "patch_size": 7,
                "hidden_act": "quick_gelu",
            },
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 7 * 7), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen25-vision": Seeing(
        "Qwen2_5_VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "head_dim": 16,
                "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 3,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 14,
                "fullatt_block_indexes": [1],
            },
        },
        QWEN_TOKENS,
        qwen_image(15),  # of which a window has 4 to a side
        {"pixel_values": waves(60, 3 * 2 * 14 * 14), "image_grid_thw": numpy.array([[1, 6, 10]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen3-vision": Seeing(
        "Qwen3VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 4,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 48,
                "out_hidden_size": 32,
                "patch_size": 8,
                "num_position_embeddings": 25,
                "deepstack_visual_indexes": [0, 2],
            },
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen3moe-vision": Seeing(
        "Qwen3VLMoe",
        {
            "text_config": {
                **SEEING_SIZES,
                **EXPERTS,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {**QWEN35_VISION, "deepstack_visual_indexes": [1]},
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen35-vision": Seeing(
        "Qwen3_5",
        {"text_config": {**SEEING_SIZES, **HYBRID, "rope_parameters": QWEN35_ROPE}, "vision_config": QWEN35_VISION},
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen35moe-vision": Seeing(
        "Qwen3_5Moe",
        {
            "text_config": {
                **SEEING_SIZES,
                **HYBRID,
                **EXPERTS,
                "shared_expert_intermediate_size": 32,
                "rope_parameters": QWEN35_ROPE,
            },
            "vision_config": QWEN35_VISION,
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "smolvlm-vision": Seeing(
        "SmolVLM",
        {
            "text_config": {
                **SEEING_SIZES,
                "architectures": ["VLlama3ForCausalLM"],
                "model_type": "llama",
                "head_dim": 16,
                "rope_parameters": ROPE,
            },
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 7,
            },
            "scale_factor": 4,
        },
        {
            "image_token_id": "<image>",
            "fake_token_id": "<fake_token_around_image>",
            "global_token_id": "<global-img>",
        },
        [*(["<fake_token_around_image>", *["<image>"] * 4] * 6), "<global-img>", *["<image>"] * 4],
        {"pixel_values": waves(1, 7, 3, 56, 56)},
        {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], "size": {"longest_edge": 168}},
    ),
    "pixtral-vision": Seeing(
        "Llava",
        {
            "text_config": {**SEEING_SIZES, "model_type": "mistral", "sliding_window": None, "rope_parameters": ROPE},
            "vision_config": PIXTRAL,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        PIXTRAL_TOKENS,
        pixtral_image(5, 3),
        {"pixel_values": waves(1, 3, 35, 21), "image_sizes": numpy.array([[35, 21]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
    "mistral3-vision": Seeing(
        "Mistral3",
        {
            "text_config": {**SEEING_SIZES, "model_type": "mistral", "sliding_window": None, "rope_parameters": ROPE},
            "vision_config": PIXTRAL,
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
        },
        PIXTRAL_TOKENS,
        pixtral_image(3, 2),
        {"pixel_values": waves(1, 3, 42, 28), "image_sizes": numpy.array([[42, 28]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
    "ministral3-vision": Seeing(
        "Mistral3",
        {
            "text_config": {**SEEING_SIZES, **FAMILIES["mistral3"][1], "model_type": "ministral3"},
            "vision_config": PIXTRAL,
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
        },
        PIXTRAL_TOKENS,
        pixtral_image(2, 4),
        {"pixel_values": waves(1, 3, 28, 56), "image_sizes": numpy.array([[28, 56]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
}
"""By name."""
DRAFTING = ("qwen3next", "qwen35", "qwen35moe")
"""Families whose checkpoints have an MTP layer."""


def save(name: str, folder: Path, tokenizer: Path) -> Any:
    """Save a family's checkpoint. Returns its logits."""
    import torch
    import transformers

    kind, settings = FAMILIES[name]
    config = getattr(transformers, f"{kind}Config")(**{**({} if "text_config" in settings else SIZES), **settings})
    torch.manual_seed(sum(map(ord, name)))
    architecture = kind.removesuffix("Text") + (
        "ForConditionalGeneration" if "text_config" in settings else "ForCausalLM"
    )
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1:  # few values, which can be compressed
                parameter.copy_((noise * 2).round() / 16)
            elif "A_log" in key:
                parameter.copy_(noise * 0.3)
            else:
                parameter.add_((noise * 2).round() / 16)
        for key, buffer in model.named_buffers():
            if "e_score_correction_bias" in key or "layer_scalar" in key:
                buffer.add_((torch.randn_like(buffer) * 2).round() / 16)
    model.save_pretrained(folder)
    _as_published(folder / "model.safetensors", kind)
    for file in tokenizer.iterdir():
        if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "generation_config.json"):
            shutil.copy(file, folder)
    text = json.loads((folder / "config.json").read_text())
    if name in DRAFTING:
        _add_drafting_layer(folder)
        text["mtp_num_hidden_layers"] = 1
    text["architectures"] = [architecture]
    (folder / "config.json").write_text(json.dumps(text))
    with torch.no_grad():
        return model(torch.tensor([PROMPT])).logits[0, PLACES].float().numpy()


def save_seeing(name: str, folder: Path, tokenizer: Path) -> Any:
    """Save the checkpoint of a family with a vision encoder. Returns its logits for a prompt with an image.

    The tokens of the image come after the vocabulary, and attend only to earlier tokens, as all others do.
    """
    import torch
    import transformers

    seeing = SEEING[name]
    for file in tokenizer.iterdir():
        if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "generation_config.json"):
            folder.mkdir(exist_ok=True)
            shutil.copy(file, folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    first = 1 + max(vocabulary["model"]["vocab"].values())
    known = {text: first + i for i, text in enumerate(seeing.tokens.values())}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary["added_tokens"] += [{"id": i, "content": text, **flags} for text, i in known.items()]
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    ids = {key: known[text] for key, text in seeing.tokens.items()}
    config = getattr(transformers, f"{seeing.kind}Config")(**seeing.settings, **ids)
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, f"{seeing.kind}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = (torch.randn_like(parameter) * 2).round() / 16
            parameter.copy_(noise if parameter.ndim > 1 else parameter + noise)
    model.save_pretrained(folder)
    _as_published(folder / "model.safetensors", seeing.kind)
    if seeing.kind.startswith("Qwen3_5"):
        _add_drafting_layer(folder)
        saved = json.loads((folder / "config.json").read_text())
        saved["text_config"]["mtp_num_hidden_layers"] = 1
        (folder / "config.json").write_text(json.dumps(saved))
    (folder / "preprocessor_config.json").write_text(json.dumps(seeing.preprocessor))
    with torch.no_grad():
        prompt = image_prompt(name, known)
        inputs = {key: torch.from_numpy(value) for key, value in seeing.inputs.items()}
        if "image_grid_thw" in inputs:
            inputs["mm_token_type_ids"] = torch.tensor([[int(i == ids["image_token_id"]) for i in prompt]])
        logits = model(torch.tensor([prompt]), **inputs).logits[0, PLACES]
        return logits[:, : first + len(known)].float().numpy()  # the converter may leave out rows without a token


def _as_published(file: Path, kind: str) -> None:
    """Give tensors that transformers 5 saves otherwise the names and layout of checkpoints on the hub."""
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    if kind == "Gemma3":
        encoder = "vision_tower."
        weights = {key.replace(encoder, f"{encoder}vision_model."): value for key, value in weights.items()}
    if kind == "Qwen3VLMoe":
        weights = {
            key: value.transpose(1, 2).contiguous() if ".experts." in key else value for key, value in weights.items()
        }
    save_file(weights, file)


def image_prompt(name: str, known: dict[str, int]) -> list[int]:
    """The prompt with an image inside, by a vocabulary."""
    return [*PROMPT[:5], *(known[text] for text in SEEING[name].image), *PROMPT[5:]]


def _add_drafting_layer(folder: Path) -> None:
    """Add an MTP layer, which transformers neither has nor saves, and the converter asks for."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    inner = "model.language_model." if "model.language_model.norm.weight" in weights else "model."
    last = f"{inner}layers.3."
    layer = {key.replace(last, "mtp.layers.0."): value + 0 for key, value in weights.items() if key.startswith(last)}
    size = weights[f"{inner}norm.weight"].shape[0]
    norms = {f"mtp.{key}.weight": torch.ones(size) for key in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    save_file({**weights, **layer, **norms, "mtp.fc.weight": torch.ones(size, 2 * size)}, folder / "model.safetensors")


def convert(folder: Path, file: Path, *, encoder: bool = False) -> None:
    """Convert a checkpoint to float32, with its tokenizer as a byte-level one; or its vision encoder."""
    import conversion
    import gguf
    from conversion.base import ModelBase, ModelType, TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    hparams = ModelBase.load_hparams(folder, False)
    type_ = ModelType.MMPROJ if encoder else ModelType.TEXT
    kind = conversion.get_model_class(conversion.get_model_architecture(hparams, type_), mmproj=encoder)
    if not encoder:
        kind.set_vocab = lambda self: self._set_vocab_gpt2()
    model = kind(folder, gguf.LlamaFileType.ALL_F32, file)
    model.write()


if __name__ == "__main__":
    llama_cpp, tokenizer, target = map(Path, sys.argv[1:4])
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    target.mkdir(exist_ok=True)
    file = target / "logits.npz"
    logits = dict(numpy.load(file)) if file.exists() else {}
    for name in sys.argv[4:] or [*FAMILIES, *SEEING]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / name
            logits[name] = (save_seeing if name in SEEING else save)(name, folder, tokenizer)
            for encoder in [False, True] if name in SEEING else [False]:
                made = Path(temporary) / (f"mmproj-{name}.gguf" if encoder else f"{name}.gguf")
                convert(folder, made, encoder=encoder)
                (target / f"{made.name}.xz").write_bytes(lzma.compress(made.read_bytes(), preset=9))
    numpy.savez_compressed(file, **logits)
