"""client.audio.transcriptions and translations: each form of the answer, sync, async, streamed and raw."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.testing import Reply
from tests.conftest import revalidate
from tests.endpoints.audio.listening import ENGLISH, ListeningEngine, ids, says, sound
from tests.otel import global_telemetry

HELLO = says(0.0, " Hello there.", 2.0, 2.0, " It rains.", 4.5)


def client_of(*rows: Any, **more: Any) -> LocalOpenAI:
    return LocalOpenAI(engine=ListeningEngine(*rows, **more))


def ask(client: LocalOpenAI, seconds: float = 5, **fields: Any) -> Any:
    return client.audio.transcriptions.create(**{"model": "m", "file": ("a.wav", sound(seconds)), **fields})


def test_an_answer_has_the_text_and_the_duration() -> None:
    made = ask(client_of(HELLO))
    revalidate(made)
    assert made.text == "Hello there. It rains."
    assert made.usage.to_dict() == {"type": "duration", "seconds": 5.0} and made.logprobs is None


def test_a_verbose_answer_has_segments() -> None:
    made = ask(client_of(HELLO, language="de"), response_format="verbose_json", timestamp_granularities=["segment"])
    revalidate(made)
    assert (made.text, made.language, made.duration) == ("Hello there. It rains.", "german", 5.0)
    first, second = made.segments
    assert (first.id, first.start, first.end, first.text) == (0, 0.0, 2.0, " Hello there.")
    assert (second.id, second.start, second.end, second.text) == (1, 2.0, 4.5, " It rains.")
    assert first.tokens == ids(0.0, " Hello there.", 2.0)
    assert (first.seek, first.temperature, round(first.no_speech_prob, 6)) == (0, 0.0, 0.1)
    assert -0.11 < first.avg_logprob < -0.09 and 0 < first.compression_ratio < 1
    assert made.usage.seconds == 5.0


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("text", "Hello there. It rains."),
        (
            "srt",
            "1\n00:00:00,000 --> 00:00:02,000\nHello there.\n\n2\n00:00:02,000 --> 00:00:04,500\nIt rains.\n\n",
        ),
        (
            "vtt",
            "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nHello there.\n\n00:00:02.000 --> 00:00:04.500\nIt rains.\n\n",
        ),
    ],
)
def test_plain_formats_are_strings(format: str, expected: str) -> None:
    client = client_of(HELLO, HELLO, HELLO)
    made = ask(client, response_format=format)
    assert type(made) is str and made == expected
    fields: Any = {"model": "m", "file": sound(5), "response_format": format}
    raw = client.audio.transcriptions.with_raw_response.create(**fields)
    assert raw.parse() == raw.text == expected and raw.headers["content-type"] == "text/plain; charset=utf-8"
    with client.audio.transcriptions.with_streaming_response.create(**fields) as response:
        assert b"".join(response.iter_bytes()).decode() == expected


def test_a_stream_has_the_text_in_pieces_and_then_whole() -> None:
    engine = ListeningEngine(HELLO)
    events = list(ask(LocalOpenAI(engine=engine), stream=True))
    for event in events:
        revalidate(event)
    assert [event.type for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert [event.delta for event in events[:-1]] == ["Hello there.", " It rains."]
    assert events[-1].text == "Hello there. It rains." and events[-1].logprobs is None
    usage, [row] = events[-1].usage, engine.rows
    assert usage.output_tokens == len(ids(0.0, " Hello there.", 2.0, 2.0, " It rains.", 4.5)) + 1
    assert usage.input_token_details.audio_tokens == 250
    assert usage.input_token_details.text_tokens == len(row.prompt.tokens) - 1 == 3
    assert usage.input_tokens == 253 and usage.total_tokens == 253 + usage.output_tokens


def test_a_raw_stream_has_named_events() -> None:
    client = client_of(HELLO)
    with client.audio.transcriptions.with_streaming_response.create(model="m", file=sound(5), stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert [line for line in lines if line.startswith("event")] == [
        "event: transcript.text.delta", "event: transcript.text.delta", "event: transcript.text.done",
    ]  # fmt: skip
    assert json.loads(lines[-1].removeprefix("data: "))["text"] == "Hello there. It rains."


def test_logprobs_are_those_of_the_texts_tokens() -> None:
    client = client_of(HELLO, HELLO)
    made = ask(client, include=["logprobs"])
    revalidate(made)
    assert "".join(each.token for each in made.logprobs) == made.text
    assert bytes(map(int, (byte for each in made.logprobs for byte in each.bytes))).decode() == made.text
    assert {each.logprob for each in made.logprobs} == {-0.1}
    *deltas, done = ask(client, include=["logprobs"], stream=True)
    for delta in deltas:
        assert "".join(each.token for each in delta.logprobs) == delta.delta
    assert [each.token for each in done.logprobs] == [each.token for each in made.logprobs]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI ends whisper-1
def test_a_translation_has_english_text() -> None:
    engine = ListeningEngine(HELLO, HELLO, HELLO, language="de")
    client = LocalOpenAI(engine=engine)
    file = ("a.wav", sound(5))
    made = client.audio.translations.create(model="m", file=file)
    verbose: Any = client.audio.translations.create(model="m", file=file, response_format="verbose_json")
    text: Any = client.audio.translations.create(model="m", file=file, response_format="text")
    revalidate(made)
    revalidate(verbose)
    assert made.text == verbose.text == text == "Hello there. It rains."
    assert (verbose.language, verbose.duration, len(verbose.segments)) == ("english", 5.0, 2)
    assert engine.rows[0].prompt.tokens[2:] == [
        engine.settings.languages["de"], engine.settings.translate
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI ends whisper-1
def test_a_model_of_english_translates_nothing() -> None:
    client = client_of(HELLO, settings=ENGLISH)
    with pytest.raises(openai.BadRequestError, match="cannot translate") as caught:
        client.audio.translations.create(model="m", file=sound(1))
    assert (caught.value.param, caught.value.code) == ("model", "unsupported_model")


def test_async_clients_answer_the_same_and_sixteen_files_at_a_time() -> None:
    def reply(request: Any, start: int) -> Reply:
        return HELLO

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=ListeningEngine(reply)) as client:
            create, texts = client.audio.transcriptions.create, list[str]()

            async def transcribe() -> None:
                texts.append((await create(model="m", file=sound(5))).text)

            async with anyio.create_task_group() as group:
                for _ in range(16):
                    group.start_soon(transcribe)
            assert texts == ["Hello there. It rains."] * 16
            events = [event async for event in await create(model="m", file=sound(5), stream=True)]
            assert [event.type for event in events][-1] == "transcript.text.done" and len(events) == 3
            assert await create(model="m", file=sound(5), response_format="text") == "Hello there. It rains."
            raw = await client.audio.transcriptions.with_raw_response.create(
                model="m", file=sound(5), response_format="vtt"
            )
            assert raw.parse().startswith("WEBVTT")

    anyio.run(main)


def test_files_come_in_each_form_of_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(sound(5))
    client = client_of(*[HELLO] * 7)
    open_file = path.open("rb")
    files = [path, path.read_bytes(), open_file, open_file, io.BytesIO(sound(5)), ("b.wav", sound(5), "audio/wav")]
    assert {ask(client, file=file).text for file in files} == {"Hello there. It rains."}
    open_file.close()


def test_a_stock_client_sends_a_form() -> None:
    engine = ListeningEngine(HELLO, HELLO, HELLO)
    with openai.OpenAI(api_key="k", http_client=http_client(engine=engine), base_url="http://x/v1") as client:
        made = client.audio.transcriptions.create(
            model="m", file=sound(5), temperature=0.5, language="de", response_format="verbose_json",
            timestamp_granularities=["segment"], chunking_strategy={"type": "server_vad", "threshold": 0.5},
        )  # fmt: skip
        assert made.text == "Hello there. It rains." and made.language == "german"
        assert engine.rows[0].sampling.temperature == 0.5
        events = list(client.audio.transcriptions.create(model="m", file=sound(5), stream=True, include=["logprobs"]))
        assert events[-1].text == made.text and events[-1].logprobs
        assert client.audio.transcriptions.create(model="m", file=sound(5), response_format="text") == made.text


def test_a_model_of_text_does_not_transcribe(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot transcribe speech") as caught:
        client.audio.transcriptions.create(model="m", file=sound(1))
    assert caught.value.code == "unsupported_model"


def test_a_model_that_transcribes_does_nothing_else() -> None:
    client = client_of(HELLO)
    with pytest.raises(openai.BadRequestError, match=r"client\.audio\.transcriptions"):
        client.embeddings.create(model="m", input="Hello")


def test_the_log_has_a_line_for_each_file(caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(HELLO)
    with caplog.at_level("INFO", "localai_shim"):
        ask(client)
        with pytest.raises(openai.BadRequestError):
            ask(client, language="sv")
    served, refused = (record.getMessage() for record in caplog.records)
    rows = f"out={len(ids(0.0, ' Hello there.', 2.0, 2.0, ' It rains.', 4.5)) + 2}"
    assert served.startswith("POST /audio/transcriptions") and rows in served and "finish=stop" in served
    assert "error=BadRequestError" in refused and "param=language" in refused


def test_a_request_has_a_span_with_its_tokens() -> None:
    with global_telemetry() as telemetry:
        ask(client_of(HELLO))
        _, attributes = telemetry.one()
    assert attributes["gen_ai.operation.name"] == "transcription"
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.output_tokens"] > 20
