"""`reasoning_content`, DeepSeek's name, and `reasoning`, vLLM's newer one: there on every message and every delta.

Before, they were left out where there was no reasoning, and `message.reasoning_content`, as DeepSeek's guide reads it,
was an AttributeError.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.conftest import MESSAGES, revalidate
from tests.endpoints.functions import CALL, TOOLS
from tests.endpoints.scripting import ask

THINKS = "<think>So it is.</think>Yes."
ANSWERS = {
    "reasoning and content": (THINKS, {}, "So it is."),
    "content": ("Yes.", {}, None),
    "reasoning only": ("<think>So it is.", {}, "So it is."),
    "nothing": ("", {}, None),
    "a call": (CALL, {"tools": TOOLS}, None),
    "a call that was thought about": (f"<think>So it is.</think>{CALL}", {"tools": TOOLS}, "So it is."),
    "a function": (CALL, {"functions": [TOOLS[0]["function"]]}, None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_messages_and_deltas_always_have_both_names(name: str) -> None:
    text, more, expected = ANSWERS[name]
    with ScriptedEngine([text] * 3) as engine:
        client = LocalOpenAI(engine=engine)
        whole = ask(client, **more)
        chunks = list(ask(client, stream=True, **more))
        raw = client.chat.completions.with_raw_response.create(model="any", messages=MESSAGES, **more)
    revalidate(whole)
    message = whole.choices[0].message
    assert message.reasoning_content == message.reasoning == expected
    for chunk in chunks:
        revalidate(chunk)
        delta = chunk.choices[0].delta
        assert delta.reasoning_content == delta.reasoning
    assert "".join(chunk.choices[0].delta.reasoning_content or "" for chunk in chunks) == (expected or "")
    sent = json.loads(raw.http_response.text)["choices"][0]["message"]
    assert sent["reasoning_content"] == sent["reasoning"] == expected


def test_deepseeks_guide_runs() -> None:
    """https://api-docs.deepseek.com/guides/reasoning_model, but for contents that are null in OpenAI's first and last
    chunks."""
    with ScriptedEngine([THINKS, THINKS]) as engine:
        client = LocalOpenAI(engine=engine)
        message = ask(client).choices[0].message
        assert (message.reasoning_content, message.content) == ("So it is.", "Yes.")
        reasoning_content = content = ""
        for chunk in ask(client, stream=True):
            if chunk.choices[0].delta.reasoning_content:
                reasoning_content += chunk.choices[0].delta.reasoning_content
            else:
                content += chunk.choices[0].delta.content or ""
        assert (reasoning_content, content) == ("So it is.", "Yes.")


def test_the_sdks_stream_helper_puts_both_together() -> None:
    with ScriptedEngine([THINKS]) as engine:
        client = LocalOpenAI(engine=engine)
        with client.chat.completions.stream(model="any", messages=MESSAGES) as stream:
            message: Any = stream.get_final_completion().choices[0].message
        assert (message.reasoning_content, message.reasoning, message.content) == ("So it is.", "So it is.", "Yes.")


@pytest.mark.parametrize("name", ["reasoning and content", "content", "a call", "a call that was thought about"])
@pytest.mark.parametrize("how", ["model_dump", "to_dict", "object"])
def test_a_message_goes_back_as_it_is_dumped(name: str, how: str) -> None:
    text, more, expected = ANSWERS[name]
    with ScriptedEngine([text, "Good."]) as engine:
        client = LocalOpenAI(engine=engine)
        message = ask(client, **more).choices[0].message
        sent = message if how == "object" else getattr(message, how)()
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "20 degrees"} for call in message.tool_calls or []
        ]
        ask(client, messages=[*MESSAGES, sent, *results], **more)
    assert engine.prompts[1].count("So it is.") == (expected is not None)
    assert "None" not in engine.prompts[1]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_each_name_of_the_reasoning_alone_reaches_the_template(name: str) -> None:
    with ScriptedEngine(["Good."]) as engine:
        history = [*MESSAGES, {"role": "assistant", "content": "Yes.", name: "So it is."}, *MESSAGES]
        ask(LocalOpenAI(engine=engine), messages=history)
    assert "<think>\nSo it is.\n</think>\n\nYes." in engine.prompts[0]
