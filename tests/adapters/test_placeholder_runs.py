"""Runs of placeholders, and a processor's texts: what is not read again is what reading it makes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from localai_shim.adapters.locked_tokenizer import _KEPT_TEXTS, OneAtATime
from localai_shim.adapters.placeholder_runs import Runs
from localai_shim.adapters.text import TextTokenizer
from localai_shim.adapters.vision_processor import VisionTokenizer
from tests.adapters.seeing import load
from tests.samples import only
from tests.vision import picture

SEEING = ["qwen2_5_vl", "qwen3_vl", "gemma3", "glm4v", "internvl_chat", "smolvlm", "kimi_vl", "paligemma", "pixtral"]
PIECES = [" a", "ä ", "\n", "<|im_start|>"]


@pytest.mark.parametrize("kind", only(["qwen2_5_vl", "gemma3", "smolvlm"], dict.fromkeys(SEEING)))
def test_tokens_of_runs_are_the_tokenizer_s(kind: str) -> None:
    text = load(kind).text
    assert isinstance(text, VisionTokenizer)
    place = text._processor.placeholders["image"]
    tokens = [str(text.tokenizer.convert_ids_to_tokens(i)) for i in place.ids]
    expansion = text.process(picture(60, 80)).expansion
    runs = [token * count for token in {*tokens, place.text} for count in (1, 2, 70)]
    for parts in itertools.product([*PIECES, expansion, *runs], repeat=2):
        whole = "".join([*parts, "b", *reversed(parts)])
        assert text.encode(whole) == TextTokenizer.encode(text, whole)
        assert text.encode(whole, add_special_tokens=False) == TextTokenizer.encode(
            text, whole, add_special_tokens=False
        )


def test_a_run_is_read_once() -> None:
    text, read = load("qwen2_5_vl").text, list[str]()
    [pad] = text._processor.placeholders["image"].ids
    token = str(text.tokenizer.convert_ids_to_tokens(pad))

    def encode(given: str) -> list[int]:
        read.append(given)
        return TextTokenizer.encode(text, given)

    made = Runs(text.tokenizer._tokenizer, [pad]).encode(f"a{token * 900}b{token * 3}", encode)
    assert made.count(pad) == 903 and read == [f"a{token}b{token}"]


def test_where_a_tokenizer_reads_placeholders_otherwise_it_reads_them_all() -> None:
    text, read = load("qwen2_5_vl").text, list[str]()
    [pad] = text._processor.placeholders["image"].ids
    token = str(text.tokenizer.convert_ids_to_tokens(pad))

    def encode(given: str) -> list[int]:
        read.append(given)
        return [1] * len(given)

    assert Runs(text.tokenizer._tokenizer, [pad]).encode(token * 9, encode) == [1] * len(token * 9)
    assert read == [token, token * 9]


# -- a processor's tokenizer ----------------------------------------------------------------------------------------


class Counted:
    """A tokenizer that says how often it is called."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.calls = tokenizer, 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return self.tokenizer(*args, **options)


@pytest.fixture
def counted() -> Counted:
    return Counted(load("qwen2_5_vl").text.tokenizer._tokenizer)


def test_a_text_that_a_processor_had_read_is_kept(counted: Counted) -> None:
    kept = OneAtATime(counted)
    want = counted.tokenizer(["a b"], padding=True)
    for _ in range(3):
        made = kept(["a b"], padding=True)
        assert dict(made) == dict(want) and made.word_ids(0) == want.word_ids(0) and type(made) is type(want)
        made["input_ids"][0].append(7)
        made["other"] = 1
    assert counted.calls == 1


def test_other_texts_options_and_arrays_are_read(counted: Counted) -> None:
    kept = OneAtATime(counted)
    calls: list[tuple[Any, dict[str, Any]]] = [
        (["a"], {}),
        (["a", "b"], {}),
        (["a"], {"add_special_tokens": False}),
        (["a"], {"return_tensors": "np"}),
        (["a"], {"return_tensors": "np"}),
        ("a", {}),
        ([["a", "b"]], {"is_split_into_words": True}),
    ]
    for given, options in calls:
        got, want = kept(given, **options), counted.tokenizer(given, **options)
        assert np.array_equal(np.array(got["input_ids"]), np.array(want["input_ids"]))
    assert counted.calls == len(calls)


def test_few_texts_are_kept(counted: Counted) -> None:
    kept = OneAtATime(counted)
    for number in range(_KEPT_TEXTS + 1):
        kept([f"text {number}"])
    kept([f"text {_KEPT_TEXTS}"])
    assert counted.calls == _KEPT_TEXTS + 1
    kept(["text 0"])
    assert counted.calls == _KEPT_TEXTS + 2
