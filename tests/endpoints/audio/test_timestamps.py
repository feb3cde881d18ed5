"""The rules of timestamps, compared with OpenAI's own and with mlx-audio's, token by token."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.endpoints.audio.transcriptions.timestamps import TimestampConstraint, TimestampRules
from localai_shim.speech import Transcribing
from tests.endpoints.audio.oracle import openai_allows

VOCABULARY = 160
SETTINGS = Transcribing(
    begin=41, end=40, previous=42, no_timestamps=47, first_timestamp=48, last_timestamp=148, suppressed=(3, 7, 41, 42)
)
STAMPS = range(SETTINGS.first_timestamp, SETTINGS.last_timestamp + 1)


def allowed(constraint: TimestampConstraint, words: int = VOCABULARY // 32) -> set[int]:
    out = np.zeros(words, np.int32)
    assert constraint.mask(out) and not constraint.idle and constraint.escape is None
    bits = np.unpackbits(out.view(np.uint8), bitorder="little")
    return {int(i) for i in np.flatnonzero(bits)}


def of_mlx_audio(said: list[int]) -> set[int]:
    from mlx_audio.stt.models.whisper.decoding import ApplyTimestampRules

    tokenizer: Any = SimpleNamespace(
        no_timestamps=SETTINGS.no_timestamps, timestamp_begin=SETTINGS.first_timestamp, eot=SETTINGS.end
    )
    logits = np.zeros((1, SETTINGS.last_timestamp + 1), np.float32)
    logits[0, : SETTINGS.first_timestamp] = 20.0  # no sum of timestamps is above any text
    rules = ApplyTimestampRules(tokenizer, 0, 50)
    found = np.array(rules.apply(mx.array(logits), mx.array([said], dtype=mx.int32).reshape(1, len(said))))[0]
    return {int(i) for i in np.flatnonzero(np.isfinite(found))} - {*SETTINGS.suppressed}


@pytest.mark.parametrize("seed", range(30))
def test_what_is_allowed_is_what_openai_allows(seed: int) -> None:
    numbers, said = random.Random(seed), list[int]()
    constraint = TimestampConstraint(TimestampRules(SETTINGS))
    for _ in range(30):
        found = allowed(constraint)
        expected = openai_allows(said, SETTINGS, SETTINGS.last_timestamp + 1)
        assert found == {*np.flatnonzero(expected).tolist()}
        # mlx-audio's copy lets timestamps descend, by an oversight: it compares places instead of times.
        upstream = of_mlx_audio(said)
        assert found <= upstream and upstream - found <= {*STAMPS}
        choice = numbers.choice(sorted(found - {SETTINGS.end}) or [SETTINGS.end])
        if numbers.random() < 0.4 and (stamps := sorted(found & {*STAMPS})):
            choice = stamps[min(len(stamps) - 1, numbers.randrange(4))]
        said.append(choice)
        assert not constraint.accept(choice) and constraint.forced() == ()
        if choice == SETTINGS.end:
            break


def test_a_window_begins_with_a_timestamp_of_the_first_second() -> None:
    found = allowed(TimestampConstraint(TimestampRules(SETTINGS)))
    assert found == {*range(SETTINGS.first_timestamp, SETTINGS.first_timestamp + 51)}


def test_a_window_can_end_after_the_last_timestamp() -> None:
    constraint = TimestampConstraint(TimestampRules(SETTINGS))
    for token in (48, 5, 148):
        constraint.accept(token)
    assert allowed(constraint) == {*range(40, 47)} - {41, 42} | {148}
    constraint.accept(148)
    assert allowed(constraint) == {*range(47)} - {3, 7, 41, 42}


def test_rows_of_one_request_share_the_rules_and_nothing_else() -> None:
    rules = TimestampRules(SETTINGS)
    first, second = TimestampConstraint(rules), TimestampConstraint(rules)
    before = allowed(second)
    first.accept(50)
    assert allowed(first) != before == allowed(second)


def test_masks_of_larger_vocabularies_have_no_more_tokens() -> None:
    rules = TimestampRules(SETTINGS)
    assert allowed(TimestampConstraint(rules), words=10) == allowed(TimestampConstraint(rules))
