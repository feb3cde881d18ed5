"""Images, videos and sounds of a request: the nouns that all layers share. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MediaKind = Literal["image", "video", "audio"]
Detail = Literal["low", "high", "auto", "original"]


@dataclass(frozen=True, slots=True, eq=False)
class Media:
    """One image, video or sound of a request, decoded. Its array is never written to."""

    kind: MediaKind
    data: npt.NDArray[Any]
    """Image: `[height, width, 3]` uint8, RGB. Video: `[frames, height, width, 3]` uint8, RGB. Audio: `[samples]`
    float32, one channel, -1 to 1."""
    path: str
    """The field of the request that it came from, for errors: `messages[0].content[1].image_url`."""
    detail: Detail = "auto"
    rate: float | None = None
    """Of a video, frames per second; of a sound, samples per second."""


@dataclass(frozen=True, slots=True)
class MediaSize:
    """The size of an item, which its file says before its data is decoded."""

    kind: MediaKind
    height: int = 0
    width: int = 0
    """In pixels, as the file has them: it may say that the image must be turned."""
    frames: int = 1
    seconds: float = 0.0
    """Of a sound."""
    detail: Detail = "auto"

    def __str__(self) -> str:
        if self.kind == "audio":
            return f"{self.seconds:.1f} seconds"
        pixels = f"{self.width}x{self.height} pixels"
        return pixels if self.kind == "image" else f"{self.frames} frames of {pixels}"


Fits = Callable[[MediaSize, str], None]
"""(the size of an item, the field that it came from): raises where so large a one cannot be in the prompt."""


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedMedia:
    """Result of a model's processor for one `Media`. Its arrays are never written to."""

    kind: MediaKind
    digest: int
    """Equal for items of which the model sees the same; 0 < digest < 2**63."""
    inputs: Mapping[str, npt.NDArray[np.generic]]
    """Inputs of the model's tower for this item alone, by the names of the model's arguments."""
    expansion: str
    """Text in the rendered prompt for the item, which replaces the template's placeholder."""
    tokens: Sequence[int]
    """The expansion's token ids, the placeholders that features replace among them."""


@dataclass(frozen=True, slots=True, eq=False)
class MediaSpan:
    """Place of one item in a prompt."""

    media: ProcessedMedia
    places: npt.NDArray[np.int64]
    """`[n]`, ascending: the positions in the prompt of the placeholders that the item's n feature rows replace."""

    @property
    def start(self) -> int:
        return int(self.places[0])

    @property
    def stop(self) -> int:
        return int(self.places[-1]) + 1


class SpelledPlaceholder(ValueError):
    """A prompt has an item's placeholder that no item of the request belongs to: a text spells it."""


def media_keys(tokens: Sequence[int], spans: Sequence[MediaSpan]) -> list[int]:
    """`Prompt.keys` of a prompt with media: each placeholder is replaced by the negative digest of its item."""
    keys = list(tokens)
    for span in spans:
        for place in span.places.tolist():
            keys[place] = -span.media.digest
    return keys


def modalities(kinds: Collection[MediaKind]) -> tuple[str, ...]:
    """Kinds of input that a model reads, text first."""
    return "text", *(kind for kind in get_args(MediaKind) if kind in kinds)


class Contents:
    """Contents of one request's files and URLs. They are read by themselves, before it is prepared: that may block."""

    def __init__(self) -> None:
        self._read: dict[Hashable, bytes] = {}
        self._unread: dict[Hashable, Callable[[], bytes]] = {}

    def get(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """Bytes that were read under a key; none where `read` is still to be called."""
        if key not in self._read:
            self._unread[key] = read
        return self._read.get(key, b"")

    @property
    def unread(self) -> list[Callable[[], None]]:
        """Calls to make, on any threads, before the request is prepared again."""
        return [partial(self._keep, key, read) for key, read in self._unread.items()]

    def _keep(self, key: Hashable, read: Callable[[], bytes]) -> None:
        self._read[key] = read()
        del self._unread[key]


class UnreadError(Exception):
    """A request has `Contents` that are still to be read."""


ReadStored = Callable[[str, str], tuple[str, bytes]]
"""(id of an uploaded file, path of the field that names it) -> its name and content."""


@dataclass(frozen=True, slots=True)
class MediaRules:
    """Sources that a request may take media from."""

    remote: bool = False
    """http(s) URLs may be fetched."""
    folder: str | None = None
    """Files below this folder may be read; None: no files."""
    contents: Contents | None = field(default=None, compare=False)
    """Contents that were read from there; None: they are read where they are met."""
    stored: ReadStored | None = field(default=None, compare=False)
    """Reads uploaded files; None: there are none."""

    def read(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """Call `read`, which may block, or see `Contents.get`."""
        return read() if self.contents is None else self.contents.get(key, read)


NO_SOURCES = MediaRules()
"""Rules for media that travel with the request, and nothing else."""
