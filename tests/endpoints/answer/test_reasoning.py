"""Reasoning in chat.completions: beside the content, turned on and off, and limited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine, ScriptedTokenizer
from tests.conftest import MESSAGES, refused, revalidate
from tests.endpoints.answer.thoughts import PLAIN, body
from tests.endpoints.functions import TOOLS, call
from tests.endpoints.scripting import answer, ask, message, reasoning, said

OPENS = PLAIN + "{% if add_generation_prompt %}<think>\n{% endif %}"
"""Generation prompts of models that cannot be told whether to think, and of those that always do."""

THINK = ScriptedTokenizer()
GEMMA = ScriptedTokenizer(think=("<|channel>thought", "<channel|>"), tool_format=None, markers=["<|channel>"])
HARMONY = ScriptedTokenizer(
    think=None,
    tool_format="harmony",
    tool_markers=("<|channel|>", ""),
    markers=["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"],
)
COHERE = ScriptedTokenizer(
    think=("<|START_THINKING|>", "<|END_THINKING|>"),
    tool_format=None,
    markers=["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
)


def writing(
    start: str, end: str, *, says: str = "", tool_format: str | None = "hermes", markers: Sequence[str] = ()
) -> ScriptedTokenizer:
    """A model with these markers of reasoning, which are special tokens.

    Args:
        says: a comment in its template, by which its family is known.
    """
    template = PLAIN + "{#- " + says + " -#}"
    return ScriptedTokenizer(think=(start, end), tool_format=tool_format, markers=markers, chat_template=template)


ANSWERS = [
    (THINK, "<think>\nLet me see.\nYes.\n</think>\n\nIt is Paris.", "Let me see.\nYes.", "It is Paris."),
    (GEMMA, "<|channel>thought\nLet me see.\n<channel|>It is Paris.", "Let me see.", "It is Paris."),
    (
        HARMONY,
        "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>It is Paris."
        "<|return|>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        COHERE,
        "<|START_THINKING|>Let me see.<|END_THINKING|><|START_RESPONSE|>It is Paris.<|END_RESPONSE|>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("[THINK]", "[/THINK]", tool_format="mistral"),
        "[THINK]Let me see.[/THINK]It is Paris.",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<seed:think>", "</seed:think>"),
        "<seed:think>\nLet me see.\n</seed:think>It is Paris.",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<|inner_prefix|>", "<|inner_suffix|>", tool_format="apertus"),
        "<|inner_prefix|>Let me see.<|inner_suffix|>It is Paris.",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<mm:think>", "</mm:think>"),
        "<mm:think>Let me see.</mm:think>It is Paris.",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing(
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            tool_format="kimi_k3",
            markers=["<|open|>", "<|close|>", "<|sep|>"],
        ),
        "<|open|>think<|sep|>Let me see.<|close|>think<|sep|>"
        "<|open|>response<|sep|>It is Paris.<|close|>response<|sep|><|close|>message<|sep|>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<|think|>", "<|end|>", tool_format="solar_open", markers=["<|begin|>", "<|content|>"]),
        "<|think|>Let me see.<|end|><|begin|>assistant<|content|>It is Paris.<|end|>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<think>", "</think>", says="Write <think></think> and <response></response>.", tool_format=None),
        "<think>Let me see.</think><response>It is Paris.</response>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<think>", "</think>", says="<think></think><|extra_0|>", tool_format="hunyuan_a13b"),
        "<think>\nLet me see.\n</think>\n<answer>\nIt is Paris.\n</answer>",
        "Let me see.",
        "It is Paris.",
    ),
    (
        writing("<think:v2>", "</think:v2>", says="<think:v2><tool_sep:v2><arg_key:v2>", tool_format="hunyuan3"),
        "<think:v2>Let me see.</think:v2>It is Paris.",
        "Let me see.",
        "It is Paris.",
    ),
]
NAMES = "think gemma harmony cohere mistral seed apertus minimax kimi_k3 solar granite hunyuan hunyuan3"
MODELS = pytest.mark.parametrize(("tokenizer", "text", "thought", "content"), ANSWERS, ids=NAMES.split())


# -- where it is said -------------------------------------------------------------------------------------------------


@MODELS
def test_reasoning_comes_beside_the_content(
    tokenizer: ScriptedTokenizer, text: str, thought: str, content: str
) -> None:
    made = answer(text, tokenizer=tokenizer)
    [choice] = made.choices
    assert (choice.message.content, reasoning(choice.message)) == (content, thought)
    assert choice.finish_reason == "stop"
    usage = made.usage
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


@MODELS
def test_markers_may_be_split_over_tokens(tokenizer: ScriptedTokenizer, text: str, thought: str, content: str) -> None:
    pieces: list[Any] = [list(text), [bytes([b]) for b in text.encode()]]
    pieces += [[text[:at], text[at:]] for at in range(1, len(text), 5)]
    pieces += [[text[i : i + size] for i in range(0, len(text), size)] for size in (2, 3, 5, 7)]
    for reply in pieces:
        made = message(reply, tokenizer=tokenizer)
        assert (made.content, reasoning(made)) == (content, thought), reply


@MODELS
def test_reasoning_that_is_cut_is_no_content(
    tokenizer: ScriptedTokenizer, text: str, thought: str, content: str
) -> None:
    with ScriptedEngine([text], tokenizer=tokenizer) as engine:
        total = ask(LocalOpenAI(engine=engine)).usage.completion_tokens
    for limit in range(1, total):
        [choice] = answer(text, tokenizer=tokenizer, max_tokens=limit).choices
        assert choice.finish_reason == "length"
        assert thought.startswith(reasoning(choice.message) or "")
        assert content.startswith(choice.message.content or "")
        if choice.message.content:
            assert reasoning(choice.message) == thought
        else:
            assert choice.message.content == ""


@MODELS
def test_a_model_may_answer_without_a_thought(
    tokenizer: ScriptedTokenizer, text: str, thought: str, content: str
) -> None:
    made = answer(content, tokenizer=tokenizer)
    assert made.choices[0].message.content == content
    assert made.choices[0].message.reasoning_content is None
    assert made.usage.completion_tokens_details.reasoning_tokens == 0


def headed() -> ScriptedTokenizer:
    """Muse Spark's messages, each of which begins with its recipient."""
    markers = ["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"]
    return ScriptedTokenizer(
        think=None, tool_format="muse", tool_markers=("<atem:function_calls>", ""), markers=markers
    )


