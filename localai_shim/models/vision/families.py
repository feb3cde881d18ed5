"""Particulars of families of models that mlx-vlm runs: refusals, placeholders, templates."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlx import nn

from ...media import MediaKind
from ...options import LoadOptions
from ...types import Json, ModelLoadError
from ..checkpoint.files import read_json
from ..gguf.checkpoint import read_processor
from ..gguf.detection import is_gguf
from ..heads.pooling import TOKEN_VECTORS
from ..upstream_imports import LOADING, without_advice
from .media_tokens import count_frames
from .processor import MediaProcessor, Placeholder

if TYPE_CHECKING:
    from transformers import ProcessorMixin

NUMBERS_LAST = ("mlx_vlm.models.ernie4_5_moe_vl.language",)
"""Language models whose positions have their three numbers as the last axis."""
ONE_NUMBER = ("mlx_vlm.models.minimax_m3_vl.language",)
"""Those that read one number per token."""
NEGATIVE_IDS = {"phi3_v"}
"""Families whose images have negative token ids. Here they have the id of `IMAGE_TOKEN`, as prompts are made of text.

Their models ask the host for the ids of each pass, unless they get embeddings.
"""
IMAGE_TOKEN = "<|image|>"
UNSCALED = {"gemma3n"}
"""Families of which mlx-vlm embeds prompts without the factor that their language models apply to tokens."""

_CROSS_ATTENTION = "reads images through cross-attention, not in the place of tokens"
_ENCODER_DECODER = "is an encoder-decoder model"
_DIFFUSION = "generates by diffusion, not token by token"
_OWN_STATE = "keeps the request that it was last called for, and what it knows of its images, in itself"
_NO_TEXT = "generates no text"
_MEDIA_VECTORS = "makes vectors of images as well as of texts, and only models of texts embed here"
_REFUSED = {
    **dict.fromkeys(("clef", "d1", "decider2", "sam3", "sam3_1"), _NO_TEXT),
    **dict.fromkeys(("colidefics3", "colqwen2_5", "lfm2_colbert"), TOKEN_VECTORS),
    **dict.fromkeys(
        ("embedding_gemma2", "llama_nemotron_vl_embedding", "qwen3_vl_embedding", "siglip"), _MEDIA_VECTORS
    ),
    "mllama": _CROSS_ATTENTION,
    **dict.fromkeys(("florence2", "nemotron_parse"), _ENCODER_DECODER),
    **dict.fromkeys(("diffusion_gemma", "llada2_moe", "llada_image", "nemotron_labs_diffusion"), _DIFFUSION),
    **dict.fromkeys(("falcon_ocr", "falcon_perception", "hunyuan_vl", "minicpmo"), _OWN_STATE),
}
_OTHER_FORMS = {
    "deepseek_ocr2": "deepseekocr_2",
    "ernie4_5_vl_moe": "ernie4_5_moe_vl",
    "fast_vlm": "llava_qwen2",
    "got_ocr2": "got",
    "phi4_multimodal": "phi4mm",
}
"""Models that transformers saves with other keys and names of tensors than their authors, whose form mlx-vlm reads.

By transformers' `model_type`, and that of the authors.
"""
_NO_MEDIA = {"fastvlm", "llava_qwen2", "llava_next", "minicpmv4_7", "phi4-siglip", "phi4_siglip"}
"""Text alone is served.

fastvlm, whose checkpoints say llava_qwen2, and phi4_siglip, whose checkpoints have a hyphen: mlx-vlm writes one token
for all features of an image. llava_next: mlx-vlm puts the features of an image's tiles into other places than the
prompt's. minicpmv4_7: the positions of its images come from what only its own batch code has.
"""
_VIDEO_FAMILIES = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma4"}
_AUDIO_FAMILIES = {"gemma3n", "gemma4"}
_IMAGE_TEXTS = {
    "gemma3": "<start_of_image>",
    "internvl_chat": "<image>",
    "deepseek_vl_v2": "<image>",
    "ernie4_5_moe_vl": "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>",
    "phi3_v": "<|image_1|>",
}
_ONE_PROCESSOR = {"deepseek_vl_v2"}  # without an image processor of its own
_QWEN_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"  # Qwen3-VL writes times before each frame's own such pair
# What is beside the placeholders in what PaliGemma's processor makes is the prompt's, and stands once in it.
_BARE = {"paligemma"}
_IN_A_ROW = {"minicpmv4_6"}
_TEMPLATES = {
    # What its processor makes of a prompt. Its images come first: mlx-vlm would put features elsewhere.
    "paligemma": """
{%- for message in messages if message.content is not string -%}
{%- for part in message.content if part.type == 'image' -%}<image>{%- endfor -%}
{%- endfor -%}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{{- '\n' -}}"""
}
"""Of families whose checkpoints have none."""


def model_type(config: Json) -> str | None:
    """The name under which mlx-vlm has a checkpoint's model; None if it has none."""
    import mlx_vlm.utils

    name = mlx_vlm.utils.get_model_type(config)
    return name if name and importlib.util.find_spec(f"mlx_vlm.models.{name}") else None


