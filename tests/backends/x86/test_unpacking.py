"""Quantised layers on a CPU multiply through BLAS where that is faster, and compute what they did."""

from __future__ import annotations

import functools
import json
import logging
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import mlx_vlm.utils
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import mla, switch_layers
from mlx_lm.tuner.lora import LoRALinear
from mlx_vlm.models import switch_layers as vlm_switch_layers

from localai_shim import LocalOpenAI, image
from localai_shim.backends.x86 import forms, unpacking
from localai_shim.backends.x86.unpacking import Format, Trial, UnpackedEmbedding, UnpackedLinear, use_float32
from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.options import ModelOptions
from tests import inside
from tests.samples import only
from tests.tiny import make_model
from tests.vision import make_model as make_vision_model

pytestmark = pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="GPUs have their own forms")

INPUTS, OUTPUTS, EXPERTS = 256, 96, 3
WIDE, UNPACKED, PACKED = Trial(True, 2), Trial(False, 4), Trial(False, 10**9)
ROOM = 2**40
FORMATS = [
    *(Format("affine", bits, size) for bits in (2, 3, 4, 5, 6, 8) for size in (32, 64, 128)),
    Format("mxfp4", 4, 32),
    Format("nvfp4", 4, 16),
    Format("mxfp8", 8, 32),
]
SOME_FORMATS = [FORMATS[0], FORMATS[7], FORMATS[11], *FORMATS[-3:]]
FORMS = pytest.mark.parametrize("found", [pytest.param(WIDE, id="widened"), pytest.param(UNPACKED, id="unpacked")])


def params(formats: list[Format]) -> list[Any]:
    return [pytest.param(how, id="-".join(map(str, how))) for how in formats]


class Layers(nn.Module):  # type: ignore[misc]
    """One layer of each kind that a quantised model has."""

    def __init__(self) -> None:
        super().__init__()
        mx.random.seed(0)
        self.embedding = nn.Embedding(OUTPUTS, INPUTS)
        self.biased = nn.Linear(INPUTS, OUTPUTS)
        self.biased.bias = mx.random.normal((OUTPUTS,))
        self.plain = nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.experts = switch_layers.SwitchLinear(INPUTS, OUTPUTS, EXPERTS)
        self.experts.bias = mx.random.normal((EXPERTS, OUTPUTS))
        self.vlm_experts = vlm_switch_layers.SwitchLinear(INPUTS, OUTPUTS, EXPERTS, bias=False)
        self.heads = mla.MultiLinear(INPUTS, OUTPUTS, EXPERTS)

    def results(self, rows: int) -> dict[str, mx.array]:
        """Outputs of each for so many rows; experts get as many each."""
        mx.random.seed(rows)
        x = mx.random.normal((1, rows, INPUTS))
        chosen = mx.sort(mx.random.randint(0, EXPERTS, (rows * EXPERTS,)))
        sorted_x = mx.random.normal((rows * EXPERTS, 1, INPUTS))
        return {
            "tokens": self.embedding(mx.arange(rows)),
            "embedding": self.embedding.as_linear(x),
            "biased": self.biased(x),
            "one dimension": self.plain(x[0, 0]),
            "several dimensions": self.plain(x[:, :, None]),
            "experts": self.experts(sorted_x, chosen, sorted_indices=True),
            "experts of mlx-vlm": self.vlm_experts(sorted_x, chosen),
            "heads": self.heads(x[:, None]),
        }


