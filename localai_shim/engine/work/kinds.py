"""The kinds of work that an engine runs: one entry for each."""

from __future__ import annotations

from ...types import Task
from .alone.jobs import Alone
from .alone.runner import AloneRunner
from .lane import Kind
from .rows import Rows
from .runner import RowRunner, TextRunner
from .texts import TextJobs

KINDS: dict[Task, Kind] = {
    "generate": Kind("generates no text", Rows, RowRunner),
    "embed": Kind("embeds no texts", TextJobs, TextRunner),
    "rerank": Kind("ranks no documents", TextJobs, TextRunner),
    "transcribe": Kind("transcribes no speech", Rows, RowRunner),
    "align": Kind("aligns no words with speech", Alone, AloneRunner),
    "speak": Kind("speaks no texts", Alone, AloneRunner),
    "recognize": Kind("writes down no speech", Alone, AloneRunner),
}
