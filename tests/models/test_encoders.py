"""What becomes of a checkpoint's files: pooling, limits, what is refused; vectors against mlx-vlm's own models."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.backends.cuda.attention import filled_rows
from localai_shim.backends.own_forms import OwnForms
from localai_shim.backends.x86 import activations
from localai_shim.backends.x86.forms import CpuForms
from localai_shim.models.encoders import use_exact_gelu
from localai_shim.models.heads import pooling
from localai_shim.models.heads.pooling import SentenceFiles
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import ModelLoadError
from tests import inside, vlm_architectures
from tests.architectures import text_model
from tests.embedding_models import KINDS, tiny_embedder
from tests.embedding_oracle import TEXTS
from tests.machine_forms import FillingForms, use_forms
from tests.tiny import tiny

Vectors = npt.NDArray[np.float64]
SHORT = ["How are you today?", "fox"]
"""Of fewer tokens than EmbeddingGemma's window, which mlx-vlm leaves out."""


def load(path: Path, **options: Any) -> Any:
    return load_model(str(path), options)  # type: ignore[arg-type]


def encode(model: Any, texts: list[list[int]], skip: int = 0) -> Vectors:
    return np.array(model.encode(texts, skip)).astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_mlx_vlm_alone(kind: str) -> None:
    from mlx_vlm.embedding_loader import load_embedding_model
    from mlx_vlm.models.pooling import read_pooling_config

    path = tiny_embedder(kind)
    model, alone = load(path), load_embedding_model(path)
    alone.pooling_config = read_pooling_config(path)
    tokens = [model.text.encode(text) for text in SHORT]
    for vector, ids in zip(encode(model, tokens), tokens, strict=True):
        made = np.array(alone(mx.array([ids])).text_embeds[0])
        assert np.abs(vector - made).max() < (1e-3 if kind in ("modernbert", "gemma3_text") else 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind: str) -> None:
    model = load(tiny_embedder(kind))
    tokens = [model.text.encode(text) for text in TEXTS]
    alone = np.concatenate([encode(model, [ids]) for ids in tokens])
    assert np.abs(encode(model, tokens) - alone).max() < 1e-5
    assert np.abs(encode(model, tokens[::-1])[::-1] - alone).max() < 1e-5


def test_without_files_an_encoder_has_the_mean_and_a_decoder_its_last_token() -> None:
    ids = [[5, 6, 7, 8]]
    plain, mean = load(tiny_embedder("bert", modules=False)), load(tiny_embedder("bert", pooling="mean"))
    assert np.allclose(encode(plain, ids), encode(mean, ids), atol=1e-6)
    decoder = load(tiny("qwen3"))
    assert isinstance(decoder, TextModel) and decoder.tasks == ("generate", "embed")
    state = np.array(inside.network(decoder).model(mx.array(ids))[0, -1])
    assert np.allclose(encode(decoder, ids)[0], state / np.linalg.norm(state), atol=1e-6)


