"""Every family that only mlx-vlm defines says beside others, and on cached second turns, what it says alone.

docs/model-architectures.md says how each runs; this is what it is held against. Media are not in it:
see tests/models/vision/test_model.py.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from localai_shim.engine.kv import RowCache
from localai_shim.engine.probes import ends_prompts
from localai_shim.models.vision.families import refuse
from localai_shim.types import ModelLoadError
from tests import models_page
from tests.engine.ending import hold_end
from tests.engine.turns import take_two_turns, tokens
from tests.models_page import DOCUMENT
from tests.vlm_architectures import Alone, engine_of, families, sees, text_model

USUAL = ["jina_vlm", "llama4", "mllama", "qwen3_vl_moe", "siglip"]
"""What the ordinary run tries."""


def without_text() -> list[str]:
    """What docs/model-architectures.md lists as no models of text."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("Generate no text: ")[2].partition("\n")[0]
    return re.findall(r"`(\w+)`", section)


def named(*hows: str) -> list[Any]:
    """The families that run so; most are left to the exhaustive run."""
    return [
        pytest.param(name, marks=[] if name in USUAL else pytest.mark.exhaustive)
        for name, (how, *_) in models_page.families().items()
        if how in hows
    ]


def kinds_of(row: RowCache) -> str:
    parts = [part for layer in row for part in (getattr(layer, "caches", None) or [layer])]
    return ", ".join(sorted({type(part).__name__ for part in parts}))


def test_the_document_names_every_family_and_what_it_reads() -> None:
    documented = models_page.families()
    assert sorted([*documented, *without_text()]) == families()
    assert {name: media for name, (_, _, media) in documented.items()} == {name: sees(name) for name in documented}
    assert {how for how, *_ in documented.values()} == {"batched", "one request at a time", "rejected", "not tried"}


@pytest.mark.parametrize("name", named("batched", "one request at a time"))
def test_a_family_runs_as_documented_and_says_what_it_says_alone(name: str) -> None:
    with closing(engine_of(name)) as engine:
        stats = take_two_turns(engine, Alone(name).tokens)
        how, kinds, _ = models_page.families()[name]
        assert how == ("batched" if stats.max_rows > 1 else "one request at a time")
        assert kinds == kinds_of(text_model(name).new_cache())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", named("batched", "one request at a time"))
def test_where_the_pass_that_ends_a_prompt_is_trusted_its_logits_are_those_of_the_last_token(name: str) -> None:
    if ends_prompts(model := text_model(name)):
        hold_end(model, tokens(21, 3))


@pytest.mark.parametrize("name", [*named("rejected"), *(pytest.param(name) for name in without_text())])
def test_what_no_batch_can_run_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"\({name}\) cannot be served: it \w+"):
        refuse("it", {"model_type": name}, {})