def layers(how: Format) -> Layers:
    made = Layers()
    nn.quantize(made, how.group_size, how.bits, mode=how.mode)
    return made


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have trials give what a test says."""
    return lambda result: monkeypatch.setattr(unpacking, "measure", lambda how, layers: result)


@FORMS
@pytest.mark.parametrize("how", only(params(SOME_FORMATS), params(FORMATS)))
@pytest.mark.parametrize("rows", [1, 7])
def test_layers_compute_what_they_did(
    rows: int, how: Format, found: Trial, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "BLOCK_NUMBERS", 7 * INPUTS)  # outputs are no multiple of a block's
    monkeypatch.setattr(unpacking, "EXPERTS_BLOCK_NUMBERS", 25 * EXPERTS * INPUTS)
    ours = layers(how)
    expected = ours.results(rows)
    trial(found)
    use_float32(ours, ROOM)
    for name, result in ours.results(rows).items():
        theirs = expected[name]
        assert result.shape == theirs.shape, name
        tolerance = 1e-2 if name == "tokens" and how.mode != "affine" else 1e-4  # mlx gives bfloat16 there
        assert mx.allclose(result, theirs.astype(mx.float32), rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize("how", params([FORMATS[7], FORMATS[-3]]))
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float32], ids=str)
def test_unpacked_layers_give_the_dtype_that_packed_ones_give(how: Format, dtype: mx.Dtype, trial: Any) -> None:
    ours, x = layers(how), mx.ones((1, 7, INPUTS), dtype)
    expected = ours.plain(x).dtype, ours.embedding.as_linear(x).dtype
    trial(UNPACKED)
    use_float32(ours, ROOM)
    assert (ours.plain(x).dtype, ours.embedding.as_linear(x).dtype) == expected


def test_widened_layers_are_what_they_were_before_they_were_quantised(trial: Any) -> None:
    ours = layers(FORMATS[7])
    trial(WIDE)
    use_float32(ours, ROOM)
    kinds = {type(layer) for layer in ours.modules()} - {Layers}
    assert kinds == {
        nn.Linear,
        nn.Embedding,
        switch_layers.SwitchLinear,
        vlm_switch_layers.SwitchLinear,
        mla.MultiLinear,
    }
    assert {array.dtype for layer in ours.modules() for array in layer.values() if isinstance(array, mx.array)} == {
        mx.float32
    }


def test_without_room_for_all_of_them_layers_stay_packed(trial: Any, caplog: pytest.LogCaptureFixture) -> None:
    ours = layers(FORMATS[7])
    trial(WIDE)
    needed = 4 * INPUTS * OUTPUTS * (3 + 3 * EXPERTS)
    with caplog.at_level(logging.INFO):
        use_float32(ours, needed - 1)
    assert type(ours.plain) is UnpackedLinear and type(ours.embedding) is UnpackedEmbedding
    assert "quantised weights stay packed" in caplog.text
    ours = layers(FORMATS[7])
    use_float32(ours, needed)
    assert type(ours.plain) is nn.Linear


def test_each_format_has_its_own_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Layers()
    nn.quantize(ours, class_predicate=lambda path, _: {"group_size": 64, "bits": 8 if path == "plain" else 4})
    monkeypatch.setattr(unpacking, "measure", lambda how, _: WIDE if how.bits == 8 else Trial(False, 9))
    use_float32(ours, ROOM)
    assert (type(ours.plain), type(ours.biased), ours.biased.unpack_from) == (nn.Linear, UnpackedLinear, 9)


def test_foreign_models_of_the_process_keep_their_layers(trial: Any) -> None:
    ours, theirs = layers(FORMATS[7]), layers(FORMATS[7])
    trial(UNPACKED)
    use_float32(ours, ROOM)
    assert type(theirs.plain) is nn.QuantizedLinear and type(theirs.embedding) is nn.QuantizedEmbedding
    assert type(theirs.experts) is switch_layers.QuantizedSwitchLinear


class Own(nn.QuantizedLinear):  # type: ignore[misc]
    """A subclass, which may compute something else."""


@FORMS
def test_layers_that_are_not_known_are_left_alone(found: Trial, trial: Any) -> None:
    ours = layers(Format("nvfp4", 4, 16))
    ours.plain.__class__ = Own
    ours.experts.global_scale = mx.ones((EXPERTS,))
    trial(found)
    use_float32(ours, ROOM)
    assert type(ours.plain) is Own and type(ours.experts) is switch_layers.QuantizedSwitchLinear


@FORMS
def test_a_lora_layer_around_one_computes_what_it_did(found: Trial, trial: Any) -> None:
    ours = layers(FORMATS[7])
    lora = ours.plain = LoRALinear.from_base(ours.plain, r=4)
    lora.lora_b = mx.random.normal(lora.lora_b.shape)
    x = mx.random.normal((5, 1, INPUTS))
    expected = lora(x)
    trial(found)
    use_float32(ours, ROOM)
    assert type(lora.linear) is (nn.Linear if found.widen else UnpackedLinear)
    assert mx.allclose(lora(x), expected, rtol=1e-4, atol=1e-4)


class Calls:
    """Counts products with packed weights, and blocks that were unpacked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packed = self.unpacked = 0
        multiply, unpack = mx.quantized_matmul, mx.dequantize

        def counted_product(*given: Any, **how: Any) -> mx.array:
            self.packed += 1
            return multiply(*given, **how)

        def counted_unpacking(*given: Any, **how: Any) -> mx.array:
            self.unpacked += 1
            return unpack(*given, **how)

        monkeypatch.setattr(mx, "quantized_matmul", counted_product)
        monkeypatch.setattr(mx, "dequantize", counted_unpacking)

    def take(self) -> tuple[int, int]:
        counts, self.packed, self.unpacked = (self.packed, self.unpacked), 0, 0
        return counts


