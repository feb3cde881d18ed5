"""A checkpoint's config with the names that the classes of mlx-lm and mlx-vlm read.

transformers 5 saves configs with other names than transformers 4, and each class reads some of both. A class ignores
keys that it has no argument for, and uses its own default for a missing one.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, get_args

from ...types import Json, ModelLoadError
from .completion import complete
from .rope import PARAMETERS, SCALING, spread

log = logging.getLogger("localai_shim")

Fields = Mapping[str, "dataclasses.Field[object]"]

_MODELS = ("mlx_lm.models.", "mlx_vlm.models.")
_FULL = "full_attention"
_PATTERNS = {"sliding_window_pattern": -1, "full_attention_interval": -1, "global_attn_every_n_layers": 0}
"""Keys whose number n says that one of n layers has full attention; and which one of them."""
_SSM = {"linear_attention": "mamba", "full_attention": "attention"}
_OLD_KINDS = {
    "granitemoehybrid": _SSM,
    "nemotron_h": _SSM,
    "glm5_next_text": {"indexed_attention": "full_attention"},
    "qwen4_exp_text": {"indexed_attention": "full_attention"},
}
"""Kinds of layers with new names in transformers 5, of classes that do not know these."""
_FLAT = (".qwen2_vl", ".qwen2_5_vl", ".paddleocr_vl", ".ernie4_5_moe_vl", ".youtu_vl", ".zaya1_vl")
"""Modules that read a language model's settings only from the top level, where transformers 4 wrote them."""
_OLD_VALUES = {"minimax_m3_vl_text": {"hidden_act": {"silu": "swigluoai"}}}
"""Values that transformers 5 writes instead of others, which its own code does not read."""
_OLD_NAMES = {
    "nemotron_h_omni": {
        "img_context_token_id": "image_token_id",
        "video_context_token_id": "video_token_id",
        "sound_context_token_id": "audio_token_id",
        "sound_config": "audio_config",
        "vit_hidden_size": "vision_hidden_size",
    }
}
"""Names that transformers 5 has replaced, and its class knows, but not as `attribute_map`."""
_IMAGE_TOKENS = ("image_token_id", "image_token_index")
"""Names of the same setting, of which configs and classes have one or the other."""
_SHARED = ("mm_tokens_per_image",)
"""Settings of the whole model that mlx-vlm reads from its language model's."""
_OF_TEXT = ("hidden_size", "vocab_size")
"""Settings of the language model that mlx-vlm reads from the whole model's, where transformers does not write them."""
_LISTS_OF_KINDS = ("layer_types", "layers_block_type", "mtp_layers_block_type")
_BY_LAYER = "per_layer_config"
_GLOBAL_HEADS = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
_SECTIONS = "mrope_section"  # which transformers' classes have in their code, and some of mlx-vlm's require
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def translated(config: Json, module: ModuleType | None, where: str = "config.json") -> Json:
    """A copy of a config that has each setting under the names that the model's classes read.

    Args:
        module: module of mlx-lm or mlx-vlm that defines the model; None if the checkpoint brings its own.
        where: what log lines and errors name.

    Raises:
        ModelLoadError: the class has no argument for these kinds of layers.
    """
    copied: Json = {key: _copied(each) for key, each in config.items()}
    made = _translated(copied, module, "", where)
    part = made.get("text_config")
    if isinstance(part, dict):
        made["text_config"] = {**{key: made[key] for key in _SHARED if key in made}, **part}
        made |= {key: part[key] for key in _OF_TEXT if key not in made and part.get(key) is not None}
    if module is not None and module.__name__.endswith(_FLAT) and isinstance(made.get("text_config"), dict):
        made = {**made["text_config"], **made}
    return made


def without_unread(config: Json, module: ModuleType) -> Json:
    """A config without the keys that transformers 5 writes into each part: some classes of mlx-vlm take no others."""
    from transformers import PreTrainedConfig

    usual = {PARAMETERS, *PreTrainedConfig().to_dict()} - {"model_type"}
    made = dict(config)
    for name, part in config.items():
        if isinstance(part, dict) and _is_arguments(getattr(module, _class_name(name), None)):
            unread = usual - argument_fields(module, name).keys()
            made[name] = {key: value for key, value in part.items() if key not in unread}
    return made


def _translated(config: Json, module: ModuleType | None, name: str, where: str) -> Json:
    for key, value in config.items():
        if isinstance(value, dict) and key not in (PARAMETERS, SCALING):
            config[key] = _translated(value, module, key, f"{where}: {key}")
    fields = {} if module is None else argument_fields(module, name)

    def reads(key: str) -> bool:
        return key in fields if fields else PARAMETERS in config

    def requires(key: str) -> bool:
        return key in fields and fields[key].default is fields[key].default_factory is dataclasses.MISSING

    made = spread(config, reads, requires, where)
    own = fields["model_type"].default if name == "vision_config" and "model_type" in fields else None
    if isinstance(own, str) and made.get("model_type") == f"{own}_vision":  # transformers 5's name of the same
        made["model_type"] = own
    _rename(made, fields, where)
    _add_pattern(made, fields, where)
    _add_global_heads(made, fields)
    if (rope := made.get(PARAMETERS)) and _SECTIONS in _default(fields, PARAMETERS):
        made[PARAMETERS] = {_SECTIONS: _default(fields, PARAMETERS)[_SECTIONS], **rope}
    complete(made, fields, "" if module is None else module.__name__.partition(".")[0])
    return made


