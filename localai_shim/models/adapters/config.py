"""adapter_config.json: each field that says how an adapter computes, with its type and range."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...types import Json
from .pattern import Pattern

CONFIG = "adapter_config.json"
MLX_WEIGHTS, PEFT_WEIGHTS = "adapters.safetensors", "adapter_model.safetensors"
MAX_NUMBER = 3.4e38  # that float32 holds
MAX_COUNT = 1 << 31
_PEFT_ALPHA = 8.0  # in a config without one
_OTHER_PRODUCTS = {
    "use_qalora": "QALoRA, which reads means of its inputs",
    "use_bdlora": "block-diagonal",
    "arrow_config": "Arrow, which routes tokens between adapters",
    "kasa_config": "KaSA, which changes the model's own weights",
    "alora_invocation_tokens": "an activated LoRA, which leaves the tokens before its invocation alone",
    "lora_bias": "one with biases of its products",
    "layer_replication": "one for a model with repeated layers",
    "trainable_token_indices": "one that replaces embeddings of tokens",
}
"""PEFT's fields that change what is computed with the factors."""
_CHANGES_WEIGHTS = ("pissa", "corda", "olora", "loftq", "lora_ga")
"""Beginnings of PEFT's `init_lora_weights` that change the model's own weights when the adapter is loaded."""


class RefusedError(ValueError):
    """An adapter that cannot be used; the message is the reason."""

    def __init__(self, what: str, *, apart: bool = False) -> None:
        super().__init__(what)
        self.apart = apart
        """Nothing is wrong with it: it could be loaded as a model, or fused into one."""


@dataclass(frozen=True, slots=True)
class MlxConfig:
    """Contents of the form of mlx-lm and mlx-vlm."""

    scale: float
    weights: str = MLX_WEIGHTS

    def scale_of(self, layer: str, rank: int) -> float:
        """Factor of a layer's product."""
        return self.scale


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """Contents of PEFT's form."""

    alpha: float
    rank: int | None
    divides_by_root: bool
    """By the root of the rank, not by the rank."""
    alphas: Sequence[tuple[Pattern, float]]
    ranks: Sequence[tuple[Pattern, float]]
    weights: str = PEFT_WEIGHTS

    def scale_of(self, layer: str, rank: int) -> float:
        """Factor of a layer's product.

        Raises:
            RefusedError: the rank is not the one in the config, or a pattern takes too long.
        """
        said = _find("rank_pattern", self.ranks, layer)
        said = self.rank if said is None else said
        if said is not None and said != rank:
            raise RefusedError(f"the factors of '{layer}' have the rank {rank}, and {CONFIG} says {said}")
        alpha = _find("alpha_pattern", self.alphas, layer)
        return (self.alpha if alpha is None else alpha) / (math.sqrt(rank) if self.divides_by_root else rank)


def _find(field: str, patterns: Sequence[tuple[Pattern, float]], layer: str) -> float | None:
    """The value of the first pattern that fits."""
    for pattern, value in patterns:
        try:
            if pattern.fits(layer):
                return value
        except ValueError as error:
            raise _bad_pattern(field, pattern.text, error) from None
    return None


def parse_config(config: Json) -> MlxConfig | PeftConfig:
    """Check a config, and keep what counts.

    Raises:
        RefusedError: a field has another type, or is out of range, or cannot be done per row.
    """
    if not config:
        raise RefusedError(f"it has no {CONFIG} that is a JSON object")
    return _parse_peft(config) if "peft_type" in config else _parse_mlx(config)


def _parse_mlx(config: Json) -> MlxConfig:
    kind = _text(config, "fine_tune_type") or "lora"
    if kind != "lora":
        raise RefusedError(f"its `fine_tune_type` is {kind!r}, which changes whole weights", apart=True)
    if "lora_parameters" not in config and {"alpha", "rank"} <= config.keys():  # as mlx-vlm had it before
        alpha, rank = _number(config, "alpha"), _count(config, "rank")
        if alpha is None or rank is None:
            raise RefusedError(f"{CONFIG} has no `alpha` or no `rank`")
        return MlxConfig(alpha / rank)
    parameters = _read(config, "lora_parameters", "an object", lambda value: isinstance(value, dict)) or {}
    scale = _number(parameters, "scale", "lora_parameters.scale")
    if scale is None:
        raise RefusedError(f"{CONFIG} has no `lora_parameters.scale`")
    _count(parameters, "rank", "lora_parameters.rank")
    _texts(parameters, "keys", "lora_parameters.keys")
    return MlxConfig(scale)


