"""The schemas within a JSON Schema: in their places, and by references and the identifiers that these name.

No function changes a schema in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeGuard
from urllib.parse import quote, unquote, urljoin

Schema = Mapping[str, object]

# Where a schema holds other schemas; anything else in it (`enum`, `default`, ...) is data.
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "if", "then", "else")
_NEGATING = ("not", "unevaluatedItems", "unevaluatedProperties", "contentSchema")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def children(node: Schema) -> Iterator[tuple[str, object]]:
    """Path and value of each child, including those of keywords that no grammar follows.

    A path is the end of a `pointer`. A value does not have to be a schema.
    """
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            yield from ((f"{key}/{step(name)}", child) for name, child in value.items())
        elif key in _LISTED and isinstance(value, list):
            yield from ((f"{key}/{n}", child) for n, child in enumerate(value))
        elif key in (*_ONE, *_NEGATING):
            yield key, value


def subschemas(schema: object) -> Iterator[Schema]:
    """A schema and all that it holds."""
    if isinstance(schema, Mapping):
        yield schema
        for _, child in children(schema):
            yield from subschemas(child)


def list_at(schema: Schema, keyword: str) -> list[object]:
    """The array at a keyword; empty if there is none."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def properties_of(schema: Schema) -> Mapping[str, object]:
    """The schemas of an object's properties by name; empty if there are none."""
    value = schema.get("properties")
    return value if isinstance(value, Mapping) else {}


def map_children(
    node: Schema, change: Callable[[str, Schema, str], object], *, negated: bool = False
) -> dict[str, object]:
    """A copy of a schema in which `change(keyword, child, path)` replaces each schema that it holds.

    Children that are `true` or `false` stay.

    Args:
        negated: change the children of `not` and similar keywords, too. A change that widens what they allow would
            narrow what the schema allows.
    """

    def changed(key: str, child: object, path: str) -> object:
        return change(key, child, path) if isinstance(child, Mapping) else child

    copy = dict(node)
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            copy[key] = {name: changed(key, child, f"{key}/{step(name)}") for name, child in value.items()}
        elif key in _LISTED and isinstance(value, list):
            copy[key] = [changed(key, child, f"{key}/{n}") for n, child in enumerate(value)]
        elif key in _ONE or (negated and key in _NEGATING):
            copy[key] = changed(key, value, key)
    return copy


@lru_cache(maxsize=4_096)
def step(name: object) -> str:
    """A key as a step of a JSON pointer in a URI."""
    return quote(str(name).replace("~", "~0").replace("/", "~1"), safe="!$&'()*+,;=:@?")


def json_type(value: object) -> str:
    """JSON's name of a value's type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list | tuple) else "object"


def is_number(value: object) -> TypeGuard[float]:
    """True for a number of JSON, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFTS = {
    DRAFT_7: re.compile(r"json-schema\.org/draft-0[3-7]/"),
    "https://json-schema.org/draft/2019-09/schema": re.compile(r"json-schema\.org/draft/2019-09/"),
}
"""Older drafts, and how schemas name them: the scheme differs at times, and drafts 3 to 7 read alike."""
MAX_MOVED_PARTS = 10_000
_IDENTIFIERS = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")


def resolve(root: Schema, reference: str) -> object:
    """Find what a local `$ref`, a JSON pointer behind `#`, points to.

    Raises:
        KeyError: nothing is there, or it is outside the schema.
    """
    pointer = reference.removeprefix("#")
    if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
        raise KeyError(reference)
    return _walked(root, pointer)[0]


def target_of(part: object, root: Schema) -> object:
    """Target of the `$ref` of a part of a schema; None without one, or where nothing is found."""
    try:
        return resolve(root, str(part.get("$ref"))) if isinstance(part, Mapping) else None
    except KeyError:
        return None


def localized(schema: Schema) -> Schema:
    """A copy of a schema in which references are JSON pointers from its root, and that has no identifiers.

    The copy says `$schema` only if it names an older draft. A reference to something that is not in the schema stays.
    `$dynamicRef` and `$recursiveRef` become a `$ref` if they can only lead to one place.
    """
    return _Localizer(schema).schema()


def _walked(node: Any, pointer: str) -> tuple[Any, str]:
    """The value at a JSON pointer, and the pointer as `step` writes it. Keys may be percent-encoded or not."""
    path = ""
    for each in pointer.split("/")[1:]:
        try:
            key: str | int = next(key for key in _keys(each) if not isinstance(node, Mapping) or key in node)
            key = int(key) if isinstance(node, list) else key
            node = node[key]
        except (LookupError, TypeError, ValueError, StopIteration):
            raise KeyError(pointer) from None
        path += f"/{step(key)}"
    return node, path


def _keys(written: str) -> Iterator[str]:
    """The keys that a step of a pointer may mean, the likeliest first."""
    for text in (unquote(written), written):
        yield text.replace("~1", "/").replace("~0", "~")


