"""DSPy, which asks through LiteLLM where it is told to."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from localai_shim.testing import tool_call
from tests.frameworks.kit import PARIS, Answer, Behaviours, Weather, framework, get_weather

dspy, litellm = framework("dspy"), framework("litellm")
pytestmark = pytest.mark.weekly


class TestSync(Behaviours):
    snippet = "dspy"
    ends = tool_call("submit", answer="It is sunny in Paris.")
    filled: ClassVar[Any] = {"weather": PARIS}

    def finish(self) -> None:
        litellm.client_session = litellm.aclient_session = None
        litellm.in_memory_llm_clients_cache.flush_cache()

    def says(self, text: str) -> str:
        return f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"

    def ask(self, text: str) -> Any:
        with dspy.context(track_usage=True):
            return answer(dspy.Predict("question -> answer")(question=text))

    async def stream(self, text: str) -> list[str]:
        listener = dspy.streaming.StreamListener(signature_field_name="answer")
        program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
        items = [item async for item in program(question=text)]
        return [item.chunk for item in items if isinstance(item, dspy.streaming.StreamResponse)]

    def use_tool(self, text: str) -> Any:
        with dspy.context(adapter=dspy.ChatAdapter(use_native_function_calling=True)):
            return dspy.ReActV2("question -> answer", tools=[get_weather])(question=text).answer

    def fill_in(self, text: str) -> Any:
        signature = dspy.Signature({"question": (str, dspy.InputField()), "weather": (Weather, dspy.OutputField())})
        with dspy.context(adapter=dspy.JSONAdapter()):
            return dspy.Predict(signature)(question=text).weather


def answer(prediction: Any) -> Answer:
    [usage] = prediction.get_lm_usage().values()
    return Answer(prediction.answer, usage["prompt_tokens"], usage["completion_tokens"])


class TestAsync(TestSync):
    async def ask(self, text: str) -> Answer:
        with dspy.context(track_usage=True):
            return answer(await dspy.Predict("question -> answer").acall(question=text))

    async def use_tool(self, text: str) -> str:
        with dspy.context(adapter=dspy.ChatAdapter(use_native_function_calling=True)):
            return (await dspy.ReActV2("question -> answer", tools=[get_weather]).acall(question=text)).answer

    def test_dspy_s_own_transport_asks_somebody_else(self, local_openai: Any) -> None:
        """What the page warns of: with its default engine, requests pass by LiteLLM's sessions."""
        nobody = {"api_key": "unused", "api_base": "http://127.0.0.1:9/v1", "num_retries": 0, "cache": False}
        with pytest.raises(Exception, match=r"refused|connect"):
            dspy.LM("openai/gpt-4o", **nobody)("Hi")
        assert not local_openai.calls
        local_openai.script("Hello!")
        assert dspy.LM("openai/gpt-4o", engine="litellm", **nobody)("Hi") == ["Hello!"]