def test_files_beside_another_decoder_say_how_its_states_are_pooled(tmp_path: Path) -> None:
    for file in tiny("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    ids = [5, 6, 7, 8]
    model = load(tmp_path)
    mean = np.array(inside.network(model).model(mx.array([ids]))[0]).mean(axis=0)
    assert np.allclose(encode(model, [ids])[0], mean / np.linalg.norm(mean), atol=1e-5)
    assert model.tasks == ("generate", "embed")


@pytest.mark.parametrize(("name", "embeds"), [("llama", True), ("mamba", True), ("gpt2", True), ("gpt_neox", False)])
def test_a_decoder_that_gives_nothing_but_logits_does_not_embed(name: str, embeds: bool) -> None:
    model = text_model(name)
    assert ("embed" in model.settings) == embeds == ("embed" in model.tasks)


MODES = ("cls", "mean", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next", "mamba"])
@pytest.mark.parametrize("skip", [0, 4, 100])
def test_a_text_in_pieces_has_the_vector_of_the_whole_text(kind: str, skip: int) -> None:
    model = text_model(kind) if kind == "mamba" else load(tiny(kind))
    model.encode._head.files = SentenceFiles(MODES, include_prompt=False)
    ids = [3 + 11 * i % 53 for i in range(41)]
    [whole] = encode(model, [ids], skip)
    for sizes in ([41], [1, 40], [7] * 6, [13, 13, 15]):
        reading = model.heads["embed"].begin(ids, skip)
        assert reading is not None
        for size in sizes:
            reading.run(size)
        assert not reading.left
        assert np.abs(np.array(reading.result())[0] - whole).max() < 1e-5


@pytest.mark.parametrize("name", ["qwen3_vl", "gemma3"])
def test_what_sees_embeds_texts_by_their_last_token_too(name: str) -> None:
    model = vlm_architectures.text_model(name)
    texts = [[5 + (3 * i + j) % 40 for j in range(n)] for i, n in enumerate((19, 4))]
    for text, vector in zip(texts, encode(model, texts), strict=True):
        state = np.array(model._language.model(mx.array([text]), cache=model.new_cache())[0, -1])
        assert np.allclose(vector, state / np.linalg.norm(state), atol=1e-5)
        reading = model.heads["embed"].begin(text)
        while reading.left:
            reading.run(7)
        assert np.allclose(np.array(reading.result())[0], vector, atol=1e-5)


def test_what_sees_all_of_a_text_reads_it_at_once(caplog: pytest.LogCaptureFixture) -> None:
    assert load(tiny_embedder("bert")).heads["embed"].begin([5, 6, 7]) is None
    model = load(tiny("qwen3"))
    hidden = model.encode._hidden
    model.encode._hidden = lambda tokens, mask: hidden(tokens, mask)[:, ::-1]  # as if later tokens had a part in it
    assert model.heads["embed"].begin([5, 6, 7]) is None and model.heads["embed"].begin([5, 6, 7]) is None
    assert caplog.text.count("it is read in one") == 1


# -- shapes on CUDA -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "modernbert", "xlm-roberta", "qwen3", "lfm2"])
def test_passes_are_filled_up_to_few_shapes_where_each_new_one_costs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(tiny_embedder(kind))
    texts = [[5 + (7 * i + j) % 20 for j in range(1 + (11 * i) % 37)] for i in range(70)]
    plain, shapes = encode(model, texts), set()
    hidden = model.encode._hidden
    model.encode._hidden = lambda tokens, mask: (shapes.add(tokens.shape), hidden(tokens, mask))[1]
    use_forms(monkeypatch, FillingForms())
    for count in (1, 3, 5, 6, 7, 17, 33, 70):
        assert np.abs(encode(model, texts[:count]) - plain[:count]).max() < 1e-5
    assert shapes == {(1, 32), (4, 32), (8, 64), (32, 64), (40, 64), (80, 64)}


def test_pieces_are_filled_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [3 + 11 * i % 53 for i in range(100)]
    [plain] = encode(load(tiny("qwen3")), [ids])
    use_forms(monkeypatch, FillingForms())
    model, shapes = load(tiny("qwen3")), list[tuple[int, ...]]()
    inner = type(inside.network(model).model)
    run = inner.__call__
    monkeypatch.setattr(
        inner, "__call__", lambda self, x, *more, **named: shapes.append(x.shape) or run(self, x, *more, **named)
    )
    reading = model.heads["embed"].begin(ids)
    shapes.clear()
    for size in (40, 33, 20, 7):
        reading.run(size)
    assert [length for _, length in shapes] == [64, 64, 32, 32]
    assert np.abs(np.array(reading.result())[0] - plain).max() < 1e-5


def test_rows_are_filled_up_by_a_quarter_at_most() -> None:
    rows = [filled_rows(n) for n in range(1, 2049)]
    assert len({*rows}) == 6 + 4 * 6
    assert all(n <= made <= 2 * n for n, made in enumerate(rows, 1))
    assert all(made <= 1.25 * n for n, made in enumerate(rows, 1) if n > 32)


def test_a_tokenizer_that_is_told_to_cut_and_pad_does_neither(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    for file in tiny_embedder("bert").rglob("*"):
        if file.is_file():
            target = tmp_path / file.relative_to(tiny_embedder("bert"))
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model, usual = load(tmp_path), load(tiny_embedder("bert"))
    assert [model.text.encode(text) for text in TEXTS] == [usual.text.encode(text) for text in TEXTS]


def test_the_longest_text_is_what_all_allow() -> None:
    assert load(tiny_embedder("bert", max_seq_length=16)).context_length == 16
    assert load(tiny_embedder("bert")).context_length == load(tiny_embedder("xlm-roberta")).context_length == 128
    assert load(tiny_embedder("bert", max_seq_length=16), context_length=9).context_length == 9


def test_what_is_no_vector_per_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="The pooling mode 'sideways'"):
        load(changed(tmp_path / "a", "1_Pooling/config.json", {"pooling_mode": "sideways"}))
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    with pytest.raises(ModelLoadError, match="a vector of each token"):
        load(changed(tmp_path / "b", "modules.json", modules))
    modules.append({"idx": 1, "name": "1", "path": "1_LSTM", "type": "sentence_transformers.models.LSTM"})
    with pytest.raises(ModelLoadError, match="LSTM"):
        load(changed(tmp_path / "c", "modules.json", modules))
    with pytest.raises(ModelLoadError, match=r"modules.json is damaged: TypeError"):
        load(changed(tmp_path / "d", "modules.json", ["x"]))
    with pytest.raises(ModelLoadError, match="'prompts' is 7, not an object"):
        load(changed(tmp_path / "e", "config_sentence_transformers.json", {"prompts": 7}))
    cut = changed(tmp_path / "f", "1_Pooling/config.json", {})  # which was the mean, in silence
    (cut / "1_Pooling" / "config.json").write_text('{"pooling_mode"')
    with pytest.raises(ModelLoadError, match=r"incomplete or damaged: '1_Pooling/config.json' is no JSON"):
        load(cut)
    (cut / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"The step '1_Pooling' .* has no config.json"):
        load(cut)
    with pytest.raises(ModelLoadError, match="LoRA"):
        load(tiny_embedder("bert"), adapter_path=str(tmp_path))


LATE, MEDIA = "a vector of each token", "vectors of images as well as of texts"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "bert", "architectures": ["HF_ColBERT"]}, LATE),  # colbert-ir/colbertv2.0
        ({"model_type": "colqwen2_5", "architectures": ["ColQwen2_5"], "vlm_config": {}}, LATE),
        ({"model_type": "colidefics3", "vision_config": {"hidden_size": 8}}, LATE),
        ({"model_type": "siglip", "vision_config": {"hidden_size": 8}}, MEDIA),
        ({"model_type": "embedding_gemma2", "vision_config": {"hidden_size": 8}}, MEDIA),
        ({"model_type": "llama_nemotron_vl_embedding", "vision_config": {"hidden_size": 8}}, MEDIA),
        ({"model_type": "qwen3_vl_embedding", "vision_config": {"hidden_size": 8}}, MEDIA),
    ],
)
def test_embedders_of_another_kind_say_why_they_are_refused(tmp_path: Path, config: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelLoadError, match=f"cannot be served: it makes {why}"):
        load(changed(tmp_path, "config.json", config))


