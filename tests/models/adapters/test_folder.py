"""Folders of adapters that are damaged or odd: each is refused by name, with the error that the docs promise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.models.adapters.bank import Bank
from localai_shim.models.adapters.folder import read_adapter
from localai_shim.types import ModelLoadError
from tests.lora import add, alone, as_peft, ids, make_adapter
from tests.samples import sampled
from tests.tiny import tiny

ODD: list[Any] = [
    True, False, 0, -1, 1.5, 10**400, float("nan"), float("inf"), 1e300, -1e300, "", "x", "4", "NaN", [], [1], [[]], {},
    {"a": 1}, None,
]  # fmt: skip
MLX = ["fine_tune_type", "lora_parameters", "lora_parameters.scale", "lora_parameters.rank", "lora_parameters.keys",
       "num_layers", "alpha", "rank"]  # fmt: skip
PEFT = ["peft_type", "r", "lora_alpha", "target_modules", "rank_pattern", "rank_pattern.q_proj", "alpha_pattern",
        "alpha_pattern.q_proj", "use_rslora", "use_dora", "bias", "modules_to_save", "init_lora_weights", "use_qalora",
        "lora_bias", "kasa_config", "layer_replication"]  # fmt: skip
CASES = [(form, name, odd) for form, names in (("mlx", MLX), ("peft", PEFT)) for name in names for odd in ODD]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    source = make_adapter(root / "mlx", tiny("llama"), keys=["self_attn.q_proj", "mlp.up_proj"])
    return {"mlx": source, "peft": as_peft(root / "peft", source)}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalOpenAI]:
    with LocalOpenAI(tiny("llama"), keep_alive=0) as client:
        yield client


def with_field(config: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    head, _, tail = name.partition(".")
    if name in ("alpha", "rank"):  # mlx-vlm's older form
        config = {"alpha": 8, "rank": 4}
    return {**config, head: {**config.get(head, {}), tail: value} if tail else value}


def changed(folder: Path, source: Path, config: object = None) -> Path:
    """A copy of an adapter with another config, text or JSON."""
    shutil.copytree(source, folder)
    if config is not None:
        (folder / "adapter_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def refused(client: LocalOpenAI, folder: Path) -> str | None:
    """What a client says of an adapter that it does not load."""
    try:
        client.load_adapter("odd", folder)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("form", "name", "odd"), sampled(CASES, 60))
def test_odd_field_is_a_value_error_or_harms_no_one(
    form: str, name: str, odd: Any, folders: dict[str, Path], client: LocalOpenAI, tmp_path: Path
) -> None:
    config = json.loads((folders[form] / "adapter_config.json").read_text())
    folder = changed(tmp_path / "odd", folders[form], with_field(config, name, odd))
    if refusal := refused(client, folder):
        assert name.partition(".")[0] in refusal
        client.load_adapter("odd", folders[form])
    ids(client, "odd", (3, 4, 5), 4)
    assert ids(client, "any", (3, 4, 5), 4) == alone(tiny("llama"), None, (3, 4, 5), 4)


@pytest.mark.parametrize("scale", ["NaN", "Infinity", "-Infinity", "1e300", "1e39"])
def test_scale_that_is_not_finite_spoils_no_other_row(
    scale: str, folders: dict[str, Path], client: LocalOpenAI, tmp_path: Path
) -> None:
    config = json.loads((folders["mlx"] / "adapter_config.json").read_text())
    text = json.dumps(config).replace('"scale": 2.0', f'"scale": {scale}')
    assert scale in text
    bad = changed(tmp_path / "bad", folders["mlx"], text)
    alpha = {**json.loads((folders["peft"] / "adapter_config.json").read_text()), "lora_alpha": "HERE"}
    worse = changed(tmp_path / "worse", folders["peft"], json.dumps(alpha).replace('"HERE"', scale))
    for folder in (bad, worse):
        with pytest.raises(ValueError, match=r"(scale|lora_alpha)` must be a finite number, not"):
            client.load_adapter("bad", folder)
    with LocalOpenAI(tiny("llama"), adapters={"bad": bad, "good": folders["mlx"]}) as other:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="must be a finite number"):
                ids(other, "bad", (3, 4, 5))
        assert ids(other, "good", (3, 4, 5)) == alone(tiny("llama"), folders["mlx"], (3, 4, 5), 16)


def save(folder: Path, source: Path, **arrays: Any) -> Path:
    """A copy of an adapter of mlx-lm's form with other tensors."""
    weights: Any = mx.load(str(source / "adapters.safetensors"))
    shutil.copytree(source, folder)
    for name, array in arrays.items():
        weights[name] = array(weights[name]) if callable(array) else array
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


