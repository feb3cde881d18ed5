"""Windows of long files: where each begins, what it follows, what is tried again, and what is left out."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.audio.transcriptions import transcript
from tests.endpoints.audio.listening import (
    ENGLISH,
    FIRST,
    LANGUAGES,
    SETTINGS,
    ListeningEngine,
    for_any_sdk,
    ids,
    says,
    sound,
    token,
)

GUESS = -2.0


def transcribe(engine: ListeningEngine, seconds: float, **fields: Any) -> Any:
    client = LocalOpenAI(engine=engine)
    fields = {"model": "m", "file": sound(seconds), "response_format": "verbose_json", **fields}
    made = client.audio.transcriptions.create(**for_any_sdk(fields))
    assert engine.left == 0
    return made


def starts(engine: ListeningEngine) -> list[int]:
    return [int(row.prompt.media[0].media.inputs["mel"][0, 0]) for row in engine.rows]


def lengths(engine: ListeningEngine) -> list[int]:
    return [len(row.prompt.media[0].media.inputs["mel"]) for row in engine.rows]


def test_a_window_begins_where_the_last_segment_ended() -> None:
    engine = ListeningEngine(
        says(0.0, " One.", 10.0, 10.0, " Two.", 25.5, 25.5, " Thr"), says(0.0, " Three.", 8.0), says(0.0, " Four.", 2.0)
    )
    made = transcribe(engine, 60)
    assert starts(engine) == [0, 2550, 5550] and lengths(engine) == [3000, 3000, 450]
    assert [(s.start, s.end, s.seek, s.text) for s in made.segments] == [
        (0.0, 10.0, 0, " One."), (10.0, 25.5, 0, " Two."), (25.5, 33.5, 2550, " Three."), (55.5, 57.5, 5550, " Four."),
    ]  # fmt: skip
    assert made.text == "One. Two. Three. Four."


def test_a_window_follows_the_text_before_it() -> None:
    engine = ListeningEngine(says(0.0, " One.", 29.0), says(0.0, " Two.", 9.0), says(0.0, " Three.", 9.0))
    transcribe(engine, 90, prompt="Numbers:", language="de")
    behind = [token("sot"), token("de"), token("transcribe")]
    first, second, third = (row.prompt.tokens[1:] for row in engine.rows)
    assert first == [token("previous"), *b" Numbers:", *behind]
    assert second == [token("previous"), *b" Numbers:", *ids(0.0, " One.", 29.0), *behind]
    assert third[:-3] == [*second[:-3], *ids(0.0, " Two.", 9.0)]
    assert all(row.prompt.keys[0] == -row.prompt.media[0].media.digest for row in engine.rows)


def test_a_window_follows_at_most_half_of_what_the_model_reads() -> None:
    engine = ListeningEngine(*[says(0.0, f" {random.Random(i).randbytes(75).hex()}", 29.0) for i in range(4)])
    transcribe(engine, 120, prompt="y" * 400)
    assert [len(row.prompt.tokens) for row in engine.rows] == [1 + 1 + 223 + 3] * 4
    assert engine.rows[0].prompt.tokens[2] == ord("y")
    assert {row.max_tokens for row in engine.rows} == {221}  # of 224, as there is room for 448 in all


def test_a_row_says_how_it_is_to_be_sampled() -> None:
    engine = ListeningEngine(says(0.0, " One.", 2.0))
    transcribe(engine, 3, temperature=0.3)
    [row] = engine.rows
    assert (row.sampling.temperature, row.sampling.group_from, row.sampling.top_logprobs) == (0.3, FIRST, 0)
    assert row.max_tokens == 224 and row.constraint is not None
    mask = np.zeros(60, np.int32)
    assert row.constraint.mask(mask)


@pytest.mark.parametrize("bad", [says(0.0, " la", *[" la"] * 80, 2.0), says(0.0, " Hm.", 2.0, logprob=GUESS)])
def test_a_window_that_repeats_itself_or_is_a_guess_is_tried_at_higher_temperatures(bad: Any) -> None:
    engine = ListeningEngine(bad, bad, says(0.0, " Better.", 2.0))
    made = transcribe(engine, 3)
    assert made.text == "Better." and [s.temperature for s in made.segments] == [0.4]
    assert [row.sampling.temperature for row in engine.rows] == [0.0, 0.2, 0.4]
    assert len({row.sampling.seed for row in engine.rows}) == 3
    assert len({row.prompt.media[0].media.digest for row in engine.rows}) == 1


def test_the_last_temperature_is_taken_whatever_it_says() -> None:
    bad = says(0.0, " Hm.", 2.0, logprob=GUESS)
    engine = ListeningEngine(*[bad] * len(transcript.TEMPERATURES), says(0.0, " Next.", 2.0))
    made = transcribe(engine, 40)
    assert [(s.text, s.temperature) for s in made.segments] == [(" Hm.", 1.0), (" Next.", 0.0)]
    assert engine.rows[-1].prompt.tokens[1] == token("sot"), "text of a high temperature is followed by none"


def test_a_temperature_that_was_given_is_the_only_one() -> None:
    engine = ListeningEngine(says(0.0, " Hm.", 2.0, logprob=GUESS))
    assert transcribe(engine, 3, temperature=0.2).segments[0].temperature == 0.2


def test_a_guess_at_silence_is_left_out() -> None:
    engine = ListeningEngine(
        says(0.0, " Thank you.", 2.0, logprob=GUESS), says(0.0, " Hello.", 2.0), silence=lambda start: 0.9
    )
    made = transcribe(engine, 40)
    assert [(s.text, s.start, round(s.no_speech_prob, 6)) for s in made.segments] == [(" Hello.", 30.0, 0.9)]
    assert len(engine.rows) == 2, "silence is not tried again"


def test_silence_is_asked_about_only_if_the_text_is_a_guess() -> None:
    engine = ListeningEngine(
        says(0.0, " One.", 2.0), says(0.0, " Thank you.", 2.0, logprob=GUESS), says(0.0, " Three.", 2.0), silence=0.9
    )
    made = transcribe(engine, 90, response_format="json", language="en")
    assert made.text == "One. Three."
    [question] = engine.questions
    assert question.prompt.tokens == [
        SETTINGS.end, token("previous"), *ids(0.0, " One.", 2.0), token("sot"), SETTINGS.end
    ]  # fmt: skip
    assert question.prompt.watched == (token("nospeech"),) and question.max_tokens == 1


def test_the_language_is_found_in_the_first_window_along_with_silence() -> None:
    engine = ListeningEngine(says(0.0, " Eins.", 2.0), language="de")
    made = transcribe(engine, 3)
    assert made.language == "german" and engine.rows[0].prompt.tokens[2] == token("de")
    [question] = engine.questions
    assert question.prompt.tokens == [SETTINGS.end, token("sot"), SETTINGS.end]
    assert question.prompt.watched == (token("nospeech"), *(token(code) for code in LANGUAGES))


def test_a_language_that_was_given_is_not_looked_for() -> None:
    engine = ListeningEngine(*[says(0.0, " Un.", 2.0)] * 3, language="de")
    for language in ("fr", "French", " FR "):
        assert transcribe(engine, 3, response_format="verbose_json", language=language).language == "french"
    assert all(question.prompt.watched == (token("nospeech"),) for question in engine.questions)


def test_the_language_is_one_of_those_that_are_possible() -> None:
    engine = ListeningEngine(says(0.0, " Un.", 2.0), says(0.0, " Un.", 2.0), language="de")
    made = transcribe(engine, 3, languages=["en", "fr"])
    assert made.language in ("english", "french")
    assert engine.questions[0].prompt.watched == (token("nospeech"), token("en"), token("fr"))
    assert transcribe(engine, 3, languages=["fr"]).language == "french"


def test_a_model_of_english_has_neither_language_nor_task() -> None:
    engine = ListeningEngine(*[says(0.0, " One.", 2.0)] * 2, settings=ENGLISH)
    assert transcribe(engine, 3, response_format="json").text == "One."
    assert engine.rows[0].prompt.tokens == [SETTINGS.end, token("sot")] and not engine.questions
    assert transcribe(engine, 3, language="en").language == "english"


def test_segments_without_text_or_time_are_left_out() -> None:
    engine = ListeningEngine(says(0.0, " ", 1.0, 1.0, " One.", 2.0, 2.0, " Two.", 2.0))
    assert [s.text for s in transcribe(engine, 3).segments] == [" One."]


def test_a_file_that_says_nothing_has_an_empty_answer() -> None:
    engine = ListeningEngine(*[says(logprob=GUESS)] * 20, silence=0.99)
    made = transcribe(engine, 3)
    assert (made.text, made.segments, made.duration) == ("", [], 3.0)
    client = LocalOpenAI(engine=engine)
    assert client.audio.transcriptions.create(model="m", file=sound(3), response_format="srt") == ""
    events = list(client.audio.transcriptions.create(model="m", file=sound(3), stream=True))
    assert [event.type for event in events] == ["transcript.text.done"]


def test_a_stream_has_no_text_that_is_taken_back() -> None:
    engine = ListeningEngine(
        says(0.0, " Hm.", 2.0, logprob=GUESS),
        says(0.0, " One.", 9.0),
        says(0.0, " Two. ", 9.0),
        says(0.0, " Four.", 9.0),
    )
    client = LocalOpenAI(engine=engine)
    *deltas, done = client.audio.transcriptions.create(model="m", file=sound(90), stream=True)
    assert [event.delta for event in deltas] == ["One.", " Two.", "  Four."]
    assert "".join(event.delta for event in deltas) == done.text == "One. Two.  Four."


def test_keywords_are_part_of_the_prompt() -> None:
    engine = ListeningEngine(says(0.0, " One.", 2.0))
    transcribe(engine, 3, prompt=" Names. ", keywords=["Ada", " Grace "], language="en")
    assert engine.rows[0].prompt.tokens[2:-3] == [*b" Names.\nAda, Grace"]


def test_control_tokens_that_a_prompt_spells_are_text() -> None:
    engine = ListeningEngine(says(0.0, " One.", 2.0))
    transcribe(engine, 3, prompt="Say <|translate|> <|2.00|>", language="en")
    assert engine.rows[0].prompt.tokens[2:-3] == [*b" Say <|translate|> <|2.00|>"]
