"""client.files: what is uploaded comes back byte for byte, whichever way it is handed over."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import FileDeleted, FileObject

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.endpoints import files
from localai_shim.testing import ScriptedEngine
from tests import inside
from tests.conftest import refused, revalidate

CONTENT = b'{"custom_id": "\xc3\xa4"}\r\n--x\r\n\xff\x00\xed\xa0\x80\n'


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(lambda *_: "Hi") as engine:
        yield engine


@pytest.fixture
def local(engine: ScriptedEngine, tmp_path: Path) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        yield client


@pytest.fixture
def stock(engine: ScriptedEngine) -> Iterator[openai.OpenAI]:
    """The SDK's own client, whose requests are HTTP."""
    with openai.OpenAI(api_key="unused", http_client=http_client(engine=engine)) as client:
        yield client


@pytest.mark.parametrize("kind", ["bytes", "path", "open", "named", "named open"])
@pytest.mark.parametrize("client", ["local", "stock"])
def test_what_is_uploaded_comes_back(client: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    asked: Any = request.getfixturevalue(client)
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        opened.read(3)  # as who looked into it first
        given: dict[str, Any] = {"bytes": CONTENT, "path": path, "open": opened, "named": ("ä.jsonl", CONTENT)}
        given["named open"] = ("ä.jsonl", io.BytesIO(CONTENT), "application/jsonl")
        made = asked.files.create(file=given[kind], purpose="batch")
    revalidate(made)
    names = {"bytes": "upload", "path": "in.jsonl", "open": "in.jsonl"}
    assert (made.filename, made.bytes, made.purpose) == (names.get(kind, "ä.jsonl"), len(CONTENT), "batch")
    content = asked.files.content(made.id)
    assert content.read() == content.content == CONTENT
    assert asked.files.retrieve(made.id) == made


def test_large_files_are_kept_in_pieces(local: LocalOpenAI) -> None:
    content = ("äöü🙂" * 150_000).encode()
    made = local.files.create(file=content, purpose="batch")
    assert local.files.content(made.id).content == content
    pieces = list(files.read_pieces(inside.store(local), "file", made.id, files.CONTENT))
    assert max(map(len, pieces)) <= 256 * 1024 and b"".join(pieces) == content


def test_raw_and_streamed_responses(local: LocalOpenAI) -> None:
    raw = local.files.with_raw_response.create(file=CONTENT, purpose="batch")
    made = raw.parse()
    assert isinstance(made, FileObject) and raw.headers["content-type"] == "application/json"
    assert b"multipart/form-data" in raw.http_request.headers["content-type"].encode()
    with local.files.with_streaming_response.content(made.id) as response:
        assert b"".join(response.iter_bytes()) == CONTENT
    assert local.files.with_raw_response.content(made.id).content == CONTENT
    assert local.files.with_raw_response.content(made.id).headers["content-type"] == "application/octet-stream"


def test_files_are_listed_and_deleted(local: LocalOpenAI) -> None:
    ids = [local.files.create(file=CONTENT, purpose="batch").id for _ in range(3)]
    assert [file.id for file in local.files.list()] == ids[::-1]
    assert list(local.files.list(purpose="batch_output")) == []
    assert local.files.delete(ids[1]) == FileDeleted(id=ids[1], deleted=True, object="file")
    assert [file.id for file in local.files.list()] == [ids[2], ids[0]]
    for call in (local.files.retrieve, local.files.content, local.files.delete):
        with pytest.raises(openai.NotFoundError, match=f"No such File object: {ids[1]}"):
            call(ids[1])


@pytest.mark.parametrize("client", ["local", "stock"])
def test_a_file_that_has_expired_is_gone(
    client: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Any = request.getfixturevalue(client)
    made = asked.files.create(file=CONTENT, purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert made.expires_at - made.created_at == pytest.approx(3600, abs=1)
    assert asked.files.retrieve(made.id) == made
    monkeypatch.setattr(files, "now", lambda: made.expires_at)
    assert list(asked.files.list()) == []
    with pytest.raises(openai.NotFoundError):
        asked.files.content(made.id)


@pytest.mark.parametrize(
    ("more", "param", "code", "fragment"),
    [
        ({"purpose": "fine-tune"}, "purpose", "invalid_value", "values are: 'assistants', 'batch', and 'user_data'"),
        ({"purpose": None}, "purpose", "missing_required_parameter", "purpose"),
        ({"extra_body": {"colour": "red"}}, "colour", "unknown_parameter", "'colour'"),
        (
            {"expires_after": {"anchor": "now", "seconds": 3600}},
            "expires_after.anchor",
            "invalid_value",
            "'created_at'",
        ),
        (
            {"expires_after": {"anchor": "created_at", "seconds": 5}},
            "expires_after.seconds",
            "integer_below_min_value",
            ">= 3600",
        ),
    ],
)
def test_what_is_wrong_is_refused(
    local: LocalOpenAI, more: dict[str, Any], param: str, code: str, fragment: str
) -> None:
    with refused(param, code, fragment):
        local.files.create(**{"file": CONTENT, "purpose": "batch", **more})


def test_a_body_without_a_file_is_refused(local: LocalOpenAI) -> None:
    for file, code in ((None, "missing_required_parameter"), (5, "invalid_type")):
        with refused("file", code, "file"):
            local.post("/files", cast_to=FileObject, body={"purpose": "batch", "file": file})


@pytest.mark.anyio
async def test_files_work_on_event_loops(async_client: AsyncLocalOpenAI, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    made = await async_client.files.create(file=path, purpose="batch")
    assert (await async_client.files.content(made.id)).content == CONTENT
    assert (await async_client.files.delete(made.id)).deleted
