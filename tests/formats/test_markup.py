"""In which state an answer begins is told by the end of its prompt."""

from __future__ import annotations

import pytest

from localai_shim.formats.markup import HEADER, NORMAL, REASONING, THOUGHTS, Evidence, Markup, detect


def markup(thought: str | None = None, tools: str = "none") -> Markup:
    return detect(Evidence(), tools, thought)


@pytest.mark.parametrize("name", [row.name for row in THOUGHTS])
@pytest.mark.parametrize("space", ["", "\n", "\n\n"])
def test_a_prompt_that_opens_a_block_begins_with_reasoning_and_one_that_closes_it_does_not(
    name: str, space: str
) -> None:
    made = markup(name)
    assert made.thought is not None
    start, end = made.thought.start, made.thought.end
    assert made.state_after(f"[assistant]{start}{space}") == REASONING
    assert not made.closed_by(f"[assistant]{start}{space}")
    assert made.state_after(f"[assistant]{start}{space}{end}{space}") == NORMAL
    assert made.closed_by(f"[assistant]{start}{space}{end}{space}")
    assert made.closed_by(f"[assistant]{end}{space}")
    assert made.state_after("[assistant]") == NORMAL and not made.closed_by("[assistant]")


@pytest.mark.parametrize(
    ("name", "end", "state", "closed"),
    [
        ("kimi_k3", "<|open|>think<|sep|>", REASONING, False),
        ("kimi_k3", "<|open|>response<|sep|>", NORMAL, True),
        ("cohere", "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>", NORMAL, True),
        ("cohere", "<|CHATBOT_TOKEN|><|START_RESPONSE|>", NORMAL, True),
        ("solar_open", "<|content|>Hi<|end|><|begin|>assistant", NORMAL, False),
        ("solar_open", "<|begin|>assistant<|think|><|end|><|begin|>assistant", NORMAL, True),
        ("apriel", "<|user|>\nHi\n<|end|>\n<|assistant|>\n", REASONING, False),
        ("apriel", "<|begin_assistant|>\nHere are my reasoning steps:\n", REASONING, False),
        ("gemma4", "<|turn>model\n", NORMAL, False),
        ("gemma4", "<|turn>model\n<|channel>thought\n<channel|>", NORMAL, True),
        ("minimax_m3", "]~b]ai\n</mm:think>", NORMAL, True),
        (
            "seed_oss",
            "<seed:think><seed:cot_budget_reflect>None.</seed:cot_budget_reflect>\n</seed:think>",
            NORMAL,
            True,
        ),
        (None, "<think>", NORMAL, False),
    ],
)
def test_ends_of_prompts(name: str | None, end: str, state: str, closed: bool) -> None:
    made = markup(name or "none")
    assert (made.state_after(end), made.closed_by(end)) == (state, closed)


@pytest.mark.parametrize(
    ("tools", "end", "state"),
    [
        ("harmony", "<|end|><|start|>assistant", NORMAL),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>Let me", REASONING),
        ("harmony", "<|start|>assistant<|channel|>final<|message|>It is", NORMAL),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant", NORMAL),
        ("muse", "<|eot|><|start|>assistant", HEADER),
        ("muse", "<|start|>assistant to=self<|message|>Let me", REASONING),
        ("muse", "<|start|>assistant to=user<|message|>It is", NORMAL),
        ("muse", "<|start|>assistant to=self<|message|>Hm.<|eom|>", HEADER),
        ("functionary_v32", "<|end_header_id|>\n\n>>>", HEADER),
        ("functionary_v32", "<|end_header_id|>\n\n>>>all\nHello, ", NORMAL),
    ],
)
def test_an_answer_that_goes_on_with_a_message_is_in_what_its_header_says(tools: str, end: str, state: str) -> None:
    assert markup(tools=tools).state_after(end) == state


def test_calls_that_nobody_taught_are_looked_for_where_tools_are_offered_only() -> None:
    asked = detect(Evidence("{{ messages }}"))
    assert asked.of_request(offered=True) is asked and asked.tools is not None
    assert asked.of_request(offered=False).plain
    assert asked.of_request(offered=False) is asked.of_request(offered=False)
    taught = markup(tools="hermes")
    assert taught.of_request(offered=False) is taught
