"""LangChain's parser of audio files, which makes its own client and has ffmpeg write mp3."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI, replace_openai
from tests.frameworks import hearing
from tests.frameworks.kit import framework

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # langchain-community is no longer maintained, and says so
    parsers = framework("langchain_community.document_loaders.parsers.audio")
blobs = framework("langchain_core.documents.base")
pytestmark = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="pydub writes mp3 with ffmpeg")

SETTINGS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "all of them": {"language": "en", "prompt": "Ryan", "temperature": 0.0, "response_format": "text"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_an_audio_file_becomes_a_document_with_its_text(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(hearing.recording())
    with LocalOpenAI(models=hearing.models()) as client, replace_openai(client):
        parser = parsers.OpenAIWhisperParser(api_key="unused", **settings)
        [document] = parser.lazy_parse(blobs.Blob.from_path(path))
    assert document.page_content
    assert document.metadata == {"source": str(path), "chunk": 0}
