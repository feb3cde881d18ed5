"""Transcriptions and speech of scripted clients: scripted, made up, failing, and what the test is told of them."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterable
from typing import Any

import anyio
import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.testing import (
    AsyncScriptedOpenAI,
    IncompleteScript,
    Reply,
    Request,
    ScriptedEngine,
    ScriptedOpenAI,
    UnexpectedRequest,
    content_filter,
    cut,
    hang,
    patch_openai,
    rate_limit,
    reasoning,
    scripted,
    server_error,
    speech,
    timed,
    timeout,
    tool_call,
    transcription,
)
from tests.conftest import revalidate
from tests.prompt.media.files import wav

pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # translations, in openai 3.x
FILE = wav(np.zeros(64_000, np.int16), 16_000)
SECONDS = 4.0
IMPATIENT: Any = {"max_retries": 0, "timeout": 1}


def hear(client: Any, file: Any = FILE, **more: Any) -> Any:
    return client.audio.transcriptions.create(**{"model": "whisper-1", "file": file, **more})


def speak(client: Any, text: str = "Hello there.", **more: Any) -> bytes:
    fields = {"model": "tts-1", "voice": "alloy", "response_format": "pcm", "input": text, **more}
    content: bytes = client.audio.speech.create(**fields).content
    return content


def collect(seen: list[Any], stream: Iterable[Any]) -> None:
    """Keep what comes before a stream breaks."""
    for each in stream:
        seen.append(each)  # noqa: PERF402


# -- transcriptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("text", "Hello there."),
        ("srt", "1\n00:00:00,000 --> 00:00:04,000\nHello there.\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:04.000\nHello there.\n\n"),
    ],
)
def test_a_text_is_a_transcription_in_each_plain_format(client: ScriptedOpenAI, format: str, expected: str) -> None:
    assert hear(client.script("Hello there."), response_format=format) == expected


def test_an_answer_has_the_text_and_the_length_of_the_file(client: ScriptedOpenAI) -> None:
    made = hear(client.script("Hello there."))
    revalidate(made)
    assert made.text == "Hello there." and made.usage.to_dict() == {"type": "duration", "seconds": SECONDS}


def test_a_text_is_one_segment_and_its_words_share_the_file_by_characters(client: ScriptedOpenAI) -> None:
    made = hear(
        client.script("Hello it."),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="de",
    )
    revalidate(made)
    assert (made.language, made.duration) == ("german", SECONDS)
    assert [(each.start, each.end, each.text) for each in made.segments] == [(0.0, SECONDS, "Hello it.")]
    assert [(each.word, each.start, each.end) for each in made.words] == [("Hello", 0.0, 2.5), ("it", 2.5, SECONDS)]


def test_segments_have_the_times_of_the_script(client: ScriptedOpenAI) -> None:
    client.script(transcription((0, 1.5, "Hello."), (2, 3, "It rains."), language="welsh"))
    made = hear(client, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert (made.text, made.language) == ("Hello. It rains.", "welsh")
    assert [(each.start, each.end, each.text) for each in made.segments] == [(0, 1.5, "Hello."), (2, 3, "It rains.")]
    assert [(each.word, each.start, each.end) for each in made.words][1:] == [("It", 2, 2.25), ("rains", 2.25, 3)]


def test_segments_without_times_share_the_file(client: ScriptedOpenAI) -> None:
    made = hear(client.script(transcription("abc", "d")), response_format="verbose_json")
    assert [(each.start, each.end) for each in made.segments] == [(0.0, 3.0), (3.0, SECONDS)]


def test_a_segment_beyond_the_end_of_the_file_fails_the_test() -> None:
    with (
        pytest.raises(UnexpectedRequest, match=r"ends at 9 s, and the file of .* has 4 s"),
        scripted(transcription((0, 9, "Hello."))) as client,
    ):
        hear(client)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (("a", (0, 1, "b")), "times for all segments"),
        (((0, 2, "a"), (1, 3, "b")), "must ascend"),
        (((-1, 2, "a"),), "must ascend"),
        (((0, float("inf"), "a"),), "must ascend"),
        (("a", " "), "needs a text"),
    ],
)
def test_segments_that_cannot_be_are_refused(segments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transcription(*segments)


def test_a_stream_has_a_delta_per_token_and_the_whole_text(client: ScriptedOpenAI) -> None:
    client.script(Reply([" Hel", "lo", " w", b"\xc3", b"\xb6", "rld.", "\n"]))
    *deltas, done = hear(client, stream=True)
    for event in (*deltas, done):
        revalidate(event)
    assert [event.delta for event in deltas] == ["Hel", "lo", " w", "ö", "rld."]
    client.script(Reply([b"\xc3", b"\xb6"]))
    assert [each.token for each in hear(client, include=["logprobs"]).logprobs] == [r"\xc3", r"\xb6"]
    assert done.text == "Hello wörld." and done.usage.output_tokens == 8


def test_logprobs_are_those_of_the_reply(client: ScriptedOpenAI) -> None:
    client.script(Reply([" One", " two."], logprobs=[-0.5, -0.25]), Reply([" One", " two."], logprobs=[-0.5, -0.25]))
    made = hear(client, include=["logprobs"])
    assert [(each.token, each.logprob) for each in made.logprobs] == [("One", -0.5), (" two.", -0.25)]
    *deltas, done = hear(client, include=["logprobs"], stream=True)
    assert [each.logprob for event in deltas for each in event.logprobs] == [-0.5, -0.25]
    assert [each.token for each in done.logprobs] == ["One", " two."]


def test_translations_are_scripted_in_the_same_way(client: ScriptedOpenAI) -> None:
    client.script("Hello.", transcription("Hello."))
    create = client.audio.translations.create
    assert create(model="whisper-1", file=FILE).text == "Hello."
    made: Any = create(model="whisper-1", file=FILE, response_format="verbose_json")
    revalidate(made)
    assert (made.language, made.duration, made.segments[0].end) == ("english", SECONDS, SECONDS)


def test_files_and_fields_are_checked_as_a_model_s_are(client: ScriptedOpenAI) -> None:
    for fields, message in (
        ({"file": b"no sound"}, "neither WAV nor MP3 nor FLAC"),
        ({"language": "klingon"}, "This model knows the languages"),
        ({"response_format": "diarized_json"}, "Speakers are not told apart"),
    ):
        with pytest.raises(openai.BadRequestError, match=message):
            hear(client, **fields)
    client.assert_not_called()


def test_requests_say_which_file_and_fields_were_sent(client: ScriptedOpenAI) -> None:
    def reply(request: Request) -> str:
        return f"{request.file and request.file['name']}, {request.user}, {request.parameters}"

    client.script(reply)
    opened = io.BytesIO(FILE)
    made = hear(client, ("talk.wav", opened), prompt="Names", language="en")
    assert made.text == "talk.wav, Names, {'language': 'en'}"
    call = client.last_call
    assert call.api == "audio.transcriptions" and call.file is not None and call.file["bytes"] == len(FILE)
    assert "file: 'talk.wav'" in call.brief()
    client.assert_called(times=1, api="audio.transcriptions", user="Names", model="whisper-1")


@pytest.mark.parametrize("part", [tool_call("look"), reasoning("Well."), content_filter("One")])
def test_what_is_no_text_cannot_be_heard(part: Any) -> None:
    with pytest.raises(UnexpectedRequest, match="is answered with a text, transcription"), scripted(part) as client:
        hear(client)


# -- speech ---------------------------------------------------------------------------------------------------------


def test_speech_needs_no_script_and_is_longer_for_longer_texts(client: ScriptedOpenAI) -> None:
    short, long = speak(client), speak(client, "Hello there, all of you.")
    assert speak(client) == short and len(short) == 2 * 24_000 * 12 // 100 and len(long) == 2 * len(short)
    assert len(speak(client, speed=2)) == len(short) / 2 and speak(client, voice="echo") != short
    assert np.abs(np.frombuffer(short, "<i2")).max() > 1000
    client.assert_complete()


def test_speech_comes_in_the_formats_of_other_clients(client: ScriptedOpenAI) -> None:
    with wave.open(io.BytesIO(speak(client, response_format="wav"))) as file:
        assert (file.getframerate(), file.readframes(10_000)) == (24_000, speak(client))
    raw = client.audio.speech.with_raw_response.create(model="m", voice="v", input="Hi", response_format="wav")
    assert raw.headers["content-type"] == "audio/wav"


def test_streamed_speech_comes_word_by_word(client: ScriptedOpenAI) -> None:
    create = client.audio.speech.with_streaming_response.create
    with create(model="m", voice="alloy", input="Hello there.", response_format="pcm") as response:
        pieces = list(response.iter_bytes())
    assert len(pieces) == 2 and b"".join(pieces) == speak(client)
    events = speak(client, extra_body={"stream_format": "sse"}).decode()
    assert events.count("speech.audio.delta") >= 2 and '"output_tokens":2' in events.replace(" ", "")


def test_scripted_speech_is_played_sample_by_sample(client: ScriptedOpenAI) -> None:
    samples = np.array([0.0, 0.5, -1.0], np.float32)
    file = wav(np.arange(30_000, dtype=np.int16), 24_000)
    client.script(speech(samples), speech(file))
    assert np.frombuffer(speak(client), "<i2").tolist() == [0, 16384, -32767]
    played = np.frombuffer(speak(client), "<i2")
    assert len(played) == 30_000 and np.abs(played - np.arange(30_000)).max() <= 1


@pytest.mark.parametrize("sound", [[], [[0.1], [0.2]], [float("nan")], b"no sound"])
def test_what_is_no_sound_cannot_be_scripted(sound: Any) -> None:
    with pytest.raises(ValueError, match=r"sample|audio"):
        speech(sound)


def test_requests_have_the_text_and_the_voice(client: ScriptedOpenAI) -> None:
    speak(client, instructions="Whisper.")
    call = client.last_call
    assert (call.api, call.user, call.system) == ("audio.speech", "Hello there.", "Whisper.")
    assert call.body["voice"] == "alloy" and call.parameters == {"voice": "alloy", "response_format": "pcm"}
    client.assert_called(times=1, api="audio.speech", user="there")


def test_a_script_of_texts_leaves_speech_to_the_client(client: ScriptedOpenAI) -> None:
    client.script("What time is it?", "It is seven.")
    assert hear(client).text == "What time is it?"
    speak(client, client.responses.create(model="m", input="What time is it?").output_text)
    assert client.last_call.user == "It is seven."
    client.assert_complete()


def test_speech_that_was_scripted_is_not_made_up_afterwards() -> None:
    with scripted(speech([0.1]), assert_complete=False) as client:
        speak(client)
        with pytest.raises(UnexpectedRequest, match="no reply is scripted"):
            speak(client)


def test_rules_answer_audio(client: ScriptedOpenAI) -> None:
    client.when(api="audio.speech", user="Hello").reply(speech([0.25])).always()
    client.when(api="audio.transcriptions").reply("Yes.").always()
    client.when(api="audio.speech", user="bad").reply("a text")
    assert len(speak(client)) == 2 and hear(client).text == hear(client).text == "Yes."
    with pytest.raises(UnexpectedRequest, match="is answered with speech"):
        speak(client, "bad")


# -- failures, and what is not scripted -----------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [hear, speak])
def test_failures_come_as_for_chat_and_are_retried(ask: Any) -> None:
    with scripted(rate_limit(retry_after=20), server_error(), *["Fine."] * (ask is hear)) as client:
        assert ask(client)
        assert client.clock.sleeps[0] == 20 and [call.attempt for call in client.calls] == [0, 1, 2]
    for failure, kind in ((rate_limit(), openai.RateLimitError), (timeout(), openai.APITimeoutError)):
        with scripted(failure, client=IMPATIENT) as client, pytest.raises(kind):
            ask(client)
    with (
        scripted(hang(), client={"max_retries": 0, "timeout": 0.05}) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        ask(client)


def test_streams_break_in_the_middle() -> None:
    seen: list[Any] = []
    with scripted(cut("one two three", tokens=2), cut(tokens=1), client=IMPATIENT) as client:
        with pytest.raises(Exception, match="onnection"):
            collect(seen, (event.delta for event in hear(client, stream=True)))
        assert seen == ["one", " two"]
        create = client.audio.speech.with_streaming_response.create
        with (
            create(model="m", voice="alloy", input="Hello there.", response_format="pcm") as response,
            pytest.raises(Exception, match="onnection"),
        ):
            collect(seen, response.iter_bytes())
        assert len(seen) == 3 and speak(client).startswith(seen[2])


def test_audio_takes_time_on_the_client_s_clock() -> None:
    with scripted(timed("one two", first_token=2, tokens_per_second=4), timed(first_token=1)) as client:
        hear(client)
        assert client.clock.now == pytest.approx(2.5)
        speak(client)
        assert client.clock.now == pytest.approx(3.5)


def test_equal_files_get_equal_made_up_texts(client: ScriptedOpenAI) -> None:
    others = {hear(client, wav(np.full(16_000, i, np.int16), 16_000)).text for i in range(12)}
    assert hear(client).text == hear(client, io.BytesIO(FILE)).text != "" and len(others) > 1


def test_replies_for_audio_that_are_left_fail_the_test() -> None:
    with pytest.raises(IncompleteScript, match="1 of 1 replies were not played"), scripted(speech([0.1])) as client:
        hear_nothing = client.calls
    assert hear_nothing == []


# -- other clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_clients_hear_and_speak(backend: str) -> None:
    async def main() -> None:
        async with AsyncScriptedOpenAI().script("One two.", "Three.") as client:
            stream: Any = await hear(client, stream=True)
            assert [event.type async for event in stream] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
            assert (await hear(client)).text == "Three."
            create: Any = client.audio.speech.with_streaming_response.create
            async with create(model="m", voice="alloy", input="Hello there.", response_format="pcm") as response:
                assert len([piece async for piece in response.iter_bytes()]) == 2

    anyio.run(main, backend=backend)


def test_clients_that_code_makes_itself_are_answered(client: ScriptedOpenAI) -> None:
    client.script("One two.", transcription((0, 1, "Hi.")), "One two.")
    with patch_openai(client):
        stock = openai.OpenAI(api_key="unused")
        assert hear(stock).text == "One two."
        made = hear(stock, response_format="verbose_json", timestamp_granularities=["word", "segment"])
        assert (made.segments[0].end, made.words[0].word) == (1.0, "Hi")
        assert speak(stock) == speak(client)
    assert hear(openai.OpenAI(api_key="unused", http_client=http_client(engine=client.stage))).text == "One two."


def test_the_engine_alone_hears_replies_and_speaks() -> None:
    with ScriptedEngine(["Hello."]) as engine, LocalOpenAI(engine=engine) as client:
        assert hear(client, prompt="Names").text == "Hello." and len(speak(client)) == 5760
        assert engine.prompts == ["Names"] and engine.heard[0].prompt == "Names"
        assert (engine.spoken[0].text, engine.spoken[0].voice) == ("Hello there.", "alloy")
        with pytest.raises(openai.BadRequestError, match="no reply is left"):
            hear(client)


async def _many(client: AsyncLocalOpenAI) -> set[str]:
    found: set[str] = set()

    async def one(name: str) -> None:
        found.add((await hear(client, (f"{name}.wav", FILE))).text)

    async with anyio.create_task_group() as group:
        for i in range(16):
            group.start_soon(one, f"{i}")
    return found


def test_concurrent_files_each_get_their_own_reply() -> None:
    client = AsyncScriptedOpenAI()
    client.when().reply(lambda request: request.file["name"]).always()
    assert anyio.run(_many, client) == {f"{i}.wav" for i in range(16)}