def test_wide_passes_unpack_and_narrow_ones_do_not(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = layers(FORMATS[7])
    trial(UNPACKED)
    use_float32(ours, ROOM)
    calls = Calls(monkeypatch)
    for rows, expected in ((3, (1, 0)), (4, (0, 1))):
        for shape in ((1, rows, INPUTS), (rows, 1, INPUTS)):
            ours.plain(mx.ones(shape))
            assert calls.take() == expected
            ours.embedding.as_linear(mx.ones(shape))
            assert calls.take() == expected
        ours.experts(mx.ones((rows * EXPERTS, 1, INPUTS)), mx.zeros((rows * EXPERTS,), mx.uint32))
        assert calls.take()[1] == expected[1]


DEEP, SIDE = 24, 1024


def test_a_pass_has_a_few_blocks_unpacked_at_a_time(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is evaluated as one graph, as prompts are."""
    monkeypatch.setattr(unpacking, "BLOCK_NUMBERS", SIDE * SIDE // 8)
    model = nn.Sequential(*(nn.Linear(SIDE, SIDE, bias=False) for _ in range(DEEP)))
    nn.quantize(model, 64, 4)
    trial(UNPACKED)
    use_float32(model, ROOM)
    x = mx.ones((1, 16, SIDE)) / SIDE
    mx.eval(model.parameters(), x)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(model(x))
    assert mx.get_peak_memory() - before <= 4 * SIDE * SIDE, "less than one of the layers"


def test_a_large_output_layer_is_unpacked_block_by_block(trial: Any) -> None:
    head = nn.Embedding(20_000, SIDE)
    holder = nn.Sequential(head)
    nn.quantize(holder, 64, 4)
    trial(UNPACKED)
    use_float32(holder, ROOM)
    x = mx.ones((1, 16, SIDE))
    mx.eval(holder.parameters(), x)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(holder.layers[0].as_linear(x))
    logits_bytes = 4 * 16 * 20_000
    assert mx.get_peak_memory() - before <= 2 * logits_bytes + 4 * 4 * unpacking.BLOCK_NUMBERS


class Clock:
    """Stands for the seconds that runs take: those of one row packed, widened, and in pieces, then of few blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        def in_turns(*runs: Any) -> list[float]:
            mx.eval(*(run() for run in runs))
            return list(seconds)

        monkeypatch.setattr(unpacking, "in_turns", in_turns)


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ((1.0, 0.5, 2.0, 0.1, 1.0), Trial(True, 12)),
        ((1.0, 2.0, 0.5, 0.1, 1.0), Trial(True, 12)),
        ((1.0, 0.9, 0.9, 0.1, 0.5), Trial(False, 6)),
        ((1.0, 2.0, 2.0, 0.5, 0.1), Trial(False, 2)),
    ],
    ids=["copies are faster", "copies in pieces are faster", "copies are hardly faster", "copies are slower"],
)
def test_decoding_is_never_made_slower(
    seconds: tuple[float, ...], found: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, *seconds)
    some = [layer for layer in layers(FORMATS[7]).modules() if "scales" in layer]
    assert unpacking.measure(FORMATS[7], some) == found


