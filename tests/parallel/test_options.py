"""What options and requests do on one process they do on several; what is not done is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import openai
import pytest
from mlx.utils import tree_flatten

from localai_shim import LocalOpenAI
from localai_shim.engine.engine import Engine
from tests.engine.guessing import Oracle, key, preempting, speculate
from tests.parallel.groups import asked, folder_of, mixed, one_by_one, running


def preempted(engine: Engine[Any]) -> list[list[int]]:
    with preempting(engine):
        return mixed(engine)


@pytest.mark.parametrize(
    ("changes", "options", "run"),
    [
        pytest.param({}, {}, preempted, id="rows that are preempted"),
        pytest.param({"head_dim": 32}, {"kv_bits": 8, "kv_group_size": 32}, mixed, id="quantised keys and values"),
        pytest.param({}, {"prefix_cache_bytes": 60_000}, mixed, id="prefixes that are dropped"),
    ],
)
def test_options_change_no_token(
    changes: dict[str, Any], options: dict[str, Any], run: Callable[[Engine[Any]], list[list[int]]]
) -> None:
    folder = folder_of("qwen3", **changes)
    with running(folder, **options) as engine:
        alone = one_by_one(engine, asked())
    with running(folder, 2, **options) as engine:
        assert run(engine) == alone
        assert run(engine) == alone


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_5"])
def test_drafts_that_are_right_and_wrong_change_no_token(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(folder_of(kind)) as engine:
        alone = one_by_one(engine, asked())
    speculate(monkeypatch, Oracle(0.7, {key(made): tokens for made, tokens in zip(asked(), alone, strict=True)}))
    with running(folder_of(kind), 2) as engine:
        assert mixed(engine) == alone
        counts = engine.stats().drafts["oracle"]
        assert 0 < counts.accepted < counts.drafted


def test_packed_weights_are_cut_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    whole = folder_of("qwen3", hidden_size=128, intermediate_size=256, head_dim=32)
    mlx_lm.convert(str(whole), str(folder), quantize=True, q_group_size=32, q_bits=4)
    with running(folder) as engine:
        alone, unpacked = one_by_one(engine, asked()), engine.model.weight_bytes
    with running(folder, 2) as engine:
        assert mixed(engine) == alone
        assert engine.model.weight_bytes < unpacked / 2, "not unpacked for the CPU"


def test_no_process_holds_all_weights() -> None:
    folder = folder_of("qwen3", intermediate_size=8192)
    whole = sum(array.nbytes for array in mx.load(str(folder / "model.safetensors")).values())  # type: ignore[union-attr]
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with running(folder, 2) as engine:
        own = sum(array.nbytes for _, array in tree_flatten(engine.model._model.parameters()))
        assert own == engine.model.weight_bytes < 0.6 * whole
        assert mx.get_peak_memory() - before < 0.9 * whole


@pytest.mark.parametrize("name", ["cache_dir", "draft_model", "adapter_path"])
def test_options_that_need_one_process_are_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` needs a model that runs in one process"):
        LocalOpenAI(model=folder_of("qwen3"), tensor_parallel=2, **{name: tmp_path})  # type: ignore[arg-type]


def refusal(folder: Path, processes: int, ask: Callable[[LocalOpenAI], object]) -> str:
    """What a request to a model that was to be spread is told."""
    with LocalOpenAI(model=folder, tensor_parallel=processes, keep_alive=0, max_retries=0) as client:
        with pytest.raises(openai.APIStatusError) as raised:
            ask(client)
        return raised.value.message


def complete(client: LocalOpenAI) -> object:
    return client.completions.create(model="any", prompt="Hello", max_tokens=2)


def test_a_model_that_cannot_be_spread_is_refused_before_a_process_is_started() -> None:
    told = refusal(folder_of("gemma3_text"), 2, complete)
    assert "models of kind 'gemma3_text'" in told and "run in one process only" in told
    assert "llama" in told and "qwen3," in told and "gemma3" not in told.partition("over several")[2]


def test_heads_that_cannot_be_shared_evenly_are_refused() -> None:
    assert "has 4 num_attention_heads, which 3 processes" in refusal(folder_of("qwen3"), 3, complete)


def test_vectors_are_refused_by_name() -> None:
    told = refusal(folder_of("qwen3"), 2, lambda client: client.embeddings.create(model="any", input="Hello"))
    assert "cannot embed texts" in told
