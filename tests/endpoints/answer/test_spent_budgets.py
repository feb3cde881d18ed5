"""A model that wants to think, whatever it has said, thinks no more once its budget is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from tests.endpoints.answer.thoughts import PLAIN, body
from tests.endpoints.functions import function
from tests.endpoints.habits import habitual_model
from tests.endpoints.scripting import arguments, ask, gathered, reasoning, said


@dataclass(frozen=True)
class Family:
    """How the models of a family think.

    Attributes:
        markers: special tokens.
        wants: what the model wants to say: one thought after the other.
        otherwise: what it says where it may not.
        tool_format, reasoning_format: of the client.
        prompt: the end of the prompt.
    """

    markers: tuple[str, ...]
    wants: tuple[str, ...]
    otherwise: tuple[str, ...]
    tool_format: str
    reasoning_format: str | None = None
    prompt: str = "[assistant]"


HARMONY = Family(
    ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>12345<|end|><|start|>",),
    ("<|channel|>final", "5<|im_end|>"),
    "harmony",
    prompt="<|start|>assistant",
)
MUSE = Family(
    ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
    ("<|start|>assistant to=self<|message|>12345<|eom|><|start|>",),
    ("=user", "5<|im_end|>"),
    "muse",
    prompt="<|start|>assistant",
)
TOKEN = Family(("<think>", "</think>"), ("]<think>12345<think>", "</think>1"), ("5<|im_end|>",), "hermes", "think")
FAMILIES = {
    "harmony": HARMONY,
    "harmony, short": replace(
        HARMONY,
        wants=("<|start|>assistant<|channel|>analysis<|message|>1<|end|><|start|>",),
        otherwise=("<|channel|>final", "1<|im_end|>"),
    ),
    "muse": MUSE,
    "muse, short": replace(
        MUSE, wants=("<|start|>assistant to=self<|message|>1<|eom|><|start|>",), otherwise=("=user", "1<|im_end|>")
    ),
    "a token": TOKEN,
    "a token, short": replace(TOKEN, wants=("]<think>1</think><think>",), otherwise=("</think>1<|im_end|>",)),
    "a token and a word": Family(
        ("<|channel>", "<channel|>"),
        ("]<|channel>thought\n12345<|channel>", "<channel|>1"),
        ("5<|im_end|>",),
        "gemma4",
        "gemma4",
    ),
    "a word between tokens": Family(
        ("<|open|>", "<|close|>", "<|sep|>"),
        ("]<|open|>think<|sep|>12345<|open|>", "<|close|>think"),
        ("<|open|>response<|sep|>",),
        "kimi_k3",
        "kimi_k3",
    ),
    "letters": Family(
        ("[x]",),
        ("]<longcat_think>12345<longcat", "y<|im_end|>"),
        ("thinky",),
        "hermes",
        "longcat",
    ),
}
TOOL = function("f", n={"enum": [1, 2]})
STRICT = function("f", strict=True, n={"enum": [1, 2]})
SCHEMA = STRICT["function"]["parameters"]
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tools": {"tools": [TOOL]},
    "strict tools": {"tools": [STRICT]},
    "a forced call": {"tools": [TOOL], "tool_choice": "required"},
    "no call": {"tools": [TOOL], "tool_choice": "none"},
    "a schema": {"response_format": FORMAT},
    "a schema or calls": {"response_format": FORMAT, "tools": [TOOL]},
}
BUDGETS: dict[str, tuple[int, dict[str, Any]]] = {
    "no effort": (0, {"reasoning_effort": "none"}),
    **{str(budget): (budget, body(thinking_budget=budget)) for budget in (0, 1, 3)},
}


@pytest.fixture(scope="module", params=FAMILIES)
def thinker(request: pytest.FixtureRequest) -> Iterator[tuple[Family, LocalOpenAI]]:
    family = FAMILIES[request.param]
    template = PLAIN.replace("[assistant]", family.prompt)
    folder = habitual_model(template, *family.wants, otherwise=family.otherwise, markers=family.markers)
    options: Any = {"tool_format": family.tool_format, "reasoning_format": family.reasoning_format}
    with LocalOpenAI(folder, **{name: value for name, value in options.items() if value}) as client:
        yield family, client


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("what", ASKED)
def test_no_thought_opens_once_the_budget_is_spent(thinker: tuple[Family, LocalOpenAI], what: str, budget: str) -> None:
    (_, client), (most, wish) = thinker, BUDGETS[budget]
    more: dict[str, Any] = {"max_tokens": 160, "temperature": 0, **ASKED[what], **wish}
    made = ask(client, **more)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}, **more))
    assert said(gathered(chunks)) == said(made)
    [choice] = made.choices
    thought = reasoning(choice.message) or ""
    assert len(thought) <= most and not thought.strip("12345")
    assert thought or most < 3 or what != "nothing"  # a grammar does not let all of them think
    if what == "a forced call":
        assert arguments(choice.message) == [("f", {"n": 1})]
    elif what == "a schema":
        assert choice.message.content == '{"n": 1}'
    else:
        assert choice.message.content or choice.message.tool_calls


@pytest.mark.parametrize("off", [{"reasoning_effort": "none"}, body(enable_thinking=False), body(thinking_budget=0)])
def test_no_thought_opens_behind_a_prompt_that_has_closed_it(off: dict[str, Any]) -> None:
    switch = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
    always = "thinking_budget" in str(off)  # which no template reads
    template = PLAIN + ("<think></think>" if always else switch)
    folder = habitual_model(
        template, "</think><think>1<think>", otherwise=("</think>1<|im_end|>",), markers=("<think>", "</think>")
    )
    with LocalOpenAI(folder, tool_format="hermes", reasoning_format="think") as client:
        made = ask(client, max_tokens=20, temperature=0, **off).choices[0]
        assert (made.message.content, reasoning(made.message), made.finish_reason) == ("1", None, "stop")
