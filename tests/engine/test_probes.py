"""A model whose code misreads a batch is found when it is loaded, and runs one row at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine import probes as module
from localai_shim.engine.ports import PassOutput, StepInput, host
from localai_shim.engine.probes import Agreement, agreement, takes_several
from localai_shim.models import text
from localai_shim.models.text import TextModel
from tests import vlm_architectures
from tests.architectures import Alone, engine_of, text_model
from tests.engine.harness import Running, generate, request
from tests.samples import only
from tests.tiny import VOCABULARY

WARNING = "this model's code gives wrong results for several rows at once: it runs one row at a time"


@pytest.fixture(autouse=True)
def _nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_known", {})


@pytest.fixture
def as_upstream_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what makes it right: see tests/models/test_misreading_layers.py."""
    monkeypatch.setattr(text, "batch_attention", lambda model: 0)


def half(model: TextModel) -> TextModel:
    model._model.set_dtype(mx.bfloat16)
    return model


@pytest.mark.parametrize("change", [lambda model: model, half], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "gemma2", "gpt2"])
def test_rounding_is_no_reason(name: str, change: Callable[[TextModel], TextModel]) -> None:
    assert agreement(change(text_model(name))) == Agreement(in_pieces=True, together=True)


@pytest.mark.parametrize("change", [lambda model: model, half], ids=["float32", "bfloat16"])
@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_mask_that_falls_on_the_wrong_axis_is_found(change: Callable[[TextModel], TextModel]) -> None:
    assert agreement(change(text_model("gemma2"))) == Agreement(in_pieces=True, together=False)


@pytest.mark.parametrize("rows", [1, 4], ids=["one key head", "four"])
@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_mask_whose_shape_does_not_fit_is_found(rows: int) -> None:
    assert not agreement(text_model("gemma2", num_attention_heads=8, num_key_value_heads=rows)).together


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_position_that_all_rows_share_is_found() -> None:
    """afm7's last layers take the longest row's length for every row's position."""
    assert agreement(text_model("afm7")) == Agreement(in_pieces=True, together=False)


@pytest.mark.parametrize("change", [lambda model: model, half], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", only(["gemma3_text", "nemotron_h"], ["qwen3", "gemma3_text", "gpt2", "falcon_h1", "lfm2", "nemotron_h"])
)
def test_rounding_is_no_reason_against_several_tokens_in_a_step(name: str, change: Callable[..., TextModel]) -> None:
    assert takes_several(change(text_model(name)))


@pytest.mark.parametrize("name", ["baichuan_m1", "mamba", "nemotron_h"])
@pytest.mark.usefixtures("as_upstream_has_it")
def test_states_that_see_tokens_which_do_not_count_are_found(name: str) -> None:
    assert agreement(text_model(name)).together
    assert not takes_several(text_model(name))


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_position_that_is_read_as_a_number_is_found() -> None:
    """gpt_bigcode gives `cache.offset` to NumPy."""
    assert agreement(text_model("gpt_bigcode")) == Agreement(in_pieces=True, together=False)


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_prompt_that_sees_later_tokens_is_found() -> None:
    """phi3small adds its mask of true and false to the scores: its tokens see later ones of the same pass."""
    assert agreement(text_model("phi3small")) == Agreement(in_pieces=False, together=False)


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_model_that_fails_for_two_equal_rows_is_found() -> None:
    """DeepSeek-VL2's choice of experts gives a batch's tokens another shape."""
    model = vlm_architectures.text_model("deepseek_vl_v2", topk_method="noaux_tc")
    assert agreement(model) == Agreement(in_pieces=True, together=False)


def zeros_behind_the_first(x: mx.array) -> mx.array:
    return mx.concatenate([x[:1], mx.zeros_like(x[1:])])


def nan_behind_the_first(x: mx.array) -> mx.array:
    return mx.concatenate([x[:1], mx.full(x[1:].shape, mx.nan, x.dtype)])


BROKEN_ROTATIONS: dict[str, Callable[[mx.array, Any], mx.array]] = {
    "zeros for all rows but the first": lambda x, offset: zeros_behind_the_first(x),
    "zeros for all rows": lambda x, offset: mx.zeros_like(x),
    "another row's": lambda x, offset: x[::-1],
    "another row's, for one position for all": lambda x, offset: x[::-1] if isinstance(offset, int) else x,
    "zeros, for one position for all": lambda x, offset: mx.zeros_like(x) if isinstance(offset, int) else x,
    "NaN for all rows but the first": lambda x, offset: nan_behind_the_first(x),
}
"""What a kernel makes of one token of each of several rows, of what is right."""


