"""A model that sees, of a chosen size with random weights, and pictures for it."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .models import Size, make_tokenizer, randomise
from .workload import Prompt

PATCH = 14
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ part.text }}{% endif -%}
{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""


@dataclass(frozen=True, slots=True)
class VisionSize:
    """The shapes of the language model and of the tower, and the side of a picture in pixels."""

    text: Size
    depth: int
    hidden: int
    heads: int
    intermediate: int
    full_attention: tuple[int, ...]
    side: int


SIZES = {
    "small": VisionSize(Size(256, 4, 1_024, 4, 2, 64, 6_000, 128, 128), 4, 256, 4, 512, (3,), 224),
    # Qwen2.5-VL-3B
    "3b": VisionSize(
        Size(2_048, 36, 11_008, 16, 2, 128, 151_936, 128, 128), 32, 1_280, 16, 3_420, (7, 15, 23, 31), 1_024
    ),
}


@dataclass(frozen=True, slots=True)
class PicturePrompt(Prompt):
    """A question about one picture. `tokens` are those of the text alone."""

    url: str

    @property
    def messages(self) -> Any:
        picture = {"type": "image_url", "image_url": {"url": self.url}}
        return [{"role": "user", "content": [picture, {"type": "text", "text": self.text}]}]


def picture(side: int, seed: int) -> Image.Image:
    """A picture that nobody has seen: coarse noise, so that it is neither flat nor hard to compress."""
    cells = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize((side, side), Image.Resampling.BILINEAR)


def data_url(image: Image.Image) -> str:
    """A PNG."""
    out = io.BytesIO()
    image.save(out, format="PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def make_vision_model(folder: Path, size: VisionSize) -> None:
    """Save a qwen2_5_vl model with random weights, its tokenizer and its processor's config.

    Weights are float32 on MLX's CPU back end and bfloat16 on a GPU.
    """
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_vlm.models import qwen2_5_vl

    folder.mkdir(parents=True, exist_ok=True)
    quiet, end = make_tokenizer(folder, size.text.vocabulary, TEMPLATE)
    config = _config(folder, size, end)
    (folder / "config.json").write_text(json.dumps(config))
    pixels = {"min_pixels": (2 * PATCH) ** 2, "max_pixels": (4 * size.side) ** 2}
    processor = {"patch_size": PATCH, "temporal_patch_size": 2, "merge_size": 2, **pixels}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    made = qwen2_5_vl.ModelConfig.from_dict(json.loads(json.dumps(config)))
    made.text_config = qwen2_5_vl.TextConfig.from_dict(made.text_config)
    made.vision_config = qwen2_5_vl.VisionConfig.from_dict(made.vision_config)
    model = qwen2_5_vl.Model(made)
    dtype = mx.bfloat16 if mx.is_available(mx.gpu) else mx.float32
    randomise(model, size.text.vocabulary, quiet, dtype)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def _config(folder: Path, size: VisionSize, end: int) -> dict[str, Any]:
    from transformers import AutoTokenizer

    text, markers = size.text, ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    image, video, start, stop = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(list(markers))
    section = text.head_dim // 2
    return {
        "model_type": "qwen2_5_vl",
        "hidden_size": text.hidden,
        "num_hidden_layers": text.layers,
        "intermediate_size": text.intermediate,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        "rms_norm_eps": 1e-6,
        "vocab_size": text.vocabulary,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [section - 2 * (3 * section // 8), *2 * [3 * section // 8]]},
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
        "eos_token_id": end,
        "image_token_id": image,
        "video_token_id": video,
        "vision_start_token_id": start,
        "vision_end_token_id": stop,
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": size.depth,
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "out_hidden_size": text.hidden,
            "num_heads": size.heads,
            "patch_size": PATCH,
            "in_channels": 3,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 8 * PATCH,
            "fullatt_block_indexes": list(size.full_attention),
        },
    }
