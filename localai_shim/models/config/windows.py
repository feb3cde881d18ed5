"""Attention windows of a loaded model: those that its config says, and those that its code computes.

A class of mlx-lm computes a window if the layer's cache holds no more. Some read `sliding_window` and use it only if
there are `layer_types`, others never.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from mlx import nn

from ...types import Json, ModelLoadError
from .reading import TEXT_PARTS
from .unread import Code, code_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

log = logging.getLogger("localai_shim")

_LIMITED = ("sliding_attention", "chunked_attention")
_KEYS = ("sliding_window", "attention_chunk_size")
_DECIDING = (
    *_KEYS,
    "layer_types",
    "num_hidden_layers",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "global_attn_every_n_layers",
)
"""Keys by which transformers' classes tell which layers have a window."""
_ONE_MASK = frozenset({"llama", "mixtral", "phi3", "phimoe", "starcoder2"})
"""Modules of mlx-lm whose layers share the mask that the first layer's cache makes."""


class Windows(NamedTuple):
    """Windows of a config.

    Attributes:
        key: the one that says how long they are.
        size: tokens that a layer sees.
        layers: which layers have one.
    """

    key: str
    size: int
    layers: tuple[bool, ...]


def compute_windows(model: nn.Module, config: Json, context_length: int | None = None) -> None:
    """Let a model compute the windows that its config says, or log that it does not.

    Args:
        config: a `translated` one.
        context_length: the longest prompt, if it is not the config's.

    Raises:
        ModelLoadError: other layers than the config says have a window.
    """
    text = config
    while inner := next((text[key] for key in TEXT_PARTS if isinstance(text.get(key), dict)), None):
        text = inner
    code = code_of(model)
    said = None if code is None else read_windows(text, code)
    longest = context_length or text.get("max_position_embeddings")
    if said is None or code is None or (isinstance(longest, int) and said.size >= longest):
        return
    caches = _caches(model)
    if all(type(each).__name__ in ("KVCache", "ArraysCache") for each in caches):
        if _is_mlx_lms(model) and all(said.layers) and code.modules & _ONE_MASK:
            _limit(model, len(caches), said.size)
        elif _is_mlx_lms(model) or said.key not in code.names:
            log.warning(
                "config.json: %s is %d, but the code of '%s' computes no window: answers change beyond %d tokens",
                *(said.key, said.size, text.get("model_type"), said.size),
            )
        return
    if said.key not in code.names:  # its caches have another reason
        return
    pairs = enumerate(zip(map(_is_limited, caches), said.layers, strict=False))
    wrong = [i for i, (computed, expected) in pairs if computed is not None and computed != expected]
    if wrong:
        raise ModelLoadError(
            f"config.json: layer {wrong[0]} {'has' if said.layers[wrong[0]] else 'does not have'} a window, but the "
            f"code of '{text.get('model_type')}' computes the opposite. The model's answers would be wrong. Take "
            f"'{said.key}' or 'layer_types' out of config.json to load it nevertheless."
        )


def read_windows(config: Json, code: Code) -> Windows | None:
    """The windows of a language model's config, as transformers reads it; None if it has none, or is not known."""
    key = next((key for key in _KEYS if isinstance(config.get(key), int) and config[key] > 0), None)
    types = config.get("layer_types")
    if key is None or config.get("use_sliding_window") is False:
        return None
    if not isinstance(types, list):
        made = _known(config)
        if made is None:  # a family that transformers does not have
            return None if key in code.names else Windows(key, config[key], (True, False))
        if not isinstance(getattr(made, key, None), int):
            return None
        types = getattr(made, "layer_types", None)
    layers = (True,) if types is None else tuple(kind in _LIMITED for kind in types)
    return Windows(key, config[key], layers) if any(layers) else None


def _known(config: Json) -> PretrainedConfig | None:
    """The config as transformers' class completes it; None if it has no class, or the class refuses it."""
    from transformers import CONFIG_MAPPING

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        return None
    try:
        return CONFIG_MAPPING[kind](**{key: config[key] for key in _DECIDING if key in config})
    except Exception:  # transformers' checks are its own; what they say is no fault of the model's code
        return None


def _caches(model: nn.Module) -> list[object]:
    from mlx_lm.models.cache import make_prompt_cache

    language = None if _is_mlx_lms(model) else getattr(model, "language_model", None)
    return list(make_prompt_cache(model if language is None else language))


def _is_mlx_lms(model: nn.Module) -> bool:
    return type(model).__module__.startswith("mlx_lm.")


def _is_limited(cache: object) -> bool | None:
    """True if a layer's cache holds a window only; None if its class does not say."""
    name = type(cache).__name__
    if name in ("RotatingKVCache", "ChunkedKVCache"):
        return True
    return False if name == "KVCache" else None


def _limit(model: nn.Module, layers: int, size: int) -> None:
    """Give each layer a cache that holds a window; the masks of all layers are made by the first one."""
    from mlx_lm.models.cache import RotatingKVCache

    model.make_cache = lambda: [RotatingKVCache(max_size=size) for _ in range(layers)]
