"""Usage that services report, in recorded answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localai_shim.testing import scripted
from localai_shim.testing.cassettes.engine import play_cassette


@pytest.mark.parametrize("left_out", ["cache_write_tokens", "input_tokens_details"])
def test_usage_of_a_service_may_leave_fields_out(tmp_path: Path, left_out: str) -> None:
    path = tmp_path / "cassette.jsonl"
    ask: dict[str, Any] = {"model": "gpt-4o", "input": "Hi"}
    with scripted("Hello") as source, play_cassette(path, record_mode="once", source=source) as client:
        client.responses.create(**ask)
    *others, last = map(json.loads, path.read_text().splitlines())
    for fields in (last["usage"], last["usage"]["input_tokens_details"]):
        fields.pop(left_out, None)
    path.write_text("".join(json.dumps(line) + "\n" for line in [*others, last]))
    with play_cassette(path) as client:
        answer = client.responses.create(**ask)
    assert answer.usage is not None and answer.usage.input_tokens == last["usage"]["input_tokens"]
    assert answer.usage.input_tokens_details.cache_write_tokens == 0