def test_a_trial_multiplies_with_parts_of_all_layers_and_of_no_more_numbers_than_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "TRIAL_NUMBERS", 10 * INPUTS)
    monkeypatch.setattr(unpacking, "BLOCK_NUMBERS", 3 * INPUTS)
    some = [layer for layer in layers(FORMATS[7]).modules() if "scales" in layer]
    assert len(some) == 6
    assert [block[0].shape for block in unpacking._some_blocks(some)] == [(3, INPUTS // 8)] * 4
    monkeypatch.setattr(unpacking, "TRIAL_NUMBERS", 10**9)
    assert len(unpacking._some_blocks(some)) == 6


# Prompts of many lengths in one batch, against mlx-lm alone on the packed weights.
PROMPTS = [[(7 * i + 11 * j) % 390 + 3 for j in range(length)] for i, length in enumerate((1, 3, 9, 40, 70))]
KINDS = ["qwen3", "gemma3_text", "qwen3_next", "qwen3_moe"]


def quantised(folder: Path, kind: str, how: Format, **changes: Any) -> Path:
    """A tiny model in this format, whose embedding is as it was where MLX would make bfloat16 of it."""
    make_model(folder / "float", kind, **changes)
    mlx_lm.convert(
        str(folder / "float"),
        str(folder / "packed"),
        quantize=True,
        q_bits=how.bits,
        q_group_size=how.group_size,
        q_mode=how.mode,
        quant_predicate=lambda path, *_: how.mode == "affine" or "embed" not in path,
    )
    return folder / "packed"


@functools.cache
def alone(path: Path) -> list[list[int]]:
    model, tokenizer = mlx_lm.load(str(path))[:2]
    runs = [[r.token for r in mlx_lm.stream_generate(model, tokenizer, p, max_tokens=16)] for p in PROMPTS]
    return [[token for token in run if token not in tokenizer.eos_token_ids] for run in runs]


CASES = [
    pytest.param((kind, how), id="-".join(map(str, (kind, *how))))
    for kind, how in [
        *((kind, Format("affine", 4, 64)) for kind in KINDS),
        *(("qwen3", how) for how in (Format("affine", 8, 32), Format("affine", 3, 64), Format("affine", 6, 64))),
        *(("qwen3_moe", how) for how in (Format("mxfp4", 4, 32), Format("nvfp4", 4, 16), Format("mxfp8", 8, 32))),
    ]
]


@pytest.fixture(scope="module", params=only([CASES[0], CASES[3], CASES[7]], CASES))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, how = request.param
    return quantised(tmp_path_factory.mktemp(kind), kind, how)


@pytest.mark.parametrize("found", [*FORMS.args[1], pytest.param(PACKED, id="packed")])
def test_a_batchs_tokens_are_mlx_lms_on_the_packed_weights(path: Path, found: Trial, trial: Any) -> None:
    trial(found)
    with LocalOpenAI(path, keep_alive=0) as client:
        made = client.completions.create(
            model="any", prompt=PROMPTS, max_tokens=16, temperature=0, extra_body={"return_token_ids": True}
        )
        ends = inside.engine(client).model.eos_token_ids
    runs: list[list[int]] = [choice.token_ids for choice in made.choices]  # type: ignore[attr-defined]
    assert [[token for token in run if token not in ends] for run in runs] == alone(path)


def test_a_prompt_unpacks_layers_and_its_last_position_multiplies_with_a_packed_head(
    tmp_path: Path, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial(UNPACKED)
    path = quantised(tmp_path, "qwen3", Format("affine", 4, 64))
    with LocalOpenAI(path, keep_alive=0, speculation="off") as client:
        client.completions.create(model="any", prompt=PROMPTS[0], max_tokens=1)
        calls = Calls(monkeypatch)
        client.completions.create(model="any", prompt=PROMPTS[4], max_tokens=1)
        packed, unpacked = calls.take()
    assert unpacked >= 2 * 7 and packed >= 1


def test_widened_weights_count_in_the_memory_plan_and_fit_into_its_limit(tmp_path: Path, trial: Any) -> None:
    trial(WIDE)
    path = quantised(tmp_path, "qwen3", Format("affine", 4, 64))
    free = load_model(str(path), ModelOptions())
    wide = free.weight_bytes
    assert type(inside.network(free).lm_head) is nn.Linear
    assert type(inside.network(load_model(str(path), ModelOptions(memory_limit=2 * wide))).lm_head) is nn.Linear
    limited = load_model(str(path), ModelOptions(memory_limit=wide))
    assert type(inside.network(limited).lm_head) is UnpackedLinear and limited.weight_bytes < wide / 3


def test_a_draft_model_gets_its_part_of_the_limit(tmp_path: Path, trial: Any) -> None:
    trial(WIDE)
    path = quantised(tmp_path, "qwen3", Format("affine", 4, 64))
    model = load_model(str(path), ModelOptions())
    kinds = []
    for limit in (8 * model.weight_bytes, model.weight_bytes):
        draft = load_draft_model(str(path), ModelOptions(memory_limit=limit), model)
        assert draft is not None
        kinds.append(type(inside.network(draft).lm_head))
    assert kinds == [nn.Linear, UnpackedLinear]


def test_a_machine_without_free_memory_keeps_them_packed(
    tmp_path: Path, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial(WIDE)
    path = quantised(tmp_path, "qwen3", Format("affine", 4, 64))
    monkeypatch.setattr(forms, "free_memory", lambda: 50_000)
    assert type(inside.network(load_model(str(path), ModelOptions())).lm_head) is UnpackedLinear


def quantised_vision(folder: Path, kind: str) -> Path:
    """A tiny model of mlx-vlm in 4 bits, but for its tower, which upstream leaves as it is."""

    def takes_groups(layer: nn.Module) -> bool:
        return hasattr(layer, "to_quantized") and layer["weight"].shape[-1] % 32 == 0

    path = make_vision_model(folder, kind)
    model = mlx_vlm.utils.load_model(path)
    nn.quantize(model, 32, 4, class_predicate=lambda name, layer: "vision" not in name and takes_groups(layer))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(path / "model.safetensors"), weights, metadata={"format": "mlx"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": 32, "bits": 4}}))
    return path


@pytest.mark.parametrize("kind", only(["qwen2_5_vl"], ["qwen2_5_vl", "gemma3", "glm4v_moe"]))
def test_a_model_that_sees_says_what_it_says_with_packed_weights(kind: str, tmp_path: Path, trial: Any) -> None:
    path = quantised_vision(tmp_path, kind)
    question: Any = [{"type": "text", "text": "what is this?"}, image(np.full((56, 84, 3), 90, np.uint8))]
    answers, kinds = [], []
    for found in (PACKED, UNPACKED, WIDE):
        trial(found)
        with LocalOpenAI(path, keep_alive=0) as client:
            made = client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": question}],
                max_tokens=12,
                temperature=0,
                extra_body={"return_token_ids": True},
            )
            answers.append(made.choices[0].token_ids)  # type: ignore[attr-defined]
            kinds.append({type(layer) for layer in inside.network(inside.engine(client).model).modules()})
    assert answers[0] == answers[1] == answers[2] and answers[0]
    assert UnpackedLinear in kinds[1] and nn.QuantizedLinear not in kinds[1]
    assert not kinds[2] & {UnpackedLinear, nn.QuantizedLinear, nn.QuantizedEmbedding}