A, B = "model.layers.0.self_attn.q_proj.lora_a", "model.layers.0.self_attn.q_proj.lora_b"


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [A, B])
def test_factor_that_is_not_finite_is_refused_by_the_tensor_s_name(
    name: str, value: float, dtype: mx.Dtype, folders: dict[str, Path], tmp_path: Path
) -> None:
    def spoiled(array: mx.array) -> mx.array:
        array[2, 1] = value
        return array.astype(dtype)

    folder = save(tmp_path / "bad", folders["mlx"], **{A: lambda x: x.astype(dtype), B: lambda x: x.astype(dtype)})
    folder = save(tmp_path / "worse", folder, **{name: spoiled})
    with pytest.raises(ModelLoadError, match=rf"'{name}' has numbers that are not finite"):
        read_adapter("bad", str(folder))


@pytest.mark.parametrize(
    ("dtype", "size", "scale", "fits"),
    [
        (mx.float16, 60_000.0, 1.0, True),
        (mx.float16, 60_000.0, 2.0, False),
        (mx.float16, 70_000.0, 1.0, False),
        (mx.bfloat16, 70_000.0, 2.0, True),
        (mx.bfloat16, 1e38, 5.0, False),
        (mx.float32, 1e38, 2.0, True),
        (mx.float32, 1e30, 1e30, False),
    ],
)
def test_factor_that_overflows_in_the_layer_s_dtype_is_refused(
    dtype: mx.Dtype, size: float, scale: float, fits: bool, folders: dict[str, Path], tmp_path: Path
) -> None:
    config = json.loads((folders["mlx"] / "adapter_config.json").read_text())
    folder = save(tmp_path / "large", folders["mlx"], **{B: lambda array: array * 0 + size})
    (folder / "adapter_config.json").write_text(json.dumps({**config, "lora_parameters": {"scale": scale}}))
    model, _ = mlx_lm.load(str(tiny("llama")))
    model.set_dtype(dtype)
    bank = Bank(model)
    if fits:
        add(bank, folder)
        for layer in bank._layers.values():
            assert mx.isfinite(layer._stack.low).all() and mx.isfinite(layer._stack.high).all()
    else:
        with pytest.raises(ModelLoadError, match=r"self_attn.q_proj' has numbers up to .* with its scale"):
            add(bank, folder)
        assert bank.nbytes == 0


def test_zeros_with_a_large_scale_are_zeros(folders: dict[str, Path], tmp_path: Path) -> None:
    config = json.loads((folders["mlx"] / "adapter_config.json").read_text())
    weights: Any = mx.load(str(folders["mlx"] / "adapters.safetensors"))
    zeros = {name: array * 0 for name, array in weights.items() if name.endswith("lora_b")}
    folder = save(tmp_path / "zeros", folders["mlx"], **zeros)
    (folder / "adapter_config.json").write_text(json.dumps({**config, "lora_parameters": {"scale": 3e38}}))
    bank = Bank(mlx_lm.load(str(tiny("llama")))[0])
    add(bank, folder)
    assert not any(layer._stack.high.any() for layer in bank._layers.values())


