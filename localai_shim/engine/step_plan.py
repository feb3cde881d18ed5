"""Plan of a step: plain values that can be printed, compared, and played again.

Rows are named by `Row.number`, prompts by the first of their rows, requests for vectors by `EmbeddingJob.number`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias


class Draft(NamedTuple):
    """Tokens that are guessed to follow a row's last one."""

    tokens: tuple[int, ...] = ()
    source: str = ""
    """Name of the source that guessed them; none where there are no tokens."""


@dataclass(frozen=True, slots=True)
class Decode:
    """A step of the batch: what is in flight is finished first, and what runs next is launched if nothing does."""

    rows: tuple[int, ...] = ()
    """Those that run, in the order of the batch."""
    drafts: tuple[Draft, ...] | None = None
    """A step of several tokens, with these drafts of each row; None: one token of each."""
    ahead: bool = True
    """The graph of the step after it is built while it runs; else a step of several tokens is finished at once."""


@dataclass(frozen=True, slots=True)
class Preempt:
    """A running row goes back into the queue, with its output."""

    row: int


@dataclass(frozen=True, slots=True)
class Limit:
    """Later prompts' prefixes and features shrink to what the rows leave."""

    spare: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Open:
    """A prompt begins, from the longest prefix that the prefix cache has."""

    prompt: int
    rows: int
    """So many of its rows, for which there is room; the others follow as a prompt of their own."""
    spare: int | None
    """See `Limit`; None: no limit is known."""
    turn: bool = False
    """More urgent ones wait: its rows keep their places from them for some tokens."""


@dataclass(frozen=True, slots=True)
class Item:
    """An image, video or sound of a prompt runs through the tower."""

    prompt: int
    digest: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One pass of tokens of a prompt, or of several short ones to their ends."""

    prompts: tuple[int, ...]
    most: int
    """Tokens."""
    beside: bool
    """Rows run, and wait for it: they get their next tokens before these rows' first ones."""
    last: bool
    """No other prompt waits for what this one leaves."""


@dataclass(frozen=True, slots=True)
class Join:
    """Prefilled rows join the batch."""

    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """One pass of texts, or the next piece of a long one."""

    texts: tuple[tuple[int, int], ...]
    """(request, place of the text in it)."""
    most: int
    """Tokens."""
    beside: bool
    """Rows run, and wait for it."""


Piece: TypeAlias = Preempt | Limit | Open | Item | Chunk | Join | Texts


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that a step of an engine does, in this order."""

    number: int
    """From 1."""
    enter: tuple[int, ...] = ()
    """Rows that were queued since the step before."""
    leave: tuple[int, ...] = ()
    """Rows that were cancelled or abandoned since then; some may have ended."""
    before: tuple[Piece, ...] = ()
    """Rows that make room in memory for the others' next tokens."""
    decode: Decode | None = None
    """None: no row runs."""
    beside: tuple[Piece, ...] = ()
    """Prompts or texts, while the rows' step runs."""

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, numbers and strings; a piece has its `kind` beside its fields."""
        pieces = {"before": [*map(_named, self.before)], "beside": [*map(_named, self.beside)]}
        return {**asdict(self), "enter": [*self.enter], "leave": [*self.leave], **pieces}


def _named(piece: Piece) -> dict[str, Any]:
    return {"kind": type(piece).__name__.lower(), **asdict(piece)}