@pytest.mark.parametrize("change", [lambda model: model, half], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("broken", BROKEN_ROTATIONS)
def test_a_kernel_that_is_wrong_for_several_rows_is_found(
    broken: str, change: Callable[[TextModel], TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    rope = mx.fast.rope

    def spoiled(x: mx.array, *arguments: Any, offset: Any, **options: Any) -> mx.array:
        out = rope(x, *arguments, offset=offset, **options)
        return BROKEN_ROTATIONS[broken](out, offset) if x.shape[-2] == 1 and len(x) > 1 else out

    monkeypatch.setattr(mx.fast, "rope", spoiled)
    assert agreement(change(text_model("qwen3"))) == Agreement(in_pieces=True, together=False)


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_model_that_misreads_batches_answers_rightly_with_one_row_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "localai_shim"):
        engine = engine_of("gemma2")
    try:
        assert [record.getMessage() for record in caplog.records] == [WARNING]
        assert engine.stats().max_rows == 1
        alone, prompts = Alone("gemma2"), [[3 + i + 2 * j for j in range(6 + 9 * i)] for i in range(4)]
        said = generate(engine, *[request(prompt, max_tokens=9) for prompt in prompts])
        assert said == [alone.tokens(tuple(prompt), 9) for prompt in prompts]
        several = Running(engine, [request(prompts[2], max_tokens=9)] * 3).finish()
        assert several == [alone.tokens(tuple(prompts[2]), 9)] * 3
    finally:
        engine.close()


# -- what is remembered ----------------------------------------------------------------------------------------------


class Counted:
    """A model and how often it was run."""

    def __init__(self, model: TextModel) -> None:
        self._model, self.passes = model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self.passes += 1
        return self._model.forward(step)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(module, "_known", {})


def test_a_model_is_tried_once_and_by_no_later_process(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counted(text_model("afm7"))
    first = agreement(model)  # type: ignore[arg-type]
    tried = model.passes
    assert tried and agreement(model) == first  # type: ignore[arg-type]
    forget(monkeypatch)
    assert agreement(model) == first  # type: ignore[arg-type]
    assert model.passes == tried


def test_steps_of_several_tokens_are_tried_once_and_by_no_later_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Counted(text_model("qwen3"))
    first = takes_several(model)  # type: ignore[arg-type]
    tried = model.passes
    assert tried and first == VOCABULARY
    forget(monkeypatch)
    assert takes_several(model) == first and model.passes == tried  # type: ignore[arg-type]
    [note] = (tmp_path / "localai_shim" / "agreement").iterdir()
    note.write_text("many tried")
    forget(monkeypatch)
    assert takes_several(model) == first and model.passes == 2 * tried  # type: ignore[arg-type]


@pytest.mark.usefixtures("as_upstream_has_it")
def test_a_model_is_tried_anew_on_another_chip_system_or_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes = Counted(text_model("afm7")), list[int]()
    for machine in ("M1, 24F74, mlx 1", "M2, 24F74, mlx 1", "M1, 24G84, mlx 1", "M1, 24F74, mlx 2", "M1, 24F74, mlx 1"):
        monkeypatch.setattr(host().machine, "identity", lambda machine=machine: machine)
        before = model.passes
        assert not agreement(model).together  # type: ignore[arg-type]
        passes.append(model.passes - before)
        forget(monkeypatch)
    assert passes == [passes[0]] * 4 + [0] and passes[0]


def test_another_model_and_other_options_are_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = text_model("qwen3"), text_model("qwen3", num_hidden_layers=2)
    assert one.fingerprint != other.fingerprint


@pytest.mark.usefixtures("as_upstream_has_it")
@pytest.mark.parametrize("content", ["", "1", "\x00", "tried 1", "in_pieces tried"])
def test_a_damaged_note_is_written_anew(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counted(text_model("afm7"))
    agreement(model)  # type: ignore[arg-type]
    [note] = (tmp_path / "localai_shim" / "agreement").iterdir()
    note.write_text(content)
    forget(monkeypatch)
    tried = model.passes
    assert agreement(model) == Agreement(in_pieces=True, together=False)  # type: ignore[arg-type]
    assert model.passes == 2 * tried and note.read_text() == "1 tried"
    assert [file.name for file in note.parent.iterdir()] == [note.name], "nothing is left lying about"


def test_a_folder_that_cannot_be_written_to_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "localai_shim").write_text("a file where the folder would be")
    assert agreement(text_model("qwen3")).together
