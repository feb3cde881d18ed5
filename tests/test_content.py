"""Pictures as Python objects pass through the SDK's own code as they are, and become a model's media."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import openai
import pytest
from PIL import Image

from localai_shim import image, input_image
from localai_shim.media import MediaRules
from localai_shim.prompt.media.parts import open_media

PICTURE = Image.new("RGB", (3, 2), "red")


class Seen(Exception):
    """Holds the body that the SDK would have sent."""


class Sync(openai.OpenAI):
    def request(self, cast_to: Any, options: Any, **_: Any) -> Any:
        raise Seen(options.json_data)


class Async(openai.AsyncOpenAI):
    async def request(self, cast_to: Any, options: Any, **_: Any) -> Any:
        raise Seen(options.json_data)


def arguments(kind: str, part: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [part]}
    return {"model": "m", "messages" if kind == "chat" else "input": [message]}


def body(kind: str, part: Any) -> dict[str, Any]:
    """What arrives of a request with that part."""
    with Sync(api_key="-") as client:
        create: Any = client.chat.completions.create if kind == "chat" else client.responses.create
        with pytest.raises(Seen) as seen:
            create(**arguments(kind, part))
    found: dict[str, Any] = seen.value.args[0]
    return found


async def async_body(kind: str, part: Any) -> dict[str, Any]:
    async with Async(api_key="-") as client:
        create: Any = client.chat.completions.create if kind == "chat" else client.responses.create
        with pytest.raises(Seen) as seen:
            await create(**arguments(kind, part))
    found: dict[str, Any] = seen.value.args[0]
    return found


def sources(folder: Path) -> list[Any]:
    out = io.BytesIO()
    PICTURE.save(out, "PNG")
    file = folder / "red.png"
    file.write_bytes(out.getvalue())
    array = np.asarray(PICTURE)
    return [PICTURE, array, array / 255, out.getvalue(), file]


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_objects_pass_through_the_sdk(kind: str, tmp_path: Path) -> None:
    for source in sources(tmp_path):
        part = image(source, detail="low") if kind == "chat" else input_image(source, detail="low")
        for found in (body(kind, part), anyio.run(async_body, kind, part)):
            arrived = found["messages" if kind == "chat" else "input"][0]["content"][0]
            inner = arrived["image_url"]["url"] if kind == "chat" else arrived["image_url"]
            assert inner is source
            media = open_media(arrived, "input", MediaRules()).decode()
            assert (media.data == np.asarray(PICTURE)).all()
            assert media.detail == "low"


def test_strings_are_what_openai_takes() -> None:
    url = "data:image/png;base64,iVBOR"
    assert image(url) == {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
    assert input_image(url) == {"type": "input_image", "image_url": url, "detail": "auto"}
