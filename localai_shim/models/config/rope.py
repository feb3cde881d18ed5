"""RoPE settings of a config: as transformers 5 writes them, and by the names that mlx-lm and mlx-vlm read.

transformers 5 writes `rope_parameters`: settings, or settings by kind of layer. Before, each setting was a key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...types import Json

log = logging.getLogger("localai_shim")

Test = Callable[[str], bool]
"""Answers a question about a key, such as whether the model's class reads it."""

PARAMETERS, SCALING = "rope_parameters", "rope_scaling"
_THETA = ("rope_theta", "rotary_emb_base", "global_rope_theta", "rope_global_base_freq")
_PARTIAL = ("partial_rotary_factor", "rotary_pct")
_THETA_OF = {
    "sliding_attention": ("rope_local_base_freq", "local_rope_theta", "rope_local_theta", "swa_rope_theta"),
    "compress": ("compress_rope_theta",),
}
_MAIN = ("full_attention", "main")
_PARTIALS = "partial_rotary_factors"  # a number for each layer; `rope_theta` is such a list, too


class Rope(NamedTuple):
    """Settings of one kind of layers; None if the config does not say."""

    theta: Any = None
    partial: object = None
    scaling: Json | None = None

    @property
    def kind(self) -> str:
        """Kind of scaling; `default` if there is none."""
        scaling = self.scaling or {}
        kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
        return "default" if kind == "mrope" else kind

    @property
    def scales(self) -> bool:
        """True if the scaling changes an angle."""
        scaling = self.scaling or {}
        return self.kind not in ("default", "proportional") and ("long_factor" in scaling or scaling.get("factor") != 1)


def read_rope(config: Json) -> dict[str, Rope]:
    """Read settings by kind of layer, or those of all layers under the empty name. Empty if the config has none."""
    parameters = config.get(PARAMETERS)
    if isinstance(parameters, dict) and parameters:
        kinds = {kind: each for kind, each in parameters.items() if isinstance(each, dict)}
        return {kind: _settings(each) for kind, each in (kinds or {"": parameters}).items()}
    scaling = config.get(SCALING)
    rope = Rope(_first(config, _THETA), _first(config, _PARTIAL), scaling if isinstance(scaling, dict) else None)
    others = {kind: Rope(_first(config, names)) for kind, names in _THETA_OF.items()}
    others = {kind: other for kind, other in others.items() if other != Rope()}
    if others:
        return {_MAIN[0]: rope, **others}
    return {} if rope == Rope() else {"": rope}


def main_kind(kinds: Mapping[str, Rope]) -> str:
    """Kind of layers whose settings are the whole model's."""
    return next(kind for kind in (*_MAIN, *kinds) if kind in kinds)


def spread(config: Json, reads: Test, requires: Test, where: str) -> Json:
    """A config with each RoPE setting under all names that the model's class reads.

    If `rope_parameters` and other keys differ, the setting is the one that transformers would use, and a log line says
    so: `rope_scaling` comes before `rope_parameters`, which comes before all others.

    Args:
        reads: the class has an argument of this name.
        requires: the argument has no default.
        where: what log lines name.
    """
    kinds = read_rope(config)
    if not kinds:
        return config
    made, is_new = dict(config), bool(config.get(PARAMETERS))
    kind = main_kind(kinds)
    main = kinds[kind]
    old = config.get(SCALING)
    if is_new and isinstance(old, dict) and old:
        main = main._replace(scaling=_chosen(main.scaling or {}, old, where))
        said = {"rope_theta": main.theta, "partial_rotary_factor": main.partial, **(main.scaling or {})}
        whole = {name: value for name, value in said.items() if value is not None}
        made[PARAMETERS] = {**config[PARAMETERS], kind: whole} if kind else whole
    named = [(_THETA, main.theta), (_PARTIAL, main.partial)]
    named += [(_THETA_OF[other], kinds[other].theta) for other in kinds.keys() & _THETA_OF.keys()]
    for names, value in named:
        if value is not None:
            _name(made, names, value, reads, where if is_new else None)
    if is_new and requires(_PARTIAL[0]) and _first(made, _PARTIAL) is None:
        made[_PARTIAL[0]] = 1.0
    is_read = reads(SCALING) or SCALING in config
    if is_read and (main.kind != "default" or "mrope_section" in (main.scaling or {})):
        made[SCALING] = {"type": main.kind, "rope_type": main.kind, **(main.scaling or {})}
    elif requires(SCALING):
        made.setdefault(SCALING, None)
    types = made.get("layer_types")
    if reads(_PARTIALS) and isinstance(types, list) and types and kinds.keys() >= set(types):
        made["rope_theta"] = [kinds[each].theta for each in types]
        made[_PARTIALS] = [kinds[each].partial or 1.0 for each in types]
    return made


def _settings(parameters: Json) -> Rope:
    others = {name: value for name, value in parameters.items() if name not in ("rope_theta", "partial_rotary_factor")}
    return Rope(parameters.get("rope_theta"), parameters.get("partial_rotary_factor"), others)


def _first(config: Json, names: Sequence[str]) -> object:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _name(made: Json, names: Sequence[str], value: object, reads: Test, conflicts: str | None) -> None:
    """Give a setting its names. Names with another value change only if `conflicts` says what a log line names."""
    for name in names:
        given = made.get(name)
        if given is None and reads(name):
            made[name] = value
        elif given not in (None, value) and conflicts is not None and (reads(name) or name == names[0]):
            log.warning("%s: %s is %s, but rope_parameters has %s, which is used", conflicts, name, given, value)
            made[name] = value


def _chosen(new: Json, old: Json, where: str) -> Json:
    """The scaling of a config that has both forms."""
    same = Rope(scaling=new).kind == Rope(scaling=old).kind
    shared = old.keys() & new.keys() - {"type", "rope_type"}
    if not same or any(old[name] != new[name] for name in shared):
        log.warning("%s: rope_parameters has %s, but rope_scaling has %s, which is used", where, new, old)
    return {**(new if same else {}), **old}
