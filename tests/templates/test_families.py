"""Templates in the form of every family serve every use, on a tiny random model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from localai_shim import LocalOpenAI
from tests.samples import only, sample
from tests.templates.families import TEMPLATES
from tests.templates.models import make_model
from tests.templates.uses import USES, check

QUICK = sample(TEMPLATES, 8, "families")
"""Making and loading a model takes a second."""
CASES = only([(name, use) for name in QUICK for use in USES], [(name, use) for name in TEMPLATES for use in USES])


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    """A model with the template; all tests of one come one after another."""
    folder = make_model(TEMPLATES[request.param])
    try:
        with LocalOpenAI(folder, keep_alive=0, speculation="off") as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(("client", "use"), CASES, indirect=["client"])
def test_a_use(client: LocalOpenAI, use: str) -> None:
    check(client, use)
