"""What several tests of grammars share."""

from __future__ import annotations

import pytest

from localai_shim.grammar.compile import GrammarCompiler
from tests.grammar.drafts import vocabulary_with


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary_with())