class _Localizer:
    """The identifiers of one schema: first all are found, then all references are rewritten."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._is_old = _draft(root) == DRAFT_7
        self._resources: dict[str, str] = {}  # URI -> pointer
        self._anchors: dict[str, dict[str, str]] = {}  # name -> URI of its resource -> pointer
        self._dynamic: dict[str, int] = {}  # name of a `$dynamicAnchor` -> how many there are
        self._places: set[str] = set()  # pointers to all subschemas
        self._moved: dict[str, object] = {}  # name in `$defs` -> what was referred to where no schema is looked for
        self._moved_parts = 0
        self._find(root, "", "")

    def schema(self) -> Schema:
        made = self._rewritten(self._root, "")
        if draft := _draft(self._root):
            made["$schema"] = draft
        if self._moved:
            own = made.get("$defs")
            made["$defs"] = {**(own if isinstance(own, Mapping) else {}), **self._moved}
        return made

    # -- Finding ------------------------------------------------------------------------------------------------------

    def _find(self, node: Schema, pointer: str, base: str) -> None:
        self._places.add(pointer)
        base = self._base(node, base)
        identifier = self._identifier(node)
        for uri in (base, identifier.partition("#")[0]):
            if not pointer or identifier.partition("#")[0]:
                self._resources.setdefault(uri, pointer)
        dynamic = node.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            self._dynamic[dynamic] = self._dynamic.get(dynamic, 0) + 1
        for name in (node.get("$anchor"), dynamic, identifier.partition("#")[2]):
            if isinstance(name, str) and name:
                self._anchors.setdefault(name, {}).setdefault(base, pointer)
        for path, child in children(node):
            if isinstance(child, Mapping):
                self._find(child, f"{pointer}/{path}", base)

    def _identifier(self, node: Schema) -> str:
        """The identifier of a part; empty if it has none. Old drafts ignore it next to a `$ref`."""
        if self._is_old and "$ref" in node:
            return ""
        found = node.get("$id", node.get("id") if self._is_old else None)
        return found if isinstance(found, str) else ""

    def _base(self, node: Schema, base: str) -> str:
        """The URI of the resource that a part is in."""
        return _joined(base, self._identifier(node).partition("#")[0])

    # -- Rewriting ----------------------------------------------------------------------------------------------------

    def _rewritten(self, node: Schema, base: str) -> dict[str, object]:
        base = self._base(node, base)
        made = map_children(node, lambda key, child, path: self._rewritten(child, base), negated=True)
        for name in _IDENTIFIERS:
            if isinstance(made.get(name), str | bool):
                del made[name]
        if isinstance(reference := made.get("$ref"), str):
            made["$ref"] = self._local(reference, base)
        elif (target := self._only_target(made, base)) is not None:
            made = {name: value for name, value in made.items() if name not in ("$dynamicRef", "$recursiveRef")}
            made["$ref"] = target
        return self._without_booleans(made)

    def _without_booleans(self, node: dict[str, object]) -> dict[str, object]:
        """A part without a reference to `true` or `false`: llguidance refuses a schema that has the latter."""
        target = target_of(node, self._root)
        if isinstance(target, bool):
            del node["$ref"]
            if not target:
                node["allOf"] = [*list_at(node, "allOf"), False]
        return node

    def _only_target(self, node: Schema, base: str) -> str | None:
        """The place that a dynamic reference leads to, however the schema is entered."""
        reference = node.get("$dynamicRef")
        if isinstance(reference, str):
            return self._local(reference, base) if self._dynamic.get(reference.partition("#")[2], 0) < 2 else None
        if node.get("$recursiveRef") != "#":
            return None
        target = self._local("#", base)
        part = resolve(self._root, target)
        is_dynamic = isinstance(part, Mapping) and part.get("$recursiveAnchor") is True
        return None if is_dynamic and target != "#" else target

    def _local(self, reference: str, base: str) -> str:
        uri, _, fragment = reference.partition("#")
        starts = [_joined(base, uri), uri] if uri else [base, ""]
        for start in starts:
            if (pointer := self._target(start, fragment)) is not None:
                return f"#{self._reachable(pointer)}"
        return reference

    def _target(self, uri: str, fragment: str) -> str | None:
        """The pointer to what a fragment means in a resource; the URI that is empty is the root."""
        start = self._resources.get(uri) if uri else ""
        if start is None:
            return None
        if fragment and not fragment.startswith("/"):
            anchors = self._anchors.get(unquote(fragment), {})
            return anchors.get(uri) or (next(iter(anchors.values()), None) if not uri else None)
        try:
            return start + _walked(resolve(self._root, f"#{start}"), fragment)[1]
        except KeyError:
            return None

    def _reachable(self, pointer: str) -> str:
        """A pointer to the same schema. One that is where no schema is looked for gets another place."""
        target = resolve(self._root, f"#{pointer}")
        if pointer in self._places or not isinstance(target, Mapping):
            return pointer
        if pointer not in self._moved:
            self._moved_parts += sum(1 for _ in subschemas(target))
            if self._moved_parts > MAX_MOVED_PARTS:  # they may hold each other
                return pointer
            self._moved[pointer] = True  # it may refer to itself
            self._moved[pointer] = self._rewritten(target, "")
        return f"/$defs/{step(pointer)}"


def _draft(root: Schema) -> str:
    """The older draft that a schema is written in; empty if it is the latest or an unknown one."""
    named = root.get("$schema")
    return next((d for d, pattern in _DRAFTS.items() if isinstance(named, str) and pattern.search(named)), "")


def _joined(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri) if uri else base
    except ValueError:  # it is no URI, but some name
        return uri
