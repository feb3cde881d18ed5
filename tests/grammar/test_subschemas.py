from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localai_shim.grammar.subschemas import DRAFT_7, localized, resolve, subschemas
from tests.samples import sampled

VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}


def test_a_reference_is_resolved_as_a_json_pointer() -> None:
    root = {"$defs": {"a/b~c": 1, "list": [2, 3]}}
    assert resolve(root, "#") is root
    assert resolve(root, "#/$defs/a~1b~0c") == 1
    assert resolve(root, "#/$defs/list/1") == 3


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/no", "#/$defs/list/9", "#/$defs/list/x", "https://example.com", "#anchor/x", "#anchor", "list", ""],
)
def test_a_reference_to_nothing_is_an_error(reference: str) -> None:
    with pytest.raises(KeyError):
        resolve({"$defs": {"list": [1]}}, reference)


# -- Identifiers ------------------------------------------------------------------------------------------------------

TARGET = {"type": "integer", "minimum": 7000}
# keys of `$defs`, as generators write types and as references may be written
NAMED = [
    *("Box[int]", "Foo<string>", "My Type", "Größe", 'a"b', "a\\b", "a^b", "a|b", "{x}", "a`b", "100%", "a%20b"),
    *("a#b", "a?b", "a+b=c&d", "a/b", "a~b", "$x", ".", ""),
]


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
@pytest.mark.parametrize("name", NAMED)
def test_a_reference_may_have_any_characters(name: str, keyword: str) -> None:
    """A pointer escapes `~` and `/`, whatever else it escapes."""
    schema = {"properties": {"n": {"$ref": f"#/{keyword}/{name.replace('~', '~0').replace('/', '~1')}"}}}
    found = localized({**schema, keyword: {name: TARGET}})
    [reference] = [part["$ref"] for part in subschemas(found) if "$ref" in part]
    assert isinstance(reference, str) and resolve(found, reference) == TARGET
    assert jsonschema.Draft202012Validator(found).is_valid({"n": 7000})
    assert not jsonschema.Draft202012Validator(found).is_valid({"n": 6999})


def test_a_key_that_is_percent_encoded_is_found_as_it_is_and_decoded() -> None:
    schema = {"$ref": "#/$defs/a%20b", "$defs": {"a b": TARGET, "a%20b": {}}}
    assert localized(schema)["$ref"] == "#/$defs/a%20b"
    assert localized({**schema, "$defs": {"a%20b": TARGET}})["$ref"] == "#/$defs/a%2520b"


@pytest.mark.parametrize(
    ("reference", "target", "root"),
    [
        ("#num", {"$anchor": "num"}, {}),
        ("num.json", {"$id": "num.json"}, {"$id": "https://example.com/root.json"}),
        ("https://example.com/num.json", {"$id": "num.json"}, {"$id": "https://example.com/root.json"}),
        ("urn:example:num", {"$id": "urn:example:num"}, {}),
        ("T0", {"$id": "T0"}, {}),  # as TypeBox writes it
        ("Box<int>", {"$id": "Box<int>"}, {}),
        ("http://[", {"$id": "http://["}, {}),
        ("https://example.com/root.json#/$defs/N", {}, {"$id": "https://example.com/root.json"}),
        ("My Schema#/$defs/N", {}, {"$id": "My Schema"}),
        ("#num", {"$id": "#num"}, {"$schema": "http://json-schema.org/draft-07/schema#"}),
        ("#/$defs/N", {}, {"$id": "My Schema"}),
        ("#/$defs/N", {}, {"$id": "%zz"}),
    ],
    ids=str,
)
def test_a_reference_by_an_identifier_of_the_schema_becomes_a_pointer(
    reference: str, target: dict[str, Any], root: dict[str, Any]
) -> None:
    found = localized({**root, "properties": {"n": {"$ref": reference}}, "$defs": {"N": {**target, **TARGET}}})
    kept = {"$schema": DRAFT_7} if "$schema" in root else {}
    assert found == {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": TARGET}, **kept}


def test_a_pointer_in_a_part_with_an_identifier_starts_there_or_at_the_root() -> None:
    part = {"$id": "My Part", "$defs": {"A": TARGET}, "items": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
    found = localized({"properties": {"p": part}, "$defs": {"B": {}}})
    references = [each["$ref"] for each in subschemas(found) if "$ref" in each]
    assert references == ["#/properties/p/$defs/A", "#/$defs/B"]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("https://json-schema.org/draft-07/schema#", DRAFT_7),
        ("http://json-schema.org/draft-04/schema", DRAFT_7),
        ("https://json-schema.org/draft/2020-12/schema", None),
        ("https://spec.openapis.org/oas/3.1/dialect/base", None),
        ("no URI at all", None),
        (5, None),
    ],
)
def test_a_dialect_is_kept_if_it_is_an_older_draft(written: object, kept: str | None) -> None:
    assert localized({"$schema": written, "type": "object"}).get("$schema", None) == (written if written == 5 else kept)


