"""A scripted model that looks at the pictures in requests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localai_shim.media import Media, MediaKind, MediaSpan, ProcessedMedia
from localai_shim.testing import ScriptedEngine
from localai_shim.testing.model.replies import ScriptedModel


class SeeingModel(ScriptedModel):
    """A scripted model that decodes pictures, of which each is as many tokens as it has columns.

    Attributes:
        seen: the colour of the first pixel of each picture that was processed.
    """

    decodes_media = True
    media_kinds: frozenset[MediaKind] = frozenset(("image",))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[tuple[int, ...]] = []
        self.pad = self.tokenizer.intern("<image>")
        self.gate: threading.Event | None = None

    def process(self, media: Media) -> ProcessedMedia:
        self.seen.append(tuple(int(x) for x in media.data[0, 0]))
        if self.gate is not None:
            assert self.gate.wait(30)
        if media.data.shape[0] == 1:
            raise ValueError("it is one pixel high")
        digest = 1 + hash((self.seen[-1], media.data.shape)) % 2**60
        tokens = [self.pad] * media.data.shape[1]
        return ProcessedMedia(media.kind, digest, {"pixels": media.data.copy()}, "<image>", tokens)

    def apply_chat_template(self, *arguments: Any, media: Sequence[ProcessedMedia] = (), **more: Any) -> list[int]:
        """Each picture as its tokens."""
        if len(arguments) == 6:
            *arguments, media = arguments  # type: ignore[assignment]
        ids = super().apply_chat_template(*arguments, media=media, **more)
        items = iter(media)
        return [token for i in ids for token in (next(items).tokens if i == self.pad else (i,))]

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        places = np.flatnonzero(np.array(ids) == self.pad)
        counts = [len(item.tokens) for item in media]
        if sum(counts) != len(places):
            raise ValueError("the template left one out")
        parts = np.split(places, np.cumsum(counts)[:-1])
        return [MediaSpan(item, part) for item, part in zip(media, parts, strict=True)]


def seeing(monkeypatch: pytest.MonkeyPatch, *replies: Any, **options: Any) -> tuple[ScriptedEngine, SeeingModel]:
    """An engine that plays replies, and its model, which decodes pictures."""
    engine = ScriptedEngine(replies or ["Yes."] * 64, **options)
    model = SeeingModel("seeing", engine.model.context_length, engine.tokenizer)
    monkeypatch.setattr(engine, "_model", model)
    return engine, model
