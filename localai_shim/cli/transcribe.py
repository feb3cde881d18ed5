"""Write down the speech of files, many concurrently, as text or subtitles.

Prints what each file says, or writes one file for each into a folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .shared import add_model, given_options, one_line, open_client

if TYPE_CHECKING:
    import asyncio

    from ..client.local import AsyncLocalOpenAI

ENDINGS = {"text": "txt", "srt": "srt", "vtt": "vtt", "json": "json", "verbose_json": "json"}
"""Ending of a file, by its format."""
T = TypeVar("T")
MAX_OPEN = 64  # files that are decoded concurrently


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="WAV, MP3, or FLAC; other formats need ffmpeg")
    parser.add_argument("-f", "--format", choices=tuple(ENDINGS), default="text", help="of the output (text)")
    parser.add_argument("-l", "--language", help="of the speech, as en or english; by default the model finds it")
    parser.add_argument("-t", "--translate", action="store_true", help="translate into English")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="write FILE.txt, FILE.srt, ... there")
    kinds = "a Whisper model, or another that writes down speech: folder, Hub ID, or name of a model on this machine"
    add_model(parser, "-m", "--model", required=kinds)


def run(arguments: argparse.Namespace) -> int:
    """Transcribe all files, in their order; 1 if some of them failed."""
    if not any(Path(name).exists() for name in arguments.files):  # loading a model takes long
        raise FileNotFoundError(f"no such file: {', '.join(arguments.files)}")
    folder = None if arguments.output is None else Path(arguments.output)
    if folder is not None:
        names = [Path(name).stem for name in arguments.files]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two files would be written to {folder / twice[0]}.{ENDINGS[arguments.format]}")
        folder.mkdir(parents=True, exist_ok=True)
    import asyncio  # takes long

    with open_client("transcribe", arguments.model, given_options(arguments)):
        return asyncio.run(_run(arguments, folder))


async def _run(arguments: argparse.Namespace, folder: Path | None) -> int:
    import asyncio

    from ..client.local import AsyncLocalOpenAI

    failed, turns = 0, asyncio.Semaphore(MAX_OPEN)
    options = given_options(arguments)
    options["keep_alive"] = 0
    async with AsyncLocalOpenAI(arguments.model, **options) as client:
        tasks = [asyncio.create_task(_transcribe(client, name, arguments, turns)) for name in arguments.files]
        for name, task in zip(arguments.files, tasks, strict=True):
            text, error = await task
            if error is not None:
                failed += 1
                sys.stderr.write(f"{name}: {one_line(error)}\n")
            elif folder is not None:
                (folder / f"{Path(name).stem}.{ENDINGS[arguments.format]}").write_text(text, encoding="utf-8")
            else:
                sys.stdout.write(text)
                sys.stdout.flush()
    return 1 if failed else 0


async def _transcribe(
    client: AsyncLocalOpenAI, name: str, arguments: argparse.Namespace, turns: asyncio.Semaphore
) -> tuple[str, str | None]:
    """A file's output, and what went wrong."""
    import openai

    fields: dict[str, object] = {"model": "any", "response_format": arguments.format, "timeout": None}
    if arguments.language is not None:
        fields["extra_body"] = {"language": arguments.language}
    audio = client.audio.translations if arguments.translate else client.audio.transcriptions
    async with turns:
        try:
            answer = await _quietly(audio.create, file=Path(name), **fields)
        except openai.APIStatusError as error:
            body = error.body if isinstance(error.body, dict) else {}
            return "", str(body.get("message", error))
        except (openai.OpenAIError, OSError) as error:
            return "", str(error)
    text = answer if isinstance(answer, str) else answer.to_json()
    return text if text.endswith("\n") else f"{text}\n", None


async def _quietly(create: Callable[..., Awaitable[T]], **fields: object) -> T:
    """Call a method that the SDK may call deprecated."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        awaited = create(**fields)
    return await awaited