def test_a_message_to_itself_is_reasoning() -> None:
    text = "to=self<|message|>Let me see.<|eom|><|start|>assistant to=user<|message|>It is Paris.<|eot|>"
    made = message(text, tokenizer=headed())
    assert (made.content, reasoning(made)) == ("It is Paris.", "Let me see.")


@pytest.mark.parametrize("text", ["<think>\n\n</think>\n\nHello.", "<think></think>Hello."])
def test_an_empty_thought_is_none(text: str) -> None:
    made = message(text)
    assert (made.content, made.reasoning_content) == ("Hello.", None)


def test_the_template_may_have_opened_the_block_already() -> None:
    tokenizer = ScriptedTokenizer(chat_template=OPENS)
    made = answer("Let me see.\n</think>\n\nIt is Paris.", tokenizer=tokenizer)
    assert (made.choices[0].message.content, reasoning(made.choices[0].message)) == ("It is Paris.", "Let me see.")
    [cut] = answer("Let me see and see", tokenizer=tokenizer, max_tokens=3).choices
    assert (cut.message.content, reasoning(cut.message), cut.finish_reason) == ("", "Let me see", "length")


@pytest.mark.parametrize(
    "more", [{}, {"n": 2}, {"logprobs": True}, {"extra_body": {"include_reasoning": False}}], ids=str
)
def test_an_answer_that_is_only_reasoning_can_be_sent_back(more: dict[str, Any]) -> None:
    with ScriptedEngine(lambda request, prompt, before: "Paris." if before > 3 else "<think>Hm, let me") as engine:
        client = LocalOpenAI(engine=engine)
        whole = ask(client, **more)
        with client.chat.completions.stream(model="any", messages=MESSAGES, **more) as stream:
            streamed = stream.get_final_completion()
        for completion in (whole, streamed):
            for choice in completion.choices:
                assert choice.message.content == ""
                history = [*MESSAGES, choice.message, {"role": "user", "content": "Well?"}]
                client.chat.completions.create(model="any", messages=history)
        if "extra_body" not in more:
            assert "Hm, let me" in engine.prompts[-1]


def test_a_forced_call_ends_with_a_content_of_null() -> None:
    forced = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "ping"}}}
    made = message("<think>Hm.</think>" + call("ping", {}), **forced)
    assert made.content is None and [each.function.name for each in made.tool_calls] == ["ping"]


def test_a_turn_may_end_in_mid_thought() -> None:
    [choice] = answer("<think>Hm, let me").choices
    assert (choice.message.content, reasoning(choice.message), choice.finish_reason) == ("", "Hm, let me", "stop")


