"""Checks that a loaded model computes what each key of its config.json says.

A class ignores keys that it has no argument for, and some classes have arguments that their code never reads.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import logging
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from mlx import nn

from ...types import Json, ModelLoadError
from .keys import ACTIVATION, CONSTANTS, ENCODERS, EPSILON, EXPERTS, LONG_PROMPTS, has_no_effect, neutral_of
from .reading import TEXT_PARTS

log = logging.getLogger("localai_shim")

_MODELS = ("mlx_lm.models.", "mlx_vlm.models.")
_HOLDERS = re.compile(r"(.*_)?(args|config|cfg|params)|text|tc")
"""Names of the variables through which upstream's code reads a config."""
_ENCODER = re.compile(r"(\w+\.)?(vision|visual|audio|image|vpm|apm|speech)\w*(\.|$)")
_ACTIVATIONS = {
    "silu": re.compile("silu|swish|swiglu"),
    "gelu": re.compile("gelu|geglu"),
    "relu": re.compile("relu"),
    "sigmoid": re.compile("sigmoid"),
    "tanh": re.compile("tanh"),
}
"""Kinds of activations, and what the code of each has in its names."""
_MAX_SHOWN = 100  # characters of a value


class Code(NamedTuple):
    """Names in the code of a model.

    Attributes:
        names: the keys that it reads.
        words: all its identifiers, in one text.
        modules: last parts of its modules' names.
    """

    names: frozenset[str]
    words: str
    modules: frozenset[str]


class Part(NamedTuple):
    """A part of a config.json; `name` ends with a dot, and is empty for the whole."""

    name: str
    config: Json


class _Findings:
    """Settings of a config that a model does not compute: errors, warnings, and names for an info line."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.rest: list[str] = []
        self.small: list[str] = []


def check_keys(model: nn.Module, config: Json) -> None:
    """Refuse a model that would not compute what its config says, or log what it does not compute.

    Args:
        config: a `translated` one.

    Raises:
        ModelLoadError: answers would be wrong from the first tokens on; names the keys.
    """
    code = code_of(model)
    if code is None:
        return
    arguments, sees = list(_arguments(model)), _has_encoders(model)
    found = _Findings()
    for part in _parts(config, arguments if sees else ()):
        for key, value in part.config.items():
            if not isinstance(value, dict) or not key.endswith("_config") or neutral_of(key) is not None:
                _check(part, key, value, code, arguments, model, sees, found)
    kind = config.get("model_type")
    if found.rest:
        log.warning("config.json: the code of '%s' does not compute this: %s", kind, "; ".join(found.rest))
    if found.small:
        log.info("config.json: the code of '%s' does not read %s", kind, ", ".join(found.small))
    if found.wrong:
        raise ModelLoadError(
            f"config.json has settings that the code of '{kind}' does not compute: {'; '.join(found.wrong)}. "
            "The model's answers would be wrong. To load it nevertheless, take the setting out of config.json."
        )


def _check(
    part: Part,
    key: str,
    value: object,
    code: Code,
    arguments: Sequence[object],
    model: nn.Module,
    sees: bool,
    found: _Findings,
) -> None:
    """Add what a key says, if the model does not compute it."""
    neutral, said = neutral_of(key), f"{part.name}{key} is {_shown(value)}"
    matters = neutral is not None or key in LONG_PROMPTS or bool(ACTIVATION.fullmatch(key) or EPSILON.fullmatch(key))
    if value is None or (has_no_effect(key) and not matters) or (ENCODERS.match(key) and not sees):
        return
    names = _names(key, part.config)
    if any(name in code.names for name in names):
        held = [getattr(each, name) for each in _of_part(part, arguments) for name in names if hasattr(each, name)]
        if matters and held and not any(_same(each, value) for each in held):
            found.rest.append(f"{said}, but the model has {_shown(held[0])}")
        return
    constants = [known for module in code.modules if (known := CONSTANTS.get((module, key))) is not None]
    if any(_same(each, value) for each in constants):
        return
    if ACTIVATION.fullmatch(key):
        if not _has_activation(value, code):
            found.wrong.append(said)
    elif EPSILON.fullmatch(key):
        if not _has_epsilon(value, model):
            found.small.append(f"{part.name}{key}")
    elif key in LONG_PROMPTS:
        if value:
            found.rest.append(f"{said}: answers change beyond {part.config.get(LONG_PROMPTS[key])} tokens")
    elif constants:
        found.wrong.append(f"{said}, and {_shown(constants[0])} is computed")
    elif neutral is None:
        found.small.append(f"{part.name}{key}")
    elif not neutral(value, _of(code, part.config)):
        found.wrong.append(said)


def code_of(model: nn.Module) -> Code | None:
    """The code that a model runs; None if it is not upstream's."""
    modules = {kind.__module__ for each in model.modules() for kind in type(each).__mro__}
    modules |= {kind.__module__ for each in _arguments(model) for kind in type(each).__mro__}
    ours = sorted(name for name in modules if name.startswith(_MODELS))
    if not type(model).__module__.startswith(_MODELS):
        return None
    read = [read_module(name) for name in ours]
    names = frozenset().union(*(names for names, _ in read))
    return Code(names, " ".join(words for _, words in read), frozenset(_last(name) for name in ours))


