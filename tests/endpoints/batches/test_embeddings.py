"""Lines that ask for vectors."""

from __future__ import annotations

import pytest

from localai_shim.testing import scripted
from tests.endpoints.batches.batching import finished, line, read, start


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_lines_are_embedded_as_the_requests_alone_would_be(encoding: str) -> None:
    bodies = {"one": {"input": "Hello"}, "many": {"input": ["Hello", "Bye"]}, "wrong": {"input": []}}
    url = "/v1/embeddings"
    with scripted() as client:
        lines = [line(id, url, model="m", encoding_format=encoding, **body) for id, body in bodies.items()]
        done = finished(client, start(client, lines, url).id)
        assert (done.request_counts.completed, done.request_counts.failed) == (2, 1)
        output = read(client, done.output_file_id)
        for id in ("one", "many"):
            alone = client.embeddings.with_raw_response.create(
                model="m", input=bodies[id]["input"], encoding_format=encoding
            )
            assert output[id]["response"]["body"]["data"] == alone.http_response.json()["data"]
        assert read(client, done.error_file_id)["wrong"]["response"]["body"]["error"]["param"] == "input"
        assert done.usage.input_tokens == done.usage.total_tokens > 0
