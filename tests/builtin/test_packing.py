"""Token ids of dialogues, and which of them the model learns."""

import json
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer

from localai_shim.builtin import CHECKPOINT
from training import batches
from training.dialogues import COMPARED, KINDS, sample
from training.forced import forced_pieces
from training.packing import Encoder, marked, taught_pieces
from training.registry import REGISTRY, Dialogue, Kind, Split, user

FREE = [kind for kind in KINDS if kind.content == "free"]
PLAIN = Kind("plain", lambda rng, split: Dialogue((), ()), "free", "", thinks=0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


def taught(tokenizer: Tokenizer, value: Any) -> list[str]:
    """The runs of text that the model learns to write of an answer, with the end of the turn."""
    dialogue = Dialogue((user("Invent a dog."),), (json.dumps(value, ensure_ascii=False),), forced=True)
    ids, marks = marked(Encoder(tokenizer), taught_pieces(Random(0), PLAIN, dialogue))
    runs: list[list[int]] = [[]]
    for one, mark in zip(ids, marks, strict=True):
        if mark:
            runs[-1].append(one)
        elif runs[-1]:
            runs.append([])
    return [tokenizer.decode(run, skip_special_tokens=False) for run in runs if run]


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        ({"name": "Rex", "age": 4}, [' "Rex",', " 4}<|im_end|>"]),
        ({"age": 12, "name": "Rex"}, [" 12,", ' "Rex"}<|im_end|>']),
        ({"x": 3.5, "ok": True, "n": None}, [" 3.5,", " true", " null", "<|im_end|>"]),
        ({"tags": ["a", "b c"], "ok": False}, [' ["a", "b c"],', " false", "<|im_end|>"]),
        ({"n": [1, 22], "e": []}, [" [1, 22],", " []}<|im_end|>"]),
        ({"a": {"b": {"c": "d."}}, "e": 'say "f"'}, [' {"', ' {"', ' "d."}},', ' "say \\"f\\""}<|im_end|>']),
        ({"l": [{"a": True}, {"a": False}]}, [' [{"', ' true}, {"', " false}]}<|im_end|>"]),
    ],
)
def test_values_ends_of_lists_and_the_end_of_the_turn_are_taught(
    tokenizer: Tokenizer, value: Any, runs: list[str]
) -> None:
    assert taught(tokenizer, value) == runs


@pytest.mark.parametrize("kind", FREE, ids=lambda kind: kind.name)
def test_the_pieces_of_a_forced_answer_have_the_token_ids_of_its_whole_text(tokenizer: Tokenizer, kind: Kind) -> None:
    encoder = Encoder(tokenizer)
    for seed in range(60):
        rng = Random(seed)
        dialogue = sample(rng, Split.TRAIN, kind)
        assert dialogue.forced
        pieces = taught_pieces(rng, kind, dialogue)
        ids, marks = marked(encoder, pieces)
        assert ids == tokenizer.encode("".join(text for text, _ in pieces), add_special_tokens=False).ids
        answer = json.loads(dialogue.answers[0])
        for text in strings(answer):
            assert any(mark and text in piece for piece, mark in forced_pieces(dialogue.answers[0])), text
        assert marks[-1]


def strings(value: Any) -> list[str]:
    """The strings of a JSON value as they are written in it, with their closing quotes."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in strings(one)]
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [json.dumps(value, ensure_ascii=False)] if isinstance(value, str) else []


def test_an_answer_that_a_grammar_would_not_write_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"as json\.dumps writes it"):
        forced_pieces('{"a":1}')


def test_free_kinds_are_not_compared() -> None:
    assert FREE
    assert not set(FREE) & set(COMPARED)
    assert all(sample(Random(1), Split.TRAIN, REGISTRY.kinds[name]).forced for name in ("invent_json", "invent_list"))


def test_batches_mark_taught_tokens_and_no_padding(tokenizer: Tokenizer) -> None:
    rows = batches.rows(Encoder(tokenizer), Random(3), Split.TRAIN, 20, ["invent_json"])
    assert all(len(ids) == len(marks) and any(marks) for ids, marks in rows)
    batch = batches.padded(rows[:1], len(rows[0][0]) + 3)
    assert batch.taught.sum() == sum(rows[0][1])
    assert not batch.taught[0, len(rows[0][0]) :].any()
