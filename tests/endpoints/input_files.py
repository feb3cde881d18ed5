"""Parts of both APIs that hold a file, and scripted models that read them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from localai_shim.media import MediaKind
from localai_shim.testing import ScriptedEngine
from tests.endpoints.seeing import SeeingModel


class ReadingModel(SeeingModel):
    """A scripted model that reads text only, files too."""

    media_kinds: frozenset[MediaKind] = frozenset()


def reading(monkeypatch: pytest.MonkeyPatch, *replies: Any, **options: Any) -> ScriptedEngine:
    """An engine that plays replies, whose model reads text only."""
    engine = ScriptedEngine(replies or ["Yes."] * 64, **options)
    monkeypatch.setattr(engine, "_model", ReadingModel("reading", engine.model.context_length, engine.tokenizer))
    return engine


def encoded(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def data_url(data: bytes, media_type: str = "text/plain") -> str:
    """The file in a URL."""
    return f"data:{media_type};base64,{encoded(data)}"


def file_part(data: bytes | str, name: str | None = "notes.txt", **more: Any) -> Any:
    """A part of a chat message."""
    source = encoded(data) if isinstance(data, bytes) else data
    return {"type": "file", "file": {"file_data": source, **({"filename": name} if name else {}), **more}}


def input_file(**fields: Any) -> Any:
    """A part of an item of a response."""
    return {"type": "input_file", **fields}


def shown(name: str, text: str) -> str:
    """A file in a prompt."""
    return f"[file name]: {name}\n[file content begin]\n{text}\n[file content end]"
