"""The shipped checkpoint: format, template, split and a quick look at its held-out accuracy."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from localai_shim.builtin import CHECKPOINT
from tests.builtin.digest import RECORD, is_recorded, when_changed
from tests.samples import exhaustive, only
from tests.scripts import run
from training.chat import prompt_text, tool_call_text
from training.dialogues import KINDS, sample_any
from training.evaluate import Answerer, evaluate
from training.registry import Split, split_of

SIZE_LIMIT, HEAD_LIMIT = 12_000_000, 1_000_000  # bytes
HEAD = "mtp.safetensors"
PARAMETERS = range(5_000_000, 6_000_001)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FLOORS = {
    "add": 0.8,
    "count_up": 0.8,
    "echo_word": 0.8,
    "repeat_phrase": 0.8,
    "capital": 0.8,
    "given_name": 0.8,
    "remember_name": 0.8,
    "tool_call": 0.8,
    "unknown": 0.8,
    "copy_text": 0.8,
    "copy_lines": 0.8,
    "extract_field": 0.8,
    "table_value": 0.8,
    "passage_answer": 0.8,
    "told_by_system": 0.8,
    "json_of_schema": 0.8,
    "choose_function": 0.8,
    "known_function": 0.8,
    "several_calls": 0.8,
    "answer_from_result": 0.8,
    "try_again": 0.8,
    "no_tool_fits": 0.8,
    "loop": 0.8,
    "follow_up": 0.8,
    "pairs_in_words": 0.8,
    "deeds_in_words": 0.8,
    "list_in_words": 0.7,
    "copy_prose": 0.8,
    "beyond": 0.8,
    "system_name": 0.8,
    "system_fact": 0.7,
    "natural_call": 0.8,
    "result_phrase": 0.8,
    "result_record": 0.8,
    "result_row": 0.8,
    "result_error": 0.8,
}
CASES = 12  # held-out dialogues of each kind


@pytest.fixture(scope="module")
def answerer() -> Answerer:
    return Answerer(CHECKPOINT)


def rendered(answerer: Answerer, messages: list[dict[str, Any]], **options: Any) -> str:
    text: str = answerer.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **{"enable_thinking": False, **options}
    )
    return text


def test_size() -> None:
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir() if path.name != HEAD) <= SIZE_LIMIT
    assert sorted(path.name for path in CHECKPOINT.glob("*.safetensors")) == ["model.safetensors", HEAD]
    assert (CHECKPOINT / HEAD).stat().st_size <= HEAD_LIMIT


def test_configuration(answerer: Answerer) -> None:
    from mlx.utils import tree_flatten

    config = json.loads((CHECKPOINT / "config.json").read_text())
    assert config["model_type"] == "qwen3"
    assert config["tie_word_embeddings"]
    assert sum(weight.size for _, weight in tree_flatten(answerer.model.parameters())) in PARAMETERS
    generation = json.loads((CHECKPOINT / "generation_config.json").read_text())
    ends = [answerer.tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")]
    assert generation["eos_token_id"] == ends
    assert set(ends) <= set(answerer.tokenizer.eos_token_ids)


@pytest.mark.parametrize(
    "text", ["Grüße, naïve café", "日本語 한국어 עברית", "😀🚀\t\n  x", "a  b\r\n c", "12 345", "\u0301\u200b"]
)
def test_utf8_round_trip(answerer: Answerer, text: str) -> None:
    ids = answerer.tokenizer.encode(text, add_special_tokens=False)
    assert answerer.tokenizer.decode(ids) == text


def test_digits_are_single_tokens(answerer: Answerer) -> None:
    assert len(answerer.tokenizer.encode("1234567890", add_special_tokens=False)) == 10


def test_python_and_template_render_the_same(answerer: Answerer) -> None:
    rng = Random(3)
    for _ in range(300):
        _, dialogue = sample_any(rng, Split.TRAIN)
        if dialogue.raw is None:
            for thinking in (False, True):
                tools = list(dialogue.tools) or None
                text = rendered(answerer, list(dialogue.messages), tools=tools, enable_thinking=thinking)
                assert text == prompt_text(dialogue.messages, dialogue.tools, thinking=thinking)


@pytest.mark.parametrize("arguments", [{"city": "Paris"}, '{"city": "Paris"}'])
def test_template_tool_turns(answerer: Answerer, arguments: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Weather in Paris?"},
        {"role": "assistant", "content": None, "reasoning_content": "I need a tool.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        {"role": "function", "name": "get_weather", "content": "windy"},
    ]
    text = rendered(answerer, messages, tools=[WEATHER])
    one = tool_call_text("get_weather", {"city": "Paris"})
    assert text.startswith("<|im_start|>system\nBe kind.\n\n# Tools\n<tools>\n" + json.dumps(WEATHER["function"]))
    assert f"<|im_start|>assistant\n<think>\nI need a tool.\n</think>\n\n{one}\n{one}<|im_end|>\n" in text
    answers = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nwindy\n</tool_response>"
    assert f"<|im_start|>user\n{answers}<|im_end|>\n" in text


def test_template_thinking(answerer: Answerer) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nold\n</think>\n\nHello!", "reasoning_content": "old"},
        {"role": "user", "content": "Bye"},
    ]
    text = rendered(answerer, messages)
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "<|im_start|>assistant\nHello!<|im_end|>\n" in text
    assert rendered(answerer, messages, enable_thinking=True).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.content not in ("closed", "free")], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("count", only([100], [100, 300]))
def test_splits_are_disjoint(kind: Any, count: int) -> None:
    def seen(split: Split) -> set[str]:
        rng = Random(5)
        dialogues = [kind.generate(rng, split) for _ in range(count)]
        return {repr((item.raw, item.messages)) for item in dialogues}

    assert not seen(Split.TRAIN) & seen(Split.HELD_OUT)


def test_about_one_in_twelve_contents_is_held_out() -> None:
    keys = [f"key {number}" for number in range(10_000)]
    assert 0.05 < [split_of(key) for key in keys].count(Split.HELD_OUT) / len(keys) < 0.12


def test_what_is_generated_and_where_it_belongs_is_the_same_in_each_process() -> None:
    """Whatever order sets and hashes have there."""
    script = """
        import hashlib
        from random import Random
        from training.dialogues import KINDS, sample
        from training.registry import Split, split_of
        made = [sample(Random(seed), split, kind) for seed in range(5) for split in Split for kind in KINDS]
        made += [split_of(f"key {number}") for number in range(1_000)]
        print(len(made), hashlib.sha256(repr(made).encode()).hexdigest())
        """
    said = [run(script, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert said[0].stdout.startswith(str(10 * len(KINDS) + 1_000)) and said[0].stdout == said[1].stdout, said


@when_changed("checkpoint")
@pytest.mark.timeout(600)
def test_held_out_accuracy(answerer: Answerer) -> None:
    report = evaluate(answerer, [kind for kind in KINDS if kind.name in FLOORS], CASES, seed=7)
    assert {name: report.accuracy(name) for name in FLOORS if report.accuracy(name) < FLOORS[name]} == {}
    assert report.overall() >= 0.9


@exhaustive
def test_what_was_tested_is_recorded() -> None:
    assert is_recorded("checkpoint"), f"run the tests of this file, then: {RECORD} checkpoint"


def test_checkpoint_path() -> None:
    assert Path(__file__).parents[2] / "localai_shim" / "builtin" / "checkpoint" == CHECKPOINT