def refuse(name: str, config: Json, options: LoadOptions) -> None:
    """Refuse what no batch of rows can run, and code of the checkpoint's own.

    Raises:
        ModelLoadError: says why.
    """
    saved = str(config.get("model_type"))
    if (own := _OTHER_FORMS.get(saved)) is not None:
        raise ModelLoadError(
            f"The model '{name}' has the form in which transformers saves it ('{saved}'), and mlx-vlm reads only its "
            f"authors' form. Choose a checkpoint whose config.json has the model_type '{own}'."
        )
    kind = model_type(config)
    why = None if kind is None else _REFUSED.get(kind) or _no_text(kind)
    if why is not None:
        raise ModelLoadError(f"The model '{name}' ({kind}) cannot be served: it {why}.")
    if config.get("model_file") is not None and not options.get("trust_remote_code"):
        raise ModelLoadError(
            f"The model '{name}' includes Python code ({config['model_file']}). Pass trust_remote_code=True to run it."
        )


def _no_text(kind: str) -> str | None:
    """A reason against models that embed no prompts; None for others, and where loading will say what is wrong."""
    try:
        module = importlib.import_module(f"mlx_vlm.models.{kind}")
    except ImportError:
        return None
    return None if hasattr(getattr(module, "Model", None), "get_input_embeddings") else _NO_TEXT


def load_processor(model: nn.Module, path: Path, options: LoadOptions) -> MediaProcessor | None:
    """A checkpoint's processor; None if the model reads text only.

    mlx-vlm's own loading would run the checkpoint's code unless told not to.

    Raises:
        ModelLoadError: it cannot be loaded.
    """
    import mlx_vlm.utils

    trusted = options.get("trust_remote_code", False)
    try:
        with LOADING, without_advice(), warnings.catch_warnings():
            # Gemma's warns, and where warnings are errors mlx-vlm takes that for a processor that is not its own.
            warnings.simplefilter("ignore")
            if is_gguf(path):
                processor, own = read_processor(path), None
            else:
                processor = mlx_vlm.utils.load_processor(path, add_detokenizer=False, trust_remote_code=trusted)
                own = mlx_vlm.utils.load_image_processor(path, trust_remote_code=trusted)
    except Exception as error:  # processors raise what they like
        raise ModelLoadError(
            f"The processor of the model '{path.name}' could not be loaded: {type(error).__name__}: {error}. Pass "
            "text_only=True to use the language model alone."
        ) from error
    if own is not None:
        processor.image_processor = own
    count_frames(processor)
    placeholders = _placeholders(model, processor)
    if not placeholders:
        return None
    family = model.config.model_type
    return MediaProcessor(processor, placeholders, bare=family in _BARE, in_a_row=family in _IN_A_ROW)


def _placeholders(model: nn.Module, processor: ProcessorMixin) -> dict[MediaKind, Placeholder]:
    """Placeholders of the kinds that a model and its processor read."""
    family = model.config.model_type
    found: dict[MediaKind, Placeholder] = {}
    if family in _NO_MEDIA:
        return found
    if getattr(processor, "image_processor", None) is not None or family in _ONE_PROCESSOR | NEGATIVE_IDS:
        ids = _ids(model.config, processor, "image")
        if family in NEGATIVE_IDS:
            added = processor.tokenizer.added_tokens_decoder
            ids = tuple(i for i, token in added.items() if str(token) == IMAGE_TOKEN)
        found["image"] = Placeholder(_IMAGE_TEXTS.get(family) or _text(processor, "image_token"), ids)
    if getattr(processor, "video_processor", None) is not None and family in _VIDEO_FAMILIES:
        text = _QWEN_VIDEO if family.startswith("qwen") else _text(processor, "video_token")
        found["video"] = Placeholder(text, _ids(model.config, processor, "video"))
    hears = getattr(model, "audio_tower", None) is not None and family in _AUDIO_FAMILIES
    if hears and getattr(processor, "feature_extractor", None) is not None:
        found["audio"] = Placeholder(_text(processor, "audio_token"), _ids(model.config, processor, "audio"))
    since = getattr(getattr(model, "embed_vision", None), "vocab_offset", None)  # gemma3n's
    return found if since is None else {kind: replace(place, since=since) for kind, place in found.items()}


def _text(processor: ProcessorMixin, name: str) -> str:
    """A placeholder that a processor or its tokenizer has as an attribute."""
    for owner in (processor, getattr(processor, "tokenizer", None)):
        text = getattr(owner, name, None)
        if text is not None and str(text):
            return str(text)
    return f"<{name.removesuffix('_token')}>"


def _ids(config: object, processor: ProcessorMixin, kind: MediaKind) -> tuple[int, ...]:
    names = (f"{kind}_token_id", f"{kind}_token_index")
    found = [getattr(owner, name, None) for owner in (config, processor) for name in names]
    return tuple(dict.fromkeys(int(token_id) for token_id in found if isinstance(token_id, int)))


def template_beside(path: Path, family: str) -> dict[str, str]:
    """The chat template that transformers does not give a tokenizer by itself, as an argument for loading one."""
    if (path / "chat_template.jinja").exists() or read_json(path / "tokenizer_config.json").get("chat_template"):
        return {}
    template = read_json(path / "chat_template.json").get("chat_template") or _TEMPLATES.get(family)
    return {} if template is None else {"chat_template": str(template)}
