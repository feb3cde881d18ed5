"""Every architecture that mlx-lm defines says beside others, and on cached second turns, what it says alone.

docs/model-architectures.md says how each runs; this is what it is held against.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import mlx.core as mx
import mlx_lm.utils
import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.probes import ends_prompts
from localai_shim.types import ModelLoadError
from tests.architectures import Alone, architectures, engine_of, text_model
from tests.engine.ending import hold_end
from tests.engine.guessing import Oracle, speculate
from tests.engine.harness import Running, request
from tests.engine.turns import LENGTHS, TOKENS, take_two_turns, tokens
from tests.models_page import DOCUMENT, text_models

USUAL = ["bitnet", "gemma3n", "llama", "olmo"]
"""What the ordinary run tries."""
ENDS_BY_ITSELF = ["gemma3n", "gpt_neox", "lille-130m", "phixtral"]
"""A prompt's last token always has its own pass: decoders that give logits, or need more than tokens."""


def named(*hows: str) -> list[Any]:
    """The architectures that run so; most are left to the exhaustive run."""
    return [
        pytest.param(name, marks=[] if name in USUAL else pytest.mark.exhaustive)
        for name, how in text_models().items()
        if how in hows
    ]


def test_the_document_names_every_architecture() -> None:
    assert list(text_models()) == architectures()
    assert set(text_models().values()) == {"batched", "Metal only", "cannot run"}


def test_the_document_names_what_is_loaded_as_another() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == mlx_lm.utils.MODEL_REMAPPING


@pytest.mark.parametrize("name", named("batched", "one request at a time"))
def test_an_architecture_runs_as_documented_and_says_what_it_says_alone(name: str) -> None:
    with closing(engine_of(name)) as engine:
        stats = take_two_turns(engine, Alone(name).tokens)
        assert text_models()[name] == ("batched" if stats.max_rows > 1 else "one request at a time")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", named("batched", "one request at a time"))
def test_the_pass_that_ends_a_prompt_gives_the_logits_of_its_last_token(name: str) -> None:
    model = text_model(name)
    assert ends_prompts(model) is (name not in ENDS_BY_ITSELF)
    if name not in ENDS_BY_ITSELF:
        hold_end(model, tokens(21, 3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", named("batched"))
def test_an_architecture_says_the_same_with_drafts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, turns = Alone(name), [tokens(length, 3 + i) for i, length in enumerate(LENGTHS)]
    said = [alone.tokens(tuple(turn), 3 * TOKENS + i) for i, turn in enumerate(turns)]
    speculate(monkeypatch, Oracle(0.7, {(*turn, 0): known for turn, known in zip(turns, said, strict=True)}))
    engine = engine_of(name, EngineOptions(speculation="auto"))
    try:
        running = [Running(engine, request(turn, max_tokens=3 * TOKENS + i)) for i, turn in enumerate(turns)]
        assert [row.finish()[0] for row in running] == said
    finally:
        engine.close()


@pytest.mark.parametrize("name", named("cannot run"))
def test_what_cannot_run_says_so_when_it_is_loaded(name: str) -> None:
    with pytest.raises(ModelLoadError):
        engine_of(name).model  # noqa: B018


@pytest.mark.skipif(mx.metal.is_available(), reason="there they run, which nobody has held against anything")
@pytest.mark.parametrize("name", named("Metal only"))
def test_what_needs_metal_says_so_when_it_is_loaded(name: str) -> None:
    with pytest.raises(ModelLoadError, match="Metal"):
        engine_of(name).model  # noqa: B018
