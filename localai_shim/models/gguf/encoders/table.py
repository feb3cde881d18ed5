"""Kinds of vision encoders that can be read."""

from __future__ import annotations

from ..header import Header
from .description import PREFIX
from .dots import DOTS_OCR
from .gemma4 import GEMMA4
from .gemma4_unified import GEMMA4_UNIFIED
from .glm import GLM4V
from .internvl import INTERNVL
from .minicpm import MINICPM_V4_6
from .pixtral import PIXTRAL
from .qwen import QWEN2_5_VL, QWEN2_VL, QWEN3_VL
from .siglip import GEMMA3, IDEFICS3

ENCODERS = {
    "dots_ocr": DOTS_OCR,
    "gemma3": GEMMA3,
    "gemma4v": GEMMA4,
    "gemma4uv": GEMMA4_UNIFIED,
    "idefics3": IDEFICS3,
    "glm4v": GLM4V,
    "internvl": INTERNVL,
    "minicpmv4_6": MINICPM_V4_6,
    "pixtral": PIXTRAL,
    "qwen2vl_merger": QWEN2_VL,
    "qwen2.5vl_merger": QWEN2_5_VL,
    "qwen3vl_merger": QWEN3_VL,
}
"""By `clip.projector_type`."""


def projector_type(header: Header) -> str:
    """Kind of a file's encoder."""
    return header.get("clip.projector_type", "") or header.get(f"{PREFIX}.projector_type", "")
