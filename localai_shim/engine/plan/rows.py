"""The parts that run rows: their prompts, and the batch, which decodes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...types import GenerationRequest, Sink
from ..decode.batch import Batch
from ..ports import Model
from ..row import Row
from .planner import Planner
from .prompt_runner import PromptRunner


class Rows:
    """Runs the rows of an engine.

    Args:
        model: what they run on.
        batch: decodes them.
        prompts: prefills their prompts, and has them join that batch.
        planner: says what each step does.
    """

    def __init__(self, model: Model, batch: Batch, prompts: PromptRunner, planner: Planner) -> None:
        self._model, self.batch, self.prompts, self._planner = model, batch, prompts, planner

    def __len__(self) -> int:
        """Rows that run and wait."""
        return len(self.batch) + len(self.prompts)

    def enter(self, work: GenerationRequest, sink: Sink, index: int) -> Row:
        """Make the row of a request."""
        return Row(work, sink, index, self._model)

    def add(self, entries: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.prompts.add(entries)
        self._planner.entered(entries)

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may be waiting, running or gone; no event is sent. Where that fails, all that wait fail."""
        self._planner.left(gone)
        self.batch.drop(gone)
        try:
            self.prompts.drop(gone)
        except BaseException as error:
            self.prompts.fail(error)

    def restart(self) -> None:
        """Have every row read its tokens again, those that it has generated too: the model is to change."""
        self.prompts.restart()

    def decode(self) -> None:
        """Give every running row its next token."""
        for piece in self._planner.before():
            if not self.prompts.run(piece):
                break
        self.batch.step(self._planner.decode)
