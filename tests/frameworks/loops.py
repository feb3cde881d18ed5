"""An agent's loop, as a model of any family writes its part of it.

Three answers: two calls at once, of which one fails; a call that makes up for it; and what was asked for, as JSON or as
a call. The prompts are those of a template in the family's form.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim.formats.markup import REASONING
from localai_shim.models.chat_templates import find_formats
from localai_shim.testing import ScriptedEngine
from tests.frameworks.kit import PARIS, Weather
from tests.templates.families import TEMPLATES
from tests.templates.writing import ONE_CALL, Call, scripted_tokenizer, written

EACH = pytest.mark.parametrize(
    ("name", "api"), [(name, ("chat_completions", "responses")[i % 2]) for i, name in enumerate(TEMPLATES)]
)
"""Every family with one of the two APIs."""

QUESTION = "How is the weather in the lost city, and what is the sum?"
NO_PLACE = "There is no such place."
SKY = "a clear sky"
ASKED: list[Call] = [("get_weather", {"city": "Atlantis"}), ("add_numbers", {"first": 19, "second": 2.5})]
ASKED_AGAIN: list[Call] = [("get_weather", {"city": "Paris"})]


class Family:
    """A scripted model of a family.

    Args:
        name: of its template.
        fills: a tool that takes the structured answer; None: it is JSON.

    Attributes:
        engine: plays its part.
        ran: the calls that were run, in order.
    """

    def __init__(self, name: str, fills: str | None = None) -> None:
        tokenizer = scripted_tokenizer(name)
        self._markup = find_formats(tokenizer)  # type: ignore[arg-type]  # it has what is read of a real one
        self._name, self._fills = name, fills
        self.engine = ScriptedEngine(self._answer, tokenizer=tokenizer)
        self.ran: list[Call] = []

    def get_weather(self, city: str) -> str:
        """Get the weather of a city. Raises LookupError for one that there is not."""
        self.ran.append(("get_weather", {"city": city}))
        if city != "Paris":
            raise LookupError(NO_PLACE)
        return SKY

    def add_numbers(self, first: float, second: float) -> str:
        """Add two numbers."""
        self.ran.append(("add_numbers", {"first": first, "second": second}))
        return str(first + second)

    def check(self, made: Any, text: str | None = None) -> None:
        """The loop went as scripted: what it made, and the text that was streamed."""
        assert isinstance(made, Weather) and made.model_dump() == PARIS
        assert sorted(self.ran, key=repr) == sorted([*ASKED, *ASKED_AGAIN], key=repr)
        first, *_, second, third = self.engine.prompts
        assert QUESTION in first and "get_weather" in first and "add_numbers" in first
        assert NO_PLACE not in first
        assert NO_PLACE in second and "21.5" in second and "Atlantis" in second
        assert SKY in third and NO_PLACE in third
        if text is not None:
            assert json.loads(text) == PARIS

    def _answer(self, request: Any, prompt: str, index: int) -> str:
        turns = [*([each] for each in ASKED), ASKED_AGAIN] if self._name in ONE_CALL else [ASKED, ASKED_AGAIN]
        thought = ""
        if self._markup.think_end is not None and self._markup.state_after(prompt) == REASONING:
            thought = f"Hm.{self._markup.think_end}"
        if index < len(turns):
            return thought + written(self._name, turns[index])
        if self._fills:
            return thought + written(self._name, [(self._fills, PARIS)])
        return thought + written(self._name, content=json.dumps(PARIS))
