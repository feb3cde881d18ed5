"""The data for the model that sees: what is drawn, asked and held out."""

import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from localai_shim import LocalOpenAI
from localai_shim.models import text as text_model
from training.registry import Split
from training.vision import questions, scenes, several, wording
from training.vision.dialogues import IMAGE, Calls, Dialogue, Results
from training.vision.drawing import SIDE, draw, shown
from training.vision.evaluate import last_turn
from training.vision.scenes import Scene, Thing
from training.vision.skills import CALLS, FOUR, ONE, SKILLS, sample
from training.vision.tokens import IGNORED, IMAGE_TOKENS, Encoder, parts, prompt_of, row, save_tokenizer

LEFT = Thing("star", "red", 0.2, 0.2, 0.15)
RIGHT = Thing("circle", "blue", 0.8, 0.8, 0.1)
SCENE = Scene("white", (LEFT, RIGHT))


def test_training_and_held_out_scenes_words_and_numbers_are_disjoint() -> None:
    rng, halves = Random(0), dict[Split, set[str]]()
    for split in Split:
        found = {scenes.shapes(rng, split, 1, 2).key for _ in range(300)}
        found |= {scenes.word(rng, split).lower() for _ in range(300)}
        halves[split] = found | {made for _ in range(300) if len(made := scenes.number(rng, split)) > 1}
    assert not halves[Split.TRAIN] & halves[Split.HELD_OUT]


def test_a_thing_is_drawn_in_its_place_and_colour() -> None:
    pixels = shown(draw(Random(1), SCENE, size=(200, 160))).astype(int)
    assert pixels.shape == (SIDE, SIDE, 3)
    red, _, blue = pixels[int(0.2 * SIDE), int(0.2 * SIDE)]
    assert red > blue + 100
    red, _, blue = pixels[int(0.8 * SIDE), int(0.8 * SIDE)]
    assert blue > red + 60
    assert pixels[5, SIDE - 6].min() > 220  # the background, white


