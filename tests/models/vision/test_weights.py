"""Other weights for models that see: what follows is what a client says that is made with them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.media import media_keys
from localai_shim.models.loading import load_model
from localai_shim.types import Prompt
from tests.engine.harness import Gate, eventually, stepping
from tests.models.vision.asking import SHOWN, ids
from tests.models.vision.packing import packed
from tests.models.vision.seeing import WHOLE, generate, prompt_of
from tests.samples import only
from tests.standing import engine_of
from tests.updating import outputs
from tests.vision import FAMILIES, tiny_vision

pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")  # of kimi_vl's processor


def arrays(folder: Path) -> dict[str, mx.array]:
    made = mx.load(str(folder / "model.safetensors"))
    assert isinstance(made, dict)
    return made


def with_weights(folder: Path, made: Path, weights: dict[str, mx.array]) -> Path:
    """A checkpoint like another one that has these weights."""
    shutil.copytree(folder, made)
    mx.save_safetensors(str(made / "model.safetensors"), weights, {"format": "mlx"})
    return made


def changed(kind: str) -> dict[str, mx.array]:
    """Other weights of a family, its tower's as well."""
    mx.random.seed(8)
    return {
        name: array + 0.1 * mx.random.normal(array.shape) if array.ndim > 1 and array.dtype == mx.float32 else array
        for name, array in arrays(tiny_vision(kind)).items()
    }


def answers(client: LocalOpenAI) -> list[Any]:
    return [ids(client, "any", media) for media in SHOWN]


def of(folder: Path) -> list[Any]:
    """Answer of a client that is made with a folder."""
    with LocalOpenAI(folder, keep_alive=0) as client:
        return answers(client)


BEGINS = {
    "qwen2_vl": {"language_model.model.": "model.", "language_model.": "", "vision_tower.": "visual."},
    "qwen3_5": {
        "language_model.model.": "model.language_model.",
        "language_model.": "",
        "vision_tower.": "model.visual.",
    },
}