def _copied(value: object) -> object:
    """A copy with the numbers that JSON lacks, which transformers writes as objects."""
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if not isinstance(value, dict):
        return value
    tag = value.get("__float__")
    return _FLOATS[tag] if tag in _FLOATS else {key: _copied(each) for key, each in value.items()}


@cache
def argument_fields(module: ModuleType, name: str) -> Fields:
    """Arguments of the class that a config's key names, such as `text_config`; of all classes if it names none."""
    named = getattr(module, _class_name(name), None)
    classes: Iterable[Any] = [named] if _is_arguments(named) else _argument_classes(module)
    return {field.name: field for each in classes for field in dataclasses.fields(each) if field.init}


def _class_name(key: str) -> str:
    """`TextConfig` for `text_config`, as mlx-vlm has it."""
    return "".join(word.title() for word in key.split("_"))


def _argument_classes(module: ModuleType) -> Iterator[type]:
    """Classes of arguments in a module, in the modules of models that it imports, and in those of its model's bases."""
    inner = [value for value in vars(module).values() if isinstance(value, ModuleType)]
    inner += [sys.modules[base.__module__] for base in getattr(getattr(module, "Model", None), "__mro__", ())]
    for each in (*(other for other in inner if other.__name__.startswith(_MODELS)), module):
        yield from (value for value in vars(each).values() if _is_arguments(value))


def _is_arguments(value: object) -> bool:
    return isinstance(value, type) and dataclasses.is_dataclass(value)


def _rename(config: Json, fields: Fields, where: str) -> None:
    """Add the old names of what transformers 5 has renamed, if the class reads the old name only."""
    from transformers import CONFIG_MAPPING

    kind = str(config.get("model_type"))
    for key in _LISTS_OF_KINDS if kind in _OLD_KINDS else ():
        if isinstance(config.get(key), list):
            config[key] = [_OLD_KINDS[kind].get(each, each) for each in config[key]]
    for key, values in _OLD_VALUES.get(kind, {}).items():
        config[key] = values.get(str(config.get(key)), config.get(key))
    for key, other in (_IMAGE_TOKENS, _IMAGE_TOKENS[::-1]):
        if key in fields and config.get(key) is None and isinstance(config.get(other), int):
            config[key] = config[other]
    renamed = CONFIG_MAPPING[kind].attribute_map if kind in CONFIG_MAPPING else {}
    for old, new in {**renamed, **_OLD_NAMES.get(kind, {})}.items():
        if old not in fields or new in fields or config.get(new) is None:
            continue
        if config.setdefault(old, config[new]) != config[new]:
            log.warning("%s: %s is %s, but %s is %s; the first is used", where, old, config[old], new, config[new])


def _add_pattern(config: Json, fields: Fields, where: str) -> None:
    """Add the key that says the same as `layer_types`, if the class reads only that.

    Raises:
        ModelLoadError: it cannot say that.
    """
    types = config.get("layer_types")
    if not isinstance(types, list) or "layer_types" in fields:
        return
    full = [kind == _FULL for kind in types]
    for key in _PATTERNS.keys() & fields.keys():
        given, letters = config.get(key), str in get_args(fields[key].type)
        fits = given is not None and _full_layers(given, key, len(full)) == full
        if fits and isinstance(given, str) == letters:
            continue
        if given and not fits:
            log.warning("%s: %s is %r, but layer_types has %s, which is used", where, key, given, types)
        if letters:  # of local and global layers; none: all are global
            config[key] = None if all(full) else "".join("LG"[each] for each in full)
            continue
        numbers = (n for n in range(1, len(full) + 2) if _full_layers(n, key, len(full)) == full)
        config[key] = next(numbers, None)
        if config[key] is None:
            raise ModelLoadError(
                f"{where}: layer_types puts '{_FULL}' in irregular places ({', '.join(types)}), and this model's code "
                f"reads {key}, one number for all layers. Such a checkpoint cannot be served."
            )


def _add_global_heads(config: Json, fields: Fields) -> None:
    """Add Gemma 4's sizes of heads with full attention, which transformers 5 writes layer by layer.

    Sizes that no class reads stay where they are.
    """
    by_layer, types = config.get(_BY_LAYER), config.get("layer_types")
    if not isinstance(by_layer, dict) or not isinstance(types, list) or _GLOBAL_HEADS["head_dim"] not in fields:
        return
    full = {i for i, kind in enumerate(types) if kind == _FULL}
    settings = list(by_layer.values())
    same = all(each == settings[0] and each.keys() <= _GLOBAL_HEADS.keys() for each in settings)
    if same and (not settings or {int(layer) for layer in by_layer} == full):
        config[_BY_LAYER] = None  # mlx-lm adds the file's own keys where they are missing
        for key, name in _GLOBAL_HEADS.items():
            config[name] = (settings[0] if settings else {}).get(key, config.get(key))


def _default(fields: Fields, key: str) -> Json:
    """The class's own object for a key; empty if it has none."""
    factory = fields[key].default_factory if key in fields else None
    made = factory() if callable(factory) else None
    return made if isinstance(made, dict) else {}


def _full_layers(pattern: object, key: str, count: int) -> list[bool]:
    """Layers of full attention, as a number or letters say."""
    if isinstance(pattern, str) and pattern:
        return [pattern[i % len(pattern)] == "G" for i in range(count)]
    n = pattern if isinstance(pattern, int) and pattern > 0 else 1
    return [i % n == _PATTERNS[key] % n for i in range(count)]