def test_one_seed_draws_one_picture() -> None:
    first, second = (shown(draw(Random(3), SCENE)) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_description_names_things_from_left_to_right() -> None:
    assert questions.described(SCENE) == "A red star and a blue circle on a white background."


def test_relations_are_said_only_where_they_are_clear() -> None:
    assert questions.relations(LEFT, RIGHT) == {"left of": True, "right of": False, "above": True, "below": False}
    beside = Thing("ring", "green", 0.5, 0.21, 0.1)
    assert questions.relations(LEFT, beside) == {"left of": True, "right of": False}


def test_sizes_are_compared_only_where_they_differ_clearly() -> None:
    near = Scene("white", (LEFT, Thing("circle", "blue", 0.8, 0.8, 0.14)))
    assert all(ask(Random(0), near) is None for ask in (questions.bigger, questions.larger_of_two))


def test_answers_about_two_sizes_are_true_and_as_often_yes_as_no() -> None:
    rng, found = Random(0), list[str]()
    for _ in range(400):
        asked = questions.bigger(rng, SCENE)
        assert asked is not None
        star_first = re.search(r"\b(star|red)\b", asked.question.split(" than ")[0]) is not None
        assert (asked.answer == "Yes.") == (("smaller" not in asked.question) == star_first)
        found.append(asked.answer)
    assert 150 < found.count("Yes.") < 250


def test_the_larger_of_two_is_named() -> None:
    rng = Random(0)
    for _ in range(50):
        asked = questions.larger_of_two(rng, SCENE)
        assert asked is not None
        assert asked.answer == ("A blue circle." if "smaller" in asked.question else "A red star.")


@pytest.mark.parametrize(("place", "x", "y"), [("top left", 0.1, 0.2), ("middle", 0.5, 0.5), ("right", 0.9, 0.5)])
def test_parts_of_the_picture_have_names(place: str, x: float, y: float) -> None:
    assert Thing("star", "red", x, y, 0.1).place == place


def test_between_two_parts_a_place_has_no_name() -> None:
    assert Thing("star", "red", 0.35, 0.1, 0.1).place is None


@pytest.mark.parametrize("skill", SKILLS)
def test_every_skill_has_held_out_dialogues_with_a_place_for_each_picture(skill: str) -> None:
    dialogue = SKILLS[skill](Random(5), Split.HELD_OUT)
    assert sum(text.count(IMAGE) for _, text, _ in parts(dialogue)) == len(dialogue.scenes)
    assert isinstance(dialogue.turns[-1][1], str)


def test_the_table_encodes_as_the_tokenizer_does(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    tokenizer, encoder, rng = AutoTokenizer.from_pretrained(tmp_path), Encoder(tmp_path / "tokenizer.json"), Random(7)
    for mix in [ONE] * 40 + [FOUR] * 20 + [CALLS] * 20:
        dialogue = sample(rng, Split.TRAIN, mix)
        messages = [{"role": role, "content": text} for role, text, _ in parts(dialogue)]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        before, *rest = text.split(IMAGE)
        whole = "".join([before, *("<fake_token_around_image><global-img>" + IMAGE * IMAGE_TOKENS +
                                   "<fake_token_around_image>" + piece for piece in rest)])  # fmt: skip
        ids, wanted = row(encoder, dialogue)
        assert ids == tokenizer(whole, add_special_tokens=False)["input_ids"][:-1]
        taught = "".join(f"{text}<|im_end|>" for _, text, learnt in parts(dialogue) if learnt)
        assert tokenizer.decode([one for one in wanted if one != IGNORED]) == taught


def test_prompts_with_calls_are_those_that_the_client_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialogue for training, written without localai_shim, equals the prompt of the request that it stands for."""
    rendered: list[str] = []

    def render(*arguments: Any) -> str:
        rendered.append(real(*arguments))
        return rendered[-1]

    real = text_model.render
    monkeypatch.setattr(text_model, "render", render)
    rng = Random(4)
    dialogues = [dialogue for _ in range(12) if (dialogue := several.with_calls(rng, Split.TRAIN)).scenes]
    assert {bool(dialogue.tools) for dialogue in dialogues} == {True, False}
    with LocalOpenAI("builtin:vision", keep_alive=0) as client:
        for dialogue in dialogues:
            item = last_turn(dialogue, [draw(rng, scene) for scene in dialogue.scenes])
            how: dict[str, Any] = {"tools": item.tools} if item.tools else {}
            client.chat.completions.create(model="any", messages=item.messages, max_tokens=1, **how)
            prompt, answer = prompt_of(dialogue)
            assert re.sub(r"7\d{20}\d{7}", IMAGE, rendered[-1]) == prompt
            assert answer == item.answer


def test_two_calls_are_rendered_with_both_results() -> None:
    calls = Calls((("look", {"x": 1}), ("look", {})), "One moment.")
    dialogue = Dialogue("", (SCENE, SCENE), (("Look.", calls), (Results((IMAGE, f"ok{IMAGE}")), "A star.")))
    assert [(role, text) for role, text, _ in parts(dialogue)] == [
        ("user", "Look."),
        (
            "assistant",
            'One moment.\n<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
        ),
        ("tool", IMAGE),
        ("tool", f"ok{IMAGE}"),
        ("assistant", "A star."),
    ]
    assert [message["role"] for message in last_turn(dialogue, [draw(Random(0), SCENE)] * 2).messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]


def test_a_question_about_one_picture_names_it_once() -> None:
    rng = Random(0)
    for question in wording.DESCRIBE + wording.DESCRIBE_MORE + wording.TEXT + wording.SHAPE_ALONE:
        made = several.at_picture(rng, question, "second")
        assert made.count("second") == 1, made
        assert "{" not in made


def test_no_question_out_of_depth_is_about_the_things_on_a_picture() -> None:
    words = r"\b(everything|contents|shapes|colou?rs|things|chart|sign|screenshot)\b"
    assert not [one for one in wording.OUT_OF_DEPTH if re.search(words, one)]


def test_the_presence_of_a_thing_is_answered_with_its_name() -> None:
    rng, found = Random(0), set[str]()
    for _ in range(100):
        asked = questions.exists_and(rng, SCENE)
        assert asked is not None
        found.add(asked.answer)
    assert found == {"Yes, a red star.", "Yes, a blue circle.", "No."}


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("What is in the first picture?", "What was in the first picture?"),
        ("What's in it?", "What was in it?"),
        ("Do you see a star?", "Did you see a star?"),
        ("Do OCR on this.", "Do OCR on this."),
    ],
)
def test_questions_are_put_in_the_past(now: str, before: str) -> None:
    assert wording.past(now) == before


def test_no_question_asks_for_two_things() -> None:
    """One wording is never in the tables of two answers."""
    fixed = (
        wording.DESCRIBE,
        wording.DESCRIBE_MORE,
        wording.TEXT,
        wording.OUT_OF_DEPTH,
        wording.SHAPE_ALONE,
        wording.NUMBER,
        wording.WORD,
    )
    texts = [re.sub(r"\W", "", question.lower()) for table in fixed for question in {*table}]
    twice = {text for text in texts if texts.count(text) > 1}
    assert not {text for text in twice if sum(
        any(re.sub(r"\W", "", one.lower()) == text for one in table) for table in fixed) > 1}  # fmt: skip


def test_printed_letters_are_one_token_each(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    encoder = Encoder(tmp_path / "tokenizer.json")
    for word in ("house", "HOUSE", "House", "qwxz"):
        assert len(encoder(word)) == len(word)