@cache
def read_module(name: str) -> tuple[frozenset[str], str]:
    """The keys of a config that a module reads, and all its identifiers in lower case.

    An argument that a class declares is not read by that. Values of a dictionary are read by their names.
    """
    try:
        tree = _parse(inspect.getsource(sys.modules[name]))
    except OSError:  # an empty file
        return frozenset(), ""
    names, words = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
            holder = node.value
            of = holder.id if isinstance(holder, ast.Name) else getattr(holder, "attr", "")
            if isinstance(node.ctx, ast.Load) and _HOLDERS.fullmatch(of):
                names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            names.update(_own_attributes(node))
    return frozenset(names), " ".join(sorted(words)).lower()


def _parse(source: str) -> ast.Module:
    """The tree of a source, also while another thread builds one.

    Python before 3.11.8 and 3.12.2 counts the depth of all threads' trees in one number, and raises `SystemError`
    if that is another one afterwards (CPython's issue 106905).
    """
    for _ in range(20):
        with suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def _own_attributes(kind: ast.ClassDef) -> Iterator[str]:
    """Attributes that the methods of a class of arguments read."""
    for node in ast.walk(kind):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "self":
            yield node.attr


def _last(name: str) -> str:
    package = name.split(".")
    return package[2] if package[0] == "mlx_vlm" else package[-1]


def _arguments(model: nn.Module) -> Iterator[object]:
    """Objects that hold the values which the model's layers were made of."""
    seen: set[int] = set()
    waiting = [value for each in model.modules() for value in vars(each).values() if dataclasses.is_dataclass(value)]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        yield each
        waiting += [value for value in vars(each).values() if dataclasses.is_dataclass(value)]


def _of_part(part: Part, arguments: Sequence[object]) -> Sequence[object]:
    """The arguments that a part of the config is read into, if the whole model's say which; those of no encoder."""
    name = part.name.rstrip(".").rpartition(".")[2]
    own = [getattr(each, name, None) for each in arguments] if name else []
    encoders = {id(value) for each in arguments for key, value in vars(each).items() if _ENCODER.match(key)}
    rest = arguments if name else [each for each in arguments if id(each) not in encoders]
    return [each for each in own if dataclasses.is_dataclass(each)] or rest


def _of(code: Code, config: Json) -> Json:
    """A config without experts if the code has none: its layers then hold all weights without any."""
    return config if code.names & {*EXPERTS} else {key: value for key, value in config.items() if key not in EXPERTS}


def _has_encoders(model: nn.Module) -> bool:
    """True if encoders of images or audio were loaded, not the language model alone."""
    return any(_ENCODER.match(name) for name, _ in model.named_modules())


def _parts(config: Json, arguments: Sequence[object]) -> Iterator[Part]:
    """The config, that of the language model, and those of encoders that are loaded, whose arguments are these."""
    yield Part("", config)
    for name, inner in config.items():
        is_loaded = any(dataclasses.is_dataclass(getattr(each, name, None)) for each in arguments)
        if isinstance(inner, dict) and (name in TEXT_PARTS or (name.endswith("_config") and is_loaded)):
            yield from (Part(f"{name}.{part.name}", part.config) for part in _parts(inner, arguments))


def _names(key: str, config: Json) -> set[str]:
    """All names of a key, if it has the same value under each."""
    from transformers import CONFIG_MAPPING

    kind = str(config.get("model_type"))
    renamed = CONFIG_MAPPING[kind].attribute_map if kind in CONFIG_MAPPING else {}
    return {key} | {name for pair in renamed.items() if key in pair for name in pair}


def _has_activation(value: object, code: Code) -> bool:
    name = str(value.get("name") if isinstance(value, dict) else value).lower()
    kinds = [kind for kind, pattern in _ACTIVATIONS.items() if pattern.search(name)] or [name]
    return any((_ACTIVATIONS.get(kind) or re.compile(re.escape(kind))).search(code.words) for kind in kinds)


def _has_epsilon(value: object, model: nn.Module) -> bool:
    own = (getattr(each, "eps", None) for each in model.modules())
    return any(isinstance(each, float) and _same(each, value) for each in own)


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return bool(one == other)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."