def test_the_tokens_of_a_thought_are_counted_with_its_markers() -> None:
    made = answer(["<think>", "\n", "one", " two", "\n", "</think>", "\n\n", "Hello", "."])
    assert made.usage.completion_tokens_details.reasoning_tokens == 6
    assert made.usage.completion_tokens == 10
    both = answer("<think>one two</think>Hello.", "Hello.", n=2)
    assert both.usage.completion_tokens_details.reasoning_tokens == 4


def test_each_choice_has_its_own_thought_whichever_speaks_first() -> None:
    said_by_each = ["<think>one two three</think>A", "B", "<think>four</think>C", ["", "", "D"]]
    made = answer(*said_by_each, n=4)
    assert [(reasoning(c.message), c.message.content) for c in made.choices] == [
        ("one two three", "A"),
        (None, "B"),
        ("four", "C"),
        (None, "D"),
    ]


def test_a_model_that_does_not_think_writes_markers_as_text() -> None:
    tokenizer = ScriptedTokenizer(think=None, tool_format=None)
    assert message("<think>Hm</think>Hello.", tokenizer=tokenizer).content == "<think>Hm</think>Hello."


def test_stop_strings_count_in_the_content_only() -> None:
    [choice] = answer("<think>one stop two</think>three four stop five", stop=[" stop"]).choices
    assert (choice.message.content, reasoning(choice.message)) == ("three four", "one stop two")
    assert choice.finish_reason == "stop"


def test_logprobs_are_those_of_the_content() -> None:
    reply = Reply(
        ["<think>", "a", "b", "</think>", "\n\n", "Hel", "lo"], logprobs=[-0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7]
    )
    [choice] = answer(reply, logprobs=True, top_logprobs=1).choices
    assert [(entry.token, entry.logprob) for entry in choice.logprobs.content] == [("Hel", -0.6), ("lo", -0.7)]


