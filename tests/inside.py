"""Private parts of clients, engines, and models, by what they are: a renamed attribute is one change here."""

from __future__ import annotations

from typing import Any


def runtime(client: Any) -> Any:
    """What a client's requests run on."""
    return client._runtime


def engine(client: Any) -> Any:
    """The engine of a client's only or first model, which is started if it was not."""
    return client._runtime.engine_of("")


def store(client: Any) -> Any:
    """Where a client keeps responses, files, and the like."""
    return client._runtime.store()


def loop(engine: Any) -> Any:
    """What an engine's thread runs."""
    return engine._loop


def worker(engine: Any) -> Any:
    """What waits for an engine's thread, and has it as `thread`."""
    return engine._work


def setup(engine: Any) -> Any:
    """A loaded engine's memory, prefix cache, features, costs, and drafts."""
    return engine._loop._setup


def rows(engine: Any) -> Any:
    """The rows of a loaded engine: its batch and its prompts."""
    return engine._loop._batcher.rows


def decode_steps(engine: Any) -> int:
    """Decode steps of an engine so far."""
    steps: int = loop(engine)._meter.steps[0]
    return steps


def end_step(engine: Any) -> None:
    """Wait until the step is over that has delivered the latest events."""
    engine._change(lambda: None).result(60)


def network(model: Any) -> Any:
    """The upstream model in a loaded model, or the model of a drafter."""
    return model._model


def tokenizer(wrapper: Any) -> Any:
    """The upstream tokenizer in a tokenizer."""
    return wrapper._tokenizer
