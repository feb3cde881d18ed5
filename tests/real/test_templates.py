"""Each chat template that llama.cpp and vLLM publish serves every use, on a tiny random model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from tests.real.excuses import EXCUSES
from tests.real.templates import EXPECTED, templates
from tests.templates.models import make_model
from tests.templates.uses import USES, check

TEMPLATES = templates()


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    """A model with the template; all tests of one come one after another."""
    folder = make_model(TEMPLATES[request.param].read_text(encoding="utf-8"))
    try:
        with LocalOpenAI(folder, keep_alive=0, speculation="off") as made:
            yield made
    finally:
        shutil.rmtree(folder)


def cases() -> list[Any]:
    """Every use of every template; what is excused has to fail still."""
    found = []
    for template in TEMPLATES:
        for use in USES:
            reason = EXCUSES.get((template, use))
            marks = [pytest.mark.xdist_group(template)]
            if reason is not None:
                marks.append(pytest.mark.xfail(reason=reason, strict=True))
            found.append(pytest.param(template, use, marks=marks, id=f"{template}-{use}"))
    return found


def test_all_templates_are_there() -> None:
    assert len(TEMPLATES) >= EXPECTED


def test_excuses_are_for_what_is_there() -> None:
    assert {(template, use) for template, use in EXCUSES if template not in TEMPLATES or use not in USES} == set()


@pytest.mark.parametrize(("client", "use"), cases(), indirect=["client"])
def test_a_use(client: LocalOpenAI, use: str) -> None:
    check(client, use)
