"""Other weights while requests run: what follows is what mlx-lm answers with them, and nothing of before is used."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import openai
import pytest
from mlx import nn

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.models.weights import copy_weights
from tests import inside
from tests import tiny as models
from tests.engine.harness import Gate, eventually, stepping
from tests.heartbeat import stays_free
from tests.lora import alone, ids, make_adapter
from tests.standing import engine_of
from tests.updating import arrays, begin, changed, greedy, outputs, tokens_of

KINDS = ["qwen3", "gemma3_text", "qwen3_next", "qwen3_moe", "llama"]
LONG = tuple(3 + (i * 7) % 90 for i in range(120))


@functools.cache
def tiny(kind: str, **changes: Any) -> Path:
    """A copy of a tiny model: who shares an engine has its new weights, and other tests share that of `models.tiny`."""
    return shutil.copytree(models.tiny(kind, **changes), Path(tempfile.mkdtemp(prefix="localai_shim-")) / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_new_weights(kind: str, tmp_path: Path) -> None:
    new = changed(tiny(kind), tmp_path / "new")
    with LocalOpenAI(tiny(kind)) as client:
        before = ids(client, "any", LONG)
        assert before == alone(tiny(kind), None, LONG, 16)
        client.update_weights(new)
        hits = client.stats().cache_hits  # of other tests, too, whose engine it may be
        assert ids(client, "any", LONG) == alone(new, None, LONG, 16) != before
        assert client.stats().cache_hits == hits, "what was kept of the prompt is gone"
        client.update_weights(arrays(tiny(kind)))  # the checkpoint's own names
        assert ids(client, "any", LONG) == before


def test_a_head_that_is_the_embedding_stays_that(tmp_path: Path) -> None:
    """mlx-lm takes the head off Gemma's models whose checkpoints have none, which it can do once."""
    folder = shutil.copytree(tiny("gemma3_text"), tmp_path / "old")
    weights = {name: array for name, array in arrays(folder).items() if name != "lm_head.weight"}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    new = changed(folder, tmp_path / "new")
    with LocalOpenAI(folder, keep_alive=0) as client:
        client.update_weights(new)
        assert ids(client, "any", LONG) == alone(new, None, LONG, 16)
        client.update_weights({"model.embed_tokens.weight": weights["model.embed_tokens.weight"]})
        client.update_weights(folder)
        assert ids(client, "any", LONG) == alone(folder, None, LONG, 16)


def test_what_is_part_of_a_checkpoint_takes_nothing_off_the_model(tmp_path: Path) -> None:
    folder, part = tiny("gemma3_text"), tmp_path / "part"
    part.mkdir()
    name = "model.layers.0.mlp.up_proj.weight"
    mx.save_safetensors(str(part / "model.safetensors"), {name: arrays(folder)[name]})
    with LocalOpenAI(folder, keep_alive=0) as client:
        client.update_weights(part)
        assert ids(client, "any", LONG) == alone(folder, None, LONG, 16)


def test_some_tensors_and_adapters_above_them(tmp_path: Path) -> None:
    folder = tiny("llama")
    adapter = make_adapter(tmp_path / "adapter", folder, seed=1)
    names = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"]
    new = changed(folder, tmp_path / "new")
    some = {name: array for name, array in arrays(new).items() if name in names}
    mixed = shutil.copytree(folder, tmp_path / "mixed")
    mx.save_safetensors(str(mixed / "model.safetensors"), {**arrays(folder), **some}, {"format": "mlx"})
    with LocalOpenAI(folder, adapters={"a": adapter}) as client:
        for _ in range(2):
            assert ids(client, "a", LONG) == alone(folder, adapter, LONG, 16)
        first = client.completions.create(model="a", prompt="Hi", max_tokens=1).system_fingerprint
        given = {name: np.array(array) for name, array in some.items()}
        client.update_weights(given)
        for array in given.values():
            array[...] = 0  # the caller's are not kept
        assert ids(client, "a", LONG) == alone(mixed, adapter, LONG, 16)
        assert ids(client, "any", LONG) == alone(mixed, None, LONG, 16)
        assert client.completions.create(model="a", prompt="Hi", max_tokens=1).system_fingerprint != first
        client.load_adapter("a", adapter)
        client.unload_adapter("a")
        assert ids(client, "any", LONG) == alone(mixed, None, LONG, 16)


