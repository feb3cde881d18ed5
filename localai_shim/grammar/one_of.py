"""`oneOf` of options that exclude each other, which then says the same as `anyOf`.

llguidance finds this out for some options, but follows no references. Grammars can follow `anyOf` in any place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .conjunction import same
from .subschemas import Schema, json_type, map_children, resolve

_TYPES = frozenset(("string", "number", "boolean", "null", "array", "object"))
MAX_DEPTH = 16
MAX_COMPARISONS = 20_000


def as_any_of(schema: Schema) -> dict[str, object]:
    """A copy of a schema with `anyOf` instead of each `oneOf` of which no value can satisfy two options."""
    compare = _Comparison(schema)

    def changed(node: Schema) -> dict[str, object]:
        copy = map_children(node, lambda key, child, path: changed(child))
        options = node.get("oneOf")
        if isinstance(options, list) and "anyOf" not in node and compare.exclude_each_other(options):
            return {"anyOf" if name == "oneOf" else name: value for name, value in copy.items()}
        return copy

    return changed(schema)


class _Comparison:
    """Finds schemas that no value satisfies both of. When in doubt, they are not."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_COMPARISONS

    def exclude_each_other(self, options: list[object]) -> bool:
        return all(self._apart(a, b) for n, a in enumerate(options) for b in options[n + 1 :])

    def _apart(self, a: object, b: object, depth: int = 0) -> bool:
        self._left -= 1
        if a is False or b is False:
            return True
        if depth > MAX_DEPTH or self._left < 0 or not (isinstance(a, Mapping) and isinstance(b, Mapping)):
            return False
        if self._differ(a, b, depth):
            return True
        for one, other in ((a, b), (b, a)):
            if any(self._apart(part, other, depth + 1) for part in self._parts(one)):
                return True
            for name in ("anyOf", "oneOf"):
                options = one.get(name)
                if isinstance(options, list) and options and all(self._apart(o, other, depth + 1) for o in options):
                    return True
        return False

    def _parts(self, schema: Schema) -> Iterator[object]:
        """Conditions on a value besides the keywords of a schema itself."""
        if isinstance(reference := schema.get("$ref"), str):
            try:
                yield resolve(self._root, reference)
            except KeyError:
                return
        if isinstance(parts := schema.get("allOf"), list):
            yield from parts

    def _differ(self, a: Schema, b: Schema, depth: int) -> bool:
        """The two differ in their types, their constants, or in a property that one of them requires."""
        common = _kinds(a) & _kinds(b)
        if not common:
            return True
        constants, others = _constants(a), _constants(b)
        if constants is not None and others is not None:
            return set(map(same, constants)).isdisjoint(map(same, others))
        if common != {"object"}:
            return False
        return any(self._apart(_member(a, name), _member(b, name), depth + 1) for name in _required(a) | _required(b))


def _kinds(schema: Schema) -> frozenset[str]:
    """The types of the values that satisfy a schema; an integer is a number."""
    named = schema.get("type")
    kinds = _TYPES if named is None else frozenset(named if isinstance(named, list) else [named])
    kinds = frozenset("number" if kind == "integer" else kind for kind in kinds)
    constants = _constants(schema)
    return kinds if constants is None else kinds & frozenset(map(json_type, constants))


def _constants(schema: Schema) -> list[object] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _required(schema: Schema) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _member(schema: Schema, name: str) -> object:
    """The schema of a property; one that says nothing if a pattern may hold for it."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)
