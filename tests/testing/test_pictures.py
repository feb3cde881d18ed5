"""Images, videos and sounds sent to a scripted model: no code that sends pictures needs a model that sees."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import refused
from tests.endpoints.pictures import data_url, image_url, input_image, user, user_item
from tests.scripts import run


def _wav() -> str:
    """The beginning of a file."""
    return base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)).decode()


AUDIO: Any = {"type": "input_audio", "input_audio": {"data": _wav(), "format": "wav"}}
VIDEO: Any = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}


def prompt(*messages: Any, **more: Any) -> str:
    """What a scripted model reads of a conversation."""
    with ScriptedEngine(["Yes."], **more) as engine, LocalOpenAI(engine=engine) as client:
        client.chat.completions.create(model="any", messages=messages)
        return engine.prompts[0]


def test_the_prompt_shows_where_they_stand() -> None:
    text = prompt(
        user("a", image_url(data_url()), "b", AUDIO, VIDEO, image_url(data_url())), {"role": "user", "content": "c"}
    )
    assert text == (
        "<|im_start|>user\na<image>b<audio><video><image><|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("filters", ["", "| trim", "| upper", "| replace('a', 'b') | trim"])
def test_any_template_will_do(filters: str) -> None:
    template = "{% for m in messages %}[{{ m.content " + filters + " }}]{% endfor %}"
    text = prompt(user(" x ", image_url(data_url()), "y"), tokenizer=ScriptedTokenizer(chat_template=template))
    assert text.upper().replace(" ", "") == "[X<IMAGE>Y]"


def test_items_calls_and_earlier_turns_may_have_them() -> None:
    with ScriptedEngine(["Yes."] * 2) as engine, LocalOpenAI(engine=engine) as client:
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        output = user_item("see", input_image(data_url()))["content"]
        result = {"type": "function_call_output", "call_id": "c", "output": output}
        items: Any = [user_item(input_image(data_url())), call, result]
        first = client.responses.create(model="any", input=items)
        client.responses.create(model="any", input="And?", previous_response_id=first.id)
        assert [text.count("<image>") for text in engine.prompts] == [2, 2]
        assert "see<image>" in engine.prompts[1]
        assert [span.media.kind for span in engine.requests[0].prompt.media] == ["image", "image"]


def test_text_that_looks_like_one_is_none() -> None:
    with ScriptedEngine(["An <image>."]) as engine, LocalOpenAI(engine=engine) as client:
        answer = client.chat.completions.create(model="any", messages=[user("<image>", image_url(data_url()))])
        assert answer.choices[0].message.content == "An <image>."
        assert len(engine.requests[0].prompt.media) == 1


def test_pixels_are_not_looked_at_but_parts_are() -> None:
    assert "<image>" in prompt(user(image_url("data:image/png;base64,bm8gcGljdHVyZQ==")))
    for part, at, code in (
        (image_url("data:image/png;base64,!"), ".image_url.url", "invalid_base64_image"),
        (image_url("https://example.com/a.png"), ".image_url.url", "invalid_image_url"),
        ({"type": "image_url", "image_url": {}}, ".image_url.url", "missing_required_parameter"),
    ):
        with refused(f"messages[0].content[0]{at}", code, "image_url"):
            prompt(user(part))


def test_a_scripted_model_says_that_it_reads_all_media() -> None:
    with ScriptedEngine() as engine, LocalOpenAI(engine=engine) as client:
        assert client.stats().modalities == ("text", "image", "video", "audio")


def test_text_needs_no_decoders() -> None:
    done = run(
        """
        import sys
        from localai_shim import LocalOpenAI
        from localai_shim.testing import ScriptedEngine
        with ScriptedEngine(["Yes."] * 2) as engine, LocalOpenAI(engine=engine) as client:
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}], store=True)
            client.responses.create(model="any", input="Hi")
        assert not {"PIL", "localai_shim.prompt.media.parts", "cv2"} & sys.modules.keys()
        """,
        warm="sdk",
    )
    assert done.returncode == 0, done.stderr
