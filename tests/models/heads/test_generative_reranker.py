"""Rerankers: scores are sentence-transformers' and mlx-vlm's, whatever shares a pass, and texts stay text."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.backends.cuda.attention import LENGTHS
from localai_shim.models.loading import load_model
from localai_shim.types import ModelLoadError
from localai_shim.vectors import Ranking
from tests import inside
from tests.embedding_models import RERANK_TEMPLATE, tiny_classifier, tiny_embedder, tiny_judge
from tests.embedding_oracle import CLASSIFIERS, INSTRUCTION, QUERY, TEXTS, recorded
from tests.machine_forms import FillingForms, use_forms
from tests.tiny import tiny
from tests.vision import make_model
from tests.vision_parts import ID

KINDS = (*CLASSIFIERS, "judge", "judge that sees")
DOCUMENTS = [*TEXTS, "Paris [SEP] </s>", "<|im_end|>\n<|im_start|>assistant", "你好 🙂", "a\n\nb  c "]


def path_of(kind: str) -> Path:
    if kind == "judge that sees":
        return judge_that_sees()
    return tiny_judge() if kind == "judge" else tiny_classifier(kind)


@functools.cache
def judge_that_sees() -> Path:
    """A tiny qwen3_vl whose vocabulary of bytes has yes and no, too."""
    folder = make_model(Path(tempfile.mkdtemp(prefix="localai_shim-judge-")) / "tiny-qwen3-vl-reranker", "qwen3_vl")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    merges = [["y", "e"], ["ye", "s"], ["n", "o"]]
    tokenizer["model"]["merges"] = merges
    tokenizer["model"]["vocab"] |= {"".join(pair): max(ID.values()) + 1 + i for i, pair in enumerate(merges)}
    file.write_text(json.dumps(tokenizer))
    file = folder / "tokenizer_config.json"
    parts = "{% for part in message.content %}{{ part.text }}{% endfor %}"
    template = RERANK_TEMPLATE.replace("{{ message.content }}", parts).replace("enable_thinking", "thinks")
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    return folder


@functools.cache
def loaded(kind: str) -> Any:
    return load_model(str(path_of(kind)), {})


def pairs_of(model: Any, documents: Sequence[str], query: str = QUERY, most: int | None = None) -> list[list[int]]:
    instruction = INSTRUCTION if model.settings["rerank"].takes_instruction else None
    made: list[list[int]] = model.settings["rerank"].encode(Ranking(query, documents, instruction, most))
    return made


def scored(model: Any, pairs: Sequence[Sequence[int]]) -> list[float]:
    made = np.array(model.score(pairs))
    assert made.shape == (len(pairs), 1) and made.dtype == np.float32
    return [float(score) for score in made[:, 0]]


# -- oracles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_scores_are_those_of_sentence_transformers(kind: str) -> None:
    model = loaded(kind)
    assert scored(model, pairs_of(model, TEXTS)) == pytest.approx(recorded()["scores"][kind], abs=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_mlx_vlms_server(kind: str, tmp_path: Path) -> None:
    """Its own prompt ends the user's turn twice with a template that ends it, so this one leaves that to it."""
    from mlx_vlm.reranker_loader import load_reranker
    from mlx_vlm.server.reranking import RerankItem, score_documents

    path = path_of(kind)
    if kind == "judge":
        path = Path(shutil.copytree(path, tmp_path / "judge"))
        open_turn = RERANK_TEMPLATE.replace("<|im_end|>\n", "{% if not loop.last %}<|im_end|>\n{% endif %}")
        (path / "chat_template.jinja").write_text(open_turn)
    theirs, processor = load_reranker(path)
    query, documents = RerankItem(QUERY), [RerankItem(text) for text in TEXTS]
    instruction = INSTRUCTION if kind not in CLASSIFIERS else None
    expected, tokens = score_documents(theirs, processor, theirs.config, query, documents, instruction)
    pairs = pairs_of(loaded(kind), TEXTS)
    assert sum(map(len, pairs)) == tokens
    error = 2e-4 if kind == "modernbert" else 2e-6  # where its activation is an approximation
    assert scored(loaded(kind), pairs) == pytest.approx(expected, abs=error)


# -- passes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_does_not_depend_on_what_shares_its_pass(kind: str) -> None:
    model = loaded(kind)
    pairs = pairs_of(model, DOCUMENTS)
    alone = [score for pair in pairs for score in scored(model, [pair])]
    assert scored(model, pairs) == pytest.approx(alone, abs=2e-6)
    assert scored(model, pairs[::-1]) == pytest.approx(alone[::-1], abs=2e-6)
    assert len({round(score, 4) for score in alone}) == len(alone)


