from __future__ import annotations

import pytest

from localai_shim.output.formats.references import resolve


def test_a_reference_is_resolved_as_a_json_pointer() -> None:
    root = {"$defs": {"a/b~c": 1, "list": [2, 3]}}
    assert resolve(root, "#") is root
    assert resolve(root, "#/$defs/a~1b~0c") == 1
    assert resolve(root, "#/$defs/list/1") == 3


@pytest.mark.parametrize(
    "reference", ["#/$defs/no", "#/$defs/list/9", "#/$defs/list/x", "https://example.com", "#anchor/x"]
)
def test_a_reference_to_nothing_is_an_error(reference: str) -> None:
    with pytest.raises(KeyError):
        resolve({"$defs": {"list": [1]}}, reference)
