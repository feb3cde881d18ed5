"""Patterns of layers' names say what Python's `re` says of them, as in PEFT, and none takes long."""

from __future__ import annotations

import random
import re

import pytest

from localai_shim.models.adapters.pattern import MAX_LENGTH, Pattern

NAMES = ["model.layers.11.self_attn.q_proj", "model.layers.1.mlp.up_proj", "lm_head", "q_proj", "a.b..c", ""]
PARTS = [
    "q_proj", "up_proj", "model", "layers", ".", r"\.", r"\d", r"\d+", ".*", "[0-9]", "[^.]", "(", "(?:", ")", "|", "*",
    "+", "?", "{1,2}", "{2}", "{,3}", "^", "$", "1", "a", "self_attn", r"\w", "[a-z_]+", ".*?", "mlp", r"[\w.]", r"\-",
]  # fmt: skip


def peft(pattern: str, name: str) -> bool:
    return re.match(rf"(.*\.)?({pattern})$", name) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "q_proj", "layers.1.mlp.up_proj", "^model.layers.11.self_attn.q_proj", r"layers\.1\d\..*", "(q|up)_proj",
        r".*\.(?:0|1)\.mlp\..*", "[qk]_proj", "model", "proj", "q_proj$", "^q_proj", r".*\.q_proj", "|q_proj", "",
    ],
)  # fmt: skip
def test_usual_patterns_fit_what_peft_says(pattern: str) -> None:
    assert [Pattern(pattern).fits(name) for name in NAMES] == [peft(pattern, name) for name in NAMES]


def test_random_patterns_fit_what_peft_says() -> None:
    rng, compared = random.Random(7), 0
    for _ in range(4_000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 8)))
        try:
            pattern = Pattern(text)
        except ValueError:
            continue
        compared += 1
        assert [pattern.fits(name) for name in NAMES] == [peft(text, name) for name in NAMES], text
    assert compared > 1_000


@pytest.mark.parametrize(
    "pattern", ["([a-z0-9_.]+)+!", "(a|b|ab|[a-z._0-9])*!" * 20, ".*" * 60 + "!", "((([a-z._0-9])+)+)+!"]
)
def test_pattern_that_would_take_re_for_ever_is_answered(pattern: str) -> None:
    assert not any(Pattern(pattern).fits(name) for name in NAMES)


@pytest.mark.parametrize("pattern", ["((a?){1000}){1000}!", "(?:(?:(?:a?){1000}){1000}){1000}!"])
def test_pattern_that_takes_too_many_moves_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="takes too long"):
        Pattern(pattern).fits(NAMES[0])


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(?=q_proj)", r"'\(\?=', which is not supported"),
        ("(?i)q_proj", r"'\(\?i', which"),
        ("(?P<name>q)", r"'\(\?P', which"),
        (r"(q)\1", "which is not supported"),
        (r"\bq_proj", "which is not supported"),
        ("[q", "which is not supported"),
        ("[z-a]", "bad character range"),
        ("[a--b]", "another version of Python"),
        ("q**", r"nothing before '\*'"),
        ("q++", r"nothing before '\+'"),
        ("*q", r"nothing before '\*'"),
        ("(q", r"'\(' without '\)'"),
        ("q)", r"'\)' without '\('"),
        ("q{3,2}", "out of range"),
        ("q{2000}", "out of range"),
        ("(" * 30 + "q" + ")" * 30, "20 groups within each other"),
        ("q" * (MAX_LENGTH + 1), f"{MAX_LENGTH} is the most"),
    ],
)
def test_unsupported_syntax_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Pattern(pattern)