def test_the_factors_of_an_adapter_that_the_model_was_loaded_with_are_weights_too(tmp_path: Path) -> None:
    folder = tiny("llama")
    one, other = (make_adapter(tmp_path / str(i), folder, seed=i) for i in range(2))
    factors: Any = mx.load(str(other / "adapters.safetensors"))
    with LocalOpenAI(folder, adapter_path=one, keep_alive=0) as client:
        assert ids(client, "any", LONG) == alone(folder, one, LONG, 16)
        client.update_weights(factors)
        assert ids(client, "any", LONG) == alone(folder, other, LONG, 16)
        name = "model.layers.0.self_attn.q_proj"
        weight = arrays(folder)[f"{name}.weight"]
        with pytest.raises(ValueError, match=rf"'{name}.weight' .* is no tensor of this model"):
            client.update_weights({f"{name}.weight": weight})
        client.update_weights({f"{name}.linear.weight": weight})
        assert ids(client, "any", LONG) == alone(folder, other, LONG, 16)


def test_rows_that_run_go_on_with_the_new_weights(tmp_path: Path) -> None:
    """They read what they have again: no key or value of the old ones is left, as where the new model goes on alone."""
    folder, new, prompts = tiny("qwen3"), changed(tiny("qwen3"), tmp_path / "new"), ((101, 33), LONG)
    kept: dict[tuple[int, ...], list[int]] = {}
    with LocalOpenAI(folder) as client, ThreadPoolExecutor(1) as pool:
        engine = engine_of(client)
        gate = Gate(lambda: len(inside.rows(engine).batch) == 2 and engine.stats().generated_tokens > 20)
        with stepping(engine, gate):
            streams = [begin(client, prompt, 200) for prompt in prompts]
            gate.wait()
            updating = pool.submit(client.update_weights, new)
            assert eventually(lambda: engine._inbox.qsize() > 0)
            noted = engine._change(lambda: kept.update(outputs(client)))  # before another step
            gate.open()
            noted.result()
            updating.result()
            got = [tokens_of(stream) for stream in streams]
        for tokens, prompt in zip(got, prompts, strict=True):
            before = kept[prompt]
            assert before and tokens[: len(before)] == before == greedy(folder, [*prompt], len(before))
            assert tokens[len(before) :] == greedy(new, [*prompt, *before], 200 - len(before))
        assert ids(client, "any", LONG) == alone(new, None, LONG, 16)  # nothing of before was kept


def test_or_they_fail_and_the_next_request_is_served(tmp_path: Path) -> None:
    folder, new = tiny("qwen3"), changed(tiny("qwen3"), tmp_path / "new")
    with LocalOpenAI(folder, max_rows=1) as client, ThreadPoolExecutor(1) as pool:
        stream = begin(client, (101, 33), 400)
        next(stream)
        waiting = pool.submit(ids, client, "any", (7, 8, 9, 10, 55), 200)
        while client.stats().waiting + client.stats().running < 2:
            next(stream)
        client.update_weights(new, running="fail")
        with pytest.raises(openai.APIError, match="weights were updated"):
            list(stream)
        with pytest.raises(openai.InternalServerError, match="weights were updated"):
            waiting.result()
        assert ids(client, "any", (101, 33)) == alone(new, None, (101, 33), 16)
        assert client.stats().waiting == 0


@pytest.mark.parametrize("packed", [True, False])
def test_a_packed_model_packs_them_again(packed: bool, tmp_path: Path) -> None:
    """Whether this machine unpacks its layers or not."""
    folder, plain = quantised(tmp_path / "old", tiny("llama")), changed(tiny("llama"), tmp_path / "plain")
    new = quantised(tmp_path / "new", plain)
    with LocalOpenAI(folder) as client:
        assert ids(client, "any", LONG) == alone(folder, None, LONG, 16)
        client.update_weights(new if packed else plain)
        assert ids(client, "any", LONG) == alone(new, None, LONG, 16)


def quantised(made: Path, folder: Path) -> Path:
    from mlx_lm.utils import quantize_model, save

    model, tokenizer, config = mlx_lm.load(str(folder), return_config=True)  # type: ignore[misc]
    model, config = quantize_model(model, config, group_size=32, bits=4)
    save(made, str(folder), model, tokenizer, config)
    return made


