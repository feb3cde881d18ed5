"""Features that the model's tower made of images, videos and sounds, kept for other prompts that have the same.

Many prompts with one picture run it once, later turns not at all. The budget is an eighth of the prefix cache's by
default, since features are about an eighth as large as the keys and values that follow from them. Where the tower
raises, all prompts that wait for the item fail, and the next one that has it tries again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import mlx.core as mx

from ...types import log
from ..ports import Features, MediaSpan, Model

if TYPE_CHECKING:
    from .prefill import PrefillJob

Key = tuple[str | None, int]
"""(media_salt, digest): see `Prompt` and `ProcessedMedia`."""


class FeatureCache:
    """Features by salt and digest, the least recently used first out, but none that are in use.

    Args:
        budget: most bytes, those in use included, which may be more by themselves.

    Attributes:
        runs: how many were made.
        hits: how many more were asked for and were there.
        bytes: what is held.
    """

    def __init__(self, budget: int) -> None:
        self.runs = self.hits = self.bytes = 0
        self._budget, self._spare = budget, budget
        self._kept: OrderedDict[Key, Features] = OrderedDict()
        self._pins: Counter[Key] = Counter()

    @property
    def pinned_bytes(self) -> int:
        """Bytes of what is in use."""
        return sum(self._kept[key].nbytes for key in self._pins)

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def pin(self, key: Key) -> Features | None:
        """Pin and return features: they stay until `release` was called as often. None: they are not here."""
        features = self._kept.get(key)
        if features is None:
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        self._pins[key] += 1
        return features

    def add(self, key: Key, features: Features) -> None:
        """Hold new features, pinned once."""
        self.runs += 1
        self._kept[key] = features
        self.bytes += features.nbytes
        self._pins[key] += 1
        self._evict()

    def release(self, key: Key) -> None:
        """Undo `pin` or `add`."""
        self._pins[key] -= 1
        if not self._pins[key]:
            del self._pins[key]
            self._evict()

    def limit(self, spare: int) -> None:
        """Hold at most `spare` bytes that are not in use, until the next call."""
        self._spare = spare
        self._evict()

    def clear(self) -> None:
        """Drop everything; nothing is in use any more."""
        self._kept.clear()
        self._pins.clear()
        self.bytes = 0

    def _evict(self) -> None:
        while self.bytes > self.pinned_bytes and (
            self.bytes > self._budget or self.bytes - self.pinned_bytes > self._spare
        ):
            oldest = next(key for key in self._kept if key not in self._pins)
            self.bytes -= self._kept.pop(oldest).nbytes


class Tower:
    """Runs items through the model's tower for the prompts that need them, one at a time.

    Args:
        model: has the tower.
        features: where what it makes is kept.
    """

    def __init__(self, model: Model, features: FeatureCache) -> None:
        self._model, self.features = model, features
        self._row_bytes = 0
        """Bytes of one placeholder's features, at most; 0: none was run yet."""
        self._run_bytes = 0
        """Bytes that a run took, at most, where it took more than the process ever had before."""

    def missing(self, job: PrefillJob) -> MediaSpan | None:
        """The first item of a job without features here."""
        missing = (span for key, span in _keyed(job) if key[1] not in job.features and key not in self.features)
        return next(missing, None)

    def pin(self, job: PrefillJob) -> None:
        """Pin the features that are here for a job."""
        for key, _ in _keyed(job):
            if key[1] not in job.features and (features := self.features.pin(key)) is not None:
                job.features[key[1]] = features

    def run(self, job: PrefillJob, span: MediaSpan) -> None:
        """Run an item for a job, and wait for it. Raises what the model does."""
        active, peak = mx.get_active_memory(), mx.get_peak_memory()
        features = self._model.embed(span.media)
        if (now := mx.get_peak_memory()) > peak:
            self._run_bytes = max(self._run_bytes, now - active)
        self._row_bytes = max(self._row_bytes, -(-features.nbytes // len(span.places)))
        self.features.add((job.prompt.media_salt, span.media.digest), features)
        job.features[span.media.digest] = features

    def release(self, job: PrefillJob) -> None:
        """A job needs its features no longer. Never raises: they stay held if that fails."""
        digests = [*job.features]
        job.features.clear()
        for digest in digests:
            try:
                self.features.release((job.prompt.media_salt, digest))
            except BaseException:
                log.exception("features could not be released, and stay")

    def limit(self, spare: int) -> None:
        """See `FeatureCache.limit`. Never raises: more than that stays if it fails."""
        try:
            self.features.limit(spare)
        except BaseException:
            log.exception("features could not be evicted, and stay")

    def bytes_for(self, jobs: Iterable[PrefillJob]) -> int:
        """Most bytes of the features that these jobs need, and of a run where some are to be made."""
        places = {key: len(span.places) for job in jobs for key, span in _keyed(job)}
        runs = any(key not in self.features for key in places)
        return self._row_bytes * sum(places.values()) + runs * self._run_bytes


def _keyed(job: PrefillJob) -> Iterator[tuple[Key, MediaSpan]]:
    return (((job.prompt.media_salt, span.media.digest), span) for span in job.spans())
