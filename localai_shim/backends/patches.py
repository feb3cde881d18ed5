"""Functions of this package that one model's layers call instead of upstream's.

Upstream's code finds these by global names of its modules. A layer gets a class of the same name whose methods are the
same code with other things behind these names. So no other model notices, and nothing has to be undone.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType, new_class
from typing import ParamSpec, TypeVar

import mlx.core as mx
import mlx.nn as nn

log = logging.getLogger("localai_shim")

P = ParamSpec("P")
R = TypeVar("R")
Array = mx.array
Mask = mx.array | str | None
Function = Callable[..., mx.array]
Replaced = tuple[tuple[object, object], ...]
"""A name that upstream's code finds, and its replacement."""

_NOT_MODELS = ("mlx.", "builtins")
"""Modules whose classes have no code of models; a checkpoint may bring its own module."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A function of this package that replaces one of upstream's, as long as it was written for that one."""

    module: str
    name: str
    make: Callable[[Function], Function]
    """Makes ours of upstream's, the same one each time."""
    source: str
    """`fingerprint` of upstream's in the versions that were tested."""

    def replaced(self) -> Replaced:
        """Upstream's function and ours; nothing where its module is not imported, or is another."""
        function = getattr(sys.modules.get(self.module), self.name, None)
        return ((function, self.make(function)),) if function is not None and _is_known(self, function) else ()


@functools.cache
def _is_known(patch: Patch, function: Function) -> bool:
    found = fingerprint(function)
    if found != patch.source:
        what = f"{patch.module}.{patch.name}"
        log.info("%s is called as upstream has it: its source is another (%s, not %s)", what, found, patch.source)
    return found == patch.source


def fingerprint(function: Function) -> str:
    """Digits that change with a function's source, its signature included, but not with its white space."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return "none"
    return hashlib.sha256("".join(source.split()).encode()).hexdigest()[:12]


def attention_patches(make: Callable[[Function], Function]) -> tuple[Patch, ...]:
    """Patches of mlx-lm's and mlx-vlm's `scaled_dot_product_attention`."""
    tested = (("mlx_lm.models.base", "37e4a92c0868"), ("mlx_vlm.models.base", "fd185a800cb0"))
    return tuple(Patch(module, "scaled_dot_product_attention", make, source) for module, source in tested)


def replaced(patches: Iterable[Patch]) -> Replaced:
    """Names that patches replace, with their replacements."""
    return tuple(pair for patch in patches for pair in patch.replaced())


def replace(model: nn.Module, replaced: Replaced) -> int:
    """Make the code of a model's layers find other things; returns how many layers changed.

    Args:
        model: mlx-lm's or mlx-vlm's.
        replaced: functions, or modules with some names bound to other things (`with_names`).
    """
    kinds: list[tuple[nn.Module, object]] = [(layer, type(layer)) for layer in model.modules()]
    layers = [(layer, _class_with(kind, replaced)) for layer, kind in kinds]
    changed = [(layer, kind) for layer, kind in layers if kind is not None]
    for layer, kind in changed:
        layer.__class__ = kind
    return len(changed)


@functools.lru_cache(maxsize=512)  # a checkpoint may bring classes that are made with each load
def _class_with(kind: type, replaced: Replaced) -> type | None:
    """A class like this one whose code finds other things; None where it looks for none of them."""
    new = {id(old): new for old, new in replaced}
    members, scopes = dict[str, object](), dict[int, dict[str, object]]()
    for name, function in _methods(kind).items():
        scope = function.__globals__
        read = _reads(function)
        names = {each: new[key] for each, value in scope.items() if (key := _identity(value)) in new}
        if any(_differs(scope[each], names[each], read) for each in read & names.keys()):
            own = scopes.get(id(scope)) or scopes.setdefault(id(scope), scope_with(scope, names))
            members[name] = rebound(function, own)
    return class_like(kind, members) if members else None


def _methods(kind: type) -> dict[str, FunctionType]:
    """Methods of a class that are of a model's code: not those that this package has overridden."""
    bases = [base for base in reversed(kind.__mro__) if not base.__module__.startswith(_NOT_MODELS)]
    found = {name: value for base in bases for name, value in vars(base).items()}
    functions = {name: value for name, value in found.items() if isinstance(value, FunctionType)}
    return {name: each for name, each in functions.items() if not each.__module__.startswith("localai_shim.")}


def class_like(kind: type, members: Mapping[str, object]) -> type:
    """A subclass with the same name, and with these members."""
    names = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    return new_class(kind.__name__, (kind,), {}, lambda namespace: namespace.update(names | dict(members)))


def scope_with(scope: Mapping[str, object], names: Mapping[str, object]) -> dict[str, object]:
    """A module's globals with other things behind some names, for itself and for the functions in it."""
    own = dict(scope)
    for name, value in scope.items():
        if isinstance(value, FunctionType) and value.__globals__ is scope:
            own[name] = rebound(value, own)
    own.update(names)
    return own


def rebound(function: Callable[P, R], scope: dict[str, object]) -> Callable[P, R]:
    """The same code with other globals."""
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    vars(made)["upstream"] = getattr(function, "upstream", function)
    return made


def _identity(value: object) -> int:
    """Name of upstream's function, for one that was rebound."""
    return id(getattr(value, "upstream", value) if isinstance(value, FunctionType) else value)


def with_names(other: ModuleType, **names: object) -> ModuleType:
    """A module like another one, with some names bound to other things."""
    made = ModuleType(other.__name__)
    later = {"__getattr__": partial(getattr, other)}  # what the other one gets from now on
    vars(made).update(vars(other) | names | later)
    return made


def _differs(old: object, new: object, read: frozenset[str]) -> bool:
    """True for a function, and for a module of which names are read that are its own."""
    if not isinstance(old, ModuleType):
        return True
    return any(getattr(old, name, None) is not value for name, value in vars(new).items() if name in read)


@functools.lru_cache(maxsize=4096)
def _reads(function: FunctionType) -> frozenset[str]:
    """Names that a function's code looks up, and those of the functions of its module that it calls."""
    found, todo = set[str](), [function]
    while todo:
        scope = todo[-1].__globals__
        new = _names(todo.pop().__code__) - found
        found |= new
        called = [scope[name] for name in new if name in scope]
        todo += [each for each in called if isinstance(each, FunctionType) and each.__globals__ is scope]
    return frozenset(found)


def _names(code: CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)
