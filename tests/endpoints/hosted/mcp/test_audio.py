"""Audio in results of MCP servers: models that hear read it, now and later."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.hosted.items import with_media
from localai_shim.endpoints.hosted.mcp.kind import MCP
from localai_shim.endpoints.hosted.mcp.results import read_result
from localai_shim.endpoints.hosted.mcp.sounds import is_sound_url
from localai_shim.testing import ScriptedEngine, play_cassette
from tests.endpoints.hosted.hosting import each_way, script
from tests.endpoints.hosted.mcp.servers import ADDS, ANSWER, CALLS, Server, ask
from tests.endpoints.pictures import data_url, png
from tests.prompt.media.files import wav

DATA = base64.b64encode(wav(np.sin(np.arange(800) / 20).astype(np.float32))).decode()
SOUND = {"type": "audio", "data": DATA, "mimeType": "audio/wav"}
BROKEN = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
IMAGE = {"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}
RESULT = {"content": [{"type": "text", "text": "The recording:"}, SOUND, BROKEN]}
TEXT = "The recording:\n[audio of type audio/wav]\n[audio of type audio/wav]"
URL = f"data:audio/wav;base64,{DATA}"


@each_way
def test_a_model_that_hears_reads_audio_of_a_result(how: str) -> None:
    with ScriptedEngine(script(ADDS, ANSWER)) as engine:
        response, _ = ask(engine, how, Server(result=RESULT))
        made = response.output[1]
        assert (made.status, made.output, made.audio) == ("completed", TEXT, [URL])
        assert f"{TEXT}<audio>" in engine.prompts[1] and len(engine.requests[1].prompt.media) == 1


@pytest.mark.parametrize("way", ["previous_response_id", "input"])
def test_later_turns_read_the_same_audio_and_images(way: str) -> None:
    asked: Any = {"model": "m", "tools": [CALLS]}
    result = {"content": [SOUND, IMAGE]}
    with (
        ScriptedEngine(script(ADDS, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Server(result=result)}}) as client,
    ):
        first: Any = client.responses.create(input="Weather?", **asked)
        assert (first.output[1].audio, first.output[1].images) == ([URL], [data_url()])
        last = engine.prompts[1]
        if way == "input":
            given: Any = [{"role": "user", "content": "Weather?"}, *first.output, {"role": "user", "content": "So?"}]
            client.responses.create(input=given, **asked)
        else:
            client.responses.create(input="So?", previous_response_id=first.id, **asked)
        assert engine.prompts[2].startswith(last)
        assert len(engine.requests[2].prompt.media) == 2 and "<image><audio>" in last


def test_models_read_only_what_they_can_read() -> None:
    item = {"images": [data_url()], "audio": [URL]}
    image = {"type": "input_image", "image_url": data_url(), "detail": "auto"}
    audio = {"type": "audio_url", "audio_url": {"url": URL}}
    text = {"type": "input_text", "text": "x"}
    assert with_media("x", MCP, item, ()) == "x"
    assert with_media("x", MCP, item, ("image",)) == [text, image]
    assert with_media("x", MCP, item, ("audio",)) == [text, audio]
    assert with_media("x", MCP, {**item, "unseen_images": True}, ("image", "audio")) == "x"


@pytest.mark.parametrize(
    "url", ["", "data:audio/wav;base64,AA==", "data:audio/wav,x", f"data:text/plain;base64,{DATA}"]
)
def test_broken_and_unlabeled_data_is_no_audio(url: str) -> None:
    assert is_sound_url(URL) and not is_sound_url(url)


def test_broken_audio_is_named_only() -> None:
    outcome = read_result({"content": [BROKEN]})
    assert (outcome.output, list(outcome.found)) == ("[audio of type audio/wav]", [])


def test_audio_that_is_sent_back_must_be_audio() -> None:
    called = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "calc",
        "name": "add",
        "arguments": "{}",
        "output": "x",
    }
    with ScriptedEngine(["Hi."]) as engine, LocalOpenAI(engine=engine) as client:
        with pytest.raises(openai.BadRequestError, match=r"input\[0\].audio\[0\].*WAV, MP3, or FLAC"):
            client.responses.create(model="m", input=[{**called, "audio": ["data:audio/wav;base64,AA=="]}])  # type: ignore[list-item]
        client.responses.create(model="m", input=[{**called, "audio": [URL]}])  # type: ignore[list-item]
        assert "x<audio>" in engine.prompts[0] and len(engine.requests[0].prompt.media) == 1


def test_a_cassette_plays_audio_of_a_result(tmp_path: Path) -> None:
    fields: Any = {"model": "m", "input": "Weather?", "tools": [CALLS]}
    path = tmp_path / "cassette.jsonl"
    with (
        ScriptedEngine(script(ADDS, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Server(result=RESULT)}}) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        client.responses.create(**fields)
    with play_cassette(path) as client:
        made: Any = client.responses.create(**fields).output[1]
    assert (made.output, made.audio) == (TEXT, [URL])