@pytest.mark.parametrize("modules", [True, False])
def test_late_interaction_is_refused_whatever_files_are_missing(tmp_path: Path, modules: bool) -> None:
    """LFM2-ColBERT has modules.json, a transformer and a dense layer; mlx-vlm's loader knows it by that layer alone."""
    path = Path(shutil.copytree(tiny_embedder("lfm2", dense=((16, "Identity"),)), tmp_path / "colbert"))
    (path / "2_Dense").rename(path / "1_Dense")
    shutil.rmtree(path / "1_Pooling")
    steps = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    (path / "modules.json").write_text(json.dumps([{"path": place, "type": kind} for place, kind in steps]))
    if not modules:
        (path / "modules.json").unlink()
    with pytest.raises(ModelLoadError, match=LATE):
        load(path)


def changed(folder: Path, name: str, content: object) -> Path:
    """A copy of an embedder with another file."""
    source = tiny_embedder("bert")
    for file in source.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    (folder / name).write_text(json.dumps(content))
    return folder


def test_a_model_that_names_itself_as_its_language_model_is_looked_into_once() -> None:
    """As mlx-vlm's phi3_v and others do; it held loading up for ever."""

    class Part:
        def __call__(self) -> None: ...

    class NamesItself(Part):
        def __init__(self) -> None:
            self.model = Part()

        @property
        def language_model(self) -> Any:
            return self

    model = NamesItself()
    assert pooling.inner_modules(model)[-1][1] is model.model


# -- GELU -----------------------------------------------------------------------------------------------------------


def test_a_cpu_s_gelu_is_the_exact_one() -> None:
    x = np.concatenate([np.linspace(-12, 12, 40_001), [0.0, 1e-30, 1e30, -1e30, 1e-3]]).astype(np.float32)
    exact = np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(float)])
    made = np.array(activations.gelu_on_cpu(mx.array(x))).astype(np.float64)
    assert (np.abs(made - exact) <= 4e-7 * np.maximum(1, np.abs(x))).all()
    assert activations.gelu_on_cpu(mx.array([1.0], mx.bfloat16)).dtype == mx.bfloat16


@pytest.mark.parametrize("forms", [CpuForms(), OwnForms()], ids=["on a CPU", "on a GPU"])
def test_every_gelu_of_an_encoder_is_exact(forms: OwnForms, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_vlm.models.modernbert import Model, ModelConfig

    config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = Model(ModelConfig.from_dict({"model_type": "modernbert", "vocab_size": 50, **config}))
    x = mx.array([-1.0, 0.5, 2.0])
    approximate = [layer.mlp.act(x) for layer in model.layers]
    use_forms(monkeypatch, forms)
    use_exact_gelu(model)
    for before, layer in zip(approximate, model.layers, strict=True):
        assert np.allclose(layer.mlp.act(x), nn.gelu(x), atol=1e-6) and not np.allclose(
            layer.mlp.act(x), before, atol=1e-5
        )
