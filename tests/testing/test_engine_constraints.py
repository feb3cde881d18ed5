"""A scripted reply can be held against the grammar of its request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from localai_shim.types import RowError
from tests.engine.harness import Running, generate, request

# -- grammar constraints ----------------------------------------------------------------------------------------------


class OneText:
    """A constraint that allows one text, token by token of what it knew when it was made; then it is over.

    Args:
        free: its mask limits nothing.
    """

    idle = False
    escape: int | None = None

    def __init__(self, text: str, tokenizer: ScriptedTokenizer, *, ends: bool, free: bool = False) -> None:
        self._tokenizer, self._free, self._vocabulary = tokenizer, free, len(tokenizer)
        self._left = text.encode() + b"<|im_end|>" * ends
        self.accepted: list[int] = []

    def mask(self, out: Any) -> bool:
        assert out.dtype == np.int32
        assert out.shape[0] * 32 >= self._vocabulary
        assert not out.any()
        bits = out.view(np.uint32)
        for token_id in range(self._vocabulary):
            raw = self._tokenizer.bytes_of(token_id)
            if raw and self._left.startswith(raw):
                bits[token_id // 32] |= np.uint32(1 << (token_id % 32))
        return not self._free

    def accept(self, token_id: int) -> bool:
        self.accepted.append(token_id)
        if not self._free:
            assert token_id < self._vocabulary
            self._left = self._left.removeprefix(self._tokenizer.bytes_of(token_id))
        return not self._left


def guided(reply: Any, text: str, *, late: bool = False, obey: bool = True, **constraint: Any) -> tuple[str, OneText]:
    """What is played under a constraint that was made before or after the reply's tokens."""
    with ScriptedEngine([] if late else [reply], obey_constraints=obey) as engine:
        made = OneText(text, engine.tokenizer, **constraint)
        if late:
            engine.say(reply)
        return engine.tokenizer.decode(generate(engine, request([1], max_tokens=99, constraint=made))[0]), made


TEXT = '<tool_call>{"a": "?ż🙂"}</tool_call>'


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("reply", [TEXT, ["<tool_call>", TEXT[11:-12], "</tool_call>"], list(TEXT.encode())])
def test_a_reply_that_the_guide_allows_is_played(reply: Any, ends: bool, late: bool) -> None:
    said, _ = guided(reply, TEXT, ends=ends, late=late)
    assert said == TEXT + ("<|im_end|>" if ends else "")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("reply", "forbidden", "after"),
    [("yes no", " no", "yes"), ("yep", "yep", ""), ("yes", "<|im_end|>", "yes"), (["y", "es", " or!"], " or!", "yes")],
)
def test_a_reply_that_the_guide_forbids_fails_and_names_the_token(
    reply: Any, forbidden: str, after: str, late: bool
) -> None:
    with pytest.raises(RowError, match="grammar does not allow") as caught:
        guided(reply, "yes or", ends=True, late=late)
    assert f"{forbidden!r} after {after!r}" in str(caught.value)


@pytest.mark.parametrize("reply", ["yes then", ["yes then"], ["y", "es then"]])
def test_a_reply_that_goes_on_after_the_guide_s_end_fails(reply: Any) -> None:
    with pytest.raises(RowError, match="then"):
        guided(reply, "yes", ends=False)


def test_a_guide_that_limits_nothing_is_told_the_tokens_that_were_said() -> None:
    said, constraint = guided(["abc", "d"], "xyz", ends=True, free=True)
    assert said == "abcd<|im_end|>"
    assert len(constraint.accepted) == 3


def test_a_guide_s_escape_is_allowed() -> None:
    with ScriptedEngine(["ab"], obey_constraints=True) as engine:
        constraint = OneText("", engine.tokenizer, ends=False)
        constraint.escape = engine.tokenizer.intern("ab")
        assert generate(engine, request([1], constraint=constraint)) == [[constraint.escape]]


def test_guides_are_not_asked_unless_they_are_to_be_obeyed() -> None:
    said, constraint = guided("no", "yes", ends=True, obey=False)
    assert (said, constraint.accepted) == ("no<|im_end|>", [])


class JsonSchema:
    """A constraint by llguidance, over the vocabulary as it is when this is made."""

    idle = False
    escape = None

    def __init__(self, schema: dict[str, Any], tokenizer: ScriptedTokenizer) -> None:
        import llguidance.numpy

        self.eos_token_id, self.bos_token_id = tokenizer.eos_token_id, None
        self.tokens = [tokenizer.bytes_of(i) for i in range(len(tokenizer))]
        self.special_token_ids = tokenizer.all_special_ids
        self._encode, self._fill = tokenizer.encode, llguidance.numpy.fill_next_token_bitmask
        vocabulary = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))
        self._matcher = llguidance.LLMatcher(vocabulary, llguidance.LLMatcher.grammar_from_json_schema(schema))
        self._masks = llguidance.numpy.allocate_token_bitmask(1, vocabulary.vocab_size)

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)

    def mask(self, out: Any) -> bool:
        self._fill(self._matcher, self._masks)
        out[: self._masks.shape[1]] = self._masks[0]
        return True

    def accept(self, token_id: int) -> bool:
        assert self._matcher.consume_token(token_id)
        return bool(self._matcher.is_stopped())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("reply", "accepted"),
    [
        ('{"name": "Zażółć 🙂", "age": 12}', True),
        (['{"na', 'me": "\xe9"', ', "age": 1', "2}"], True),
        ('{"name": "x", "age": 1.5}', False),
        ('{"age": 12}', False),
        ('{"name": "x", "age": 12', False),
        ('{"name": "x", "age": 12} so', False),
    ],
)
def test_a_grammar_of_llguidance_tells_whether_a_reply_follows_a_schema(reply: Any, accepted: bool, late: bool) -> None:
    pytest.importorskip("llguidance")
    properties = {"name": {"type": "string"}, "age": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["name", "age"], "additionalProperties": False}
    with ScriptedEngine([] if late else [reply], obey_constraints=True) as engine:
        constraint = JsonSchema(schema, engine.tokenizer)
        if late:
            engine.say(reply)
        running = Running(engine, request([1], max_tokens=99, constraint=constraint))
        if accepted:
            assert engine.tokenizer.decode(running.finish()[0]).removesuffix("<|im_end|>") == "".join(reply)
        else:
            with pytest.raises(RowError, match="grammar does not allow"):
                running.finish()