def _parse_peft(config: Json) -> PeftConfig:
    kind = config["peft_type"]
    if kind != "LORA":
        raise RefusedError(
            f"its `peft_type` is {_short(repr(kind))}, and only 'LORA' can differ from row to row", apart=True
        )
    if _flag(config, "use_dora"):
        raise RefusedError("it is DoRA (`use_dora`), which changes the whole weight", apart=True)
    if saved := _texts(config, "modules_to_save"):
        raise RefusedError(f"it brings whole layers (`modules_to_save`: {', '.join(saved)})", apart=True)
    if (bias := _text(config, "bias") or "none") != "none":
        raise RefusedError(f"it brings biases (`bias`: {bias!r})", apart=True)
    for field, what in _OTHER_PRODUCTS.items():
        if config.get(field):
            raise RefusedError(f"it is {what} (`{field}`)", apart=True)
    start = _read(config, "init_lora_weights", "a boolean or a string", lambda value: isinstance(value, bool | str))
    if isinstance(start, str) and start.lower().startswith(_CHANGES_WEIGHTS):
        raise RefusedError(
            f"its `init_lora_weights` is {start!r}, with which PEFT changes the model's own weights: save it with "
            "`path_initial_model_for_weight_conversion`",
            apart=True,
        )
    alpha = _number(config, "lora_alpha")
    return PeftConfig(
        _PEFT_ALPHA if alpha is None else alpha,
        _count(config, "r"),
        _flag(config, "use_rslora"),
        _patterns(config, "alpha_pattern", _number),
        _patterns(config, "rank_pattern", _count),
    )


def _patterns(config: Json, field: str, read: Callable[[Json, str, str], float | None]) -> list[tuple[Pattern, float]]:
    """The values of layers' names; of those that fit the first one counts."""
    given = _read(config, field, "an object", lambda value: isinstance(value, dict)) or {}
    made = list[tuple[Pattern, float]]()
    for text in given:
        value = read(given, text, f"{field}.{_short(text)}")
        if value is None:
            raise _wrong(f"{field}.{_short(text)}", None, "a number")
        try:
            made.append((Pattern(text), value))
        except ValueError as error:
            raise _bad_pattern(field, text, error) from None
    return made


def _bad_pattern(field: str, text: str, error: ValueError) -> RefusedError:
    return RefusedError(f"{CONFIG}: `{field}`: the pattern {_short(repr(text))} {error}")


# -- fields: null is absent -------------------------------------------------------------------------------------------


def _read(config: Json, field: str, what: str, fits: Callable[[object], bool], label: str = "") -> Any:
    value = config.get(field)
    if value is not None and not fits(value):
        raise _wrong(label or field, value, what)
    return value


def _number(config: Json, field: str, label: str = "") -> float | None:
    value = _read(config, field, "a finite number", _is_number, label)
    return None if value is None else float(value)


def _is_number(value: object) -> bool:
    # Of an integer too long for a float the comparison is exact; NaN fails it.
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER


def _count(config: Json, field: str, label: str = "") -> int | None:
    value: int | None = _read(
        config, field, "a positive integer", lambda x: type(x) is int and 0 < x <= MAX_COUNT, label
    )
    return value


def _flag(config: Json, field: str) -> bool:
    return bool(_read(config, field, "a boolean", lambda value: isinstance(value, bool)))


def _text(config: Json, field: str) -> str | None:
    value: str | None = _read(config, field, "a string", lambda value: isinstance(value, str))
    return value


def _texts(config: Json, field: str, label: str = "") -> list[str]:
    def fits(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)

    return _read(config, field, "a list of strings", fits, label) or []


def _wrong(field: str, value: object, what: str) -> RefusedError:
    return RefusedError(f"{CONFIG}: `{field}` must be {what}, not {_short(repr(value))}")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
