"""An instance of a JSON schema: small, plausible, and the same for the same random numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...types import Json

Schema = Mapping[str, Any]
_WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet")
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1DT2H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "uri": "https://example.com/",
}
_UNMET = {"pattern", "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "uniqueItems", "contains"}
_UNMET |= {"patternProperties", "propertyNames", "minProperties", "unevaluatedProperties", "unevaluatedItems"}
MAX_DEPTH = 5
"""Below it, optional properties and items are left out, and the simplest of several alternatives is taken."""


class SchemaValues:
    """Makes instances of one schema.

    Attributes:
        certain: what was made follows the schema; False where it has keywords that this does not look at.
    """

    def __init__(self, schema: Schema, numbers: random.Random) -> None:
        self._root, self._numbers = schema, numbers
        self.certain = True

    def make(self) -> object:
        """An instance."""
        return self._make(self._root, 0)

    def _make(self, schema: object, depth: int) -> object:
        if not isinstance(schema, Mapping) or not schema:
            self.certain = self.certain and schema is not False
            return self._numbers.choice(_WORDS)
        schema = self._resolved(schema)
        if _UNMET & schema.keys():
            self.certain = False
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._numbers.choice(list(schema["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                self.certain = self.certain and keyword == "anyOf"
                rest = {key: value for key, value in schema.items() if key != keyword}
                return self._make(_merged(rest, self._resolved(self._one_of(schema[keyword], depth))), depth + 1)
        return self._typed(self._type(schema, depth), schema, depth)

    def _resolved(self, schema: Schema) -> Schema:
        """A schema without references and `allOf` at its top."""
        seen: set[str] = set()
        while "$ref" in schema or "allOf" in schema:
            rest = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            parts = list(schema.get("allOf", ()))
            if "$ref" in schema:
                if schema["$ref"] in seen:
                    raise ValueError(f"the schema's {schema['$ref']} refers to itself only")
                seen.add(schema["$ref"])
                parts.append(self._find(schema["$ref"]))
            for part in parts:
                rest = _merged(rest, part) if isinstance(part, Mapping) else rest
            schema = rest
        return schema

    def _find(self, reference: str) -> Any:
        found: Any = self._root
        for key in reference.removeprefix("#").split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            found = found[int(key)] if isinstance(found, Sequence) else found[key]
        return found

    def _one_of(self, options: Sequence[Schema], depth: int) -> Schema:
        return min(options, key=_weight) if depth >= MAX_DEPTH else self._numbers.choice(list(options))

    def _type(self, schema: Schema, depth: int) -> str:
        given = schema.get("type")
        if isinstance(given, str):
            return given
        if given:
            return str(min(given, key=_RANK.index) if depth >= MAX_DEPTH else self._numbers.choice(list(given)))
        for kind, keywords in _HINTS.items():
            if any(keyword in schema for keyword in keywords):
                return kind
        return "string"

    def _typed(self, kind: str, schema: Schema, depth: int) -> object:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return self._numbers.random() < 0.5
        return None if kind == "null" else self._string(schema)

    def _object(self, schema: Schema, depth: int) -> dict[str, object]:
        properties, required = schema.get("properties", {}), list(schema.get("required", ()))
        names = [name for name in properties if name in required or depth < MAX_DEPTH - 2]
        more = [name for name in required if name not in properties]
        extra = schema.get("additionalProperties", {})
        return {name: self._make(properties.get(name, extra), depth + 1) for name in names + more}

    def _array(self, schema: Schema, depth: int) -> list[object]:
        first = list(schema.get("prefixItems", ()))
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        count = max(least, min(most, len(first) if first else int(depth < MAX_DEPTH)))
        items = schema.get("items", {})
        return [self._make(first[i] if i < len(first) else items, depth + 1) for i in range(count)]

    def _number(self, schema: Schema, *, whole: bool) -> float:
        step: float = schema.get("multipleOf", 1 if whole else 0.5)
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if above is not None and not isinstance(above, bool):
            low = max(low, above + (1 if whole else min(step, ((below or high) - above) / 4)))
        if below is not None and not isinstance(below, bool):
            high = min(high, below - (1 if whole else min(step, (below - low) / 4)))
        low = low if low > -math.inf else min(0, high - 10)
        high = min(high, low + 10)
        if whole:
            first, last = math.ceil(low / step), math.floor(high / step)
            return int(step * (self._numbers.randint(first, last) if first < last else first))
        if "multipleOf" in schema:
            return float(step * math.ceil(low / step))
        return float(round(low + (high - low) * self._numbers.randint(0, 4) / 4, 6))

    def _string(self, schema: Schema) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        self.certain = self.certain and "format" not in schema
        text = self._numbers.choice(_WORDS)
        while len(text) < schema.get("minLength", 0):
            text += f" {self._numbers.choice(_WORDS)}"
        return text[: schema.get("maxLength")]


_RANK = ["null", "boolean", "integer", "number", "string", "array", "object"]
_HINTS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def _weight(schema: object) -> int:
    """Weight of a schema by the depth that its instances may have; simple types come first."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(schema, Mapping) and ("const" in schema or "enum" in schema):
        return 0
    return _RANK.index(kind) if isinstance(kind, str) and kind in _RANK else len(_RANK)


def _merged(one: Schema, other: Schema) -> Json:
    """Merge two schemas into one that satisfies both, as far as their keywords can be put together."""
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        out["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    for keyword, tighter in (("minimum", max), ("minLength", max), ("minItems", max), ("maximum", min)):
        if keyword in one and keyword in other:
            out[keyword] = tighter(one[keyword], other[keyword])
    return out
