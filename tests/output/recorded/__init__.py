"""Answers as models write them, and what they say: `CASES` by family."""

from __future__ import annotations

from tests.output.recorded.bare_forms import BARE_FORMS
from tests.output.recorded.case import Case
from tests.output.recorded.channel_forms import CHANNEL_FORMS
from tests.output.recorded.header_forms import HEADER_FORMS
from tests.output.recorded.json_forms import JSON_FORMS
from tests.output.recorded.python_forms import PYTHON_FORMS
from tests.output.recorded.scenarios import scenarios
from tests.output.recorded.tagged_forms import TAGGED_FORMS
from tests.output.recorded.writers import WRITERS

CASES: list[Case] = [
    *(case for writer in WRITERS.values() for case in scenarios(writer)),
    *BARE_FORMS,
    *JSON_FORMS,
    *HEADER_FORMS,
    *TAGGED_FORMS,
    *PYTHON_FORMS,
    *CHANNEL_FORMS,
]

__all__ = ["CASES", "WRITERS", "Case"]