def test_layers_are_packed_in_each_form() -> None:
    """A layer that stays packed, one that was unpacked, and what fits neither."""
    from localai_shim.backends.x86.unpacking import Format, _widen
    from localai_shim.models.weights import read_update
    from localai_shim.types import ModelLoadError

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stays, self.wide = (nn.Linear(64, 32).to_quantized(32, 4) for _ in range(2))

    model, weight = Model(), mx.random.normal((32, 64))
    _widen(Format("affine", 4, 32), model.wide, nn.Linear)
    x = mx.random.normal((3, 64))
    nearest = nn.QuantizedLinear.from_linear(nn.Linear(64, 32).update({"weight": weight}), 32, 4)
    expected = np.array(x @ mx.dequantize(nearest.weight, nearest.scales, nearest.biases, 32, 4).T)
    bias = np.array(model.stays.bias)
    for given in ({"weight": weight}, {key: nearest[key] for key in ("weight", "scales", "biases")}):
        named = {f"{layer}.{key}": array for layer in ("stays", "wide") for key, array in given.items()}
        read_update(model, copy_weights(named))()
        for layer in (model.stays, model.wide):
            np.testing.assert_allclose(np.array(layer(x) - layer.bias), expected, atol=1e-4)
        np.testing.assert_array_equal(np.array(model.stays.bias), bias)
    before = {name: np.array(array) for name, array in (("s", model.stays.weight), ("w", model.wide.weight))}
    bad = copy_weights({"stays.weight": mx.zeros((3, 3)), "wide.weight": nearest.weight, "wide.bias": mx.zeros((32,))})
    with pytest.raises(ModelLoadError) as caught:
        read_update(model, bad)
    assert "'stays.weight' has the shape (3, 3), and the model's has (32, 64)" in str(caught.value)
    assert "'wide' is packed: pass 'wide.scales', 'wide.biases' with it" in str(caught.value)
    np.testing.assert_array_equal(np.array(model.stays.weight), before["s"])
    np.testing.assert_array_equal(np.array(model.wide.weight), before["w"])


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    folder, name = tiny("llama"), "model.layers.0.self_attn.q_proj.weight"
    shape = arrays(folder)[name].shape
    cut = changed(folder, tmp_path / "cut")
    [file] = cut.glob("model*.safetensors")
    file.write_bytes(file.read_bytes()[:-1000])
    part = changed(folder, tmp_path / "part")
    next(part.glob("model*.safetensors")).rename(part / "model-00001-of-00002.safetensors")
    with LocalOpenAI(folder) as client:
        ids(client, "any", LONG)
        fingerprint = client.completions.create(model="x", prompt="Hi", max_tokens=1).system_fingerprint
        for bad, what in (
            ({name: np.zeros((3, 5), np.float32)}, f"'{name}' has the shape (3, 5), and the model's has {shape}"),
            ({"model.nothing.weight": np.zeros(3)}, "'model.nothing.weight' (3,) is no tensor of this model"),
            ({name: np.zeros(shape, np.int32)}, f"'{name}' is mlx.core.int32, and the model's is mlx.core.float32"),
            ({name: "text"}, f"'{name}' must be an array of numbers, not str"),
            ({}, "there is no tensor in it"),
            (5, "pass a mapping of names to arrays, or a folder, not 5"),
            (tmp_path, "has no *.safetensors"),
            (cut, file.name),
            (part, "1 of its files of weights is missing: 'model-00002-of-00002.safetensors'"),
        ):
            with pytest.raises(ValueError) as caught:
                client.update_weights(bad)  # type: ignore[arg-type]
            assert what in str(caught.value)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            client.update_weights(tmp_path / "nowhere")
        with pytest.raises(ValueError, match="`running` must be 'continue' or 'fail', not 'stop'"):
            client.update_weights(arrays(folder), running="stop")  # type: ignore[arg-type]
        again = client.completions.create(model="x", prompt="Hi", max_tokens=1)
        assert again.system_fingerprint == fingerprint
        assert ids(client, "any", LONG) == alone(folder, None, LONG, 16)
        assert client.stats().cache_hits == 1
        with LocalOpenAI(folder) as other:  # the engine is shared as before
            assert inside.engine(other) is inside.engine(client)
    with LocalOpenAI(models={"m": folder}) as several, pytest.raises(ValueError, match="clients with one `model`"):
        several.update_weights(arrays(folder))