def published(kind: str, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The tensors as the family's authors publish them: transformers' names, and PyTorch's order of axes."""
    begins, made = BEGINS.get(kind, {}), dict[str, mx.array]()
    for name, array in weights.items():
        begin = next((each for each in begins if name.startswith(each)), "")
        if kind == "gemma3" and "lm_head" in name:
            continue  # it is the embedding
        if "patch_embed" in name and array.ndim > 3:
            array = mx.moveaxis(array, -1, 1)
        if kind == "qwen3_5" and "conv1d" in name:
            array = array.swapaxes(1, 2)
        norm = name.startswith("language_model") and name.endswith("norm.weight") and "linear_attn" not in name
        if kind == "qwen3_5" and norm:
            array = array - 1
        made[begins.get(begin, "") + name.removeprefix(begin)] = mx.contiguous(array)
    return made


@pytest.mark.parametrize("kind", only(["qwen2_vl", "gemma3"], FAMILIES))
def test_answers_are_those_of_the_new_weights(kind: str, tmp_path: Path) -> None:
    folder, new = tiny_vision(kind), changed(kind)
    made = with_weights(folder, tmp_path / "new", new)
    wanted, before = of(made), of(folder)
    assert wanted[0] != before[0] and wanted[1] != before[1]
    with LocalOpenAI(folder, keep_alive=0, max_stall=0.001) as client:
        assert answers(client) == before
        client.update_weights({name: np.array(array) for name, array in new.items()})
        assert answers(client) == wanted
        assert client.stats().cache_hits == 0
        client.update_weights(folder)
        assert answers(client) == before


@pytest.mark.parametrize("kind", only(["qwen2_vl", "gemma3"], ["qwen2_vl", "gemma3", "llava", "qwen3_5"]))
def test_published_names_and_orders_of_axes_are_read_as_loading_reads_them(kind: str, tmp_path: Path) -> None:
    folder = tiny_vision(kind)
    theirs = published(kind, changed(kind))
    made = with_weights(folder, tmp_path / "new", theirs)
    wanted = of(made)
    assert wanted == of(with_weights(folder, tmp_path / "own", changed(kind)))
    with LocalOpenAI(folder, keep_alive=0) as client:
        client.update_weights(theirs)
        assert answers(client) == wanted
    with LocalOpenAI(folder, keep_alive=0) as client:
        client.update_weights(made)
        assert answers(client) == wanted


def test_some_tensors_of_a_tower_change_what_pictures_are(tmp_path: Path) -> None:
    """Those of a convolution in PyTorch's order, too, where its name is the model's."""
    folder, name = tiny_vision("qwen2_vl"), "vision_tower.patch_embed.proj.weight"
    old = arrays(folder)[name]
    wanted, before = of(with_weights(folder, tmp_path / "new", {**arrays(folder), name: -3 * old})), of(folder)
    assert wanted[0] == before[0] and wanted[1] != before[1]
    with LocalOpenAI(folder, keep_alive=0) as client:
        assert answers(client) == before
        client.update_weights({name: mx.moveaxis(-3 * old, -1, 1)})
        assert answers(client) == wanted
        client.update_weights({name: old})
        assert answers(client) == before
        with pytest.raises(ValueError, match=f"'{name}' has the shape"):
            client.update_weights({name: old[..., :7, :]})
        assert answers(client) == before


def test_a_language_model_alone_takes_its_part_of_the_whole(tmp_path: Path) -> None:
    folder, new = tiny_vision("qwen2_vl"), changed("qwen2_vl")
    made = with_weights(folder, tmp_path / "new", new)
    with LocalOpenAI(made, text_only=True, keep_alive=0) as fresh:
        wanted = ids(fresh, "any", ())
    for given in (
        made,
        new,
        {name.removeprefix("language_model."): each for name, each in new.items() if "tower" not in name},
    ):
        with LocalOpenAI(folder, text_only=True, keep_alive=0) as client:
            assert ids(client, "any", ()) != wanted
            client.update_weights(given)
            assert ids(client, "any", ()) == wanted


def test_a_packed_language_model_packs_them_again(tmp_path: Path) -> None:
    folder, new = tiny_vision("qwen2_vl"), changed("qwen2_vl")
    plain = with_weights(folder, tmp_path / "plain", new)
    old, wanted = packed(folder, tmp_path / "old"), of(packed(plain, tmp_path / "new"))
    with LocalOpenAI(old, keep_alive=0) as client:
        assert answers(client) != wanted
        client.update_weights(plain)
        assert answers(client) == wanted
        client.update_weights(old)
        assert answers(client) == of(old)
        client.update_weights(tmp_path / "new")
        assert answers(client) == wanted


@pytest.mark.parametrize("kind", only(["qwen2_vl"], ["qwen2_vl", "gemma3", "qwen3_5"]))
def test_a_row_with_a_picture_goes_on_with_the_new_tower(kind: str, tmp_path: Path) -> None:
    """It reads the picture again, beside one that has just come: nothing that the old tower made is left."""
    folder, made = tiny_vision(kind), with_weights(tiny_vision(kind), tmp_path / "new", changed(kind))
    kept: list[int] = []
    with LocalOpenAI(folder, keep_alive=0) as client, ThreadPoolExecutor(3) as pool:
        engine = engine_of(client)
        gate = Gate(lambda: engine.stats().generated_tokens >= 4)
        with stepping(engine, gate):
            running = pool.submit(ids, client, "any", SHOWN[1], 24)
            gate.wait()
            coming = pool.submit(ids, client, "any", SHOWN[2])
            assert eventually(lambda: engine._inbox.qsize() > 0)
            updating = pool.submit(client.update_weights, made)
            assert eventually(lambda: engine._inbox.qsize() > 1)
            noted = engine._change(lambda: kept.extend(max(outputs(client).values(), key=len)))
            gate.open()
            for each in (noted, updating):
                each.result()
            tokens = running.result()
            assert coming.result() == of(made)[2]
        assert client.stats().tower_runs == 3
    model: Any = load_model(str(made), {})
    item = model.text.process(SHOWN[1][0])
    prompt = prompt_of(model, [item])
    whole = [*prompt.tokens, *kept]
    after = Prompt(whole, keys=media_keys(whole, prompt.media), media=prompt.media)
    steps = generate(model, after, [model.embed(item)], WHOLE)
    assert kept and tokens[: len(kept)] == kept and tokens[len(kept) :][: len(steps)] == [token for token, _ in steps]