def test_properties_may_have_the_names_of_identifiers() -> None:
    schema = {"properties": {name: {"type": "string"} for name in ("$id", "$ref", "$schema", "$anchor", "id")}}
    assert localized(schema) == schema
    data = {"enum": [{"$ref": "#/x", "$id": "y"}], "default": {"$id": "z"}}
    assert localized(data) == data


def test_a_schema_outside_the_known_places_is_moved_to_one() -> None:
    """So that all that is looked for in a schema is found there, too."""
    parts = {"schemas": {"N": {"items": {"$ref": "#/components/schemas/M<x>"}}, "M<x>": TARGET}}
    found = localized({"properties": {"n": {"$ref": "#/components/schemas/N"}}, "components": parts})
    places = [part for part in subschemas(found) if part == TARGET]
    assert len(places) == 1
    assert jsonschema.Draft202012Validator(found).is_valid({"n": [7000]})
    assert not jsonschema.Draft202012Validator(found).is_valid({"n": [6999]})


def test_a_dynamic_reference_that_can_only_lead_to_one_place_is_one_like_others() -> None:
    one = {"$defs": {"N": {"$dynamicAnchor": "N", **TARGET}}, "items": {"$dynamicRef": "#N"}}
    assert localized(one) == {"$defs": {"N": TARGET}, "items": {"$ref": "#/$defs/N"}}
    other = {"$id": "other", "$dynamicAnchor": "N"}
    assert localized({**one, "not": other})["items"] == {"$dynamicRef": "#N"}
    assert localized({"items": {"$recursiveRef": "#"}}) == {"items": {"$ref": "#"}}
    nested = {"$id": "nested", "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}}
    assert localized({"items": nested}) == {"items": {"items": {"$recursiveRef": "#"}}}


def test_a_reference_to_elsewhere_stays() -> None:
    schema = {"items": [{"$ref": "https://example.com/x"}, {"$ref": "#/$defs/no"}, {"$ref": "#no"}]}
    assert localized(schema) == schema


def _suite() -> Iterator[Any]:
    folder = Path(os.environ.get("JSON_SCHEMA_TEST_SUITE", "/nonexistent"), "tests")
    for draft_name in VALIDATORS:
        for path in sorted((folder / draft_name).glob("*.json")):
            for case in json.loads(path.read_text(encoding="utf-8")):
                if isinstance(case["schema"], dict) and "localhost:1234" not in json.dumps(case["schema"]):
                    name = f"{draft_name}: {path.stem}: {case['description']}"
                    yield pytest.param(draft_name, case["schema"], case["tests"], id=name)


@pytest.mark.skipif("JSON_SCHEMA_TEST_SUITE" not in os.environ, reason="names no copy of the JSON-Schema-Test-Suite")
@pytest.mark.parametrize(("draft_name", "schema", "tests"), sampled(_suite(), 60))
def test_a_localized_schema_of_the_official_suite_takes_the_same_values(
    draft_name: str, schema: dict[str, Any], tests: list[dict[str, Any]]
) -> None:
    found = localized(schema)
    if any("$dynamicRef" in part for part in subschemas(found)):  # it depends on how a value is reached
        assert json.dumps(schema).count("$dynamicAnchor") > 1
        return
    validator = VALIDATORS[draft_name](found)
    for test in tests:
        assert validator.is_valid(test["data"]) is test["valid"], test["description"]
