"""Times of words equal those of mlx-audio's port of OpenAI's whisper, given the same attention."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.endpoints.audio.transcriptions.words import align, split_words, time_words, warped

PIECES = [
    *(' "', "Hel", "lo", ",", " Hello", " there", ',"', " she", " said", "."),
    *(" (", "Not", " now", "!)", " Then", " Caf"),
]
PLACES = 300


@pytest.fixture(scope="module")
def upstream() -> Any:
    return pytest.importorskip("mlx_audio.stt.models.whisper.timing")


class Pieces:
    """A tokenizer of made-up pieces, with mlx-audio's own way to find words."""

    language = "en"
    sot_sequence, no_timestamps, eot = (1000,), 1001, 900

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self._pieces[i] for i in tokens if i < self.eot).decode(errors="replace")

    decode_with_timestamps = decode

    def split_to_word_tokens(self, tokens: list[int]) -> Any:
        from mlx_audio.stt.models.whisper.whisper import HFTokenizerWrapper

        wrapper = HFTokenizerWrapper.__new__(HFTokenizerWrapper)
        wrapper.language = self.language
        wrapper.decode_with_timestamps = self.decode
        wrapper.hf_tokenizer = SimpleNamespace(eos_token_id=self.eot)
        return wrapper.split_to_word_tokens(tokens)


def attention(tokens: int, seed: int, heads: int = 3) -> npt.NDArray[np.float32]:
    """Scores of heads that follow the speech, more or less: `[heads, tokens, places]`."""
    random = np.random.default_rng(seed)
    center = np.sort(random.uniform(0, PLACES, tokens))
    near = -(((np.arange(PLACES) - center[:, None]) / 6) ** 2)
    return (np.maximum(near, -9) + random.normal(size=(heads, tokens, PLACES))).astype(np.float32)


def model_of(scores: npt.NDArray[np.float32], logits: npt.NDArray[np.float32]) -> Any:
    """A model whose only layer has these scores."""
    import mlx.core as mx

    padded = np.concatenate([scores[:, :1] * 0, scores, scores[:, :1] * 0], axis=1)
    cross = [mx.array(padded)[None]]
    heads = mx.array([[0, i] for i in range(len(scores))])
    return SimpleNamespace(
        alignment_heads=heads, forward_with_cross_qk=lambda mel, tokens: (mx.array(logits)[None], cross)
    )


def softmax(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 40), (40, 41), (12, 200)])
@pytest.mark.parametrize("seed", range(3))
def test_way_through_a_matrix_is_that_of_upstream(upstream: Any, shape: tuple[int, int], seed: int) -> None:
    costs = np.random.default_rng(seed).normal(size=shape).astype(np.float32).round(1)  # with ties
    expected = upstream.dtw(costs)
    rows, columns = warped(costs)
    assert rows.tolist() == expected[0].tolist()
    assert columns.tolist() == expected[1].tolist()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("parts", [1, 3])
def test_times_of_words_are_those_of_upstream(upstream: Any, seed: int, parts: int) -> None:
    pieces = [piece.encode() for piece in PIECES] + [b"\xc3", b"\xa9", b" went", b" on", b" -", b" and", b"..."]
    tokenizer, tokens = Pieces(pieces), list(range(len(pieces)))
    scores = attention(len(tokens) + 1, seed)
    logits = np.random.default_rng(seed).normal(size=(len(tokens) + 3, 1002)).astype(np.float32)
    bounds = np.linspace(0, len(tokens), parts + 1).astype(int).tolist()
    times = np.linspace(0.0, PLACES / 50, parts + 1).round(2).tolist()
    segments = [
        {"tokens": tokens[bounds[i] : bounds[i + 1]], "start": 60 + times[i], "end": 60 + times[i + 1], "seek": 6000}
        for i in range(parts)
    ]
    given = [(each["start"], each["end"], len(each["tokens"])) for each in segments]

    scored = np.concatenate([scores[:, :1] * 0, scores, scores[:, :1] * 0], axis=1)
    upstream.add_word_timestamps(
        segments=segments,
        model=model_of(scores, logits),
        tokenizer=tokenizer,
        mel=np.zeros((3000, 80)),
        num_frames=2 * PLACES,
        last_speech_timestamp=58.0,
    )

    words = split_words(tokens, tokenizer.decode, spaced=True)
    probabilities = softmax(logits[1:-2, :900])[np.arange(len(tokens)), tokens]
    made = time_words(given, align(softmax(scored), 1, probabilities.tolist(), words), 60.0, 58.0)
    for mine, theirs in zip(made, segments, strict=True):
        assert [word.text for word in mine.words] == [word["word"] for word in theirs["words"]]
        np.testing.assert_allclose([w.start for w in mine.words], [w["start"] for w in theirs["words"]], atol=1e-6)
        np.testing.assert_allclose([w.end for w in mine.words], [w["end"] for w in theirs["words"]], atol=1e-6)
        np.testing.assert_allclose(
            [w.probability for w in mine.words], [w["probability"] for w in theirs["words"]], 1e-4
        )
        assert (mine.start, mine.end) == pytest.approx((theirs["start"], theirs["end"]))