def test_who_shares_the_model_sees_it_and_clients_made_later_do_not(tmp_path: Path) -> None:
    folder, new = tiny("qwen3"), changed(tiny("qwen3"), tmp_path / "new")
    with LocalOpenAI(folder) as one, LocalOpenAI(folder) as other:
        one.update_weights(new)
        assert ids(other, "any", (101, 33)) == alone(new, None, (101, 33), 16)
        engine = inside.engine(one)
        with LocalOpenAI(folder) as later:
            assert ids(later, "any", (101, 33)) == alone(folder, None, (101, 33), 16)
            assert ids(one, "any", (101, 33)) == alone(new, None, (101, 33), 16)
    assert engine is not None and engine.is_closed  # nobody can have it any more, whatever `keep_alive`


def test_the_folder_of_kept_prompts_is_right_afterwards(tmp_path: Path) -> None:
    folder, new, kept = tiny("qwen3"), changed(tiny("qwen3"), tmp_path / "new"), tmp_path / "kept"
    options: dict[str, Any] = {"cache_dir": kept, "keep_alive": 0}
    with LocalOpenAI(folder, **options) as client:
        ids(client, "any", LONG)
        client.update_weights(new)
        for _ in range(2):
            assert ids(client, "any", LONG) == alone(new, None, LONG, 16)
    with LocalOpenAI(folder, **options) as client:
        assert ids(client, "any", LONG) == alone(folder, None, LONG, 16)
    assert len([each for each in kept.iterdir() if each.is_dir()]) == 2
    assert not [*kept.rglob("*.part.safetensors")]


@pytest.mark.anyio
async def test_async_clients_await_it(tmp_path: Path) -> None:
    folder, new = tiny("qwen3"), changed(tiny("qwen3"), tmp_path / "new")
    async with AsyncLocalOpenAI(folder) as client:
        await client.update_weights(arrays(new))  # the model may still be loading
        answer = await client.completions.create(
            model="any", prompt=list(LONG), max_tokens=16, temperature=0, extra_body={"return_token_ids": True}
        )
        assert answer.choices[0].token_ids == alone(new, None, LONG, 16)  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_async_clients_take_arrays_of_mlx_that_nobody_has_computed(tmp_path: Path) -> None:
    """Those of half precision, too, of which NumPy has no kind."""
    folder, name = tiny("llama"), "model.layers.0.self_attn.q_proj.weight"
    half = (arrays(folder)[name] * -2).astype(mx.bfloat16)
    made = shutil.copytree(folder, tmp_path / "new")
    mx.save_safetensors(str(made / "model.safetensors"), {**arrays(folder), name: half.astype(mx.float32)})
    async with AsyncLocalOpenAI(folder, keep_alive=0) as client:
        await client.update_weights({name: (arrays(folder)[name] * -2).astype(mx.bfloat16)})
        answer = await client.completions.create(
            model="any", prompt=list(LONG), max_tokens=16, temperature=0, extra_body={"return_token_ids": True}
        )
        assert answer.choices[0].token_ids == alone(made, None, LONG, 16)  # type: ignore[attr-defined]


@pytest.mark.timed
@pytest.mark.timeout(300)
def test_the_event_loop_stays_free_while_arrays_are_copied() -> None:
    """They have names that the model does not know, so that what is measured is the copying."""
    given = {f"nobody.{i}": np.ones((1024, 2048), np.float32) for i in range(16)}

    async def main() -> None:
        async with AsyncLocalOpenAI(tiny("llama"), keep_alive=0) as client:
            await client.completions.create(model="any", prompt="Hi", max_tokens=1)
            began = time.process_time()
            copy_weights(given)
            copying = time.process_time() - began

            async def work(number: int) -> None:
                for _ in range(4):
                    with pytest.raises(ValueError, match=r"nobody.0' .* is no tensor of this model"):
                        await client.update_weights(given)

            assert await stays_free(work, copying)

    asyncio.run(main())


def test_updates_amid_many_requests_lose_none(tmp_path: Path) -> None:
    """Prompts share passes, some wait, rows begin again: whichever weights an answer is of, it is whole."""
    new = changed(tiny("qwen3"), tmp_path / "new")
    with LocalOpenAI(tiny("qwen3"), keep_alive=0, max_rows=3) as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ids, client, "any", (7, 8, i), 20, extra_body={"ignore_eos": True}) for i in range(40)]
        for i in range(6):
            client.update_weights((new, tiny("qwen3"))[i % 2])
        assert [len(each.result()) for each in asked] == [20] * 40
        assert ids(client, "any", LONG) == alone(tiny("qwen3"), None, LONG, 16)