@pytest.mark.parametrize("kind", ["judge", "judge that sees"])
def test_a_judge_reads_a_long_pair_in_pieces(kind: str) -> None:
    model = loaded(kind)
    for pair in pairs_of(model, DOCUMENTS[:3]):
        reading = model.heads["rerank"].begin(pair)
        while reading.left:
            reading.run(11)
        assert float(reading.result()[0, 0]) == pytest.approx(scored(model, [pair])[0], abs=2e-6)
    assert loaded("bert").heads["rerank"].begin([5, 6]) is None


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_passes_are_filled_up_to_few_shapes_where_each_new_one_costs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(tiny_classifier(kind)), {})
    pairs = pairs_of(model, DOCUMENTS)
    plain, shapes = scored(model, pairs), []
    inner = model.score._model
    model.score._model = lambda tokens, **more: (shapes.append(tokens.shape), inner(tokens, **more))[1]
    use_forms(monkeypatch, FillingForms())
    assert scored(model, pairs) == pytest.approx(plain, abs=2e-6)
    [(rows, length)] = shapes
    assert rows in (8, 16) and length in LENGTHS


# -- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_texts_spell_is_no_control_token(kind: str) -> None:
    model = loaded(kind)
    tokenizer = inside.tokenizer(model.tokenizer)
    added = {**tokenizer.added_tokens_decoder}
    spelt = " ".join(str(token) for token in added.values())
    added.pop(tokenizer.unk_token_id, None)
    [plain] = pairs_of(model, ["x"], "y")
    for query, document in ((spelt, "x"), ("y", spelt), ("y", spelt * 2), ("<|im_" + spelt, "[SE" + spelt)):
        [pair] = pairs_of(model, [document], query)
        assert [i for i in pair if i in added] == [i for i in plain if i in added]


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_cut_at_their_ends(kind: str) -> None:
    model = loaded(kind)
    whole = pairs_of(model, DOCUMENTS)
    [least] = pairs_of(model, ["fox"])
    most = len(least) + 3
    cut = pairs_of(model, DOCUMENTS, most=most)
    for before, after in zip(whole, cut, strict=True):
        assert len(after) == min(len(before), most)
        same = sum(a == b for a, b in zip(after, before, strict=False))
        assert after[:same] + before[len(before) - len(after) + same :] == after and same > 3
    assert len(pairs_of(model, ["fox"], most=3)[0]) > 3  # the query alone is longer


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_cut_to_a_length_of_their_own(kind: str) -> None:
    model = loaded(kind)
    [least] = pairs_of(model, ["fox"])

    def encode(*most: int | None) -> list[list[int]]:
        made: list[list[int]] = model.settings["rerank"].encode(Ranking("y", ["fox " * 9, "fox"], None, *most))
        return made

    whole, short, room = encode(None), encode(None, 3), encode(len(encode(None, 3)[0]) - 1, 3)
    assert len(whole[0]) > len(short[0]) == len(encode(None, 2)[0]) + 1 and short[1] == whole[1]
    assert len(room[0]) == len(short[0]) - 1, "the shorter of both limits"
    assert least[:1] == short[0][:1] and least[-1:] == short[0][-1:], "what stands around it stays"


def test_types_are_those_of_the_tokenizer() -> None:
    model, tokenizer = loaded("bert"), inside.tokenizer(loaded("bert").tokenizer)
    given: list[Any] = []
    inner = model.score._model
    model.score._model = lambda tokens, **more: given.append(more) or inner(tokens, **more)
    try:
        scored(model, pairs_of(model, TEXTS))
    finally:
        model.score._model = inner
    expected = tokenizer([QUERY] * len(TEXTS), TEXTS, padding=True)
    seen = given[0]["token_type_ids"] * given[0]["attention_mask"]
    assert seen.tolist() == (mx.array(expected["token_type_ids"]) * mx.array(expected["attention_mask"])).tolist()


# -- what is a reranker ---------------------------------------------------------------------------------------------


def test_models_say_what_they_are_for(tmp_path: Path) -> None:
    assert [loaded(kind).tasks for kind in KINDS] == [("rerank",)] * 3 + [("generate", "embed", "rerank")] * 2
    assert load_model(str(tiny_embedder()), {}).tasks == ("embed",)
    assert load_model(str(tiny("llama")), {}).tasks == ("generate", "embed")
    assert load_model(str(tiny("qwen3")), {}).tasks == ("generate", "embed")  # its vocabulary has no yes
    assert [loaded(kind).settings["rerank"].takes_instruction for kind in ("judge", "bert")] == [True, False]


def test_limits_are_those_of_the_model_and_its_tokenizer(tmp_path: Path) -> None:
    assert [loaded(kind).context_length for kind in KINDS] == [128, 128, 128, 512, 2048]
    assert load_model(str(tiny_classifier("bert")), {"context_length": 40}).context_length == 40


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (functools.partial(tiny_classifier, "bert", labels=3), "of bert with 3 labels"),
        (functools.partial(tiny_classifier, "bert", labels=2), "of bert with 2 labels"),
        (functools.partial(tiny, "qwen3", architectures=("Qwen3ForSequenceClassification",)), "of qwen3 with 2 labels"),
    ],
)
def test_classifiers_that_do_not_rerank_say_why(path: Any, what: str) -> None:
    with pytest.raises(ModelLoadError, match=f"{what}. Those that rerank have one label"):
        load_model(str(path()), {})


def test_a_classifier_that_names_its_two_labels_by_default(tmp_path: Path) -> None:
    path = Path(shutil.copytree(tiny_classifier("bert"), tmp_path / "model"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "id2label"}))
    with pytest.raises(ModelLoadError, match="2 labels"):
        load_model(str(path), {})
