"""A processor's tokenizer keeps what it made of its last texts: that is what reading them again makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localai_shim.models.vision.threaded_processor import _KEPT_TEXTS, OneAtATime
from tests import inside
from tests.models.vision.seeing import load


class Counted:
    """A tokenizer that says how often it is called."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.calls = tokenizer, 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return self.tokenizer(*args, **options)


@pytest.fixture
def counted() -> Counted:
    return Counted(inside.tokenizer(load("qwen2_5_vl").text.tokenizer))


def test_a_text_that_a_processor_had_read_is_kept(counted: Counted) -> None:
    kept = OneAtATime(counted)
    want = counted.tokenizer(["a b"], padding=True)
    for _ in range(3):
        made = kept(["a b"], padding=True)
        assert dict(made) == dict(want) and made.word_ids(0) == want.word_ids(0) and type(made) is type(want)
        made["input_ids"][0].append(7)
        made["other"] = 1
    assert counted.calls == 1


def test_texts_options_and_arrays_that_differ_are_read_anew(counted: Counted) -> None:
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
