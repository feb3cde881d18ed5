"""Options and requests do on several processes what they do on one; the others are refused by name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import openai
import pytest
from mlx.utils import tree_flatten

from localai_shim import LocalOpenAI
from localai_shim.engine.drafts.sources import PredictedText, PromptLookup
from localai_shim.scale.parallel import group
from localai_shim.types import EngineClosedError, ModelLoadError
from tests.engine.guessing import speculate
from tests.engine.harness import GREEDY, Running, generate, leave_room_for, request
from tests.scale.parallel.groups import asked, folder_of, followers, mixed, one_by_one, running


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        pytest.param({"head_dim": 32}, {"kv_bits": 8, "kv_group_size": 32}, id="quantised keys and values"),
        pytest.param({}, {"prefix_cache_bytes": 60_000}, id="prefixes that are dropped"),
    ],
)
def test_options_change_no_token(changes: dict[str, Any], options: dict[str, Any]) -> None:
    folder = folder_of("qwen3", **changes)
    with running(folder, **options) as engine:
        alone = one_by_one(engine, asked())
    with running(folder, 2, **options) as engine:
        assert mixed(engine) == alone
        assert mixed(engine) == alone


def test_rows_that_memory_runs_out_for_go_on_as_if_nothing_had_been(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [request(range(9 + i, 49 + i), GREEDY, 24, ignore_eos=True) for i in range(3)]
    with running(folder_of("qwen3"), prefix_cache_bytes=0) as engine:
        alone = one_by_one(engine, asked)
    with running(folder_of("qwen3"), 2, prefix_cache_bytes=0) as engine:
        leave_room_for(engine, [each.prompt for each in asked], monkeypatch)
        rows = [Running(engine, each) for each in asked]
        assert [each.finish()[0] for each in rows] == alone
        assert engine.stats().preempted


def test_drafts_from_texts_change_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(folder_of("qwen3")) as engine:
        alone = one_by_one(engine, asked())
    speculate(monkeypatch, PredictedText(), PromptLookup())
    half = alone[0][:2] + alone[1]
    predicted = [replace(made, prediction=lambda: follower_of(half)) for made in asked()]
    with running(folder_of("qwen3"), 2) as engine:
        assert generate(engine, *predicted) == alone
        counts = engine.stats().drafts["prediction"]
        assert 0 < counts.accepted < counts.drafted


def follower_of(text: Sequence[int]) -> Callable[[Sequence[int], int], Sequence[int]]:
    """Predicts that an output is this text."""
    return lambda output, most: text[len(output) : len(output) + most]


def test_packed_weights_are_cut_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    whole = folder_of("qwen3", hidden_size=128, intermediate_size=256, head_dim=32)
    mlx_lm.convert(str(whole), str(folder), quantize=True, q_group_size=32, q_bits=4)
    with running(folder) as engine:
        alone = one_by_one(engine, asked())
    with running(folder, 2) as engine:
        assert mixed(engine) == alone
        cut = engine.model._model.model.layers[0].mlp.up_proj.weight
        assert cut.dtype == mx.uint32 and cut.shape == (128, 16), "half of the outputs, and not unpacked for the CPU"


def test_no_process_holds_all_weights() -> None:
    folder = folder_of("qwen3", intermediate_size=8_192, num_hidden_layers=16, layer_types=("full_attention",) * 16)
    whole = (folder / "model.safetensors").stat().st_size
    with running(folder_of("qwen3"), 2):  # whose weights are nothing beside what else a process holds
        [least] = map(peak, followers(os.getpid()))
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with running(folder, 2) as engine:
        own = sum(array.nbytes for _, array in tree_flatten(engine.model._model.parameters()))
        assert own == engine.model.weight_bytes < 0.6 * whole
        assert mx.get_peak_memory() - before < 0.8 * whole
        [its] = map(peak, followers(os.getpid()))
        assert 0.4 * whole < its - least < 0.8 * whole


def peak(process: int) -> int:
    """Most bytes that a process has ever held."""
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", ["cache_dir", "draft_model", "adapter_path"])
def test_options_that_need_one_process_are_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` needs a model that runs in one process"):
        LocalOpenAI(model=folder_of("qwen3"), tensor_parallel=2, **{name: tmp_path})  # type: ignore[arg-type]


def refusal(folder: Path, processes: int) -> str:
    """Refusal by the constructor of a model that is to be spread."""
    with pytest.raises(ValueError) as raised:
        LocalOpenAI(model=folder, tensor_parallel=processes, keep_alive=0)
    return str(raised.value)


def test_a_model_that_cannot_be_spread_is_refused_with_those_that_can() -> None:
    told = refusal(folder_of("gemma3_text"), 2)
    assert "models of kind 'gemma3_text'" in told and "run in one process only" in told
    assert "llama" in told and "qwen3," in told and "gemma3" not in told.partition("over several")[2]


def test_a_model_that_had_to_be_fetched_first_is_refused_before_a_process_is_started() -> None:
    with pytest.raises(ModelLoadError, match="run in one process only"), running(folder_of("gemma3_text"), 2):
        pass
    assert followers(os.getpid()) == []


def test_heads_that_cannot_be_shared_evenly_are_refused() -> None:
    assert "has 4 num_attention_heads, which 3 processes" in refusal(folder_of("qwen3"), 3)


def test_a_model_that_reads_pictures_is_refused_but_for_its_text(tmp_path: Path) -> None:
    seeing = shutil.copytree(folder_of("qwen3_5"), tmp_path / "seeing")
    config = json.loads((seeing / "config.json").read_text())
    (seeing / "config.json").write_text(json.dumps({**config, "vision_config": {"depth": 1}}))
    assert "only the language model of 'seeing' can be spread: pass text_only=True" in refusal(seeing, 2)
    with running(folder_of("qwen3_5")) as engine:
        alone = one_by_one(engine, asked()[:1])
    with running(seeing, 2, text_only=True) as engine:
        assert one_by_one(engine, asked()[:1]) == alone


def test_vectors_and_pictures_are_refused_by_name() -> None:
    with LocalOpenAI(model=folder_of("qwen3"), tensor_parallel=2, keep_alive=0, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="cannot embed texts"):
            client.embeddings.create(model="any", input="Hello")
        part: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        with pytest.raises(openai.BadRequestError, match="image"):
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": [part]}])


def test_each_process_sees_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX computes on the first one that it sees, and NCCL ends a process that shares its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    assert group._gpus(2) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-5"}]
    with pytest.raises(EngineClosedError, match="this one sees 2"):
        group._gpus(3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(mx, "device_count", lambda kind: 3)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in group._gpus(2)] == ["0", "1", "2"]
