"""The file of a cassette: JSON lines, and what is between two requests is the answer to the first.

    {"request": {"model": "gpt-4o", "messages": [...]}, "api": "chat.completions"}
    {"at": 0.21, "content": "Hello"}
    {"at": 0.22, "end": "stop"}
    {"model": "gpt-4o-2024-08-06", "fingerprint": "fp_1", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}

    {"request": {"model": "text-embedding-3-small", "input": ["Hello", "Good bye"]}, "api": "embeddings"}
    {"at": 0.1, "vector": "AAAAPwAAAMA="}
    {"at": 0.1, "vector": "AACAPwAAAAA="}
    {"model": "text-embedding-3-small", "fingerprint": null, "usage": {"prompt_tokens": 3, "total_tokens": 3}}

Times are seconds since the request. A delta has `content`, `reasoning`, `refusal`, or `call` (which of the answer's
calls) with `name`, `arguments`, or the `item` of a hosted tool; `annotations` are those of the content before them;
`heard` has what a transcription says apart from its text, and `speech` samples of 16 bits, mono, 24,000 per second,
little-endian, in base64; `choice` says which choice it belongs to, where it is not the first. With logprobs
`tokens` follow: each `token` is a text, or bytes where it is none, and `top` the likeliest ones in its place. A vector
is float32, little-endian, in base64; a document's score is a vector of one number.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...types import Json


class CassetteError(ValueError):
    """A file that is not a cassette, or what cannot be put into one."""


@dataclass(slots=True, eq=False)
class Interaction:
    """A request and its answer."""

    api: str
    """`chat.completions`, `completions`, `responses`, `embeddings`, `rerank`, `audio.transcriptions`,
    `audio.translations` or `audio.speech`."""
    request: Json
    """The body, without what says how the answer is delivered."""
    deltas: list[Json] = field(default_factory=list[Json])
    model: str = ""
    fingerprint: str | None = None
    usage: Json | None = None

    def end(self, choice: int) -> str | None:
        """Reason why a choice ended."""
        ends = (delta["end"] for delta in self.deltas if "end" in delta and delta.get("choice", 0) == choice)
        return next(ends, None)

    def refuses(self, choice: int) -> bool:
        """True if a choice is a refusal."""
        return any("refusal" in delta and delta.get("choice", 0) == choice for delta in self.deltas)

    @property
    def heard(self) -> Json:
        """Fields of a transcription apart from its text."""
        return next((delta["heard"] for delta in self.deltas if "heard" in delta), {})

    def speech(self) -> bytes:
        """Samples, as the file has them."""
        return b"".join(base64.b64decode(delta["speech"]) for delta in self.deltas)

    def vectors(self) -> list[tuple[float, ...]]:
        """One for each text, or document."""
        found = [base64.b64decode(delta["vector"]) for delta in self.deltas]
        return [struct.unpack(f"<{len(each) // 4}f", each) for each in found]

    def add_vector(self, at: float, vector: Sequence[float] | str) -> None:
        """Take down the vector of the next text, which may be base64 already."""
        if not isinstance(vector, str):
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        self.deltas.append({"at": at, "vector": vector})


def spelling_bytes(token: str | list[int]) -> bytes:
    """The bytes of a token as it is written in a file."""
    return token.encode() if isinstance(token, str) else bytes(token)


def read_cassette(path: Path) -> list[Interaction]:
    """The interactions in a file; none if there is no such file.

    Raises:
        CassetteError: names the line that is wrong.
    """
    found: list[Interaction] = []
    begun = 0  # the line of the request whose last line has not come
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for number, line in enumerate(text.split("\n"), 1):  # `splitlines` would cut texts at U+2028, U+2029 and U+0085
        try:
            fields = json.loads(line) if line.strip() else None
            if fields is not None:
                _check(fields)
                if bool(begun) == ("request" in fields):
                    raise ValueError("an answer has to end before the next request, and nothing follows its end")
                _take(found, fields)
                begun = number if "request" in fields else begun if "at" in fields else 0
        except (ValueError, RecursionError) as error:
            why = "it is nested so deeply that it cannot be read" if isinstance(error, RecursionError) else error
            raise CassetteError(f"{path}:{number} is not a line of a cassette: {why}") from None
    if begun:
        cut = f"{path} was cut: the answer to the request of line {begun} has no end."
        raise CassetteError(f"{cut} --record-mode=rewrite records it again.")
    return found


def _check(fields: object) -> None:
    """Check that a line has its fields.

    Raises:
        ValueError: names the first one that is missing or has another type.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"it must be an object, not {json.dumps(fields)[:40]}")
    line = "a request" if "request" in fields else "a delta" if "at" in fields else "the last line of an answer"
    _check_fields(fields, line)
    for token in fields.get("tokens", ()):
        if not isinstance(token, dict):
            raise ValueError(f"'tokens' must have objects, not {token!r}")
        _check_fields(token, "a token")


def _check_fields(fields: Json, kind: str) -> None:
    for name, types in _FIELDS[kind].items():
        required = kind != "a delta" or name == "at"
        if name not in fields and required:
            raise ValueError(f"{kind} needs the field '{name}', which is missing")
        if name in fields and (not isinstance(fields[name], types) or isinstance(fields[name], bool)):
            raise ValueError(f"the field '{name}' of {kind} has a wrong value: {json.dumps(fields[name])[:40]}")


_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "a request": {"request": (dict,), "api": (str,)},
    "a delta": {
        "at": (int, float),
        "choice": (int,),
        "call": (int,),
        "tokens": (list,),
        "item": (dict,),
        "heard": (dict,),
        "annotations": (list,),
        **dict.fromkeys(("content", "reasoning", "refusal", "name", "arguments", "vector", "speech", "end"), (str,)),
    },
    "a token": {"token": (str, list), "logprob": (int, float), "top": (list,)},
    "the last line of an answer": {"model": (str,), "fingerprint": (str, type(None)), "usage": (dict, type(None))},
}
"""Fields of each kind of line. A delta has only some, and always `at`."""


def _take(found: list[Interaction], fields: Json) -> None:
    if "request" in fields:
        found.append(Interaction(fields["api"], dict(fields["request"])))
    elif "at" in fields:
        found[-1].deltas.append(fields)
    else:
        last = found[-1]
        last.model, last.fingerprint, last.usage = fields["model"], fields["fingerprint"], fields["usage"]


def write_cassette(path: Path, interactions: Iterable[Interaction]) -> None:
    """Replace a file, whole or not at all; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        for each in interactions:
            last = {"model": each.model, "fingerprint": each.fingerprint, "usage": each.usage}
            for line in ({"request": each.request, "api": each.api}, *each.deltas, last):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
