"""A pass that ends a prompt gives the logits of its last token, and its head sees nothing else."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from localai_shim.engine.ports import StepInput
from localai_shim.engine.probes import ends_prompts
from localai_shim.models.heads import last_logits
from localai_shim.models.text import TextModel
from tests import architectures, inside, vlm_architectures
from tests.engine.counting import KINDS, tokens
from tests.engine.ending import hold_end
from tests.engine.harness import step_of
from tests.machine_forms import FillingForms

USUAL = ["gemma2", "nemotron_h", "olmo2", "qwen3_5"]


@pytest.mark.parametrize("name", USUAL)
def test_a_pass_gives_the_logits_of_a_prompts_last_token(name: str) -> None:
    model = architectures.text_model(name)
    assert model.end_tokens >= last_logits.END_TOKENS_PER_LAYER and ends_prompts(model)
    hold_end(model, tokens(21))


def test_a_pass_gives_the_logits_of_a_prompts_last_token_for_models_of_mlx_vlm() -> None:
    model = vlm_architectures.text_model("qwen3_vl_moe")
    assert ends_prompts(model)
    hold_end(model, tokens(21))


def test_a_decoder_that_gives_logits_ends_no_prompt() -> None:
    assert not ends_prompts(architectures.text_model("gpt_neox"))


def load(kind: str = "llama") -> TextModel:
    return architectures.text_model(kind)


class Seen(nn.Module):  # type: ignore[misc]
    """A head that remembers the shapes of what it was given."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head, self.shapes = head, set[tuple[int, ...]]()

    def __call__(self, states: mx.array) -> mx.array:
        self.shapes.add(states.shape[:2])
        return self.head(states)


def test_the_head_sees_one_position_of_each_row() -> None:
    model = load()
    head = inside.network(model).lm_head = Seen(inside.network(model).lm_head)
    model.prefill(StepInput(mx.array([tokens(21)]), model.new_cache(), ends=True))
    assert head.shapes == {(1, 1)}
    head.shapes.clear()
    padded = mx.array([tokens(9), [*tokens(5), 0, 0, 0, 0]])
    model.prefill(StepInput(padded, model.new_cache(), counts=[9, 5], ends=True))
    assert head.shapes == {(2, 1)}


def test_the_model_itself_goes_on_giving_all_logits() -> None:
    model = load()
    before = model.forward(step_of(tokens(9), model.new_cache())).logits
    model.prefill(StepInput(mx.array([tokens(9)]), model.new_cache(), ends=True))
    assert mx.array_equal(model.forward(step_of(tokens(9), model.new_cache())).logits, before)
    assert model.prefill(step_of(tokens(9), model.new_cache())).logits is None


@pytest.mark.parametrize("fills", [False, True], ids=["as it is", "filled as on CUDA"])
def test_of_rows_that_are_padded_it_is_the_last_token_that_counts(fills: bool) -> None:
    model = load()
    if fills:
        model._forms = FillingForms()
    for rows in ([tokens(9)], [tokens(9), tokens(5, 2), tokens(7, 3)]):
        padded = mx.array([[*row, *[0] * (9 - len(row))] for row in rows])
        together = model.prefill(
            StepInput(padded, model.new_cache(), counts=[len(row) for row in rows], ends=True)
        ).logits
        assert together is not None and len(together) == len(rows)
        for logits, row in zip(together, rows, strict=True):
            alone = model.forward(step_of(row, model.new_cache())).logits[0, -1]
            assert mx.allclose(logits, alone, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_where_it_is_filled_the_caches_hold_the_prompt_alone(kind: str) -> None:
    model = load(kind)
    model._forms = FillingForms()
    hold_end(model, tokens(21))


def test_longer_passes_take_more_time_so_than_they_save() -> None:
    eight_billion = 16 * 2**30
    assert last_logits.end_tokens(36, eight_billion) == 36 * 8
    assert last_logits.end_tokens(1, 2**19) == 64, "small models take as long for other reasons"


def test_nothing_holds_the_model_when_it_goes() -> None:
    import gc
    import weakref

    model = load()
    model.prefill(StepInput(mx.array([tokens(9)]), model.new_cache(), ends=True))
    inner = weakref.ref(inside.network(model).model)
    gc.disable()
    try:
        del model
        assert inner() is None
    finally:
        gc.enable()
