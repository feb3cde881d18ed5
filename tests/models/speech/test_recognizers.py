"""Models that write down speech and are no Whisper: the text is that of mlx-audio's own `generate`, part by part."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.endpoints.audio.transcriptions.recognition import join_parts
from localai_shim.engine.engine import Engine
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.loading import load_model
from localai_shim.models.speech.recognizers import PART_SECONDS, Recognizer, divide, read_result
from localai_shim.speech import HeardSegment, Recognized, Recognizing
from localai_shim.types import Event, Failure, RecognitionRequest, RowError
from tests.mlx_audio_models import RECOGNIZERS, sound, tiny_speech


@functools.cache
def upstream(family: str) -> Any:
    from mlx_audio.stt.utils import load_model

    return load_model(tiny_speech(family))


def heard(family: str, samples: np.ndarray) -> str:
    """The text of mlx-audio's own `generate`."""
    return str(upstream(family).generate(mx.array(samples)).text).strip()


@pytest.fixture(scope="module", params=RECOGNIZERS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(family: str) -> Iterator[Engine[Any]]:
    made: Engine[Any] = Engine(lambda: load_model(str(tiny_speech(family)), {}))
    made.wait()
    yield made
    made.close()


class Hearing:
    """One file, and what came of it."""

    def __init__(self, engine: Engine[Any], samples: np.ndarray, **more: Any) -> None:
        self.sink, self.work = SyncSink(), RecognitionRequest(samples, **more)
        self.ticket = engine.submit([self.work], self.sink)

    def parts(self) -> list[Recognized]:
        """Wait for all parts. Raises what it failed with."""
        found: list[Recognized] = []
        while True:
            event: Event = self.sink.get(60)[1]
            if isinstance(event, Failure):
                raise event.error
            part = self.work.pieces.popleft() if self.work.pieces else None
            if part is None:
                assert event.finish_reason == "stop"
                return found
            found.append(part)


def test_the_text_is_that_of_mlx_audio(engine: Engine[Any], family: str) -> None:
    [part] = Hearing(engine, sound(2)).parts()
    assert part.text == heard(family, sound(2)) != "" and part.seconds == 2.0


def test_files_run_one_after_the_other_and_get_their_own_text(engine: Engine[Any], family: str) -> None:
    files = [sound(1, seed) for seed in range(3)]
    hearings = [Hearing(engine, samples) for samples in files]
    texts = [join_parts(hearing.parts()).text for hearing in hearings]
    assert texts == [heard(family, samples) for samples in files]


def test_a_long_file_comes_in_parts_whose_times_follow_each_other(engine: Engine[Any], family: str) -> None:
    """Parakeet divides files itself, so that its parts are longer."""
    samples = sound(PART_SECONDS + 5)
    if family == "parakeet":
        [part] = Hearing(engine, samples).parts()
        assert part.text == heard(family, samples)
        return
    parts = Hearing(engine, samples).parts()
    places = divide(samples, 16_000, PART_SECONDS)
    assert [part.text for part in parts] == [heard(family, samples[start:end]) for start, end in places]
    whole = join_parts(parts)
    assert whole.text == " ".join(part.text for part in parts) and whole.seconds == PART_SECONDS + 5
    assert [segment.start for segment in whole.segments] == [start / 16_000 for start, _ in places]
    assert whole.output_tokens == sum(part.output_tokens for part in parts) > 0


def test_segments_have_the_times_that_the_model_says(engine: Engine[Any], family: str) -> None:
    [part] = Hearing(engine, sound(3)).parts()
    if family == "parakeet":
        made = upstream(family).generate(mx.array(sound(3)))
        assert part.segments == tuple(HeardSegment(s.start, s.end, s.text.strip()) for s in made.sentences)
        assert len(part.segments) > 1
    else:
        assert part.segments == (HeardSegment(0.0, 3.0, part.text),)


def test_sound_that_a_model_cannot_read_fails_its_request_only(engine: Engine[Any], family: str) -> None:
    with pytest.raises(RowError, match="recognizing speech failed"):
        Hearing(engine, np.array(["no", "sound"])).parts()
    assert Hearing(engine, sound(1)).parts()[0].text == heard(family, sound(1))


def test_the_task_and_its_settings_are_the_model_s(engine: Engine[Any], family: str) -> None:
    assert engine.model.tasks == ("recognize",)
    assert engine.model.settings["recognize"] == Recognizing(False, False, family == "moonshine")


# -- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.01, 9.9, 10.0, 10.1, 25.0, 61.3])
def test_parts_cover_a_file_without_gaps_and_none_is_too_long(seconds: float) -> None:
    samples = sound(seconds)
    parts = divide(samples, 16_000, 10.0)
    assert parts[0][0] == 0 and parts[-1][1] == len(samples)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(parts))
    assert all(0 < end - start <= 160_000 for start, end in parts)


def test_a_part_ends_where_it_is_quietest() -> None:
    samples = np.ones(16_000 * 15, np.float32)
    samples[16_000 * 8 : 16_000 * 8 + 4_000] = 0
    [(_, end), _] = divide(samples, 16_000, 10.0)
    assert 16_000 * 8 <= end <= 16_000 * 8 + 4_000


# -- arguments and results of other families ------------------------------------------------------------------------


class Model:
    """Takes what the `generate` of some family takes, and says what it was given."""

    sample_rate = 16_000

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def generate(
        self, audio: Any, *, language: Any = None, system_prompt: Any = None, temperature: float = 0.0, **more: Any
    ) -> Any:
        self.given = {"language": language, "system_prompt": system_prompt, "temperature": temperature, **more}
        return SimpleNamespace(text=" said ", language=["English"], prompt_tokens=3, generation_tokens=4)


@pytest.mark.parametrize(
    ("family", "language", "given"),
    [("qwen3_asr", "de", "German"), ("qwen3_asr", "German", "German"), ("voxtral", "German", "de"),
     ("cohere_asr", "de", "de"), ("moonshine", "de", None)],
)  # fmt: skip
def test_a_language_is_passed_as_its_family_names_it(family: str, language: str, given: str | None) -> None:
    model = Model()
    work = RecognitionRequest(sound(1), language=language, prompt="Words", temperature=0.5)
    [part] = Recognizer(model, family, "m").begin(work)  # type: ignore[arg-type]
    assert model.given["language"] == given and model.given["temperature"] == 0.5
    assert model.given["system_prompt"] == ("Words" if family == "qwen3_asr" else None)
    assert part == Recognized("said", (HeardSegment(0.0, 1.0, "said"),), "English", 3, 4, 1.0)


def test_segments_without_times_are_one_for_the_part() -> None:
    made = SimpleNamespace(text="a b", segments=[{"text": "a b", "start": 0.0, "end": 0.0}], language="unknown")
    assert read_result(made, 30.0, 12.0) == Recognized("a b", (HeardSegment(30.0, 42.0, "a b"),), None, 0, 0, 12.0)


def test_a_part_without_words_has_no_segment() -> None:
    empty = read_result(SimpleNamespace(text="  "), 30.0, 12.0)
    assert empty.text == "" and not empty.segments
    words = Recognized("b", (HeardSegment(1.0, 2.0, "b"),), "en", 1, 2, 2.0)
    assert join_parts([empty, words]) == Recognized("b", words.segments, "en", 1, 2, 14.0)
