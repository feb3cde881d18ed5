"""Templates in the form of every family serve every use, on a tiny random model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from localai_shim import LocalOpenAI
from tests.templates.families import TEMPLATES
from tests.templates.models import make_model
from tests.templates.uses import USES, check


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    """A model with the template; all tests of one come one after another."""
    folder = make_model(TEMPLATES[request.param])
    try:
        with LocalOpenAI(folder, keep_alive=0, speculation="off") as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("client", TEMPLATES, indirect=True)
def test_a_use(client: LocalOpenAI, use: str) -> None:
    check(client, use)
