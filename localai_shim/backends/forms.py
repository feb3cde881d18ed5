"""Puts functions of our own in the place of upstream's, wherever a model's code has imported these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base

Array = mx.array
Mask = mx.array | str | None
Function = Callable[..., mx.array]

_ATTENTION = "scaled_dot_product_attention"
_REPLACED = (_ATTENTION, "swiglu")
_mlx_lms: Function = base.scaled_dot_product_attention


def upstream_attention() -> set[Function]:
    """mlx-lm's function, and mlx-vlm's where that has been imported and has one of its own."""
    return {_mlx_lms, getattr(sys.modules.get("mlx_vlm.models.base"), _ATTENTION, _mlx_lms)}


def use_forms(model: nn.Module, forms: Mapping[Function, Function]) -> int:
    """Have upstream's modules that this model is made of call these functions in place of upstream's.

    Models of the same architecture elsewhere in the process do so, too: what comes out is the same but for rounding.

    Args:
        model: mlx-lm's or mlx-vlm's.
        forms: by upstream's function. One with an `upstream` has been put in the place of that one before.

    Returns:
        how many functions changed.
    """
    changed = 0
    for name in {type(module).__module__ for module in model.modules()}:
        module: Any = sys.modules[name]
        for function in _REPLACED:
            found: Any = getattr(module, function, None)
            form = forms.get(getattr(found, "upstream", found), found)
            if form is not found:
                setattr(module, function, form)
                changed += 1
    return changed


def with_names(other: ModuleType, **names: object) -> ModuleType:
    """A module like another one, with some names of its own."""
    made = ModuleType(other.__name__)
    later = {"__getattr__": partial(getattr, other)}  # what the other one gets from now on
    vars(made).update(vars(other) | names | later)
    return made