def test_a_stream_gives_a_thought_as_it_comes() -> None:
    with ScriptedEngine(["<think>\none two\n</think>\n\nHi you."]) as engine:
        chunks = list(ask(LocalOpenAI(engine=engine), stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [(reasoning(delta), delta.content) for delta in deltas if reasoning(delta) or delta.content] == [
        ("one", None),
        (" two", None),
        (None, "Hi"),
        (None, " you."),
    ]
    assert (deltas[0].role, deltas[0].content) == ("assistant", None)


@pytest.mark.anyio
async def test_the_async_clients_give_a_thought_too() -> None:
    text = "<think>\none two\n</think>\n\nHi you."
    with ScriptedEngine([text] * 3) as engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            whole = await ask(client)
            chunks = [chunk async for chunk in await ask(client, stream=True)]
            async with client.chat.completions.stream(model="any", messages=MESSAGES) as stream:
                final = await stream.get_final_completion()
    revalidate(whole)
    assert (reasoning(whole.choices[0].message), whole.choices[0].message.content) == ("one two", "Hi you.")
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(reasoning(delta) or "" for delta in deltas) == "one two"
    assert "".join(delta.content or "" for delta in deltas) == "Hi you."
    assert said(final) == said(whole)


# -- earlier reasoning ------------------------------------------------------------------------------------------------


def test_a_thought_handed_back_reaches_the_template() -> None:
    with ScriptedEngine(["<think>\nHm.\n</think>\n\nHello.", "Again."]) as engine:
        client = LocalOpenAI(engine=engine)
        first = ask(client).choices[0].message
        ask(client, messages=[*MESSAGES, first, {"role": "user", "content": "More?"}])
    assert "<|im_start|>assistant\n<think>\nHm.\n</think>\n\nHello.<|im_end|>\n" in engine.prompts[1]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_reaches_a_template_under_the_name_that_it_reads(name: str) -> None:
    template = "{% for m in messages %}[{{ m." + name + " or '' }}|{{ m.content }}]{% endfor %}"
    history = [*MESSAGES, {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, MESSAGES[0]]
    with ScriptedEngine(["x"], tokenizer=ScriptedTokenizer(chat_template=template)) as engine:
        ask(LocalOpenAI(engine=engine), messages=history)
    assert "[Hm.|Yes.]" in engine.prompts[0]


# -- on and off -------------------------------------------------------------------------------------------------------

OFF = "<think>\n\n</think>\n\n"
"""What the scripted model's template writes where it is told not to think."""


def prompt_for(tokenizer: ScriptedTokenizer | None = None, **more: Any) -> str:
    with ScriptedEngine(["x"], tokenizer=tokenizer) as engine:
        ask(LocalOpenAI(engine=engine), **more)
    return engine.prompts[0]


@pytest.mark.parametrize(
    ("more", "off"),
    [
        ({}, False),
        ({"reasoning_effort": "none"}, True),
        ({"reasoning_effort": "minimal"}, True),
        ({"reasoning_effort": "low"}, False),
        ({"reasoning_effort": "medium"}, False),
        ({"reasoning_effort": "high"}, False),
        ({"reasoning_effort": "xhigh"}, False),
        (body(enable_thinking=False), True),
        (body(enable_thinking=True), False),
        (body(chat_template_kwargs={"enable_thinking": False}), True),
        ({"reasoning_effort": "high", **body(enable_thinking=False)}, True),
        ({"reasoning_effort": "none", **body(enable_thinking=True)}, False),
        ({"reasoning_effort": "none", **body(chat_template_kwargs={"enable_thinking": True})}, False),
        (body(enable_thinking=None), False),
    ],
    ids=str,
)
def test_thinking_is_turned_on_and_off_in_the_template(more: dict[str, Any], off: bool) -> None:
    assert prompt_for(**more).endswith(OFF) == off


def test_effort_and_switch_reach_the_template_as_they_are() -> None:
    template = PLAIN + "({{ reasoning_effort }} {{ enable_thinking }} {{ thinking }})"
    tokenizer = ScriptedTokenizer(chat_template=template)
    assert prompt_for(tokenizer, reasoning_effort="low").endswith("(low True True)")
    assert prompt_for(tokenizer, reasoning_effort="minimal").endswith("(minimal False False)")
    assert prompt_for(tokenizer, **body(enable_thinking=True)).endswith("( True True)")
    assert prompt_for(tokenizer).endswith("(  )")


@pytest.mark.parametrize("more", [{"reasoning_effort": e} for e in ("none", "minimal")] + [body(enable_thinking=False)])
def test_where_the_template_cannot_be_told_blocks_are_closed_as_they_open(more: dict[str, Any]) -> None:
    tokenizer = ScriptedTokenizer(chat_template=PLAIN)
    made = message("<think></think>Hello.", tokenizer=tokenizer, obey=True, **more)
    assert made.content == "Hello." and reasoning(made) is None
    opened = ScriptedTokenizer(chat_template=OPENS)
    assert message("</think>Hello.", tokenizer=opened, obey=True, **more).content == "Hello."
    for text, model in (("<think>Hm</think>Hello.", tokenizer), ("Hm</think>Hello.", opened)):
        with pytest.raises(openai.InternalServerError, match="grammar does not allow: 'Hm'"):
            message(text, tokenizer=model, obey=True, **more)


MARKED = [(tokenizer, name) for (tokenizer, *_), name in zip(ANSWERS, NAMES.split(), strict=True) if name != "harmony"]
MARKED_MODELS = pytest.mark.parametrize(
    "tokenizer", [tokenizer for tokenizer, _ in MARKED], ids=[name for _, name in MARKED]
)
"""Those whose reasoning stands between two markers."""


def untold(tokenizer: ScriptedTokenizer) -> ScriptedTokenizer:
    """The same model with a template that has no switch."""
    says = str(tokenizer.chat_template).partition("{#-")[2]
    template = PLAIN + ("{#-" + says if says else "")
    markers = tokenizer.added_tokens_decoder.values()
    think = tokenizer.think_start, tokenizer.think_end
    return ScriptedTokenizer(think=think, tool_format=tokenizer.tool_format, markers=[*markers], chat_template=template)


@MARKED_MODELS
@pytest.mark.parametrize("more", [{"reasoning_effort": "none"}, body(thinking_budget=0)], ids=str)
@pytest.mark.parametrize("format", [{}, body(guided_regex="Paris|Rome")], ids=["free", "grammar"])
def test_a_block_of_any_marker_is_closed_as_it_opens(
    tokenizer: ScriptedTokenizer, more: dict[str, Any], format: dict[str, Any]
) -> None:
    tokenizer = untold(tokenizer)
    start, end = tokenizer.think_start, tokenizer.think_end
    asked = body(**more.get("extra_body", {}), **format.get("extra_body", {})) | {
        key: value for key, value in more.items() if key != "extra_body"
    }
    made = message(f"{start}{end}Paris", tokenizer=tokenizer, obey=True, **asked)
    assert (made.content, reasoning(made)) == ("Paris", None)
    with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
        message(f"{start}Hm{end}Paris", tokenizer=tokenizer, obey=True, **asked)


@MARKED_MODELS
def test_a_grammar_waits_for_the_end_of_a_thought_of_any_marker(tokenizer: ScriptedTokenizer) -> None:
    tokenizer = untold(tokenizer)
    text = f"{tokenizer.think_start}Let me see.{tokenizer.think_end}Paris"
    made = message(text, tokenizer=tokenizer, obey=True, **body(guided_regex="Paris|Rome"))
    assert (made.content, reasoning(made)) == ("Paris", "Let me see.")
    with pytest.raises(openai.InternalServerError, match="grammar does not allow"):
        message(text + "!", tokenizer=tokenizer, obey=True, **body(guided_regex="Paris|Rome"))


APRIEL = ScriptedTokenizer(
    think=None,
    tool_format="apriel",
    chat_template=PLAIN.replace("[assistant]", "<|assistant|>\n{# [BEGIN FINAL RESPONSE] #}"),
)


def test_reasoning_in_words_ends_where_the_answer_begins() -> None:
    text = "Here are my reasoning steps:\nLet me see.\n[BEGIN FINAL RESPONSE]\nIt is Paris.\n[END FINAL RESPONSE]"
    made = message(text, tokenizer=APRIEL)
    assert (made.content, reasoning(made)) == ("It is Paris.", "Let me see.")
    bare = message("Let me see.\n[BEGIN FINAL RESPONSE]\nIt is Paris.", tokenizer=APRIEL)
    assert (bare.content, reasoning(bare)) == ("It is Paris.", "Let me see.")
    more = body(thinking_budget=0, guided_regex="Paris|Rome")
    assert message("[BEGIN FINAL RESPONSE]Paris", tokenizer=APRIEL, obey=True, **more).content == "Paris"


@pytest.mark.parametrize(
    ("tail", "more", "end"),
    [
        ("{{ '<mm:think>' if thinking_mode == 'enabled' else '</mm:think>' if thinking_mode == 'disabled' }}",
         {"reasoning_effort": "none"}, "</mm:think>"),
        ("{{ '<mm:think>' if thinking_mode == 'enabled' else '</mm:think>' if thinking_mode == 'disabled' }}",
         body(enable_thinking=True), "<mm:think>"),
        ("{{ '<t></t>' if reasoning_effort == 'no_think' else '<t>' }}"
         "{{ raise_exception('?') if reasoning_effort not in ['no_think', 'low', 'high', none] and reasoning_effort }}",
         body(enable_thinking=False), "<t></t>"),
        ("{{ raise_exception('?') if thinking_effort not in ['low', 'max', none] and thinking_effort }}"
         "({{ thinking_effort }})",
         {"reasoning_effort": "medium"}, "(low)"),
        ("{{ '</t>' if thinking_budget == 0 }}({{ thinking_budget }})", body(thinking_budget=7), "(7)"),
        ("{{ '</t>' if thinking_budget == 0 }}", {"reasoning_effort": "none"}, "</t>"),
        ("<t>{{ '</t>' if '/no_think' in messages[0].content }}", {"reasoning_effort": "none"}, "<t></t>"),
        ("<t>{{ '</t>' if '/no_think' in messages[0].content }}", body(enable_thinking=True), "<t>"),
        ("<t>{{ '</t>' if '/no_think' in messages[0].content }}", {}, "<t>"),
    ],
)  # fmt: skip
def test_a_wish_is_told_in_the_way_that_the_template_has(tail: str, more: dict[str, Any], end: str) -> None:
    assert prompt_for(ScriptedTokenizer(chat_template=PLAIN + tail), **more).endswith(f"[assistant]{end}")


def test_a_model_that_cannot_think_is_not_told_to() -> None:
    tokenizer = ScriptedTokenizer(think=None, chat_template=PLAIN)
    with ScriptedEngine(["Hello."] * 3, tokenizer=tokenizer) as engine:
        client = LocalOpenAI(engine=engine)
        with refused("enable_thinking", "unsupported_value", "does not think"):
            ask(client, **body(enable_thinking=True))
        for more in (body(enable_thinking=False), {"reasoning_effort": "high"}, body(thinking_budget=0)):
            assert ask(client, **more).choices[0].message.content == "Hello."


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        (body(enable_thinking="yes"), "enable_thinking", "invalid_type"),
        (body(thinking_budget=-1), "thinking_budget", "integer_below_min_value"),
        (body(thinking_budget=1.5), "thinking_budget", "invalid_type"),
    ],
    ids=str,
)
def test_wrong_values_are_refused(more: dict[str, Any], param: str, code: str) -> None:
    with ScriptedEngine() as engine, refused(param, code, ""):
        ask(LocalOpenAI(engine=engine), **more)