def test_folder_that_is_overwritten_after_it_was_read_is_what_was_read(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = changed(tmp_path / "one", folders["mlx"])
    adapter, products = read_adapter("one", str(folder))
    before = {name: product.low.copy() for name, product in products.items()}
    make_adapter(folder, tiny("llama"), seed=9, keys=["self_attn.q_proj", "mlp.up_proj"])  # in place
    (folder / "adapter_config.json").write_text("{}")
    assert all(np.array_equal(products[name].low, low) for name, low in before.items())
    model, _ = mlx_lm.load(str(tiny("llama")))
    bank, other = Bank(model), mlx_lm.load(str(tiny("llama")))[0]
    assert [*bank.add(adapter, products)]
    [same] = [add(Bank(other), folders["mlx"])]
    assert same == adapter
    expected = {name: layer._stack.low for name, layer in bank._layers.items()}
    for name, product in products.items():
        assert np.array_equal(np.array(expected[name][1]), product.low)


# -- files ------------------------------------------------------------------------------------------------------------


def raw(header: object, data: bytes = b"\0" * 4096) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (4, 8), start: Any = 0, stop: Any = 128) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "was cut off within its header, at 0 bytes"),
        (b"\xff" * 100, "does not begin with a header of safetensors"),
        (b"\x10\0\0\0\0\0\0\0{", "was cut off within its header, at 9 bytes"),
        (raw(b"{"), "its header cannot be read"),
        (raw(b'{"a":' * 100_000), "its header cannot be read"),
        (raw(b"\xff\xfe"), "its header cannot be read"),
        (raw([]), "its header cannot be read"),
        (raw({}), "there is no factor in it"),
        (raw({f"{Q}.lora_a": 5}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(shape=[-4, -8])}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(shape=5)}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(shape=[True, 8])}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(shape=[4.0, 8.0])}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(start=128, stop=0)}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(start=-8)}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(dtype=7)}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(stop=10**30)}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(shape=[4, 9])}), "is damaged"),
        (raw({f"{Q}.lora_a": entry(), f"{Q}.lora_b": entry()}, b"\0" * 200), "overlap"),
        (raw({f"{Q}.lora_a": entry(dtype="F8_E4M3")}), "is F8_E4M3, and factors are F32, F16, BF16"),
        (raw({f"{Q}.lora_a": entry(dtype="I64")}), "is I64"),
        (raw({f"{Q}.lora_a": entry(shape=[32])}), r"the shape \(32,\)"),
        (raw({f"{Q}.lora_a": entry(shape=[0, 8], stop=0)}), r"the shape \(0, 8\)"),
        (raw({f"{Q}.lora_a": entry(shape=[1, 1, 4, 8])}), "which no factor has"),
        (raw({f"{Q}.lora_a": entry()}), "has no `lora_b`"),
        (raw({f"{Q}.lora_a": entry(), f"{Q}.A": entry(start=128, stop=256)}), "are the same factor"),
        (raw({f"{Q}.lora_a": entry(), f"{Q}.lora_b": entry("F16", (8, 8), 128, 256)}), "no pair"),
        (raw({f"{Q}.lora_a": entry(), f"{Q}.lora_b": entry(start=128, stop=256)}), "different ranks"),
        (raw({f"{Q}.weight": entry()}), "is no factor of a low rank"),
        (raw({"lora_a": entry()}), "is no factor of a low rank"),
        (raw({"x" * 600 + ".lora_a": entry()}), "is no factor of a low rank"),
    ],
)  # fmt: skip
def test_damaged_weights_are_refused_with_the_file_and_the_tensor(
    content: bytes, what: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = changed(tmp_path / "bad", folders["mlx"])
    (folder / "adapters.safetensors").write_bytes(content)
    with pytest.raises(ModelLoadError, match=what):
        read_adapter("bad", str(folder))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("base_model.model.a.q_proj.lora_B.bias", "is no factor of a low rank"),
        ("base_model.model.a.q_proj.lora_B.default.bias", "is no factor of a low rank"),
        ("base_model.model.a.q_proj.lora_magnitude_vector", "is no factor of a low rank"),
        ("base_model.model.a.q_proj.lora_A.weight", "are the same factor"),
    ],
)
def test_peft_s_other_tensors_are_refused(name: str, what: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = changed(tmp_path / "bad", folders["peft"])
    pair = {"base_model.model.a.q_proj.lora_A.default.weight": mx.zeros((4, 8)),
            "base_model.model.a.q_proj.lora_B.default.weight": mx.zeros((8, 4))}  # fmt: skip
    mx.save_safetensors(str(folder / "adapter_model.safetensors"), {**pair, name: mx.zeros((8, 4))})
    with pytest.raises(ModelLoadError, match=what):
        read_adapter("bad", str(folder))


def test_expert_with_a_number_beyond_the_layer_s_is_refused(tmp_path: Path) -> None:
    named = {}
    for part, shape in (("A", (2, 64)), ("B", (48, 2))):
        named[f"base_model.model.model.layers.0.mlp.experts.999999.up_proj.lora_{part}.weight"] = mx.ones(shape)
    mx.save_safetensors(str(tmp_path / "adapter_model.safetensors"), named)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    model, _ = mlx_lm.load(str(tiny("qwen3_moe")))
    with pytest.raises(ModelLoadError, match="experts up to number 999999"):
        add(Bank(model), tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("alpha_pattern", {"([a-z0-9_.]+)+!": 3}, None),
        ("rank_pattern", {"([a-z0-9_.]+)+!": 3}, None),
        ("alpha_pattern", {"(?=q)": 3}, r"`alpha_pattern`: the pattern '\(\?=q\)' has '\(\?=', which is not supported"),
        ("rank_pattern", {"(": 3}, "`rank_pattern`: the pattern"),
        ("rank_pattern", {"q_proj": 3}, "have the rank 4, and adapter_config.json says 3"),
        ("r", 3, "have the rank 4, and adapter_config.json says 3"),
        ("init_lora_weights", "pissa_niter_16", "changes the model's own weights"),
        ("kasa_config", {"beta": 1}, "KaSA"),
        ("alora_invocation_tokens", [1, 2], "activated LoRA"),
    ],
)
def test_peft_s_fields_are_honored_or_refused(
    field: str, value: Any, what: str | None, folders: dict[str, Path], tmp_path: Path
) -> None:
    config = json.loads((folders["peft"] / "adapter_config.json").read_text())
    folder = changed(tmp_path / "other", folders["peft"], {**config, field: value})
    if what is None:
        assert read_adapter("other", str(folder))[1]
    else:
        with pytest.raises(ModelLoadError, match=what):
            read_adapter("other", str(folder))
