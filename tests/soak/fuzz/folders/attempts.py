"""One broken folder after the other, each loaded through a client of this process, which has a good model beside it."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import openai

from localai_shim import LocalOpenAI
from tests.embedding_models import tiny_classifier, tiny_embedder
from tests.soak.fuzz.folders.mutations import break_file, break_folder
from tests.tiny import make_model, tiny
from tests.vision import tiny_vision

BOUND_SECONDS = 60.0
"""In which a folder has to be done with: many times what one takes on a busy machine."""
MOST_MEMORY = 1 << 30
"""Bytes by which a folder of half a megabyte may raise the most that the process ever had."""
BARE = re.compile(r"could not be loaded: (?!\w*(?:OS|Directory|Permission|NotFound)Error)[\w.]*(?:Error|Exception)\b")
"""Upstream's exceptions that nothing explains, but for those of files, which name them."""
MESSAGES: list[Any] = [{"role": "user", "content": "Hello there"}]


@cache
def _gguf() -> Path:
    from tests.models.gguf.writing import write

    folder = Path(tempfile.mkdtemp(prefix="localai_shim-gguf-"))
    return write(tiny("qwen3"), folder / "tiny.gguf").parent


BASES: dict[str, Callable[[], Path]] = {
    "qwen3": lambda: tiny("qwen3"),
    "gemma3_text": lambda: tiny("gemma3_text"),
    "qwen3_next": lambda: tiny("qwen3_next"),
    "qwen2_vl": lambda: tiny_vision("qwen2_vl"),
    "gemma3": lambda: tiny_vision("gemma3"),
    "bert": lambda: tiny_embedder("bert"),
    "classifier": tiny_classifier,
    "gguf": _gguf,
}
KINDS = ["qwen3"] * 6 + ["gemma3_text", "qwen3_next", "qwen2_vl", "gemma3", "bert", "classifier"] + ["gguf"] * 3


class Attempts:
    """Loads broken folders by their numbers; the same number makes the same folder.

    Args:
        room: a folder of its own, outside of which nothing may be written.
    """

    def __init__(self, room: Path) -> None:
        self._room, self._trace = room, room / "ran"
        self._good = LocalOpenAI(make_model(room / "good", "qwen3"), keep_alive=0, progress=False)
        self._said = self._good_answer(self._good)
        self._outside = sorted(path.name for path in room.iterdir())

    def close(self) -> None:
        self._good.close()

    def run(self, number: int) -> dict[str, Any]:
        """Break a folder and load it.

        Returns:
            What was changed, what came of it, and `wrong` where that is a defect.
        """
        rng = random.Random(f"folder {number}")
        kind = rng.choice(KINDS)
        path = self._room / "broken" / "zqmodel"
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(BASES[kind](), path)
        if kind == "gguf":
            path /= "tiny.gguf"
            told = break_file(path, rng)
        else:
            told = break_folder(path, rng, self._trace)
        endless = any(one.startswith("template") for one in told)
        return {"number": number, "kind": kind, "changes": told, **self.load(path, kind, endless)}

    def load(self, path: Path, kind: str, endless: bool) -> dict[str, Any]:
        """Load a folder or file as it is, and look at what that leaves.

        Args:
            path: of the folder or file.
            kind: of the model that it was.
            endless: its template may never end, and the request's timeout is what ends it.
        """
        began, before = time.monotonic(), _peak()
        outcome, wrong = _outcome(path, kind, 2.0 if endless else BOUND_SECONDS)
        if endless and "APITimeoutError" in outcome:
            wrong = ""
        seconds = time.monotonic() - began
        grown = _peak() - before
        if seconds > 2 * BOUND_SECONDS:
            wrong = wrong or "it takes too long"
        if grown > MOST_MEMORY:
            wrong = wrong or f"{grown >> 20} MB were needed"
        shutil.rmtree(self._room / "broken", ignore_errors=True)
        if self._trace.exists():
            self._trace.unlink()
            wrong = wrong or "code of the folder was run"
        if (left := sorted(each.name for each in self._room.iterdir())) != self._outside:
            wrong = wrong or f"files were left: {left}"
        wrong = wrong or self._neighbours()
        return {"outcome": outcome, "wrong": wrong, "seconds": round(seconds, 2)}

    def _neighbours(self) -> str:
        """What is wrong with the good model, loaded before and now."""
        with closing(LocalOpenAI(self._room / "good", keep_alive=0, context_length=512, progress=False)) as fresh:
            for which, client in (("before", self._good), ("now", fresh)):
                try:
                    said = self._good_answer(client)
                except Exception as error:
                    return f"the good model that was loaded {which} fails: {error!r}"
                if said != self._said:
                    return f"the good model that was loaded {which} says something else"
        return ""

    @staticmethod
    def _good_answer(client: LocalOpenAI) -> str:
        made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=4, temperature=0)
        return str(made.choices[0].message.content)


def _outcome(path: Path, kind: str, timeout: float) -> tuple[str, str]:
    """How a request to a broken model ends, and what is wrong with that."""
    try:
        client = LocalOpenAI(path, keep_alive=0, progress=False, timeout=timeout)
    except (FileNotFoundError, ValueError) as error:
        return f"constructor: {error!r}"[:600], "" if str(path) in str(error) else "the path is not named"
    with closing(client):
        try:
            _ask(client, kind)
        except openai.APITimeoutError as error:
            return repr(error), "it takes too long"
        except openai.APIError as error:
            text = f"{type(error).__name__}: {error}"
            named = "tiny.gguf" in text or "zqmodel" in text
            if "localai_shim failed" in text or (isinstance(error, openai.InternalServerError) and not named):
                return text[:600], "an error that names no file"
            return text[:600], "a bare error of Python" if BARE.search(text) else ""
        return "answers", ""


def _ask(client: LocalOpenAI, kind: str) -> None:
    if kind == "bert":
        client.embeddings.create(model="m", input="Hello")
    elif kind == "classifier":
        client.post("/rerank", cast_to=object, body={"model": "m", "query": "a", "documents": ["b"]})
    else:
        client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=4)


def _peak() -> int:
    """Most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(first: int, end: int) -> None:
    """Run attempts in this process, and print a line before and after each."""
    room = Path(tempfile.mkdtemp(prefix="localai_shim-folders-"))
    os.environ["HOME"] = str(room)
    attempts = Attempts(room)
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    try:
        for number in range(first, end):
            sys.stdout.write(json.dumps({"begin": number}) + "\n")
            sys.stdout.flush()
            sys.stdout.write(json.dumps(attempts.run(number)) + "\n")
            sys.stdout.flush()
    finally:
        attempts.close()
        shutil.rmtree(room, ignore_errors=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
