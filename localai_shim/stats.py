"""Figures of an engine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple


class Percentiles(NamedTuple):
    """Of the last measurements, in seconds; zeros if there are none."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0


_NOTHING = Percentiles()


class DraftCounts(NamedTuple):
    """Draft tokens that were run, and how many of them were accepted."""

    drafted: int = 0
    accepted: int = 0

    def plus(self, drafted: int, accepted: int) -> DraftCounts:
        """With this number of additional ones."""
        return DraftCounts(self.drafted + drafted, self.accepted + accepted)


NO_DRAFTS = DraftCounts()


class InputCounts(NamedTuple):
    """Tokens of an input: all, those that the prefix cache had, and those that stand for media."""

    tokens: int
    cached: int = 0
    media: int = 0


@dataclass(slots=True)
class RowTimings:
    """Times of one row's stages, with its outcome. The engine fills them in before the row's last event.

    Times are seconds, as `time.monotonic` says; None: it did not come to that, or this engine does not say.
    """

    queued: float | None = None
    """It was submitted."""
    begun: float | None = None
    """The first tokens of its prompt were run, or found in the prefix cache."""
    prefilled: float | None = None
    """It joined the batch."""
    first_token: float | None = None
    """Its first token was sampled."""
    finished: float | None = None
    """Its last token was, or it failed, or left."""
    output: Sequence[int] = ()
    """Its tokens so far. The engine's own list, which grows: to be counted, not kept."""
    finish_reason: str | None = None
    """Reason of its last token; None: it has none."""
    batch_rows: float | None = None
    """Rows that decoded together, itself included: the mean of the steps that it was in."""
    drafts: DraftCounts = NO_DRAFTS
    """Those that were run for it, and those that were right."""
    _steps: tuple[int, int] | None = None
    """The engine's steps, and rows times steps, when it joined."""

    def queue(self) -> None:
        """Note that the row is submitted."""
        self.queued = time.monotonic()

    def begin(self) -> None:
        """Note that its prompt begins; of this, of joining, and of tokens the first time counts."""
        if self.begun is None:
            self.begun = time.monotonic()

    def join(self, steps: tuple[int, int]) -> None:
        """Note that the row joins the batch."""
        if self.prefilled is None:
            self.prefilled, self._steps = time.monotonic(), steps

    def sample(self) -> None:
        """Note that a token is sampled."""
        if self.first_token is None:
            self.first_token = time.monotonic()

    def finish(self, steps: tuple[int, int]) -> None:
        """Note that the row leaves the engine."""
        self.finished = time.monotonic()
        if self._steps is not None and steps[0] > self._steps[0]:
            self.batch_rows = (steps[1] - self._steps[1]) / (steps[0] - self._steps[0])


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Snapshot of an engine's counters and timings. Counters start at zero when the engine starts.

    Example:
        >>> from localai_shim import LocalOpenAI
        >>> with LocalOpenAI() as client:
        ...     answer = client.responses.create(model="any", input="Hello")
        ...     stats = client.stats()
        >>> print(stats)
        running   ...
        modalities ...text
        >>> stats.to_dict()["step_seconds"].keys()
        dict_keys(['p50', 'p90', 'p99', 'max'])
    """

    running: int
    """Sequences being decoded."""
    waiting: int
    """Sequences queued or being prefilled."""
    steps: int
    """Decode steps so far."""
    max_rows: int = 0
    """Maximum sequences decoded together; 1 if the model cannot be batched. 0 if unknown."""
    prompt_tokens: int = 0
    """Prompt tokens of the sequences that started to decode."""
    prefilled_tokens: int = 0
    """Prompt tokens that were prefilled."""
    generated_tokens: int = 0
    """Output tokens so far."""
    embedded_texts: int = 0
    """Texts that were embedded."""
    embedded_tokens: int = 0
    """Tokens of the texts that were embedded."""
    refused: int = 0
    """Sequences rejected because the queue was full."""
    preempted: int = 0
    """Times a sequence was returned to the queue because memory ran out."""
    cache_hits: int = 0
    """Prompts whose beginning was in the prefix cache."""
    cache_misses: int = 0
    """Prompts whose beginning was not in the prefix cache."""
    cache_tokens: int = 0
    """Prompt tokens served from the prefix cache."""
    cache_bytes: int = 0
    """Bytes in the prefix cache."""
    tower_runs: int = 0
    """Images, videos, and audio clips that the vision or audio encoder ran."""
    feature_hits: int = 0
    """Image, video, and audio features served from the cache."""
    feature_bytes: int = 0
    """Bytes of cached image, video, and audio features."""
    adapter_bytes: int = 0
    """Bytes of the loaded LoRA adapters."""
    kv_bytes: int = 0
    """Bytes of the KV caches of running sequences, free room and `shared_bytes` included."""
    shared_bytes: int = 0
    """Bytes of prompt tokens that running sequences share, each counted once."""
    kv_bytes_per_token: int = 0
    """Bytes per token in the KV cache of a sequence."""
    kv_bytes_per_token_unquantised: int = 0
    """Bytes per token without `kv_bits`."""
    kv_budget: int | None = None
    """Maximum bytes for KV caches and the prefix cache together; None if unknown."""
    active_bytes: int = 0
    """Bytes that MLX holds in this process, including weights and other models."""
    step_seconds: Percentiles = _NOTHING
    """Duration of the last 1,024 decode steps."""
    stall_seconds: Percentiles = _NOTHING
    """Time running sequences waited for prompts, over the last 1,024 waits."""
    drafts: Mapping[str, DraftCounts] = field(default_factory=dict[str, DraftCounts])
    """Draft tokens by source: "prediction", "lookup" (repeated text), "grammar" (tokens without a choice), "model"
    (`draft_model`), "mtp" (the model's head)."""
    backend: str = ""
    """Device, and on a CPU the BLAS."""
    failure: str = ""
    """Why all requests fail until the process is restarted; empty if they do not."""
    modalities: tuple[str, ...] = ()
    """Kinds of input: "text", and "image", "video", "audio" if the model reads them. Empty until it is loaded."""
    plans: tuple[Mapping[str, object], ...] = ()
    """Plans of the last 64 steps, in order, with `stats(plans=True)`; empty otherwise."""

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, numbers and strings, for `json.dumps`; the caller's own."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def __str__(self) -> str:
        """A small table: a line per field that says something, with units."""
        shown = {
            each.name: _shown(each.name, getattr(self, each.name))
            for each in fields(self)
            if each.default is MISSING or getattr(self, each.name) != each.default
        }
        width = max(map(len, shown))
        return "\n".join(f"{name:{width}}  {text}" for name, text in shown.items() if text)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else [_plain(part) for part in value]
    return value


def _shown(name: str, value: object) -> str:
    """A field's value as a person reads it; empty where there is nothing to say."""
    if isinstance(value, Percentiles):
        return ", ".join(f"{part} {seconds * 1000:.2f} ms" for part, seconds in value._asdict().items())
    if isinstance(value, Mapping):
        return ", ".join(f"{source}: {counts.accepted} of {counts.drafted} right" for source, counts in value.items())
    if isinstance(value, tuple):
        return ", ".join(value) if name == "modalities" else f"{len(value):,}"
    if isinstance(value, int) and ("bytes" in name or name.endswith("budget")):
        return show_bytes(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_bytes(size: float) -> str:
    """A size as a person reads it, such as '1.5 GB'."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
